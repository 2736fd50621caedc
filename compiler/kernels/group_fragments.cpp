#include "compiler/kernels/group_fragments.h"

#include <fmt/format.h>

#include "compiler/kernels/interpreter_lanes.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

// A descriptor's fields, in units of kPieceBytes: from one slab to the next, from eight lines to
// the next, and the swizzle.
constexpr int kSlabBit = 16, kLinesBit = 32, kSwizzleBit = 62;
constexpr uint64_t kFieldMask = 0x3fff;

int64_t bytes_at(uint64_t descriptor, int bit) {
  return static_cast<int64_t>(descriptor >> bit & kFieldMask) * kPieceBytes;
}

bool fits_field(int64_t bytes) {
  return bytes >= 0 && bytes % kPieceBytes == 0 &&
         static_cast<uint64_t>(bytes / kPieceBytes) <= kFieldMask;
}

}  // namespace

std::span<const GroupFragmentRow> all_group_fragments() {
  static const GroupFragmentRow kRows[] = {
#define NIMBLE_GROUP_FRAGMENT(id, name, a, b, sum, k, feature) \
  {GroupFragment::id, name, DType::a, DType::b, DType::sum, k, feature},
#include "compiler/kernels/Fragments.def"
  };
  return kRows;
}

const GroupFragmentRow& group_row_of(GroupFragment f) {
  return all_group_fragments()[static_cast<size_t>(f)];
}

std::span<const Swizzle> all_swizzles() {
  static constexpr Swizzle kSwizzles[] = {{128, 1}, {64, 2}, {32, 3}};
  return kSwizzles;
}

const Swizzle* swizzle_of(DType t, int span) {
  for (const Swizzle& s : all_swizzles())
    if (s.line_bytes == span * static_cast<int>(size_of(t))) return &s;
  return nullptr;
}

int widest_span(DType t, int extent) {
  for (const Swizzle& s : all_swizzles()) {
    const int span = s.line_bytes / static_cast<int>(size_of(t));
    if (extent > 0 && extent % span == 0) return span;
  }
  return 0;
}

uint64_t descriptor_of(const GroupView& v) {
  const Swizzle* s = swizzle_of(v.buffer->dtype, v.span);
  NIMBLE_CHECK(s, "lines of {} elements of {}", v.span, v.buffer->name);
  const int64_t size = static_cast<int64_t>(size_of(v.buffer->dtype));
  // Along k there are no slabs, and the field is to be 1.
  const int64_t slab = v.along_k || v.slab == 0 ? int64_t{kPieceBytes} : v.slab * size;
  const auto field = [](int64_t bytes, int bit) {
    return static_cast<uint64_t>(bytes / kPieceBytes) << bit;
  };
  return field(slab, kSlabBit) | field(int64_t{kGroupLines} * s->line_bytes, kLinesBit) |
         static_cast<uint64_t>(s->code) << kSwizzleBit;
}

int64_t swizzled(const Swizzle& s, int64_t at) {
  const int64_t phase = at / kPhaseBytes % (s.line_bytes / kPieceBytes);
  return at ^ phase * kPieceBytes;
}

int64_t group_place(uint64_t descriptor, bool along_k, DType t, int64_t begin, int x, int k) {
  const Swizzle* swizzle = nullptr;
  for (const Swizzle& s : all_swizzles())
    if (static_cast<uint64_t>(s.code) == descriptor >> kSwizzleBit) swizzle = &s;
  NIMBLE_CHECK(swizzle, "descriptor {:x}", descriptor);
  const int size = static_cast<int>(size_of(t)), span = swizzle->line_bytes / size;
  const int line = along_k ? x : k, in_lines = along_k ? k : x;
  int64_t at = begin + line / kGroupLines * bytes_at(descriptor, kLinesBit) +
               int64_t{line % kGroupLines} * swizzle->line_bytes;
  if (along_k)
    at += int64_t{in_lines} * size;
  else
    at += in_lines / span * bytes_at(descriptor, kSlabBit) + int64_t{in_lines % span} * size;
  return swizzled(*swizzle, at);
}

