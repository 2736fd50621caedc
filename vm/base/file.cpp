#include "vm/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "vm/base/error.h"
#include "vm/base/file_descriptor.h"

namespace nimble {
namespace {

const char* remedy_of(int code) {
  switch (code) {
    case ENOENT:
      return "check the path";
    case EACCES:
    case EPERM:
      return "check the permissions";
    case EROFS:
      return "choose a place on a writable file system";
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another disk";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f)";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files";
    case EISDIR:
      return "name a file, not a folder";
    case ENOTDIR:
      return "a part of the path is a file; name a folder there";
    default:
      return "";
  }
}

[[noreturn]] void fail(const std::string& path, std::string_view action, int code) {
  throw Error(code == ENOENT ? Status::kNotFound : Status::kIo, path,
              fmt::format("cannot {}: {}", action, std::strerror(code)), remedy_of(code));
}

// Opens a regular file for reading and tells its size.
int open_regular(const std::string& path, size_t* size) {
  // Without waiting: a FIFO would keep us until somebody writes to it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path, "open", errno);
  struct stat info;
  const int code = ::fstat(fd, &info) == 0 ? (S_ISDIR(info.st_mode) ? EISDIR : 0) : errno;
  if (code == 0 && S_ISREG(info.st_mode)) {
    *size = static_cast<size_t>(info.st_size);
    return fd;
  }
  ::close(fd);
  if (code) fail(path, "open", code);
  throw Error(Status::kIo, path, "is not a regular file", "name a file");
}

// Reads up to `size` bytes, fewer if the file has become shorter; how many.
size_t read_all(int fd, void* to, size_t size, const std::string& path) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, static_cast<char*>(to) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "read", errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

template <typename Container>
Container read_whole(const std::string& path) {
  size_t size = 0;
  FileDescriptor fd(open_regular(path, &size));
  Container out;
  out.resize(size);
  out.resize(read_all(fd.get(), out.data(), size, path));
  return out;
}

constexpr std::align_val_t kPage{4096};

// Memory of `size` bytes that `owner` frees.
uint8_t* own_memory(uint64_t size, uint64_t limit, const std::string& place,
                    const std::string& remedy, std::shared_ptr<const void>* owner) {
  if (size > limit)
    throw Error(Status::kExhausted, place, fmt::format("has {} bytes, {} may be read", size, limit),
                remedy);
  void* memory = ::operator new(std::max<size_t>(size, 1), kPage, std::nothrow);
  if (!memory)
    throw Error(Status::kExhausted, place, fmt::format("no memory for its {} bytes", size),
                "free some memory");
  *owner = std::shared_ptr<const void>(memory, [](void* p) { ::operator delete(p, kPage); });
  return static_cast<uint8_t*>(memory);
}

int write_all(int fd, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    // Linux writes at most 2 GiB a call.
    const ssize_t n = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return 0;
}

std::string resolved(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
  char buffer[PATH_MAX];
  return ::realpath(path.c_str(), buffer) ? std::string(buffer) : path;
}

// A temporary file beside the one that `path` names, links followed, for what takes its place when
// it is whole. It goes with this object if it has not.
class Draft {
 public:
  explicit Draft(const std::string& path) : target_(resolved(path)) {
    struct stat info;
    if (::stat(target_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      if (S_ISDIR(info.st_mode)) fail(path, "write", EISDIR);
      throw Error(Status::kIo, path, "cannot write: is not a regular file", "name a file");
    }
    const size_t slash = target_.rfind('/');
    const bool here = slash == std::string::npos;
    folder_ = here ? "." : target_.substr(0, slash + 1);
    const std::string base = here ? target_ : target_.substr(slash + 1);
    static std::atomic<unsigned> serial{0};
    int raw = -1;
    for (int attempt = 0; attempt < 100 && raw < 0; ++attempt) {
      name_ = fmt::format("{}.{}.{}-{}.tmp", here ? "" : folder_, base, ::getpid(), serial++);
      raw = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (raw < 0 && errno != EEXIST) break;
    }
    if (raw < 0) fail(path, "write", errno);
    fd_.emplace(raw);
  }
  ~Draft() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  int get() const { return fd_->get(); }
  int close() { return fd_->close(); }  // errno or 0
  // errno or 0.
  int take_place() {
    if (::rename(name_.c_str(), target_.c_str()) != 0) return errno;
    name_.clear();
    return 0;
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string target_, folder_, name_;
  std::optional<FileDescriptor> fd_;
};

}  // namespace

std::vector<uint8_t> read_file(const std::string& path) {
  return read_whole<std::vector<uint8_t>>(path);
}
std::string read_text_file(const std::string& path) {
  return read_whole<std::string>(path);
}

FileCopy copy_file(const std::string& path, uint64_t limit, const std::string& remedy) {
  size_t size = 0;
  FileDescriptor fd(open_regular(path, &size));
  FileCopy out;
  uint8_t* memory = own_memory(size, limit, path, remedy, &out.owner);
  out.bytes = {memory, read_all(fd.get(), memory, size, path)};
  return out;
}

FileCopy copy_bytes(std::span<const uint8_t> bytes, uint64_t limit, const std::string& place,
                    const std::string& remedy) {
  FileCopy out;
  uint8_t* memory = own_memory(bytes.size(), limit, place, remedy, &out.owner);
  std::copy(bytes.begin(), bytes.end(), memory);
  out.bytes = {memory, bytes.size()};
  return out;
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  size_t size = 0;
  FileDescriptor fd(open_regular(path, &size));
  const std::shared_ptr<MappedFile> file(new MappedFile);  // first: a mapping must have an owner
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) fail(path, "map", errno);
  file->data_ = static_cast<const uint8_t*>(data);
  file->size_ = size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat of_a, of_b;
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

void write_file_atomically(const std::string& path,
                           std::span<const std::span<const uint8_t>> parts) {
  Draft draft(path);
  int code = 0;
  for (const std::span<const uint8_t>& part : parts)
    if (code == 0) code = write_all(draft.get(), part);
  if (code == 0 && ::fsync(draft.get()) != 0) code = errno;
  if (const int closed = draft.close(); code == 0) code = closed;
  if (code == 0) code = draft.take_place();
  if (code != 0) fail(path, "write", code);
  // The new contents are in place; syncing the folder makes the rename itself durable. Some file
  // systems refuse to sync a folder (EINVAL), which is no failure of ours.
  FileDescriptor dir(::open(draft.folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.get() >= 0 && ::fsync(dir.get()) != 0 && errno != EINVAL)
    fail(path, "sync the folder of the file", errno);
}

void require_writable(const std::string& path) {
  const Draft draft(path);
}

void write_file_atomically(const std::string& path, std::span<const uint8_t> bytes) {
  const std::span<const uint8_t> parts[] = {bytes};
  write_file_atomically(path, parts);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  write_file_atomically(path,
                        std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

}  // namespace nimble
