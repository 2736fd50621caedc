// Which part of its operands an operator needs for a part of its result. An operator without a
// rule is computed as a whole. Where a rule changes attributes, the operator's own reference
// function computes the part as if it were all there is.
#include <algorithm>

#include "compiler/ir/axes.h"
#include "compiler/ir/blockwise.h"
#include "compiler/ir/image_layout.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/ir/winograd.h"
#include "compiler/reference/region.h"

namespace nimble::reference {
namespace {

using Ints = std::vector<int64_t>;

// What of an operand broadcasting brings to the region.
Region broadcast(const Shape& operand, const Region& out) {
  Region r{Shape(operand.size(), 0), operand};
  const size_t skip = out.from.size() - operand.size();
  for (size_t k = 0; k < operand.size(); ++k)
    if (operand[k] != 1) r.from[k] = out.from[skip + k], r.extent[k] = out.extent[skip + k];
  return r;
}

bool elementwise(const DemandCall& c, const Region& out, Demand& d) {
  for (const Shape& s : c.operands) d.operands.push_back(broadcast(s, out));
  return true;
}

bool batch_norm(const DemandCall& c, const Region& out, Demand& d) {
  d.operands.push_back(out);
  for (size_t i = 1; i < c.operands.size(); ++i)
    d.operands.push_back({{out.from[1]}, {out.extent[1]}});
  return true;
}

bool full(const DemandCall& c, const Region& out, Demand& d) {
  if (!c.e.attrs.contains("shape")) return false;  // an operand then says it
  d.attrs["shape"] = std::vector<ir::Dim>(out.extent.begin(), out.extent.end());
  for (const Shape& s : c.operands) d.operands.push_back(Region::whole(s));
  return true;
}

bool range(const DemandCall& c, const Region& out, Demand& d) {
  if (!c.operands.empty()) return false;
  const int64_t start = *ir::attr<ir::Dim>(c.e.attrs, "start").as_constant();
  const int64_t step = *ir::attr<ir::Dim>(c.e.attrs, "step").as_constant();
  d.attrs["start"] = ir::Dim(start + out.from[0] * step);
  d.attrs["count"] = ir::Dim(out.extent[0]);
  return true;
}

// Whole lines along the axis that the result keeps.
bool along_axis(const DemandCall& c, const Region& out, Demand& d) {
  const auto rank = static_cast<int64_t>(out.from.size());
  const auto axis =
      static_cast<size_t>(ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), rank));
  Region r = out;
  r.from[axis] = 0;
  r.extent[axis] = c.operands[0][axis];
  d.inside[axis] = out.from[axis];
  d.operands = {r};
  return true;
}

bool layer_norm(const DemandCall& c, const Region& out, Demand& d) {
  const auto rank = static_cast<int64_t>(out.from.size());
  Region r = out;
  for (int64_t k = ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), rank); k < rank; ++k) {
    const auto at = static_cast<size_t>(k);
    r.from[at] = 0;
    r.extent[at] = c.operands[0][at];
    d.inside[at] = out.from[at];
  }
  d.operands = {r, Region::whole(c.operands[1]), Region::whole(c.operands[2])};
  d.work = 2;
  return true;
}

// Whole lines along axes that the result lacks or keeps as 1.
bool reduce_axes(const DemandCall& c, const Region& out, Demand& d, const Ints& axes) {
  const Shape& x = c.operands[0];
  std::vector<bool> reduced(x.size(), false);
  for (int64_t a : axes)
    reduced[static_cast<size_t>(ir::axis_from_front(a, static_cast<int64_t>(x.size())))] = true;
  const bool keeps = ir::attr<bool>(c.e.attrs, "keepdims");
  Region r = Region::whole(x);
  size_t next = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    if (!reduced[k]) r.from[k] = out.from[next], r.extent[k] = out.extent[next];
    if (!reduced[k] || keeps) ++next;
  }
  d.operands = {r};
  return true;
}
bool reduce(const DemandCall& c, const Region& out, Demand& d) {
  return reduce_axes(c, out, d, ir::attr<Ints>(c.e.attrs, "axes"));
}
bool arg_reduce(const DemandCall& c, const Region& out, Demand& d) {
  return reduce_axes(c, out, d, {ir::attr<int64_t>(c.e.attrs, "axis")});
}

