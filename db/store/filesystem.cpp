#include "db/store/filesystem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "db/store/place.h"
#include "vm/base/error.h"

namespace nimble::db {

const char* network_filesystem_name(uint64_t statfs_type) {
  // The magic numbers of statfs(2); the kernel sign-extends some, so only 32 bits count.
  switch (static_cast<uint32_t>(statfs_type)) {
    case 0x00006969:
      return "NFS";
    case 0x0000517B:
      return "SMB";
    case 0xFF534D42:
      return "CIFS";
    case 0xFE534D42:
      return "SMB2";
    case 0x00C36400:
      return "Ceph";
    case 0x0BD00BD0:
      return "Lustre";
    case 0x47504653:
      return "GPFS";
    case 0x5346414F:
      return "AFS";
    case 0x6B414653:
      return "kAFS";
    case 0x73757245:
      return "Coda";
    case 0x01021997:
      return "9P";
    case 0x19830326:
      return "BeeGFS";
    case 0x20030528:
      return "OrangeFS";
    case 0x01161970:
      return "GFS2";
    case 0x7461636F:
      return "OCFS2";
    default:
      return nullptr;
  }
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void check_database_place(const std::string& path, bool create, bool read_only) {
  require_place(path);
  if (path.empty())
    throw Error(Status::kInvalidArgument, "database", "no file is named", "give --db FILE");
  const std::string folder = folder_of(path);
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      throw Error(Status::kNotFound, path, fmt::format("the folder '{}' does not exist", folder),
                  fmt::format("create it: mkdir -p '{}'", folder));
    throw Error(Status::kIo, path, std::strerror(errno), "check the permissions of its folder");
  }
  if (!S_ISDIR(info.st_mode))
    throw Error(Status::kNotFound, path, fmt::format("'{}' is not a folder", folder),
                "name a file in an existing folder");

  const bool exists = stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT)
    throw Error(Status::kIo, path, std::strerror(errno), "check the name and its permissions");
  if (exists && S_ISDIR(info.st_mode))
    throw Error(Status::kInvalidArgument, path, "is a folder", "name a file in it");
  if (exists && !S_ISREG(info.st_mode))
    throw Error(Status::kInvalidArgument, path, "is not a regular file", "name a file on a disk");
  if (!exists && (read_only || !create))
    throw Error(Status::kNotFound, path, "there is no such database",
                "check the name, or make one with nimble tune");
  if (exists && access(path.c_str(), R_OK) != 0)
    throw Error(Status::kIo, path, "may not be read", "check the permissions of the file");

  struct statfs fs;
  if (statfs(folder.c_str(), &fs) == 0)
    if (const char* name = network_filesystem_name(static_cast<uint64_t>(fs.f_type)))
      throw Error(Status::kUnsupported, path,
                  fmt::format("lies on a network file system ({}), where locks are not safe", name),
                  "keep it on a local disk and merge with nimble db export and import");

  if (read_only) return;
  if (exists && access(path.c_str(), W_OK) != 0)
    throw Error(Status::kIo, path, "is read-only", "make it writable, or copy it elsewhere");
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    throw Error(
        Status::kIo, path,
        fmt::format("the folder '{}' is read-only, and the database keeps a log beside it", folder),
        "make the folder writable, or put the database elsewhere");
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat x, y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

void check_export_place(const std::string& file, const std::string& database, bool overwrite) {
  require_place(file);
  struct stat info;
  const std::string folder = folder_of(file);
  if (stat(folder.c_str(), &info) != 0)
    throw Error(Status::kNotFound, file, fmt::format("the folder '{}' does not exist", folder),
                fmt::format("create it: mkdir -p '{}'", folder));
  if (stat(file.c_str(), &info) != 0) return;
  if (!database.empty() && same_file(file, database))
    throw Error(Status::kInvalidArgument, file, "is the database itself", "name another file");
  if (!overwrite || !S_ISREG(info.st_mode))
    throw Error(Status::kInvalidArgument, file, "exists already",
                "name another file, or give --force to replace a file");
}

PrivateFolder::PrivateFolder() {
  std::error_code error;
  path_ = std::filesystem::temp_directory_path(error).string() + "/nimble-XXXXXX";
  if (!error && mkdtemp(path_.data()) == nullptr)
    error = std::error_code(errno, std::generic_category());
  if (error)
    throw Error(Status::kIo, path_, fmt::format("cannot be made ({})", error.message()),
                "set TMPDIR to a folder that you may write to");
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

TemporaryFile::TemporaryFile(const std::string& target)
    : path_(fmt::format("{}.tmp-{}", target, getpid())),
      beside_{path_ + "-wal", path_ + "-shm", path_ + "-journal"} {}

TemporaryFile::~TemporaryFile() {
  unlink(path_.c_str());  // nothing is there once it has its name
  for (const std::string& file : beside_) unlink(file.c_str());
}

void TemporaryFile::rename_to(const std::string& target) const {
  sync_to_disk(path_);
  if (std::rename(path_.c_str(), target.c_str()) != 0)
    throw Error(Status::kIo, target, std::strerror(errno), "check the permissions of the folder");
  sync_to_disk(folder_of(target));
}

void sync_to_disk(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!ok) throw Error(Status::kIo, path, std::strerror(error), "check the disk");
}

}  // namespace nimble::db
