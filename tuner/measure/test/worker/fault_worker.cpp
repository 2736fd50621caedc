// A worker whose library has kernels that go wrong in every way that a candidate can.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tuner/measure/worker.h"
#include "vm/base/error.h"
#include "vm/base/host_state.h"
#include "vm/library/registry.h"

namespace {

using nimble::rt::LibraryCall;

void copy(const LibraryCall& c) {
  const auto& x = c.tensors[0];
  size_t bytes = size_of(x.dtype);
  for (int64_t d : x.shape) bytes *= static_cast<size_t>(d);
  std::memcpy(c.tensors[1].data, x.data, bytes);
}

template <void (*body)(const LibraryCall&)>
void on_first_thread(const LibraryCall& c, int32_t thread, int32_t, nimble_barrier*) {
  if (thread == 0) body(c);
}

// By the signal, also where a sanitizer has a handler for it.
void die() {
  ::signal(SIGSEGV, SIG_DFL);
  ::raise(SIGSEGV);
}
void crash(const LibraryCall&) {
  die();
}
void late_crash(const LibraryCall& c) {
  static std::atomic<int> calls{0};
  if (++calls > 4) die();
  copy(c);
}
// Does not bear that its input lies where it lay in the run before, by whichever entry: the second
// of two entries that are checked may find it there, nobody else.
void rotated(const LibraryCall& c) {
  static std::atomic<const void*> last{nullptr};
  static std::atomic<int> repeated{0};
  if (last.exchange(c.tensors[0].data) == c.tensors[0].data && ++repeated > 1) die();
  copy(c);
}
void hang(const LibraryCall&) {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}
void leave(const LibraryCall&) {
  ::_exit(7);
}
void wrong(const LibraryCall& c) {
  copy(c);
  static_cast<float*>(c.tensors[1].data)[0] += 1;
}
void nothing(const LibraryCall&) {}
void pausing(const LibraryCall& c) {
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  copy(c);
}

void slow(const LibraryCall& c) {
  copy(c);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}
void chatty(const LibraryCall& c) {
  static std::atomic<int> once{0};
  if (once++ == 0) std::puts("this must not land among the messages");
  std::fflush(stdout);
  copy(c);
}
void failing(const LibraryCall&) {
  throw nimble::Error(nimble::Status::kFatal, "", "this kernel refuses");
}

// As the kernel's killer for memory does it.
void killed(const LibraryCall&) {
  ::raise(SIGKILL);
}
// Stands still once, for somebody to decide what becomes of it.
void stopping(const LibraryCall& c) {
  static std::atomic<int> once{0};
  if (once++ == 0) ::raise(SIGSTOP);
  copy(c);
}

// What a candidate finds: its environment and its open descriptors.
void environment(const LibraryCall&) {
  std::string found = "|";
  for (char** v = environ; *v; ++v) found += std::string(*v) + "|";
  found += "descriptors=";
  for (int fd = 0, n = 0; fd < 1024; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) found += fmt::format("{}{}", n++ > 0 ? " " : "", fd);
  throw nimble::Error(nimble::Status::kFatal, "", found);
}

// What it can reach: the error of each attempt, or 0.
void reach(const LibraryCall&) {
  std::string found = "|";
  const auto tell = [&](const std::string& what, bool worked) {
    const char* error = worked ? "0" : ::strerrorname_np(errno);
    found += what + "=" + (error ? error : "?") + "|";
  };
  const auto opens = [&](const std::string& what, const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
    tell(what, fd >= 0);
    if (fd >= 0) ::close(fd);
  };
  opens("/etc/passwd", "/etc/passwd", O_RDONLY);
  opens("environment of the parent", fmt::format("/proc/{}/environ", ::getppid()), O_RDONLY);
  opens("write", fmt::format("/tmp/nimble-reach-{}", ::getpid()), O_WRONLY | O_CREAT | O_EXCL);
  opens("library", "/usr/lib", O_RDONLY | O_DIRECTORY);
  tell("socket", ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
  tell("signal to the parent", ::kill(::getppid(), 0) == 0);
  char* const words[] = {nullptr};
  tell("execve", ::execve("/bin/true", words, words) == 0);
  found += fmt::format("CPUs={}|", nimble::HostWatch().read().affinity);
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  found += fmt::format("core limit={}|no new privileges={}|", core.rlim_cur,
                       ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  throw nimble::Error(nimble::Status::kFatal, "", found);
}

void last_words(const LibraryCall&) {
  std::fputs("assertion failed: i < n\n", stderr);
  die();
}

// What is no text: a database would refuse it.
void odd_words(const LibraryCall&) {
  std::fputs("\xff and \xe2\x82", stderr);
  die();
}

template <void (*body)(const LibraryCall&)>
void add(const char* name) {
  nimble::rt::LibraryKernel k;
  k.name = name;
  k.kind = nimble::exec::ImplementationKind::kHost;
  k.check = [](const nimble::exec::KernelContract&) { return std::string(); };
  k.run = on_first_thread<body>;
  nimble::rt::add_library_kernel(std::move(k));
}

}  // namespace

int main(int argc, char** argv) {
  nimble::tuner::WorkerOptions options;
  CLI::App app;
  bool serve = false;
  app.add_flag("--serve", serve);
  app.add_option("--parent", options.parent);
  app.add_option("--progress-fd", options.progress);
  app.add_option("--memory-limit", options.memory_limit);
  app.add_option("--cpus", options.cpus);
  CLI11_PARSE(app, argc, argv);
  add<copy>("test.copy");
  add<crash>("test.crash");
  add<late_crash>("test.late_crash");
  add<rotated>("test.rotated");
  add<hang>("test.hang");
  add<leave>("test.exit");
  add<wrong>("test.wrong");
  add<nothing>("test.nothing");
  add<slow>("test.slow");
  add<pausing>("test.pausing");
  add<chatty>("test.chatty");
  add<failing>("test.failing");
  add<killed>("test.killed");
  add<stopping>("test.stopping");
  add<environment>("test.environment");
  add<reach>("test.reach");
  add<last_words>("test.last_words");
  add<odd_words>("test.odd_words");
  options.out = ::dup(1);
  ::dup2(2, 1);
  return nimble::tuner::serve(options);
}
