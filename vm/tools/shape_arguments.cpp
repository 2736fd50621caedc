#include "vm/tools/shape_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "vm/base/error.h"

namespace nimble {
namespace {

int64_t parse_extent(const std::string& text, const std::string& option) {
  int64_t value = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0)
    throw Error(Status::kInvalidArgument, option, fmt::format("\"{}\" is no extent", text),
                "give whole numbers");
  return value;
}

}  // namespace

std::vector<ShapeValues> shape_combinations(const std::vector<std::string>& lists,
                                            const std::vector<std::string>& fixed) {
  std::vector<ShapeValues> shapes{{}};
  for (const std::string& text : fixed) {
    const auto [name, value] = split_assignment(text, "--set");
    shapes[0][name] = parse_extent(value, "--set");
  }
  for (const std::string& text : lists) {
    const auto [name, list] = split_assignment(text, "--shapes");
    std::vector<ShapeValues> more;
    for (const ShapeValues& shape : shapes)
      for (size_t at = 0; at <= list.size();) {
        const size_t comma = std::min(list.find(',', at), list.size());
        more.push_back(shape);
        more.back()[name] = parse_extent(list.substr(at, comma - at), "--shapes");
        at = comma + 1;
      }
    shapes = std::move(more);
  }
  return shapes;
}

std::string text_of(const ShapeValues& shape) {
  std::string text;
  for (const auto& [name, extent] : shape)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, extent);
  return text.empty() ? "-" : text;
}

NamedArrays random_inputs(const std::vector<api::Port>& ports, const ShapeValues& shape,
                          const RandomOptions& options, const std::string& place) {
  uint64_t seed = options.seed;
  for (const auto& [name, extent] : shape)
    seed = seed * 6364136223846793005u + static_cast<uint64_t>(extent) + 1;
  std::mt19937_64 random(seed);
  NamedArrays out;
  for (const api::Port& p : ports) {
    if (!p.default_fill.empty() || p.type_index >= 0) continue;
    std::vector<int64_t> extents;
    for (size_t d = 0; d < p.dims.size(); ++d) {
      const auto found = shape.find(p.dims[d]);
      if (p.extents[d] < 0 && found == shape.end())
        throw Error(Status::kInvalidArgument, fmt::format("{}: input {}", place, p.name),
                    fmt::format("no value for its dim \"{}\"", p.dims[d]),
                    fmt::format("add --set \"{}=1\" or --shapes", p.dims[d]));
      extents.push_back(p.extents[d] >= 0 ? p.extents[d] : found->second);
    }
    out.emplace_back(p.name, random_array(static_cast<DType>(p.dtype), std::move(extents),
                                          options.int_range, &random));
  }
  return out;
}

}  // namespace nimble
