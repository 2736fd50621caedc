#include "tuner/service/trace.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/printable.h"

namespace nimble::tuner {
namespace {

// Of one row; and of all rows the most that a later product with weights has room for.
constexpr int64_t kMostCounted = 1'000'000'000'000, kMostInAll = 1'000'000 * kMostCounted;

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> out;
  std::string field;
  std::istringstream in(line);
  while (std::getline(in, field, separator)) out.push_back(field);
  return out;
}

}  // namespace

int64_t Trace::quantile(double share) const {
  int64_t below = 0, last = 0;
  for (const auto& [size, count] : counts) {
    below += count;
    last = size;
    if (static_cast<double>(below) >= share * static_cast<double>(total)) return size;
  }
  return last;
}

Trace read_trace(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string file = text.substr(0, colon);
  const std::string column = colon == std::string::npos ? "" : text.substr(colon + 1);
  return parse_trace(read_text_file(file), file, column);
}

Trace parse_trace(const std::string& contents, const std::string& file, const std::string& column) {
  const auto is_text = [](char c) {
    return static_cast<unsigned char>(c) >= ' ' || c == '\t' || c == '\n' || c == '\r';
  };
  if (!std::all_of(contents.begin(), contents.end(), is_text))
    throw Error(Status::kCorrupt, file, "is not text",
                "give a table: a header line and a row per request");
  Trace trace{file, column, {}, 0};
  std::istringstream in(contents);
  std::vector<std::string> header;
  const auto names = [&] { return printable(fmt::format("{}", fmt::join(header, ", "))); };
  char separator = '\t';
  size_t at = 0, number = 0;
  std::optional<size_t> counted;  // the column that says how often a row came up
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (header.empty()) {
      if (line.find('\t') == std::string::npos) separator = ',';
      header = split(line, separator);
      const bool counts = header.size() > 1 && header.back() == "count";
      if (column.empty() && header.size() > (counts ? 2 : 1))
        throw Error(Status::kInvalidArgument, file,
                    fmt::format("has {} columns ({})", header.size(), names()),
                    fmt::format("name one: --trace {}:{}", file, printable(header.back())));
      const auto it = std::find(header.begin(), header.end(), column);
      if (!column.empty() && it == header.end())
        throw Error(Status::kInvalidArgument, file, fmt::format("has no column \"{}\"", column),
                    fmt::format("it has {}", names()));
      at = column.empty() ? 0 : static_cast<size_t>(it - header.begin());
      if (counts && at + 1 != header.size()) counted = header.size() - 1;
      continue;
    }
    const std::vector<std::string> fields = split(line, separator);
    const auto number_in = [&](size_t index, int64_t most, const char* what) {
      int64_t value = 0;
      const std::string field = index < fields.size() ? fields[index] : "";
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      if (error != std::errc() || end != field.data() + field.size() || value < 0 || value > most)
        throw Error(Status::kCorrupt, fmt::format("{}:{}", file, number),
                    fmt::format("\"{}\" is not a {}", printable(field), what),
                    fmt::format("give whole numbers from 0 to {} in each row of the column", most));
      return value;
    };
    if (at < fields.size() && fields[at] == "-") continue;
    const int64_t size = number_in(at, INT64_MAX, "size");
    const int64_t times = counted ? number_in(*counted, kMostCounted, "count") : 1;
    if (times == 0) continue;
    if (trace.total > kMostInAll - times)
      throw Error(Status::kCorrupt, fmt::format("{}:{}", file, number), "the counts are too large",
                  fmt::format("{} in all is the most", kMostInAll));
    trace.counts[size] += times;
    trace.total += times;
  }
  if (trace.total == 0)
    throw Error(Status::kInvalidArgument, file, "holds no sizes",
                "give a header line and a row per request");
  return trace;
}

}  // namespace nimble::tuner
