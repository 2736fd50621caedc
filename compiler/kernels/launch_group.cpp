// What a group of warps multiplies, in the emulator. A product's effect is as late as allowed: at
// the wait for its batch. Until then nobody may touch its sum or write its factors, and its factors
// are read twice, where it begins and where it ends, so that whoever else uses them meanwhile is
// found.
//
// Each warp makes its own rows: what verify() says of control, and check_groups() of the sequence
// of products, leaves nothing that the four do together.
#include <array>
#include <vector>

#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/interpreter_lanes.h"
#include "compiler/kernels/launch_warp.h"

namespace nimble::kir {
namespace {

constexpr int kRowsOfWarp = kGroupRows / kGroupWarps;

int size_of_factor(const GroupView& v) {
  return static_cast<int>(size_of(v.buffer->dtype));
}

}  // namespace

template <class Body>
void Warp::each_factor(const GroupProduct& p, size_t factor, const Body& body) {
  const Stmt& s = *p.stmt->stmt;
  const GroupView& v = s.views[factor];
  const uint64_t descriptor = descriptor_of(v);
  const int first = factor == 0 ? number_ % kGroupWarps * kRowsOfWarp : 0;
  const int count = factor == 0 ? kRowsOfWarp : s.columns;
  const int k_all = group_row_of(s.group_fragment).k;
  for (int x = 0; x < count; ++x)
    for (int k = 0; k < k_all; ++k)
      body(x, k,
           group_place(descriptor, v.along_k, v.buffer->dtype, p.begins[factor], first + x, k) /
               size_of_factor(v));
}

void Warp::set_sums(const GroupProduct& p, Registers::State state) {
  Registers& r = registers_[static_cast<size_t>(p.stmt->tiles[0].buffer) - code_.memories()];
  for (int t = 0; t < kWarpLanes; ++t)
    for (int i = 0; i < GroupFragmentRow::sum_registers(p.stmt->stmt->columns); ++i)
      r.states[static_cast<size_t>(t * r.extent + p.number + i)] = state;
}

void Warp::group_dot(const StmtCode& s, Mask mask) {
  meet(mask, "a product of a group");
  const Stmt& stmt = *s.stmt;
  GroupProduct p{&s, {}, 0};
  Numbers number;
  dims(s.tiles[0].index, mask, number);
  p.number = number[0];
  // Registers that no product sums yet hold something.
  const Registers& r = registers_[static_cast<size_t>(s.tiles[0].buffer) - code_.memories()];
  for (int t = 0; t < kWarpLanes; ++t)
    for (int i = 0; i < GroupFragmentRow::sum_registers(stmt.columns); ++i) {
      const int64_t at = p.number + i;
      if (at < 0 || at >= r.extent ||
          r.states[static_cast<size_t>(t * r.extent + at)] != Registers::kSummed)
        reg(s.tiles[0], at, t, false);
    }
  set_sums(p, Registers::kSummed);
  for (size_t f = 0; f < s.views.size(); ++f) {
    const GroupView& v = stmt.views[f];
    const int size = size_of_factor(v), line = v.span * size;
    Numbers index;
    dims(s.views[f].index, mask, index);
    for (int t = 1; t < kWarpLanes; ++t)
      if (index[t] != index[0])
        fault(t, fmt::format("a group's product of {}[{}], which is {}[{}] for others",
                             v.buffer->name, index[t], v.buffer->name, index[0]));
    p.begins[f] = index[0] * size;
    const int64_t in_pattern = p.begins[f] % (int64_t{kGroupLines} * line);
    const int inner = v.along_k ? group_row_of(stmt.group_fragment).k * size : line;
    if (in_pattern % kPieceBytes != 0 || in_pattern + inner > line)
      fault(0,
            fmt::format("a group's product of {}[{}], which is not {} bytes in the first of eight "
                        "lines of its swizzle",
                        v.buffer->name, index[0], inner));
    const int buffer = s.views[f].buffer;
    each_factor(p, f, [&](int, int, int64_t at) {
      element(buffer, at, false, 0, true);
      LaunchCell& c = r_.memory[static_cast<size_t>(buffer)].cells[static_cast<size_t>(at)];
      if (c.writer != LaunchCell::kBox && !is_shown(c.writer, c.written))
        fault(0, fmt::format("a group's product reads {}[{}], which its writer has not shown to "
                             "products ahead of a barrier",
                             v.buffer->name, at));
      ++c.products;
    });
  }
  // A number for all that was multiplied, in order.
  const auto mix = [&](int64_t what) {
    multiplied_ = (multiplied_ ^ static_cast<uint64_t>(what)) * 0x100000001b3 + 1;
  };
  mix(reinterpret_cast<intptr_t>(&s));
  mix(p.begins[0]);
  mix(p.begins[1]);
  products_.open.push_back(p);
}

void Warp::end_product(const GroupProduct& p) {
  const Stmt& s = *p.stmt->stmt;
  const GroupFragmentRow& row = group_row_of(s.group_fragment);
  std::array<std::vector<Lane>, 2> factors;
  for (size_t f = 0; f < factors.size(); ++f) {
    const int buffer = p.stmt->views[f].buffer;
    each_factor(p, f, [&](int, int, int64_t at) {
      --r_.memory[static_cast<size_t>(buffer)].cells[static_cast<size_t>(at)].products;
      factors[f].push_back(
          load_lane(s.views[f].buffer->dtype, element(buffer, at, false, 0, true)));
    });
  }
  Registers& r = registers_[static_cast<size_t>(p.stmt->tiles[0].buffer) - code_.memories()];
  const int first = number_ % kGroupWarps * kWarpLanes;
  for (int t = 0; t < kWarpLanes; ++t)
    for (int i = 0; i < GroupFragmentRow::sum_registers(s.columns); ++i) {
      const WarpPlace place = group_sum_place(first + t, i);
      add_group_products(row, r.lanes[static_cast<size_t>(t * r.extent + p.number + i)],
                         &factors[0][static_cast<size_t>(place.row % kRowsOfWarp * row.k)],
                         &factors[1][static_cast<size_t>(place.column * row.k)]);
    }
  set_sums(p, Registers::kDefined);
}

void Warp::group_wait(const StmtCode& s, Mask mask) {
  meet(mask, "a wait for products");
  auto& batches = products_.batches;
  const size_t left = std::min(batches.size(), static_cast<size_t>(s.stmt->count));
  for (size_t b = 0; b + left < batches.size(); ++b)
    for (const GroupProduct& p : batches[b]) end_product(p);
  batches.erase(batches.begin(), batches.end() - static_cast<int64_t>(left));
  // Later products may be into the same registers.
  for (const auto& batch : batches)
    for (const GroupProduct& p : batch) set_sums(p, Registers::kSummed);
  for (const GroupProduct& p : products_.open) set_sums(p, Registers::kSummed);
}

bool Warp::is_shown(int32_t thread, uint32_t when) const {
  const ProxyFences& shown = r_.fences[static_cast<size_t>(thread)];
  return when < (shown.latest < r_.time.phase ? shown.latest : shown.before);
}

// Time goes on, so that what is written from here on is later.
void Warp::proxy_fence(Mask mask) {
  const uint32_t now = ++r_.time.now;
  each(mask, [&](int t) {
    ProxyFences& f = r_.fences[static_cast<size_t>(number_ * kWarpLanes + t)];
    if (f.latest < r_.time.phase) f.before = f.latest;
    f.latest = now;
  });
}

}  // namespace nimble::kir