bool matmul(const DemandCall& c, const Region& out, Demand& d) {
  const Shape &a = c.operands[0], &b = c.operands[1];
  if (a.size() < 2 || b.size() < 2) return false;
  const bool ta = ir::attr_or(c.e.attrs, "transpose_a", false);
  const bool tb = ir::attr_or(c.e.attrs, "transpose_b", false);
  const size_t rank = out.from.size();
  // Batch axes broadcast; the last two are rows or columns and the contracted axis.
  const auto operand = [&](const Shape& s, size_t kept_axis, size_t out_axis) {
    Region r{Shape(s.size(), 0), s};
    const size_t skip = rank - s.size();
    for (size_t k = 0; k + 2 < s.size(); ++k)
      if (s[k] != 1) r.from[k] = out.from[skip + k], r.extent[k] = out.extent[skip + k];
    r.from[kept_axis] = out.from[out_axis];
    r.extent[kept_axis] = out.extent[out_axis];
    return r;
  };
  d.operands = {operand(a, a.size() - (ta ? 1 : 2), rank - 2),
                operand(b, b.size() - (tb ? 2 : 1), rank - 1)};
  d.work = a[a.size() - (ta ? 2 : 1)];
  return true;
}

// The panels of k rows of a packed matrix that hold columns asked for. Tells which columns they
// are, of `n`.
Region panels(const DemandCall& c, const Region& out, int64_t k, int64_t n, int64_t* first,
              int64_t* count) {
  const ir::Layout layout = *ir::parse_layout(ir::attr<std::string>(c.e.attrs, "layout"));
  const int64_t width = layout.width;
  Region r = Region::whole(c.operands[1]);
  *first = 0;
  *count = n;
  std::vector<int64_t> one = {1, k, width};
  if (layout.group > 1) one = {1, (k + layout.group - 1) / layout.group, width, layout.group};
  if (r.extent.size() == one.size() &&
      std::equal(one.begin() + 1, one.end(), r.extent.begin() + 1)) {
    const int64_t last = (out.from.back() + out.extent.back() - 1) / width;
    r.from[0] = out.from.back() / width;
    r.extent[0] = last - r.from[0] + 1;
    *first = r.from[0] * width;
    *count = std::min(n, (last + 1) * width) - *first;
  }
  return r;
}

// Rows of x with the panels of the weights that hold the columns.
bool packed_matmul(const DemandCall& c, const Region& out, Demand& d) {
  const auto k = ir::attr<int64_t>(c.e.attrs, "k"), n = ir::attr<int64_t>(c.e.attrs, "n");
  Region rows = out;
  rows.from.back() = 0;
  rows.extent.back() = k;
  int64_t first = 0, columns = n;
  const Region weights = panels(c, out, k, n, &first, &columns);
  d.attrs["n"] = columns;
  d.inside.back() = out.from.back() - first;
  d.operands = {rows, weights};
  d.work = k;
  return true;
}

// The same, with the scales and sums of those panels' columns.
bool packed_groupwise_matmul(const DemandCall& c, const Region& out, Demand& d) {
  packed_matmul(c, out, d);
  const int64_t width = ir::parse_layout(ir::attr<std::string>(c.e.attrs, "layout"))->width;
  const Region panels = d.operands[1];
  for (size_t i = 2; i < c.operands.size(); ++i) {
    Region r = Region::whole(c.operands[i]);
    r.from[1] = panels.from[0] * width;
    r.extent[1] = panels.extent[0] * width;
    d.operands.push_back(r);
  }
  return true;
}

