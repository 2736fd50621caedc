// Operators that move elements without computing on them.
#include <algorithm>

#include "compiler/ir/ops/relations.h"
#include "compiler/ir/shapes.h"

namespace nimble::ir {
namespace {

Dim product(const Dims& d) {
  Dim p = 1;
  for (const Dim& x : d) p = p * x;
  return p;
}

std::string text(const Dims& d) {
  std::string out;
  for (const Dim& x : d) out += (out.empty() ? "" : ", ") + x.str();
  return "(" + out + ")";
}

// The target shape of reshape and expand: the attribute `shape`, or the contents of operand 2.
Dims target_shape(RelationContext& c) {
  const bool has_attr = c.call.attrs.contains("shape");
  if (has_attr == (c.inputs.size() == 2)) {
    c.fail("the shape must be given once", "give either the attribute shape or a second operand");
  }
  if (has_attr) return attr<Dims>(c.call.attrs, "shape");
  require_rank(c, 1, 1);
  if (dtype(c, 1) != DType::kI64 && dtype(c, 1) != DType::kI32) require_dtype(c, 1, DType::kI64);
  auto known = contents_of(c, 1);
  if (!known) {
    c.fail("the values of the shape operand are not known to the compiler",
           "compute the shape from constants, shape_of and size only");
  }
  return *known;
}

// The rows of flat contents along axis 0 of a rank-1 tensor; contents of others are not split.
std::optional<int64_t> small_constant(const Dim& d) {
  auto c = d.as_constant();
  return c && *c >= 0 && *c <= static_cast<int64_t>(kMaxContents) ? c : std::nullopt;
}

}  // namespace

RelationResult relate_reshape(RelationContext& c) {
  Dims shape = target_shape(c);
  const Dim total = c.dims.simplify(element_count(c.inputs[0]));
  const bool allow_zero = attr_or<bool>(c.call.attrs, "allow_zero", false);
  int64_t inferred = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].is_any()) c.fail("a shape cannot contain ?", "write -1 for the inferred dim");
    if (shape[i].is_constant(0) && !allow_zero) {
      if (i >= dims(c, 0).size()) {
        c.fail(fmt::format("dim {} of the shape is 0 (copy) but the operand has rank {}", i,
                           rank(c, 0)),
               "set allow_zero, or name the dim");
      }
      shape[i] = dims(c, 0)[i];
    } else if (shape[i].is_constant(-1)) {
      if (inferred >= 0) c.fail("more than one dim of the shape is -1", "name all but one");
      inferred = static_cast<int64_t>(i);
      shape[i] = 1;
    } else if (c.dims.less(shape[i], Dim(0)) == Proof::kYes) {
      c.fail(fmt::format("dim {} of the shape is negative", shape[i].str()),
             "only -1 has a meaning (inferred)");
    }
  }
  const Dim rest = c.dims.simplify(product(shape));
  const std::string what = "the number of elements in reshape to " + text(shape);
  if (inferred < 0) {
    c.require_equal(total, rest, what);
  } else {
    if (rest.is_constant(0)) c.fail("-1 cannot be inferred beside a dim of 0", "name every dim");
    const Dim quotient = c.dims.simplify(floordiv(total, rest));
    if (c.dims.equal(quotient * rest, total) != Proof::kYes) {
      c.require_equal(quotient * rest, total, what);
    }
    shape[static_cast<size_t>(inferred)] = quotient;
  }
  return {tensor_type(std::move(shape), dtype(c, 0)), contents_of(c, 0)};
}

RelationResult relate_transpose(RelationContext& c) {
  const auto& given = attr<std::vector<int64_t>>(c.call.attrs, "axes");
  const int64_t r = rank(c, 0);
  if (static_cast<int64_t>(given.size()) != r) {
    c.fail(fmt::format("{} axes for rank {}", given.size(), r), "name every axis once");
  }
  normalize_axes(c, given, r);  // refuses repetition
  Dims out;
  for (int64_t a : given) out.push_back(dims(c, 0)[static_cast<size_t>(normalize_axis(c, a, r))]);
  return {tensor_type(std::move(out), dtype(c, 0)), r <= 1 ? contents_of(c, 0) : std::nullopt};
}

