// Stretches of kernel launches that a session makes again and again: from the third time on the
// device gets one as a whole, as a CUDA graph.
//
// The machine runs its program each time, so whatever decides what is launched — extents, data that
// the host has read, where the pool has put a tensor — decides anew. Only the asking is put off:
// while the launches so far are, word for word, those that begin a stretch which was seen before,
// nothing is asked of the device. Where the stretch ends as the known one did, its graph is
// started; where something else comes (another address, another kernel, a copy, memory that is
// given back), what was put off is launched one by one. A graph thus never runs but in place of
// these launches, and needs no memory kept for it.
//
// Calls of a vendor's library are launches like others: what serves a call, the addresses of its
// tensors and that of its workspace are its words. Its kernels nobody knows, so it is captured into
// the graph; what serves it, and has been found before, lives as long as its stretches do. Where
// capturing fails the stretch stays plain, and refusals() tells why.
//
// A stretch ends where the device is asked for anything else, where the slice of the run does, and
// at a number of launches that doubles from stretch to stretch: the device begins soon, and has
// more to do than the host needs for the next one.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "vm/library/device_routine.h"
#include "vm/runtime/cuda_device.h"
#include "vm/runtime/cuda_graph.h"
#include "vm/runtime/tensor_maps.h"

namespace nimble::rt {

// A launch as a row of words: how it is started, then its parameters, which take a word each. A
// library's call has what serves it for a function and no grid; its parameters are where its
// tensors lie, then its workspace.
class LaunchWords {
 public:
  static constexpr size_t kHead = 4;
  // For launches with so many parameters, and so many tensor maps behind them, at most.
  explicit LaunchWords(size_t most_parameters, size_t most_maps = 0);
  LaunchWords(const LaunchWords&) = delete;
  LaunchWords& operator=(const LaunchWords&) = delete;
  void set(cuda::Function function, const std::array<uint32_t, 3>& grid, uint32_t threads,
           uint32_t shared_bytes, size_t parameters);
  // Of a call: no fewer parameters than it has tensors, and one.
  void set(const DeviceCall& call, std::span<void* const> data, void* workspace);
  uint64_t* parameters() { return words_.data() + kHead; }
  std::span<const uint64_t> words() const { return {words_.data(), count_}; }
  // What is set has so many tensor maps, too, which take TensorMaps::kWords each behind what takes
  // a word; returns the first one's.
  uint64_t* add_maps(size_t count);
  // What is set, ready to be launched.
  CudaLaunch launch() { return read(words_.data(), places_.data()); }

  static size_t size_of(const uint64_t* words) {
    return kHead + parameters_of(words) + TensorMaps::kWords * maps_of(words);
  }
  // `places` gets where each parameter lies.
  static CudaLaunch read(const uint64_t* words, void** places);
  static bool is_call(const uint64_t* words) { return words[1] == 0; }
  // Starts the call that these words are, on a stream; `places` as before.
  static void start(const uint64_t* words, void** places, cuda::Stream stream);

 private:
  static CudaLaunch launch_of(const uint64_t* words, void** places);
  static size_t parameters_of(const uint64_t* words) { return words[3] >> 32; }
  static size_t maps_of(const uint64_t* words) { return words[2] >> kMapsBit; }

  static constexpr int kMapsBit = 48;  // of the word with the threads, which are 1024 at most
  std::vector<uint64_t> words_;
  std::vector<void*> places_;
  size_t count_ = 0;
};

class GpuStretches final : public PutOff {
 public:
  // Launches of a stretch: at its least for a graph; of the first one of a row; at most.
  static constexpr uint32_t kLeast = 4, kFirst = 8, kMost = 64;
  // Times that a stretch is launched one by one.
  static constexpr uint32_t kPlain = 2;
  // Launches of all stretches that are kept; what was not met for longest goes.
  static constexpr size_t kKept = 4096;

  explicit GpuStretches(CudaDevice& device);
  ~GpuStretches();
  GpuStretches(const GpuStretches&) = delete;
  GpuStretches& operator=(const GpuStretches&) = delete;

  // Whether the driver has graphs and NIMBLE_CUDA_GRAPHS is not "off".
  bool on() const { return on_; }
  // Whether calls of libraries are taken, too: the driver captures them.
  bool takes_calls() const { return takes_calls_; }
  // The next launch, at once or a little later. The device's context is the thread's.
  void add(LaunchWords& launch);
  // The same of a call, as which the words are set; `start` starts it, and what that throws leaves
  // everything as if it had not come. Later, it has been started before in this place: then what it
  // throws is the run's error.
  void add(LaunchWords& words, std::shared_ptr<const DeviceCall> call,
           const std::function<void()>& start);
  // Asks for what is put off and ends the stretch.
  void ask() override;
  void ask_quietly() noexcept override;
  // Forgets what is put off: its run has failed, and nobody looks at what it would have made.
  void drop() noexcept;

  size_t kept_launches() const { return kept_; }
  size_t graphs() const { return graphs_; }
  // How many stretches there was no graph of, and what the last one's error said.
  uint64_t refusals() const { return refusals_; }
  const std::string& last_refusal() const { return last_refusal_; }
  // Lets go of all stretches.
  void clear() noexcept;

 private:
  struct Stretch {
    uint64_t key = 0;  // of its first launch
    std::vector<uint64_t> words;
    uint32_t launches = 0, met = 0;
    bool plain = false;  // the driver makes no graph of it
    std::vector<std::shared_ptr<const DeviceCall>> calls;
    std::unique_ptr<CudaGraph> graph;  // goes before them
  };
  using Place = std::list<Stretch>::iterator;

  // A known stretch that begins with `so_far` and goes on with `next`.
  Stretch* find(std::span<const uint64_t> so_far, std::span<const uint64_t> next);
  std::span<const uint64_t> so_far() const {
    return known_ ? std::span(known_->words.data(), at_) : std::span<const uint64_t>(words_);
  }
  // What comes next; whether it is to be started now.
  bool expect(std::span<const uint64_t> words);
  // It has come.
  void take(std::span<const uint64_t> words);
  // What was put off is launched one by one.
  void launch_plainly();
  void end();
  // The stretch that ends here, as it is kept; nullptr if it is too short.
  Stretch* keep();
  void start(Stretch& stretch);
  std::unique_ptr<CudaGraph> graph_of(const Stretch& stretch);
  void forget_oldest() noexcept;
  // No stretch is in progress any more.
  void leave() noexcept;
  void tell_error();

  CudaDevice& device_;
  bool on_ = true, takes_calls_ = true;
  std::list<Stretch> stretches_;  // the latest met first
  std::unordered_map<uint64_t, std::vector<Place>> by_key_;
  size_t kept_ = 0, graphs_ = 0;
  uint64_t refusals_ = 0;
  std::string last_refusal_;
  // Of the stretch in progress.
  uint64_t key_ = 0;
  Stretch* known_ = nullptr;     // what it has been like so far
  size_t at_ = 0;                // words of it
  std::vector<uint64_t> words_;  // without a known one
  std::vector<std::shared_ptr<const DeviceCall>> calls_;
  uint32_t launches_ = 0, limit_ = kFirst;
  bool put_off_ = false;  // nothing of it has been launched
  std::vector<void*> places_;
  std::exception_ptr error_;  // of ask_quietly()
};

}  // namespace nimble::rt