// Rows of x with the columns of the weights, or the panels that hold them.
bool blockwise_matmul(const DemandCall& c, const Region& out, Demand& d) {
  const ir::Blockwise form = ir::blockwise_of(c.e.attrs);
  const int64_t width = form.layout ? form.layout->width : 1;
  const int64_t first = out.from.back() / width;
  const int64_t end = (out.from.back() + out.extent.back() + width - 1) / width;
  Region rows = out;
  rows.from.back() = 0;
  rows.extent.back() = form.k;
  d.operands = {rows};
  for (size_t i = 1; i < c.operands.size(); ++i) {
    Region r = Region::whole(c.operands[i]);
    r.from[0] = first;
    r.extent[0] = end - first;
    d.operands.push_back(r);
  }
  d.attrs["n"] = std::min(form.n, end * width) - first * width;
  d.inside.back() = out.from.back() - first * width;
  d.work = form.k;
  return true;
}

// A window's way over one axis: the elements that positions [from, from + count) of the result
// read, and the padding that is left before and after these. False where they read padding only.
struct Span {
  int64_t from, extent, before, after;
};
bool window(int64_t extent, int64_t from, int64_t count, int64_t taps, int64_t stride, int64_t pad,
            int64_t dilation, Span* s) {
  const int64_t low = from * stride - pad;
  const int64_t high = (from + count - 1) * stride - pad + (taps - 1) * dilation + 1;
  s->from = std::clamp<int64_t>(low, 0, extent);
  s->extent = std::clamp<int64_t>(high, 0, extent) - s->from;
  s->before = s->from - low;
  s->after = high - s->from - s->extent;
  return s->extent > 0;
}

// The rows and columns of x that windows read, and the padding around them.
bool windows(const DemandCall& c, const ir::ImageLayout& l, const Region& out, const Ints& taps,
             Region* x, Demand& d) {
  const auto& strides = ir::attr<Ints>(c.e.attrs, "strides");
  const auto& pads = ir::attr<Ints>(c.e.attrs, "pads");
  const auto& dilations = ir::attr<Ints>(c.e.attrs, "dilations");
  Ints around(4);
  for (size_t k = 0; k < 2; ++k) {
    Span s{};
    const size_t axis = l.spatial[k];
    if (!window(c.operands[0][axis], out.from[axis], out.extent[axis], taps[k], strides[k], pads[k],
                dilations[k], &s))
      return false;
    x->from[axis] = s.from;
    x->extent[axis] = s.extent;
    around[k] = s.before;
    around[2 + k] = s.after;
  }
  d.attrs["pads"] = around;
  return true;
}

bool conv2d(const DemandCall& c, const Region& out, Demand& d) {
  const ir::ImageLayout l = ir::image_layout_of(c.e.attrs);
  const Shape& w = c.operands[1];
  const auto groups = ir::attr<int64_t>(c.e.attrs, "groups");
  const int64_t per_group = w[l.filter] / groups;
  Region x = out, weights = Region::whole(w);
  if (!windows(c, l, out, {w[l.taps[0]], w[l.taps[1]]}, &x, d)) return false;
  // The output channels asked for, or with several groups all of the groups that these are in.
  const int64_t from = out.from[l.channel], extent = out.extent[l.channel];
  const int64_t first_group = groups == 1 ? 0 : from / per_group;
  const int64_t last_group = groups == 1 ? 0 : (from + extent - 1) / per_group;
  const int64_t first = groups == 1 ? from : first_group * per_group;
  const int64_t filters = groups == 1 ? extent : (last_group - first_group + 1) * per_group;
  weights.from[l.filter] = first;
  weights.extent[l.filter] = filters;
  d.inside[l.channel] = from - first;
  x.from[l.channel] = first_group * w[l.input];
  x.extent[l.channel] = (last_group - first_group + 1) * w[l.input];
  d.attrs["groups"] = last_group - first_group + 1;
  d.operands = {x, weights};
  if (c.operands.size() > 2) d.operands.push_back({{first}, {filters}});
  d.work = w[l.input] * w[l.taps[0]] * w[l.taps[1]];
  return true;
}

