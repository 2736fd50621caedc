#include "compiler/kernels/templates/rounded_rows.h"

#include <utility>

#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/tile.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::BufferRef;
using kir::Dim;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

namespace {

// The registers of a group.
constexpr int kMost = 0, kLeast = 1, kPoison = 2;

}  // namespace

std::optional<kir::Fragment> RoundedRows::fragment_of(const TargetInfo& t,
                                                      const ir::Groupwise& form) {
  const auto own = fragment_of_groups(DType::kU8, DType::kI8, DType::kI32, form.layout.group);
  return own ? std::optional(fragment_within(t, *own, form.most_beside_bytes())) : std::nullopt;
}

RoundedRows RoundedRows::of(const ir::Groupwise& form, const Dim& rows, BufferRef x,
                            BufferRef scales, BufferRef sums, const TargetInfo& t) {
  RoundedRows r;
  r.form = form;
  r.rows = rows;
  r.x = std::move(x);
  r.scales = std::move(scales);
  r.sums = std::move(sums);
  r.values = shared_scratch("row_values", kir::row_of(*fragment_of(t, form)).a, rows * form.k);
  r.steps = shared_scratch("row_steps", DType::kF32, rows * form.groups());
  r.least = shared_scratch("row_least", DType::kF32, rows * form.groups());
  r.lanes = lanes_of(t, DType::kF32);
  r.extremes = kb::buffer("extremes", Scope::kRegister, DType::kF32, 3, r.lanes);
  return r;
}

// In x groups lie one behind the other, from row to row as within one.
std::vector<StmtRef> RoundedRows::round() const {
  const Dim item_number = Dim::symbol("x_g"), i = Dim::symbol("x_i"), j = Dim::symbol("x_j");
  const Dim first = item_number * form.group;
  const Dim row = ir::floordiv(item_number, form.groups()),
            of_row = item_number - row * form.groups();
  const Dim at = Dim::symbol("x_at");
  const auto whole = static_cast<float>(form.steps);
  const auto constant = [](double v, int width) { return kb::number(DType::kF32, v, width); };
  const auto scalar = [](const char* name) { return kb::local(name, DType::kF32, 1); };
  const auto wide = [&](const char* name) { return kb::broadcast(scalar(name), lanes); };
  const auto set = [&](int number, ValueRef v) {
    return kb::set_reg(extremes, number, std::move(v));
  };
  const ValueRef element = kb::local("x_v", DType::kF32, lanes);
  StmtRef scan = kb::seq({
      kb::let("x_v", kb::load(x, first + i, lanes)),
      set(kMost, kb::max(element, kb::reg(extremes, kMost))),
      set(kLeast, kb::min(element, kb::reg(extremes, kLeast))),
      // Maximum and minimum pass NaNs over; x times zero is one for whatever is not finite.
      set(kPoison, kb::add(kb::mul(element, constant(0, lanes)), kb::reg(extremes, kPoison))),
  });
  const ValueRef steps_up = kb::mul(kb::sub(element, wide("x_least")), wide("x_inverse"));
  // Clipped, for what is converted in no time then, and for NaNs.
  const ValueRef clipped =
      kb::min(constant(whole, lanes),
              kb::max(constant(0, lanes), kb::unary(kir::UnaryOp::kRound, steps_up)));
  StmtRef quantise =
      kb::seq({kb::let("x_v", kb::load(x, first + j, lanes)),
               kb::store(values, at * form.group + j, kb::cast(values->dtype, clipped))});
  const auto reduced = [&](BinaryOp op, int number) {
    return kb::reduce(op, kb::reg(extremes, number));
  };
  std::vector<StmtRef> group = {
      kb::let_index("x_at", kb::index(item(row, of_row))),
      set(kMost, kb::load(x, first, lanes)),
      set(kLeast, kb::load(x, first, lanes)),
      set(kPoison, constant(0, lanes)),
      kb::loop(LoopKind::kSerial, "x_i", 0, form.group, std::move(scan), lanes),
      kb::let("x_most", reduced(BinaryOp::kMax, kMost)),
      kb::let("x_least", reduced(BinaryOp::kMin, kLeast)),
      kb::let("x_poison", reduced(BinaryOp::kAdd, kPoison)),
      kb::let("x_range", kb::max(kb::sub(scalar("x_most"), scalar("x_least")),
                                 constant(ir::Groupwise::kLeastRange, 1))),
      kb::let("x_inverse", kb::div(constant(whole, 1), scalar("x_range"))),
      kb::store(steps, at,
                kb::add(kb::mul(scalar("x_range"), constant(1 / whole, 1)), scalar("x_poison"))),
      kb::store(least, at, scalar("x_least")),
      kb::loop(LoopKind::kSerial, "x_j", 0, form.group, std::move(quantise), lanes),
  };
  // A loop that threads share would say that no more of them than it has iterations have something
  // to do.
  const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
  const Dim items = rows * form.groups(), begin = Dim::symbol("x_begin");
  const auto edge = [&](const Dim& share) {
    return kb::index(ir::floordiv(items * share, threads));
  };
  return {kb::let_index("x_begin", edge(thread)), kb::let_index("x_end", edge(thread + 1)),
          kb::loop(LoopKind::kSerial, "x_g", begin, Dim::symbol("x_end") - begin,
                   kb::seq(std::move(group))),
          kb::barrier()};
}

void RoundedRows::name_columns(const Dim& group, const Dim& column, int vectors, int width,
                               const std::string& prefix, std::vector<StmtRef>& out) const {
  const Dim from = group * form.stored() + column;
  for (int v = 0; v < vectors; ++v) {
    const std::string number = std::to_string(v);
    out.push_back(kb::let(prefix + "scale" + number, kb::load(scales, from + v * width, width)));
    out.push_back(kb::let(prefix + "sum" + number, kb::load(sums, from + v * width, width)));
  }
}

void RoundedRows::name_row(const Dim& group, const Dim& row, int width, const std::string& prefix,
                           std::vector<StmtRef>& out) const {
  const Dim at = item(row, group);
  out.push_back(kb::let(prefix + "step", kb::broadcast(kb::load(steps, at), width)));
  out.push_back(kb::let(prefix + "least", kb::broadcast(kb::load(least, at), width)));
}

// No multiply-add: some machines round it once and some twice.
ValueRef RoundedRows::added(ValueRef sum, ValueRef total, int v, int width,
                            const std::string& columns, const std::string& row) {
  const auto named = [&](const std::string& name) { return kb::local(name, DType::kF32, width); };
  const std::string number = std::to_string(v);
  const ValueRef offset = kb::mul(named(row + "least"), named(columns + "sum" + number));
  const ValueRef stepped = kb::mul(kb::cast(DType::kF32, std::move(sum)), named(row + "step"));
  return kb::add(kb::add(std::move(total), offset),
                 kb::mul(stepped, named(columns + "scale" + number)));
}

}  // namespace nimble::kernels
