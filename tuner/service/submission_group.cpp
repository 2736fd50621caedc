#include "tuner/service/submission_group.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr char kAssertion[] = "assert_shape";

// What a fused group may hold: make_workload takes that for granted of the compiler's own.
void check_group(const ir::Module& m, const std::string& place) {
  if (const std::vector<std::string> faults = ir::verify(m); !faults.empty())
    corrupt_submission(place, faults[0]);
  for (const ir::Binding& b : m.functions[0].second->body->bindings) {
    const ir::ExprKind kind = b.value->kind;
    if (kind != ir::ExprKind::kTuple && kind != ir::ExprKind::kAtom &&
        kind != ir::ExprKind::kGetField &&
        !(kind == ir::ExprKind::kCall && ir::find_op(b.value->op)))
      corrupt_submission(place, b.var->name + " is neither an operator nor a tuple");
  }
}

bool is_assertion(const ir::Binding& b) {
  return b.value->kind == ir::ExprKind::kCall && b.value->op == kAssertion;
}

// A parameter that binds each symbol which the caller passes: inference knows of no other way.
ir::Module with_passed(ir::Module m, const std::vector<std::string>& passed,
                       const std::string& place) {
  if (m.functions.size() != 1) corrupt_submission(place, "is not one group");
  auto f = std::make_shared<ir::Function>(*m.functions[0].second);
  for (const std::string& s : passed) {
    const bool plain = !s.empty() && std::ranges::all_of(s, [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '.';
    });
    if (!plain) corrupt_submission(place, "\"" + s + "\" is no symbol");
    f->parameters.push_back(
        ir::make_var("extent_" + s, ir::tensor_type({ir::Dim::symbol(s)}, DType::kBool)));
  }
  m.functions[0].second = std::move(f);
  return m;
}

// What is asserted of a value becomes its type.
ir::FunctionRef without_assertions(const ir::Function& f) {
  std::map<const ir::Var*, ir::Type> told;
  const auto type_of = [&](const ir::VarRef& v) {
    const auto it = told.find(v.get());
    return it == told.end() ? v->type : it->second;
  };
  const std::vector<ir::Binding>& bindings = f.body->bindings;
  for (auto b = bindings.rbegin(); b != bindings.rend(); ++b)
    if (is_assertion(*b) && b->value->args[0].is_var())
      told[b->value->args[0].var.get()] = type_of(b->var);

  std::map<const ir::Var*, ir::Atom> renamed;
  const auto fresh = [&](const ir::VarRef& v) {
    ir::VarRef made = ir::make_var(v->name, type_of(v));
    renamed.insert_or_assign(v.get(), ir::Atom(made));
    return made;
  };
  const auto atom = [&](const ir::Atom& a) { return a.is_var() ? renamed.at(a.var.get()) : a; };
  auto out = std::make_shared<ir::Function>(f);
  for (ir::VarRef& p : out->parameters) p = fresh(p);
  auto body = std::make_shared<ir::Block>();
  for (const ir::Binding& b : bindings) {
    if (is_assertion(b)) {
      renamed.insert_or_assign(b.var.get(), atom(b.value->args[0]));
      continue;
    }
    auto value = std::make_shared<ir::Expr>(*b.value);
    for (ir::Atom& a : value->args) a = atom(a);
    body->bindings.push_back({fresh(b.var), std::move(value)});
  }
  body->result = atom(f.body->result);
  out->body = std::move(body);
  return out;
}

}  // namespace

void corrupt_submission(const std::string& place, const std::string& problem) {
  throw Error(Status::kCorrupt, "submission: " + place, problem.substr(0, problem.find('\n')),
              "submit the model again");
}

ir::FunctionRef group_of(const std::string& text, const std::vector<std::string>& passed,
                         const std::string& place) {
  try {
    const ir::Module m = ir::infer_types(with_passed(ir::parse_module(text, place), passed, place));
    check_group(m, place);
    auto group = std::make_shared<ir::Function>(*without_assertions(*m.functions[0].second));
    group->parameters.resize(group->parameters.size() - passed.size());
    return group;
  } catch (const Error& e) {
    if (e.status() == Status::kCorrupt) throw;
    corrupt_submission(place, e.what());
  } catch (const std::exception& e) {
    corrupt_submission(place, e.what());  // such as an attribute that an operator lacks
  }
}

std::vector<std::string> passed_symbols(const kernels::Workload& workload) {
  std::set<std::string> out;
  for (const ir::Dim& d : workload.extra_scalars) out.merge(d.symbols());
  return {out.begin(), out.end()};
}

}  // namespace nimble::tuner
