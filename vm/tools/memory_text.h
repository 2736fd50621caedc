// A session's profile with what it took of memory: the most that was live at once, and what its
// pool holds from the system.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "vm/api/nimble.hpp"
#include "vm/arguments/table.h"

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

inline Table profiled_kernels(const nlohmann::json& profile) {
  Table table({"name", "source", "implementation", "config", "shape", "count", "total_ns"});
  for (const nlohmann::json& kernel : profile.at("kernels")) table.add_object(kernel);
  return table;
}

// The profile as a program prints it.
inline std::string profile_text(api::Session& session, Format format) {
  std::ostringstream out;
  print_report(
      out, format, [&] { return Table::Json(profile_json_with_memory(session)); },
      [&] { return profiled_kernels(profile_json_with_memory(session)); },
      [&] { out << profile_table_with_memory(session) << '\n'; });
  return out.str();
}

}  // namespace nimble
