#include "compiler/driver/compile.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <unordered_map>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/cuda.h"
#include "compiler/driver/elapsed.h"
#include "compiler/driver/kernel_set.h"
#include "compiler/emit/entry_types.h"
#include "compiler/emit/function_emitter.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/diagnostic.h"
#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/largest_weight.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/passes/support/crash.h"
#include "compiler/passes/support/kernel_call.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/tuned/policy_class.h"
#include "vm/base/device_number.h"
#include "vm/executable/verifier.h"

namespace nimble::driver {
namespace {

exec::Port port_of(const std::string& name, const ir::Type& type, emit::EntryTypes& types,
                   const std::string& place) {
  exec::Port p;
  p.name = name;
  if (!type || type->kind != ir::TypeKind::kTensor) {
    p.type = types.number_of(type, place);
    return p;
  }
  p.dtype = type->dtype;
  for (const ir::Dim& d : type->dims) {
    p.dims.push_back(emit::dim_text(d));
    p.extents.push_back(d.as_constant().value_or(-1));
  }
  return p;
}

exec::EntryPoint entry_of(const ir::Module& m, const std::string& name, const ir::Function& f,
                          uint32_t index, emit::EntryTypes& types) {
  exec::EntryPoint entry{name, index, {}, {}};
  auto it = m.signatures.find(name);
  ir::Module::Signature s = it == m.signatures.end() ? ir::Module::Signature{} : it->second;
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    const ir::VarRef& p = f.parameters[i];
    std::string port_name = i < s.input_names.size() ? s.input_names[i] : p->name;
    entry.inputs.push_back(port_of(port_name, p->type, types, name + ": " + port_name));
    if (i < s.input_defaults.size()) entry.inputs.back().default_fill = s.input_defaults[i];
  }
  std::vector<ir::Type> results = {f.result_type};
  if (f.result_type->kind == ir::TypeKind::kTuple) results = f.result_type->elements;
  for (size_t i = 0; i < results.size(); ++i) {
    std::string port_name = i < s.output_names.size() ? s.output_names[i]
                            : results.size() == 1     ? "result"
                                                      : fmt::format("result{}", i);
    entry.outputs.push_back(port_of(port_name, results[i], types, name + ": " + port_name));
  }
  return entry;
}

bool contains_function(const ir::Type& t) {
  if (!t || t->kind == ir::TypeKind::kFunction) return true;
  return t->kind == ir::TypeKind::kTuple &&
         std::any_of(t->elements.begin(), t->elements.end(), contains_function);
}

// What a caller cannot use of the entry functions, while the places in the source are known.
void check_entries(const ir::Module& m) {
  ir::Diagnostics faults(m.text);
  for (const auto& function : m.functions) {
    const std::string& name = function.first;
    const ir::FunctionRef& f = function.second;
    if (!ir::is_entry(m, name)) continue;
    const auto add = [&](ir::Location at, const std::string& problem, const std::string& remedy) {
      if (at.file.empty()) at.file = m.source.empty() ? name : m.source;
      faults.add(std::move(at), problem, remedy);
    };
    const auto check_type = [&](const ir::Location& at, const std::string& verb,
                                const ir::Type& t) {
      if (contains_function(t))
        add(at, fmt::format("the entry function {} cannot {} {}", name, verb, ir::str(t)),
            "pass tensors, or data values made of tensors");
    };
    for (const ir::VarRef& p : f->parameters) check_type(p->location, "take", p->type);
    check_type(f->body->location, "return", f->result_type);
    const auto it = m.signatures.find(name);
    if (it == m.signatures.end()) continue;
    const auto check_names = [&](const std::vector<std::string>& names, const char* what) {
      std::set<std::string> seen;
      for (const std::string& n : names)
        if (n.empty() || !seen.insert(n).second)
          add(f->location,
              n.empty() ? fmt::format("an {} of {} has no name", what, name)
                        : fmt::format("two {}s of {} have the name {}", what, name, n),
              "give each a name of its own");
    };
    check_names(it->second.input_names, "input");
    check_names(it->second.output_names, "output");
  }
  if (!faults.empty()) ir::raise(faults.sorted());
}

// Tensors in memory of more dims than the virtual machine has. Only a lowered module tells: what
// stays inside of a kernel may have more.
void check_ranks(const ir::Module& lowered) {
  ir::Diagnostics faults(lowered.text);
  const auto check = [&](const ir::Type& t, ir::Location at, const std::string& place) {
    if (!t || t->kind != ir::TypeKind::kTensor || t->dims.size() <= static_cast<size_t>(kMaxRank))
      return;
    if (at.file.empty()) at.file = lowered.source.empty() ? place : lowered.source;
    faults.add(std::move(at),
               fmt::format("a tensor of {} dims, at most {} are possible in memory", t->dims.size(),
                           kMaxRank),
               "reshape to fewer dims");
  };
  for (const auto& [name, f] : lowered.functions) {
    for (const ir::VarRef& p : f->parameters) check(p->type, p->location, name);
    passes::visit_bindings(*f->body, [&, &place = name](const ir::Binding& b) {
      check(b.var->type, b.value->location, place);
      for (const ir::Atom& a : b.value->args)
        if (a.is_constant()) check(ir::type_of(a), b.value->location, place);
    });
  }
  if (!faults.empty()) ir::raise(faults.sorted());
}

// The constant that a group's operand is for a call of the group, on whichever device; nullptr if
// it is none.
const ir::Tensor* constant_of(const ir::Atom& operand, const ir::Expr& call,
                              const passes::Definitions& definitions) {
  if (operand.is_constant()) return operand.constant.get();
  const auto& parameters = call.primitive->parameters;
  const auto at = std::find_if(parameters.begin(), parameters.end(), [&](const ir::VarRef& p) {
    return operand.is_var() && operand.var == p;
  });
  if (at == parameters.end()) return nullptr;
  const ir::Atom& given = call.args[static_cast<size_t>(at - parameters.begin())];
  if (given.is_constant()) return given.constant.get();
  const ir::Expr* placed = passes::definition(definitions, given);
  return placed && ir::traits_of(*placed).placement && placed->args[0].is_constant()
             ? placed->args[0].constant.get()
             : nullptr;
}

// What products promise of their weights (max_weight), kernels rely on: they add up in numbers that
// larger weights would overflow. pack-weights has looked; a text may say anything. Only a lowered
// module has all weights as the kernels get them, and here each constant is read once.
void check_promises(const ir::Module& lowered) {
  ir::Diagnostics faults(lowered.text);
  std::unordered_map<const ir::Tensor*, int64_t> largest;
  const auto check = [&](const ir::Expr& product, const ir::Expr& call,
                         const passes::Definitions& definitions, const std::string& place) {
    const auto most = ir::attr<int64_t>(product.attrs, "max_weight");
    const auto add = [&](const std::string& problem, const std::string& remedy) {
      ir::Location at = product.location.file.empty() ? call.location : product.location;
      if (at.file.empty()) at.file = lowered.source.empty() ? place : lowered.source;
      faults.add(std::move(at), problem, remedy);
    };
    const ir::Tensor* weights = constant_of(product.args[1], call, definitions);
    if (!weights)
      return add(fmt::format("{} promises max_weight = {} of weights that are not constant",
                             product.op, most),
                 "give constant weights, or drop the attribute");
    const auto [known, fresh] = largest.try_emplace(weights, 0);
    if (fresh) known->second = ir::largest_weight(*weights);
    if (known->second > most)
      add(fmt::format("a weight of the size {} breaks the promise max_weight = {} of {}",
                      known->second, most, product.op),
          "give the size of the largest weight, or drop the attribute");
  };
  for (const auto& [name, f] : lowered.functions) {
    const passes::Definitions definitions = passes::definitions_of(*f);
    passes::visit_bindings(*f->body, [&, &place = name](const ir::Binding& b) {
      if (b.value->kind != ir::ExprKind::kCall || !b.value->primitive) return;
      for (const ir::Binding& inner : b.value->primitive->body->bindings)
        if (inner.value->attrs.contains("max_weight"))
          check(*inner.value, *b.value, definitions, place);
    });
  }
  if (!faults.empty()) ir::raise(faults.sorted());
}

// Before any work: whether there is what makes the code that is asked for.
void check_targets(const CompileOptions& options) {
  if ((options.device == kCudaDevice) != !options.gpus.empty())
    throw Error(Status::kInvalidArgument, fmt::format("device {}", options.device),
                options.gpus.empty() ? "no architecture of a GPU is named, whose code runs there"
                                     : "kernels of a GPU do not run there",
                "name the GPU among the targets, and no other device: --target sm_90a");
  if (!options.gpus.empty()) codegen::require_cuda(options.gpus[0]);
}

// Emits every function of a lowered module; `source` has the types that users see.
void emit_module(const ir::Module& source, const ir::Module& lowered, KernelSet& kernels,
                 exec::Executable& out) {
  check_ranks(lowered);
  check_promises(lowered);
  const emit::KernelIndex kernel_index = [&](const ir::FunctionRef& group,
                                             std::vector<bool> constant_parameter,
                                             const std::string& place) {
    return kernels.add(group, std::move(constant_parameter), place);
  };
  emit::EmitContext context{out, kernel_index, {}, {}, {}, {}, 0, &lowered};
  emit::EntryTypes types(source, out.types);
  for (const auto& [name, f] : lowered.functions)
    context.function_index[name] = context.bytecode_functions++;
  for (const auto& [name, f] : lowered.functions) {
    out.functions.push_back(emit::emit_function(name, *f, context));
    if (ir::is_entry(source, name))
      out.entries.push_back(
          entry_of(source, name, *source.find(name), context.function_index[name], types));
  }
}

}  // namespace

