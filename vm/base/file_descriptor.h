// A file descriptor that is closed when its owner ends; a negative one is none.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace nimble {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(-1); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  // Closes it, and owns another one.
  void reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  // Closes now and returns errno or 0: a network file system may report a full disk only here.
  int close() {
    const int code = ::close(fd_) == 0 ? 0 : errno;
    fd_ = -1;
    return code;
  }

 private:
  int fd_;
};

}  // namespace nimble
