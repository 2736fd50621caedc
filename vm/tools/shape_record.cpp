#include "vm/tools/shape_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/printable.h"

namespace nimble {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::string& file, const char* what) {
  throw Error(Status::kIo, file, fmt::format("cannot {} it ({})", what, std::strerror(errno)),
              "name a file that you may write to");
}

const Json& entry_of(const Json& shapes, const std::string& entry) {
  const Json& all = shapes.at("entries");
  const auto found = std::ranges::find_if(
      all, [&](const Json& e) { return entry.empty() || e.at("name") == entry; });
  NIMBLE_CHECK(found != all.end(), "the session has no entry point {}", entry);
  return *found;
}

// The symbols of an entry point and "count", as a line.
std::string header_of(const Json& entry) {
  std::string header;
  for (const Json& symbol : entry.at("symbols")) header += symbol.get<std::string>() + "\t";
  return header + "count\n";
}

// That a file which is there is a record of the same dims.
void require_header(const std::string& file, const std::string& header) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) fail(file, "read");
  if (line + "\n" != header)
    throw Error(Status::kInvalidArgument, file,
                fmt::format("it records {}, not {}", printable(line),
                            printable(header.substr(0, header.size() - 1))),
                "name a file for each model and entry point");
}

int open_to_append(const std::string& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) fail(file, "open");
  return fd;
}

// Appears under its name with the header in it, or another process has made it meanwhile.
void make_file(const std::string& file, const std::string& header) {
  const std::string draft = fmt::format("{}.{}.tmp", file, ::getpid());
  try {
    write_file_atomically(draft, header);
  } catch (const Error& e) {  // it is the file that the user named
    throw Error(e.status(), file, e.problem(), e.remedy());
  }
  const bool made = ::link(draft.c_str(), file.c_str()) == 0 || errno == EEXIST;
  const int error = errno;
  ::unlink(draft.c_str());
  errno = error;
  if (!made) fail(file, "make");
}

}  // namespace

void require_named_dims(const api::Model& model, const std::string& entry) {
  for (const api::Port& port : model.inputs(entry))
    for (size_t d = 0; d < port.dims.size(); ++d)
      if (port.extents[d] < 0 && port.dims[d] != "?") return;
  throw Error(Status::kUnsupported, "--record-shapes", "no input of the model has a named dim",
              "leave it out: there is only one shape");
}

void require_recordable(const std::string& file, api::Session& session, const std::string& entry) {
  if (::access(file.c_str(), F_OK) != 0) return require_writable(file);
  ::close(open_to_append(file));
  require_header(file, header_of(entry_of(Json::parse(session.shapes_json()), entry)));
}

void append_shapes(const std::string& file, api::Session& session, const std::string& entry) {
  const Json shapes = Json::parse(session.shapes_json());
  const Json& counted = entry_of(shapes, entry);
  const std::string header = header_of(counted);
  std::string rows;
  for (const Json& shape : counted.at("shapes")) {
    for (const Json& extent : shape.at("extents"))
      rows += (extent < 0 ? "-" : extent.dump()) + "\t";
    rows += shape.at("count").dump() + "\n";
  }
  if (rows.empty()) return;

  if (::access(file.c_str(), F_OK) != 0) make_file(file, header);
  require_header(file, header);
  const int fd = open_to_append(file);
  const ssize_t written = ::write(fd, rows.data(), rows.size());
  const int error = errno;
  ::close(fd);
  errno = written < 0 ? error : ENOSPC;
  if (written != static_cast<ssize_t>(rows.size())) fail(file, "write");
}

}  // namespace nimble
