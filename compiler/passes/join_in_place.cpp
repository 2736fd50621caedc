// Concatenations whose operands are made where they go.
//
// concat(y, z) is a copy of both. The kernels that make y and z can store there themselves:
//
//   %s = memory.alloc_storage(); %y = memory.alloc_tensor(%s)      %m = memory.alloc_storage()
//   memory.invoke_mut[group](…, %y)                                %y = memory.alloc_tensor(%m)
//   … the same for %z …                                       =>   memory.invoke_mut[group'](…, %y)
//   %m = memory.alloc_storage(); %x = memory.alloc_tensor(%m)      … the same for %z …
//   memory.invoke_mut[concat](%y, %z, %x)                          %x = memory.alloc_tensor(%m)
//
// Where nothing stands in front of the axis, as along channels of one image in planes, an operand
// is a stretch of the whole: a tensor at an offset, and no kernel changes. Otherwise the operand's
// rows lie among the others', as channels-last images do: a row of y is `pitch` elements behind the
// one before. %y is then of the whole's extents and begins where y's first row does, so that it is
// the same kernel wherever y stands; the storage is a row longer for that. group' ends in
// `pitched`: its result is an in/out argument, of which it writes the first elements of each row.
// What reads y begins with a slice of the same. Templates are asked whether they serve that; where
// one does not, and for what no kernel of this block makes (a parameter, a constant, the second
// time of the same operand), a kernel copies the operand as the concatenation did.
//
// Later concatenations come first. An operand that is itself a concatenation thus has its place
// when its own operands are looked at, and a dense block, in which each layer reads all before and
// adds to them, grows in one storage of the block's last width.
//
// All tensors in such a storage carry the attribute `part`: (a number of the whole, pitch, first,
// last), the columns of each row that are its own, by which the verifier of plans tells them apart.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/ir/axes.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/template.h"
#include "compiler/passes/join_in_place_groups.h"
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
using ir::Type;
using ir::Var;
using ir::VarRef;

constexpr size_t kNowhere = SIZE_MAX;
constexpr int64_t kGpuAlignment = 16;  // bytes: a GPU's kernels load no less at a time

// A kernel call that only joins tensors.
struct Concat {
  const Expr* call;
  const Expr* concat;  // the operator
  size_t axis;
  VarRef result;
};

std::optional<Concat> concat_of(const Expr& e) {
  if (!is_kernel_call(e) || e.args.size() != inputs_of(e) + 1 || !e.args.back().is_var()) return {};
  const std::vector<Binding>& body = e.primitive->body->bindings;
  if (body.empty() || body[0].value->kind != ir::ExprKind::kCall || body[0].value->op != "concat" ||
      e.primitive->attrs.contains("scalars"))
    return {};
  if (body.size() > 2 || (body.size() == 2 && !ir::traits_of(*body[1].value).in_out)) return {};
  if (!is_var(e.primitive->body->result, body.back().var.get())) return {};
  return Concat{&e, body[0].value.get(), ir::axis_of(*body[0].value), e.args.back().var};
}

class JoinInPlace {
 public:
  JoinInPlace(const ir::Function& f, PassContext& context) : context_(context) {
    for (const VarRef& p : f.parameters)
      if (p->type && p->type->kind == ir::TypeKind::kTensor)
        for (const Dim& d : p->type->dims)
          if (const auto symbol = d.as_symbol()) parameter_symbols_.insert(*symbol);
  }

  ir::BlockRef run(const ir::BlockRef& block) {
    auto out = std::make_shared<Block>(*block);
    for (Binding& b : out->bindings)
      b.value = map_blocks(b.value, [&](const ir::BlockRef& inner) { return run(inner); });
    std::set<const Var*> seen;
    for (size_t i = out->bindings.size(); i-- > 0;) {
      const Binding& b = out->bindings[i];
      if (!concat_of(*b.value) || !seen.insert(b.var.get()).second) continue;
      kept_.push_back(b.var);
      all_ = &out->bindings;
      result_ = out->result;
      if (join(i)) i = out->bindings.size();  // bindings moved
    }
    return out;
  }

 private:
  struct Operand {
    Atom atom;
    Type type;  // as the concatenation's group has it
    Dim begin;  // within the whole, along the axis
    // What makes it, if that may store it in place.
    bool in_place = false;
    size_t tensor = kNowhere, storage = kNowhere, kernel = kNowhere;
    std::vector<size_t> readers;
    VarRef part;  // what stands for it then
  };
  // Kernel calls as they are to be, by their places; scalars that their groups need beyond their
  // tensors are still those of before.
  using Calls = std::map<size_t, std::shared_ptr<Expr>>;

