#include "vm/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace nimble {
namespace {
std::string one_line(const std::string& place, const std::string& problem,
                     const std::string& remedy) {
  std::string text = place.empty() ? problem : place + ": " + problem;
  if (!remedy.empty()) text += "; " + remedy;
  return text;
}
}  // namespace

std::string_view name_of(Status s) {
  switch (s) {
    case Status::kOk:
      return "ok";
    case Status::kInvalidArgument:
      return "invalid argument";
    case Status::kNotFound:
      return "not found";
    case Status::kCorrupt:
      return "corrupt data";
    case Status::kIncompatible:
      return "incompatible";
    case Status::kUnsupported:
      return "unsupported";
    case Status::kExhausted:
      return "limit reached";
    case Status::kCancelled:
      return "cancelled";
    case Status::kIo:
      return "input/output error";
    case Status::kFatal:
      return "fatal";
    case Status::kInternal:
      return "internal error";
  }
  return "unknown status";
}

Error::Error(Status status, std::string place, std::string problem, std::string remedy)
    : std::runtime_error(one_line(place, problem, remedy)),
      status_(status),
      place_(std::move(place)),
      problem_(std::move(problem)),
      remedy_(std::move(remedy)) {}

void internal_error(const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "nimble: internal error at %s:%d: %.*s\n", file, line,
               static_cast<int>(message.size()), message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace nimble
