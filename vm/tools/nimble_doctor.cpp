// nimble doctor: what nimble sees of this machine. The report is the first thing to attach to a
// question about speed: which instructions, caches and cores there are, what limits the process,
// what makes measurements noisy, and which programs are installed.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "vm/arguments/command_line.h"
#include "vm/base/cpu.h"
#include "vm/base/device_number.h"
#include "vm/base/json_text.h"
#include "vm/base/text_table.h"
#include "vm/tools/subcommands.h"

namespace nimble {
namespace {

using Json = nlohmann::ordered_json;

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
  return {{"vendor", cpu.vendor},     {"model", cpu.model},         {"level", cpu.level},
          {"features", cpu.features}, {"amx_usable", enable_amx()}, {"caches", caches}};
}

Json cores_report(const CpuInfo& cpu) {
  Json cores = {{"logical_cpus", cpu.logical_cpus},
                {"cpus_in_affinity_mask", cpu.affinity_cpus},
                {"physical_cores", cpu.physical_cores},
                {"cores_in_affinity_mask", cpu.affinity_cores},
                {"usable_threads", cpu.usable_threads()}};
  cores["cgroup_cpus"] = cpu.cgroup_cpus ? Json(*cpu.cgroup_cpus) : Json(nullptr);
  cores["governor"] = line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  const std::string no_turbo = line_of("/sys/devices/system/cpu/intel_pstate/no_turbo");
  cores["turbo"] = no_turbo.empty() ? Json(nullptr) : Json(no_turbo == "0");
  cores["virtual_machine"] = in_virtual_machine();
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

std::vector<std::string> advice(const CpuInfo& cpu, const Json& report) {
  std::vector<std::string> out;
  if (!cpu.has("x86-64-v2"))
    out.push_back("the CPU is older than x86-64-v2; executables must be compiled for x86-64");
  if (report["memory"]["transparent_huge_pages"] == "never")
    out.push_back(
        "transparent huge pages are off; packed weights will be slower: "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  if (report["cores"]["governor"] == "powersave" || report["cores"]["governor"] == "ondemand")
    out.push_back(
        "the frequency governor is not \"performance\"; measurements will be noisy: "
        "cpupower frequency-set -g performance");
  if (cpu.cgroup_cpus && *cpu.cgroup_cpus < cpu.affinity_cores)
    out.push_back(
        fmt::format("a control group limits the process to {:.2f} CPUs; threads beyond "
                    "that are throttled, choose --threads accordingly",
                    *cpu.cgroup_cpus));
  if (cpu.has("amx_tile") && !enable_amx())
    out.push_back("the CPU has AMX, but the system does not let programs use it");
  if (report["cores"]["virtual_machine"] == true)
    out.push_back("this is a virtual machine; compare times only within one run");
  return out;
}

void print_rows(const std::string& prefix, const Json& value, TextTable* table) {
  if (prefix == "cpu.caches") {
    for (const Json& c : value)
      table->add(
          {fmt::format("cpu.cache.l{}.{}", c["level"].get<int>(), c["type"].get<std::string>()),
           fmt::format("{}, lines of {} bytes, shared by {} CPUs", human(c["bytes"]),
                       c["line_bytes"].get<int>(), c["shared_by_cpus"].get<int>())});
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      print_rows(prefix.empty() ? key : prefix + "." + key, inner, table);
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
  std::string format = "table";
  app.add_option("--format", format, "How to print: table or json")
      ->check(CLI::IsMember({"table", "json"}).description(""))
      ->type_name("FORMAT");
  app.footer("Example:\n  nimble doctor --format json\n\nExit codes: 0 ok, 1 failure, 2 usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return exit_of_arguments(app, e);
  }
  const CpuInfo& cpu = host_cpu();
  Json report = {{"version", NIMBLE_VERSION},   {"cpu", cpu_report(cpu)},
                 {"cores", cores_report(cpu)},  {"memory", memory_report(cpu)},
                 {"devices", devices_report()}, {"programs", programs_report()}};
  const std::vector<std::string> words = advice(cpu, report);
  if (format == "json") {
    report["advice"] = words;
    std::puts(json_text(report).c_str());
    return kExitOk;
  }
  TextTable table({"what", "value"});
  print_rows("", report, &table);
  std::fputs(table.str().c_str(), stdout);
  for (const std::string& w : words) std::printf("advice: %s\n", w.c_str());
  return kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble doctor", [&] { return nimble::run(argc, argv); });
}
