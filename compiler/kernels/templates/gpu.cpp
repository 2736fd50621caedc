#include "compiler/kernels/templates/gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/op.h"
#include "vm/base/checked.h"
#include "vm/base/error.h"

namespace nimble::kernels::gpu {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::kWarpLanes;
using kir::StmtRef;
using kir::ValueRef;

Dim block(int axis) {
  return Dim::symbol(kir::kBlockSymbols.at(static_cast<size_t>(axis)));
}

Dim thread() {
  return Dim::symbol("thread");
}

Dim warp() {
  return ir::floordiv(thread(), kWarpLanes);
}

Dim lane() {
  return ir::mod(thread(), kWarpLanes);
}

bool is_block(int64_t threads) {
  return threads >= kWarpLanes && threads <= kMaxThreads && threads % kWarpLanes == 0;
}

Frame make_gpu_frame(const Workload& w) {
  Frame f = make_frame(w);
  const auto align = [](BufferRef& b) {
    if (!b) return;
    auto aligned = std::make_shared<kir::Buffer>(*b);
    aligned->alignment = kArgumentAlignment;
    b = std::move(aligned);
  };
  for (BufferRef& b : f.parameters) align(b);
  for (BufferRef& b : f.results) align(b);
  return f;
}

kir::Function launched(kir::Function f, std::array<Dim, 3> grid, int threads,
                       std::vector<BufferRef> shared) {
  NIMBLE_CHECK(is_block(threads), "a block of {} threads", threads);
  f.launch = kir::Launch{grid, threads};
  f.shared = std::move(shared);
  return f;
}

BufferRef shared_buffer(const std::string& name, DType t, const Dim& extent) {
  return kb::buffer(name, kir::Scope::kShared, t, extent);
}

int64_t shared_bytes(const std::vector<SharedPart>& parts) {
  kir::Function f;
  for (const SharedPart& p : parts) f.shared.push_back(shared_buffer("", p.type, p.elements));
  return kir::shared_bytes(f);
}

Lowered one_gpu_kernel(kir::Function f) {
  Lowered out;
  out.functions.push_back(std::move(f));
  out.tails = exec::DispatchTree::single(0);
  out.max_threads = 1;
  return out;
}

ValueRef named(std::vector<StmtRef>& out, const std::string& name, ValueRef v) {
  out.push_back(kb::let(name, v));
  return kb::local(name, v->dtype, v->lanes);
}

ValueRef pair_of(const ValueRef& a, const ValueRef& b) {
  const ValueRef first =
      kb::compare(kir::CompareOp::kEq, kb::iota(2), kb::integer(DType::kI32, 0, 2));
  return kb::select(first, kb::broadcast(a, 2), kb::broadcast(b, 2));
}

const kir::WarpFragmentRow* fragment_of(DType a, DType b, DType sum, bool tf32) {
  for (const kir::WarpFragmentRow& row : kir::all_warp_fragments()) {
    const bool rounds = row.id == kir::WarpFragment::kTf32Warp;
    if ((!rounds || tf32) && row.a == a && row.b == b && row.sum == sum) return &row;
  }
  return nullptr;
}

bool allows_tf32(const ir::Expr& call) {
  return ir::attr_or(call.attrs, "tf32", false);
}

namespace {

// Of `v` the other lane's; a machine exchanges no less than 4 bytes.
ValueRef exchanged(const ValueRef& v, const Dim& other) {
  if (!is_float(v->dtype) && size_of(v->dtype) < 4)
    return kb::cast(v->dtype, kb::shuffle(kb::cast(DType::kI32, v), other));
  return kb::shuffle(v, other);
}

}  // namespace

ValueRef all_of_lanes(std::vector<StmtRef>& out, const std::string& name, ValueRef v, int size,
                      const Combine& combine) {
  NIMBLE_CHECK(v->lanes == 1 && size <= kWarpLanes && is_power_of_two(size),
               "{} lanes of {} values combine", size, v->lanes);
  v = named(out, name + "_own", std::move(v));
  for (int distance = 1; distance < size; distance *= 2) {
    // The lane whose number differs in that bit: both combine the same two values.
    const int pair = 2 * distance;
    const Dim other = ir::floordiv(lane(), pair) * pair + ir::mod(lane() + distance, pair);
    const ValueRef theirs = named(out, fmt::format("{}_of{}", name, distance), exchanged(v, other));
    v = named(out, fmt::format("{}_with{}", name, distance), combine(v, theirs));
  }
  return v;
}

ValueRef all_of_block(std::vector<StmtRef>& out, const std::string& name, ValueRef v, int threads,
                      const Combine& combine, std::vector<BufferRef>& shared) {
  v = all_of_lanes(out, name, std::move(v), kWarpLanes, combine);
  if (threads == kWarpLanes) return v;
  const int warps = threads / kWarpLanes;
  const BufferRef parts = shared_buffer(name + "_parts", v->dtype, warps);
  shared.push_back(parts);
  out.push_back(kb::if_then(kb::eq(lane(), 0), kb::store(parts, warp(), v)));
  out.push_back(kb::barrier(kir::Together::kBlock));
  ValueRef total = kb::load(parts, 0);
  for (int w = 1; w < warps; ++w) {
    const ValueRef part = named(out, fmt::format("{}_part{}", name, w), kb::load(parts, w));
    total = named(out, fmt::format("{}_and{}", name, w), combine(total, part));
  }
  return named(out, name + "_all", std::move(total));
}

ValueRef all_of_column(std::vector<StmtRef>& out, const std::string& name, ValueRef v, int columns,
                       int rows, const Combine& combine, std::vector<BufferRef>& shared) {
  v = named(out, name + "_own", std::move(v));
  if (rows == 1) return v;
  const int lanes = v->lanes;
  const BufferRef parts = shared_buffer(name + "_parts", v->dtype, columns * rows * lanes);
  shared.push_back(parts);
  out.push_back(kb::store(parts, thread() * lanes, v));
  out.push_back(kb::barrier(kir::Together::kBlock));
  const Dim column = columns == 1 ? Dim(0) : ir::mod(thread(), columns);
  const auto part = [&](int row) {
    const Dim place = (column + row * columns) * lanes;
    return named(out, fmt::format("{}_part{}", name, row), kb::load(parts, place, lanes));
  };
  ValueRef total = part(0);
  for (int r = 1; r < rows; ++r)
    total = named(out, fmt::format("{}_and{}", name, r), combine(total, part(r)));
  return total;
}

StmtRef where_below(const Dim& at, const Dim& extent, const std::set<std::string>& varying,
                    std::vector<StmtRef> body) {
  std::vector<StmtRef> ahead, inside;
  hoist(varying, std::move(body), ahead, inside);
  ahead.push_back(kb::if_then(kb::lt(at, extent), kb::seq(std::move(inside))));
  return kb::seq(std::move(ahead));
}

StmtRef team_loop(const std::string& var, const Dim& extent, int lanes, int unroll,
                  const Team& team, const SliceBody& body) {
  std::set<std::string> varying = team.rank.symbols();
  varying.insert(var);
  // The loops count vectors, so that each place is seen to be a multiple of the lanes.
  const Dim vectors = ir::floordiv(extent, lanes);
  return vector_loop(var, 0, vectors, team.size, unroll, [&](const Slice& s) {
    const Dim number = s.at + team.rank;
    std::vector<StmtRef> all = body({number * lanes, std::nullopt, s.slot});
    if (!s.valid) return all;
    return std::vector<StmtRef>{where_below(number, vectors, varying, std::move(all))};
  });
}

std::vector<ir::Type> types_in_vectors(const Workload& w, const Frame& f) {
  std::vector<ir::Type> types;
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    if (!f.parameters[i]) continue;
    const ir::VarRef& parameter = w.group->parameters[i];
    bool indexes = false, else_used = false;
    for (const ir::Binding& b : w.group->body->bindings) {
      const bool gathers = b.value->kind == ir::ExprKind::kCall && ir::traits_of(*b.value).indexes;
      for (size_t k = 0; k < b.value->args.size(); ++k) {
        if (!b.value->args[k].is_var() || b.value->args[k].var != parameter) continue;
        (gathers && k == 1 ? indexes : else_used) = true;
      }
    }
    if (!indexes || else_used) types.push_back(parameter->type);
  }
  return types;
}

int access_lanes(const std::vector<ir::Type>& types) {
  size_t widest = 1;
  for (const ir::Type& t : types)
    if (t->kind == ir::TypeKind::kTensor && !ir::element_count(t).is_constant(1))
      widest = std::max(widest, size_of(t->dtype));
  return std::max(1, kAccessBytes / static_cast<int>(widest));
}

int dividing_lanes(const Workload& w, const Dim& extent, int most) {
  int lanes = 1;
  while (lanes * 2 <= most && w.facts.divisible(extent, lanes * 2) == ir::Proof::kYes) lanes *= 2;
  return lanes;
}

}  // namespace nimble::kernels::gpu
