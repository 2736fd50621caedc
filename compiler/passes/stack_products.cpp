// Products of different operands with one constant matrix become one product of the operands on
// top of each other:
//
//   p = matmul(x, W);  f = sigmoid(add(p, b))        s = concat(x, y)
//   q = matmul(y, W);  g = sigmoid(add(q, b))   =>   t = sigmoid(add(matmul(s, W), b))
//                                                    f, g = the upper and the lower rows of t
//
// A product of few rows takes as long as its matrix takes to arrive, so the matrix should arrive
// once: the forget gates of a tree's two children, the projections of two sentences. With many rows
// there is nothing to gain and the operands would be copied, so products of more rows than
// kFewRows, where that is known, stay apart. What follows each product in the same way (an
// element-wise operator whose other operand all rows share) moves to the stack, where it goes into
// the product's kernel. Rows that were gathered from one tensor are gathered once.
#include <algorithm>
#include <map>

#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockBuilder;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::Var;
using ir::VarRef;

constexpr int64_t kFewRows = 64;

bool equal(const Atom& a, const Atom& b) {
  if (a.is_var() != b.is_var() || a.is_constant() != b.is_constant()) return false;
  if (a.is_var()) return a.var == b.var;
  if (!a.is_constant()) return false;
  const ir::Tensor &x = *a.constant, &y = *b.constant;
  return &x == &y ||
         (x.dtype == y.dtype && x.shape == y.shape && std::ranges::equal(x.bytes, y.bytes));
}

// A product of a matrix of rows with a constant matrix, or null.
const Expr* product(const Binding& b) {
  const Expr& e = *b.value;
  if (e.kind != ExprKind::kCall || e.op != "matmul" || !b.var->type) return nullptr;
  if (!e.args[0].is_var() || !e.args[1].is_constant()) return nullptr;
  if (e.args[0].var->type->dims.size() != 2 || e.args[1].constant->shape.size() != 2)
    return nullptr;
  return ir::attr_or(e.attrs, "transpose_a", false) ? nullptr : &e;
}

class Stacking {
 public:
  explicit Stacking(PassContext& context) : context_(context) {}

  void run(ir::FunctionRef* f) {
    uses_ = count_uses(*(*f)->body);
    auto out = std::make_shared<ir::Function>(**f);
    out->body = rewrite((*f)->body);
    *f = std::move(out);
  }

 private:
  // Products that become one, as positions in their block, and what follows each alike.
  struct Group {
    std::vector<size_t> products;
    std::vector<std::vector<size_t>> followers;
  };

  ir::BlockRef rewrite(const ir::BlockRef& block) {
    auto inside = std::make_shared<Block>(*block);
    for (Binding& b : inside->bindings)
      b.value = map_blocks(b.value, [&](const ir::BlockRef& n) { return rewrite(n); });

    place_.clear();
    for (size_t i = 0; i < inside->bindings.size(); ++i) place_[inside->bindings[i].var.get()] = i;
    std::vector<Group> groups = find_groups(*inside);
    if (groups.empty()) return inside;

    std::map<size_t, const Group*> at;  // by where the stack is made
    std::map<size_t, std::pair<const Group*, size_t>> replaced;
    for (Group& g : groups) {
      follow(*inside, &g);
      at[g.products[0]] = &g;
      for (size_t i = 0; i < g.products.size(); ++i) {
        replaced[g.products[i]] = {&g, i};
        for (const auto& f : g.followers) replaced[f[i]] = {&g, i};
      }
    }
    BlockBuilder b;
    for (size_t i = 0; i < inside->bindings.size(); ++i) {
      if (const auto it = at.find(i); it != at.end()) stack(*inside, *it->second, b);
      if (!replaced.contains(i)) b.append(inside->bindings[i]);
    }
    return b.finish(inside->result);
  }

  // Of each matrix: the first product, and those whose operand is known before it.
  std::vector<Group> find_groups(const Block& block) const {
    std::vector<Group> groups;
    for (size_t i = 0; i < block.bindings.size(); ++i) {
      const Expr* e = product(block.bindings[i]);
      if (!e || !few_rows(*e)) continue;
      const auto joins = [&](const Group& g) {
        const Expr& first = *block.bindings[g.products[0]].value;
        const Type &mine = e->args[0].var->type, &its = first.args[0].var->type;
        return equal(first.args[1], e->args[1]) && first.attrs == e->attrs &&
               first.args[0].var != e->args[0].var && mine->dims == its->dims &&
               mine->dtype == its->dtype && known_before(e->args[0], g.products[0]);
      };
      const auto it = std::find_if(groups.begin(), groups.end(), joins);
      if (it != groups.end())
        it->products.push_back(i);
      else
        groups.push_back({{i}, {}});
    }
    std::erase_if(groups, [](const Group& g) { return g.products.size() < 2; });
    return groups;
  }

  static bool few_rows(const Expr& e) {
    const auto rows = e.args[0].var->type->dims[0].as_constant();
    return !rows || (*rows > 0 && *rows <= kFewRows);
  }

  bool known_before(const Atom& a, size_t place) const {
    if (!a.is_var()) return true;
    const auto it = place_.find(a.var.get());  // else it is of an outer block
    return it == place_.end() || it->second < place;
  }

