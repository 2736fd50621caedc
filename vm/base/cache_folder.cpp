#include "vm/base/cache_folder.h"

#include <cstdlib>
#include <filesystem>

#include "vm/base/error.h"

namespace nimble {

std::string cache_folder() {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path base = cache && *cache == '/' ? fs::path(cache)
                        : home && *home == '/' ? fs::path(home) / ".cache"
                                               : fs::temp_directory_path();
  const fs::path folder = base / "nimble";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(Status::kIo, folder.string(), fmt::format("cannot be made ({})", error.message()),
                "make it, or set XDG_CACHE_HOME to a folder that you may write to");
  return folder.string();
}

}  // namespace nimble