exec::Executable compile(const ir::Module& module, const CompileOptions& options,
                         CompileReport* report) {
  auto begin = std::chrono::steady_clock::now();
  auto say = [&](const std::string& text) {
    if (options.progress) options.progress(text);
  };
  check_targets(options);
  ir::Module typed = ir::infer_types(module);
  if (typed.signatures.empty() && !typed.find("main"))
    throw Error(Status::kInvalidArgument, module.source.empty() ? "module" : module.source,
                "there is no function @main", "name the entry function @main");
  check_entries(typed);
  passes::PassContext context;
  context.target = options.target;
  if (!options.gpus.empty()) context.gpu = options.gpus[0];
  context.device = options.device;
  context.precision = options.precision;
  context.winograd = options.winograd;
  say("running passes");
  ir::Module lowered =
      passes::run_pipeline(typed, context, options.pipeline, report ? &report->passes : nullptr);
  if (report) report->passes_ms = ms_since(begin);

  const passes::CrashScope scope(
      typed, "code generation",
      fmt::format("--target {} --precision {}{}", context.target_names(),
                  passes::name_of(options.precision),
                  options.winograd == 0 ? "" : fmt::format(" --winograd {}", options.winograd)),
      passes::CrashScope::Program::kCompile);
  exec::Executable out;
  const auto class_for = [&](const kernels::TargetInfo& target) {
    return options.policy_class.empty() ? implied_policy(lowered, options.tuned, target)
                                        : options.policy_class;
  };
  KernelSet::Records records{options.tuned, class_for(options.target), {}};
  if (!options.gpus.empty()) records.gpu_class = class_for(options.gpus[0]);
  KernelSet kernels(options.target, records, context.workloads, options.gpus, options.knobs);
  emit_module(typed, lowered, kernels, out);
  kernels.finish(options, out, report);
  out.provenance.compiler =
      fmt::format("nimble {} (code generator {})", NIMBLE_VERSION, codegen::kCodegenVersion);
  out.provenance.toolchain = codegen::backend_version();
  if (!options.gpus.empty()) out.provenance.toolchain += ", " + codegen::cuda_backend_version();
  out.provenance.model = module.source;
  out.provenance.database = options.tuned ? options.tuned->identity() : "";
  out.provenance.options["precision"] = passes::name_of(options.precision);
  if (options.winograd != 0) out.provenance.options["winograd"] = std::to_string(options.winograd);
  exec::verify(out, "compiled executable");
  if (report) {
    report->policy_class = records.policy_class;
    report->gpu_class = records.gpu_class;
    report->statistics = context.statistics;
    report->total_ms = ms_since(begin);
  }
  return out;
}