bool packed_conv2d(const DemandCall& c, const Region& out, Demand& d) {
  const auto& kernel = ir::attr<Ints>(c.e.attrs, "kernel");
  const auto filters = ir::attr<int64_t>(c.e.attrs, "filters");
  const auto groups = ir::attr_or<int64_t>(c.e.attrs, "groups", 1);
  if (ir::attr_or<std::string>(c.e.attrs, "image_layout", "nhwc") != "nhwc") return false;
  const int64_t channels = c.operands[0].back();
  const int64_t k = kernel[0] * kernel[1] * channels / groups;
  Region x = out;
  if (!windows(c, ir::kChannelsLast, out, kernel, &x, d)) return false;
  x.from.back() = 0;
  x.extent.back() = channels;
  int64_t first = 0, columns = filters;
  // Of several groups all, since panels of each are whole.
  const Region weights =
      groups == 1 ? panels(c, out, k, filters, &first, &columns) : Region::whole(c.operands[1]);
  d.attrs["filters"] = columns;
  d.inside.back() = out.from.back() - first;
  d.operands = {x, weights};
  if (c.operands.size() > 2) d.operands.push_back({{first}, {columns}});
  d.work = k;
  return true;
}

// Whole tiles, since where in its tile a pixel stands decides how it is rounded, and of the columns
// the panels that hold them.
bool packed_winograd(const DemandCall& c, const Region& out, Demand& d) {
  const ir::Winograd& form = ir::winograd_of(c.e.attrs);
  const auto& pads = ir::attr<Ints>(c.e.attrs, "pads");
  const Shape& u = c.operands[1];
  const int64_t width = u[3];
  Region x = out, weights = Region::whole(u);
  x.from[3] = 0;
  x.extent[3] = u[2];
  Ints around(4);
  for (size_t k = 0; k < 2; ++k) {
    Span s{};
    const size_t axis = 1 + k;
    const int64_t extent = c.operands[0][axis];
    const int64_t all = extent + pads[k] + pads[2 + k] - (ir::Winograd::kTaps - 1);
    const int64_t first = out.from[axis] / form.tile * form.tile;
    const int64_t behind = out.from[axis] + out.extent[axis];
    const int64_t end = std::min(all, (behind + form.tile - 1) / form.tile * form.tile);
    d.inside[axis] = out.from[axis] - first;
    if (!window(extent, first, end - first, ir::Winograd::kTaps, 1, pads[k], 1, &s)) return false;
    x.from[axis] = s.from;
    x.extent[axis] = s.extent;
    around[k] = s.before;
    around[2 + k] = s.after;
  }
  const int64_t first = out.from[3] / width * width;
  const int64_t end = std::min(ir::attr<int64_t>(c.e.attrs, "filters"),
                               (out.from[3] + out.extent[3] + width - 1) / width * width);
  weights.from[0] = first / width;
  weights.extent[0] = (end - first + width - 1) / width;
  d.inside[3] = out.from[3] - first;
  d.attrs["pads"] = around;
  d.attrs["filters"] = end - first;
  d.operands = {x, weights};
  if (c.operands.size() > 2) d.operands.push_back({{first}, {end - first}});
  d.work = form.products() * u[2];
  return true;
}

bool pool2d(const DemandCall& c, const Region& out, Demand& d) {
  // Which padding counts depends on where the whole ends.
  if (ir::attr_or(c.e.attrs, "count_include_pad", false)) return false;
  const auto& kernel = ir::attr<Ints>(c.e.attrs, "kernel");
  Region x = out;
  if (!windows(c, ir::image_layout_of(c.e.attrs), out, kernel, &x, d)) return false;
  d.attrs["ceil_mode"] = false;
  d.operands = {x};
  d.work = kernel[0] * kernel[1];
  return true;
}

