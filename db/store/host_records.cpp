#include "db/store/host_records.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "vm/base/cpu.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

// One number of /proc/cpuinfo ("model\t\t: 143"); 0 if it is not there.
int64_t cpuinfo_number(const std::string& field) {
  std::FILE* f = std::fopen("/proc/cpuinfo", "r");
  if (!f) return 0;
  char line[512];
  int64_t value = 0;
  while (std::fgets(line, sizeof line, f)) {
    std::string text = line;
    size_t colon = text.find(':');
    if (colon == std::string::npos) break;  // only the first CPU
    std::string name = text.substr(0, text.find_last_not_of(" \t", colon - 1) + 1);
    if (name == field) value = std::strtoll(text.c_str() + colon + 1, nullptr, 0);
  }
  std::fclose(f);
  return value;
}

std::string cache_text(const CpuInfo& cpu) {
  std::string out;
  for (const CpuCache& c : cpu.caches)
    if (c.type != "instruction")
      out +=
          fmt::format("{}L{} {}K/{}", out.empty() ? "" : ", ", c.level, c.bytes >> 10, c.shared_by);
  return out;
}

}  // namespace

Hardware host_hardware() {
  const CpuInfo& cpu = host_cpu();
  Hardware h;
  h.vendor = cpu.vendor;
  if (host_architecture() == CpuArchitecture::kAArch64) {
    h.family = cpuinfo_number("CPU implementer");
    h.model = cpuinfo_number("CPU part");
    h.stepping = 16 * cpuinfo_number("CPU variant") + cpuinfo_number("CPU revision");
  } else {
    h.family = cpuinfo_number("cpu family");
    h.model = cpuinfo_number("model");
    h.stepping = cpuinfo_number("stepping");
  }
  h.model_name = cpu.model;
  h.isa = isa_of(cpu);
  h.caches = cache_text(cpu);
  h.topology = fmt::format("{} cores, {} CPUs", cpu.physical_cores, cpu.logical_cpus);
  h.virtualised = cpu.has("hypervisor");
  return h;
}

int64_t last_cache_bytes(const Hardware& h) {
  // "L1 48K/1, L2 2048K/1, L3 107520K/2", as cache_text has it.
  int64_t level = 0, bytes = 0;
  for (size_t at = 0; at < h.caches.size();) {
    const size_t end = std::min(h.caches.find(',', at), h.caches.size());
    int number = 0;
    long kib = 0;  // of at most nine digits, lest a forged record overflows it
    if (std::sscanf(h.caches.substr(at, end - at).c_str(), " L%1d %9ldK", &number, &kib) == 2 &&
        number > level && kib > 0) {
      level = number;
      bytes = int64_t{kib} << 10;
    }
    at = end + 1;
  }
  return bytes;
}

Hardware find_hardware(Store& store, const std::string& name) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  const std::vector<Hardware> all = store.hardware();
  // The more exact reading first: a whole name may be part of another one.
  std::vector<const Hardware*> by_key, by_name, by_part;
  for (const Hardware& h : all) {
    if (name.size() >= 4 && key_of(h).starts_with(name)) by_key.push_back(&h);
    if (h.model_name == name) by_name.push_back(&h);
    if (lower(h.model_name).find(lower(name)) != std::string::npos) by_part.push_back(&h);
  }
  const auto& found = !by_key.empty() ? by_key : !by_name.empty() ? by_name : by_part;
  if (found.size() == 1 && !name.empty()) return *found[0];
  std::string list;
  const auto add = [&](const Hardware& h) {
    list += fmt::format("{}{} {} ({}, {})", list.empty() ? "" : "; ", key_of(h).substr(0, 12),
                        h.model_name, h.isa, h.topology);
  };
  if (found.size() > 1 && !name.empty()) {
    for (const Hardware* h : found) add(*h);
    throw Error(Status::kInvalidArgument, "--hardware " + name,
                fmt::format("names {} machines' hardware", found.size()),
                "give the beginning of a fingerprint: " + list);
  }
  for (const Hardware& h : all) add(h);
  throw Error(Status::kNotFound, "--hardware " + name,
              fmt::format("{} has no records of such hardware", store.path()),
              list.empty() ? "it has none of any: nimble tune makes them" : "it knows " + list);
}

Machine host_machine() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return {{}, name, key_of(host_hardware())};
}

}  // namespace nimble::db
