// What must hold of the place where a database lies, before SQLite touches it.
#pragma once

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

// Flushes a file or folder to the disk; throws Error(kIo).
void sync_to_disk(const std::string& path);

}  // namespace nimble::db