RelationResult relate_squeeze(RelationContext& c) {
  const auto axes = normalize_axes(c, attr<std::vector<int64_t>>(c.call.attrs, "axes"), rank(c, 0));
  Dims out;
  for (int64_t i = 0; i < rank(c, 0); ++i) {
    const Dim& d = dims(c, 0)[static_cast<size_t>(i)];
    if (std::binary_search(axes.begin(), axes.end(), i)) {
      c.require_equal(d, Dim(1), fmt::format("squeezed axis {}", i));
    } else {
      out.push_back(d);
    }
  }
  return {tensor_type(std::move(out), dtype(c, 0)), contents_of(c, 0)};
}

RelationResult relate_unsqueeze(RelationContext& c) {
  const auto& given = attr<std::vector<int64_t>>(c.call.attrs, "axes");
  const int64_t r = rank(c, 0) + static_cast<int64_t>(given.size());
  const auto axes = normalize_axes(c, given, r);
  Dims out;
  size_t next = 0;
  for (int64_t i = 0; i < r; ++i) {
    out.push_back(std::binary_search(axes.begin(), axes.end(), i) ? Dim(1) : dims(c, 0)[next++]);
  }
  return {tensor_type(std::move(out), dtype(c, 0)), contents_of(c, 0)};
}

RelationResult relate_expand(RelationContext& c) {
  Dims shape = target_shape(c);
  for (size_t i = 0; i < shape.size(); ++i) {
    // PyTorch's -1, which its exporter leaves in place: keep the operand's dim.
    const int64_t from = rank(c, 0) - static_cast<int64_t>(shape.size() - i);
    if (shape[i].is_constant(-1) && from >= 0) shape[i] = dims(c, 0)[static_cast<size_t>(from)];
    if (shape[i].is_any() || c.dims.less(shape[i], Dim(0)) == Proof::kYes) {
      c.fail(fmt::format("dim {} of the shape has no meaning", shape[i].str()),
             "use extents that are not negative");
    }
  }
  Type t = tensor_type(broadcast_shapes(c, dims(c, 0), shape), dtype(c, 0));
  RelationResult r{t, std::nullopt};
  auto n = small_constant(element_count(t));
  if (auto in = contents_of(c, 0); in && n) {
    if (in->size() == 1) r.contents = Dims(static_cast<size_t>(*n), (*in)[0]);
    if (static_cast<int64_t>(in->size()) == *n) r.contents = std::move(in);
  }
  return r;
}

RelationResult relate_slice(RelationContext& c) {
  const auto& given = attr<std::vector<int64_t>>(c.call.attrs, "axes");
  const auto& starts = attr<Dims>(c.call.attrs, "starts");
  const auto& ends = attr<Dims>(c.call.attrs, "ends");
  const auto steps =
      attr_or<std::vector<int64_t>>(c.call.attrs, "steps", std::vector<int64_t>(given.size(), 1));
  if (starts.size() != given.size() || ends.size() != given.size() ||
      steps.size() != given.size()) {
    c.fail("axes, starts, ends and steps differ in length", "give one of each per axis");
  }
  normalize_axes(c, given, rank(c, 0));
  Dims out = dims(c, 0);
  std::optional<Dims> contents = rank(c, 0) == 1 ? contents_of(c, 0) : std::nullopt;
  for (size_t i = 0; i < given.size(); ++i) {
    if (steps[i] == 0) c.fail("a step of 0", "use a positive or negative step");
    const auto axis = static_cast<size_t>(normalize_axis(c, given[i], rank(c, 0)));
    const SliceBounds b = slice_bounds(out[axis], starts[i], ends[i], steps[i], c.dims);
    out[axis] = b.count;
    auto first = b.first.as_constant(), count = b.count.as_constant();
    if (!contents || !first || !count) {
      contents.reset();
      continue;
    }
    Dims taken;
    for (int64_t k = 0; k < *count; ++k) {
      taken.push_back((*contents)[static_cast<size_t>(*first + k * steps[i])]);
    }
    contents = std::move(taken);
  }
  return {tensor_type(std::move(out), dtype(c, 0)), std::move(contents)};
}

