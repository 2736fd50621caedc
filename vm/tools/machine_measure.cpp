// Peaks are the best of several repetitions: whatever disturbs a repetition makes it slower, never
// faster. The threads of one are released together and each does the same work; the rate is all
// work over the time from the release to the last end.
#include "vm/tools/machine_measure.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "vm/base/error.h"
#include "vm/base/host_state.h"
#include "vm/tools/ceiling_kernels.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);  // without it all works, with more noise
}

// Threads that wait for work together; the calling one is the first of them.
class Team {
 public:
  explicit Team(int threads) : cpus_(cpus_to_use(threads)), threads_(threads) {
    ::sched_getaffinity(0, sizeof before_, &before_);
    bind(0);
    for (int t = 1; t < threads; ++t)
      others_.emplace_back([this, t] {
        bind(t);
        for (int64_t round = 1;; ++round) {
          while (round_.load(std::memory_order_acquire) < round) relax();
          if (stop_) return;
          (*work_)(t);
          done_.fetch_add(1, std::memory_order_release);
        }
      });
  }
  ~Team() {
    stop_ = true;
    round_.fetch_add(1, std::memory_order_release);
    for (std::thread& t : others_) t.join();
    ::sched_setaffinity(0, sizeof before_, &before_);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Runs work(thread) on all of them; the seconds until the last has done it.
  double run(const std::function<void(int)>& work) {
    work_ = &work;
    done_.store(0, std::memory_order_relaxed);
    const Clock::time_point start = Clock::now();
    round_.fetch_add(1, std::memory_order_release);
    work(0);
    while (done_.load(std::memory_order_acquire) < threads_ - 1) relax();
    return seconds_since(start);
  }

 private:
  // Somebody else may need this processor to get on.
  static void relax() { ::sched_yield(); }
  void bind(int t) {
    if (!cpus_.empty()) bind_to(cpus_[static_cast<size_t>(t) % cpus_.size()]);
  }

  const std::vector<int> cpus_;
  const int threads_;
  cpu_set_t before_{};
  std::vector<std::thread> others_;
  std::atomic<int64_t> round_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> stop_{false};
  const std::function<void(int)>* work_ = nullptr;
};

// What the calling thread has had of a processor: on a busy machine less than what has passed.
double own_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// So many repeats that work(thread, repeats) takes a thread `seconds` at least.
int64_t repeats_for(Team& team, double seconds, const std::function<void(int, int64_t)>& work) {
  for (int64_t repeats = 1;; repeats *= 2) {
    double own = 0;
    team.run([&](int t) {
      const double begin = own_seconds();
      work(t, repeats);
      if (t == 0) own = own_seconds() - begin;
    });
    if (own >= seconds || repeats > (int64_t{1} << 40)) return repeats;
  }
}

struct Rates {
  double best = 0, median = 0;
};

// How much of `unit` a second; work(thread, repeats) does `per_repeat` of it.
Rates rate(Team& team, int threads, double seconds, double per_repeat,
           const std::function<void(int, int64_t)>& work) {
  // So long that releasing the threads does not count.
  constexpr double kPiece = 0.001;
  const int64_t repeats = repeats_for(team, kPiece, work);
  std::vector<double> rates;
  for (const Clock::time_point start = Clock::now();
       rates.size() < 5 || seconds_since(start) < seconds;) {
    const double s = team.run([&](int t) { work(t, repeats); });
    rates.push_back(per_repeat * static_cast<double>(repeats) * threads / s);
  }
  return {*std::max_element(rates.begin(), rates.end()), quantile(rates, 0.5)};
}

// Memory of one thread, touched by it so that it lies near.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes) {
    void* p = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      throw Error(Status::kExhausted, "--measure",
                  fmt::format("there are no {} MiB of memory", bytes >> 20),
                  "free some, or give --threads with fewer");
    data_ = p;
    ::madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  }
  ~Buffer() { ::munmap(data_, static_cast<size_t>(bytes_)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void touch() { std::memset(data_, 1, static_cast<size_t>(bytes_)); }
  double* doubles() { return static_cast<double*>(data_); }
  void* data() { return data_; }

 private:
  int64_t bytes_;
  void* data_;
};

int64_t available_bytes(const CpuInfo& cpu) {
  std::ifstream in("/proc/meminfo");
  int64_t bytes = int64_t{1} << 30;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) bytes = std::atoll(line.c_str() + 13) * 1024;
  return cpu.cgroup_memory_bytes ? std::min(bytes, *cpu.cgroup_memory_bytes) : bytes;
}

