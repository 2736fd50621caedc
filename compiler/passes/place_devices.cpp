// Device placement by unification (paper, section 3.4 and Appendix B).
//
// Every value has a DeviceDomain (device_domains.h), one per field of a tuple; a data-type value
// and a closure have one with all that they hold. Constraints fix domains to devices and unite
// them; a class that nothing fixes goes to the compilation target if a kernel touches it, since
// kernels are what is faster there, and else stays on the CPU. Where two classes that are fixed to
// different devices meet, the value is copied: device_copy is inserted.
//
//   Rule of Appendix B   here                                                    in DeviceAnalysis
//   shape_of             free: extents are the host's wherever the data is       operation
//   shape functions      results and contents that they read are the CPU's:      operation, group
//                        shape_of's vector, groups with data-dependent shapes
//   device_copy          fixes its result to `device`, its operand to `from`     annotation
//   memory operations    after this pass: storages get the device of the kernel  lower-memory
//                        that writes them, tensors that of their storage
//   invoke_mut           a group unites its tensor operands and its results      group, operation
//   other nodes          copies, views, tuples and fields are their operand;     expression
//                        branches unite with their `if`, cases with their
//                        `match`, arguments with parameters, bodies with results
//   (section 3.4)        on_device fixes what makes its operand; the attribute   annotation, kernel
//                        `device` of a function all kernels in it
//   (ours)               where there is a GPU, `fuse` has said of each group     kernel
//                        which machine has a template for it
//   (ours)               conditions, scalar operands, indices, the parameters    use_on_host
//                        and results of entry functions: the CPU, as a border
//
// A border (kHost) is on the CPU and is never united: an entry's inputs come from the CPU, and a
// condition is read there, but that must not drag every kernel that computes with them to the CPU.
// It is as if each were a device_copy whose far side is still free.
//
// Unification is greedy where classes conflict: annotations come first, then uses in program order.
// With all annotations in one place it is exact; nobody has asked for minimal cuts between several.
//
// Copies: one for each value and device, as late as it precedes all its uses (common_point), so at
// most once on any path; loop-invariant ones leave the loop (hoist_copies.cpp). Of constants each
// device has its own copy from the load on. Functions are not polymorphic by device: parameters
// unify over all calls, and a call that conflicts copies its arguments.
//
// The pass leaves: device_copy with both devices, the attribute `device` on groups, write_rows
// and appends that do not run on the CPU, and for the verifier (V15) the devices of parameters and
// results as attributes of each function. A module that names no device, compiled for the CPU, it
// leaves alone.
#include "compiler/passes/place_devices.h"

#include <algorithm>
#include <map>

#include "compiler/ir/builder.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/device_number.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockBuilder;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::TypeKind;
using ir::Var;
using ir::VarRef;

std::optional<std::vector<int32_t>> copy_targets(const DeviceUse& use, const DeviceAnalysis& a) {
  if (use.atom.is_global()) return std::nullopt;
  std::vector<int32_t> wanted = a.devices(use.wanted);
  if (use.atom.is_constant()) {
    if (wanted[0] <= kCpuDevice) return std::nullopt;
    return wanted;
  }
  const std::vector<int32_t> at = a.devices(use.at);
  if (wanted.size() == 1) wanted.resize(at.size(), wanted[0]);
  if (at.size() == 1 && wanted.size() > 1) wanted.erase(wanted.begin() + 1, wanted.end());
  NIMBLE_CHECK(at.size() == wanted.size(), "%{} has {} places where {} are wanted",
               use.atom.var->name, at.size(), wanted.size());
  bool any = false;
  for (size_t i = 0; i < at.size(); ++i) {
    if (wanted[i] < 0) wanted[i] = kCpuDevice;  // a scalar, in a register
    if (at[i] < 0 || at[i] == wanted[i])
      wanted[i] = -1;
    else
      any = true;
  }
  if (!any) return std::nullopt;
  return wanted;
}

CopyPoint common_point(const CopyPoint& a, const CopyPoint& b) {
  // From the innermost block outwards.
  auto chain = [](CopyPoint p) {
    std::vector<CopyPoint> out = {p};
    for (const BlockScope* s = p.scope; s->outer; s = s->outer) out.push_back({s->outer, s->index});
    return out;
  };
  const std::vector<CopyPoint> x = chain(a), y = chain(b);
  for (const CopyPoint& p : x)
    for (const CopyPoint& q : y)
      if (p.scope == q.scope) return {p.scope, std::min(p.index, q.index)};
  NIMBLE_UNREACHABLE("uses of one value in different functions");
}

