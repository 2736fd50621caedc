#include "tuner/service/backend.h"

#include <time.h>

#include <algorithm>
#include <chrono>

#include "compiler/driver/compile.h"
#include "compiler/driver/kernel_set.h"
#include "compiler/driver/vendor_versions.h"
#include "vm/base/error.h"
#include "vm/executable/writer.h"

namespace nimble::tuner {
namespace {

double thread_ms() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

// Kernels of candidates for a target: a GPU's stand beside this machine's CPU, which gets none.
driver::KernelSet kernels_for(const kernels::TargetInfo& target) {
  if (!target.is_gpu()) return {target, {}};
  return {kernels::detect_host(), {}, {}, {target}};
}

// What a candidate's kernel takes, which has an implementation or, of a library's routine, none
// with a launch: nothing is known then.
GpuCode gpu_code_of(const exec::Kernel& kernel, const driver::KernelReport& report) {
  GpuCode out{0, report.shared_bytes, report.registers, report.spill_bytes};
  for (const exec::Implementation& i : kernel.implementations)
    if (i.launch) out.threads = std::max<int64_t>(out.threads, i.launch->threads);
  return out;
}

class CompilerBackend : public Backend {
 public:
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override {
    Built out;
    const auto begin = std::chrono::steady_clock::now();
    const double cpu_begin = thread_ms();
    try {
      // Kernels alone, without a program around them: the worker calls them by themselves.
      exec::Executable e;
      driver::KernelSet kernels = kernels_for(target);
      for (size_t c = 0; c < candidates.size(); ++c)
        kernels.add_fixed(w.group, w.constant_parameter, candidates[c], fmt::format("c{}", c));
      driver::CompileOptions options;
      options.portable = false;  // candidates are measured here
      options.compile_threads = 1;
      driver::CompileReport report;
      kernels.finish(options, e, &report);
      NIMBLE_CHECK(e.kernels.size() == candidates.size(), "{} kernels of {} candidates",
                   e.kernels.size(), candidates.size());
      for (size_t c = 0; c < candidates.size(); ++c)
        out.code_hashes.push_back(kernels.code_hash(c, 0));
      if (target.is_gpu())
        for (size_t c = 0; c < candidates.size(); ++c)
          out.gpu_code.push_back(gpu_code_of(e.kernels[c], report.kernels.at(c)));
      for (const exec::NativeImage& image : e.images)
        out.image_bytes += static_cast<int64_t>(image.bytes.size());
      out.executable = exec::serialize(e);
    } catch (const std::exception& e) {
      out.error = e.what();
    }
    out.cpu_ms = thread_ms() - cpu_begin;
    out.compile_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return out;
  }

  std::vector<CodeText> code(const kernels::Workload& w, const tuned::Candidate& candidate,
                             const kernels::TargetInfo& target) override {
    try {
      driver::KernelSet kernels = kernels_for(target);
      kernels.add_fixed(w.group, w.constant_parameter, candidate, "kernel");
      driver::KernelSet::Listing all = kernels.listing();
      if (all.kernel_ir.empty()) return {};
      if (target.is_gpu())
        return {{"kernel-ir", std::move(all.kernel_ir)},
                {"cuda", std::move(all.cuda)},
                {"ptx", std::move(all.ptx)}};
      return {{"kernel-ir", std::move(all.kernel_ir)},
              {"llvm-ir", std::move(all.llvm_ir)},
              {"assembly", std::move(all.assembly)}};
    } catch (const std::exception&) {
      return {};  // it was compiled before: whatever is wrong, nobody waits for the text
    }
  }

  std::string why_no_vendor(const std::string& routine) const override {
    return driver::why_no_vendor(routine);
  }

  Expectation expect(const TuningTask& task, const WorkloadPoint& point,
                     const tuned::Candidate& default_schedule, const DefaultResult& run) override {
    std::vector<int64_t> tiles;  // what a knob counts may be a tile's extent
    for (const auto& [knob, value] : default_schedule.config)
      if (const auto* n = std::get_if<int64_t>(&value); n && *n > 1) tiles.push_back(*n);
    return expected_result(task, point, tiles, run);
  }
  bool is_right(const TuningTask& task, const WorkloadPoint& point, const Expectation& e,
                uint32_t output, int64_t element) override {
    return tuner::is_right(task, point, e, output, element);
  }
};

}  // namespace

std::unique_ptr<Backend> compiler_backend() {
  return std::make_unique<CompilerBackend>();
}

}  // namespace nimble::tuner
