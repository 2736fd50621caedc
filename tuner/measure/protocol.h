// The pipe between a campaign and its worker process.
//
// A message is a frame: magic "NMW1" (u32), protocol version (u16), type (u16), length of the
// payload (u64), payload (little-endian, vm/base/bytes.h). The parent asks, the worker answers
// each request with one final message; `kEntry` messages may come before it:
//
//   parent                worker
//                         kHello {pid, version text}          once, at the start
//   kLoad {id, bytes}     kLoaded {id, kernels} | kUnavailable | kFailure
//   kDrop {id}            kDropped {id}
//   kMeasure {case}       kEntry {result} …, kMeasured {cost} | kFailure
//   kRun {case}           kOutputs {tensors} | kFailure         its one entry, run once
//
// The end of the parent's pipe ends the worker. Besides, a page of shared memory tells the parent
// which entry the worker is at, so that a crash or a hang is blamed on the right candidate
// without a message (and a wake-up) between two timings.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tuner/measure/inputs.h"
#include "vm/base/bytes.h"
#include "vm/base/dtype.h"

namespace nimble::tuner {

inline constexpr uint32_t kFrameMagic = 0x31574d4e;  // "NMW1"
inline constexpr uint16_t kProtocolVersion = 5;
inline constexpr uint64_t kMaxPayload = uint64_t{2} << 30;

enum class MessageType : uint16_t {
  kHello = 1,
  kLoad = 2,
  kLoaded = 3,
  kDrop = 4,
  kDropped = 5,
  kMeasure = 6,
  kEntry = 7,
  kMeasured = 8,
  kRun = 9,
  kOutputs = 10,
  kFailure = 11,
  kUnavailable = 12,  // it needs what this machine has not, such as a vendor's library
};

struct Frame {
  MessageType type{};
  std::vector<uint8_t> payload;
};

// How time is taken. The whole of it is one row of measure_policy: text() is its stop rule.
struct Policy {
  int32_t warm_up = 2;         // runs of each entry before its first sample
  int64_t batch_ns = 100'000;  // runs are batched until one sample takes this long
  int32_t min_samples = 6;     // of the first look at the interval; see StopRule in statistics.h
  int32_t max_samples = 24;
  double ci_target = 0.015;         // stop when the interval's half width is below this share
  double race_factor = 2;           // drop an entry whose median is beyond this times the best …
  int32_t race_samples = 3;         // … after this many samples
  int64_t case_ns = 2'000'000'000;  // all entries of a case together; then what is there counts

  // Where kernels find their operands. The classes and why there are such:
  // compiler/tuned/policy_class.h.
  std::string name = "warm";
  // Copies of arguments are used in turn, from run to run and from entry to entry, until they fill
  // this many bytes. 0: one copy.
  int64_t rotate_bytes = int64_t{16} << 20;
  bool cold = false;  // all arguments rotate, results too, and not constants alone

  // Sets the three fields above. Error(kInvalidArgument) for a class that there is not.
  void choose_class(const std::string& class_name);
  static Policy of_class(const std::string& class_name);
  std::string text() const;
  friend bool operator==(const Policy&, const Policy&) = default;
};
inline constexpr const char* kTimer = "CLOCK_MONOTONIC, batched";

// One kernel of a loaded executable.
struct EntryRef {
  uint32_t executable = 0, kernel = 0;
  friend bool operator==(const EntryRef&, const EntryRef&) = default;
};

// Kernels of one contract, run on the same data at one shape.
struct Case {
  std::vector<int64_t> symbols;  // of the contract, in order
  int32_t threads = 1;
  uint64_t seed = 0;
  std::vector<Fill> inputs;       // of the tensor arguments that are read, in order
  std::vector<uint8_t> stepping;  // per scalar argument: 1 if it counts up from run to run
  std::vector<std::vector<uint8_t>> expected;  // bytes of each tensor that is written, in order
  double tolerance = 0;                        // for compare_tensors
  Policy policy;
  // So long the case may take, data and checks included. 0: as long as it takes. Entries that have
  // no time by then come back as kLate.
  int64_t limit_ns = 0;
  std::vector<EntryRef> entries;
  friend bool operator==(const Case&, const Case&) = default;
};

enum class EntryState : uint8_t {
  kOk = 0,
  kWrong = 1,
  kCrashed = 2,
  kTimeout = 3,
  kFailed = 4,
  kLost = 5,  // the worker ended again and again where no candidate ran: nothing is known of it
  kLate = 6,  // the case's limit was reached before its turn: nothing is known of it
  // The machine has not what it needs, or what it needs has nothing for this size: no vendor's
  // library, another version of it, no primitive. The candidate did nothing wrong.
  kUnavailable = 7,
};

struct EntryResult {
  uint32_t index = 0;  // into Case::entries
  EntryState state = EntryState::kOk;
  double max_error = 0;
  // kWrong: where the largest error is. -1: nowhere in particular.
  uint32_t worst_output = 0;
  int64_t worst_element = -1;
  std::string stop_reason;  // "ci", "raced", "samples", "time"
  std::string message;      // what went wrong
  int64_t runs_per_sample = 0;
  std::vector<double> samples_ns;  // of one run each: batch time / runs
  // What the worker that was lost had written to stderr, its end; the parent's own, never sent.
  std::string output;
  friend bool operator==(const EntryResult&, const EntryResult&) = default;
};

// What the worker spent a case's time on.
struct CaseCost {
  int64_t prepare_ns = 0;  // making test data
  int64_t check_ns = 0;    // running entries once and comparing
  int64_t time_ns = 0;     // warming up and taking samples
  CaseCost& operator+=(const CaseCost& o) {
    prepare_ns += o.prepare_ns;
    check_ns += o.check_ns;
    time_ns += o.time_ns;
    return *this;
  }
  friend bool operator==(const CaseCost&, const CaseCost&) = default;
};

// Encoders and decoders; decoders throw Error(kCorrupt) for anything malformed.
std::vector<uint8_t> encode(const Case& c);
Case decode_case(std::span<const uint8_t> payload);
std::vector<uint8_t> encode(const EntryResult& r);
EntryResult decode_entry_result(std::span<const uint8_t> payload);
std::vector<uint8_t> encode(const CaseCost& c);
CaseCost decode_cost(std::span<const uint8_t> payload);
// Bytes of the tensors that a kernel wrote, in order.
std::vector<uint8_t> encode(const std::vector<std::vector<uint8_t>>& outputs);
std::vector<std::vector<uint8_t>> decode_outputs(std::span<const uint8_t> payload);

// Writes a whole frame. False if the reader is gone.
bool write_frame(int fd, MessageType type, std::span<const uint8_t> payload);
// Reads a whole frame, blocking. False at the end of the stream before the first byte;
// Error(kCorrupt) for a bad magic, another version, a type or length out of range, or an end
// within a frame.
bool read_frame(int fd, Frame* frame);

// Shared memory of parent and worker.
struct Progress {
  std::atomic<uint64_t> beat{0};   // counts up whenever the worker begins something new
  std::atomic<uint32_t> entry{0};  // index into Case::entries, while measuring
  std::atomic<uint32_t> phase{0};  // of enum Phase
};
enum Phase : uint32_t {
  kIdle = 0,
  kLoading = 1,
  kPreparing = 2,  // test data
  kChecking = 3,
  kTiming = 4,
  kReadying = 5,  // what a library wants to know of a call before it is made
};

}  // namespace nimble::tuner
