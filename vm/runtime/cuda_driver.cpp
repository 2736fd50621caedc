#include "vm/runtime/cuda_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "vm/base/error.h"
#include "vm/runtime/fork.h"

namespace nimble::rt {
namespace {

constexpr const char* kPlace = "NVIDIA GPU";

struct ResultInfo {
  int number;
  Status status;
  bool loses;
  const char* remedy;
};
constexpr ResultInfo kResults[] = {
#define NIMBLE_CUDA_RESULT(number, status, loses, remedy) {number, Status::status, loses, remedy},
#include "vm/runtime/CudaResults.def"
};

const ResultInfo* info_of(int result) {
  for (const ResultInfo& info : kResults)
    if (info.number == result) return &info;
  return nullptr;
}

std::string version_text_of(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

[[noreturn]] void fail_old(const std::string& problem) {
  throw Error(Status::kUnsupported, kPlace, "the driver is too old: " + problem,
              fmt::format("install one of CUDA {} or newer, or compile the model for a CPU",
                          version_text_of(CudaDriver::kOldest)));
}

}  // namespace

const CudaDriver& CudaDriver::open() {
  // Never closed: threads of the driver's run in it. By file, for tests name several.
  struct Opened {
    ForkSafeLock lock;
    std::map<std::string, std::unique_ptr<const CudaDriver>> by_file;
  };
  static Opened& opened = *new Opened;
  const char* named = std::getenv("NIMBLE_CUDA_DRIVER");
  const std::string file = named && *named ? named : "libcuda.so.1";
  std::lock_guard guard(opened.lock);
  std::unique_ptr<const CudaDriver>& driver = opened.by_file[file];
  if (!driver) driver.reset(new CudaDriver(file));
  return *driver;
}

CudaDriver::CudaDriver(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = ::dlerror();
    throw Error(Status::kUnsupported, kPlace,
                fmt::format("its driver is not there ({})", why ? why : file),
                "install the driver, or compile the model for a CPU");
  }
  const auto find = [&](const char* name) { return ::dlsym(library, name); };
#define NIMBLE_CUDA_FUNCTION(name, parameters)             \
  name = reinterpret_cast<int(*) parameters>(find(#name)); \
  if (!name) fail_old("it has no " #name);
#define NIMBLE_CUDA_OPTIONAL(name, parameters) \
  name = reinterpret_cast<int(*) parameters>(find(#name));
#include "vm/runtime/CudaFunctions.def"
  check(cuInit(0), "cuInit");
  check(cuDriverGetVersion(&version_), "cuDriverGetVersion");
  if (version_ < kOldest) fail_old("it is of CUDA " + version_text());
}

std::string CudaDriver::version_text() const {
  return version_text_of(version_);
}

std::string CudaDriver::text_of(int result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != cuda::kSuccess || !name)
    return fmt::format("error {}", result);
  if (cuGetErrorString(result, &text) != cuda::kSuccess || !text) return name;
  return fmt::format("{} ({})", name, text);
}

bool CudaDriver::loses_device(int result) {
  const ResultInfo* info = info_of(result);
  return info && info->loses;
}

void CudaDriver::check(int result, std::string_view call, std::string_view more) const {
  if (result == cuda::kSuccess) [[likely]]
    return;
  const ResultInfo* info = info_of(result);
  throw Error(info ? info->status : Status::kInternal, kPlace,
              fmt::format("{} gave {}{}{}", call, text_of(result), more.empty() ? "" : ": ", more),
              info ? info->remedy : "update the driver; if that does not help, report it");
}

}  // namespace nimble::rt
