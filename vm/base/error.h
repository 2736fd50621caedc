// Two kinds of failure, never mixed:
//  - Error: the user can mend it. It names a place, what is wrong there and a remedy, in one line.
//  - NIMBLE_CHECK: nimble itself is wrong. It prints the condition and aborts.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace nimble {

// The numbers are those of nimble_status in vm/api/nimble.h.
enum class Status : int {
  kOk = 0,
  kInvalidArgument = 1,  // wrong shape, dtype, name, option
  kNotFound = 2,         // a file, input, function or record that does not exist
  kCorrupt = 3,          // damaged or malformed data
  kIncompatible = 4,     // another ISA, a newer format or schema
  kUnsupported = 5,      // a model uses something that nimble lacks
  kExhausted = 6,        // fuel, memory, depth, disk
  kCancelled = 7,
  kIo = 8,
  kFatal = 9,  // the program itself raised Fatal, or a run-time shape check failed
  kInternal = 10,
};
std::string_view name_of(Status s);

class Error : public std::runtime_error {
 public:
  // `place`: file, file:line:column, function@instruction, …; may be empty.
  // `remedy`: what the user can do; may be empty when the problem says it.
  Error(Status status, std::string place, std::string problem, std::string remedy = {});
  Status status() const { return status_; }
  const std::string& place() const { return place_; }
  const std::string& problem() const { return problem_; }
  const std::string& remedy() const { return remedy_; }

 private:
  Status status_;
  std::string place_, problem_, remedy_;
};

// Aborts after printing where and why; for conditions only a bug in nimble can break.
[[noreturn]] void internal_error(const char* file, int line, std::string_view message);

}  // namespace nimble

#define NIMBLE_CHECK(condition, ...)                                                      \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::nimble::internal_error(                                                           \
          __FILE__, __LINE__,                                                             \
          std::string("check failed: " #condition ". ") + ::fmt::format("" __VA_ARGS__)); \
  } while (false)

#define NIMBLE_UNREACHABLE(...) \
  ::nimble::internal_error(__FILE__, __LINE__, ::fmt::format("unreachable. " __VA_ARGS__))
