// A file of the shapes that runs had: a table that `nimble tune --trace FILE:SYMBOL` reads, with a
// row for each run.
#pragma once

#include <string>

#include "vm/api/nimble.hpp"

namespace nimble {

// Error(kUnsupported) if the entry point ("": the default one) has no named dims to record.
void require_named_dims(const api::Model& model, const std::string& entry);

// That append_shapes may write to the file, as far as can be said before there is a row: as its
// errors. What is there stays as it is.
void require_recordable(const std::string& file, api::Session& session, const std::string& entry);

// Appends what the session counted of the entry point, a row for each of its shapes; makes the file
// with its header if it is not there. A row is written in one piece, so many processes may record
// into one file, and a process that is killed leaves whole rows. Error(kInvalidArgument) if
// the file is a record of other dims, kIo.
void append_shapes(const std::string& file, api::Session& session, const std::string& entry);

}  // namespace nimble
