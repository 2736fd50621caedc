// Results that go straight into the rows they are for.
//
// write_row(x, i, v) in place is a copy of v into rows of x:
//
//   %s = memory.alloc_storage(); %v = memory.alloc_tensor(%s)
//   memory.invoke_mut[group](…, %v)                         %row = memory.row_view(%x, %i)
//   %row = memory.row_view(%x, %i)                     =>   memory.invoke_mut[group](…, %row)
//   memory.invoke_mut[copy](%v, %row)
//
// The group can store there itself, and what reads v before the copy can read the rows, if nothing
// reads v later. If something does, as the next step of a recurrent cell reads its state, the group
// stores v twice where its template can:
//
//   memory.invoke_mut[group](…, %v)                         %row = memory.row_view(%x, %i)
//   %row = memory.row_view(%x, %i)                     =>   memory.invoke_mut[group'](…, %v, %row)
//   memory.invoke_mut[copy](%v, %row)
//
// A call less, and each thread stores what it has just made instead of one fetching the others'
// shares from their caches. Either way that moves the write ahead of what stands in between, and
// into the group, so neither may look at these rows: they name memory, or call kernels on
// constants, parameters and what lies in storages that this function allocated, x being another of
// these. Two storages differ; a parameter's memory is older than any of them; and a parameter that
// is written in place shares with no other (ownership.cpp). Of x itself the group may read the
// first i rows.
#include <algorithm>
#include <set>

#include "compiler/ir/builder.h"
#include "compiler/kernels/template.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/kernel_call.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Dim;
using ir::Expr;
using ir::Var;

bool is_copy(const Expr& e) {
  if (!is_kernel_call(e) || e.args.size() != 2) return false;
  const auto& bindings = e.primitive->body->bindings;
  return bindings.size() == 1 && bindings[0].value->op == "cast" &&
         !e.primitive->attrs.contains("scalars") && e.args[0].is_var() && e.args[1].is_var() &&
         e.args[0].var->type->dtype == e.args[1].var->type->dtype;
}

// What only names memory and extents.
bool reads_nothing(const Expr& e) {
  static const std::set<std::string> kNames = {"memory.row_view", "memory.reshape",
                                               "memory.alloc_tensor", "memory.alloc_storage"};
  return kNames.contains(e.op) || is_scalar_op(e);
}

class WriteThrough {
 public:
  WriteThrough(const ir::Function& f, PassContext& context)
      : definitions_(definitions_of(f)), uses_(count_uses(*f.body)), context_(context) {
    for (const ir::VarRef& p : f.parameters) parameters_.insert(p.get());
  }

  ir::BlockRef run(const ir::BlockRef& block) {
    auto out = std::make_shared<Block>(*block);
    for (Binding& b : out->bindings)
      b.value = map_blocks(b.value, [&](const ir::BlockRef& inner) { return run(inner); });
    for (size_t copy = 0; copy < out->bindings.size(); ++copy)
      if (is_copy(*out->bindings[copy].value)) {
        size_t gone = redirect(out->bindings, copy);
        if (gone == 0) gone = store_twice(out->bindings, copy);
        copy -= gone;
      }
    return out;
  }