std::string implied_policy(const ir::Module& lowered, const tuned::TunedSource* tuned,
                           const kernels::TargetInfo& target) {
  return tuned::implied_policy(passes::constant_bytes(lowered),
                               tuned ? tuned->last_cache_bytes(target) : 0);
}

std::vector<WorkloadUse> workloads_of(const ir::Module& lowered) {
  std::vector<WorkloadUse> out;
  std::map<std::string, size_t> by_key;
  kernels::WorkloadCache workloads;
  for (const auto& [name, f] : lowered.functions)
    passes::visit_bindings(*f->body, [&](const ir::Binding& b) {
      const ir::Expr& e = *b.value;
      if (!e.primitive || e.kind != ir::ExprKind::kCall) return;
      if (kernels::host_op_of(*e.primitive)) return;  // nothing to tune
      std::vector<bool> constant;
      for (size_t i = 0; i < e.primitive->parameters.size(); ++i)
        constant.push_back(e.args[i].is_constant());
      const kernels::WorkloadRef w = workloads.of(*e.primitive, constant);
      const auto device = static_cast<int32_t>(passes::device_of(*e.primitive));
      auto [it, fresh] = by_key.emplace(fmt::format("{}@{}", w->identity(), device), out.size());
      if (fresh) out.push_back({*w, kernels::source_of(*e.primitive), 0, device, e.primitive});
      ++out[it->second].calls;
    });
  return out;
}

}  // namespace nimble::driver
