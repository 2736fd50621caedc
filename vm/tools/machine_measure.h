// What a machine can do at best, and how well that can be measured on it: the ceilings of
// rooflines, the clock, and how far two measurements of the same thing lie apart.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "vm/base/cpu.h"

namespace nimble {

// A record as a database keeps it: machine and time of day are added by who stores it.
struct Ceiling {
  // "compute"; "read_l1", "read_l2", "read_l3", "read_memory", "triad_memory" for bandwidths.
  std::string kind;
  std::string dtype;  // "f32", "f64", "i8", "bf16"; "any" for bandwidths
  int threads = 1;
  double value = 0;   // the most that any repetition reached
  double median = 0;  // of the repetitions
  std::string unit;   // "op/s" (a multiply-add is two), "byte/s"
  std::string instructions;
};

struct MeasureOptions {
  double seconds = 0.1;  // of each ceiling; noise takes ten times this for each number of threads
  std::vector<int> threads;
  std::function<void(const std::string&)> progress;  // may be empty
  std::function<bool()> stop;                        // asked between pieces; may be empty
};

std::vector<Ceiling> measure_ceilings(const CpuInfo& cpu, const MeasureOptions& options);

// Cycles per second of one core at work, of all that are asked for at once.
double measure_clock(int threads, double seconds);

// The same kernel measured again and again, as a campaign measures candidates.
struct Noise {
  int threads = 1;
  double median_ns = 0;     // of a sample
  double spread = 0;        // median absolute deviation, relative
  double slow_tail = 0;     // the 99th percentile over the median, minus 1
  double resolution = 0;    // 95 % of pairs of medians of the same thing differ by less, relative
  double drift = 0;         // of the last third against the first, relative
  double steal = 0;         // share of the processors' time that the hypervisor gave to others
  double throttled_s = 0;   // that the control group's quota held the process back
  int64_t preemptions = 0;  // involuntary switches to others
  int64_t samples = 0;
};

std::vector<Noise> measure_noise(const MeasureOptions& options);
// "good", "fair", "poor" or "bad", with what that means.
std::string noise_verdict(double resolution);

// The parts that can be tested on any machine: the 95th percentile of how far the medians of two
// runs of `block` consecutive samples lie apart, relative to the less; 0 of fewer than four blocks.
double pair_resolution(const std::vector<double>& samples, size_t block);
// CPUs of the affinity mask, one of each core first, at most `count`.
std::vector<int> cpus_to_use(int count);

}  // namespace nimble
