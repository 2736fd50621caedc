#include "tuner/measure/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "vm/base/cpu_list.h"
#include "vm/base/error.h"
#include "vm/base/utf8.h"
#include "vm/executable/vendor_routines.h"

namespace nimble::tuner {
namespace {

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void broken(const std::string& problem) {
  throw Error(Status::kInternal, "worker", problem, "run it by hand: nimble worker --help");
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? std::string("SIG") + name : fmt::format("signal {}", number);
}

// Workers that a case may cost where no candidate is to blame.
constexpr int kAttempts = 3;
constexpr size_t kLastWords = 2000;  // in a message
constexpr size_t kMostOutput = 64 << 10;
// What the worker gets of our environment, and nothing else: no password, no token, no setting of
// the shell that would make times differ from one day to the next (OMP_*, GLIBC_TUNABLES). Tried
// with an empty one: oneDNN, OpenMP and the C library need none of it on Debian.
constexpr const char* kPassed[] = {
    "LD_LIBRARY_PATH",   // where libdnnl is, if the system doesn't know
    "NIMBLE_CPU_LEVEL",  // which machine's code is to be run
    // Which driver and GPU there is to measure on, and how it is started.
    "NIMBLE_CUDA_DRIVER",
    "NIMBLE_CUDA_DEVICE",
    "NIMBLE_CUDA_GRAPHS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    // Options of the sanitizers that the worker may be built with.
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
};
constexpr int kPipeBytes = 1 << 20;
// For a worker to open a GPU: its driver takes seconds, on machines of many GPUs many.
constexpr int64_t kGpuStartMs = 120'000;
// For what a GPU's driver and libraries do before a candidate runs: to compile assembly at load, to
// open a library of hundreds of MiB, to find what serves a convolution. Each takes seconds.
constexpr int64_t kGpuReadyMs = 120'000;
// A worker looks at a case's limit between two runs. One that is this much later is in a long one.
constexpr int64_t kGraceMs = 300;

std::vector<std::string> worker_environment() {
  std::vector<std::string> names(std::begin(kPassed), std::end(kPassed));
  // And which libraries may compute there.
  for (std::string& name : exec::gpu_library_variables()) names.push_back(std::move(name));
  std::vector<std::string> out;
  for (const std::string& name : names)
    if (const char* value = std::getenv(name.c_str()))
      out.push_back(fmt::format("{}={}", name, value));
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& t : texts) out.push_back(t.data());
  out.push_back(nullptr);
  return out;
}

// Descriptors of the worker: its pipes, what it says, the shared page. All others are closed.
constexpr int kPage = 3, kFirstClosed = 4;

// The same open file under a number that none of the worker's is.
int out_of_the_way(int fd) {
  if (fd < 0 || fd >= kFirstClosed) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstClosed);
  ::close(fd);
  return moved;
}

std::string text_of_failure(const Frame& f) {
  ByteReader r(f.payload, "worker protocol");
  return valid_utf8(r.text());
}

}  // namespace

std::string worker_program() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, n > 0 ? static_cast<size_t>(n) : 0);
  return whole.substr(0, whole.rfind('/') + 1) + "nimble-worker";
}

Runner::Runner(RunnerOptions options)
    : options_(std::move(options)), patience_ms_(options_.hang_ms) {
  ::signal(SIGPIPE, SIG_IGN);  // a worker that dies while we write is noticed by its pipe
  page_fd_ = out_of_the_way(::memfd_create("nimble-progress", MFD_CLOEXEC));
  if (page_fd_ < 0 || ::ftruncate(page_fd_, sizeof(Progress)) != 0)
    broken(fmt::format("cannot make a shared page: {}", std::strerror(errno)));
  void* page = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, page_fd_, 0);
  if (page == MAP_FAILED) broken(fmt::format("cannot map a shared page: {}", std::strerror(errno)));
  progress_ = new (page) Progress;
}

void Runner::stop() {
  if (pid_ > 0) lose(true);
}

Runner::~Runner() {
  stop();
  if (progress_) ::munmap(progress_, sizeof(Progress));
  if (page_fd_ >= 0) ::close(page_fd_);
  if (stderr_fd_ >= 0) ::close(stderr_fd_);
}