 private:
  // Makes the group behind a copy's operand write to the copy's result, if it may; returns how many
  // bindings before the copy that took away.
  size_t redirect(std::vector<Binding>& all, size_t copy) {
    const Expr& e = *all[copy].value;
    const Var *value = e.args[0].var.get(), *row = e.args[1].var.get();
    const auto find = [&](const Var* v) { return place(all, v, copy); };
    const size_t tensor = find(value), view = find(row);
    if (tensor == copy || view == copy || all[view].value->op != "memory.row_view" ||
        all[tensor].value->op != "memory.alloc_tensor" || uses_[row] != 1)
      return 0;
    const Var* storage = all[tensor].value->args[0].var.get();
    const size_t allocated = find(storage);
    if (allocated == copy || all[allocated].value->op != "memory.alloc_storage" ||
        uses_[storage] != 1)
      return 0;
    // Back to the group that made the value, over what may follow the write.
    size_t group = copy;
    int reads = 0;
    while (group-- > 0 && !writes_only(*all[group].value, value))
      if (!may_follow(*all[group].value, value, row, &reads)) return 0;
    if (group == SIZE_MAX || uses_[value] != 2 + reads) return 0;
    if (reads > 0 && value->type->dims != row->type->dims) return 0;
    const Expr& call = *all[group].value;
    if (device_of(*call.primitive) != device_of(*e.primitive) || !apart(call, all[view])) return 0;
    for (const Atom& a : all[view].value->args)
      if (const size_t at = a.is_var() ? find(a.var.get()) : copy; at != copy && at > group)
        return 0;

    Binding seen = all[view];
    auto now = std::make_shared<Expr>(call);
    now->args.back() = e.args[1];
    now->attrs.erase("consumes");
    all[group].value = std::move(now);
    if (reads > 0) read_rows(all, group + 1, copy, value, e.args[1]);
    uses_[row] += reads;
    std::set<size_t> dropped = {allocated, tensor, view, copy};
    std::vector<Binding> kept;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i == group) kept.push_back(seen);
      if (!dropped.contains(i)) kept.push_back(all[i]);
    }
    all = std::move(kept);
    context_.count("write-through.results");
    return 3;  // three of four are gone, and the view came back
  }

  // Makes the group behind a copy's operand write to the copy's result as well, if it may; returns
  // how many bindings before the copy that took away.
  size_t store_twice(std::vector<Binding>& all, size_t copy) {
    const Expr& e = *all[copy].value;
    const Var *value = e.args[0].var.get(), *row = e.args[1].var.get();
    const size_t view = place(all, row, copy);
    if (view == copy || all[view].value->op != "memory.row_view" || uses_[row] != 1 ||
        value->type->dims != row->type->dims)
      return 0;
    size_t group = copy;
    int reads = 0;
    while (group-- > 0 && !result_of(*all[group].value, value))
      if (!may_follow(*all[group].value, value, row, &reads)) return 0;
    if (group == SIZE_MAX) return 0;
    const Expr& call = *all[group].value;
    // What takes over its operand's memory has one result.
    if (call.attrs.contains("consumes")) return 0;
    if (device_of(*call.primitive) != device_of(*e.primitive) || !apart(call, all[view])) return 0;
    for (const Atom& a : all[view].value->args)
      if (const size_t at = a.is_var() ? place(all, a.var.get(), copy) : copy;
          at != copy && at > group)
        return 0;
    // Of two results in the same rows the kernel might store either last.
    const Var* x = root_of(row);
    for (size_t i = inputs_of(call); i < call.args.size(); ++i)
      if (const Var* other = root_of(call.args[i].var.get()); !other || other == x) return 0;
    const ir::FunctionRef twice = with_result_again(*call.primitive, *result_of(call, value));
    const kernels::TargetInfo& target = context_.target_of(device_of(*e.primitive));
    const auto* own = kernels::template_for(*context_.workloads->of(*call.primitive), target);
    if (!own || kernels::template_for(*context_.workloads->of(*twice), target) != own) return 0;

    const Binding seen = all[view];
    auto now = std::make_shared<Expr>(call);
    now->args.push_back(e.args[1]);
    now->primitive = twice;
    all[group].value = std::move(now);
    std::vector<Binding> kept;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i == group) kept.push_back(seen);
      if (i != view && i != copy) kept.push_back(all[i]);
    }
    all = std::move(kept);
    --uses_[value];
    context_.count("write-through.results");
    return 1;  // the copy; the view came back
  }

  // Which result of a kernel call `value` is.
  static std::optional<size_t> result_of(const Expr& call, const Var* value) {
    if (!is_kernel_call(call)) return {};
    const size_t inputs = inputs_of(call);
    for (size_t i = inputs; i < call.args.size(); ++i)
      if (call.args[i].is_var() && call.args[i].var.get() == value) return i - inputs;
    return {};
  }

  // A group that has its result number `which` once more, as the last.
  static ir::FunctionRef with_result_again(const ir::Function& group, size_t which) {
    ir::BlockBuilder body;
    const Expr* tuple = nullptr;
    for (const Binding& b : group.body->bindings) {
      body.append(b);
      if (group.body->result.is_var() && b.var == group.body->result.var) tuple = b.value.get();
    }
    const ir::Type type = ir::type_of(group.body->result);
    std::vector<Atom> results;
    std::vector<ir::Type> types = {type};
    if (type->kind != ir::TypeKind::kTuple) {
      results = {group.body->result};
    } else {
      types = type->elements;
      if (tuple && tuple->kind == ir::ExprKind::kTuple) {
        results = tuple->args;
      } else {
        for (size_t i = 0; i < types.size(); ++i) {
          const ir::VarRef field =
              body.bind(ir::make_get_field(group.body->result, static_cast<int64_t>(i)), "field");
          field->type = types[i];
          results.push_back(field);
        }
      }
    }
    results.push_back(results[which]);
    types.push_back(types[which]);
    const ir::VarRef all = body.bind(ir::make_tuple(std::move(results)), "results");
    all->type = ir::tuple_type(std::move(types));
    return ir::make_function_of(group.parameters, body.finish(all), all->type, group.attrs,
                                group.location);
  }

  // The binding of a variable, or `none` if it is of an outer block or comes later.
  static size_t place(const std::vector<Binding>& all, const Var* v, size_t none) {
    for (size_t i = 0; i < none; ++i)
      if (all[i].var.get() == v) return i;
    return none;
  }

  // A kernel call whose one result is `value`.
  static bool writes_only(const Expr& call, const Var* value) {
    return is_kernel_call(call) && call.args.size() == inputs_of(call) + 1 &&
           call.args.back().is_var() && call.args.back().var.get() == value;
  }

  // Whether a binding may run after the rows are written: it names memory, or calls a kernel on
  // other memory, and at most reads the value, which `reads` counts.
  bool may_follow(const Expr& e, const Var* value, const Var* row, int* reads) const {
    if (reads_nothing(e)) return true;
    if (!is_kernel_call(e)) return false;
    const Var* x = root_of(row);
    for (const Atom& a : e.args) {
      if (!is_tensor(a)) continue;
      if (a.var.get() == value) {
        ++*reads;
      } else if (const Var* other = root_of(a.var.get()); !other || other == x) {
        return false;
      }
    }
    return !e.args.back().is_var() || e.args.back().var.get() != value;
  }

  // Whether the call reads nothing of the rows that `view` names.
  bool apart(const Expr& call, const Binding& view) const {
    const Var* x = root_of(view.var.get());
    if (!x) return false;
    const auto inputs = static_cast<int64_t>(inputs_of(call));
    return std::all_of(call.args.begin(), call.args.begin() + inputs, [&](const Atom& a) {
      if (!is_tensor(a)) return true;
      const Var* read = root_of(a.var.get());
      return read && (read != x || ends_before(a.var.get(), *view.value));
    });
  }

  // Whether `v` is the first rows of the tensor that `view` is of, and these are as many as the
  // number of the view's first row.
  bool ends_before(const Var* v, const Expr& view) const {
    const auto first = definitions_.find(v);
    if (first == definitions_.end() || !view.args[1].is_var()) return false;
    const Expr& rows = *first->second;
    if (rows.op != "memory.alloc_tensor" || ir::attr<Dim>(rows.attrs, "offset") != Dim(0) ||
        rows.args[0].var != view.args[0].var)
      return false;
    const ir::Type &whole = rows.args[0].var->type, &part = v->type;
    if (whole->kind != ir::TypeKind::kTensor || whole->dtype != part->dtype) return false;
    const auto row = definitions_.find(view.args[1].var.get());
    return row != definitions_.end() && row->second->op == "size" &&
           ir::attr<Dim>(row->second->attrs, "value") == part->dims[0] &&
           std::equal(part->dims.begin() + 1, part->dims.end(), whole->dims.begin() + 1,
                      whole->dims.end());
  }

  static bool is_tensor(const Atom& a) {
    return a.is_var() && a.var->type->kind == ir::TypeKind::kTensor;
  }

  static void read_rows(std::vector<Binding>& all, size_t from, size_t to, const Var* value,
                        const Atom& rows) {
    for (size_t i = from; i < to; ++i) {
      auto e = std::make_shared<Expr>(*all[i].value);
      for (Atom& a : e->args)
        if (a.is_var() && a.var.get() == value) a = rows;
      all[i].value = std::move(e);
    }
  }

  // The storage or parameter that a tensor lies in, through views; null for anything else.
  const Var* root_of(const Var* v) const {
    while (!parameters_.contains(v)) {
      const auto it = definitions_.find(v);
      if (it == definitions_.end()) return nullptr;
      const Expr& e = *it->second;
      if (e.op == "memory.alloc_storage") return v;
      if (e.op != "memory.row_view" && e.op != "memory.reshape" && e.op != "memory.alloc_tensor")
        return nullptr;
      v = e.args[0].var.get();
    }
    return v;
  }

  Definitions definitions_;
  UseCounts uses_;
  std::set<const Var*> parameters_;
  PassContext& context_;
};

}  // namespace

ir::Module write_through(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = WriteThrough(*f, context).run(f->body);
    f = std::move(copy);
  }
  return out;
}

}  // namespace nimble::passes
