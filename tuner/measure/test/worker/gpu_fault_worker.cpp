// A worker on the stand-in for NVIDIA's driver, whose kernels go wrong in every way that a
// candidate can.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tuner/measure/test/gpu_fault_executable.h"
#include "tuner/measure/worker.h"
#include "vm/executable/check_status.h"
#include "vm/library/registry.h"
#include "vm/runtime/test/standin/cuda.h"

namespace {

constexpr int kIllegalAddress = 700, kLaunchFailed = 719;

const StandInCuda* driver = nullptr;

int copy(const StandInLaunch& l) {
  if (l.symbols[0] > 0)
    std::memcpy(l.pointers[1], l.pointers[0], static_cast<size_t>(l.symbols[0]) * sizeof(float));
  return 0;
}
int wrong(const StandInLaunch& l) {
  copy(l);
  static_cast<float*>(l.pointers[1])[0] += 1;
  return 0;
}
// What stands in for kernels that a compiler has made of relu.
int relu(const StandInLaunch& l) {
  const auto* x = static_cast<const float*>(l.pointers[0]);
  auto* y = static_cast<float*>(l.pointers[1]);
  for (int64_t i = 0; i < l.symbols[0]; ++i) y[i] = x[i] > 0 ? x[i] : 0;
  return 0;
}
// The same of the product and a relu.
int product(const StandInLaunch& l) {
  using nimble::tuner::kProductColumns;
  using nimble::tuner::kProductDepth;
  const auto* x = static_cast<const float*>(l.pointers[0]);
  const auto* w = static_cast<const float*>(l.pointers[1]);
  auto* y = static_cast<float*>(l.pointers[2]);
  for (int64_t i = 0; i < l.symbols[0]; ++i)
    for (int64_t j = 0; j < kProductColumns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kProductDepth; ++k)
        sum += double{x[i * kProductDepth + k]} * double{w[k * kProductColumns + j]};
      y[i * kProductColumns + j] = sum > 0 ? static_cast<float>(sum) : 0;
    }
  return 0;
}
int nothing(const StandInLaunch&) {
  return 0;
}
int trap(const StandInLaunch&) {
  return kIllegalAddress;
}
// Right where it is checked, and not where it is timed.
int late_trap(const StandInLaunch& l) {
  static int calls = 0;
  return ++calls > 4 ? kLaunchFailed : copy(l);
}
int hang(const StandInLaunch&) {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}
int failing(const StandInLaunch& l) {
  *l.status = nimble::exec::check_status(nimble::tuner::kGpuCheck);
  return 0;
}
// Its check fails if anything was asked against the driver's rules.
int audit(const StandInLaunch& l) {
  return *driver->violations() ? failing(l) : copy(l);
}
int slow(const StandInLaunch& l) {
  driver->take(9);
  return copy(l);
}
// Finds a file of the user's open to it.
int reaching(const StandInLaunch& l) {
  const int file = ::open("/etc/passwd", O_RDONLY | O_CLOEXEC);
  if (file < 0) return copy(l);
  ::close(file);
  return failing(l);
}
// Whether a file can be read.
bool reads(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0) ::close(file);
  return file >= 0;
}
// Finds of the folder of NIMBLE_CUDNN anything but libraries open to it, or these closed.
int reaching_beside(const StandInLaunch& l) {
  const std::string named = std::getenv("NIMBLE_CUDNN");
  const std::string folder = named.substr(0, named.rfind('/') + 1);
  const bool right = reads(named) && reads(folder + "libpart.so.9.1") &&
                     !reads(folder + "secret") && !reads(folder + "libfolder.so/secret");
  return right ? copy(l) : failing(l);
}
// A library that takes its time, more than a candidate has, and then has nothing for the call.
void take_time() {
  std::this_thread::sleep_for(std::chrono::milliseconds(nimble::tuner::kSlowLibraryMs));
}
class SlowRoutine final : public nimble::rt::DeviceRoutine {
 public:
  std::shared_ptr<const nimble::rt::DeviceCall> find(std::span<const nimble::rt::LibraryTensor>,
                                                     std::string* why) override {
    take_time();
    *why = "it has nothing";
    return nullptr;
  }
};
void add_slow_library() {
  nimble::rt::LibraryKernel k;
  k.name = nimble::tuner::kSlowLibrary;
  k.kind = nimble::exec::ImplementationKind::kVendor;
  k.prepare_on_gpu = [](const std::string&, const nimble::exec::KernelContract&,
                        nimble::rt::CudaDevice&) -> std::shared_ptr<nimble::rt::DeviceRoutine> {
    take_time();
    return std::make_shared<SlowRoutine>();
  };
  nimble::rt::add_library_kernel(std::move(k));
}
// Does not bear that its input lies where it lay in the run before: where the first copy was
// checked it may lie once more.
int rotated(const StandInLaunch& l) {
  static const void* last = nullptr;
  static int repeated = 0;
  if (std::exchange(last, l.pointers[0]) == l.pointers[0] && ++repeated > 1) return failing(l);
  return copy(l);
}

// The same of a kernel that takes microseconds.
int rotated_fast(const StandInLaunch& l) {
  driver->tick(0.002f);
  return rotated(l);
}

}  // namespace

int main(int argc, char** argv) {
  nimble::tuner::WorkerOptions options;
  CLI::App app;
  bool serve = false;
  app.add_flag("--serve", serve);
  app.add_option("--parent", options.parent);
  app.add_option("--progress-fd", options.progress);
  app.add_option("--memory-limit", options.memory_limit);
  app.add_option("--cpus", options.cpus);
  app.add_flag("--gpu", options.gpu);
  CLI11_PARSE(app, argc, argv);
  if (::access(std::getenv("NIMBLE_CUDA_DRIVER"), R_OK) == 0) {
    driver = &standin_cuda(std::getenv("NIMBLE_CUDA_DRIVER"));
    const std::pair<const char*, StandInKernel> kernels[] = {{"copy", copy},
                                                             {"wrong", wrong},
                                                             {"nothing", nothing},
                                                             {"trap", trap},
                                                             {"hang", hang},
                                                             {"late_trap", late_trap},
                                                             {"failing", failing},
                                                             {"audit", audit},
                                                             {"slow", slow},
                                                             {"rotated", rotated},
                                                             {"reaching", reaching},
                                                             {"rotated_fast", rotated_fast},
                                                             {"reaching_beside", reaching_beside},
                                                             {"*", relu}};
    for (const auto& [name, run] : kernels) driver->add_kernel(name, 2, 1, run);
    driver->add_kernel("product", 3, 1, product);
  }
  add_slow_library();
  options.out = ::dup(1);
  ::dup2(2, 1);
  return nimble::tuner::serve(options);
}