namespace {

struct Copy {
  Atom source;
  std::vector<int32_t> targets;
  std::vector<int32_t> at;
  CopyPoint point;
  ir::Location location;
  Atom result;
};

class Placement {
 public:
  Placement(const ir::Module& m, const DeviceAnalysis& a, PassContext& context)
      : module_(m), a_(a), context_(context) {
    plan();
  }

  ir::Module run() {
    ir::Module out = module_;
    for (auto& [name, f] : out.functions) {
      auto copy = std::make_shared<ir::Function>(*f);
      std::vector<int64_t> parameters;
      for (const VarRef& p : f->parameters) append(a_.devices(a_.place(p.get())), &parameters);
      std::vector<int64_t> results;
      append(a_.devices(a_.result(name)), &results);
      copy->attrs["parameters_on"] = std::move(parameters);
      copy->attrs["results_on"] = std::move(results);
      copy->body = block(*f->body);
      f = copy;
    }
    return out;
  }

 private:
  static void append(const std::vector<int32_t>& from, std::vector<int64_t>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  // One copy for all uses of a value that want the same.
  void plan() {
    std::map<std::pair<const void*, std::vector<int32_t>>, size_t> known;
    for (const DeviceUse& u : a_.uses()) {
      const auto targets = copy_targets(u, a_);
      if (!targets) continue;
      const CopyPoint point{u.scope, u.index};
      // Constants cost nothing where they are read: each use has its own.
      const void* value = u.atom.is_var() ? static_cast<const void*>(u.atom.var.get()) : &u;
      const auto [it, fresh] = known.emplace(std::pair(value, *targets), copies_.size());
      if (fresh)
        copies_.push_back({u.atom, *targets, a_.devices(u.at), point, u.location, {}});
      else
        copies_[it->second].point = common_point(copies_[it->second].point, point);
      const void* reader = u.var ? static_cast<const void*>(u.var) : u.scope->block;
      replaced_[{reader, u.operand}] = it->second;
    }
    for (size_t i = 0; i < copies_.size(); ++i)
      here_[{copies_[i].point.scope->block, copies_[i].point.index}].push_back(i);
  }

  Atom resolve(const Atom& a) const {
    if (!a.is_var()) return a;
    const auto it = stands_for_.find(a.var.get());
    return it == stands_for_.end() ? a : it->second;
  }

  // Operand `operand` of what reads it.
  Atom read(const void* reader, size_t operand, const Atom& a) const {
    const auto it = replaced_.find({reader, operand});
    return it == replaced_.end() ? resolve(a) : copies_[it->second].result;
  }

  VarRef bind(BlockBuilder& b, ir::ExprRef e, Type type, const std::string& hint) {
    VarRef v = b.bind(std::move(e), hint);
    v->type = std::move(type);
    return v;
  }

  // Copies the leaves of a value that have a target; a tuple is taken apart and made anew.
  Atom copied(BlockBuilder& b, const Copy& c, const Atom& a, const Type& type, size_t* leaf) {
    if (type->kind == TypeKind::kTuple) {
      std::vector<Atom> fields;
      std::vector<Type> types;
      for (size_t i = 0; i < type->elements.size(); ++i) {
        const Type& t = type->elements[i];
        const VarRef field =
            bind(b, ir::make_get_field(a, static_cast<int64_t>(i), c.location), t, "field");
        fields.push_back(copied(b, c, field, t, leaf));
      }
      return bind(b, ir::make_tuple(std::move(fields), c.location), type, "placed");
    }
    // One place for the whole of a tuple: its type was a variable where it came from.
    const size_t i = std::min(*leaf, c.targets.size() - 1);
    const int32_t to = c.targets[i];
    const int32_t from = a.is_constant() ? kCpuDevice : c.at[i];
    ++*leaf;
    if (to < 0) return a;
    if (type->kind != TypeKind::kTensor)
      throw Error(
          Status::kUnsupported, c.location.str(),
          fmt::format("a value of type {} lies on device {} ({}) and is needed on device {} "
                      "({}), and only tensors can be copied",
                      ir::str(type), from, device_name(from), to, device_name(to)),
          "let one device compute everything that is in it");
    const std::string hint = a.is_var() ? a.var->name : "constant";
    context_.count(a.is_constant() ? "place-devices.constants" : "place-devices.copies");
    return bind(b,
                ir::make_call("device_copy", {a},
                              {{"device", int64_t{to}}, {"from", int64_t{from}}}, c.location),
                type, fmt::format("{}_{}", hint, to == kCpuDevice ? "cpu" : "dev"));
  }

  void insert_copies(const Block& block, size_t index, BlockBuilder& b) {
    const auto it = here_.find({&block, index});
    if (it == here_.end()) return;
    for (size_t i : it->second) {
      Copy& c = copies_[i];
      size_t leaf = 0;
      c.result = copied(b, c, resolve(c.source), ir::type_of(c.source), &leaf);
    }
  }

  ir::BlockRef block(const Block& from) {
    BlockBuilder b;
    for (size_t i = 0; i < from.bindings.size(); ++i) {
      insert_copies(from, i, b);
      binding(from.bindings[i], b);
    }
    insert_copies(from, from.bindings.size(), b);
    return b.finish(read(&from, 0, from.result));
  }

  void binding(const Binding& binding, BlockBuilder& b) {
    const Expr& e = *binding.value;
    const Var* v = binding.var.get();
    if (e.op == "on_device" || e.op == "device_copy") {
      // What it asks for is there, or was copied like any other value.
      if (e.op == "device_copy" && !replaced_.count({v, 0}))
        context_.count("place-devices.redundant");
      stands_for_[v] = read(v, 0, e.args[0]);
      return;
    }
    auto now = std::make_shared<Expr>(e);
    for (size_t i = 0; i < now->args.size(); ++i) now->args[i] = read(v, i, e.args[i]);
    if (now->callee) now->callee = resolve(*now->callee);
    const int64_t device = a_.kernel_device(v);
    if (e.kind == ExprKind::kCall && e.primitive) {
      context_.count(fmt::format("place-devices.kernels on {}", device_name(device)));
      if (device != kCpuDevice || e.primitive->attrs.contains("device")) {
        auto group = std::make_shared<ir::Function>(*e.primitive);
        group->attrs.erase("device");
        if (device != kCpuDevice) group->attrs["device"] = device;
        now->primitive = std::move(group);
      }
    } else if (e.kind == ExprKind::kFunction) {
      auto literal = std::make_shared<ir::Function>(*e.primitive);
      literal->body = block(*e.primitive->body);
      now->primitive = std::move(literal);
    } else if (e.op == "write_row" || e.op == "append") {
      now->attrs.erase("device");  // whoever wrote it: this pass decides
      if (device != kCpuDevice) now->attrs["device"] = device;
    }
    if (e.then_block) now->then_block = block(*e.then_block);
    if (e.else_block) now->else_block = block(*e.else_block);
    for (ir::MatchCase& c : now->cases) c.body = block(*c.body);
    b.append({binding.var, std::move(now)});
  }

  const ir::Module& module_;
  const DeviceAnalysis& a_;
  PassContext& context_;
  std::vector<Copy> copies_;
  std::map<std::pair<const void*, size_t>, size_t> replaced_;  // reader, operand -> copy
  std::map<std::pair<const Block*, size_t>, std::vector<size_t>> here_;
  std::map<const Var*, Atom> stands_for_;
};

bool names_devices(const ir::Module& m) {
  bool any = false;
  for (const auto& [name, f] : m.functions) {
    any |= f->attrs.contains("device");
    visit_bindings(*f->body, [&](const Binding& b) {
      any |= b.value->op == "device_copy" || b.value->op == "on_device" ||
             b.value->attrs.contains("device");
    });
  }
  return any;
}

void require_types(const ir::Module& m) {
  for (const auto& [name, f] : m.functions) {
    bool typed = f->result_type != nullptr;
    visit_bindings(*f->body, [&](const Binding& b) { typed &= b.var->type != nullptr; });
    if (!typed)
      throw Error(Status::kInvalidArgument, "@" + name, "its values have no types yet",
                  "run the pass infer before place-devices");
  }
}

}  // namespace

ir::Module place_devices(const ir::Module& m, PassContext& context) {
  if (context.device == kCpuDevice && !names_devices(m)) return m;
  require_types(m);
  ir::Module now = m;
  while (true) {
    const DeviceAnalysis a(now, context.device);
    std::optional<ir::Module> hoisted = hoist_copy(now, a);
    if (!hoisted) return Placement(now, a, context).run();
    context.count("place-devices.hoisted");
    now = *std::move(hoisted);
  }
}

}  // namespace nimble::passes