// Rows of queries with all of their batch's keys and values.
bool attention(const DemandCall& c, const Region& out, Demand& d) {
  const auto rows = [&](const Shape& s) {
    return Region{{out.from[0], 0, 0}, {out.extent[0], s[1], s[2]}};
  };
  Region q = rows(c.operands[0]);
  q.from[1] = out.from[1];
  q.extent[1] = out.extent[1];
  d.operands = {q, rows(c.operands[1]), rows(c.operands[2])};
  if (c.operands.size() > 3) {
    const Shape& keys = c.operands[1];
    const auto heads = ir::attr<int64_t>(c.e.attrs, "heads");
    d.operands.push_back(broadcast(
        c.operands[3],
        {{out.from[0], 0, out.from[1], 0}, {out.extent[0], heads, out.extent[1], keys[1]}}));
  }
  d.inside[2] = out.from[2];
  d.work = 2 * c.operands[1][1];
  return true;
}

// Rows of the batch: the gates and the states have one for each.
bool cell(const DemandCall& c, const Region& out, Demand& d) {
  if (out.from.size() != 2) return false;
  const ir::CellOperands& cell = *ir::traits_of(c.e).cell;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    Region r = Region::whole(c.operands[i]);
    if (i <= 1 || cell.c == i) {
      if (r.from.size() != 2) return false;
      r.from[0] = out.from[0];
      r.extent[0] = out.extent[0];
    }
    d.operands.push_back(r);
  }
  d.inside[1] = out.from[1];
  d.work = cell.gates * c.operands[1].back();
  return true;
}

}  // namespace

DemandRule find_demand_rule(const std::string& op) {
  static const std::map<std::string, DemandRule> kTable = {
      {"batch_norm", batch_norm},
      {"full", full},
      {"range", range},
      {"sum", reduce},
      {"mean", reduce},
      {"reduce_max", reduce},
      {"reduce_min", reduce},
      {"prod", reduce},
      {"argmax", arg_reduce},
      {"softmax", along_axis},
      {"log_softmax", along_axis},
      {"l2_normalize", along_axis},
      {"cumsum", along_axis},
      {"cumprod", along_axis},
      {"layer_norm", layer_norm},
      {"matmul", matmul},
      {"packed_matmul", packed_matmul},
      {"packed_groupwise_matmul", packed_groupwise_matmul},
      {"blockwise_matmul", blockwise_matmul},
      {"conv2d", conv2d},
      {"packed_conv2d", packed_conv2d},
      {"packed_winograd", packed_winograd},
      {"max_pool2d", pool2d},
      {"avg_pool2d", pool2d},
      {"attention", attention},
      {"lstm_cell", cell},
      {"packed_lstm_cell", cell},
      {"gru_cell", cell},
      {"packed_gru_cell", cell}};
  const auto it = kTable.find(op);
  if (it != kTable.end()) return it->second;
  const ir::OpInfo* info = ir::find_op(op);
  return info && info->fusion == ir::FusionKind::kElementwise ? elementwise : nullptr;
}

std::vector<size_t> moved_operands(const ir::Expr& e) {
  static const std::map<std::string, size_t> kTable = {
      // how many, from the first on; 0: all
      {"reshape", 1},      {"squeeze", 1},     {"unsqueeze", 1},
      {"assert_shape", 1}, {"transpose", 1},   {"expand", 1},
      {"slice", 1},        {"concat", 0},      {"append", 0},
      {"pad", 1},          {"tile", 1},        {"gather", 1},
      {"prefix", 1},       {"take_row", 1},    {"gather_elements", 1},
      {"take_rows", 1},    {"device_copy", 1}, {"on_device", 1}};
  const auto it = kTable.find(e.op);
  std::vector<size_t> out;
  if (it == kTable.end()) return out;
  for (size_t i = 0; i < (it->second == 0 ? e.args.size() : it->second); ++i) out.push_back(i);
  return out;
}

}  // namespace nimble::reference
