#include "db/store/gpu_records.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "vm/base/gpu_target.h"

namespace nimble::db {

Hardware gpu_hardware(const GpuFacts& gpu) {
  Hardware h;
  h.vendor = "NVIDIA";
  h.family = gpu.capability / 10;
  h.model = gpu.capability % 10;
  h.model_name = gpu.name;
  h.isa = fmt::format("sm_{}", gpu.capability);
  if (gpu.l2_bytes > 0)
    h.caches = fmt::format("L2 {}K/{}", gpu.l2_bytes >> 10, gpu.multiprocessors);
  // To the GiB: drivers differ in what they keep for themselves.
  h.topology = fmt::format("{} multiprocessors, {:.0f} GiB", gpu.multiprocessors,
                           std::round(static_cast<double>(gpu.memory_bytes) / double{1 << 30}));
  if (gpu.memory_khz > 0 && gpu.bus_bits > 0)
    h.topology += fmt::format(", {} MHz x {} bits", gpu.memory_khz / 1000, gpu.bus_bits);
  return h;
}

Machine gpu_machine(const GpuFacts& gpu) {
  Machine m;
  m.hostname = host_machine().hostname;
  if (!gpu.slot.empty()) m.hostname += " GPU " + gpu.slot;
  m.hardware = key_of(gpu_hardware(gpu));
  if (!gpu.uuid.empty()) m.uuid = uuid_from_hash(hash_of_fields("gpu", {gpu.uuid, m.hardware}));
  return m;
}

std::string driver_text(int64_t driver) {
  return fmt::format("{}.{}", driver / 1000, driver % 1000 / 10);
}

int64_t driver_of(const CampaignKey& campaign) {
  const nlohmann::json options = nlohmann::json::parse(campaign.options, nullptr, false);
  if (!options.is_object()) return 0;
  const auto it = options.find(kDriverOption);
  return it != options.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

std::optional<int> gpu_capability(const Hardware& hardware) {
  const std::optional<GpuTarget> target = gpu_target(hardware.isa);
  if (!target || target->assembly) return std::nullopt;
  return target->capability;
}

}  // namespace nimble::db
