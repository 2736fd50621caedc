#include "tuner/trust/private_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "vm/base/error.h"
#include "vm/base/file_descriptor.h"

namespace nimble::trust {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error(Status::kIo, path, fmt::format("cannot {} ({})", what, std::strerror(errno)),
              "check the permissions of the folder");
}

void check_rights(const std::string& path, const struct stat& info, Privacy privacy) {
  const bool of_user = info.st_uid == ::geteuid();
  const bool owned = of_user || (privacy == Privacy::kUnwritten && info.st_uid == 0);
  if (!owned)
    throw Error(Status::kInvalidArgument, path, "belongs to another user", "use files of your own");
  const mode_t forbidden = privacy == Privacy::kUnread ? 0077 : 0022;
  if ((info.st_mode & forbidden) == 0) return;
  throw Error(Status::kInvalidArgument, path,
              fmt::format("others may {} it (mode {:04o})",
                          privacy == Privacy::kUnread ? "read or write" : "write to",
                          info.st_mode & 07777u),
              privacy == Privacy::kUnread
                  ? "if nobody has: chmod 600; else revoke the key and make another"
                  : "look what it says, then: chmod go-w");
}

void write_all(int fd, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path, "be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

std::optional<SecretBytes> read_private(const std::string& path, Privacy privacy, size_t limit) {
  // Without O_NONBLOCK a pipe in its place would be waited for.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0) {
    if (errno == ENOENT) return std::nullopt;
    if (errno == ELOOP)
      throw Error(Status::kInvalidArgument, path, "is a symbolic link",
                  "put the file itself there");
    fail(path, "be read");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail(path, "be read");
  if (!S_ISREG(info.st_mode))
    throw Error(Status::kInvalidArgument, path, "is not a file", "move it away");
  check_rights(path, info, privacy);
  if (static_cast<size_t>(info.st_size) > limit)
    throw Error(Status::kCorrupt, path,
                fmt::format("has {} bytes, more than the {} possible", info.st_size, limit),
                "restore a copy");
  SecretBytes out(static_cast<size_t>(info.st_size));
  for (size_t at = 0; at < out.bytes().size();) {
    const ssize_t n = ::read(fd.get(), out.bytes().data() + at, out.bytes().size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "be read");
    if (n == 0)
      throw Error(Status::kCorrupt, path, "became shorter while it was read", "try again");
    at += static_cast<size_t>(n);
  }
  return out;
}

void check_private_folder(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) {
    if (errno == ENOENT) return;
    fail(folder, "be looked at");
  }
  if (!S_ISDIR(info.st_mode))
    throw Error(Status::kInvalidArgument, folder, "is not a folder", "move it away");
  check_rights(folder, info, Privacy::kUnwritten);
}

void make_private_folder(const std::string& folder) {
  const std::filesystem::path path(folder);
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (!error && ::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    error = std::error_code(errno, std::generic_category());
  if (error)
    throw Error(Status::kIo, folder, fmt::format("cannot be made ({})", error.message()),
                "make it, or set NIMBLE_KEYS to a folder that you may write to");
}

void write_private(const std::string& path, std::span<const uint8_t> bytes, mode_t mode,
                   bool replace) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  ::unlink(temporary.c_str());  // of a process that died
  {
    const FileDescriptor fd(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (fd.get() < 0) fail(path, "be written");
    try {
      write_all(fd.get(), bytes, path);
      if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0) fail(path, "be written");
    } catch (...) {
      ::unlink(temporary.c_str());
      throw;
    }
  }
  // Unlike a rename a link is never over another file.
  const bool named = replace ? ::rename(temporary.c_str(), path.c_str()) == 0
                             : ::link(temporary.c_str(), path.c_str()) == 0;
  const int code = errno;
  if (!replace || !named) ::unlink(temporary.c_str());
  if (!named && !replace && code == EEXIST)
    throw Error(Status::kInvalidArgument, path, "exists already", "choose another name");
  errno = code;
  if (!named) fail(path, "be written");
  const FileDescriptor folder(::open(std::filesystem::path(path).parent_path().c_str(),
                                     O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0 && ::fsync(folder.get()) != 0 && errno != EINVAL) fail(path, "be synced");
}

FolderLock::FolderLock(const std::string& folder)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) fail(folder, "be opened");
  while (::flock(fd_, LOCK_EX) != 0)
    if (errno != EINTR) {
      ::close(fd_);
      fail(folder, "be locked");
    }
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

}  // namespace nimble::trust