// What each thread reads to stay in a level: well above the level before, well within its share of
// this one. 0: there is no such level, or it is too small to tell apart.
int64_t working_set(const CpuInfo& cpu, int level, int threads) {
  const auto share = [&](int l) {
    int64_t bytes = cpu.cache_bytes(l);
    for (const CpuCache& c : cpu.caches)
      if (c.level == l && c.type != "instruction") bytes /= std::clamp(c.shared_by, 1, threads);
    return bytes;
  };
  const auto whole = [](int64_t bytes) { return bytes & ~int64_t{4095}; };
  if (level == 1) return whole(share(1) / 2);
  const int64_t below = share(level - 1), bytes = whole(share(level) / 2);
  return below > 0 && bytes >= 2 * below ? bytes : 0;
}

struct Preemption {
  int64_t switches = 0;
  double throttled_s = 0;
};

Preemption preemption() {
  Preemption p;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  p.switches = usage.ru_nivcsw;
  std::ifstream in("/sys/fs/cgroup/cpu.stat");
  std::string key;
  for (double value = 0; in >> key >> value;)
    if (key == "throttled_usec") p.throttled_s = value / 1e6;
  return p;
}

}  // namespace

std::vector<int> cpus_to_use(int count) {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<int> first, rest;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    const std::string core =
        first_line(folder + "physical_package_id") + ":" + first_line(folder + "core_id");
    (core == ":" || cores.insert(core).second ? first : rest).push_back(cpu);
  }
  first.insert(first.end(), rest.begin(), rest.end());
  if (first.size() > static_cast<size_t>(std::max(count, 1)))
    first.resize(static_cast<size_t>(std::max(count, 1)));
  return first;
}

std::vector<Ceiling> measure_ceilings(const CpuInfo& cpu, const MeasureOptions& options) {
  std::vector<Ceiling> out;
  const auto stopped = [&] { return options.stop && options.stop(); };
  const auto tell = [&](const std::string& what, int threads) {
    if (options.progress) options.progress(fmt::format("{}, {} threads", what, threads));
  };
  for (int threads : options.threads) {
    Team team(threads);
    for (const ComputeLoop& loop : compute_loops(cpu)) {
      if (stopped()) return out;
      tell("compute " + loop.dtype, threads);
      constexpr int64_t kSteps = 2000;
      const Rates r =
          rate(team, threads, options.seconds, loop.operations * static_cast<double>(kSteps),
               [&](int, int64_t repeats) { loop.run(kSteps * repeats); });
      out.push_back({"compute", loop.dtype, threads, r.best, r.median, "op/s", loop.instructions});
    }
    const MemoryLoop memory = memory_loop(cpu);
    // Four times what the last cache holds, in all; a quarter of what is free at most.
    const int64_t last = std::max(cpu.cache_bytes(2), cpu.cache_bytes(3));
    const int64_t all = std::min(std::max(4 * last, int64_t{256} << 20), available_bytes(cpu) / 4);
    const int64_t beyond = (all / threads) & ~int64_t{(1 << 20) - 1};
    const std::pair<const char*, int64_t> levels[] = {{"read_l1", working_set(cpu, 1, threads)},
                                                      {"read_l2", working_set(cpu, 2, threads)},
                                                      {"read_l3", working_set(cpu, 3, threads)},
                                                      {"read_memory", beyond}};
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (int t = 0; t < threads; ++t)
      buffers.push_back(std::make_unique<Buffer>(std::max(beyond, int64_t{1} << 20)));
    team.run([&](int t) { buffers[static_cast<size_t>(t)]->touch(); });
    for (const auto& [kind, bytes] : levels) {
      if (bytes <= 0) continue;
      if (stopped()) return out;
      tell(kind, threads);
      const Rates r = rate(team, threads, options.seconds, static_cast<double>(bytes),
                           [&, &bytes = bytes](int t, int64_t repeats) {
                             const void* data = buffers[static_cast<size_t>(t)]->data();
                             for (int64_t i = 0; i < repeats; ++i) memory.read(data, bytes);
                           });
      out.push_back({kind, "any", threads, r.best, r.median, "byte/s", memory.instructions});
    }
    if (beyond < int64_t{4} << 20 || stopped()) continue;
    tell("triad_memory", threads);
    const int64_t third = (beyond / 24) & ~int64_t{1023};  // doubles
    const Rates r = rate(team, threads, options.seconds, static_cast<double>(24 * third),
                         [&](int t, int64_t repeats) {
                           double* a = buffers[static_cast<size_t>(t)]->doubles();
                           for (int64_t i = 0; i < repeats; ++i)
                             memory.triad(a, a + third, a + 2 * third, third);
                         });
    out.push_back(
        {"triad_memory", "any", threads, r.best, r.median, "byte/s", memory.instructions});
  }
  return out;
}