  // Extends the group by what uses each of its values alone and in the same way.
  void follow(const Block& block, Group* g) const {
    std::vector<size_t> last = g->products;
    while (true) {
      std::vector<size_t> next;
      for (const size_t i : last) {
        const Var* v = block.bindings[i].var.get();
        if (uses_.at(v) != 1) return;
        const auto user = std::find_if(
            block.bindings.begin() + static_cast<ptrdiff_t>(i), block.bindings.end(),
            [&](const Binding& b) {
              return std::any_of(b.value->args.begin(), b.value->args.end(),
                                 [&](const Atom& a) { return a.is_var() && a.var.get() == v; });
            });
        if (user == block.bindings.end()) return;
        next.push_back(static_cast<size_t>(user - block.bindings.begin()));
      }
      for (size_t i = 0; i < next.size(); ++i)
        if (!alike(*g, block.bindings[last[i]], block.bindings[next[i]], block.bindings[last[0]],
                   block.bindings[next[0]]))
          return;
      g->followers.push_back(next);
      last = std::move(next);
    }
  }

  // Whether `use` does with `value` what `first_use` does with `first`: something element-wise,
  // whose other operands all rows share and are known where the stack is made.
  bool alike(const Group& g, const Binding& value, const Binding& use, const Binding& first,
             const Binding& first_use) const {
    const Expr &e = *use.value, &f = *first_use.value;
    const ir::OpInfo* op = ir::find_op(e.op);
    if (e.kind != ExprKind::kCall || !op || op->fusion != ir::FusionKind::kElementwise ||
        e.op != f.op || e.attrs != f.attrs || e.args.size() != f.args.size())
      return false;
    if (use.var->type->dims != value.var->type->dims) return false;
    for (size_t i = 0; i < e.args.size(); ++i) {
      const bool mine = e.args[i].is_var() && e.args[i].var == value.var;
      const bool its = f.args[i].is_var() && f.args[i].var == first.var;
      if (mine != its) return false;
      if (mine) continue;
      if (!equal(e.args[i], f.args[i]) || ir::type_of(e.args[i])->dims.size() > 1 ||
          !known_before(e.args[i], g.products[0]))
        return false;
    }
    return true;
  }

  void stack(const Block& block, const Group& g, BlockBuilder& b) {
    const auto binding = [&](size_t i) -> const Binding& { return block.bindings[i]; };
    const Binding& first = binding(g.products[0]);
    const auto count = static_cast<int64_t>(g.products.size());
    const Dim rows = first.value->args[0].var->type->dims[0];
    const auto stacked = [&](const Type& part) {
      std::vector<Dim> dims = part->dims;
      dims[0] = Dim(count) * rows;
      return ir::tensor_type(std::move(dims), part->dtype);
    };
    const auto call = [&](const Expr& like, std::vector<Atom> args, const Type& type,
                          const std::string& name) {
      VarRef v = b.call(like.op, std::move(args), like.attrs, name, like.location);
      v->type = type;
      return v;
    };

    std::vector<Atom> operands;
    for (const size_t i : g.products) operands.push_back(binding(i).value->args[0]);
    VarRef value = call(*first.value, {stack_of(block, operands, stacked, b), first.value->args[1]},
                        stacked(first.var->type), first.var->name);
    const Var* replaced = first.var.get();
    for (const auto& f : g.followers) {
      const Binding& use = binding(f[0]);
      std::vector<Atom> args = use.value->args;
      for (Atom& a : args)
        if (a.is_var() && a.var.get() == replaced) a = value;
      value = call(*use.value, std::move(args), stacked(use.var->type), use.var->name);
      replaced = use.var.get();
    }
    // The last values, under the names that their users know.
    const std::vector<size_t>& last = g.followers.empty() ? g.products : g.followers.back();
    for (int64_t i = 0; i < count; ++i)
      b.append({binding(last[static_cast<size_t>(i)]).var,
                ir::make_call("slice", {value},
                              {{"axes", std::vector<int64_t>{0}},
                               {"starts", std::vector<Dim>{Dim(i) * rows}},
                               {"ends", std::vector<Dim>{Dim(i + 1) * rows}},
                               {"steps", std::vector<Dim>{1}}},
                              first.value->location)});
    context_.count("stack-products.joined", count);
  }

  // The operands on top of each other.
  VarRef stack_of(const Block& block, const std::vector<Atom>& operands,
                  const std::function<Type(const Type&)>& stacked, BlockBuilder& b) const {
    std::vector<Atom> indices;
    const auto gathered = [&](const Atom& a) -> const Expr* {
      const auto it = place_.find(a.var.get());
      if (it == place_.end()) return nullptr;
      const Expr& e = *block.bindings[it->second].value;
      const bool rows = e.kind == ExprKind::kCall && e.op == "gather" && e.args[1].is_var() &&
                        ir::type_of(e.args[1])->dims.size() == 1 &&
                        ir::attr<int64_t>(e.attrs, "axis") == 0;
      return rows ? &e : nullptr;
    };
    const Expr* first = gathered(operands[0]);
    for (const Atom& a : operands) {
      const Expr* e = gathered(a);
      if (!first || !e || !equal(e->args[0], first->args[0]) ||
          ir::type_of(e->args[1])->dtype != ir::type_of(first->args[1])->dtype) {
        indices.clear();
        break;
      }
      indices.push_back(e->args[1]);
    }
    const auto join = [&](const std::vector<Atom>& of, const std::string& name) {
      VarRef v = b.call("concat", of, {{"axis", int64_t{0}}}, name);
      v->type = stacked(ir::type_of(of[0]));
      return v;
    };
    if (indices.empty()) return join(operands, "stack");
    VarRef v = b.call("gather", {first->args[0], join(indices, "rows")}, first->attrs, "stack");
    v->type = stacked(ir::type_of(operands[0]));
    return v;
  }

  PassContext& context_;
  UseCounts uses_;
  std::unordered_map<const Var*, size_t> place_;
};

}  // namespace

ir::Module stack_products(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) Stacking(context).run(&f);
  return out;
}

}  // namespace nimble::passes
