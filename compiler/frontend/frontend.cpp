#include "compiler/frontend/frontend.h"

#include <algorithm>
#include <filesystem>

#include "compiler/frontend/huggingface/huggingface.h"
#include "compiler/frontend/onnx/onnx.h"
#include "compiler/frontend/specialise.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"

namespace nimble::frontend {
namespace {

enum class Format { kHuggingFace, kOnnx, kText };

Format format_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status))
    throw Error(Status::kNotFound, path, "there is no such model",
                "name an .onnx file, a Hugging Face folder or a .nir file");
  if (fs::is_directory(status)) {
    if (fs::exists(path + "/config.json", code)) return Format::kHuggingFace;
    throw Error(Status::kNotFound, path, "the folder has no config.json",
                "name the folder of a Hugging Face model, or the model file in it");
  }
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".onnx") return Format::kOnnx;
  if (extension == ".nir") return Format::kText;
  throw Error(Status::kUnsupported, path, "is of no known model format",
              "name an .onnx file, a Hugging Face folder or a .nir file");
}

// Counts the operators of an imported module: whatever got that far is supported.
class OperatorCount {
 public:
  void visit(const ir::Block& b) {
    for (const ir::Binding& binding : b.bindings) {
      const ir::Expr& e = *binding.value;
      if (!e.op.empty()) ++counts_[e.op];
      if (e.kind == ir::ExprKind::kCall && e.primitive) visit(*e.primitive->body);
      for (const ir::BlockRef& nested : ir::blocks_of(e)) visit(*nested);
    }
  }
  std::vector<Coverage::Row> rows() const {
    std::vector<Coverage::Row> out;
    for (const auto& [op, count] : counts_) out.push_back({op, "", count, true, "", ""});
    return out;
  }

 private:
  std::map<std::string, int64_t> counts_;
};

}  // namespace

bool Coverage::complete() const {
  return std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.supported; });
}

Coverage coverage(const std::string& path) {
  const Format format = format_of(path);
  if (format == Format::kOnnx) return onnx_coverage(path);
  OperatorCount count;
  for (const auto& [name, f] : import_model(path).functions) count.visit(*f->body);
  return {format == Format::kText ? "text" : "huggingface", count.rows()};
}

ir::Module import_model(const std::string& path, const ImportOptions& options) {
  ir::Module m;
  const Format format = format_of(path);
  if (!options.random_input.empty() && format != Format::kOnnx)
    throw Error(Status::kInvalidArgument, path, "only ONNX models have random operators",
                "leave the random input out");
  switch (format) {
    case Format::kHuggingFace:
      m = import_huggingface(path);
      break;
    case Format::kOnnx:
      m = import_onnx(path, options);
      break;
    case Format::kText:
      m = ir::read_module(path);
      break;
  }
  if (m.source.empty()) m.source = path;
  if (format != Format::kOnnx) m = specialise(std::move(m), options);  // there it is done
  m = ir::infer_types(m);
  return options.decode.choice.empty() ? m : ir::infer_types(decoding_loop(m, options.decode));
}

}  // namespace nimble::frontend