  const Expr& expr(size_t i) const { return *(*all_)[i].value; }

  size_t place(const Var* v) const {
    for (size_t i = 0; i < all_->size(); ++i)
      if ((*all_)[i].var.get() == v) return i;
    return kNowhere;
  }

  // How often a variable is read in the block.
  int uses(const Var* v) const {
    int n = is_var(result_, v);
    for (const Binding& b : *all_) visit_atoms(*b.value, [&](const Atom& a) { n += is_var(a, v); });
    return n;
  }

  bool join(size_t at) {
    const Concat c = *concat_of(expr(at));
    const size_t tensor = place(c.result.get());
    if (tensor >= at || expr(tensor).op != "memory.alloc_tensor" ||
        !expr(tensor).args[0].is_var() || kernel_between(tensor, at))
      return false;
    std::optional<Whole> whole;
    if (const auto known = wholes_.find(c.result.get()); known != wholes_.end()) {
      // Only along the same axis do its operands stand side by side there.
      if (known->second.axis == c.axis) whole = known->second;
    } else {
      whole = new_whole(c, tensor);
    }
    const size_t storage = whole ? place(whole->storage.get()) : kNowhere;
    if (storage == kNowhere) return false;
    std::vector<Operand> operands = operands_of(c, *whole);
    Calls calls;
    size_t first = tensor;  // where the storage must be known
    size_t in_place = 0, copies = 0;
    for (Operand& o : operands) {
      const auto times = std::count_if(operands.begin(), operands.end(), [&](const Operand& p) {
        return o.atom.is_var() && is_var(p.atom, o.atom.var.get());
      });
      if (times == 1) consider(o, c, *whole, at, tensor, calls);  // else: which of its places?
      if (!o.in_place && !can_copy(o, *whole, device_of(*c.call->primitive), tensor)) return false;
      ++(o.in_place ? in_place : copies);
      if (o.in_place) first = std::min({first, o.tensor, o.storage});
    }
    // A copy is a call; there was one.
    if (in_place == 0 || copies > in_place) return false;
    if (!is_known_at(*whole, storage, operands, first)) return false;
    apply(c, *whole, operands, calls, at, tensor, storage, first);
    return true;
  }

  bool kernel_between(size_t from, size_t to) const {
    for (size_t i = from + 1; i < to; ++i)
      if (is_kernel_call(expr(i)) || !ir::blocks_of(expr(i)).empty()) return true;
    return false;
  }

  // The memory of a concatenation that is no other's operand.
  std::optional<Whole> new_whole(const Concat& c, size_t tensor) {
    const Expr& alloc = expr(tensor);
    const size_t storage = place(alloc.args[0].var.get());
    if (storage >= tensor || expr(storage).op != "memory.alloc_storage" ||
        uses(alloc.args[0].var.get()) != 1 || alloc.attrs.contains("part") ||
        ir::attr<Dim>(alloc.attrs, "offset") != Dim(0))
      return std::nullopt;
    Whole w{alloc.args[0].var, ++wholes_made_, c.axis, c.result->type};
    return w;
  }

  std::vector<Operand> operands_of(const Concat& c, const Whole& whole) const {
    std::vector<Operand> out;
    Dim begin = whole.begin;
    for (const Atom& a : c.concat->args) {
      if (!a.is_var()) return {};
      const auto& parameters = c.call->primitive->parameters;
      const auto p = std::find(parameters.begin(), parameters.end(), a.var);
      if (p == parameters.end()) return {};
      const Type type = (*p)->type;
      for (size_t d = 0; d < type->dims.size(); ++d)
        if (d != c.axis && type->dims[d] != whole.type->dims[d]) return {};
      Operand o;
      o.atom = c.call->args[static_cast<size_t>(p - parameters.begin())];
      o.type = type;
      o.begin = begin;
      begin = begin + type->dims[c.axis];
      out.push_back(std::move(o));
    }
    return out;
  }

