// How a GPU's kernel is launched, in the tables of several programs.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "vm/arguments/table.h"

namespace nimble {

// Of {"grid": [x, y, z], "threads": …, "shared_bytes": …, "steps": …}, of which the last is null
// where the grid does none; people see the column if `shown`.
inline Column launch_column(bool shown) {
  return Column("launch", shown ? "launch" : "", [](const Table::Json& launch) {
    if (launch.is_null()) return std::string("-");
    std::string grid;
    for (const Table::Json& blocks : launch.at("grid"))
      grid += (grid.empty() ? "" : ", ") +
              (blocks.is_string() ? blocks.get<std::string>() : blocks.dump());
    const Table::Json& steps = launch.at("steps");
    return fmt::format(
        "({}) blocks of {} threads, {} bytes shared{}", grid, launch.at("threads").get<uint32_t>(),
        launch.at("shared_bytes").get<uint32_t>(),
        steps.is_null() ? ""
                        : fmt::format(", {} steps",
                                      steps.is_string() ? steps.get<std::string>() : steps.dump()));
  });
}

}  // namespace nimble
