#include "vm/base/fault/failing_calls.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace nimble {
namespace {

struct Row {
  SystemCall call;
  std::string_view name;
  int code;  // what it fails with
};
constexpr Row kRows[] = {
    {SystemCall::kOpen, "open", EMFILE},
    {SystemCall::kFstat, "fstat", EIO},
    {SystemCall::kRead, "read", EIO},
    {SystemCall::kWrite, "write", ENOSPC},
    {SystemCall::kFsync, "fsync", EIO},
    {SystemCall::kClose, "close", EIO},
    {SystemCall::kRename, "rename", EIO},
    {SystemCall::kMmap, "mmap", ENOMEM},
    {SystemCall::kMprotect, "mprotect", ENOMEM},
    {SystemCall::kMadvise, "madvise", ENOMEM},
    {SystemCall::kCreateThread, "clone", EAGAIN},
};
constexpr size_t kCalls = std::size(kRows);

thread_local SystemCall failing = SystemCall::kOpen;
thread_local uint64_t fail_in = 0;  // calls until one fails; 0: none does
thread_local bool fail_later = false, has_failed = false;

std::atomic<int64_t> files{0}, mapped_bytes{0};

// The code that this call is to fail with, or 0.
int failure(SystemCall call) {
  if (fail_in == 0 || call != failing) return 0;
  if (fail_in > 1) {
    --fail_in;
    return 0;
  }
  if (!fail_later) fail_in = 0;
  has_failed = true;
  return kRows[static_cast<size_t>(call)].code;
}
bool fails(SystemCall call) {
  const int code = failure(call);
  if (code != 0) errno = code;
  return code != 0;
}

}  // namespace

std::span<const SystemCall> all_system_calls() {
  static constexpr auto kAll = [] {
    std::array<SystemCall, kCalls> all{};
    for (size_t i = 0; i < kCalls; ++i) all[i] = kRows[i].call;
    return all;
  }();
  return kAll;
}

std::string_view name_of(SystemCall call) {
  return kRows[static_cast<size_t>(call)].name;
}

FailCall::FailCall(SystemCall call, uint64_t n, bool and_all_later) {
  failing = call;
  fail_in = n;
  fail_later = and_all_later;
  has_failed = false;
}
FailCall::~FailCall() {
  fail_in = 0;
}
bool FailCall::failed() const {
  return has_failed;
}

SystemBalance system_balance() {
  return {files, mapped_bytes};
}

}  // namespace nimble

using nimble::fails;
using nimble::SystemCall;

extern "C" {

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (fails(SystemCall::kOpen)) return -1;
  const int file = __real_open(path, flags, mode);
  if (file >= 0) ++nimble::files;
  return file;
}

int __real_close(int file);
int __wrap_close(int file) {
  const int closed = __real_close(file);
  if (closed == 0) --nimble::files;
  return fails(SystemCall::kClose) ? -1 : closed;
}

int __real_fstat(int file, struct stat* info);
int __wrap_fstat(int file, struct stat* info) {
  return fails(SystemCall::kFstat) ? -1 : __real_fstat(file, info);
}

ssize_t __real_read(int file, void* data, size_t size);
ssize_t __wrap_read(int file, void* data, size_t size) {
  return fails(SystemCall::kRead) ? -1 : __real_read(file, data, size);
}

ssize_t __real_write(int file, const void* data, size_t size);
ssize_t __wrap_write(int file, const void* data, size_t size) {
  return fails(SystemCall::kWrite) ? -1 : __real_write(file, data, size);
}

int __real_fsync(int file);
int __wrap_fsync(int file) {
  return fails(SystemCall::kFsync) ? -1 : __real_fsync(file);
}

int __real_rename(const char* from, const char* to);
int __wrap_rename(const char* from, const char* to) {
  return fails(SystemCall::kRename) ? -1 : __real_rename(from, to);
}

void* __real_mmap(void* at, size_t size, int rights, int flags, int file, off_t offset);
void* __wrap_mmap(void* at, size_t size, int rights, int flags, int file, off_t offset) {
  if (fails(SystemCall::kMmap)) return MAP_FAILED;
  void* memory = __real_mmap(at, size, rights, flags, file, offset);
  if (memory != MAP_FAILED) nimble::mapped_bytes += static_cast<int64_t>(size);
  return memory;
}

int __real_munmap(void* memory, size_t size);
int __wrap_munmap(void* memory, size_t size) {
  const int unmapped = __real_munmap(memory, size);
  if (unmapped == 0) nimble::mapped_bytes -= static_cast<int64_t>(size);
  return unmapped;
}

int __real_mprotect(void* memory, size_t size, int rights);
int __wrap_mprotect(void* memory, size_t size, int rights) {
  return fails(SystemCall::kMprotect) ? -1 : __real_mprotect(memory, size, rights);
}

int __real_madvise(void* memory, size_t size, int advice);
int __wrap_madvise(void* memory, size_t size, int advice) {
  return fails(SystemCall::kMadvise) ? -1 : __real_madvise(memory, size, advice);
}

int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                          void* context);
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                          void* context) {
  const int code = nimble::failure(SystemCall::kCreateThread);
  return code != 0 ? code : __real_pthread_create(thread, attributes, body, context);
}

}  // extern "C"
