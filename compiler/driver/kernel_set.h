// Collects the kernels of a module, generates their code and describes them for the executable.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/tuned/tuned.h"

namespace nimble::driver {

class KernelSet {
 public:
  // `workloads`: of the passes that made the groups, if any have.
  KernelSet(const kernels::TargetInfo& target, tuned::TunedSource* tuned,
            std::shared_ptr<kernels::WorkloadCache> workloads = {})
      : target_(target),
        tuned_(tuned),
        workloads_(workloads ? std::move(workloads) : std::make_shared<kernels::WorkloadCache>()) {}

  // The index of the kernel that computes a group; equal workloads on one device share one.
  uint32_t add(const ir::FunctionRef& group, const std::vector<bool>& constant_parameter,
               const std::string& place);
  // The same with the configuration fixed, never shared: a tuning candidate.
  uint32_t add_fixed(const ir::FunctionRef& group, const std::vector<bool>& constant_parameter,
                     const tuned::Candidate& candidate, const std::string& name);

  // Lowers, compiles and links everything into `out`; fills the report.
  void finish(const CompileOptions& options, exec::Executable& out, CompileReport* report);

 private:
  struct Entry {
    kernels::Workload workload;
    std::string name, source;
    std::string host;  // the host operator that computes it; empty: templates do
    tuned::Lookup lookup;
    std::vector<tuned::Candidate> candidates;
    exec::DispatchTree tree;
    int32_t device = 0;
  };
  Entry make_entry(const kernels::Workload& w, const ir::Function& group,
                   const std::string& place) const;
  // Both add the messages of the kernel's checks.
  void lower(const Entry& e, std::vector<kir::Function>& functions, exec::Kernel& kernel,
             std::set<std::string>* messages) const;
  exec::PortableKernel portable_form(const Entry& e, std::set<std::string>* messages) const;

  const kernels::TargetInfo target_;
  tuned::TunedSource* tuned_;
  std::shared_ptr<kernels::WorkloadCache> workloads_;
  std::vector<Entry> entries_;
  std::map<std::string, uint32_t> by_key_;
};

}  // namespace nimble::driver
