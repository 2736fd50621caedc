#include <unistd.h>

#include "compiler/codegen/codegen.h"
#include "compiler/tuned/tuned.h"
#include "vm/base/cpu.h"

namespace nimble::tuned {
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
    if (name == field) value = std::atoll(text.c_str() + colon + 1);
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

db::Hardware host_hardware() {
  const CpuInfo& cpu = host_cpu();
  db::Hardware h;
  h.vendor = cpu.vendor;
  h.family = cpuinfo_number("cpu family");
  h.model = cpuinfo_number("model");
  h.stepping = cpuinfo_number("stepping");
  h.model_name = cpu.model;
  h.isa = cpu.level;
  for (const char* extra : {"amx_tile", "avx512_bf16", "avx512_vnni"})
    if (cpu.has(extra)) h.isa += std::string("+") + extra;
  h.caches = cache_text(cpu);
  h.topology = fmt::format("{} cores, {} CPUs", cpu.physical_cores, cpu.logical_cpus);
  h.virtualised = cpu.has("hypervisor");
  return h;
}

db::Machine host_machine() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return {{}, name, db::key_of(host_hardware())};
}

db::Toolchain toolchain_record() {
  std::string backend = codegen::backend_version();  // "LLVM 19.1.7"
  size_t space = backend.find(' ');
  db::Toolchain t;
  t.compiler = "llvm";
  t.version = space == std::string::npos ? backend : backend.substr(space + 1);
  t.codegen_version = codegen::kCodegenVersion;
  t.revision = NIMBLE_VERSION;
  return t;
}

}  // namespace nimble::tuned
