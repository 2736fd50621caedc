// How often and by how much a vendor's routine beats ours, as a column of the programs' tables.
#pragma once

#include "db/store/vendor_standing.h"
#include "vm/arguments/table.h"

namespace nimble::tools {

inline Column vendor_column() {
  return {"vendor", "vendor wins", [](const Column::Json& standing) {
            const auto known = db::vendor_standing_of(Column::Json{{"vendor", standing}}.dump());
            return known ? db::text_of(*known) : "-";
          }};
}

}  // namespace nimble::tools
