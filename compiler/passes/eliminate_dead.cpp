// Drops bindings whose values nobody reads, and functions that no entry reaches. Pure until
// lowered, so every unused binding may go; what stops the run or changes memory (the trait
// `effect`) stays, and so does what gives a symbol its value (read_extents, an `if` whose extent
// only the run decides) while types or attributes mention the symbol.
#include <functional>
#include <map>
#include <set>

#include "compiler/ir/entry.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Binding;
using ir::Expr;
using ir::ExprKind;

bool has_effect(const Expr& e) {
  if (e.kind == ExprKind::kCall) return ir::traits_of(e).effect || e.callee.has_value();
  if (e.kind == ExprKind::kFunction) return false;  // making a closure runs nothing
  for (const ir::BlockRef& nested : ir::blocks_of(e))
    for (const Binding& b : nested->bindings)
      if (has_effect(*b.value)) return true;
  return false;
}

// How often types and attributes mention each symbol.
using Mentions = std::map<std::string, int>;

void mention(const Binding& b, Mentions& mentions, int by) {
  auto add = [&](const ir::Dim& d) {
    for (const std::string& s : d.symbols()) mentions[s] += by;
  };
  std::function<void(const ir::Type&)> type = [&](const ir::Type& t) {
    if (!t) return;
    for (const ir::Dim& d : t->dims) add(d);
    for (const ir::Type& e : t->elements) type(e);
  };
  type(b.var->type);
  for (const auto& [name, value] : b.value->attrs) {
    if (const auto* d = std::get_if<ir::Dim>(&value)) add(*d);
    if (const auto* all = std::get_if<std::vector<ir::Dim>>(&value))
      for (const ir::Dim& d : *all) add(d);
  }
}

// Whether a symbol that this binding alone gives its value is mentioned elsewhere.
bool names_used_symbol(const Binding& b, const Mentions& mentions) {
  Mentions own;
  const Expr& e = *b.value;
  const bool names = ir::traits_of(e).names_symbols;
  if (names) {
    for (const std::string& s : ir::attr<std::vector<std::string>>(e.attrs, "symbols")) own[s] = 0;
  } else if (e.kind == ExprKind::kIf || decides_shapes(e)) {
    mention(b, own, 1);
  }
  for (const auto& [symbol, count] : own) {
    auto it = mentions.find(symbol);
    if ((names || symbol[0] == '?') && it != mentions.end() && it->second > count) return true;
  }
  return false;
}

ir::BlockRef sweep(const ir::BlockRef& block, UseCounts& uses, Mentions& mentions,
                   PassContext& context) {
  std::vector<Binding> kept;  // in reverse
  bool changed = false;
  for (size_t i = block->bindings.size(); i-- > 0;) {
    Binding b = block->bindings[i];
    if (uses[b.var.get()] == 0 && !has_effect(*b.value) && !names_used_symbol(b, mentions)) {
      mention(b, mentions, -1);
      visit_atoms(*b.value, [&](const ir::Atom& a) {
        if (a.is_var()) --uses[a.var.get()];
      });
      context.count("eliminate-dead.bindings");
      changed = true;
      continue;
    }
    ir::ExprRef swept = map_blocks(b.value, [&](const ir::BlockRef& nested) {
      return sweep(nested, uses, mentions, context);
    });
    changed |= swept != b.value;
    b.value = std::move(swept);
    kept.push_back(std::move(b));
  }
  if (!changed) return block;
  auto out = std::make_shared<ir::Block>();
  out->bindings.assign(kept.rbegin(), kept.rend());
  out->result = block->result;
  return out;
}

void reach(const ir::Module& m, const std::string& name, std::set<std::string>& seen) {
  ir::FunctionRef f = m.find(name);
  if (!f || !seen.insert(name).second) return;
  visit_atoms(*f->body, [&](const ir::Atom& a) {
    if (a.is_global()) reach(m, a.global, seen);
  });
}

}  // namespace

ir::Module eliminate_dead(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  std::set<std::string> reached;
  for (const auto& [name, f] : m.functions)
    if (ir::is_entry(m, name)) reach(m, name, reached);
  if (!reached.empty())
    std::erase_if(out.functions, [&](const auto& f) { return !reached.count(f.first); });
  for (auto& [name, f] : out.functions) {
    UseCounts uses = count_uses(*f->body);
    Mentions mentions;
    visit_bindings(*f->body, [&](const Binding& b) { mention(b, mentions, 1); });
    ir::BlockRef body = sweep(f->body, uses, mentions, context);
    if (body == f->body) continue;
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = std::move(body);
    f = copy;
  }
  return out;
}

}  // namespace nimble::passes
