#include "vm/library/gpu_library.h"

#include <dlfcn.h>

namespace nimble::rt {

void* GpuLibrary::load(const std::string& file) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = ::dlerror();
    problem_ = why ? why : file + " cannot be opened";
  }
  return handle;
}

}  // namespace nimble::rt
