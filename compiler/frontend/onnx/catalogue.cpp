#include "compiler/frontend/onnx/catalogue.h"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "compiler/frontend/frontend.h"

namespace nimble::frontend {
namespace onnx {

const std::vector<CatalogueRow>& catalogue() {
  static const auto* kRows = [] {
    auto* rows = new std::vector<CatalogueRow>;
    const auto add = [&](const char* domain, const char* name, const char* versions,
                         const char* note) {
      CatalogueRow row{domain, name, {}, note};
      std::istringstream in(versions);
      for (std::string part; std::getline(in, part, ',');) row.versions.push_back(std::stoll(part));
      rows->push_back(std::move(row));
    };
#define NIMBLE_ONNX_OPERATOR(domain, name, versions, note) add(domain, name, versions, note);
#include "compiler/frontend/onnx/Catalogue.def"
#undef NIMBLE_ONNX_OPERATOR
    return rows;
  }();
  return *kRows;
}

std::vector<const Operator*> all_operators() {
  std::vector<const Operator*> out;
  for (auto family : {elementwise_operators(), math_operators(),      quantised_operators(),
                      shape_operators(),       product_operators(),   convolution_operators(),
                      pooling_operators(),     reduction_operators(), normalising_operators(),
                      attention_operators(),   recurrent_operators(), loop_operators(),
                      index_operators(),       control_operators(),   sequence_operators(),
                      algebra_operators(),     sampling_operators(),  signal_operators(),
                      resize_operators(),      dynamic_operators(),   random_operators()})
    for (const Operator& op : family) out.push_back(&op);
  return out;
}

const Operator* find_operator(const std::string& domain, const std::string& name) {
  static const auto* kAll = [] {
    auto* all = new std::map<std::pair<std::string, std::string>, const Operator*>;
    for (const Operator* op : all_operators()) (*all)[{op->domain, op->name}] = op;
    return all;
  }();
  auto it = kAll->find({domain, name});
  return it == kAll->end() ? nullptr : it->second;
}

std::string missing_reason(const std::string& domain, const std::string& name) {
  for (const CatalogueRow& row : catalogue())
    if (row.domain == domain && row.name == name)
      return row.note.empty() ? "there is no rule for it" : row.note;
  return domain.empty() ? "ONNX has no such operator" : "there is no rule for this domain";
}

}  // namespace onnx

std::string onnx_operator_list() {
  using onnx::CatalogueRow;
  std::string out = fmt::format(
      "# ONNX operators\n\n"
      "What `nimble check --operators` prints: every operator of ONNX 1.23, with those of ONNX "
      "Runtime that are read, and the operator sets that defined a version of it. Models of opset "
      "{} to {} are read. All element types of the "
      "IR are (bool, integers of 8 to 64 bits, f16, bf16, f32, f64); strings, complex numbers, "
      "8-bit floats and types of less than a byte are not. `nimble check MODEL` says the same of "
      "one model.\n",
      onnx::kOldestOpset, onnx::kNewestOpset);
  std::string domain = "\n";
  size_t supported = 0, all = 0;
  for (const CatalogueRow& row : onnx::catalogue()) {
    if (row.domain != domain) {
      domain = row.domain;
      out += fmt::format(
          "\n## {}\n\n| operator | supported versions | not supported | remarks |\n"
          "|---|---|---|---|\n",
          domain.empty() ? "ai.onnx" : domain);
    }
    const bool rule = onnx::find_operator(row.domain, row.name) != nullptr;
    std::vector<int64_t> yes, no;
    bool old = false;
    for (size_t i = 0; i < row.versions.size(); ++i) {
      // A version holds until the next one.
      const bool read = !row.domain.empty() || i + 1 == row.versions.size() ||
                        row.versions[i + 1] > onnx::kOldestOpset;
      (rule && read ? yes : no).push_back(row.versions[i]);
      old |= rule && !read;
    }
    supported += !yes.empty();
    ++all;
    std::string remark = rule ? row.note : onnx::missing_reason(row.domain, row.name);
    if (old)
      remark += fmt::format("{}older operator sets are not read", remark.empty() ? "" : "; ");
    out += fmt::format("| {} | {} | {} | {} |\n", row.name, fmt::join(yes, ", "),
                       fmt::join(no, ", "), remark);
  }
  return out + fmt::format("\n{} of {} operators are supported in some version.\n", supported, all);
}

}  // namespace nimble::frontend
