#include "compiler/ir/diagnostic.h"

#include <algorithm>
#include <tuple>

#include "vm/base/error.h"

namespace nimble::ir {

std::string Diagnostic::str() const {
  std::string s = location.str();
  if (!s.empty()) s += ": ";
  s += problem;
  if (!remedy.empty()) s += "; " + remedy;
  if (source_line.empty()) return s;
  std::string pad;
  for (size_t i = 0; i + 1 < static_cast<size_t>(location.column) && i < source_line.size(); ++i) {
    pad += source_line[i] == '\t' ? '\t' : ' ';
  }
  return s + "\n  " + source_line + "\n  " + pad + "^";
}

void Diagnostics::add(Location at, std::string problem, std::string remedy) {
  if (all_.size() >= kMax) return;
  for (const Diagnostic& d : all_) {
    if (d.problem == problem && d.location.str() == at.str()) return;
  }
  std::string quoted;
  if (text_ && at.line > 0) {
    size_t begin = 0;
    for (int line = 1; line < at.line && begin != std::string::npos; ++line) {
      begin = text_->find('\n', begin);
      if (begin != std::string::npos) ++begin;
    }
    if (begin < text_->size()) {
      const size_t end = std::min(text_->find('\n', begin), text_->size());
      quoted = text_->substr(begin, end - begin);
    }
  }
  all_.push_back({std::move(at), std::move(problem), std::move(remedy), std::move(quoted)});
}

std::vector<Diagnostic> Diagnostics::sorted() const {
  std::vector<Diagnostic> out = all_;
  std::stable_sort(out.begin(), out.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.location.line, a.location.column) <
           std::tie(b.location.line, b.location.column);
  });
  return out;
}

void raise(const std::vector<Diagnostic>& diagnostics) {
  NIMBLE_CHECK(!diagnostics.empty(), "nothing to report");
  if (diagnostics.size() == 1 && diagnostics[0].source_line.empty()) {
    const Diagnostic& d = diagnostics[0];
    throw Error(Status::kInvalidArgument, d.location.str(), d.problem, d.remedy);
  }
  std::string all;
  for (const Diagnostic& d : diagnostics) all += (all.empty() ? "" : "\n") + d.str();
  throw Error(Status::kInvalidArgument, "", all);
}

}  // namespace nimble::ir
