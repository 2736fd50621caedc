#include "vm/base/recursion_schema.h"

#include <algorithm>

namespace nimble {

std::vector<int64_t> RecursionSchema::encode() const {
  std::vector<int64_t> out = {static_cast<int64_t>(kinds.size())};
  for (const Kind& k : kinds) {
    out.insert(out.end(), {k.function, k.tag, static_cast<int64_t>(k.calls.size())});
    for (const Call& c : k.calls) out.insert(out.end(), {c.field, c.function});
    out.push_back(static_cast<int64_t>(k.data.size()));
    for (const Data& d : k.data) {
      out.insert(out.end(),
                 {d.field, static_cast<int64_t>(d.dtype), static_cast<int64_t>(d.extents.size())});
      out.insert(out.end(), d.extents.begin(), d.extents.end());
    }
  }
  return out;
}

std::optional<RecursionSchema> RecursionSchema::decode(std::span<const int64_t> numbers,
                                                       size_t* used) {
  size_t at = 0;
  bool sound = true;
  const auto next = [&]() -> int64_t {
    sound &= at < numbers.size() && numbers[at] >= 0;
    return sound ? numbers[at++] : 0;
  };
  // Every entry takes a number at least, so a count is at most what is left.
  const auto count = [&] {
    const int64_t n = next();
    sound &= n <= static_cast<int64_t>(numbers.size() - std::min(at, numbers.size()));
    return sound ? static_cast<size_t>(n) : 0;
  };
  RecursionSchema out;
  out.kinds.resize(count());
  for (Kind& k : out.kinds) {
    k.function = next();
    k.tag = next();
    k.calls.resize(count());
    for (Call& c : k.calls) {
      c.field = next();
      c.function = next();
    }
    k.data.resize(count());
    for (Data& d : k.data) {
      d.field = next();
      const int64_t dtype = next();
      sound &= dtype < kDTypeCount;
      d.dtype = static_cast<DType>(sound ? dtype : 0);
      d.extents.resize(count());
      for (int64_t& e : d.extents) e = next();
    }
  }
  if (!sound || (!used && at != numbers.size())) return std::nullopt;
  if (used) *used = at;
  return out;
}

}  // namespace nimble