// As the sums of two fragments m16n8 of each warp, side by side.
WarpPlace group_sum_place(int thread, int number) {
  const int warp = thread / kWarpLanes, g = thread % kWarpLanes / 4, t = thread % 4;
  return {kGroupRows / kGroupWarps * warp + 8 * (number / 2 % 2) + g,
          8 * (number / 4) + 2 * t + number % 2};
}

std::string group_dot_fault(const GroupFragmentRow& row, int columns,
                            std::span<const GroupView> views) {
  const bool bytes = size_of(row.a) == 1;
  if (columns < 8 || columns > kMostColumns || columns % 8 != 0 ||
      (bytes && columns > 32 && columns % 16 != 0))
    return fmt::format("{} of {} columns; multiples of 8{} up to {} are possible", row.name,
                       columns, bytes ? ", from 32 on of 16," : "", kMostColumns);
  if (views.size() != 2) return fmt::format("{} takes two factors, not {}", row.name, views.size());
  for (size_t i = 0; i < views.size(); ++i) {
    const GroupView& v = views[i];
    const Buffer& b = *v.buffer;
    const DType type = i == 0 ? row.a : row.b;
    const int64_t size = static_cast<int64_t>(size_of(type));
    if (b.scope != Scope::kShared)
      return fmt::format("{} takes {}, which is not shared memory", row.name, b.name);
    if (b.dtype != type)
      return fmt::format("{} takes {} for {}, which is {}", row.name, nimble::name_of(type), b.name,
                         nimble::name_of(b.dtype));
    if (!v.along_k && !row.across())
      return fmt::format("{} takes {} along k alone", row.name, b.name);
    const Swizzle* s = swizzle_of(type, v.span);
    if (!s)
      return fmt::format("lines of {} {} of {}; those of 32, 64 and 128 bytes have a swizzle",
                         v.span, nimble::name_of(type), b.name);
    const int pattern = kGroupLines * s->line_bytes;
    if (b.alignment % pattern != 0 || b.alignment == 0)
      return fmt::format("{} is aligned to {} bytes; its swizzle needs {}", b.name, b.alignment,
                         pattern);
    const int wide = i == 0 ? kGroupRows : columns;
    if (v.along_k ? v.span % row.k != 0 : wide % v.span != 0)
      return fmt::format("{} takes {} {} of {}, which are not whole lines of {}", row.name,
                         v.along_k ? row.k : wide, v.along_k ? "places of k" : "neighbours", b.name,
                         v.span);
    const bool slabs = !v.along_k && wide > v.span;
    if (slabs && (v.slab * size % pattern != 0 || v.slab <= 0 || !fits_field(v.slab * size)))
      return fmt::format(
          "slabs of {} are {} elements apart, which is no multiple of {} bytes that "
          "a descriptor holds",
          b.name, v.slab, pattern);
  }
  return {};
}

void add_group_products(const GroupFragmentRow& row, Lane& sum, const Lane* a, const Lane* b) {
  const auto add_f32 = [&](auto number) {
    for (int k = 0; k < row.k; ++k) {
      const float both = number(a[k]) * number(b[k]);  // exact, but for what is too small
      sum.f32 += both;
    }
  };
  switch (row.id) {
    case GroupFragment::kBf16Group:
      return add_f32([](Lane v) { return f32_from_bf16(static_cast<uint16_t>(v.i)); });
    case GroupFragment::kF16Group:
      return add_f32([](Lane v) { return f32_from_f16(static_cast<uint16_t>(v.i)); });
    case GroupFragment::kS8Group:
      for (int k = 0; k < row.k; ++k) sum.i = wrap(DType::kI32, sum.i + a[k].i * b[k].i);
      return;
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace nimble::kir
