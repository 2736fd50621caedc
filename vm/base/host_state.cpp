#include "vm/base/host_state.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace nimble {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<bool> flag(const std::string& path, bool one_means) {
  const std::string text = first_line(path);
  if (text == "1") return one_means;
  if (text == "0") return !one_means;
  return std::nullopt;
}

HostReading read_settings() {
  HostReading r;
  r.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (r.governor.empty()) r.governor = "unknown";
  r.turbo = flag("/sys/devices/system/cpu/intel_pstate/no_turbo", false);
  if (!r.turbo) r.turbo = flag("/sys/devices/system/cpu/cpufreq/boost", true);
  r.smt = flag("/sys/devices/system/cpu/smt/active", true);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Cpus_allowed_list:")) {
      const size_t at = line.find_first_not_of(" \t", 18);
      r.affinity = at == std::string::npos ? "" : line.substr(at);
    }
  return r;
}

}  // namespace

HostWatch::HostWatch() : last_(cpu_times()) {}

HostWatch::CpuTimes HostWatch::cpu_times() {
  // cpu  user nice system idle iowait irq softirq steal guest guest_nice (the last two are in user)
  std::istringstream in(first_line("/proc/stat"));
  std::string word;
  in >> word;
  CpuTimes t;
  uint64_t value = 0;
  for (int i = 0; i < 8 && in >> value; ++i) {
    t.total += value;
    if (i == 7) t.steal = value;
  }
  return t;
}

HostReading HostWatch::read() {
  const auto time = std::chrono::steady_clock::now();
  if (settings_.governor.empty() || time - settings_at_ > std::chrono::seconds(1)) {
    settings_ = read_settings();
    settings_at_ = time;
  }
  HostReading r = settings_;
  // "0.00 0.01 0.05 2/123 456": the fourth field counts runnable threads, this one included.
  std::istringstream load(first_line("/proc/loadavg"));
  std::string field;
  for (int i = 0; i < 4; ++i) load >> field;
  r.load = std::max(0.0, std::atof(field.c_str()) - 1);
  const CpuTimes now = cpu_times();
  if (now.total > last_.total)
    r.steal = std::clamp(
        static_cast<double>(now.steal - last_.steal) / static_cast<double>(now.total - last_.total),
        0.0, 1.0);
  last_ = now;
  return r;
}

}  // namespace nimble
