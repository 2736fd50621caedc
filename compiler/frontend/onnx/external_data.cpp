#include "compiler/frontend/onnx/external_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <vector>

#include "vm/base/error.h"

namespace nimble::frontend::onnx {
namespace {

constexpr const char* kRemedy = "keep the data in plain files in the model's folder";

[[noreturn]] void refuse(const std::string& place, const std::string& problem) {
  throw Error(Status::kCorrupt, place, problem, kRemedy);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(-1); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

std::vector<std::string> components_of(const std::string& location, const std::string& place) {
  if (location.empty()) refuse(place, "the external data has no location");
  if (location.size() >= PATH_MAX) refuse(place, "the location of the external data is too long");
  if (location[0] == '/')
    refuse(place, fmt::format("the external location '{}' is absolute", location));
  for (char c : location)
    if (c == '\0' || c == '\\' || static_cast<unsigned char>(c) < 0x20)
      refuse(place, "the location of the external data has a forbidden character");
  std::vector<std::string> out;
  for (size_t at = 0; at <= location.size();) {
    const size_t end = std::min(location.find('/', at), location.size());
    std::string part = location.substr(at, end - at);
    at = end + 1;
    if (part == ".." || part == "." || part.empty())
      refuse(place,
             fmt::format("the external location '{}' has the component '{}'", location, part));
    out.push_back(std::move(part));
  }
  return out;
}

uint64_t decimal(const std::string& text, const char* what, const std::string& place) {
  uint64_t value = 0;
  auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || stop != text.data() + text.size() || value > INT64_MAX)
    refuse(place,
           fmt::format("the {} of the external data, '{}', is no number", what, printable(text)));
  return value;
}

ExternalData::Bytes map_file(const std::string& folder, const std::string& location,
                             const std::string& place) {
  const std::vector<std::string> parts = components_of(location, place);
  const std::string path = folder + "/" + location;
  auto system_error = [&](const char* what) {
    const int code = errno;
    if (code == ELOOP || code == ENOTDIR)
      refuse(place, fmt::format("the external file {} lies behind a symbolic link", path));
    throw Error(code == ENOENT ? Status::kNotFound : Status::kIo, place,
                fmt::format("cannot {} the external file {}: {}", what, path, std::strerror(code)),
                "copy all files of the model together");
  };
  Descriptor at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0) system_error("open the folder of");
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    // O_NONBLOCK: a FIFO in place of the file must not hang us.
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (last ? O_NONBLOCK : O_DIRECTORY);
    const int fd = ::openat(at.get(), parts[i].c_str(), flags);
    if (fd < 0) system_error("open");
    at.reset(fd);
  }
  struct stat info;
  if (::fstat(at.get(), &info) != 0) system_error("examine");
  if (!S_ISREG(info.st_mode))
    refuse(place, fmt::format("the external file {} is no regular file", path));
  if (info.st_nlink != 1)
    refuse(place, fmt::format("the external file {} has {} hard links", path, info.st_nlink));
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return {};
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, at.get(), 0);
  if (data == MAP_FAILED) system_error("map");
  return {{static_cast<const uint8_t*>(data), size},
          std::shared_ptr<const void>(
              data, [size](const void* p) { ::munmap(const_cast<void*>(p), size); })};
}

}  // namespace

ExternalData::Bytes ExternalData::read(const TensorData& tensor, size_t size,
                                       const std::string& place) {
  std::string location;
  uint64_t offset = 0, length = size;
  for (const auto& [key, value] : tensor.external) {
    if (key == "location") location = value;
    if (key == "offset") offset = decimal(value, "offset", place);
    if (key == "length") length = decimal(value, "length", place);
  }
  if (length != size)
    refuse(place,
           fmt::format("the external data has {} bytes where the shape needs {}", length, size));
  auto it = files_.find(location);
  if (it == files_.end()) it = files_.emplace(location, map_file(folder_, location, place)).first;
  const Bytes& file = it->second;
  if (offset > file.bytes.size() || size > file.bytes.size() - offset)
    throw Error(Status::kCorrupt, place,
                fmt::format("bytes {} to {} lie outside the external file {} of {} bytes", offset,
                            offset + size, location, file.bytes.size()),
                "the external file is truncated or of another model; copy it again");
  return {file.bytes.subspan(static_cast<size_t>(offset), size), file.owner};
}

}  // namespace nimble::frontend::onnx
