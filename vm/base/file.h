// Files in whole: read, map, write atomically. Every failure is one Error(kIo or kNotFound) that
// names the path and what the system said.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nimble {

std::vector<uint8_t> read_file(const std::string& path);
std::string read_text_file(const std::string& path);

// A file mapped read-only, alive as long as the object. The mapping is private, but truncating
// the file while it is mapped kills its readers (SIGBUS), as with any mapping: replace files by
// rename, as write_file_atomically does.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// A file's bytes in memory of our own, at the start of a page: what happens to the file later does
// not reach them. Error(kExhausted) with this remedy if there are more than `limit`, or no memory.
struct FileCopy {
  std::shared_ptr<const void> owner;
  std::span<const uint8_t> bytes;
};
FileCopy copy_file(const std::string& path, uint64_t limit, const std::string& remedy);
// The same of bytes in memory; `place` is for messages.
FileCopy copy_bytes(std::span<const uint8_t> bytes, uint64_t limit, const std::string& place,
                    const std::string& remedy);

// Whether both are there and are one file, by whatever path or link.
bool is_same_file(const std::string& a, const std::string& b);

// Writes the parts, in order, to a temporary file in the folder of `path`, syncs it, renames it
// over `path` and syncs the folder. After a failure at any point, a crash included, `path` holds
// either the old contents or the new ones, whole. A symbolic link is followed.
void write_file_atomically(const std::string& path,
                           std::span<const std::span<const uint8_t>> parts);
void write_file_atomically(const std::string& path, std::span<const uint8_t> bytes);
void write_file_atomically(const std::string& path, std::string_view text);

// Fails as write_file_atomically would where `path` cannot be written at all: for whoever has long
// work to do before there is something to write. What is there stays as it is, and nothing is left
// beside it.
void require_writable(const std::string& path);

}  // namespace nimble
