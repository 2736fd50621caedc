#include "vm/base/nvrtc_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "vm/base/library_files.h"

namespace nimble {
namespace {

constexpr const char* kFiles[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

NvrtcLibrary open() {
  NvrtcLibrary out;
  for (const std::string& file : library_files("NIMBLE_NVRTC", kFiles)) {
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      out.why += (out.why.empty() ? "" : "; ") + std::string(::dlerror());
      continue;
    }
    const auto version = reinterpret_cast<int (*)(int*, int*)>(::dlsym(handle, "nvrtcVersion"));
    int major = 0, minor = 0;
    if (!version || version(&major, &minor) != 0) {
      out.why += (out.why.empty() ? "" : "; ") + file + ": it is no NVRTC";
      ::dlclose(handle);
      continue;
    }
    return {handle, fmt::format("{}.{}", major, minor), ""};
  }
  return out;
}

}  // namespace

const NvrtcLibrary& nvrtc_library() {
  static const NvrtcLibrary library = open();
  return library;
}

}  // namespace nimble
