// What may change on a machine without changing its identity, read beside each measurement.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace nimble {

struct HostReading {
  std::string governor;  // "unknown" where the system does not tell (most virtual machines)
  std::optional<bool> turbo, smt;
  std::string affinity;  // CPUs that this process may use, as in /proc/self/status
  double load = 0;       // runnable threads of the system, ours not counted
  double steal = 0;      // share of CPU time taken by the hypervisor since the last reading
};

// Reads /proc and /sys; remembers the CPU times of the last reading, for `steal`.
class HostWatch {
 public:
  HostWatch();
  HostReading read();

 private:
  struct CpuTimes {
    uint64_t total = 0, steal = 0;
  };
  static CpuTimes cpu_times();
  CpuTimes last_;
  // What a person changes is looked at once a second: a case may take a few milliseconds.
  HostReading settings_;
  std::chrono::steady_clock::time_point settings_at_;
};

}  // namespace nimble
