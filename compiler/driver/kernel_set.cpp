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
//
// Here is which kernels there are and by which schedules; kernel_lowering.cpp makes their kernel
// IR, kernel_code.cpp their code.
#include "compiler/driver/kernel_set.h"

#include <algorithm>

#include "compiler/kernels/host_ops.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/vendor.h"
#include "vm/base/device_number.h"

namespace nimble::driver {

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

}  // namespace nimble::driver