  // Finds what makes an operand and who reads it, and whether all of them work in place; if so,
  // they do in `calls`.
  void consider(Operand& o, const Concat& c, const Whole& whole, size_t at, size_t tensor,
                Calls& calls) const {
    if (!o.atom.is_var()) return;
    const Var* v = o.atom.var.get();
    o.tensor = place(v);
    if (o.tensor >= at) return;
    const Expr& alloc = expr(o.tensor);
    if (alloc.op != "memory.alloc_tensor" || alloc.attrs.contains("part") ||
        !alloc.args[0].is_var() || ir::attr<Dim>(alloc.attrs, "offset") != Dim(0) ||
        v->type->dims != o.type->dims || v->type->dtype != whole.type->dtype)
      return;
    o.storage = place(alloc.args[0].var.get());
    if (o.storage >= o.tensor || expr(o.storage).op != "memory.alloc_storage" ||
        uses(alloc.args[0].var.get()) != 1 ||
        ir::attr<int64_t>(expr(o.storage).attrs, "device") != device_of(*c.call->primitive))
      return;
    if (is_var(result_, v)) return;
    // Kernels of this block alone may use it, one of them to write it.
    for (size_t i = o.tensor + 1; i < all_->size(); ++i) {
      bool used = false;
      visit_atoms(expr(i), [&](const Atom& a) { used |= is_var(a, v); });
      if (!used || i == at) continue;
      const Expr& e = expr(i);
      if (!is_kernel_call(e)) return;
      bool reads = false, writes = false;
      for (size_t k = 0; k < e.args.size(); ++k)
        (k < inputs_of(e) ? reads : writes) |= is_var(e.args[k], v);
      if (writes && (reads || o.kernel != kNowhere || !o.readers.empty())) return;
      if (writes)
        o.kernel = i;
      else
        o.readers.push_back(i);
    }
    if (o.kernel == kNowhere || o.kernel > tensor ||
        device_of(*expr(o.kernel).primitive) != device_of(*c.call->primitive))
      return;
    // Later readers need that nothing takes the whole's memory over.
    if (!o.readers.empty() && o.readers.back() > at &&
        (!whole.outermost || !is_read_by_kernels(c.result.get(), at)))
      return;
    if (whole.contiguous() && !is_aligned(o, whole, device_of(*c.call->primitive))) return;
    o.part =
        whole.contiguous() ? o.atom.var : ir::make_var(v->name, type_in(o, whole), v->location);
    // A kernel may have several operands of a concatenation, also as operand and result.
    Calls now = calls;
    std::vector<size_t> places = o.readers;
    places.push_back(o.kernel);
    for (const size_t i : places) {
      const auto changed = now.find(i);
      auto call = std::make_shared<Expr>(changed == now.end() ? expr(i) : *changed->second);
      if (!whole.contiguous()) {
        call->primitive = i == o.kernel ? with_pitched_result(*call, v, whole)
                                        : with_pitched_operand(*call, v, whole);
        if (!call->primitive || !serves_as_well(expr(i), *call->primitive)) return;
      }
      keep(*call, v);
      replace(*call, v, o.part);
      now[i] = std::move(call);
    }
    calls = std::move(now);
    o.in_place = true;
  }

  // Whether all that uses a variable behind binding `at` are kernels that read it.
  bool is_read_by_kernels(const Var* v, size_t at) const {
    if (is_var(result_, v)) return false;
    for (size_t i = at + 1; i < all_->size(); ++i) {
      bool used = false;
      visit_atoms(expr(i), [&](const Atom& a) { used |= is_var(a, v); });
      if (used && !is_kernel_call(expr(i))) return false;
    }
    return true;
  }

  static bool is_aligned(const Operand& o, const Whole& whole, int64_t device) {
    if (device == 0) return true;
    const auto offset =
        (o.begin * whole.inner() * static_cast<int64_t>(size_of(whole.type->dtype))).as_constant();
    return offset && *offset % kGpuAlignment == 0;
  }

  // Whether a kernel can copy an operand in front of binding `tensor`.
  bool can_copy(const Operand& o, const Whole& whole, int64_t device, size_t tensor) const {
    if (o.atom.is_global()) return false;
    if (o.atom.is_var()) {
      // There already, and none of another whole's rows, whose extents are that whole's.
      const size_t i = place(o.atom.var.get());
      const auto part = wholes_.find(o.atom.var.get());
      if (i != kNowhere && i >= tensor) return false;
      if (part != wholes_.end() && !part->second.contiguous()) return false;
      if (o.atom.var->type->dims != o.type->dims) return false;
    }
    if (!is_aligned(o, whole, device)) return false;
    return whole.contiguous() ||
           kernels::template_for(*context_.workloads->of(*pitched_copy(o.type, whole, device)),
                                 context_.target_of(device)) != nullptr;
  }

