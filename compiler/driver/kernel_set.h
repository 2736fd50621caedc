// Collects the kernels of a module, generates their code and describes them for the executable.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/tuned/tuned.h"

namespace nimble::driver {

class KernelSet {
 public:
  // Where schedules are from; without a source every kernel has its template's default. Of which
  // class of policy records are asked for, for kernels of the CPU and of the GPU.
  struct Records {
    tuned::TunedSource* tuned = nullptr;
    std::string policy_class, gpu_class;
  };
  // `workloads`: of the passes that made the groups, if any have.
  // `gpus`: for whose first one the kernels of the device kCudaDevice are.
  // `knobs`: as of CompileOptions.
  KernelSet(const kernels::TargetInfo& target, Records records,
            std::shared_ptr<kernels::WorkloadCache> workloads = {},
            std::vector<kernels::TargetInfo> gpus = {},
            std::map<std::string, kernels::Config> knobs = {})
      : target_(target),
        gpus_(std::move(gpus)),
        knobs_(std::move(knobs)),
        records_(std::move(records)),
        workloads_(workloads ? std::move(workloads) : std::make_shared<kernels::WorkloadCache>()) {}

  // The index of the kernel that computes a group; equal workloads on one device share one.
  uint32_t add(const ir::FunctionRef& group, const std::vector<bool>& constant_parameter,
               const std::string& place);
  // The same with the configuration fixed, never shared: a tuning candidate, of the GPU if there is
  // one.
  uint32_t add_fixed(const ir::FunctionRef& group, const std::vector<bool>& constant_parameter,
                     const tuned::Candidate& candidate, const std::string& name);

  // What everything lowers to for the first target, one function after the other, for people to
  // read: of a set that is not finished. Empty for a vendor's routine.
  struct Listing {
    std::string kernel_ir;
    std::string llvm_ir, assembly;  // of a CPU's
    std::string cuda, ptx;          // of a GPU's
  };
  Listing listing() const;

  // Lowers, compiles and links everything into `out`; fills the report.
  void finish(const CompileOptions& options, exec::Executable& out, CompileReport* report);

  // After finish(): the hash of the code of a kernel's candidate, as records keep it. A candidate
  // of several residues is as many pieces of code and a tree over them; a vendor's routine is its
  // name and its library's version.
  const std::string& code_hash(size_t kernel, size_t candidate) const {
    return entries_.at(kernel).code_hashes.at(candidate);
  }

 private:
  struct Entry {
    kernels::Workload workload;
    std::string name, source;
    std::string host;      // the host operator that computes it; empty: templates do
    bool fixed = false;    // a tuning candidate: itself and nothing that stands in for it
    bool by_hand = false;  // the default configuration with the knobs of a person
    tuned::Lookup lookup;
    std::vector<tuned::Candidate> candidates;
    exec::DispatchTree tree;
    int32_t device = 0;
    // Of each candidate, once it is lowered: its implementations' places in the kernel, and the
    // tree that chooses among them; then its code's hash.
    struct Piece {
      size_t first = 0, count = 0;
      exec::DispatchTree tails;
    };
    std::vector<Piece> pieces;
    std::vector<std::string> code_hashes;
  };
  struct Functions {
    std::vector<kir::Function> own;                // for the first target of their kind
    std::vector<std::vector<kir::Function>> more;  // for each further one
  };
  // Of the CPU's and of the GPU's kernels.
  struct Code {
    Functions cpu, gpu;
  };
  const kernels::TargetInfo& target_of(const Entry& e) const;
  // The one candidate of a kernel without a record: its template's default configuration, with the
  // knobs that a person gave.
  void choose_default(Entry& e) const;
  // The vendor's routine instead, where a person asks for it and it serves any call.
  bool choose_vendor(Entry& e) const;
  // Whether each template of the knobs makes a kernel that took them.
  void check_knobs() const;
  // What the records have for a kernel.
  tuned::Lookup look_up(const Entry& e) const;
  Entry make_entry(const kernels::Workload& w, const ir::Function& group, int32_t device,
                   const std::string& place) const;
  // Which version of its library a candidate of a vendor's runs with; "": any.
  static std::string vendor_version(Entry& e, size_t candidate, bool gpu);
  // `more`: further levels of the CPU. `messages`: those of the kernel's checks are added.
  void lower(Entry& e, const std::vector<kernels::TargetInfo>& more, Code& code,
             exec::Kernel& kernel, std::set<std::string>* messages) const;
  // Compares the code with what was measured: a record is exact only while both are the same.
  static void compare_code(Entry& e);
  // The assembler has `said` that it lets products of groups of warps not go on side by side: a
  // candidate and a person's knobs are refused, since there are others. What a record has was
  // measured with another compiler, and is the best that is known: it stays, and the reason says
  // so.
  static void tell_serialized(Entry& e, const std::string& said);
  // The template's default schedule, which is one function whatever the shape.
  static std::pair<kernels::Config, kir::Function> default_form(const Entry& e,
                                                                const kernels::Template& t,
                                                                const kernels::TargetInfo& target,
                                                                const std::string& symbol,
                                                                std::set<std::string>* messages);
  // Nothing for a GPU's kernel that no template of CPUs takes whole.
  std::optional<exec::PortableKernel> portable_form(const Entry& e,
                                                    std::set<std::string>* messages) const;
  // A candidate's functions `own` again, for a further architecture of GPUs: of one configuration,
  // and started alike.
  std::vector<kir::Function> gpu_forms(const Entry& e, const tuned::Candidate& candidate,
                                       const std::string& prefix,
                                       const std::vector<kir::Function>& own,
                                       const kernels::TargetInfo& target) const;
  // Gives a candidate's functions `own` the names that they have in images, and adds those for
  // further architectures of GPUs.
  void name_gpu_functions(const Entry& e, const tuned::Candidate& candidate,
                          const std::string& prefix, std::vector<kir::Function>* own,
                          Functions* functions) const;
  // In the image of a further level.
  kir::Function further_form(const Entry& e, const kernels::TargetInfo& target,
                             std::set<std::string>* messages) const;

  const kernels::TargetInfo target_;
  const std::vector<kernels::TargetInfo> gpus_;
  const std::map<std::string, kernels::Config> knobs_;
  const Records records_;
  std::shared_ptr<kernels::WorkloadCache> workloads_;
  std::vector<Entry> entries_;
  std::map<std::string, uint32_t> by_key_;
};

}  // namespace nimble::driver
