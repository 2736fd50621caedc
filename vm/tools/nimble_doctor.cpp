// nimble doctor: what nimble sees of this machine. The report is the first thing to attach to a
// question about speed: which instructions, caches and cores there are, what limits the process,
// what makes measurements noisy, and which programs are installed. With --measure also what the
// machine can do at best and how far apart two measurements of the same thing lie on it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

#include "vm/api/vendor_libraries.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/subcommands.h"
#include "vm/arguments/table.h"
#include "vm/base/cpu.h"
#include "vm/base/device_number.h"
#include "vm/base/error.h"
#include "vm/base/host_state.h"
#include "vm/base/nvrtc_library.h"
#include "vm/runtime/cuda_device.h"
#include "vm/tools/machine_measure.h"

namespace nimble {
namespace {

using Json = Table::Json;

std::string line_of(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// "always [madvise] never" -> "madvise".
std::string chosen(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close < open ? line : line.substr(open + 1, close - open - 1);
}

// A field of /proc/meminfo in bytes; 0 if it is not there.
int64_t meminfo(const std::string& field) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(field + ":")) continue;
    std::istringstream rest(line.substr(field.size() + 1));
    int64_t value = 0;
    std::string unit;
    rest >> value >> unit;
    return unit == "kB" ? value * 1024 : value;
  }
  return 0;
}

bool in_virtual_machine() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("flags")) return line.find(" hypervisor") != std::string::npos;
  return false;
}

std::string human(int64_t bytes) {
  if (bytes >= int64_t{1} << 30)
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{} KiB", bytes >> 10);
}

Json cpu_report(const CpuInfo& cpu) {
  Json caches = Json::array();
  for (const CpuCache& c : cpu.caches)
    caches.push_back({{"level", c.level},
                      {"type", c.type},
                      {"bytes", c.bytes},
                      {"line_bytes", c.line_bytes},
                      {"shared_by_cpus", c.shared_by}});
  return {{"vendor", cpu.vendor},
          {"model", cpu.model},
          {"level", cpu.level},
          {"features", cpu.features},
          {"amx_usable", cpu.has("amx_tile")},
          {"caches", caches}};
}

// Kilohertz of a file of cpufreq, in MHz.
Json megahertz(const char* file) {
  const std::string text = line_of(std::string("/sys/devices/system/cpu/cpu0/cpufreq/") + file);
  return text.empty() ? Json() : Json(std::atof(text.c_str()) / 1000);
}

// Seconds that the quota of the control group has held its processes back so far.
Json throttled_seconds() {
  std::ifstream in("/sys/fs/cgroup/cpu.stat");
  std::string key;
  for (double value = 0; in >> key >> value;)
    if (key == "throttled_usec") return value / 1e6;
  return nullptr;
}

