// A session's profile with what it took of memory: the most that was live at once, and what its
// pool holds from the system.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "vm/api/nimble.hpp"

namespace nimble {

inline std::string profile_table_with_memory(api::Session& session) {
  const nimble_memory_stats m = session.memory();
  return fmt::format(
      "{}memory: {} bytes live at the peak, {} held; {} requests, {} served by "
      "blocks already held\n",
      session.profile_table(), m.peak, m.reserved, m.allocations, m.reuses);
}

inline nlohmann::json profile_json_with_memory(api::Session& session) {
  const nimble_memory_stats m = session.memory();
  nlohmann::json out = nlohmann::json::parse(session.profile_json(), nullptr, false);
  out["memory"] = {{"peak_live_bytes", m.peak},
                   {"held_bytes", m.reserved},
                   {"requests", m.allocations},
                   {"reuses", m.reuses}};
  return out;
}

}  // namespace nimble
