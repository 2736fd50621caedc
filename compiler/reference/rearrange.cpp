// Reference functions of the operators that move elements.
#include <cmath>
#include <map>

#include "compiler/ir/axes.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/shapes.h"
#include "compiler/reference/operand.h"

namespace nimble::reference {
namespace {

using Ints = std::vector<int64_t>;

// An attribute of dims, or the elements of an operand.
Ints integers(const OpCall& c, const std::string& name, size_t operand) {
  if (c.in.size() > operand) return c.in[operand].i;
  Ints out;
  for (const ir::Dim& d : ir::attr<std::vector<ir::Dim>>(c.e.attrs, name))
    out.push_back(*d.as_constant());
  return out;
}

// ---------------------------------------------------------------- where an element comes from

// reshape, squeeze, unsqueeze, assert_shape, device_copy, on_device: the same elements in the same
// order.
Origin same_order(const OpCall& c) {
  const int64_t there = elements(c.in[0].shape), here = elements(c.result_shape());
  if (here != there) fatal(c, fmt::format("{} elements do not fit {}", there, here));
  return [](const Shape&, int64_t flat) { return flat; };
}

Origin transpose(const OpCall& c) {
  const Shape strides = strides_of(c.in[0].shape);
  Shape of_result;
  for (const int64_t axis : ir::attr<Ints>(c.e.attrs, "axes"))
    of_result.push_back(strides[static_cast<size_t>(ir::axis_from_front(axis, c.in[0].rank()))]);
  return [of_result](const Shape& at, int64_t) {
    int64_t from = 0;
    for (size_t k = 0; k < of_result.size(); ++k) from += at[k] * of_result[k];
    return from;
  };
}

Origin expand(const OpCall& c) {
  return [shape = c.in[0].shape](const Shape& at, int64_t) { return broadcast_offset(shape, at); };
}

Origin slice(const OpCall& c) {
  const Array& x = c.in[0];
  const auto& axes = ir::attr<Ints>(c.e.attrs, "axes");
  const Ints starts = integers(c, "starts", 1), ends = integers(c, "ends", 2);
  const bool stepped = c.in.size() > 3 || c.e.attrs.contains("steps");
  const Ints steps = stepped ? integers(c, "steps", 3) : Ints(axes.size(), 1);
  Shape first(x.shape.size(), 0), step(x.shape.size(), 1);
  for (size_t k = 0; k < axes.size(); ++k) {
    auto a = static_cast<size_t>(ir::axis_from_front(axes[k], x.rank()));
    first[a] = *ir::slice_bounds(x.shape[a], starts[k], ends[k], steps[k], {}).first.as_constant();
    step[a] = steps[k];
  }
  return [first, step, strides = strides_of(x.shape)](const Shape& at, int64_t) {
    int64_t from = 0;
    for (size_t k = 0; k < at.size(); ++k) from += (first[k] + at[k] * step[k]) * strides[k];
    return from;
  };
}

// Negative padding crops.
Origin pad(const OpCall& c) {
  return [before = integers(c, "before", 1), shape = c.in[0].shape,
          strides = strides_of(c.in[0].shape)](const Shape& at, int64_t) {
    int64_t from = 0;
    for (size_t k = 0; k < at.size(); ++k) {
      const int64_t p = at[k] - before[k];
      if (p < 0 || p >= shape[k]) return kNowhere;
      from += p * strides[k];
    }
    return from;
  };
}

// Behind the operand's elements there is nothing yet.
Origin pitched(const OpCall& c) {
  const auto axis = static_cast<size_t>(
      ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), c.in[0].rank()));
  return
      [axis, shape = c.in[0].shape, strides = strides_of(c.in[0].shape)](const Shape& at, int64_t) {
        if (at[axis] >= shape[axis]) return kNowhere;
        int64_t from = 0;
        for (size_t k = 0; k < at.size(); ++k) from += at[k] * strides[k];
        return from;
      };
}

