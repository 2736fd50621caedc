// What must hold of the place where a database lies, before SQLite touches it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace nimble::db {

// The name of the network file system with this statfs() magic number ("NFS"), or nullptr for a
// local one. The write-ahead log needs shared memory and working locks, which these lack.
const char* network_filesystem_name(uint64_t statfs_type);

// Throws the Error that tells best why no database can be opened at `path`; returns otherwise.
void check_database_place(const std::string& path, bool create, bool read_only);

// The folder that holds `path`; "." if it names none.
std::string folder_of(const std::string& path);

// Whether both name one file that exists.
bool same_file(const std::string& a, const std::string& b);

// Throws unless an export may be written to `file`: its folder must exist; a file that is there is
// replaced only if `overwrite`, and never if it is `database`.
void check_export_place(const std::string& file, const std::string& database, bool overwrite);

// A folder that nobody else may look into, in the system's folder for temporary files; gone with
// what is in it at the end of the scope.
class PrivateFolder {
 public:
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A file in the making, beside what it shall become; gone at the end of the scope unless renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }
  // Durable when it returns: the file and its folder are synced.
  void rename_to(const std::string& target) const;

 private:
  std::string path_;
  // What stands beside a database while it is open; named beforehand, since nothing may fail at the
  // end of the scope.
  std::array<std::string, 3> beside_;
};

// Flushes a file or folder to the disk; throws Error(kIo).
void sync_to_disk(const std::string& path);

}  // namespace nimble::db
