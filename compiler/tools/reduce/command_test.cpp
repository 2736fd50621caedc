#include "compiler/tools/reduce/command_test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "vm/base/error.h"

namespace nimble::reduce {
namespace {

constexpr size_t kMostOutput = 4 << 20;
constexpr int kPollMilliseconds = 50;

std::string quoted(const std::string& path) {
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string with_path(const std::string& command, const std::string& path) {
  std::string out;
  size_t at = 0;
  for (size_t next; (next = command.find("{}", at)) != std::string::npos; at = next + 2)
    out += command.substr(at, next - at) + quoted(path);
  return at == 0 ? command + " " + quoted(path) : out + command.substr(at);
}

}  // namespace

Verdict run_command(const std::string& command, const std::string& path, double seconds,
                    const std::function<bool()>& interrupted) {
  const std::string text = with_path(command, path);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(Status::kIo, command, "no pipe can be made", "close some files");
  const pid_t child = fork();
  if (child < 0) throw Error(Status::kIo, command, "cannot be started", "end some processes");
  if (child == 0) {
    setpgid(0, 0);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    for (int signal : {SIGABRT, SIGSEGV, SIGINT, SIGPIPE}) std::signal(signal, SIG_DFL);
    execl("/bin/sh", "sh", "-c", text.c_str(), nullptr);
    _exit(127);
  }
  setpgid(child, child);  // also here: whichever of the two comes first
  close(ends[1]);
  Verdict verdict;
  const auto begin = std::chrono::steady_clock::now();
  bool killed = false;
  while (true) {
    pollfd ready{ends[0], POLLIN, 0};
    const int n = poll(&ready, 1, kPollMilliseconds);
    if (n > 0) {
      char buffer[65536];
      const ssize_t got = read(ends[0], buffer, sizeof buffer);
      if (got <= 0) break;
      const size_t room = kMostOutput - verdict.output.size();
      verdict.output.append(buffer, std::min(room, static_cast<size_t>(got)));
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    const bool late = spent.count() > seconds;
    if (!killed && (late || (interrupted && interrupted()))) {
      verdict.timed_out = late;
      killed = true;
      kill(-child, SIGKILL);
    }
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  verdict.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return verdict;
}

}  // namespace nimble::reduce