int64_t checked_index(const OpCall& c, int64_t index, int64_t extent) {
  int64_t i = index < 0 ? index + extent : index;
  if (i < 0 || i >= extent)
    fatal(c, fmt::format("index {} is out of range for an extent of {}", index, extent));
  return i;
}

Origin gather(const OpCall& c) {
  const Array &x = c.in[0], &indices = c.in[1];
  const auto axis =
      static_cast<size_t>(ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), x.rank()));
  return [&c, &x, &indices, axis, strides = strides_of(x.shape),
          index_strides = strides_of(indices.shape)](const Shape& at, int64_t) {
    const size_t r = index_strides.size();
    int64_t where = 0, from = 0;
    for (size_t k = 0; k < r; ++k) where += at[axis + k] * index_strides[k];
    for (size_t k = 0; k < axis; ++k) from += at[k] * strides[k];
    from += checked_index(c, indices.i[static_cast<size_t>(where)], x.shape[axis]) * strides[axis];
    for (size_t k = axis + 1; k < x.shape.size(); ++k) from += at[k - 1 + r] * strides[k];
    return from;
  };
}

Origin gather_elements(const OpCall& c) {
  const Array &x = c.in[0], &indices = c.in[1];
  const auto axis =
      static_cast<size_t>(ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), x.rank()));
  return [&c, &x, &indices, axis, strides = strides_of(x.shape)](const Shape& at, int64_t flat) {
    int64_t from = 0;
    for (size_t k = 0; k < at.size(); ++k)
      from += strides[k] *
              (k == axis ? checked_index(c, indices.i[static_cast<size_t>(flat)], x.shape[axis])
                         : at[k]);
    return from;
  };
}

// Where rows [from, from + count) of x begin; never from its end, as a row of a view cannot.
int64_t first_of_rows(const OpCall& c, const Array& x, int64_t from, int64_t count) {
  if (from < 0 || from > x.shape[0] - count)
    fatal(c, fmt::format("rows {} to {} are out of range for an extent of {}", from, from + count,
                         x.shape[0]));
  return x.shape[0] == 0 ? 0 : from * (elements(x.shape) / x.shape[0]);
}

Origin take_row(const OpCall& c) {
  const int64_t begin = first_of_rows(c, c.in[0], c.in[1].i[0], 1);
  return [begin](const Shape&, int64_t flat) { return begin + flat; };
}

Origin take_rows(const OpCall& c) {
  const int64_t begin = first_of_rows(c, c.in[0], c.in[1].i[0], c.result_shape()[0]);
  return [begin](const Shape&, int64_t flat) { return begin + flat; };
}

// ---------------------------------------------------------------- the functions

std::vector<Array> move(const OpCall& c) {
  Array y = c.result();
  const double value = ir::attr_or<double>(c.e.attrs, "value", 0.0);  // of padding
  const Origin origin = find_origin(c.e.op)(c);
  for_each(y.shape, [&](const Shape& at, int64_t flat) {
    const int64_t from = origin(at, flat);
    if (from != kNowhere)
      y.copy(flat, c.in[0], from);
    else if (y.floating())
      y.f[static_cast<size_t>(flat)] = value;
    else
      y.i[static_cast<size_t>(flat)] = static_cast<int64_t>(value);
  });
  return {y};
}

// Not by `move`: it is the commonest.
std::vector<Array> keep_order(const OpCall& c) {
  same_order(c);
  Array y = c.result();
  y.f = c.in[0].f;
  y.i = c.in[0].i;
  return {y};
}

std::vector<Array> concat(const OpCall& c) {
  Array y = c.result();
  auto axis =
      static_cast<size_t>(ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), y.rank()));
  Shape strides = strides_of(y.shape);
  int64_t begin = 0;
  for (const Array& x : c.in) {
    for_each(x.shape, [&](const Shape& at, int64_t flat) {
      int64_t to = begin * strides[axis];
      for (size_t k = 0; k < at.size(); ++k) to += at[k] * strides[k];
      y.copy(to, x, flat);
    });
    begin += x.shape[axis];
  }
  return {y};
}