Json cores_report(const CpuInfo& cpu) {
  HostWatch watch;
  ::usleep(200'000);
  const HostReading host = watch.read();
  const auto known = [](const std::optional<bool>& b) { return b ? Json(*b) : Json(); };
  Json cores = {{"logical_cpus", cpu.logical_cpus},
                {"cpus_in_affinity_mask", cpu.affinity_cpus},
                {"affinity", host.affinity},
                {"physical_cores", cpu.physical_cores},
                {"cores_in_affinity_mask", cpu.affinity_cores},
                {"usable_threads", cpu.usable_threads()},
                {"smt", known(host.smt)},
                {"cgroup_cpus", cpu.cgroup_cpus ? Json(*cpu.cgroup_cpus) : Json()},
                {"cgroup_throttled_s", throttled_seconds()},
                {"governor", host.governor == "unknown" ? Json() : Json(host.governor)},
                {"turbo", known(host.turbo)},
                {"least_mhz", megahertz("cpuinfo_min_freq")},
                {"most_mhz", megahertz("cpuinfo_max_freq")},
                {"now_mhz", megahertz("scaling_cur_freq")},
                {"other_runnable_threads", host.load},
                {"steal", host.steal},
                {"virtual_machine", in_virtual_machine()}};
  return cores;
}

Json memory_report(const CpuInfo& cpu) {
  Json memory = {
      {"total_bytes", meminfo("MemTotal")},
      {"available_bytes", meminfo("MemAvailable")},
      {"page_bytes", static_cast<int64_t>(::sysconf(_SC_PAGESIZE))},
      {"transparent_huge_pages", chosen(line_of("/sys/kernel/mm/transparent_hugepage/enabled"))},
      {"huge_page_defragmentation", chosen(line_of("/sys/kernel/mm/transparent_hugepage/defrag"))},
      {"reserved_huge_pages_free", meminfo("HugePages_Free")}};
  memory["cgroup_bytes"] = cpu.cgroup_memory_bytes ? Json(*cpu.cgroup_memory_bytes) : Json(nullptr);
  return memory;
}

Json devices_report() {
  Json devices;
  for (size_t i = 0; i < kDeviceNames.size(); ++i)
    devices[std::to_string(i)] = fmt::format("{}: {}", kDeviceNames[i], kDeviceSummaries[i]);
  return devices;
}

Json programs_report() {
  Json programs;
  for (const Subcommand& s : subcommands())
    programs[std::string(s.name)] = !program_of(s.name).empty();
  return programs;
}

// NVIDIA's compiler, which `nimble compile` takes for GPUs.
Json nvrtc_report() {
  const NvrtcLibrary& library = nvrtc_library();
  if (library.handle) return {{"version", library.version}};
  return {{"version", nullptr}, {"why", library.why}};
}

// Libraries of vendors, whose routines may compute kernels.
Json libraries_report() {
  Json out = Json::object();
  for (const VendorLibrary& library : vendor_libraries()) {
    Json row = {{"version", library.version.empty() ? Json() : Json(library.version)}};
    if (!library.problem.empty()) row["why"] = library.problem;
    out[library.name] = std::move(row);
  }
  return out;
}

// The GPU that device "cuda" is, or why there is none.
Json gpu_report() {
  try {
    const rt::CudaDriver& driver = rt::CudaDriver::open();
    const rt::CudaDeviceInfo gpu = rt::cuda_device_info(driver);
    return {{"name", gpu.name},
            {"number", gpu.ordinal},
            {"capability", fmt::format("{}.{}", gpu.capability / 10, gpu.capability % 10)},
            {"memory_bytes", gpu.memory_bytes},
            {"multiprocessors", gpu.multiprocessors},
            {"block_shared_bytes", gpu.shared_bytes},
            {"driver", "CUDA " + driver.version_text()}};
  } catch (const Error& e) {
    return {{"name", nullptr}, {"why", e.problem()}};
  }
}

// A sentence of what was measured, for people.
std::string sentence_of(const Noise& n) {
  return fmt::format(
      "{}: {} thread{}: two times of the same kernel differ by up to {:.1f} %, so no smaller gain "
      "can be told in one comparison",
      noise_verdict(n.resolution), n.threads, n.threads == 1 ? "" : "s", 100 * n.resolution);
}

Json measured_report(const CpuInfo& cpu, const MeasureOptions& options) {
  Json noise = Json::array(), ceilings = Json::array(), clocks = Json::array();
  for (int threads : options.threads)
    clocks.push_back({{"threads", threads}, {"hz", measure_clock(threads, options.seconds)}});
  for (const Noise& n : measure_noise(options))
    noise.push_back({{"threads", n.threads},
                     {"verdict", noise_verdict(n.resolution)},
                     {"sentence", sentence_of(n)},
                     {"resolution", n.resolution},
                     {"spread", n.spread},
                     {"slow_tail", n.slow_tail},
                     {"drift", n.drift},
                     {"steal", n.steal},
                     {"throttled_s", n.throttled_s},
                     {"preemptions", n.preemptions},
                     {"sample_ns", n.median_ns},
                     {"samples", n.samples}});
  for (const Ceiling& c : measure_ceilings(cpu, options))
    ceilings.push_back({{"kind", c.kind},
                        {"dtype", c.dtype},
                        {"threads", c.threads},
                        {"value", c.value},
                        {"median", c.median},
                        {"unit", c.unit},
                        {"instructions", c.instructions}});
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"at_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
          {"clock", clocks},
          {"noise", noise},
          {"ceilings", ceilings}};
}

