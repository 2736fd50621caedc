// The table of fragments, and their expansions. Method: a group fills one or several whole words,
// so a vector of groups is bitcast to a vector of words, of which shifts and masks take one element
// of every group at once. No lane moves.
#include "compiler/kernels/fragments.h"

#include <algorithm>
#include <limits>

#include "vm/base/error.h"

namespace nimble::kir {
namespace {

using namespace build;

constexpr FragmentRow kRows[] = {
#define NIMBLE_FRAGMENT(id, name, a, b, sum, group, within, feature, held) \
  {Fragment::id, name, DType::a, DType::b, DType::sum, group, within, feature, held},
#include "compiler/kernels/Fragments.def"
};

constexpr FragmentOtherwise kOtherwise[] = {
#define NIMBLE_FRAGMENT_OTHERWISE(id, feature) {Fragment::id, feature},
#include "compiler/kernels/Fragments.def"
};

constexpr TileFragmentRow kTileRows[] = {
#define NIMBLE_TILE_FRAGMENT(id, name, a, b, sum, group, rows, row_bytes, registers, feature) \
  {TileFragment::id, name,      DType::a, DType::b, DType::sum, group, rows,                  \
   row_bytes,        registers, feature},
#include "compiler/kernels/Fragments.def"
};

// A bf16 is the upper half of the f32 of the same value.
ValueRef bf16_pairs(const ValueRef& a, const ValueRef& b, const ValueRef& sum) {
  const auto lower = [](const ValueRef& v) {
    const ValueRef words = bitcast(DType::kU32, v);
    return bitcast(DType::kF32, binary(BinaryOp::kShl, words, integer(DType::kU32, 16)));
  };
  const auto upper = [](const ValueRef& v) {
    const ValueRef words = bitcast(DType::kU32, v);
    return bitcast(DType::kF32, binary(BinaryOp::kAnd, words, integer(DType::kU32, 0xffff0000)));
  };
  return fma(lower(a), lower(b), fma(upper(a), upper(b), sum));
}

// The product of byte i of each group of a and of b. A byte goes to the top of its word, and comes
// back down with zeros or its sign.
ValueRef product_of_bytes(const ValueRef& a, const ValueRef& b, int i) {
  const auto element = [i](DType word, const ValueRef& v) {
    const ValueRef top = binary(BinaryOp::kShl, bitcast(word, v), integer(word, 24 - 8 * i));
    return bitcast(DType::kI32, binary(BinaryOp::kShr, top, integer(word, 24)));
  };
  return mul(element(DType::kU32, a), element(DType::kI32, b));
}

ValueRef u8s8_quads(const ValueRef& a, const ValueRef& b, const ValueRef& sum) {
  ValueRef result = sum;
  for (int i = 0; i < 4; ++i) result = add(result, product_of_bytes(a, b, i));
  return result;
}

ValueRef u8s7_quads(const ValueRef& a, const ValueRef& b, const ValueRef& sum) {
  const auto bound = [](int64_t v) { return integer(DType::kI32, v); };
  ValueRef result = sum;
  for (const int i : {0, 2}) {
    const ValueRef pair = add(product_of_bytes(a, b, i), product_of_bytes(a, b, i + 1));
    result = add(result, min(max(pair, bound(std::numeric_limits<int16_t>::min())),
                             bound(std::numeric_limits<int16_t>::max())));
  }
  return result;
}

ValueRef s16_pairs(const ValueRef& a, const ValueRef& b, const ValueRef& sum) {
  const auto lower = [](const ValueRef& v) {
    const ValueRef words = bitcast(DType::kI32, v);
    return binary(BinaryOp::kShr, binary(BinaryOp::kShl, words, integer(DType::kI32, 16)),
                  integer(DType::kI32, 16));
  };
  const auto upper = [](const ValueRef& v) {
    return binary(BinaryOp::kShr, bitcast(DType::kI32, v), integer(DType::kI32, 16));
  };
  return add(add(sum, mul(lower(a), lower(b))), mul(upper(a), upper(b)));
}

ValueRef f16_pairs(const ValueRef& a, const ValueRef& b, const ValueRef& sum) {
  const auto element = [](const ValueRef& v, int i) {
    const ValueRef words = bitcast(DType::kU32, v);
    const ValueRef bits = i == 0 ? words : binary(BinaryOp::kShr, words, integer(DType::kU32, 16));
    return cast(DType::kF32, bitcast(DType::kF16, cast(DType::kU16, bits)));
  };
  return fma(element(a, 0), element(b, 0), fma(element(a, 1), element(b, 1), sum));
}

}  // namespace

std::span<const FragmentRow> all_fragments() {
  return kRows;
}

std::span<const FragmentOtherwise> all_fragments_otherwise() {
  return kOtherwise;
}

const FragmentRow& row_of(Fragment f) {
  return kRows[static_cast<size_t>(f)];
}

std::span<const TileFragmentRow> all_tile_fragments() {
  return kTileRows;
}

const TileFragmentRow& tile_row_of(TileFragment f) {
  return kTileRows[static_cast<size_t>(f)];
}

bool has_instruction(const FragmentRow& row, const kernels::TargetInfo& target) {
  return target.has(std::string(row.feature));
}

bool has_otherwise(const FragmentRow& row, const kernels::TargetInfo& target) {
  return std::ranges::any_of(kOtherwise, [&](const FragmentOtherwise& o) {
    return o.id == row.id && target.has(std::string(o.feature));
  });
}

bool multiplies(const FragmentRow& row, const kernels::TargetInfo& target) {
  return has_instruction(row, target) || has_otherwise(row, target);
}

bool is_taken(const FragmentRow& row, const kernels::TargetInfo& target) {
  return !row.feature.empty() || has_otherwise(row, target);
}

ValueRef expand_dot(const Value& dot) {
  NIMBLE_CHECK(dot.kind == ValueKind::kDot);
  const ValueRef &a = dot.operands[0], &b = dot.operands[1], &sum = dot.operands[2];
  switch (dot.fragment) {
    case Fragment::kBf16Pairs:
      return bf16_pairs(a, b, sum);
    case Fragment::kU8S8Quads:
      return u8s8_quads(a, b, sum);
    case Fragment::kU8S7Quads:
      return u8s7_quads(a, b, sum);
    case Fragment::kS16Pairs:
      return s16_pairs(a, b, sum);
    case Fragment::kF16Pairs:
      return f16_pairs(a, b, sum);
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace nimble::kir