std::vector<Array> write_row(const OpCall& c) {
  Array y = c.in[0];
  const bool several = c.in[2].rank() == y.rank();
  const int64_t begin = first_of_rows(c, y, c.in[1].i[0], several ? c.in[2].shape[0] : 1);
  for (int64_t k = 0; k < c.in[2].size(); ++k) y.copy(begin + k, c.in[2], k);
  return {y};
}

std::vector<Array> shape_of(const OpCall& c) {
  Array y = c.result();
  y.i = c.in[0].shape;
  return {y};
}

std::vector<Array> size(const OpCall& c) {
  Array y = c.result();
  y.i[0] = *ir::attr<ir::Dim>(c.e.attrs, "value").as_constant();
  return {y};
}

// From start to below (above) stop.
std::vector<Array> range_between(const OpCall& c) {
  const double start = c.in[0].number(0), stop = c.in[1].number(0), step = c.in[2].number(0);
  const double span = std::ceil((stop - start) / step);
  if (step == 0 || !(span < 1e15)) fatal(c, "the range has no end");
  Array y = Array::make(c.in[0].dtype, {static_cast<int64_t>(std::max(0.0, span))});
  for (int64_t k = 0; k < y.size(); ++k) {
    if (y.floating())
      y.f[static_cast<size_t>(k)] = start + static_cast<double>(k) * step;
    else
      y.i[static_cast<size_t>(k)] = c.in[0].i[0] + k * c.in[2].i[0];
  }
  return {y};
}

std::vector<Array> range(const OpCall& c) {
  if (!c.in.empty()) return range_between(c);
  Array y = c.result();
  const int64_t start = *ir::attr<ir::Dim>(c.e.attrs, "start").as_constant();
  const int64_t step = *ir::attr<ir::Dim>(c.e.attrs, "step").as_constant();
  for (int64_t k = 0; k < y.size(); ++k) {
    int64_t v = start + k * step;
    y.floating() ? void(y.f[static_cast<size_t>(k)] = static_cast<double>(v))
                 : void(y.i[static_cast<size_t>(k)] = v);
  }
  return {y};
}

std::vector<Array> pack(const OpCall& c) {
  auto layout = ir::parse_layout(ir::attr<std::string>(c.e.attrs, "layout"));
  NIMBLE_CHECK(layout, "a layout that typing accepted");
  return {Array::from(
      *ir::pack_matrix(*c.in[0].tensor(), *layout, ir::attr_or(c.e.attrs, "transpose", false)))};
}

}  // namespace

OriginRule find_origin(const std::string& op) {
  static const std::map<std::string, OriginRule> kTable = {{"reshape", same_order},
                                                           {"squeeze", same_order},
                                                           {"unsqueeze", same_order},
                                                           {"assert_shape", same_order},
                                                           {"device_copy", same_order},
                                                           {"on_device", same_order},
                                                           {"transpose", transpose},
                                                           {"expand", expand},
                                                           {"slice", slice},
                                                           {"pad", pad},
                                                           {"pitched", pitched},
                                                           {"gather", gather},
                                                           {"gather_elements", gather_elements},
                                                           {"take_row", take_row},
                                                           {"take_rows", take_rows}};
  const auto it = kTable.find(op);
  return it == kTable.end() ? nullptr : it->second;
}

ReferenceFunction find_rearrangement(const std::string& op) {
  static const std::map<std::string, ReferenceFunction> kTable = {
      {"concat", concat},     {"append", concat}, {"write_row", write_row},
      {"shape_of", shape_of}, {"size", size},     {"range", range},
      {"pack", pack}};
  const auto it = kTable.find(op);
  if (it != kTable.end()) return it->second;
  const OriginRule rule = find_origin(op);
  return rule == same_order ? keep_order : rule ? move : nullptr;
}

}  // namespace nimble::reference
