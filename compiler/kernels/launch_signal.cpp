// Signals and copies of boxes, in the emulator. A copy takes effect as late as allowed: at the wait
// for its phase. Until then nobody may touch its target, and its source must not change. What a
// wait of a whole block does not find then never comes, for all threads are there: they wait for
// ever.
//
// Who waits sees what copies brought and nothing else, so a target counts as written before the
// phase (LaunchTime) and by nobody, while a race of threads that order their own writes by a signal
// is found as any.
#include <algorithm>
#include <vector>

#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/launch_warp.h"

namespace nimble::kir {
namespace {

std::string signal_text(const StmtCode& s, int64_t index) {
  return fmt::format("signal {}[{}]", s.stmt->buffer->name, index);
}

// Goes through a box's elements, innermost first: `body` gets each one's place along every axis.
template <class Body>
void each_of_box(const std::vector<int>& box, const Body& body) {
  std::vector<int64_t> at(box.size());
  for (size_t axis = 0; axis < box.size();) {
    body(at);
    for (axis = 0; axis < box.size() && ++at[axis] == box[axis]; ++axis) at[axis] = 0;
  }
}

}  // namespace

void Warp::signal_init(const StmtCode& s, Mask mask) {
  Numbers index;
  dims(s.access.index, mask, index);
  each(mask, [&](int t) {
    if (index[t] < 0 || index[t] >= r_.memory[static_cast<size_t>(s.access.buffer)].extent)
      fault(t, signal_text(s, index[t]) + ", which is not there");
    const auto [at, is_new] = r_.signals.try_emplace({s.access.buffer, index[t]});
    if (!is_new) fault(t, signal_text(s, index[t]) + " is made twice");
    at->second.arrivals = s.stmt->count;
    at->second.made = r_.time.now;
    at->second.maker = number_ * kWarpLanes + t;
  });
}

Signal& Warp::made_signal(const StmtCode& s, int64_t index, int lane) {
  const auto at = r_.signals.find({s.access.buffer, index});
  if (at == r_.signals.end()) fault(lane, signal_text(s, index) + ", which nobody has made");
  if (!is_shown(at->second.maker, at->second.made))
    fault(lane, signal_text(s, index) + ", which its maker has not shown ahead of a barrier");
  return at->second;
}

void Warp::signal_arrive(const StmtCode& s, Mask mask) {
  Numbers index;
  dims(s.access.index, mask, index);
  each(mask, [&](int t) {
    Signal& g = made_signal(s, index[t], t);
    if (g.arrived == g.arrivals)
      fault(t, fmt::format("an arrival at {} beyond the {} of its phase {}, for which nobody has "
                           "waited",
                           signal_text(s, index[t]), g.arrivals, g.over));
    ++g.arrived;
    g.expected += s.stmt->count;
  });
}

BoxCopy Warp::begin_box(const StmtCode& s, int64_t to, int lane) {
  const TensorMap& m = *s.stmt->map;
  const auto size = static_cast<int64_t>(size_of(m.buffer->dtype));
  const size_t rank = m.box.size();
  std::vector<int64_t> first(rank), extents(rank);
  for (size_t axis = 0; axis < rank; ++axis) {
    first[axis] = dim(s.box.coordinates[axis], lane);
    extents[axis] = dim(s.box.extents[axis], lane);
    if (extents[axis] <= 0)
      fault(lane, fmt::format("a copy of a box of {}, which has no elements", m.name));
    if (axis == 0 && rank > 1 && extents[axis] * size % kPieceBytes != 0)
      fault(lane, fmt::format("a copy of a box of {}, whose rows of {} elements are no multiple of "
                              "{} bytes",
                              m.name, extents[axis], kPieceBytes));
  }
  BoxCopy c{&s, to, {}, {}};
  each_of_box(m.box, [&](const std::vector<int64_t>& at) {
    int64_t place = 0;
    bool inside = true;
    for (size_t axis = rank; axis-- > 0;) {
      const int64_t x = first[axis] + at[axis];
      inside &= x >= 0 && x < extents[axis];
      place = place * extents[axis] + x;
    }
    c.from.push_back(inside ? place : -1);
    const size_t end = c.bytes.size();
    c.bytes.resize(end + static_cast<size_t>(size));
    if (inside) std::copy_n(element(s.box.buffer, place, false, lane), size, &c.bytes[end]);
  });
  return c;
}

void Warp::tensor_copy(const StmtCode& s, Mask mask) {
  const TensorMap& m = *s.stmt->map;
  const int64_t pattern = int64_t{kGroupLines} * m.box[0];
  Numbers index, to;
  dims(s.access.index, mask, index);
  dims(s.to.index, mask, to);
  each(mask, [&](int t) {
    Signal& g = made_signal(s, index[t], t);
    if (g.arrived == g.arrivals && g.begun + m.box_bytes() > g.expected)
      fault(t, fmt::format("a copy with {}, whose phase {} is over with {} bytes",
                           signal_text(s, index[t]), g.over, g.expected));
    if (to[t] % pattern != 0)
      fault(t, fmt::format("a copy of a box to {}[{}], which is no multiple of the {} elements of "
                           "its swizzle",
                           s.stmt->to_buffer->name, to[t], pattern));
    const auto* base = r_.memory[static_cast<size_t>(s.box.buffer)].data;
    if (reinterpret_cast<uintptr_t>(base) % kPieceBytes != 0)
      fault(t, fmt::format("a copy of a box of {}, whose address is no multiple of {} bytes",
                           m.name, kPieceBytes));
    BoxCopy c = begin_box(s, to[t], t);
    LaunchMemory& target = r_.memory[static_cast<size_t>(s.to.buffer)];
    for (int64_t i = 0; i < m.box_elements(); ++i) {
      const int64_t at = to[t] + i;
      if (at >= 0 && at < target.extent) {
        const LaunchCell& cell = target.cells[static_cast<size_t>(at)];
        if (cell.written != 0 && cell.copies == 0 && cell.writer != LaunchCell::kBox &&
            !is_shown(cell.writer, cell.written))
          fault(t, fmt::format("a copy of a box to {}[{}], whose writer has not shown it ahead of "
                               "a barrier",
                               s.stmt->to_buffer->name, at));
      }
      element(s.to.buffer, at, true, t);
    }
    for (int64_t i = 0; i < m.box_elements(); ++i)
      ++target.cells[static_cast<size_t>(to[t] + i)].copies;
    g.begun += static_cast<int64_t>(c.bytes.size());
    g.copies.push_back(std::move(c));
  });
}

void Warp::end_box(const BoxCopy& c) {
  const StmtCode& s = *c.stmt;
  const TensorMap& m = *s.stmt->map;
  const auto size = static_cast<int64_t>(size_of(m.buffer->dtype));
  const Swizzle& swizzle = *swizzle_of(m.buffer->dtype, m.box[0]);
  const LaunchMemory& source = r_.memory[static_cast<size_t>(s.box.buffer)];
  LaunchMemory& target = r_.memory[static_cast<size_t>(s.to.buffer)];
  for (size_t i = 0; i < c.from.size(); ++i) {
    const std::byte* bytes = &c.bytes[i * static_cast<size_t>(size)];
    if (c.from[i] >= 0 && !std::equal(bytes, bytes + size, source.data + c.from[i] * size))
      fault(0, fmt::format("{}[{}] changed while a copy of a box was on its way", m.buffer->name,
                           c.from[i]));
    const int64_t at = swizzled(swizzle, (c.to + static_cast<int64_t>(i)) * size);
    std::copy_n(bytes, size, target.data + at);
    LaunchCell& cell = target.cells[static_cast<size_t>(at / size)];
    --cell.copies;
    cell.written = r_.time.phase - 1;
    cell.writer = LaunchCell::kBox;
  }
}

void Warp::signal_wait(const StmtCode& s, int64_t index, int64_t phase) {
  Signal& g = made_signal(s, index, 0);
  const auto wrong = [&](const std::string& what) {
    fault(0, fmt::format("a wait for phase {} of {}, {}", phase, signal_text(s, index), what));
  };
  if (phase == g.over - 1) return;
  if (phase < g.over)
    wrong(fmt::format("which has gone on to phase {} since: its parity tells no more", g.over));
  if (phase > g.over)
    wrong(fmt::format("which is still at phase {}: its parity tells no further", g.over));
  for (const BoxCopy& c : g.copies) end_box(c);
  g.copies.clear();
  if (g.arrived < g.arrivals)
    wrong(fmt::format("for ever: {} of its {} arrivals never come", g.arrivals - g.arrived,
                      g.arrivals));
  if (g.begun != g.expected)
    wrong(fmt::format("for ever: {} bytes are expected and {} come", g.expected, g.begun));
  ++g.over;
  g.arrived = 0;
  g.expected = g.begun = 0;
}

}  // namespace nimble::kir
