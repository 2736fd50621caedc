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

// The target shape of reshape and expand: the attribute `shape`, or the elements of operand 2.
Dims target_shape(RelationContext& c) {
  const bool has_attr = c.call.attrs.contains("shape");
  if (has_attr == (c.inputs.size() == 2)) {
    c.fail("the shape must be given once", "give either the attribute shape or a second operand");
  }
  if (has_attr) return attr<Dims>(c.call.attrs, "shape");
  return extents_of(c, 1, "the shape");
}

// The call with `shape` in place of its shape operand, or of a dim that was to be inferred: what
// typing finds (n / n = 1) holds at all sizes, where a division at run time may have no answer.
std::optional<RelationResult::Resolved> with_shape(const RelationContext& c, Dims shape) {
  if (c.inputs.size() < 2) {
    const Dims& given = attr<Dims>(c.call.attrs, "shape");
    const auto inferred = [](const Dim& d) { return d.is_constant(-1); };
    if (std::none_of(given.begin(), given.end(), inferred)) return std::nullopt;
  }
  Attrs attrs = c.call.attrs;
  attrs["shape"] = std::move(shape);
  if (c.call.op == "reshape") attrs["allow_zero"] = true;
  return RelationResult::Resolved{std::move(attrs), 1};
}

// Attribute `name` of dims, or operand `input`.
Dims attr_or_operand(RelationContext& c, const std::string& name, size_t input) {
  const bool operand = c.inputs.size() > input;
  if (operand == c.call.attrs.contains(name)) {
    c.fail(fmt::format("{} must be given once", name),
           fmt::format("give the attribute {} or operand {}", name, input + 1));
  }
  return operand ? extents_of(c, input, name) : attr<Dims>(c.call.attrs, name);
}

// What dims of a shape that the run reads come to mean: -1 and 0 are told apart by arithmetic, in
// which each resolved dim is one function, so that products of them stay single terms. `total` is
// the number of elements, `from` the operand's dims.
struct ReadShape {
  Dims resolved;   // without the inferred dim: 1 in its place
  Dim minus_ones;  // how many dims are -1
  std::vector<bool> read;
};
ReadShape read_shape(RelationContext& c, const Dims& shape, const Dims& from, bool allow_zero) {
  ReadShape r;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Dim& d = shape[i];
    r.read.push_back(c.dims.range(d).low < 0 && !d.as_constant());
    if (!r.read.back()) {
      r.resolved.push_back(d.is_constant(-1) ? Dim(1) : d);
      if (d.is_constant(-1)) r.minus_ones = r.minus_ones + Dim(1);
      continue;
    }
    c.require_equal(max(d, Dim(-1)), d, fmt::format("dim {} of the shape is -1 or more", i));
    r.minus_ones = r.minus_ones + is_negative(d);
    const Dim size = max(d, Dim(0) - d);  // 1 for -1
    if (allow_zero) {
      r.resolved.push_back(size);
    } else if (i < from.size()) {
      r.resolved.push_back(max(size, from[i] - from[i] * min(Dim(1), size)));
    } else {
      c.require_equal(max(size, Dim(1)), size,
                      fmt::format("dim {} of the shape is not 0, which would copy a dim", i));
      r.resolved.push_back(size);
    }
  }
  return r;
}

// The rows of flat contents along axis 0 of a rank-1 tensor; contents of others are not split.
std::optional<int64_t> small_constant(const Dim& d) {
  auto c = d.as_constant();
  return c && *c >= 0 && *c <= static_cast<int64_t>(kMaxContents) ? c : std::nullopt;
}

}  // namespace

namespace {

RelationResult reshaped(RelationContext& c, Dims shape) {
  RelationResult r{tensor_type(shape, dtype(c, 0)), contents_of(c, 0)};
  r.resolved = with_shape(c, std::move(shape));
  return r;
}

// Some dims are read at run time.
RelationResult reshape_as_read(RelationContext& c, const Dims& shape, const Dim& total,
                               const std::string& what) {
  const bool allow_zero = attr_or<bool>(c.call.attrs, "allow_zero", false);
  const ReadShape read = read_shape(c, shape, dims(c, 0), allow_zero);
  c.require_equal(max(read.minus_ones, Dim(1)), Dim(1), "dims of the shape that are -1, at most 1");
  const Dim known = product(read.resolved);
  const Dim some = min(Dim(1), read.minus_ones);
  c.require_equal(max(some, min(Dim(1), known)), min(Dim(1), known),
                  "reshape to " + text(shape) + ": -1 is not inferred beside a dim of 0");
  const Dim quotient = floordiv(total, max(known, Dim(1)));
  Dims out;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].is_constant(-1)) {
      out.push_back(quotient);
    } else if (read.read[i]) {
      const Dim one = is_negative(shape[i]);  // resolved to 1 where the quotient belongs
      out.push_back(max(read.resolved[i] - one, one * quotient));
    } else {
      out.push_back(shape[i]);
    }
    out.back() = c.dims.simplify(out.back());
  }
  c.require_equal(product(out), total, what);
  return reshaped(c, std::move(out));
}

}  // namespace

