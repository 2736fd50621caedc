#include "compiler/frontend/onnx/external_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <set>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/file_descriptor.h"

namespace nimble::frontend::onnx {
namespace {

constexpr size_t kMostComponents = 16;  // of a location
constexpr size_t kMostFiles = 1024;     // of a model
// A sparse file of any size costs an attacker nothing. Exporters split weights at 2 to 50 GB.
constexpr off_t kLargestFile = off_t{1} << 38;
constexpr const char* kRemedy = "keep the data in plain files in the model's folder";

[[noreturn]] void refuse(const std::string& place, const std::string& problem) {
  throw Error(Status::kCorrupt, place, problem, kRemedy);
}

std::vector<std::string> components_of(const std::string& location, const std::string& place) {
  if (location.empty()) refuse(place, "the external data has no location");
  if (location.size() >= PATH_MAX) refuse(place, "the location of the external data is too long");
  for (char c : location)
    if (c == '\0' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      refuse(place, "the location of the external data has a forbidden character");
  if (location[0] == '/')
    refuse(place, fmt::format("the external location '{}' is absolute", printable(location)));
  std::vector<std::string> out;
  for (size_t at = 0; at <= location.size();) {
    const size_t end = std::min(location.find('/', at), location.size());
    std::string part = location.substr(at, end - at);
    at = end + 1;
    if (part == ".." || part == "." || part.empty())
      refuse(place, fmt::format("the external location '{}' has the component '{}'",
                                printable(location), part));
    if (out.size() == kMostComponents)
      refuse(place,
             fmt::format("the external location lies more than {} folders deep", kMostComponents));
    out.push_back(std::move(part));
  }
  return out;
}

uint64_t decimal(const std::string& text, const char* what, const std::string& place) {
  uint64_t value = 0;
  auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || stop != text.data() + text.size() || value > INT64_MAX)
    refuse(place, fmt::format("the {} of the external data, '{}', is not a number", what,
                              printable(text)));
  return value;
}

ExternalData::Bytes map_file(const std::string& folder, const std::string& location,
                             const std::string& place) {
  const std::vector<std::string> parts = components_of(location, place);
  const std::string path = folder + "/" + location;
  auto system_error = [&](const char* what) {
    const int code = errno;
    if (code == ENXIO)
      refuse(place, fmt::format("the external file {} is not a regular file", path));
    if (code == ELOOP || code == ENOTDIR)
      refuse(place, fmt::format("the external file {} lies behind a symbolic link", path));
    throw Error(code == ENOENT ? Status::kNotFound : Status::kIo, place,
                fmt::format("cannot {} the external file {}: {}", what, path, std::strerror(code)),
                "copy all files of the model together");
  };
  FileDescriptor at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
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
    refuse(place, fmt::format("the external file {} is not a regular file", path));
  if (info.st_nlink != 1)
    refuse(place, fmt::format("the external file {} has {} hard links", path, info.st_nlink));
  if (info.st_size > kLargestFile)
    refuse(place, fmt::format("the external file {} has {} bytes, more than {}", path, info.st_size,
                              kLargestFile));
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
  std::set<std::string> keys;
  for (const auto& [key, value] : tensor.external) {
    if (!keys.insert(key).second)
      refuse(place, fmt::format("the external data gives '{}' twice", printable(key)));
    if (key == "location") location = value;
    if (key == "offset") offset = decimal(value, "offset", place);
    if (key == "length") length = decimal(value, "length", place);
  }
  if (tensor.has_raw) refuse(place, "a tensor has data both inside and outside of the model");
  if (length != size)
    refuse(place,
           fmt::format("the external data has {} bytes where the shape needs {}", length, size));
  auto it = files_.find(location);
  if (it == files_.end() && files_.size() == kMostFiles)
    refuse(place, fmt::format("the model has more than {} external files", kMostFiles));
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