// What to change, worst first where that can be said.
std::vector<std::string> advice(const CpuInfo& cpu, const Json& report) {
  std::vector<std::string> out;
  const Json& cores = report["cores"];
  if (host_architecture() == CpuArchitecture::kX86_64 && !cpu.has("x86-64-v2"))
    out.push_back(
        "the CPU is older than x86-64-v2, for which there is no native code: models run in their "
        "portable form (nimble run --no-native), far slower");
  if (cores["other_runnable_threads"] >= 1)
    out.push_back(
        fmt::format("{:.0f} other threads want to run; end them, or wait, before you measure",
                    cores["other_runnable_threads"].get<double>()));
  if (cores["steal"] > 0.01)
    out.push_back(
        fmt::format("the hypervisor gives {:.1f} % of the processors to others; measure on a "
                    "dedicated machine, "
                    "or at a quieter hour",
                    100 * cores["steal"].get<double>()));
  if (report["memory"]["transparent_huge_pages"] == "never")
    out.push_back(
        "transparent huge pages are off; packed weights will be slower: "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  if (cores["governor"] == "powersave" || cores["governor"] == "ondemand")
    out.push_back(
        "the frequency governor is not \"performance\"; measurements will be noisy: "
        "cpupower frequency-set -g performance");
  if (cores["turbo"] == true && cores["virtual_machine"] == false)
    out.push_back(
        "turbo is on: the clock depends on heat and on how many cores work; times of one thread "
        "and "
        "of all are of different clocks");
  if (cores["smt"] == true && cpu.affinity_cpus > cpu.affinity_cores)
    out.push_back(fmt::format(
        "two hardware threads share a core; nimble uses {} threads, others on the same cores slow "
        "them down: taskset them away, or echo off > /sys/devices/system/cpu/smt/control",
        cpu.usable_threads()));
  if (cpu.cgroup_cpus && *cpu.cgroup_cpus < cpu.affinity_cores)
    out.push_back(
        fmt::format("a control group limits the process to {:.2f} CPUs; threads beyond "
                    "that are throttled, choose --threads accordingly",
                    *cpu.cgroup_cpus));
  if (tile_registers() == TileRegisters::kRefused)
    out.push_back(
        "the CPU has AMX, but Linux refuses this process its tile registers: kernels for it are "
        "passed over (a thread's alternative signal stack may be too small, or a sandbox forbids "
        "arch_prctl)");
  if (cores["virtual_machine"] == true)
    out.push_back("this is a virtual machine; compare times only within one run");
  if (report.contains("measured"))
    for (const Json& n : report["measured"]["noise"]) {
      if (n["throttled_s"] > 0)
        out.push_back(fmt::format(
            "the control group's quota held {} threads back for {:.2f} s; raise it or use fewer",
            n["threads"].get<int>(), n["throttled_s"].get<double>()));
      if (std::fabs(n["drift"].get<double>()) > 0.02)
        out.push_back(fmt::format(
            "times of {} threads drifted by {:+.1f} % within a second; the clock or a neighbour "
            "changes: measure longer, and compare interleaved",
            n["threads"].get<int>(), 100 * n["drift"].get<double>()));
    }
  return out;
}

void print_rows(const std::string& prefix, const Json& value, Table* table) {
  if (prefix == "cpu.caches") {
    for (const Json& c : value)
      table->add(
          {fmt::format("cpu.cache.l{}.{}", c["level"].get<int>(), c["type"].get<std::string>()),
           fmt::format("{}, lines of {} bytes, shared by {} CPUs", human(c["bytes"]),
                       c["line_bytes"].get<int>(), c["shared_by_cpus"].get<int>())});
  } else if (prefix == "measured.ceilings") {
    for (const Json& c : value)
      table->add(
          {fmt::format("measured.{}.{}.{}_threads", c["kind"].get<std::string>(),
                       c["dtype"].get<std::string>(), c["threads"].get<int>()),
           fmt::format(
               "{:.4g} G{}{}", c["value"].get<double>() / 1e9, c["unit"].get<std::string>(),
               c["kind"] == "compute" ? " (" + c["instructions"].get<std::string>() + ")" : "")});
  } else if (prefix == "measured.clock") {
    for (const Json& c : value)
      table->add({fmt::format("measured.clock.{}_threads", c["threads"].get<int>()),
                  fmt::format("{:.2f} GHz", c["hz"].get<double>() / 1e9)});
  } else if (prefix == "measured.noise") {
    for (const Json& n : value)
      table->add(
          {fmt::format("measured.noise.{}_threads", n["threads"].get<int>()), n["sentence"]});
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      print_rows(prefix.empty() ? key : prefix + "." + key, inner, table);
  } else if (prefix == "advice") {
    for (const Json& words : value) table->add({prefix, words});
  } else if (value.is_array()) {
    std::string words;
    for (const Json& word : value) words += (words.empty() ? "" : " ") + word.get<std::string>();
    table->add({prefix, words});
  } else if (value.is_null() || value == "") {
    table->add({prefix, "none"});
  } else if (value.is_boolean()) {
    table->add({prefix, value.get<bool>() ? "yes" : "no"});
  } else if (value.is_string()) {
    table->add({prefix, value.get<std::string>()});
  } else if (value.is_number_integer() && prefix.ends_with("_bytes")) {
    table->add({prefix, human(value)});
  } else {
    table->add({prefix, value.dump()});
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Tell what nimble sees of this machine and what is installed.", "nimble doctor"};
  Format format = Format::kTable;
  bool measure = false;
  MeasureOptions options;
  add_format(app, &format, "The report");
  app.add_flag(
      "--measure", measure,
      "Also measure, for some ten seconds: the noise of times, the clock, and the peaks of\n"
      "arithmetic and memory that rooflines are drawn under, by type and threads");
  app.add_option("--threads", options.threads,
                 "Of --measure: numbers of threads (default: 1, and all that may be used)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.seconds,
                 "Of --measure: the time for each peak; the noise takes ten times as long")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  nimble doctor --format json\n"
      "  nimble doctor --measure\n"
      "  nimble doctor --measure --threads 1,4,8 --format json > machine.json");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  const CpuInfo& cpu = host_cpu();
  // Libraries and drivers start threads and take memory, which measuring would feel: what is null
  // here is asked for behind it.
  Json report = {{"version", NIMBLE_VERSION},
                 {"cpu", cpu_report(cpu)},
                 {"cores", cores_report(cpu)},
                 {"memory", memory_report(cpu)},
                 {"devices", devices_report()},
                 {"gpu", nullptr},
                 {"nvrtc", nullptr},
                 {"libraries", nullptr},
                 {"programs", programs_report()}};
  if (measure) {
    if (options.threads.empty()) {
      options.threads = {1};
      if (cpu.usable_threads() > 1) options.threads.push_back(cpu.usable_threads());
    }
    if (::isatty(STDERR_FILENO))
      options.progress = [](const std::string& what) {
        fmt::print(stderr, "\r\x1b[Kmeasuring {} …", what);
        std::fflush(stderr);
      };
    report["measured"] = measured_report(cpu, options);
    if (options.progress) fmt::print(stderr, "\r\x1b[K");
  }
  report["gpu"] = gpu_report();
  report["nvrtc"] = nvrtc_report();
  report["libraries"] = libraries_report();
  report["advice"] = advice(cpu, report);
  const auto rows = [&] {
    Table table({"what", "value"});
    print_rows("", report, &table);
    return table;
  };
  print_report(
      std::cout, format, [&] { return report; }, rows, [&] { std::cout << rows().text(); });
  return kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble doctor", [&] { return nimble::run(argc, argv); });
}
