#include "tuner/service/gpu_code_record.h"

#include <iterator>

namespace nimble::tuner {
namespace {

struct Field {
  const char* name;
  int64_t GpuCode::*of;
  int64_t most;
};
constexpr Field kFields[] = {
    {"threads", &GpuCode::threads, 1024},
    {"shared_bytes", &GpuCode::shared_bytes, 1 << 24},
    {"registers", &GpuCode::registers, 255},
    {"spill_bytes", &GpuCode::spill_bytes, 1 << 24},
};

}  // namespace

nlohmann::json gpu_code_json(const GpuCode& code) {
  nlohmann::json fields;
  for (const Field& f : kFields) fields[f.name] = code.*f.of;
  return fields;
}

GpuCode gpu_code_from_json(const nlohmann::json& entry) {
  const auto at = entry.find("gpu_code");
  if (at == entry.end() || at->size() != std::size(kFields)) return {};
  GpuCode code;
  for (size_t i = 0; i < std::size(kFields); ++i) {
    const Field& f = kFields[i];
    const nlohmann::json* number = nullptr;
    if (at->is_array()) number = &at->at(i);
    if (at->is_object() && at->contains(f.name)) number = &at->at(f.name);
    if (!number || !number->is_number_integer()) return {};
    code.*f.of = number->get<int64_t>();
    if (code.*f.of < 0 || code.*f.of > f.most) return {};
  }
  return code;
}

}  // namespace nimble::tuner
