#include "compiler/kernels/launch_warp.h"

#include <algorithm>

#include "compiler/kernels/interpreter_compute.h"
#include "vm/base/error.h"

namespace nimble::kir {

// --- Memory

std::byte* Warp::element(int buffer, int64_t index, bool write, int lane, bool whole_warp) {
  LaunchMemory& m = r_.memory[buffer];
  const int32_t who = whole_warp ? Toucher::all_of(number_) : int32_t{number_} * kWarpLanes + lane;
  const Wrong wrong = touch(m, r_.time, index, write, {who, number_, since});
  const Buffer& b = *code_.buffers[buffer];
  if (wrong != Wrong::kNothing) refuse(wrong, b, index, write, lane);
  return m.data + index * static_cast<int64_t>(size_of(b.dtype));
}

void Warp::refuse(Wrong wrong, const Buffer& b, int64_t index, bool write, int lane) const {
  const char* what = write ? "write to" : "read of";
  if (wrong == Wrong::kOutside)
    fault(lane, fmt::format("{} {}[{}] outside its {} elements", what, b.name, index,
                            r_.memory[index_of(b)].extent));
  fault(lane, fmt::format("{} {}[{}], {}", what, b.name, index, text_of(wrong)));
}

size_t Warp::index_of(const Buffer& b) const {
  size_t i = 0;
  while (code_.buffers[i].get() != &b) ++i;
  return i;
}

void Warp::note(int buffer, int n, bool neighbours, const Numbers& index, const Numbers& stride,
                const Numbers& valid, Mask mask) const {
  if (!r_.statistics) return;
  const Buffer& b = *code_.buffers[buffer];
  const int size = static_cast<int>(size_of(b.dtype));
  int width = neighbours ? std::clamp(16 / size, 1, n) : 1;
  each(mask, [&](int t) {
    while (index[t] % width != 0) width /= 2;
  });
  MemoryUse& use = r_.statistics->buffers[b.name];
  std::array<LaneOffset, kWarpLanes> lanes;
  for (int i = 0; i < n; i += width) {
    size_t count = 0;
    each(mask, [&](int t) {
      if (i < valid[t]) lanes[count++] = {t, (index[t] + i * stride[t]) * size};
    });
    note_access(use, r_.memory[buffer].shared, {lanes.data(), count}, width * size);
  }
}

// The hardware takes a.width elements at once only where their address is a multiple of them.
void Warp::check_aligned(const AccessCode& a, int64_t index, int lane) const {
  const Buffer& b = *code_.buffers[a.buffer];
  const int64_t size = static_cast<int64_t>(size_of(b.dtype)), bytes = a.width * size;
  // Scratch and shared memory lie otherwise here than there, where they begin at such multiples.
  const uint64_t base = b.scope == Scope::kArgument
                            ? reinterpret_cast<uintptr_t>(r_.memory[a.buffer].data)
                            : uint64_t{0};
  if ((base + static_cast<uint64_t>(index * size)) % static_cast<uint64_t>(bytes) != 0)
    fault(lane, fmt::format("an access of {} bytes to {}[{}], whose address is no multiple of that",
                            bytes, b.name, index));
}

void Warp::places(const AccessCode& a, int n, Mask mask, Numbers& index, Numbers& stride,
                  Numbers& valid) const {
  dims(a.index, mask, index);
  if (n == 1)
    stride.fill(1);
  else
    dims(a.stride, mask, stride);
  if (a.masked)
    dims(a.valid, mask, valid);
  else
    valid.fill(n);
  if (a.width > 1)
    each(mask, [&](int t) {
      if (valid[t] > 0) check_aligned(a, index[t], t);
    });
  const bool neighbours = n == 1 || (a.stride.terms.empty() && a.stride.constant == 1);
  note(a.buffer, n, neighbours, index, stride, valid, mask);
}

void Warp::load(const OpCode& op, Mask mask) {
  const Value& v = *op.value;
  Numbers index, stride, valid;
  places(op.access, v.lanes, mask, index, stride, valid);
  each(mask, [&](int t) {
    Lane* f = frame(t);
    Lane* out = f + op.result;
    for (int i = 0; i < v.lanes; ++i) {
      if (i < valid[t])
        out[i] = load_lane(v.dtype, element(op.access.buffer, index[t] + i * stride[t], false, t));
      else if (op.operand[0] >= 0)
        out[i] = f[op.operand[0] + i];
      else
        out[i] = constant_lane(v.dtype, 0, 0);
    }
  });
}

void Warp::store(const StmtCode& s, Mask mask) {
  const Value& v = *s.stmt->value;
  Numbers index, stride, valid;
  places(s.access, v.lanes, mask, index, stride, valid);
  each(mask, [&](int t) {
    const Lane* from = frame(t) + s.value;
    for (int i = 0; i < v.lanes && i < valid[t]; ++i)
      store_lane(v.dtype, from[i], element(s.access.buffer, index[t] + i * stride[t], true, t));
  });
}

// --- Registers

Lane* Warp::reg(const AccessCode& a, int64_t index, int lane, bool write) {
  Registers& r = registers_[a.buffer - code_.memories()];
  if (index < 0 || index >= r.extent)
    fault(lane, fmt::format("register {}[{}] outside its {} elements",
                            code_.buffers[a.buffer]->name, index, r.extent));
  const auto at = static_cast<size_t>(lane * r.extent + index);
  if (r.states[at] == Registers::kSummed)
    fault(lane, fmt::format("{} register {}[{}], into which products are on their way",
                            write ? "write to" : "read of", code_.buffers[a.buffer]->name, index));
  if (write)
    r.states[at] = Registers::kDefined;
  else if (r.states[at] == Registers::kUndefined)
    fault(lane, fmt::format("read of register {}[{}], which nothing has written",
                            code_.buffers[a.buffer]->name, index));
  return &r.lanes[at * r.width];
}

// --- Values

void Warp::compute_all(const StmtCode& s, Mask mask) {
  for (const OpCode& op : s.ops) compute(op, mask);
}

void Warp::compute(const OpCode& op, Mask mask) {
  Numbers index;
  const int n = op.value->lanes;
  switch (op.value->kind) {
    case ValueKind::kIndex:
      dims(op.access.index, mask, index);
      return each(mask, [&](int t) { frame(t)[op.result].i = index[t]; });
    case ValueKind::kLoad:
      return load(op, mask);
    case ValueKind::kRegister:
      dims(op.access.index, mask, index);
      return each(mask, [&](int t) {
        std::copy_n(reg(op.access, index[t], t, false), n, frame(t) + op.result);
      });
    case ValueKind::kShuffle:
      meet(mask, "a shuffle");
      dims(op.access.index, mask, index);
      return each(mask, [&](int t) {
        if (index[t] < 0 || index[t] >= kWarpLanes)
          fault(t, fmt::format("a shuffle from lane {}", index[t]));
        std::copy_n(frame(static_cast<int>(index[t])) + op.operand[0], n, frame(t) + op.result);
      });
    default:
      return each(mask, [&](int t) { compute_lanes(op, frame(t), r_.options.fused); });
  }
}

void Warp::meet(Mask mask, const char* what) const {
  if (mask != kAll)
    fault(std::countr_one(mask), fmt::format("{} that not all lanes of the warp reach", what));
}

// --- Statements

void Warp::loop(const StmtCode& s, Mask mask) {
  const int64_t step = s.stmt->step;
  Numbers begin, extent;
  dims(s.begin, mask, begin);
  dims(s.extent, mask, extent);
  for (int64_t i = 0;; ++i) {
    Mask runs = 0;
    each(mask & live, [&](int t) {
      if (i * step < extent[t]) runs |= Mask{1} << t;
    });
    if (runs == 0) return;
    each(runs, [&](int t) {
      symbols_[static_cast<size_t>(s.slot) * kWarpLanes + t] = begin[t] + i * step;
    });
    statement(s.body[0], runs);
  }
}

void Warp::let_index(const StmtCode& s, Mask mask) {
  const auto& f = s.stmt->facts;
  each(mask, [&](int t) {
    const int64_t v = frame(t)[s.value].i;
    if (f && (v < f->low || v > f->high || v % f->divisor != 0))
      fault(t, fmt::format("index {} = {} contradicts its stated range", s.stmt->var, v));
    symbols_[static_cast<size_t>(s.slot) * kWarpLanes + t] = v;
  });
}

void Warp::check(const StmtCode& s, Mask mask) {
  const Mask failed = mask & ~holds(s, mask);
  if (failed == 0) return;
  if (r_.status == 0) r_.status = s.check;
  live &= ~failed;
}

// --- What a warp does together

void Warp::warp_dot(const StmtCode& s, Mask mask) {
  meet(mask, "a product");
  const WarpFragmentRow& row = warp_row_of(s.stmt->warp_fragment);
  const auto all = [&](size_t operand, int count, WarpLanes& to) {
    Numbers number;
    dims(s.tiles[operand].index, mask, number);
    for (int t = 0; t < kWarpLanes; ++t)
      for (int i = 0; i < count; ++i) to[t][i] = reg(s.tiles[operand], number[t] + i, t, false);
  };
  WarpLanes sum, a, b;
  all(0, row.sum_registers(), sum);
  all(1, row.a_registers(), a);
  all(2, row.b_registers(), b);
  warp_product(row, sum, a, b);
}

void Warp::warp_load(const StmtCode& s, Mask mask) {
  meet(mask, "a load of matrices");
  const DType type = s.stmt->buffer->dtype;
  const int size = static_cast<int>(size_of(type)), elements = 16 / size;
  Numbers index, number;
  dims(s.access.index, mask, index);
  dims(s.tiles[0].index, mask, number);
  for (int i = 0; i < s.stmt->count; ++i) {
    Lane rows[8][16];
    std::array<LaneOffset, 8> offsets;
    for (int r = 0; r < 8; ++r) {
      const int from = 8 * i + r;
      if (index[from] % elements != 0)
        fault(from, fmt::format("a row that a warp loads begins at {}[{}], which is no multiple "
                                "of 16 bytes",
                                s.stmt->buffer->name, index[from]));
      offsets[r] = {r, index[from] * size};
      for (int e = 0; e < elements; ++e)
        rows[r][e] = load_lane(type, element(s.access.buffer, index[from] + e, false, from, true));
    }
    if (r_.statistics) note_access(r_.statistics->buffers[s.stmt->buffer->name], true, offsets, 16);
    const int each_lane = 4 / size;
    for (int t = 0; t < kWarpLanes; ++t) {
      Lane* to = reg(s.tiles[0], number[t] + i, t, true);
      for (int e = 0; e < each_lane; ++e)
        to[e] = s.stmt->transposed ? rows[2 * (t % 4) + e][t / 4]
                                   : rows[t / 4][each_lane * (t % 4) + e];
    }
  }
}

// --- Copies without waiting

void Warp::begin_copy(const StmtCode& s, Mask mask) {
  const int n = s.stmt->lanes, size = static_cast<int>(size_of(s.stmt->buffer->dtype));
  Numbers to, from, valid, one;
  one.fill(1);
  dims(s.to.index, mask, to);
  dims(s.access.index, mask, from);
  if (s.access.masked)
    dims(s.access.valid, mask, valid);
  else
    valid.fill(n);
  note(s.access.buffer, n, true, from, one, valid, mask);
  Numbers whole;
  whole.fill(n);
  note(s.to.buffer, n, true, to, one, whole, mask);
  each(mask, [&](int t) {
    Copy c{&s, to[t], from[t], std::clamp<int64_t>(valid[t], 0, n), {}};
    if (to[t] % n != 0 || from[t] % n != 0)
      fault(t,
            fmt::format("a copy of {} bytes from {}[{}] to {}[{}], which are no multiples of "
                        "its size",
                        n * size, s.stmt->buffer->name, from[t], s.stmt->to_buffer->name, to[t]));
    check_aligned(s.access, from[t], t);
    check_aligned(s.to, to[t], t);
    for (int i = 0; i < c.valid; ++i)
      std::copy_n(element(s.access.buffer, from[t] + i, false, t), size, &c.bytes[i * size]);
    for (int i = 0; i < n; ++i) element(s.to.buffer, to[t] + i, true, t);
    for (int i = 0; i < n; ++i) ++r_.memory[s.to.buffer].cells[to[t] + i].copies;
    copies_[t].open.push_back(c);
  });
}

void Warp::end_copy(const Copy& c, int lane) {
  const StmtCode& s = *c.stmt;
  const int size = static_cast<int>(size_of(s.stmt->buffer->dtype));
  const LaunchMemory& source = r_.memory[s.access.buffer];
  if (!std::equal(&c.bytes[0], &c.bytes[0] + c.valid * size,
                  source.data + (c.valid ? c.from * size : 0)))
    fault(lane,
          fmt::format("{}[{}] changed while a copy was on its way", s.stmt->buffer->name, c.from));
  LaunchMemory& target = r_.memory[s.to.buffer];
  for (int i = 0; i < s.stmt->lanes; ++i) {
    --target.cells[c.to + i].copies;
    std::copy_n(&c.bytes[i * size], size, element(s.to.buffer, c.to + i, true, lane));
  }
}

void Warp::wait(const StmtCode& s, Mask mask) {
  each(mask, [&](int t) {
    auto& groups = copies_[t].groups;
    const size_t left = std::min(groups.size(), static_cast<size_t>(s.stmt->count));
    for (size_t g = 0; g + left < groups.size(); ++g)
      for (const Copy& c : groups[g]) end_copy(c, t);
    groups.erase(groups.begin(), groups.end() - static_cast<int64_t>(left));
  });
}

void Warp::statement(const StmtCode& s, Mask mask) {
  mask &= live;
  if (mask == 0) return;
  switch (s.stmt->kind) {
    case StmtKind::kSeq:
      for (const StmtCode& b : s.body) statement(b, mask);
      return;
    case StmtKind::kFor:
      return loop(s, mask);
    case StmtKind::kIf: {
      const Mask then = holds(s, mask);
      statement(s.body[0], then);
      if (s.body.size() > 1) statement(s.body[1], mask & ~then);
      return;
    }
    case StmtKind::kStore:
      compute_all(s, mask);
      return store(s, mask);
    case StmtKind::kSetRegister: {
      compute_all(s, mask);
      Numbers index;
      dims(s.access.index, mask, index);
      const int lanes = s.stmt->value->lanes;
      return each(mask, [&](int t) {
        std::copy_n(frame(t) + s.value, lanes, reg(s.access, index[t], t, true));
      });
    }
    case StmtKind::kLet:
      compute_all(s, mask);
      return each(mask, [&](int t) {
        std::copy_n(frame(t) + s.value, s.stmt->value->lanes, frame(t) + s.slot);
      });
    case StmtKind::kLetIndex:
      compute_all(s, mask);
      return let_index(s, mask);
    case StmtKind::kPrefetch:
      return;
    case StmtKind::kBarrier:  // of the warp
      meet(mask, "a barrier");
      since = ++r_.time.now;
      return;
    case StmtKind::kCheck:
      return check(s, mask);
    case StmtKind::kWarpDot:
      return warp_dot(s, mask);
    case StmtKind::kWarpLoad:
      return warp_load(s, mask);
    case StmtKind::kAsyncCopy:
      return begin_copy(s, mask);
    case StmtKind::kAsyncCommit:
      return each(mask, [&](int t) {
        copies_[t].groups.push_back(std::move(copies_[t].open));
        copies_[t].open.clear();
      });
    case StmtKind::kAsyncWait:
      return wait(s, mask);
    case StmtKind::kGroupDot:
      return group_dot(s, mask);
    case StmtKind::kGroupFence:  // verify() knows where it is needed
      return meet(mask, "a fence of a group");
    case StmtKind::kGroupCommit:
      meet(mask, "a batch of products");
      products_.batches.push_back(std::move(products_.open));
      products_.open.clear();
      return;
    case StmtKind::kGroupWait:
      return group_wait(s, mask);
    case StmtKind::kProxyFence:
      return proxy_fence(mask);
    case StmtKind::kSignalInit:
      return signal_init(s, mask);
    case StmtKind::kSignalArrive:
      return signal_arrive(s, mask);
    case StmtKind::kTensorCopy:
      return tensor_copy(s, mask);
    case StmtKind::kSignalWait:  // a block's (interpreter_launch.cpp)
#define NIMBLE_CPU_STATEMENT(id, what) case StmtKind::id:
#include "compiler/kernels/Statements.def"
      break;  // of CPUs
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace nimble::kir
