// A campaign's trials as rows of a table.
#pragma once

#include "gui/model/paged_model.h"

namespace nimble::gui {

std::vector<PagedColumn> trial_columns();
// The query's order is set by the column that the table is sorted by.
PagedModel::MakeSource trials_source(TrialQuery query);

}  // namespace nimble::gui
