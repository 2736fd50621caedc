// The kernel IR of a set's kernels, and what the executable says of each.
#include <algorithm>

#include "compiler/codegen/portable/portable.h"
#include "compiler/driver/kernel_set.h"
#include "compiler/driver/vendor_versions.h"
#include "compiler/kernels/targets.h"
#include "vm/base/device_number.h"
#include "vm/base/hash.h"

namespace nimble::driver {
namespace {

// The scratch that a call may need: the maximum over all implementations.
exec::DimProgram scratch_program(const exec::KernelContract& contract,
                                 const std::vector<const kir::Function*>& functions) {
  std::vector<std::string> order = contract.symbols;
  order.push_back("threads");
  std::vector<ir::Dim> sizes;
  for (const kir::Function* f : functions) {
    ir::Dim bytes = kir::scratch_bytes(*f);
    if (std::find(sizes.begin(), sizes.end(), bytes) == sizes.end()) sizes.push_back(bytes);
  }
  exec::DimProgram out = exec::DimProgram::constant(0);
  for (const ir::Dim& d : sizes) {
    if (d.is_constant(0)) continue;
    exec::DimProgram p = d.to_program(order);
    out.code.insert(out.code.end(), p.code.begin(), p.code.end());
    out.code.push_back({exec::DimOp::kMax, 0});
  }
  out.arguments = static_cast<uint32_t>(order.size());
  return out;
}

// But for what its arguments' alignment need be, which only its code says.
exec::Launch launch_of(const kir::Function& f) {
  NIMBLE_CHECK(f.launch, "{} is not a GPU's", f.name);
  exec::Launch out;
  for (size_t axis = 0; axis < out.grid.size(); ++axis)
    out.grid[axis] = f.launch->grid[axis].to_program(f.contract.symbols);
  out.threads = static_cast<uint32_t>(f.launch->threads);
  if (const kir::Stmt* steps = kir::steps_of(f))
    out.steps = steps->extent.to_program(f.contract.symbols);
  out.shared_bytes = static_cast<uint32_t>(kir::shared_bytes(f));
  for (const kir::TensorMapRef& m : f.maps) {
    exec::TensorMap& map = out.maps.emplace_back();
    map.argument = static_cast<uint32_t>(
        std::find(f.arguments.begin(), f.arguments.end(), m->buffer) - f.arguments.begin());
    for (size_t axis = 0; axis < m->box.size(); ++axis)
      map.axes.push_back(
          {m->extents[axis].to_program(f.contract.symbols), static_cast<uint32_t>(m->box[axis])});
  }
  return out;
}

// A function's text but for its name.
std::string text_of(const kir::Function& f) {
  kir::Function anonymous = f;
  anonymous.name = "kernel";
  return kir::print(anonymous);
}

// The name of a function: equal ones have one name and are compiled once, in this model and in
// others. `forms`: what it is for further architectures, of which it says what differs.
std::string symbol_of(const std::string& anchor, const kir::Function& f,
                      const std::vector<kir::Function>& forms = {}) {
  const std::string own = text_of(f);
  std::string all = own;
  for (size_t i = 0; i < forms.size(); ++i)
    if (const std::string text = text_of(forms[i]); text != own)
      all += fmt::format("{}\n{}", i, text);
  return fmt::format("{}_{}", anchor, hex(hash64(std::string_view(all))));
}

void add_function(kir::Function f, std::vector<kir::Function>* to) {
  const auto same =
      std::find_if(to->begin(), to->end(), [&](const auto& g) { return g.name == f.name; });
  if (same == to->end()) return to->push_back(std::move(f));
  // The hash is none against an adversary's models: one kernel must not run in another's place.
  if (kir::print(*same) != kir::print(f))
    throw Error(Status::kUnsupported, f.name, "is the name of two kernels, whose hashes are equal",
                "change one of them: another constant or extent is enough");
}

// The messages of the statement's checks, by which the VM explains a kernel's status.
void collect_messages(const kir::Stmt& s, std::set<std::string>* out) {
  if (s.kind == kir::StmtKind::kCheck) out->insert(s.message);
  for (const kir::StmtRef& b : s.body) collect_messages(*b, out);
}

bool may_divide(const kernels::Lowered& lowered, const kir::Function& f,
                const kernels::TargetInfo& target) {
  return lowered.divisible && !target.is_gpu() && !kir::has_barrier(*f.body);
}

}  // namespace

std::pair<kernels::Config, kir::Function> KernelSet::default_form(const Entry& e,
                                                                  const kernels::Template& t,
                                                                  const kernels::TargetInfo& target,
                                                                  const std::string& symbol,
                                                                  std::set<std::string>* messages) {
  kernels::Config config = t.default_config(e.workload, target);
  kernels::Lowered lowered = t.lower(e.workload, config, target, symbol);
  NIMBLE_CHECK(lowered.functions.size() == 1, "{}: the default schedule dispatches", t.name());
  collect_messages(*lowered.functions[0].body, messages);
  return {std::move(config), std::move(lowered.functions[0])};
}

std::optional<exec::PortableKernel> KernelSet::portable_form(
    const Entry& e, std::set<std::string>* messages) const {
  // The widest vectors that the layout of its weights allows.
  kernels::TargetInfo target;
  const kernels::Template* t = nullptr;
  for (int bits = kernels::portable_target().vector_bits; !t && bits >= 128; bits /= 2) {
    target = kernels::portable_target(bits);
    t = kernels::template_for(e.workload, target);
  }
  if (!t && target_of(e).is_gpu()) return std::nullopt;
  NIMBLE_CHECK(t, "no template serves {}", e.workload.key);
  const auto [config, function] = default_form(e, *t, target, e.name + "_portable", messages);
  exec::PortableKernel form = codegen::to_portable(function);
  form.template_name = t->name();
  form.config = kernels::to_json(config);
  return form;
}

kir::Function KernelSet::further_form(const Entry& e, const kernels::TargetInfo& target,
                                      std::set<std::string>* messages) const {
  const kernels::Template* t = kernels::template_for(e.workload, target);
  if (!t)
    throw Error(Status::kUnsupported, e.source,
                fmt::format("no kernel template serves it on {} as it is packed for {}",
                            target.level, target_.level),
                fmt::format("leave {} out, or compile for it alone", target.level));
  return default_form(e, *t, target, e.name, messages).second;
}

std::vector<kir::Function> KernelSet::gpu_forms(const Entry& e, const tuned::Candidate& candidate,
                                                const std::string& prefix,
                                                const std::vector<kir::Function>& own,
                                                const kernels::TargetInfo& target) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(
        Status::kUnsupported, e.source,
        fmt::format("its kernel for {} is none for {}: {}", gpus_[0].level, target.level, why),
        "leave one of the two out");
  };
  const kernels::Template* t = kernels::find_template(candidate.template_name);
  if (!t->serves(e.workload, target) || !t->valid(e.workload, candidate.config, target))
    refuse("the schedule does not fit");
  std::vector<kir::Function> out = t->lower(e.workload, candidate.config, target, prefix).functions;
  if (out.size() != own.size()) refuse("it has other parts");
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].name != own[i].name || launch_of(out[i]) != launch_of(own[i]))
      refuse("it is started otherwise");
    if (kir::scratch_bytes(out[i]) != kir::scratch_bytes(own[i])) refuse("it takes other memory");
  }
  return out;
}

