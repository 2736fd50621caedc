// Kernels and models of another architecture in tests: a process that runs them, named by the
// environment (NIMBLE_TEST_RUNNER: nimble-test-runner with its emulator ahead of it, as words).
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>

#include "vm/base/dtype.h"
#include "vm/interpreter/test/runner/protocol.h"

extern char** environ;

namespace nimble::rt::testing {

class Remote {
 public:
  // Null if the environment names none. An internal error if it does not start.
  static Remote* get() {
    static const std::unique_ptr<Remote> remote = [] {
      const char* words = std::getenv("NIMBLE_TEST_RUNNER");
      return words && *words ? std::unique_ptr<Remote>(new Remote(words)) : nullptr;
    }();
    return remote.get();
  }
  ~Remote() {
    ::close(to_);
    ::close(from_);
    ::waitpid(process_, nullptr, 0);
  }
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  const std::string& level() const { return level_; }

  // Makes the image's function the one that runs; a repetition costs nothing.
  void load(const std::shared_ptr<const std::vector<uint8_t>>& image, const std::string& function) {
    if (image == image_ && function == function_) return;
    pipe_->command('L');
    pipe_->block(std::as_bytes(std::span(*image)));
    pipe_->text(function);
    image_.reset();
    pipe_->expect_result();
    image_ = image;
    function_ = function;
  }
  int32_t run(const std::vector<std::span<std::byte>>& buffers, const std::vector<int64_t>& symbols,
              int64_t scratch, int threads) {
    pipe_->command('R');
    pipe_->number(threads);
    pipe_->number(scratch);
    pipe_->number(static_cast<int64_t>(symbols.size()));
    for (int64_t s : symbols) pipe_->number(s);
    pipe_->number(static_cast<int64_t>(buffers.size()));
    std::vector<size_t> own;
    for (size_t i = 0; i < buffers.size(); ++i) {
      size_t same = 0;
      while (same < i && (buffers[same].data() != buffers[i].data() || buffers[i].empty())) ++same;
      pipe_->number(static_cast<int64_t>(same));
      if (same < i) continue;
      own.push_back(i);
      pipe_->block(buffers[i]);
    }
    const auto status = static_cast<int32_t>(pipe_->number());
    for (size_t i : own) {
      NIMBLE_CHECK(pipe_->number() == static_cast<int64_t>(buffers[i].size()));
      pipe_->read(buffers[i].data(), buffers[i].size());
    }
    return status;
  }

  // A model's tensors.
  struct Tensor {
    DType dtype{};
    std::vector<int64_t> shape;
    std::string bytes;
  };
  // Makes the file's model the one that runs. Error as Model::load.
  void load_model(const std::vector<uint8_t>& file, int threads, uint64_t fuel) {
    pipe_->command('M');
    pipe_->block(std::as_bytes(std::span(file)));
    pipe_->number(threads);
    pipe_->number(static_cast<int64_t>(fuel));
    pipe_->expect_result();
  }
  // Error as Session::run.
  std::vector<Tensor> run_model(const std::string& entry, const std::vector<Tensor>& inputs) {
    pipe_->command('X');
    pipe_->text(entry);
    pipe_->number(static_cast<int64_t>(inputs.size()));
    for (const Tensor& t : inputs) {
      pipe_->number(static_cast<int64_t>(t.dtype));
      pipe_->number(static_cast<int64_t>(t.shape.size()));
      for (int64_t e : t.shape) pipe_->number(e);
      pipe_->text(t.bytes);
    }
    pipe_->expect_result();
    std::vector<Tensor> out(static_cast<size_t>(pipe_->number()));
    for (Tensor& t : out) {
      t.dtype = static_cast<DType>(pipe_->number());
      t.shape.resize(static_cast<size_t>(pipe_->number()));
      for (int64_t& e : t.shape) e = pipe_->number();
      t.bytes = pipe_->text();
    }
    return out;
  }

 private:
  explicit Remote(const std::string& words) {
    std::vector<std::string> split;
    std::istringstream in(words);
    for (std::string word; in >> word;) split.push_back(word);
    std::vector<char*> argv;
    for (std::string& word : split) argv.push_back(word.data());
    argv.push_back(nullptr);
    int there[2], back[2];
    NIMBLE_CHECK(::pipe2(there, O_CLOEXEC) == 0 && ::pipe2(back, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, there[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, back[1], STDOUT_FILENO);
    const int error = ::posix_spawnp(&process_, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    NIMBLE_CHECK(error == 0, "{} does not start", argv[0]);
    ::close(there[0]);
    ::close(back[1]);
    to_ = there[1];
    from_ = back[0];
    pipe_.emplace(from_, to_);
    level_ = pipe_->text();
  }

  pid_t process_ = 0;
  int to_ = -1, from_ = -1;
  std::optional<Pipe> pipe_;
  std::string level_;
  std::shared_ptr<const std::vector<uint8_t>> image_;  // kept: its address is its name
  std::string function_;
};

}  // namespace nimble::rt::testing