RelationResult relate_concat(RelationContext& c) {
  require_same_dtype(c);
  const int64_t r = rank(c, 0);
  const auto axis = static_cast<size_t>(normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), r));
  Dims out = dims(c, 0);
  std::optional<Dims> contents = r == 1 ? contents_of(c, 0) : std::nullopt;
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    require_rank(c, i, r);
    for (size_t k = 0; k < out.size(); ++k) {
      const Dim& d = dims(c, i)[k];
      if (k == axis) {
        out[k] = out[k] + d;
      } else {
        c.require_equal(out[k], d, fmt::format("axis {} of operands 1 and {}", k, i + 1));
        if (d.as_constant()) out[k] = d;
      }
    }
    auto more = contents_of(c, i);
    if (contents && more) {
      contents->insert(contents->end(), more->begin(), more->end());
    } else {
      contents.reset();
    }
  }
  if (contents && contents->size() > kMaxContents) contents.reset();
  return {tensor_type(std::move(out), dtype(c, 0)), std::move(contents)};
}

RelationResult relate_pad(RelationContext& c) {
  const auto& before = attr<std::vector<int64_t>>(c.call.attrs, "before");
  const auto& after = attr<std::vector<int64_t>>(c.call.attrs, "after");
  Dims out = dims(c, 0);
  if (before.size() != out.size() || after.size() != out.size()) {
    c.fail("before and after must name every axis", "give 0 for axes that keep their extent");
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (before[i] < 0 || after[i] < 0) c.fail("negative padding", "use slice to crop");
    out[i] = out[i] + Dim(before[i]) + Dim(after[i]);
  }
  return {tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
}

RelationResult relate_gather(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  if (dtype(c, 1) != DType::kI64 && dtype(c, 1) != DType::kI32) require_dtype(c, 1, DType::kI64);
  const auto axis =
      static_cast<size_t>(normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0)));
  const Dims& data = dims(c, 0);
  Dims out(data.begin(), data.begin() + static_cast<int64_t>(axis));
  out.insert(out.end(), dims(c, 1).begin(), dims(c, 1).end());
  out.insert(out.end(), data.begin() + static_cast<int64_t>(axis) + 1, data.end());
  RelationResult r{tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
  auto indices = contents_of(c, 1);
  if (!indices) return r;
  auto values = data.size() == 1 ? contents_of(c, 0) : std::nullopt;
  const auto extent = data[axis].as_constant();
  Dims taken;
  for (const Dim& d : *indices) {
    auto i = d.as_constant();
    if (i && extent && (*i < -*extent || *i >= *extent)) {
      c.fail(fmt::format("index {} is out of range for axis {} of extent {}", *i, axis, *extent),
             "use indices inside the axis");
    }
    if (values && i) {
      taken.push_back((*values)[static_cast<size_t>(*i < 0 ? *i + *extent : *i)]);
    } else {
      values.reset();
    }
  }
  if (values) r.contents = std::move(taken);
  return r;
}

RelationResult relate_gather_elements(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  require_rank(c, 1, rank(c, 0));
  if (dtype(c, 1) != DType::kI64 && dtype(c, 1) != DType::kI32) require_dtype(c, 1, DType::kI64);
  const auto axis =
      static_cast<size_t>(normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0)));
  for (size_t i = 0; i < dims(c, 0).size(); ++i) {
    if (i == axis) continue;
    const Dim within = c.dims.simplify(min(dims(c, 1)[i], dims(c, 0)[i]));
    c.require_equal(within, dims(c, 1)[i], fmt::format("axis {} of the indices, at most x's", i));
  }
  return {tensor_type(dims(c, 1), dtype(c, 0)), std::nullopt};
}

RelationResult relate_take_row(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  require_index(c, 1);
  const Dims& x = dims(c, 0);
  RelationResult r{tensor_type(Dims(x.begin() + 1, x.end()), dtype(c, 0)), std::nullopt};
  auto values = x.size() == 1 ? contents_of(c, 0) : std::nullopt;
  auto index = contents_of(c, 1);
  if (values && index) {
    auto i = (*index)[0].as_constant();
    if (i && *i >= 0 && *i < static_cast<int64_t>(values->size())) {
      r.contents = Dims{(*values)[static_cast<size_t>(*i)]};
    }
  }
  return r;
}

RelationResult relate_write_row(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  require_index(c, 1);
  require_dtype(c, 2, dtype(c, 0));
  require_rank(c, 2, rank(c, 0) - 1);
  for (size_t i = 0; i < dims(c, 2).size(); ++i) {
    c.require_equal(dims(c, 0)[i + 1], dims(c, 2)[i], fmt::format("axis {} of the row", i));
  }
  return {c.inputs[0], std::nullopt};
}

}  // namespace nimble::ir