std::string Runner::last_words(size_t most) const {
  const off_t size = stderr_fd_ >= 0 ? ::lseek(stderr_fd_, 0, SEEK_END) : 0;
  if (size <= 0) return "";
  std::string text(std::min(most, static_cast<size_t>(size)), '\0');
  const ssize_t n =
      ::pread(stderr_fd_, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return valid_utf8(text);
}

void Runner::start() {
  int down[2], up[2];
  if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0)
    broken(fmt::format("cannot make pipes: {}", std::strerror(errno)));
  for (int* fd : {&down[0], &down[1], &up[0], &up[1]}) *fd = out_of_the_way(*fd);
  if (stderr_fd_ >= 0) ::close(stderr_fd_);
  stderr_fd_ = out_of_the_way(::memfd_create("nimble-worker-stderr", MFD_CLOEXEC));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, down[0], 0);
  ::posix_spawn_file_actions_adddup2(&actions, up[1], 1);
  if (stderr_fd_ >= 0)
    ::posix_spawn_file_actions_adddup2(&actions, stderr_fd_, 2);
  else
    ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, page_fd_, kPage);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kFirstClosed);
  std::vector<std::string> arguments = {options_.program, "--serve",
                                        fmt::format("--parent={}", ::getpid()),
                                        fmt::format("--progress-fd={}", kPage),
                                        fmt::format("--memory-limit={}", options_.memory_limit)};
  if (!options_.cpus.empty()) arguments.push_back("--cpus=" + cpu_list_text(options_.cpus));
  if (options_.gpu) arguments.push_back("--gpu");
  std::vector<std::string> environment = worker_environment();
  const std::vector<char*> words = pointers(arguments), variables = pointers(environment);
  int failed = 0;
  parent_.run([&] {
    failed = ::posix_spawn(&pid_, options_.program.c_str(), &actions, nullptr, words.data(),
                           variables.data());
  });
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(down[0]);
  ::close(up[1]);
  to_ = down[1];
  from_ = up[0];
  // Results of megabytes pass in few pieces; where it is refused, in more.
  for (int fd : {to_, from_}) ::fcntl(fd, F_SETPIPE_SZ, kPipeBytes);
  if (failed != 0) {
    pid_ = 0;
    ::close(to_);
    ::close(from_);
    to_ = from_ = -1;
    throw Error(Status::kNotFound, options_.program,
                fmt::format("cannot start the worker: {}", std::strerror(failed)),
                "build or install nimble-worker beside nimble-tune");
  }
  ++started_;
  for (auto& [id, k] : kept_) k.loaded = false;
  Frame hello;
  Lost lost;
  if (options_.gpu) patience_ms_ = std::max(options_.hang_ms, kGpuStartMs);
  const bool answers = receive(&hello, &lost);
  patience_ms_ = options_.hang_ms;
  if (!answers || hello.type != MessageType::kHello)
    broken(fmt::format("{} does not answer ({})", options_.program, lost.reason));
}

Runner::Lost Runner::lose(bool hung) {
  Lost lost;
  lost.hung = hung;
  lost.phase = static_cast<Phase>(progress_->phase.load());
  lost.entry = progress_->entry.load();
  if (hung) ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  if (hung)
    lost.reason = fmt::format("no progress for {} ms", patience_in(lost.phase));
  else if (WIFSIGNALED(status))
    lost.reason = signal_name(WTERMSIG(status));
  else
    lost.reason = fmt::format("exit code {}", WEXITSTATUS(status));
  lost.killed = !hung && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  lost.output = last_words(kMostOutput);
  if (!lost.output.empty())
    lost.reason += ": " + valid_utf8(lost.output.substr(lost.output.size() -
                                                        std::min(lost.output.size(), kLastWords)));
  ::close(to_);
  ::close(from_);
  to_ = from_ = -1;
  pid_ = 0;
  progress_->phase = kIdle;
  return lost;
}

int64_t Runner::patience_in(uint32_t phase) const {
  const bool theirs = options_.gpu && (phase == kLoading || phase == kReadying);
  return theirs ? std::max(patience_ms_, kGpuReadyMs) : patience_ms_;
}

bool Runner::ends_by_itself() const {
  for (int wait_ms = 0; wait_ms < 200; ++wait_ms) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid_)
      return true;
    ::usleep(1000);
  }
  return false;
}

