#include "tuner/service/gpu_code_record.h"

namespace nimble::tuner {

nlohmann::json gpu_code_json(const GpuCode& code) {
  return {code.threads, code.shared_bytes, code.registers, code.spill_bytes};
}

GpuCode gpu_code_from_json(const nlohmann::json& entry) {
  const auto at = entry.find("gpu_code");
  if (at == entry.end() || !at->is_array() || at->size() != 4) return {};
  constexpr int64_t kMost[] = {1024, 1 << 24, 255, 1 << 24};
  int64_t found[4];
  for (size_t i = 0; i < 4; ++i) {
    if (!at->at(i).is_number_integer()) return {};
    found[i] = at->at(i).get<int64_t>();
    if (found[i] < 0 || found[i] > kMost[i]) return {};
  }
  return {found[0], found[1], found[2], found[3]};
}

}  // namespace nimble::tuner
