#include "vm/interpreter/shape_counts.h"

#include <algorithm>
#include <new>
#include <utility>

#include "vm/base/hash.h"
#include "vm/base/json_writer.h"
#include "vm/interpreter/entry.h"

namespace nimble::rt {

size_t ShapeCounts::Hash::operator()(const std::vector<int64_t>& extents) const {
  return hash64(std::span(reinterpret_cast<const uint8_t*>(extents.data()),
                          extents.size() * sizeof(int64_t)));
}

void ShapeCounts::add(size_t entry, std::span<const int64_t> extents) noexcept {
  Entry& e = entries_[entry];
  if (e.last && std::ranges::equal(*e.last, extents)) {
    ++*e.last_count;
    return;
  }
  try {
    std::vector<int64_t> key(extents.begin(), extents.end());
    auto found = e.counts.find(key);
    if (found == e.counts.end()) {
      if (e.counts.size() == kMostShapes) {
        ++e.further;
        return;
      }
      found = e.counts.emplace(std::move(key), 0).first;
    }
    e.last = &found->first;  // maps don't move what they hold
    e.last_count = &found->second;
    ++found->second;
  } catch (const std::bad_alloc&) {
    ++e.further;
  }
}

std::string ShapeCounts::json(std::span<const EntryPlan> plans) const {
  JsonWriter json;
  json.begin_object().key("entries").begin_array();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    json.begin_object().member("further", e.further).member("name", plans[i].entry().name);
    std::vector<std::pair<uint64_t, const std::vector<int64_t>*>> shapes;
    for (const auto& [extents, count] : e.counts) shapes.push_back({count, &extents});
    std::sort(shapes.begin(), shapes.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : *a.second < *b.second;
    });
    json.key("shapes").begin_array();
    for (const auto& [count, extents] : shapes) {
      json.begin_object().member("count", count).key("extents").begin_array();
      for (const int64_t extent : *extents) json.value(extent);
      json.end_array().end_object();
    }
    json.end_array().key("symbols").begin_array();
    for (const std::string& name : plans[i].extent_names()) json.value(name);
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace nimble::rt
