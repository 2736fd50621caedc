#include "vm/base/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "vm/base/error.h"

namespace nimble {

std::string cache_folder() {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::error_code error;
  const fs::path base = cache && *cache == '/' ? fs::path(cache)
                        : home && *home == '/' ? fs::path(home) / ".cache"
                                               : fs::temp_directory_path(error);
  const fs::path folder = base / "nimble";
  if (!error) fs::create_directories(folder, error);
  if (error)
    throw Error(Status::kIo, folder.string(), fmt::format("cannot be made ({})", error.message()),
                "make it, or set XDG_CACHE_HOME to a folder that you may write to");
  return folder.string();
}

bool is_own_file(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         info.st_nlink == 1 && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace nimble
