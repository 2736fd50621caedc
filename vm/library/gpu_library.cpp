#include "vm/library/gpu_library.h"

#include <dlfcn.h>

namespace nimble::rt {

bool GpuLibrary::load(const std::string& file) {
  file_ = file;
  handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) {
    const char* why = ::dlerror();
    problem_ = why ? why : file + " cannot be opened";
  }
  return handle_ != nullptr;
}

void* GpuLibrary::find(const char* name) {
  void* const found = ::dlsym(handle_, name);
  if (!found) problem_ = fmt::format("{} has no {}", file_, name);
  return found;
}

size_t GpuLibrary::set_version(const char* name, size_t number) {
  const size_t major = number / 10000;
  version_ = fmt::format("{} {}.{}.{}", name, major, number / 100 % 100, number % 100);
  return major;
}

}  // namespace nimble::rt