RelationResult relate_reshape(RelationContext& c) {
  Dims shape = target_shape(c);
  const Dim total = c.dims.simplify(element_count(c.inputs[0]));
  const bool allow_zero = attr_or<bool>(c.call.attrs, "allow_zero", false);
  const std::string what = "the number of elements in reshape to " + text(shape);
  int64_t inferred = -1;
  bool read = false;
  for (size_t i = 0; i < shape.size(); ++i) {
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
    } else if (c.dims.less(shape[i], Dim(0)) == Proof::kYes) {
      c.fail(fmt::format("dim {} of the shape is negative", shape[i].str()),
             "only -1 has a meaning (inferred)");
    } else if (c.inputs.size() == 2) {
      read |= c.dims.range(shape[i]).low < 0;
    }
  }
  if (read) return reshape_as_read(c, shape, total, what);
  if (inferred >= 0) shape[static_cast<size_t>(inferred)] = 1;
  const Dim rest = c.dims.simplify(product(shape));
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
  return reshaped(c, std::move(shape));
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
    const Dim keep = from >= 0 ? dims(c, 0)[static_cast<size_t>(from)] : Dim(1);
    if (shape[i].is_constant(-1) && from >= 0) shape[i] = keep;
    if (c.inputs.size() == 2 && c.dims.range(shape[i]).low < 0 && !shape[i].as_constant()) {
      c.require_equal(max(shape[i], Dim(from >= 0 ? -1 : 0)), shape[i],
                      fmt::format("dim {} of the shape is an extent", i));
      shape[i] = c.dims.simplify(max(shape[i], is_negative(shape[i]) * keep));
    }
    if (c.dims.less(shape[i], Dim(0)) == Proof::kYes) {
      c.fail(fmt::format("dim {} of the shape has no meaning", shape[i].str()),
             "use extents that are not negative");
    }
  }
  Type t = tensor_type(broadcast_shapes(c, dims(c, 0), shape), dtype(c, 0));
  RelationResult r{t, std::nullopt};
  r.resolved = with_shape(c, t->dims);
  auto n = small_constant(element_count(t));
  if (auto in = contents_of(c, 0); in && n) {
    if (in->size() == 1) r.contents = Dims(static_cast<size_t>(*n), (*in)[0]);
    if (static_cast<int64_t>(in->size()) == *n) r.contents = std::move(in);
  }
  return r;
}

RelationResult relate_slice(RelationContext& c) {
  const auto& given = attr<std::vector<int64_t>>(c.call.attrs, "axes");
  const Dims starts = attr_or_operand(c, "starts", 1), ends = attr_or_operand(c, "ends", 2);
  const Dims steps = c.inputs.size() > 3 || c.call.attrs.contains("steps")
                         ? attr_or_operand(c, "steps", 3)
                         : Dims(given.size(), 1);
  if (starts.size() != given.size() || ends.size() != given.size() ||
      steps.size() != given.size()) {
    c.fail("axes, starts, ends and steps differ in length", "give one of each per axis");
  }
  normalize_axes(c, given, rank(c, 0));
  Dims out = dims(c, 0);
  std::optional<Dims> contents = rank(c, 0) == 1 ? contents_of(c, 0) : std::nullopt;
  for (size_t i = 0; i < given.size(); ++i) {
    if (steps[i].is_constant(0)) c.fail("a step of 0", "use a positive or negative step");
    if (!steps[i].as_constant()) {
      c.require_equal(is_step(steps[i]), Dim(1),
                      fmt::format("the step of axis {} is not 0", given[i]));
    }
    const auto axis = static_cast<size_t>(normalize_axis(c, given[i], rank(c, 0)));
    const SliceBounds b = slice_bounds(out[axis], starts[i], ends[i], steps[i], c.dims);
    out[axis] = b.count;
    auto first = b.first.as_constant(), count = b.count.as_constant();
    const auto step = steps[i].as_constant();
    if (!contents || !first || !count || !step) {
      contents.reset();
      continue;
    }
    Dims taken;
    for (int64_t k = 0; k < *count; ++k) {
      taken.push_back((*contents)[static_cast<size_t>(*first + k * *step)]);
    }
    contents = std::move(taken);
  }
  RelationResult r{tensor_type(std::move(out), dtype(c, 0)), std::move(contents)};
  if (c.inputs.size() > 1) {
    Attrs attrs = c.call.attrs;
    attrs["starts"] = starts;
    attrs["ends"] = ends;
    attrs["steps"] = steps;
    r.resolved = {std::move(attrs), 1};
  }
  return r;
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

RelationResult relate_pitched(RelationContext& c) {
  const auto axis =
      static_cast<size_t>(normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0)));
  Dims out = dims(c, 0);
  const Dim& extent = attr<Dim>(c.call.attrs, "extent");
  if (c.dims.less(extent, out[axis]) == Proof::kYes) {
    c.fail(fmt::format("{} elements along axis {} have no room in {}", out[axis].str(), axis,
                       extent.str()),
           "give a larger extent");
  }
  out[axis] = extent;
  return {tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
}