  // Whether the template that serves a call's group serves another one in its place.
  bool serves_as_well(const Expr& call, const ir::Function& other) const {
    const kernels::TargetInfo& target = context_.target_of(device_of(*call.primitive));
    const auto* own = kernels::template_for(*context_.workloads->of(*call.primitive), target);
    return own && kernels::template_for(*context_.workloads->of(other), target) == own;
  }

  // Whether what the whole and its parts are allocated by can be computed in front of binding
  // `first`. Extents of tensors without elements are asked for, too, which their bytes do not name,
  // and offsets, from whose sum an extent may have cancelled out.
  bool is_known_at(const Whole& whole, size_t storage, const std::vector<Operand>& operands,
                   size_t first) const {
    const Dim bytes = ir::attr<Dim>(expr(storage).attrs, "bytes");
    std::vector<Dim> needed = whole.type->dims;
    std::set<std::string> known = parameter_symbols_;
    if (storage <= first)
      known.merge(bytes.symbols());
    else
      needed.push_back(bytes);
    for (const Operand& o : operands) {
      if (!o.in_place) continue;
      needed.push_back(o.begin);
      if (std::min(o.tensor, o.storage) == first)
        for (const Dim& d : o.type->dims) known.merge(d.symbols());
    }
    return std::all_of(needed.begin(), needed.end(), [&](const Dim& d) {
      const std::set<std::string> symbols = d.symbols();
      return !can_fail(d) &&
             std::includes(known.begin(), known.end(), symbols.begin(), symbols.end());
    });
  }

  // ---- the new block

  // The tensor of an operand in the whole.
  static ir::ExprRef part_of(const Operand& o, const Whole& whole, const Type& type,
                             const ir::Location& location) {
    const Dim first = o.begin * whole.inner();
    const Dim last = first + o.type->dims[whole.axis] * whole.inner();
    return ir::make_call("memory.alloc_tensor", {whole.storage},
                         {{"shape", type->dims},
                          {"dtype", type->dtype},
                          {"offset", first * static_cast<int64_t>(size_of(type->dtype))},
                          {"part", std::vector<Dim>{whole.number, whole.pitch(), first, last}}},
                         location);
  }

  static Type type_in(const Operand& o, const Whole& whole) {
    if (whole.contiguous()) return o.type;
    return with_extent(o.type, whole.axis, whole.type->dims[whole.axis]);
  }

  // A call with the scalars that its group needs beyond its parameters, which are bound `ahead`.
  ir::ExprRef complete(const Expr& call, std::vector<Binding>& ahead) {
    auto now = std::make_shared<Expr>(call);
    const auto tensors = call.args.begin() + static_cast<long>(call.primitive->parameters.size());
    const auto results = call.args.begin() + static_cast<long>(inputs_of(call));
    std::vector<Atom> args(call.args.begin(), tensors);
    append_extents(*call.primitive, call.location, args, ahead);
    now->attrs["inputs"] = static_cast<int64_t>(args.size());
    args.insert(args.end(), results, call.args.end());
    now->args = std::move(args);
    return now;
  }

  // Drops the bindings of the scalars that a call alone had beyond its parameters.
  void drop_extents(const Expr& call, std::set<size_t>& dropped) const {
    for (size_t k = call.primitive->parameters.size(); k < inputs_of(call); ++k) {
      const size_t i = call.args[k].is_var() ? place(call.args[k].var.get()) : kNowhere;
      if (i != kNowhere && expr(i).op == "size" && uses(call.args[k].var.get()) == 1)
        dropped.insert(i);
    }
  }

  void append_extents(const ir::Function& group, const ir::Location& location,
                      std::vector<Atom>& args, std::vector<Binding>& ahead) {
    for (const Dim& d : context_.workloads->of(group)->extra_scalars) {
      const VarRef v = ir::make_var("d", ir::scalar_type(), location);
      ahead.push_back({v, ir::make_call("size", {}, {{"value", d}}, location)});
      args.push_back(v);
    }
  }

  static void replace(Expr& e, const Var* v, const VarRef& by) {
    for (Atom& a : e.args)
      if (is_var(a, v)) a = by;
  }

  // What a kernel reads of a whole is not dead afterwards.
  static void keep(Expr& e, const Var* v) {
    auto it = e.attrs.find("consumes");
    if (it == e.attrs.end()) return;
    std::vector<int64_t> left;
    for (const int64_t k : std::get<std::vector<int64_t>>(it->second))
      if (!is_var(e.args[static_cast<size_t>(k)], v)) left.push_back(k);
    if (left.empty())
      e.attrs.erase(it);
    else
      it->second = std::move(left);
  }

