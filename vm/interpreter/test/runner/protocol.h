// How a test runs kernels and models on another architecture: the program nimble-test-runner,
// compiled for it and run by an emulator, does it with what comes through a pipe.
//
// Numbers are 64-bit and little-endian; a text or a block is its length and its bytes.
//   runner, once: its CPU's level
//   'L' image, function  -> 0, or 1 and what went wrong; the function is what runs from then on
//   'R' threads, bytes of scratch, symbols (count, each), buffers (count; each the number of an
//       equal one ahead of it, or its own and a block)
//                        -> status, then each buffer's block in order, but for the repeated ones
//   'M' file, threads, fuel
//                        -> 0, or an error; the model is what runs from then on
//   'X' entry, inputs    -> 0 and the outputs, or an error
//
// An error is 1, its status and its three texts. Tensors are their number, and each its type, rank,
// extents and elements, dense.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vm/base/error.h"

namespace nimble::rt::testing {

// One end of a pair of pipes. Error(kIo) when the other is gone.
class Pipe {
 public:
  Pipe(int in, int out) : in_(in), out_(out) {}

  // False at the end of the input.
  bool read_command(char* c) { return ::read(in_, c, 1) == 1; }
  void command(char c) { write(&c, 1); }

  void number(int64_t v) { write(&v, sizeof v); }
  int64_t number() {
    int64_t v;
    read(&v, sizeof v);
    return v;
  }
  void block(std::span<const std::byte> b) {
    number(static_cast<int64_t>(b.size()));
    write(b.data(), b.size());
  }
  void error(const Error& e) {
    number(1);
    number(static_cast<int64_t>(e.status()));
    for (const std::string& t : {e.place(), e.problem(), e.remedy()}) text(t);
  }
  // Throws the error that the other side has instead of a result.
  void expect_result() {
    if (number() == 0) return;
    const auto status = static_cast<Status>(number());
    const std::string place = text(), problem = text();
    throw Error(status, place, problem, text());
  }
  void text(const std::string& t) { block(std::as_bytes(std::span(t))); }
  std::string text() {
    std::string t(static_cast<size_t>(number()), '\0');
    read(t.data(), t.size());
    return t;
  }
  void read(void* to, size_t bytes) {
    for (auto* at = static_cast<char*>(to); bytes > 0;) {
      const ssize_t n = ::read(in_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail();
      at += n;
      bytes -= static_cast<size_t>(n);
    }
  }
  void write(const void* from, size_t bytes) {
    for (auto* at = static_cast<const char*>(from); bytes > 0;) {
      const ssize_t n = ::write(out_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail();
      at += n;
      bytes -= static_cast<size_t>(n);
    }
  }

 private:
  [[noreturn]] static void fail() {
    throw Error(Status::kIo, "test runner", "the other process is gone", "see its message above");
  }
  int in_, out_;
};

}  // namespace nimble::rt::testing