bool Runner::receive(Frame* frame, Lost* lost) {
  uint64_t beat = progress_->beat.load();
  int64_t since = now_ms();
  for (;;) {
    if (options_.cancel && options_.cancel->load()) {
      lose(true);
      throw Error(Status::kCancelled, "tuning", "interrupted");
    }
    pollfd p{from_, POLLIN, 0};
    const int ready = ::poll(&p, 1, 100);
    if (ready < 0 && errno != EINTR) broken(fmt::format("poll: {}", std::strerror(errno)));
    if (ready > 0) {
      try {
        if (read_frame(from_, frame)) return true;
        *lost = lose(false);
      } catch (const Error& e) {
        // Who is killed in the middle of a message is no liar.
        if (ends_by_itself()) {
          *lost = lose(false);
          return false;
        }
        *lost = lose(true);
        lost->hung = false;
        lost->reason = e.what();
      }
      return false;
    }
    const int64_t patience = patience_in(progress_->phase.load());  // before the beat: Bench::at()
    if (const uint64_t now = progress_->beat.load(); now != beat) {
      beat = now;
      since = now_ms();
    }
    const int64_t time = now_ms();
    const bool late = until_ms_ > 0 && time > until_ms_ + kGraceMs;
    if (late || time - since > patience) {
      *lost = lose(true);
      lost->late = late;
      return false;
    }
  }
}

bool Runner::send(MessageType type, std::span<const uint8_t> payload, Lost* lost) {
  if (write_frame(to_, type, payload)) return true;
  *lost = lose(false);
  return false;
}

uint32_t Runner::add(std::vector<uint8_t> executable) {
  kept_[next_id_].bytes = std::move(executable);
  return next_id_++;
}

void Runner::remove(uint32_t id) {
  const auto it = kept_.find(id);
  if (it == kept_.end()) return;
  const bool cancelled = options_.cancel && options_.cancel->load();
  if (pid_ > 0 && it->second.loaded && !cancelled) {
    ByteWriter w;
    w.varint(id);
    Lost lost;
    Frame reply;
    try {
      if (send(MessageType::kDrop, w.view(), &lost)) receive(&reply, &lost);
    } catch (const Error&) {
      // Told to stop while waiting: the worker is gone, and the executable with it.
    }
  }
  kept_.erase(it);
}

bool Runner::ensure_loaded(uint32_t id, Kept& kept, EntryState* state, std::string* why) {
  *state = kept.as;
  *why = kept.refused;
  if (!why->empty()) return false;
  for (int attempts = 1;; ++attempts) {
    if (pid_ == 0) start();
    if (kept.loaded) return true;
    ByteWriter w;
    w.varint(id);
    w.bytes(kept.bytes);
    Lost lost;
    Frame reply;
    if (send(MessageType::kLoad, w.view(), &lost) && receive(&reply, &lost)) {
      if (reply.type == MessageType::kLoaded) return kept.loaded = true;
      const bool unavailable = reply.type == MessageType::kUnavailable;
      if (unavailable) *state = kept.as = EntryState::kUnavailable;
      *why =
          unavailable || reply.type == MessageType::kFailure ? text_of_failure(reply) : "no answer";
    } else {
      *why = "while loading: " + lost.reason;
      kept.output = lost.output;
      // Killed from outside, which says nothing about the executable.
      if (lost.killed && attempts < kAttempts) continue;
      *state = lost.killed ? EntryState::kLost
               : lost.hung ? EntryState::kTimeout
                           : EntryState::kCrashed;
      if (lost.killed) return false;  // the next case may try again
    }
    kept.refused = *why;
    return false;
  }
}

bool Runner::attempt(const Case& c, const std::vector<uint32_t>& which,
                     std::vector<EntryResult>& results, std::vector<bool>& have, Lost* lost) {
  Case part = c;
  part.entries.clear();
  // What an attempt that was lost has used is gone.
  if (until_ms_ > 0) part.limit_ns = std::max<int64_t>(1, (until_ms_ - now_ms()) * 1'000'000);
  for (uint32_t i : which) part.entries.push_back(c.entries[i]);
  if (!send(MessageType::kMeasure, encode(part), lost)) return false;
  for (Frame reply; receive(&reply, lost);) {
    if (reply.type == MessageType::kMeasured) {
      cost_ += decode_cost(reply.payload);
      return true;
    }
    if (reply.type == MessageType::kFailure)
      throw Error(Status::kInvalidArgument, "case", text_of_failure(reply));
    if (reply.type != MessageType::kEntry) broken("an unexpected message came");
    EntryResult r = decode_entry_result(reply.payload);
    r.message = valid_utf8(r.message);
    if (r.index >= which.size()) broken("a result of an entry that was not asked for");
    r.index = which[r.index];
    have[r.index] = true;
    results[r.index] = std::move(r);
  }
  return false;
}