  void apply(const Concat& c, const Whole& whole, const std::vector<Operand>& operands,
             const Calls& calls, size_t at, size_t tensor, size_t storage, size_t first) {
    std::vector<Binding>& all = *all_;
    std::map<size_t, std::vector<Binding>> ahead;
    std::set<size_t> dropped = {at};
    drop_extents(*c.call, dropped);
    for (const auto& [i, call] : calls)
      if (call->primitive != expr(i).primitive) drop_extents(expr(i), dropped);
    // The storage, a row longer where tensors of the whole's extents begin within a row.
    auto alloc = std::make_shared<Expr>(*all[storage].value);
    if (whole.outermost && !whole.contiguous()) {
      const Dim row = whole.pitch() * static_cast<int64_t>(size_of(whole.type->dtype));
      alloc->attrs["bytes"] = ir::attr<Dim>(alloc->attrs, "bytes") + row;
    }
    if (storage > first) {
      ahead[first].push_back({all[storage].var, alloc});
      dropped.insert(storage);
    } else {
      all[storage].value = alloc;
    }
    if (whole.outermost) {
      auto now = std::make_shared<Expr>(*all[tensor].value);
      now->attrs["part"] = std::vector<Dim>{whole.number, whole.pitch(), 0, whole.pitch()};
      all[tensor].value = std::move(now);
    }
    for (const auto& [i, call] : calls) {
      const bool same = call->primitive == expr(i).primitive;
      all[i].value = same ? ir::ExprRef(call) : complete(*call, ahead[i]);
    }
    bool read_later = false;
    for (const Operand& o : operands) {
      if (!o.in_place) {
        copy(o, whole, *c.call, ahead[tensor]);
        context_.count("join-in-place.copies");
        continue;
      }
      const ir::Location location = expr(o.tensor).location;
      all[o.tensor] = {o.part, part_of(o, whole, o.part->type, location)};
      dropped.insert(o.storage);
      Whole inside = whole;
      inside.begin = o.begin;
      inside.outermost = false;
      wholes_.emplace(o.part.get(), std::move(inside));
      kept_.push_back(o.part);
      read_later |= !o.readers.empty() && o.readers.back() > at;
      context_.count("join-in-place.operands");
    }
    if (read_later)
      for (size_t i = at + 1; i < all.size(); ++i)
        if (is_kernel_call(expr(i))) {
          auto now = std::make_shared<Expr>(expr(i));
          keep(*now, c.result.get());
          all[i].value = std::move(now);
        }
    std::vector<Binding> out;
    for (size_t i = 0; i < all.size(); ++i) {
      if (const auto it = ahead.find(i); it != ahead.end())
        out.insert(out.end(), it->second.begin(), it->second.end());
      if (!dropped.contains(i)) out.push_back(all[i]);
    }
    all = std::move(out);
    // A part that only the concatenation around it read has no name any more.
    if (!whole.outermost && uses(c.result.get()) == 0)
      all.erase(all.begin() + static_cast<long>(place(c.result.get())));
    context_.count("join-in-place.concatenations");
  }

  void copy(const Operand& o, const Whole& whole, const Expr& call, std::vector<Binding>& to) {
    const Type type = type_in(o, whole);
    const VarRef part = ir::make_var("part", type, call.location);
    to.push_back({part, part_of(o, whole, type, call.location)});
    const int64_t device = device_of(*call.primitive);
    auto e = std::make_shared<Expr>(*ir::make_call("memory.invoke_mut", {}, {}, call.location));
    e->primitive = pitched_copy(o.type, whole, device);
    std::vector<Atom> args = {o.atom};
    append_extents(*e->primitive, call.location, args, to);
    e->attrs["inputs"] = static_cast<int64_t>(args.size());
    args.emplace_back(part);
    e->args = std::move(args);
    to.push_back({ir::make_var("u", ir::tuple_type({}), call.location), e});
  }

  PassContext& context_;
  std::set<std::string> parameter_symbols_;
  std::map<const Var*, Whole> wholes_;  // by the tensor that is a part
  std::vector<VarRef> kept_;            // whose addresses are remembered
  int64_t wholes_made_ = 0;
  std::vector<Binding>* all_ = nullptr;  // of the block at hand
  Atom result_;
};

}  // namespace

ir::Module join_in_place(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = JoinInPlace(*f, context).run(f->body);
    f = std::move(copy);
  }
  return out;
}

}  // namespace nimble::passes
