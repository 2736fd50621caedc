// Files that decide about trust: written so that others cannot read or change them, read only if
// nobody could have.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "tuner/trust/key.h"

namespace nimble::trust {

// Who may have a hand in a file.
enum class Privacy {
  kUnread,     // nobody but its owner, the user, reads or writes it
  kUnwritten,  // nobody but its owner, the user or root, writes it
};

// The file's bytes, of at most `limit`; nothing if there is no file. Symbolic links are not
// followed. Error(kInvalidArgument) for a file of other rights or another owner, (kCorrupt) for one
// that is larger, (kIo) for what the system refuses.
std::optional<SecretBytes> read_private(const std::string& path, Privacy privacy, size_t limit);

// Error(kInvalidArgument) if others than the user and root may write into the folder, or it is no
// folder. One that is not there is in order.
void check_private_folder(const std::string& folder);
// Makes it, with what lies above it, for the user alone.
void make_private_folder(const std::string& folder);

// Writes a whole file by a rename, durable when it returns; `replace`: over one that is there, else
// Error(kInvalidArgument).
void write_private(const std::string& path, std::span<const uint8_t> bytes, mode_t mode,
                   bool replace);

// Held, by one program at a time, as long as the object lives.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace nimble::trust
