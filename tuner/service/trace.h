// A trace of sizes: what lengths a model will meet, and how often.
//
// The file is text: lines that begin with # are comments, the first other line names the columns,
// the rest are rows; fields are separated by tabs (or commas, if there is no tab in the header). If
// the last of several columns is called "count", it says how often its row came up. A size that is
// not known is "-": the row is left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace nimble::tuner {

struct Trace {
  std::string file, column;
  std::map<int64_t, int64_t> counts;  // size → how often
  int64_t total = 0;
  // The size below or at which a share of all lies (0 … 1).
  int64_t quantile(double share) const;
};

// Reads "FILE:COLUMN"; without ":COLUMN" the file must have one column of numbers only,
// beside their count.
// Error: kNotFound, kIo, kCorrupt (with the line), kInvalidArgument (unknown column, no rows).
Trace read_trace(const std::string& text);
Trace parse_trace(const std::string& contents, const std::string& file, const std::string& column);

}  // namespace nimble::tuner
