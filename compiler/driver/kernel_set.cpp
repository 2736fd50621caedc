// From groups to native kernels.
//
// Each distinct workload becomes one exec::Kernel. Its dispatch tree has two storeys: the tuned
// tree (or a single leaf with the default schedule) chooses a candidate by shape and threads, and
// each candidate's own tree resolves its tails (paper, 3.5: a kernel per residue). They are
// grafted into one, so the VM walks one tree.
//
// In the images of further levels a kernel is one function, the template's default schedule there,
// under the kernel's name: it stands for all of the kernel's implementations.
//
// Kernels of a GPU come from templates of GPUs, and each of its implementations says how it is
// started. Their images are apart from the CPU's; each has all of their functions, made by the same
// configurations, since an implementation is started in one way whichever image it comes from.
//
// Beside them stands the portable form: the default schedule again, without dispatch, for the
// checked interpreter. The target "portable" has that alone.
#include "compiler/driver/kernel_set.h"

#include <algorithm>
#include <chrono>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/portable/portable.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/vendor.h"
#include "vm/base/device_number.h"
#include "vm/base/hash.h"
#include "vm/library/registry.h"

namespace nimble::driver {
namespace {

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

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
  out.shared_bytes = static_cast<uint32_t>(kir::shared_bytes(f));
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

// A library's version that no library is of: what was measured is not known, so ours is to run.
constexpr const char* kUnknownVersion = "an unknown version";

std::string version_here(const std::string& routine) {
  const rt::LibraryKernel* known =
      rt::find_library_kernel(exec::ImplementationKind::kVendor, routine);
  return known && known->version ? known->version() : "";
}

// A vendor's routine as a record names its code: with the version of its library.
std::string code_of_routine(const std::string& routine, const std::string& version) {
  return version.empty() ? routine : routine + " " + version;
}

// The version that a record's code names; "" if it names none.
std::string version_in(const std::string& code, const std::string& routine) {
  const std::string begin = routine + " ";
  return code.starts_with(begin) ? code.substr(begin.size()) : "";
}

// What the routine is told: what to compute, and by which version of its library, for what was
// measured with one tells nothing of another; "": any will do. Empty if it does not compute the
// workload; then the runtime passes over it.
std::string vendor_configuration(const kernels::Workload& w, const kernels::TargetInfo& target,
                                 const std::string& routine, std::string version) {
  std::optional<exec::VendorCall> call = kernels::vendor_call_of(w, target);
  if (!call || call->routine != routine) return {};
  call->library = std::move(version);
  return exec::to_json(*call);
}

bool may_divide(const kernels::Lowered& lowered, const kir::Function& f,
                const kernels::TargetInfo& target) {
  return lowered.divisible && !target.is_gpu() && !kir::has_barrier(*f.body);
}

std::string hash_of_code(const exec::Kernel& k, size_t first, size_t count,
                         const exec::DispatchTree& tails) {
  std::string text = count == 1 ? "" : tails.str(k.contract.symbols);
  for (size_t at = first; at < first + count; ++at) {
    const exec::Implementation& i = k.implementations[at];
    if (i.kind == exec::ImplementationKind::kNative) {
      text += hex(i.code_hash);
      continue;
    }
    // Of a GPU's library the version that is to run, which need not be here.
    const bool told = is_gpu(k.device) && !i.config.empty();
    text += code_of_routine(i.symbol,
                            told ? exec::vendor_call_of(i.config).library : version_here(i.symbol));
  }
  return count == 1 ? text : hex(hash128(text));
}

}  // namespace

std::string why_no_vendor(const std::string& routine) {
  const rt::LibraryKernel* known =
      rt::find_library_kernel(exec::ImplementationKind::kVendor, routine);
  if (!known) return fmt::format("this program knows no routine {}", routine);
  return known->unavailable ? known->unavailable() : "";
}

KernelSet::Entry KernelSet::make_entry(const kernels::Workload& w, const ir::Function& group,
                                       int32_t device, const std::string& place) const {
  Entry e;
  e.workload = w;
  e.device = device;
  if (e.device == kCudaDevice && gpus_.empty())
    throw Error(Status::kInvalidArgument, place,
                fmt::format("it runs on device {} ({}), and no target is a GPU's", e.device,
                            device_name(e.device)),
                "name its architecture beside the CPU's: --target sm_90a");
  e.source = kernels::source_of(group);
  if (const kernels::HostOp* op = kernels::host_op_of(group)) {
    e.host = op->kernel;
    return e;
  }
  if (!kernels::template_for(w, target_of(e)))
    throw Error(Status::kUnsupported, place,
                fmt::format("no kernel template serves {} on {}", e.source, target_of(e).level),
                "use another dtype or split the operator; nimble check lists what is served");
  return e;
}

const kernels::TargetInfo& KernelSet::target_of(const Entry& e) const {
  return e.device == kCudaDevice ? gpus_.at(0) : target_;
}

uint32_t KernelSet::add(const ir::FunctionRef& group, const std::vector<bool>& constant_parameter,
                        const std::string& place) {
  const kernels::WorkloadRef w = workloads_->of(*group, constant_parameter);
  std::string key = w->identity();
  const auto device =
      static_cast<int32_t>(ir::attr_or<int64_t>(group->attrs, "device", kCpuDevice));
  if (device != kCpuDevice) key += fmt::format("@{}", device);
  auto [it, fresh] = by_key_.emplace(key, static_cast<uint32_t>(entries_.size()));
  if (!fresh) {
    // The same work may meet tensors of more axes here than at its first call (a row, a matrix).
    std::vector<exec::KernelArgument>& arguments = entries_[it->second].workload.contract.arguments;
    for (size_t i = 0; i < arguments.size(); ++i)
      arguments[i].collapse_leading |= w->contract.arguments[i].collapse_leading;
    return it->second;
  }
  Entry e = make_entry(*w, *group, device, place);
  e.name = fmt::format("k{}_{}", entries_.size(), e.workload.anchor);
  if (!e.host.empty()) {
    e.lookup.outcome = tuned::Lookup::Outcome::kFixed;
    e.candidates = {{tuned::kHostTemplate, {}, {}}};
    e.tree = exec::DispatchTree::single(0);
    entries_.push_back(std::move(e));
    return it->second;
  }
  e.lookup = look_up(e);
  if (e.lookup.choice) {
    e.candidates = e.lookup.choice->candidates;
    e.tree = e.lookup.choice->tree;
  } else {
    choose_default(e);
  }
  entries_.push_back(std::move(e));
  return it->second;
}

bool KernelSet::choose_vendor(Entry& e) const {
  if (!knobs_.contains(tuned::kVendorTemplate)) return false;
  const auto call = kernels::vendor_call_of(e.workload, target_of(e));
  // What is ready for exact sizes alone would hardly ever run.
  if (!call || (kernels::serves_exact_sizes(call->routine) && !e.workload.contract.symbols.empty()))
    return false;
  e.candidates = {{tuned::kVendorTemplate, {}, call->routine}};
  e.tree = exec::DispatchTree::single(0);
  e.by_hand = true;
  e.lookup.reason +=
      fmt::format("{}the vendor's routine, as asked for", e.lookup.reason.empty() ? "" : "; ");
  return true;
}

tuned::Lookup KernelSet::look_up(const Entry& e) const {
  tuned::Lookup none;
  if (!records_.tuned) return none;
  if (!target_of(e).is_gpu())
    return records_.tuned->find(e.workload, target_, records_.policy_class);
  if (const kernels::TargetInfo* gpu = kernels::gpu_of_records(gpus_))
    return records_.tuned->find(e.workload, *gpu, records_.gpu_class);
  none.reason = "records of one architecture are none of another: compile for each by itself";
  return none;
}

void KernelSet::choose_default(Entry& e) const {
  if (choose_vendor(e)) return;
  const kernels::TargetInfo& target = target_of(e);
  const kernels::Template* t = kernels::template_for(e.workload, target);
  const std::string name(t->name());
  kernels::Config config = t->default_config(e.workload, target);
  if (const auto given = knobs_.find(name); given != knobs_.end()) {
    const std::string place = "knobs of " + name;
    const std::vector<kernels::Knob> knobs = t->knobs(e.workload, target);
    std::string choices;
    for (const auto& [knob, value] : given->second) {
      const auto known = std::find_if(knobs.begin(), knobs.end(),
                                      [&, &k = knob](const auto& one) { return one.name == k; });
      if (known == knobs.end()) {
        std::string names;
        for (const kernels::Knob& one : knobs) names += (names.empty() ? "" : ", ") + one.name;
        throw Error(Status::kInvalidArgument, place, fmt::format("there is no knob {}", knob),
                    "its knobs: " + names);
      }
      choices +=
          fmt::format("{}{} {}", choices.empty() ? "" : "; ", knob, kernels::choices_text(*known));
      config[knob] = value;
    }
    if (!t->valid(e.workload, config, target))
      throw Error(Status::kInvalidArgument, place,
                  fmt::format("{} cannot be made with {}", e.source, kernels::to_json(config)),
                  "give others, or more of them; searches look at: " + choices);
    e.by_hand = true;
    e.lookup.reason += fmt::format("{}with the knobs {}", e.lookup.reason.empty() ? "" : "; ",
                                   kernels::to_json(given->second));
  }
  e.candidates = {{name, std::move(config), {}}};
  e.tree = exec::DispatchTree::single(0);
}

void KernelSet::check_knobs() const {
  for (const auto& [name, knobs] : knobs_) {
    const std::string place = "knobs of " + name;
    const bool vendor = name == tuned::kVendorTemplate;
    if (vendor && !knobs.empty())
      throw Error(Status::kInvalidArgument, place, "a vendor's routine has none",
                  "write vendor={} to have it wherever there is one");
    if (!vendor && !kernels::find_template(name)) {
      std::string names(tuned::kVendorTemplate);
      for (const kernels::Template* t : kernels::all_templates())
        names += fmt::format(", {}", t->name());
      throw Error(Status::kInvalidArgument, place, "there is no such template",
                  "name one of " + names);
    }
    if (std::none_of(entries_.begin(), entries_.end(), [&, &n = name](const Entry& e) {
          return e.by_hand && e.candidates[0].template_name == n;
        }))
      throw Error(Status::kInvalidArgument, place,
                  "it makes no kernel of this model that has no tuning record",
                  "leave them out; nimble check lists the templates");
  }
}

uint32_t KernelSet::add_fixed(const ir::FunctionRef& group,
                              const std::vector<bool>& constant_parameter,
                              const tuned::Candidate& candidate, const std::string& name) {
  const int32_t device = gpus_.empty() ? kCpuDevice : kCudaDevice;
  Entry e = make_entry(*workloads_->of(*group, constant_parameter), *group, device, name);
  e.name = name;
  e.fixed = true;
  e.candidates = {candidate};
  e.tree = exec::DispatchTree::single(0);
  entries_.push_back(std::move(e));
  return static_cast<uint32_t>(entries_.size() - 1);
}

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

void KernelSet::compare_code(Entry& e) {
  tuned::TunedChoice& choice = *e.lookup.choice;
  std::vector<bool> stale(e.candidates.size());
  size_t changed = 0, unknown = 0;
  for (size_t c = 0; c < e.candidates.size(); ++c) {
    const std::string& measured = choice.code_hashes[c];
    changed += !measured.empty() && measured != e.code_hashes[c];
    unknown += measured.empty();
    stale[c] = measured != e.code_hashes[c];
  }
  using Outcome = tuned::Lookup::Outcome;
  // The default schedule under a person's override is no record.
  if (e.lookup.outcome == Outcome::kUntuned || e.lookup.outcome == Outcome::kMismatch) return;
  if (changed + unknown == 0) return;
  choice.evidence = tuned::with_stale(choice.evidence, stale);
  const auto add = [&](const std::string& why) {
    e.lookup.reason += (e.lookup.reason.empty() ? "" : "; ") + why;
  };
  if (changed > 0)
    add(fmt::format("the code of {} of {} schedules has changed since it was measured{}", changed,
                    e.candidates.size(),
                    e.lookup.other_toolchain.empty() ? "" : ": " + e.lookup.other_toolchain));
  if (unknown > 0)
    add(fmt::format("of {} of {} schedules the code that was measured is not known", unknown,
                    e.candidates.size()));
  if (e.lookup.outcome == Outcome::kTuned) e.lookup.outcome = Outcome::kStale;
}

KernelSet::Listing KernelSet::listing() const {
  Code code;
  std::set<std::string> messages;
  for (const Entry& e : entries_) {
    Entry scratch = e;
    exec::Kernel kernel;
    lower(scratch, {}, code, kernel, &messages);
  }
  Listing out;
  for (const kir::Function& f : code.cpu.own) {
    const codegen::Listing one = codegen::listing(f, target_);
    out.kernel_ir += kir::print(f);
    out.llvm_ir += one.llvm_ir;
    out.assembly += one.assembly;
  }
  for (const kir::Function& f : code.gpu.own) {
    out.kernel_ir += kir::print(f);
    out.cuda += codegen::cuda_source(f, gpus_[0]);
    out.ptx += codegen::cuda_assembly(f, gpus_[0]);
  }
  return out;
}

void KernelSet::finish(const CompileOptions& options, exec::Executable& out,
                       CompileReport* report) {
  auto say = [&](const std::string& text) {
    if (options.progress) options.progress(text);
  };
  check_knobs();
  auto begin = std::chrono::steady_clock::now();
  Code code;
  std::set<std::string> messages;
  for (Entry& e : entries_) {
    exec::Kernel kernel;
    lower(e, options.more_targets, code, kernel, &messages);
    out.kernels.push_back(std::move(kernel));
  }
  if (report) report->lower_ms += ms_since(begin);

  begin = std::chrono::steady_clock::now();
  if (options.portable)
    for (size_t k = 0; k < entries_.size(); ++k)
      if (!out.kernels[k].portable && entries_[k].host.empty())
        out.kernels[k].portable = portable_form(entries_[k], &messages);
  if (report) report->portable_ms += ms_since(begin);
  out.texts.insert(out.texts.end(), messages.begin(), messages.end());

  std::map<std::string, codegen::CompiledFunction> compiled;
  std::map<std::string, uint32_t> alignments;  // of arguments, whichever image is loaded
  const auto say_image = [&](const std::vector<kir::Function>& kernels,
                             const kernels::TargetInfo& target) {
    const auto count = std::count_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return target_of(e).is_gpu() == target.is_gpu();
    });
    say(fmt::format("generating code for {} kernels ({} variants) on {}", count, kernels.size(),
                    target.level));
  };
  const auto add_gpu_image = [&](const std::vector<kir::Function>& kernels,
                                 const kernels::TargetInfo& target) {
    if (kernels.empty()) return;
    say_image(kernels, target);
    begin = std::chrono::steady_clock::now();
    const std::vector<codegen::CudaObject> objects = codegen::compile_cuda(
        kernels, target, options.compile_threads, codegen::CodeCache::of_user());
    if (report) report->codegen_ms += ms_since(begin);
    auto image = std::make_shared<std::vector<uint8_t>>();
    std::vector<exec::NativeImage::Module> modules;
    for (const codegen::CudaObject& o : objects) {
      image->insert(image->end(), o.bytes.begin(), o.bytes.end());
      modules.push_back({o.function.name, o.bytes.size()});
      // The code of the first target is what records would be of.
      compiled.emplace(o.function.name, o.function);
      uint32_t& alignment = alignments[o.function.name];
      alignment = std::max(alignment, o.argument_alignment);
      if (report) report->cached += o.cached;
    }
    out.images.push_back({target.level, {}, *image, image, kCudaDevice, std::move(modules)});
    if (report) report->images.emplace_back(target.level, image->size());
  };
  const auto add_image = [&](const std::vector<kir::Function>& kernels,
                             const kernels::TargetInfo& target) {
    if (kernels.empty()) return;
    say_image(kernels, target);
    begin = std::chrono::steady_clock::now();
    std::vector<codegen::CompiledObject> objects =
        codegen::compile_parallel(kernels, target, options.compile_threads,
                                  {.optimize = options.optimize}, codegen::CodeCache::of_user());
    if (report) report->codegen_ms += ms_since(begin);
    begin = std::chrono::steady_clock::now();
    auto image = std::make_shared<std::vector<uint8_t>>(codegen::link(objects));
    out.images.push_back({target.level, target.features, *image, image});
    if (report) report->link_ms += ms_since(begin);
    if (report) report->images.emplace_back(target.level, image->size());
    for (codegen::CompiledObject& o : objects) {
      for (codegen::CompiledFunction& f : o.functions) compiled[f.name] = f;
      if (report && o.cached) report->cached += o.functions.size();
    }
  };
  add_image(code.cpu.own, target_);
  for (size_t i = 0; i < code.cpu.more.size(); ++i)
    add_image(code.cpu.more[i], options.more_targets[i]);
  add_gpu_image(code.gpu.own, gpus_.empty() ? target_ : gpus_[0]);
  for (size_t i = 0; i < code.gpu.more.size(); ++i) add_gpu_image(code.gpu.more[i], gpus_[i + 1]);

  for (size_t k = 0; k < entries_.size(); ++k) {
    Entry& e = entries_[k];
    KernelReport row;
    for (exec::Implementation& i : out.kernels[k].implementations) {
      auto it = compiled.find(i.symbol);
      if (it != compiled.end()) {
        i.code_hash = std::stoull(it->second.code_hash.substr(0, 16), nullptr, 16);
        row.code_bytes += it->second.code_bytes;
      }
      if (i.launch) i.launch->alignment = alignments.at(i.symbol);
      ++row.implementations;
    }
    for (const Entry::Piece& p : e.pieces)
      e.code_hashes.push_back(hash_of_code(out.kernels[k], p.first, p.count, p.tails));
    if (e.lookup.choice && !e.pieces.empty()) compare_code(e);
    row.kernel = out.kernels[k].name;
    row.source = e.source;
    row.workload = e.workload.key;
    row.template_name = e.candidates[0].template_name;
    row.outcome = e.lookup.outcome;
    row.reason = e.lookup.reason;
    row.threads = e.lookup.threads;
    row.device = e.device;
    row.evidence = e.lookup.choice   ? e.lookup.choice->evidence
                   : !e.host.empty() ? R"({"schedule":"host"})"
                   : e.by_hand
                       ? fmt::format(R"({{"schedule":"default","reason":"untuned","knobs":{}}})",
                                     kernels::to_json(knobs_.at(row.template_name)))
                       : R"({"schedule":"default","reason":"untuned"})";
    out.provenance.kernels[row.kernel] = row.evidence;
    if (report) report->kernels.push_back(std::move(row));
  }
}

}  // namespace nimble::driver