void KernelSet::name_gpu_functions(const Entry& e, const tuned::Candidate& candidate,
                                   const std::string& prefix, std::vector<kir::Function>* own,
                                   Functions* functions) const {
  std::vector<std::vector<kir::Function>> forms(own->size());  // of each function
  for (size_t t = 0; t < functions->more.size(); ++t) {
    std::vector<kir::Function> there = gpu_forms(e, candidate, prefix, *own, gpus_[t + 1]);
    for (size_t i = 0; i < there.size(); ++i) forms[i].push_back(std::move(there[i]));
  }
  for (size_t i = 0; i < own->size(); ++i) {
    const std::string name = symbol_of(e.workload.anchor, (*own)[i], forms[i]);
    for (size_t t = 0; t < forms[i].size(); ++t) {
      forms[i][t].name = name;
      add_function(std::move(forms[i][t]), &functions->more[t]);
    }
    (*own)[i].name = name;
  }
}

std::string KernelSet::vendor_version(Entry& e, size_t candidate, bool gpu) {
  const std::string& routine = e.candidates[candidate].vendor;
  if (!gpu) return version_here(routine);
  if (e.by_hand) return {};  // nothing was measured
  if (!e.lookup.choice) return version_here(routine);
  // The library need not be where a GPU's models are compiled: the record says which it was.
  const std::string& code = e.lookup.choice->code_hashes.at(candidate);
  if (std::string measured = version_in(code, routine); !measured.empty()) return measured;
  if (std::string here = version_here(routine); !here.empty()) return here;
  e.lookup.reason += fmt::format(
      "{}no record says with which version of its library {} was measured, and there "
      "is none here: ours runs in its place",
      e.lookup.reason.empty() ? "" : "; ", routine);
  return kUnknownVersion;
}

