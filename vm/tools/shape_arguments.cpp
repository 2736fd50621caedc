#include "vm/tools/shape_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "vm/base/error.h"
#include "vm/tools/dim_text.h"

namespace nimble {
namespace {

int64_t parse_extent(const std::string& text, const std::string& option) {
  int64_t value = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0)
    throw Error(Status::kInvalidArgument, option, fmt::format("\"{}\" is not an extent", text),
                "give whole numbers");
  return value;
}

}  // namespace

std::vector<ShapeValues> shape_combinations(const std::vector<std::string>& lists,
                                            const std::vector<std::string>& fixed) {
  std::vector<ShapeValues> shapes{{}};
  for (const std::string& text : fixed) {
    const auto [name, value] = split_assignment(text, "--set");
    if (!shapes[0].emplace(name, parse_extent(value, "--set")).second)
      throw Error(Status::kInvalidArgument, "--set", fmt::format("{} is given twice", name),
                  "give it once, or list its values: --shapes");
  }
  std::map<std::string, std::vector<int64_t>> values;
  std::vector<std::string> order;  // that of the command line
  for (const std::string& text : lists) {
    const auto [name, list] = split_assignment(text, "--shapes");
    if (shapes[0].contains(name))
      throw Error(Status::kInvalidArgument, "--shapes", fmt::format("--set fixes {}", name),
                  "name a dim in one of the two");
    if (!values.contains(name)) order.push_back(name);
    for (size_t at = 0; at <= list.size();) {
      const size_t comma = std::min(list.find(',', at), list.size());
      values[name].push_back(parse_extent(list.substr(at, comma - at), "--shapes"));
      at = comma + 1;
    }
  }
  for (const std::string& name : order) {
    std::vector<ShapeValues> more;
    for (const ShapeValues& shape : shapes)
      for (const int64_t value : values[name]) {
        more.push_back(shape);
        more.back()[name] = value;
      }
    shapes = std::move(more);
  }
  return shapes;
}

void check_names(const ShapeValues& shape, const std::vector<api::Port>& ports,
                 const std::string& place) {
  for (const auto& [name, extent] : shape) {
    const bool known = std::any_of(ports.begin(), ports.end(), [&, &n = name](const auto& p) {
      return std::any_of(p.dims.begin(), p.dims.end(), [&](const std::string& dim) {
        return dim == n || symbols_of_dim(dim).contains(n);
      });
    });
    if (!known)
      throw Error(Status::kInvalidArgument, place, fmt::format("no input has a dim {}", name),
                  "see nimble inspect --signature");
  }
}

std::string text_of(const ShapeValues& shape) {
  std::string text;
  for (const auto& [name, extent] : shape)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, extent);
  return text.empty() ? "-" : text;
}

NamedArrays complete_inputs(const std::vector<api::Port>& ports, const NamedArrays& given,
                            const ShapeValues& shape, const RandomOptions& options,
                            const std::string& place) {
  uint64_t seed = options.seed;
  for (const auto& [name, extent] : shape)
    seed = seed * 6364136223846793005u + static_cast<uint64_t>(extent) + 1;
  std::mt19937_64 random(seed);
  ShapeValues values = shape;
  for (const auto& [name, array] : given)
    for (const api::Port& p : ports) {
      if (p.name != name || p.dims.size() != array.shape.size()) continue;
      for (size_t d = 0; d < p.dims.size(); ++d) {
        const std::string& dim = p.dims[d];
        if (const auto asked = shape.find(dim);
            asked != shape.end() && asked->second != array.shape[d])
          throw Error(Status::kInvalidArgument, fmt::format("{}: input {}", place, name),
                      fmt::format("its dim {} is {}, not {} as --shapes or --set says", dim,
                                  array.shape[d], asked->second),
                      fmt::format("leave out {} there: the input decides it", dim));
        values.emplace(dim, array.shape[d]);
      }
    }
  NamedArrays out = given;
  for (const api::Port& p : ports) {
    const bool is_given = std::any_of(given.begin(), given.end(),
                                      [&](const auto& entry) { return entry.first == p.name; });
    if (is_given || !p.default_fill.empty() || p.type_index >= 0) continue;
    std::vector<int64_t> extents;
    for (size_t d = 0; d < p.dims.size(); ++d) {
      const std::optional<int64_t> extent =
          p.extents[d] >= 0 ? p.extents[d] : extent_of_dim(p.dims[d], values);
      if (extent && *extent >= 0) {
        extents.push_back(*extent);
        continue;
      }
      std::string missing = p.dims[d];
      for (const std::string& name : symbols_of_dim(p.dims[d]))
        if (!values.contains(name)) missing = name;
      throw Error(
          Status::kInvalidArgument, fmt::format("{}: input {}", place, p.name),
          extent ? fmt::format("its dim \"{}\" would be {}", p.dims[d], *extent)
                 : fmt::format("no value for its dim \"{}\"", p.dims[d]),
          extent ? "give other values" : fmt::format("add --set \"{}=1\" or --shapes", missing));
    }
    out.emplace_back(p.name, random_array(static_cast<DType>(p.dtype), std::move(extents),
                                          options.int_range, &random));
  }
  return out;
}

void rethrow_with_range(const api::Error& e, const RandomOptions& options) {
  if (e.status() != NIMBLE_FATAL) throw e;
  throw std::runtime_error(
      fmt::format("{} (random integers are drawn from 0 to {}; --int-range N: below N)", e.what(),
                  std::max<int64_t>(options.int_range, 1) - 1));
}

}  // namespace nimble
