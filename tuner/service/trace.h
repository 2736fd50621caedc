// A trace of sizes: what shapes a model will meet, and how often.
//
// The file is text: lines that begin with # are comments, the first other line names the columns,
// the rest are rows; fields are separated by tabs (or commas, if there is no tab in the header). If
// the last of several columns is called "count", it says how often its row came up. A size that is
// not known is "-": the row is left out. Several columns are sizes that were met together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nimble::tuner {

// No extent is larger, of a trace or of a campaign.
inline constexpr int64_t kLargestSize = int64_t{1} << 31;

struct Trace {
  std::string file;
  std::vector<std::string> columns;
  std::map<std::vector<int64_t>, int64_t> counts;  // a size for each column → how often
  int64_t total = 0;
  // The size of a column below or at which a share of all lies (0 … 1).
  int64_t quantile(size_t column, double share) const;
};

// Reads "FILE:COLUMN" or "FILE:COLUMN,COLUMN"; without a column those that are called like one of
// `symbols`, or the only one beside the count.
// Error: kNotFound, kIo, kCorrupt (with the line), kInvalidArgument (unknown column, no rows).
Trace read_trace(const std::string& text, const std::vector<std::string>& symbols);
Trace parse_trace(const std::string& contents, const std::string& file,
                  const std::vector<std::string>& columns,
                  const std::vector<std::string>& symbols = {});

}  // namespace nimble::tuner
