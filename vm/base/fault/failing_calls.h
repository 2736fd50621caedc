// System calls of nimble's own that a test can make fail, and the balance of what they gave.
//
// The linker's --wrap leads every reference from the test program's objects and static libraries
// here, and no other: the C library's own calls and those of the sanitizers stay what they are. (A
// shim in LD_PRELOAD would see these, too, would have to get along with the sanitizers' own
// interceptors, and would need a process for each fault.) As with FailNew, the calls of the thread
// that asked for failure fail, others' do not.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace nimble {

enum class SystemCall {
  kOpen,
  kFstat,
  kRead,
  kWrite,
  kFsync,
  kClose,  // closes and fails, as Linux does
  kRename,
  kMmap,
  kMprotect,
  kMadvise,
  kCreateThread,  // clone, at the C library's door
};
std::span<const SystemCall> all_system_calls();
std::string_view name_of(SystemCall call);

// While it lives, the n-th such call on this thread (1: the next) fails as it does at a limit of
// the system, and so does every later one if `and_all_later`.
class FailCall {
 public:
  FailCall(SystemCall call, uint64_t n, bool and_all_later = false);
  ~FailCall();
  FailCall(const FailCall&) = delete;
  FailCall& operator=(const FailCall&) = delete;
  // Whether the n-th call came.
  bool failed() const;
};

// Files that are open and bytes that are mapped by these calls, of all threads.
struct SystemBalance {
  int64_t files = 0, mapped_bytes = 0;
  bool operator==(const SystemBalance&) const = default;
};
SystemBalance system_balance();

}  // namespace nimble
