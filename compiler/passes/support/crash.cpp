// The handler runs inside a process that is broken in an unknown way, and does what a handler must
// not do: it allocates and prints. After NIMBLE_CHECK, by far the most frequent case, that is
// sound, since abort() was called from ordinary code. After a wild pointer it nearly always works;
// where the fault hit the allocator itself, an alarm ends the attempt, and nothing is lost but the
// file. Stack overflow is a real case (recursion over deep programs), hence the stack of its own.
#include "compiler/passes/support/crash.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "compiler/ir/text.h"
#include "vm/base/file.h"

namespace nimble::passes {
namespace {

constexpr std::string_view kMark = "// RUN-PIPELINE:";
constexpr size_t kHandlerStack = size_t{16} << 20;
constexpr unsigned kSecondsToWrite = 30;
constexpr int kSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

std::atomic<const CrashScope*> innermost{nullptr};
std::string& crash_folder() {
  static std::string folder;
  return folder;
}

std::string plain(std::string text) {
  std::string out;
  for (const char c : text) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (word || (!out.empty() && out.back() != '-')) out += word ? c : '-';
  }
  if (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

}  // namespace

CrashScope::CrashScope(ir::Module before, std::string stage, std::string options, Program program)
    : before_(std::move(before)),
      stage_(std::move(stage)),
      options_(std::move(options)),
      program_(program),
      outer_(innermost.load()) {
  innermost = this;
}

CrashScope::~CrashScope() {
  innermost = outer_;
}

void report_crash() {
  const CrashScope* scope = innermost.exchange(nullptr);
  if (!scope || crash_folder().empty()) return;
  const std::string path =
      fmt::format("{}/nimble-crash-{}-{}.nir", crash_folder(), plain(scope->stage_), getpid());
  const bool opt = scope->program_ == CrashScope::Program::kOpt;
  const std::string mark = opt ? std::string(kMark) : "// RUN-COMPILE:";
  const std::string again =
      opt ? "nimble opt {}" : fmt::format("nimble compile {{}} -o /dev/null {}", scope->options_);
  try {
    ir::write_module(scope->before_, path);
    write_file_atomically(path,
                          fmt::format("{} {}\n{}", mark, scope->options_, read_text_file(path)));
    std::fprintf(stderr,
                 "nimble: the fault is in %s; the module before it is in %s\n"
                 "nimble: see it again: %s\n"
                 "nimble: make it small: nimble reduce %s --test '%s'\n",
                 scope->stage_.c_str(), path.c_str(),
                 fmt::format(fmt::runtime(again), path).c_str(), path.c_str(), again.c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nimble: the module before %s could not be written: %s\n",
                 scope->stage_.c_str(), e.what());
  }
  std::fflush(stderr);
}

namespace {

void on_signal(int signal) {
  for (const int s : kSignals) std::signal(s, SIG_DFL);  // a fault in here ends it
  std::signal(SIGALRM, SIG_DFL);
  alarm(kSecondsToWrite);
  report_crash();
  alarm(0);
  std::raise(signal);  // delivered when the handler returns
}

}  // namespace

void install_crash_handler(const std::string& folder) {
  crash_folder() = folder;
  if (folder.empty()) return;
  static void* stack = mmap(nullptr, kHandlerStack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (stack != MAP_FAILED) {
    stack_t alternative{};
    alternative.ss_sp = stack;
    alternative.ss_size = kHandlerStack;
    sigaltstack(&alternative, nullptr);
  }
  for (const int s : kSignals) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(s, &action, nullptr);
  }
}

std::string default_crash_folder() {
  const char* named = std::getenv("NIMBLE_CRASH_DIR");
  return named ? named : ".";
}

std::optional<std::vector<std::string>> reproducer_options(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with(kMark)) return std::nullopt;
  std::istringstream words{std::string(line.substr(kMark.size()))};
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

}  // namespace nimble::passes
