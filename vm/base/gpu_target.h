// The targets of code for NVIDIA GPUs, and which GPUs run it. A capability is 90 for 9.0.
//
//   sm_80        machine code: of 8.0, and of later ones of 8.x
//   sm_100f      machine code for the family: as above
//   sm_90a       machine code with what only 9.0 has: no other GPU's
//   compute_80   assembly that the driver compiles: of 8.0 and every later one
//   compute_90a  assembly with what only 9.0 has
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace nimble {

struct GpuTarget {
  int capability = 0;
  bool assembly = false;
  bool exact = false;  // "a"

  bool runs_on(int device) const {
    if (exact) return device == capability;
    return device >= capability && (assembly || device / 10 == capability / 10);
  }
  // Of two that run somewhere, whether this one is made for it more closely.
  bool better_than(const GpuTarget& other) const {
    if (assembly != other.assembly) return other.assembly;
    if (exact != other.exact) return exact;
    return capability > other.capability;
  }
};

// Nothing for what names no GPU's code.
inline std::optional<GpuTarget> gpu_target(std::string_view name) {
  GpuTarget t;
  if (name.starts_with("compute_"))
    t.assembly = true;
  else if (!name.starts_with("sm_"))
    return std::nullopt;
  name.remove_prefix(name.find('_') + 1);
  if (name.ends_with('a') || name.ends_with('f')) {
    t.exact = name.ends_with('a');
    name.remove_suffix(1);
  }
  if (name.size() < 2 || name.size() > 3 || name[0] == '-') return std::nullopt;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), t.capability);
  if (error != std::errc() || rest != name.data() + name.size()) return std::nullopt;
  return t;
}

}  // namespace nimble