double measure_clock(int threads, double seconds) {
  Team team(threads);
  constexpr int64_t kCount = 1 << 20;
  return rate(team, threads, seconds, static_cast<double>(kCount),
              [](int, int64_t repeats) {
                for (int64_t i = 0; i < repeats; ++i) dependent_additions(kCount);
              })
             .best /
         threads;
}

double pair_resolution(const std::vector<double>& samples, size_t block) {
  std::vector<double> medians, apart;
  for (size_t at = 0; block > 0 && at + block <= samples.size(); at += block)
    medians.push_back(quantile({samples.begin() + static_cast<ptrdiff_t>(at),
                                samples.begin() + static_cast<ptrdiff_t>(at + block)},
                               0.5));
  if (medians.size() < 4) return 0;
  for (size_t i = 0; i + 1 < medians.size(); ++i) {
    const auto [least, most] = std::minmax(medians[i], medians[i + 1]);
    apart.push_back(least > 0 ? most / least - 1 : 0);
  }
  return quantile(apart, 0.95);
}

std::vector<Noise> measure_noise(const MeasureOptions& options) {
  // A sample is long enough for the clock and short enough that most see no interruption, as a
  // kernel's; a block is as many samples as a candidate gets.
  constexpr double kSample = 200e-6;
  constexpr size_t kBlock = 20;
  std::vector<Noise> out;
  for (int threads : options.threads) {
    if (options.stop && options.stop()) break;
    if (options.progress) options.progress(fmt::format("noise, {} threads", threads));
    Team team(threads);
    std::vector<double> data(4096, 1.0);
    const MemoryLoop memory = memory_loop(host_cpu_without_tiles());
    const auto work = [&](int, int64_t repeats) {
      for (int64_t i = 0; i < repeats; ++i) {
        memory.read(data.data(), static_cast<int64_t>(data.size() * sizeof(double)));
        dependent_additions(4096);
      }
    };
    const int64_t repeats = repeats_for(team, kSample, work);
    const auto once = [&] { return team.run([&](int t) { work(t, repeats); }); };
    HostWatch watch;
    const Preemption before = preemption();
    std::vector<double> samples;
    for (const Clock::time_point start = Clock::now();
         samples.size() < 4 * kBlock || seconds_since(start) < 10 * options.seconds;)
      samples.push_back(1e9 * once());
    const Preemption after = preemption();
    Noise n;
    n.threads = threads;
    n.samples = static_cast<int64_t>(samples.size());
    n.median_ns = quantile(samples, 0.5);
    std::vector<double> deviations;
    for (double s : samples) deviations.push_back(std::fabs(s - n.median_ns));
    n.spread = quantile(deviations, 0.5) / n.median_ns;
    n.slow_tail = quantile(samples, 0.99) / n.median_ns - 1;
    n.resolution = pair_resolution(samples, kBlock);
    const auto third = static_cast<ptrdiff_t>(samples.size() / 3);
    n.drift = quantile({samples.end() - third, samples.end()}, 0.5) /
                  quantile({samples.begin(), samples.begin() + third}, 0.5) -
              1;
    n.steal = watch.read().steal;
    n.preemptions = after.switches - before.switches;
    n.throttled_s = after.throttled_s - before.throttled_s;
    out.push_back(n);
  }
  return out;
}

std::string noise_verdict(double resolution) {
  return resolution <= 0.01   ? "good"
         : resolution <= 0.03 ? "fair"
         : resolution <= 0.10 ? "poor"
                              : "bad";
}

}  // namespace nimble
