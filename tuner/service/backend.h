// Makes candidates into executables and knows what they should compute. The compiler is one
// implementation; tests have others, whose candidates crash, hang or lie.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/kernels/target.h"
#include "compiler/tuned/tuned.h"
#include "tuner/search/occupancy.h"
#include "tuner/service/oracle.h"
#include "tuner/service/workloads.h"

namespace nimble::tuner {

// Several candidates of one workload in one executable: kernel i is candidate i. Compiling a few
// together spares the fixed costs of a module and a link.
struct Built {
  std::vector<uint8_t> executable;       // serialised; empty if compiling failed
  std::vector<std::string> code_hashes;  // per candidate
  std::vector<GpuCode> gpu_code;         // per candidate; empty: of a CPU
  int64_t image_bytes = 0;               // machine code and its tables, of all
  double compile_ms = 0;                 // of all
  double cpu_ms = 0;                     // the thread's own time; 0: not known
  std::string error;                     // why it failed
};

// A form of a candidate's code, for people to read.
struct CodeText {
  std::string kind;  // "kernel-ir", "llvm-ir", "assembly"; of a GPU's "kernel-ir", "cuda", "ptx"
  std::string text;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Thread safe. Never throws: failures are in `error`.
  virtual Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
                      const kernels::TargetInfo& target) = 0;
  // What a candidate's machine code was made of and is, for about the price of building it; nothing
  // if there is no such text, as of a vendor's routine. Thread safe. Never throws.
  virtual std::vector<CodeText> code(const kernels::Workload&, const tuned::Candidate&,
                                     const kernels::TargetInfo&) {
    return {};
  }
  // Why no candidate can be made of this routine of a vendor's, as where its library is not
  // installed; "" if it can.
  virtual std::string why_no_vendor(const std::string& /*routine*/) const { return {}; }
  // Thread safe. May throw nimble::Error: the workload then cannot be checked, so not tuned.
  // expected_result() of oracle.h says what it may do with the default schedule.
  virtual Expectation expect(const TuningTask& task, const WorkloadPoint& point,
                             const tuned::Candidate& default_schedule,
                             const DefaultResult& run) = 0;
  // Whether what is expected is right at the element where a candidate disagrees most.
  virtual bool is_right(const TuningTask&, const WorkloadPoint&, const Expectation&,
                        uint32_t /*output*/, int64_t /*element*/) {
    return true;
  }
};

// The compiler and the reference interpreter.
std::unique_ptr<Backend> compiler_backend();

}  // namespace nimble::tuner
