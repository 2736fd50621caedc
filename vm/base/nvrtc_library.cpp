#include "vm/base/nvrtc_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace nimble {
namespace {

constexpr const char* kFiles[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr const char* kToolkit = "/usr/local/cuda/lib64/";  // where its installer puts it

std::vector<std::string> files() {
  const char* named = std::getenv("NIMBLE_NVRTC");
  std::vector<std::string> out;
  if (!named || !*named) {
    for (const char* folder : {"", kToolkit})
      for (const char* file : kFiles) out.push_back(std::string(folder) + file);
    return out;
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(named, ignored)) return {named};
  for (const char* file : kFiles) out.push_back(std::string(named) + "/" + file);
  return out;
}

NvrtcLibrary open() {
  NvrtcLibrary out;
  for (const std::string& file : files()) {
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
