// The template "scan": running sums and products along an axis (cumsum, cumprod).
//
// Running sums and products. Each row is taken in order by one thread, so the result is the
// sequential one; where the last axis is not the scanned one, lanes are neighbouring rows.
#include "compiler/kernels/templates/scan.h"

#include "compiler/ir/axes.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::Dim;
using kir::StmtRef;

bool is_scan(const Workload& w) {
  const bool scan = w.anchor == "cumsum" || w.anchor == "cumprod";
  if (!scan || w.group->body->bindings.size() != 1) return false;
  const DType t = w.group->result_type->dtype;
  return t != DType::kBool && compute_type(t) == t && !w.group->result_type->dims.empty();
}

bool scans_across(const Frame& frame) {
  return ir::axis_of(*frame.anchor->value) + 1 < frame.anchor->var->type->dims.size();
}

std::vector<Knob> ScanTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2, 4})};
}

bool ScanTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

Config ScanTemplate::default_config(const Workload&, const TargetInfo&) const {
  return {{"unroll", int64_t{2}}};
}

ScanItems scan_items(const Workload& w, const Frame& frame, int lanes, int unroll) {
  const ir::Expr& call = *frame.anchor->value;
  const std::vector<Dim>& dims = frame.anchor->var->type->dims;
  const DType type = frame.anchor->var->type->dtype;
  const size_t axis = ir::axis_of(call);
  const bool exclusive = ir::attr_or<bool>(call.attrs, "exclusive", false);
  const bool reverse = ir::attr_or<bool>(call.attrs, "reverse", false);
  const bool across = scans_across(frame);
  const kir::BufferRef x = parameter_buffer(w, frame, call.args[0]);
  NIMBLE_CHECK(x, "a scan of something but a parameter");
  NIMBLE_CHECK(across || lanes == 1, "{} lanes along the axis of a scan", lanes);
  const bool product = call.op == "cumprod";
  const auto sum = kb::buffer("sum", kir::Scope::kRegister, type, 1, lanes);

  std::vector<Dim> items = dims;
  items[axis] = 1;
  if (across) items.back() = ir::ceildiv(dims.back(), lanes);
  std::vector<StmtRef> body;
  std::vector<Dim> at = bind_coordinates("x", items, Dim::symbol("item"), body);
  std::optional<Dim> valid;
  if (across) {
    at.back() = at.back() * lanes;
    if (w.facts.divisible(dims.back(), lanes) != ir::Proof::kYes) valid = dims.back() - at.back();
  }
  body.push_back(
      kb::set_reg(sum, 0, product ? kb::number(type, 1, lanes) : kb::number(type, 0, lanes)));
  body.push_back(vector_loop("c", 0, dims[axis], 1, unroll, [&](const Slice& s) {
    std::vector<Dim> here = at;
    here[axis] = reverse ? dims[axis] - 1 - s.at : s.at;
    const Dim index = flat_offset(dims, here);
    const kir::ValueRef next = kb::load_strided(x, index, 1, lanes, valid);
    const StmtRef add = kb::set_reg(
        sum, 0, product ? kb::mul(kb::reg(sum, 0), next) : kb::add(kb::reg(sum, 0), next));
    const StmtRef store = kb::store_strided(frame.results[0], index, 1, kb::reg(sum, 0), valid);
    return exclusive ? std::vector<StmtRef>{store, add} : std::vector<StmtRef>{add, store};
  }));
  return {count_of(items), kb::seq(std::move(body)), {sum}};
}

bool ScanTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return is_scan(w);
}

Lowered ScanTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                            const std::string& name) const {
  NIMBLE_CHECK(accepts(w, t) && valid(w, c, t), "configuration {} of scan", to_json(c));
  const Frame frame = make_frame(w);
  const int lanes = scans_across(frame) ? group_lanes(*w.group, t) : 1;
  const ScanItems items = scan_items(w, frame, lanes, static_cast<int>(knob_int(c, "unroll")));
  return one_kernel(
      make_function(w, frame, name, {}, items.registers,
                    kb::loop(kir::LoopKind::kThread, "item", 0, items.count, items.body)),
      threads_for(ir::element_count(frame.anchor->var->type)));
}

}  // namespace nimble::kernels