std::vector<EntryResult> Runner::measure(const Case& c) {
  std::vector<EntryResult> results(c.entries.size());
  std::vector<bool> have(c.entries.size(), false);
  for (uint32_t i = 0; i < results.size(); ++i) results[i].index = i;
  const int64_t end_ms = c.limit_ns > 0 ? now_ms() + c.limit_ns / 1'000'000 : 0;
  const auto give_up = [&](EntryState state, const std::string& why, const std::string& output) {
    for (size_t i = 0; i < results.size(); ++i) {
      if (have[i]) continue;
      results[i].state = state;
      results[i].message = why;
      results[i].output = output;
      have[i] = true;
    }
  };
  for (int attempts = 0;;) {
    std::vector<uint32_t> which;
    for (uint32_t i = 0; i < c.entries.size(); ++i) {
      if (have[i]) continue;
      const auto it = kept_.find(c.entries[i].executable);
      NIMBLE_CHECK(it != kept_.end(), "executable {} was not added", c.entries[i].executable);
      EntryState state = EntryState::kFailed;
      std::string why;
      if (ensure_loaded(it->first, it->second, &state, &why)) {
        which.push_back(i);
        continue;
      }
      results[i].state = state;
      results[i].message = why;
      results[i].output = it->second.output;
      have[i] = true;
    }
    if (which.empty()) return results;
    // A later executable may have taken the worker down, and the earlier ones with it.
    bool all_there = pid_ > 0;
    for (uint32_t i : which) all_there &= kept_.at(c.entries[i].executable).loaded;
    if (!all_there) continue;
    Lost lost;
    bool whole = false;
    until_ms_ = end_ms;
    try {
      whole = attempt(c, which, results, have, &lost);
    } catch (...) {
      until_ms_ = 0;  // the limit is this case's, not that of what comes next
      throw;
    }
    until_ms_ = 0;
    if (whole) continue;
    if (lost.late) {
      give_up(EntryState::kLate, "the time of its case was over", "");
      continue;
    }
    if (lost.blameless()) {
      if (++attempts < kAttempts) continue;
      give_up(EntryState::kLost,
              fmt::format("{} workers were lost, the last by {}", attempts, lost.reason),
              lost.output);
      continue;
    }
    // Blame the entry at which it happened; between entries, the first that is still due.
    uint32_t blamed = which[0];
    if (lost.entry < which.size() &&
        (lost.phase == kReadying || lost.phase == kChecking || lost.phase == kTiming))
      blamed = which[lost.entry];
    if (have[blamed]) {
      for (uint32_t i : which)
        if (!have[i]) {
          blamed = i;
          break;
        }
    }
    results[blamed].state = lost.hung ? EntryState::kTimeout : EntryState::kCrashed;
    results[blamed].message = lost.reason;
    results[blamed].output = lost.output;
    have[blamed] = true;
  }
}

std::optional<std::vector<std::vector<uint8_t>>> Runner::run(const Case& c, std::string* why) {
  NIMBLE_CHECK(c.entries.size() == 1, "{} entries to run once", c.entries.size());
  const auto it = kept_.find(c.entries[0].executable);
  NIMBLE_CHECK(it != kept_.end(), "executable {} was not added", c.entries[0].executable);
  EntryState state = EntryState::kFailed;
  if (!ensure_loaded(it->first, it->second, &state, why)) return std::nullopt;
  Lost lost;
  Frame reply;
  if (!send(MessageType::kRun, encode(c), &lost) || !receive(&reply, &lost)) {
    *why = lost.reason;
    return std::nullopt;
  }
  if (reply.type == MessageType::kFailure) {
    *why = text_of_failure(reply);
    return std::nullopt;
  }
  if (reply.type != MessageType::kOutputs) broken("an unexpected message came");
  return decode_outputs(reply.payload);
}

}  // namespace nimble::tuner
