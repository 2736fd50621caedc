// `nimble gui --export VIEW`: a window as a file, without a display.
#pragma once

#include <QString>
#include <string>

#include "gui/model/selection.h"
#include "gui/model/session.h"
#include "gui/view/picture.h"

namespace nimble::gui {

struct ViewInfo;

struct ExportRequest {
  DatabasePlace place;
  std::string view, output;
  // Beginnings of hashes and UUIDs, as nimble's programs take them; a workload also by a part of
  // its text. Without a workload: the first that has a table. Without hardware: the first of it.
  Choice choice;
  PictureOptions picture;
};

// The window of this name. Error(kInvalidArgument) if there is none.
const ViewInfo& view_named(const std::string& name);

// Throws Error: kNotFound for a workload, … that there is none of, kInvalidArgument for a beginning
// that several have, as view_named and require_export_format do, and what opening and writing
// throw.
void run_export(const ExportRequest& request);

// Handles events until nothing is asked any more and no window waits.
void settle(const Session& session, const std::function<bool()>& waiting);

}  // namespace nimble::gui