RelationResult relate_pad(RelationContext& c) {
  Dims out = dims(c, 0), before, after;
  const size_t r = out.size();
  if (c.inputs.size() > 1) {
    if (c.call.attrs.contains("before") || c.call.attrs.contains("after")) {
      c.fail("pads must be given once", "give the attributes before and after, or operand 2");
    }
    const Dims pads = extents_of(c, 1, "the pads");
    if (pads.size() != 2 * r) c.fail("not two pads per axis", "give all befores, then all afters");
    before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(r));
    after.assign(pads.begin() + static_cast<int64_t>(r), pads.end());
  } else {
    if (!c.call.attrs.contains("before") || !c.call.attrs.contains("after")) {
      c.fail("there are no pads", "give the attributes before and after, or operand 2");
    }
    before = attr<Dims>(c.call.attrs, "before");
    after = attr<Dims>(c.call.attrs, "after");
  }
  if (before.size() != r || after.size() != r) {
    c.fail("before and after must name every axis", "give 0 for axes that keep their extent");
  }
  for (size_t i = 0; i < r; ++i) {
    out[i] = c.dims.simplify(out[i] + before[i] + after[i]);
    if (c.dims.less(out[i], Dim(0)) == Proof::kYes) {
      c.fail(fmt::format("axis {} of extent {} is cropped by more than it has", i,
                         dims(c, 0)[i].str()),
             "crop less");
    }
    require_not_negative(c, out[i], fmt::format("axis {} after cropping", i));
  }
  RelationResult result{tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
  if (c.inputs.size() > 1) {
    Attrs attrs = c.call.attrs;
    attrs["before"] = std::move(before);
    attrs["after"] = std::move(after);
    result.resolved = {std::move(attrs), 1};
  }
  return result;
}

RelationResult relate_tile(RelationContext& c) {
  const Dims repeats = attr_or_operand(c, "repeats", 1);
  Dims out = dims(c, 0);
  if (repeats.size() != out.size())
    c.fail("not one repeat per axis", "give 1 where nothing repeats");
  for (size_t i = 0; i < out.size(); ++i) {
    require_not_negative(c, repeats[i], fmt::format("the repeat of axis {}", i));
    out[i] = out[i] * repeats[i];
  }
  RelationResult r{tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
  if (c.inputs.size() > 1) {
    Attrs attrs = c.call.attrs;
    attrs["repeats"] = repeats;
    r.resolved = {std::move(attrs), 1};
  }
  return r;
}

RelationResult relate_prefix(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  Dims out = dims(c, 0);
  out[0] = attr<Dim>(c.call.attrs, "count");
  // What only the run knows, the VM compares: the prefix is a tensor in the whole's memory.
  if (c.dims.less(out[0], Dim(0)) == Proof::kYes ||
      c.dims.less(dims(c, 0)[0], out[0]) == Proof::kYes)
    c.fail(fmt::format("a prefix of {} rows is asked of {}", out[0].str(), dims(c, 0)[0].str()),
           "take at least 0 and at most all rows");
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

RelationResult relate_take_rows(RelationContext& c) {
  require_index(c, 1);
  return relate_prefix(c);
}

RelationResult relate_write_row(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  require_index(c, 1);
  require_dtype(c, 2, dtype(c, 0));
  const bool several = dims(c, 2).size() == dims(c, 0).size();
  if (!several) require_rank(c, 2, rank(c, 0) - 1);
  const Dims& x = dims(c, 0);
  for (size_t i = 1; i < x.size(); ++i) {
    const size_t axis = several ? i : i - 1;
    c.require_equal(x[i], dims(c, 2)[axis],
                    fmt::format("axis {} of the {}", axis, several ? "rows" : "row"));
  }
  if (several && c.dims.less(x[0], dims(c, 2)[0]) == Proof::kYes)
    c.fail(fmt::format("{} rows do not fit into {}", dims(c, 2)[0].str(), x[0].str()),
           "write at most all rows");
  return {c.inputs[0], std::nullopt};
}

}  // namespace nimble::ir
