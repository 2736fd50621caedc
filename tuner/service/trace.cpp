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

// Where the columns stand that the trace is of, and the count's, from the first line.
struct Header {
  char separator = '\t';
  std::vector<std::string> names;
  std::vector<size_t> at;
  std::optional<size_t> counted;
};

Header read_header(const std::string& line, const std::string& file,
                   const std::vector<std::string>& columns,
                   const std::vector<std::string>& symbols) {
  Header h;
  if (line.find('\t') == std::string::npos) h.separator = ',';
  h.names = split(line, h.separator);
  const std::string all = printable(fmt::format("{}", fmt::join(h.names, ", ")));
  const auto place = [&](const std::string& column) {
    return static_cast<size_t>(std::find(h.names.begin(), h.names.end(), column) - h.names.begin());
  };
  const bool counts = h.names.size() > 1 && h.names.back() == "count";
  std::vector<std::string> wanted = columns;
  if (wanted.empty())
    for (size_t i = 0; i + counts < h.names.size(); ++i)
      if (std::find(symbols.begin(), symbols.end(), h.names[i]) != symbols.end() &&
          place(h.names[i]) == i)
        wanted.push_back(h.names[i]);
  if (wanted.empty()) {
    if (h.names.size() > (counts ? 2 : 1))
      throw Error(
          Status::kInvalidArgument, file,
          fmt::format(
              "has {} columns ({}), and none is called like a symbol of the model{}",
              h.names.size(), all,
              symbols.empty() ? "" : printable(fmt::format(" ({})", fmt::join(symbols, ", ")))),
          fmt::format("name one: --trace {}:{}", file, printable(h.names.back())));
    wanted = {h.names[0]};
  }
  for (const std::string& column : wanted) {
    if (place(column) == h.names.size())
      throw Error(Status::kInvalidArgument, file,
                  fmt::format("has no column \"{}\"", printable(column)), "it has " + all);
    h.at.push_back(place(column));
  }
  if (counts && std::find(h.at.begin(), h.at.end(), h.names.size() - 1) == h.at.end())
    h.counted = h.names.size() - 1;
  return h;
}

}  // namespace

int64_t Trace::quantile(size_t column, double share) const {
  std::map<int64_t, int64_t> sizes;
  for (const auto& [row, count] : counts) sizes[row[column]] += count;
  int64_t below = 0, last = 0;
  for (const auto& [size, count] : sizes) {
    below += count;
    last = size;
    if (static_cast<double>(below) >= share * static_cast<double>(total)) return size;
  }
  return last;
}

Trace read_trace(const std::string& text, const std::vector<std::string>& symbols) {
  const size_t colon = text.rfind(':');
  const std::string file = text.substr(0, colon);
  const std::string columns = colon == std::string::npos ? "" : text.substr(colon + 1);
  return parse_trace(read_text_file(file), file, split(columns, ','), symbols);
}

Trace parse_trace(const std::string& contents, const std::string& file,
                  const std::vector<std::string>& columns,
                  const std::vector<std::string>& symbols) {
  const auto is_text = [](char c) {
    return static_cast<unsigned char>(c) >= ' ' || c == '\t' || c == '\n' || c == '\r';
  };
  if (!std::all_of(contents.begin(), contents.end(), is_text))
    throw Error(Status::kCorrupt, file, "is not text",
                "give a table: a header line and a row per request");
  Trace trace{file, {}, {}, 0};
  std::istringstream in(contents);
  std::optional<Header> header;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (!header) {
      header = read_header(line, file, columns, symbols);
      for (size_t at : header->at) trace.columns.push_back(header->names[at]);
      continue;
    }
    const std::vector<std::string> fields = split(line, header->separator);
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
    const auto unknown = [&](size_t at) { return at < fields.size() && fields[at] == "-"; };
    if (std::any_of(header->at.begin(), header->at.end(), unknown)) continue;
    std::vector<int64_t> row;
    for (size_t at : header->at) row.push_back(number_in(at, kLargestSize, "size"));
    const int64_t times = header->counted ? number_in(*header->counted, kMostCounted, "count") : 1;
    if (times == 0) continue;
    if (trace.total > kMostInAll - times)
      throw Error(Status::kCorrupt, fmt::format("{}:{}", file, number), "the counts are too large",
                  fmt::format("{} in all is the most", kMostInAll));
    trace.counts[std::move(row)] += times;
    trace.total += times;
  }
  if (trace.total == 0)
    throw Error(Status::kInvalidArgument, file, "holds no sizes",
                "give a header line and a row per request");
  return trace;
}

}  // namespace nimble::tuner