void KernelSet::lower(Entry& e, const std::vector<kernels::TargetInfo>& more, Code& code,
                      exec::Kernel& kernel, std::set<std::string>* messages) const {
  const kernels::TargetInfo& target = target_of(e);
  Functions& functions = target.is_gpu() ? code.gpu : code.cpu;
  kernel.name = e.name;
  kernel.source = e.source;
  kernel.workload = e.workload.key;
  kernel.device = e.device;
  kernel.contract = e.workload.contract;
  kernel.contract.requirements = workloads_->requirements(e.workload);
  if (!e.host.empty()) {
    exec::Implementation i;
    i.kind = exec::ImplementationKind::kHost;
    i.symbol = e.host;
    i.template_name = tuned::kHostTemplate;
    i.max_threads = 1;
    kernel.implementations = {std::move(i)};
    kernel.dispatch = e.tree;
    return;
  }
  if (kernels::target_row(target.level).architecture == kernels::Architecture::kPortable) {
    kernel.portable = portable_form(e, messages);
    exec::Implementation i;
    i.kind = exec::ImplementationKind::kPortable;
    i.symbol = e.name + "_portable";
    i.template_name = kernel.portable->template_name;
    i.config = kernel.portable->config;
    i.max_threads = 1;
    kernel.implementations.push_back(std::move(i));
    kernel.dispatch = exec::DispatchTree::single(0);
    kernel.contract.scratch_bytes = exec::DimProgram::constant(0);
    return;
  }
  std::vector<exec::DispatchTree> tails;
  std::vector<uint32_t> base;
  std::vector<kir::Function> own;
  if (target.is_gpu()) functions.more.resize(gpus_.size() - 1);
  const auto add_functions = [&](const tuned::Candidate& candidate, const std::string& prefix) {
    const kernels::Template* t = kernels::find_template(candidate.template_name);
    NIMBLE_CHECK(t, "template {}", candidate.template_name);
    kernels::Lowered lowered = t->lower(e.workload, candidate.config, target, prefix);
    if (target.is_gpu()) {
      name_gpu_functions(e, candidate, prefix, &lowered.functions, &functions);
    } else {
      for (kir::Function& f : lowered.functions) f.name = symbol_of(e.workload.anchor, f);
    }
    for (kir::Function& f : lowered.functions) {
      collect_messages(*f.body, messages);
      exec::Implementation i;
      i.symbol = f.name;
      i.config = kernels::to_json(candidate.config);
      i.template_name = candidate.template_name;
      i.max_threads = lowered.max_threads;
      i.divisible = may_divide(lowered, f, target);
      if (target.is_gpu()) i.launch = launch_of(f);
      kernel.implementations.push_back(std::move(i));
      own.push_back(std::move(f));
    }
    return std::move(lowered.tails);
  };
  for (size_t c = 0; c < e.candidates.size(); ++c) {
    const tuned::Candidate& candidate = e.candidates[c];
    // One configuration for several regions is one kernel.
    const auto same = std::find(e.candidates.begin(), e.candidates.end(), candidate);
    if (const auto first = static_cast<size_t>(same - e.candidates.begin()); first < c) {
      base.push_back(base[first]);
      tails.push_back(tails[first]);
      e.pieces.push_back(e.pieces[first]);
      continue;
    }
    base.push_back(static_cast<uint32_t>(kernel.implementations.size()));
    if (!candidate.vendor.empty()) {
      exec::Implementation i;
      i.kind = exec::ImplementationKind::kVendor;
      i.symbol = candidate.vendor;
      i.template_name = tuned::kVendorTemplate;
      i.config = vendor_configuration(e.workload, target, candidate.vendor,
                                      vendor_version(e, c, target.is_gpu()));
      kernel.implementations.push_back(std::move(i));
      tails.push_back(exec::DispatchTree::single(0));
      e.pieces.push_back({base.back(), 1, tails.back()});
      continue;
    }
    tails.push_back(add_functions(candidate, fmt::format("{}_c{}", e.name, c)));
    e.pieces.push_back({base.back(), kernel.implementations.size() - base.back(), tails.back()});
  }
  kernel.dispatch = e.tree.graft(tails, base);
  // Without the vendor's library, and at sizes for which it has nothing, ours serves.
  if (own.empty() && !e.fixed) {
    const kernels::Template* t = kernels::template_for(e.workload, target);
    add_functions({std::string(t->name()), t->default_config(e.workload, target), {}},
                  e.name + "_default");
    NIMBLE_CHECK(own.size() == 1, "{}: the default schedule dispatches", t->name());
  }
  std::vector<kir::Function> others;
  if (!own.empty() && !target.is_gpu())
    for (const kernels::TargetInfo& level : more)
      others.push_back(further_form(e, level, messages));
  std::vector<const kir::Function*> all;
  for (const kir::Function& f : own) all.push_back(&f);
  for (const kir::Function& f : others) all.push_back(&f);
  kernel.contract.scratch_bytes = scratch_program(kernel.contract, all);
  for (kir::Function& f : own) add_function(std::move(f), &functions.own);
  if (target.is_gpu()) return;
  functions.more.resize(more.size());
  for (size_t i = 0; i < others.size(); ++i) functions.more[i].push_back(std::move(others[i]));
}

}  // namespace nimble::driver
