// What NVIDIA's libraries have in common here: each is opened at run time, once for each name that
// the environment gives it, and its state on a device is shared by all routines there. Internal to
// vm/library.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "vm/base/error.h"
#include "vm/base/library_files.h"
#include "vm/runtime/cuda_device.h"
#include "vm/runtime/fork.h"
#include "vm/runtime/gpu_losses.h"

namespace nimble::rt {

class GpuLibrary {
 public:
  // Why it cannot be used; "" if it can.
  const std::string& problem() const { return problem_; }
  // "cuBLASLt 13.0.2"; "" if it is not there.
  const std::string& version() const { return version_; }

 protected:
  // One that cannot be used.
  explicit GpuLibrary(std::string problem) : problem_(std::move(problem)) {}
  // Opens a file, which stays so: threads of the library's may run in it. False, and the problem is
  // set, where that fails.
  bool load(const std::string& file);
  // A function of the file that was opened. nullptr, and the problem is set, where it has none.
  void* find(const char* name);
  // Sets the version and returns its first number: "cuBLASLt 13.0.2" and 13 of 130002.
  size_t set_version(const char* name, size_t number);
  std::string problem_, version_;

 private:
  std::string file_;
  void* handle_ = nullptr;
};

// As library_of, looked for anew; `named` is what `variable` says.
template <class Library>
std::unique_ptr<const Library> look_for_library(const char* variable, const char* named,
                                                std::span<const char* const> names) {
  if (named && std::strcmp(named, "off") == 0)
    return std::make_unique<Library>(fmt::format("{} is off", variable));
  std::unique_ptr<const Library> library;
  for (const std::string& file : library_files(variable, names)) {
    auto one = std::make_unique<Library>("");
    one->open(file);
    const bool usable = one->problem().empty();
    // Of several that cannot be used one that is installed says why.
    if (usable || !library || (library->version().empty() && !one->version().empty()))
      library = std::move(one);
    if (usable) break;
  }
  return library;
}

// The Library that the environment's `variable` names (a file, or its folder; "off": none), else
// the first of these names that the system or the toolkit has and that can be used. Looked for
// once, with no lock held: who asks meanwhile looks, too, and all get the same. Library has a
// constructor from a problem, and open(file), which leaves problem() empty if it can be used.
template <class Library>
const Library& library_of(const char* variable, std::span<const char* const> names) {
  struct Known {
    ForkSafeLock lock;
    std::map<std::string, std::unique_ptr<const Library>> libraries;
  };
  static Known& known = *new Known;
  const char* named = std::getenv(variable);
  const std::string name = named ? named : "";
  {
    const std::lock_guard guard(known.lock);
    if (const auto at = known.libraries.find(name); at != known.libraries.end()) return *at->second;
  }
  std::unique_ptr<const Library> found = look_for_library<Library>(variable, named, names);
  const std::lock_guard guard(known.lock);
  return *known.libraries.try_emplace(name, std::move(found)).first->second;
}

// The library's Context on a device, made where nobody holds one. Error(kUnsupported) in a process
// that has lost a GPU: whether a library works after its context was taken from it has not been
// seen on any.
template <class Context, class Library>
std::shared_ptr<const Context> shared_context(const Library& library, CudaDevice& device) {
  struct Made {
    ForkSafeLock lock;
    std::map<std::pair<const Library*, CudaDevice*>, std::weak_ptr<const Context>> contexts;
  };
  static Made& made = *new Made;
  if (has_lost_gpu())
    throw Error(Status::kUnsupported, library.version(),
                "this process has lost a GPU, and with it what the library had there",
                "start the process anew to have the library's routines again");
  const std::pair key(&library, &device);
  {
    const std::lock_guard guard(made.lock);
    if (std::shared_ptr<const Context> context = made.contexts[key].lock()) return context;
  }
  // A library takes its time for it, and forks wait for who holds the lock.
  std::shared_ptr<const Context> context = std::make_shared<const Context>(library, device);
  const std::lock_guard guard(made.lock);
  std::weak_ptr<const Context>& known = made.contexts[key];
  if (std::shared_ptr<const Context> other = known.lock()) return other;  // ours goes without it
  known = context;
  return context;
}

}  // namespace nimble::rt
