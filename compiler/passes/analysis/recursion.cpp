#include "compiler/passes/analysis/recursion.h"

#include <vector>

#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

Recursion::Recursion(const ir::Module& m) {
  std::map<std::string, std::set<std::string>> direct;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&, caller = name](const ir::Binding& b) {
      const ir::Expr& e = *b.value;
      auto value = [&](const ir::Atom& a) {
        if (!a.is_global()) return;
        direct[caller].insert(a.global);
        values_.insert(a.global);
      };
      for (const ir::Atom& a : e.args) value(a);
      if (!e.callee || !e.callee->is_global()) return;
      direct[caller].insert(e.callee->global);
      if (e.kind == ir::ExprKind::kClosure) values_.insert(e.callee->global);
    });
  for (const auto& [name, f] : m.functions) {
    std::vector<std::string> pending(direct[name].begin(), direct[name].end());
    std::set<std::string>& reached = reached_[name];
    while (!pending.empty()) {
      std::string at = std::move(pending.back());
      pending.pop_back();
      if (!reached.insert(at).second) continue;
      pending.insert(pending.end(), direct[at].begin(), direct[at].end());
    }
  }
}

bool Recursion::calls(const std::string& from, const std::string& to) const {
  auto it = reached_.find(from);
  return it != reached_.end() && it->second.count(to) > 0;
}

bool Recursion::may_return_through_values(const std::string& from) const {
  if (values_.count(from)) return true;
  for (const std::string& v : values_)
    if (calls(v, from)) return true;
  return false;
}

}  // namespace nimble::passes
