#include "vm/base/library_files.h"

#include <cstdlib>
#include <filesystem>

namespace nimble {

std::vector<std::string> library_files(const char* variable, std::span<const char* const> names) {
  constexpr const char* kToolkit = "/usr/local/cuda/lib64/";  // where its installer puts it
  const char* named = std::getenv(variable);
  std::vector<std::string> out;
  if (!named || !*named) {
    for (const char* folder : {"", kToolkit})
      for (const char* name : names) out.push_back(std::string(folder) + name);
    return out;
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(named, ignored)) return {named};
  for (const char* name : names) out.push_back(std::string(named) + "/" + name);
  return out;
}

}  // namespace nimble
