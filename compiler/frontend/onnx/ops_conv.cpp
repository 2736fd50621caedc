// Convolutions, forward and transposed, over one to three spatial axes.
//
// The IR's conv2d has two. One axis gets a neighbour of extent 1. Of three, the first is taken tap
// by tap: every tap is a conv2d over the slices that it meets, and their sum is the result. A
// transposed convolution is a convolution of the input with zeros between its elements, with the
// weights mirrored and their channels exchanged (Dumoulin, Visin: arXiv 1603.07285).
#include <algorithm>

#include "compiler/frontend/onnx/ops_window.h"

namespace nimble::frontend::onnx {

using ir::Dim;

std::optional<Axes> Window::constant_pads() const {
  Axes out;
  for (const Dims* side : {&before, &after})
    for (const Dim& d : *side) {
      auto c = d.as_constant();
      if (!c || *c < 0) return std::nullopt;
      out.push_back(*c);
    }
  return out;
}

Window window_of(const NodeContext& c, const Value& x, Axes kernel) {
  if (x.rank() < 3) c.fail(fmt::format("a tensor of rank {} has no spatial axis", x.rank()));
  const size_t n = x.dims().size() - 2;
  Window w;
  w.kernel = std::move(kernel);
  w.strides = c.integers("strides", Axes(n, 1));
  w.dilations = c.integers("dilations", Axes(n, 1));
  const Axes pads = c.integers("pads", Axes(2 * n, 0));
  if (w.kernel.size() != n || w.strides.size() != n || w.dilations.size() != n ||
      pads.size() != 2 * n)
    c.fail("kernel_shape, strides, dilations or pads don't fit the rank");
  for (size_t i = 0; i < n; ++i)
    if (w.kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1)
      c.fail("kernel_shape, strides and dilations must be positive");
  const std::string mode = c.text("auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!same && mode != "NOTSET" && mode != "VALID")
    c.fail(fmt::format("auto_pad {} has no meaning", printable(mode)));
  for (size_t i = 0; i < n; ++i) {
    if (!same) {
      w.before.emplace_back(mode == "VALID" ? 0 : pads[i]);
      w.after.emplace_back(mode == "VALID" ? 0 : pads[i + n]);
      continue;
    }
    // As many results as ceil(extent / stride): for stride 1 that needs no extent.
    const Dim extent = x.dim(i + 2);
    Dim total = w.reach(i) - 1;
    if (w.strides[i] != 1)
      total = c.g.simplify(
          ir::max(Dim(0), (ir::ceildiv(extent, Dim(w.strides[i])) - Dim(1)) * Dim(w.strides[i]) +
                              Dim(w.reach(i)) - extent));
    const Dim small = c.g.simplify(ir::floordiv(total, Dim(2))),
              large = c.g.simplify(total - small);
    w.before.push_back(mode == "SAME_UPPER" ? small : large);
    w.after.push_back(mode == "SAME_UPPER" ? large : small);
  }
  return w;
}

namespace {

class Convolution {
 public:
  Convolution(NodeContext& c, int64_t groups, std::optional<ByteConvolution> bytes = {})
      : c_(c), a_(c.g), groups_(groups), bytes_(std::move(bytes)) {}

  Value run(Value x, Value w, std::optional<Value> bias, Window window) {
    const DType type = bytes_ ? bytes_->out : x.dtype();
    x = a_.widened(x);
    w = a_.widened(w);
    if (bias) bias = a_.cast(*bias, bytes_ ? type : x.dtype());
    const auto pads = window.constant_pads();
    const bool known =
        pads && (!bytes_ || !bytes_->zero ||
                 std::all_of(pads->begin(), pads->end(), [](int64_t pad) { return pad == 0; }));
    if (!known) {
      Dims before(x.dims().size(), 0), after = before;
      std::copy(window.before.begin(), window.before.end(), before.begin() + 2);
      std::copy(window.after.begin(), window.after.end(), after.begin() + 2);
      x = padded(x, before, after);
      window.before.assign(window.axes(), 0);
      window.after = window.before;
    }
    return a_.cast(apply(x, w, bias, window), type);
  }

 private:
  Value padded(const Value& x, const Dims& before, const Dims& after) {
    if (!bytes_ || !bytes_->zero) return a_.pad(x, before, after);
    const Value& zero = *bytes_->zero;
    if (zero.is_constant()) return a_.pad(x, before, after, zero.atom.constant->value(0));
    // Known to the run only: 0 + zero in the padding, x - zero + zero elsewhere, modulo 2^8.
    const Value byte = a_.cast(zero, x.dtype());
    return a_.add(a_.pad(a_.sub(x, byte), before, after), byte);
  }

  Value apply(const Value& x, const Value& w, const std::optional<Value>& bias,
              const Window& window) {
    switch (window.axes()) {
      case 1:
        return one_axis(x, w, bias, window);
      case 2:
        return two_axes(x, w, bias, window);
      case 3:
        return three_axes(x, w, bias, window);
    }
    c_.unsupported(fmt::format("a convolution over {} axes", window.axes()),
                   "nimble has up to three spatial axes");
  }

  Value two_axes(const Value& x, const Value& w, const std::optional<Value>& bias,
                 const Window& window) {
    Values args = {x, w};
    if (bias) args.push_back(*bias);
    ir::Attrs attrs = {{"strides", window.strides},
                       {"pads", *window.constant_pads()},
                       {"dilations", window.dilations},
                       {"groups", groups_}};
    if (bytes_) attrs["out"] = bytes_->out;
    return c_.g.call("conv2d", args, std::move(attrs));
  }

  Value one_axis(const Value& x, const Value& w, const std::optional<Value>& bias, Window window) {
    for (Axes* list : {&window.kernel, &window.strides, &window.dilations})
      list->insert(list->begin(), 1);
    for (Dims* list : {&window.before, &window.after}) list->insert(list->begin(), Dim(0));
    return a_.squeeze(two_axes(a_.unsqueeze(x, {2}), a_.unsqueeze(w, {2}), bias, window), {2});
  }

  Value three_axes(const Value& x, const Value& w, const std::optional<Value>& bias,
                   const Window& window) {
    constexpr int64_t kMost = 1024;  // each becomes a convolution of its own
    if (window.kernel[0] > kMost)
      c_.unsupported(fmt::format("a kernel of {} along the first axis", window.kernel[0]),
                     "put the longest axis last");
    const Value padded = a_.pad(x, {0, 0, window.before[0], 0, 0}, {0, 0, window.after[0], 0, 0});
    const Dim depth = padded.dim(2);
    const Dim results =
        c_.g.simplify(ir::floordiv(depth - Dim(window.reach(0)), Dim(window.strides[0])) + Dim(1));
    Window flat = window;
    for (Axes* list : {&flat.kernel, &flat.strides, &flat.dilations}) list->erase(list->begin());
    for (Dims* list : {&flat.before, &flat.after}) list->erase(list->begin());
    std::optional<Value> sum;
    Dims slices;
    for (int64_t tap = 0; tap < window.kernel[0]; ++tap) {
      const int64_t first = tap * window.dilations[0];
      Value part = c_.g.call(
          "slice", {padded},
          {{"axes", Axes{2}},
           {"starts", Dims{Dim(first)}},
           {"ends",
            Dims{c_.g.simplify((results - Dim(1)) * Dim(window.strides[0]) + Dim(first + 1))}},
           {"steps", Dims{Dim(window.strides[0])}}});
      part = a_.transpose(part, {0, 2, 1, 3, 4});
      slices = part.dims();
      part = c_.g.reshape(part, {slices[0] * slices[1], slices[2], slices[3], slices[4]});
      const Value y = two_axes(part, a_.squeeze(c_.g.slice(w, 2, Dim(tap), Dim(tap + 1)), {2}),
                               tap == 0 ? bias : std::nullopt, flat);
      sum = sum ? a_.add(*sum, y) : y;
    }
    const Dims& d = sum->dims();
    return a_.transpose(c_.g.reshape(*sum, {slices[0], slices[1], d[1], d[2], d[3]}),
                        {0, 2, 1, 3, 4});
  }

  NodeContext& c_;
  Arithmetic a_;
  int64_t groups_;
  std::optional<ByteConvolution> bytes_;
};

Axes kernel_of(NodeContext& c, const Value& weight) {
  Axes kernel = c.integers("kernel_shape");
  if (!kernel.empty()) return kernel;
  for (size_t i = 2; i < weight.dims().size(); ++i) {
    auto k = weight.dim(i).as_constant();
    if (!k) c.unsupported("the kernel's extent is symbolic", "export with constant weights");
    kernel.push_back(*k);
  }
  return kernel;
}

Values conv(NodeContext& c) {
  if (const auto y = quantised_convolution(c)) return {*y};
  std::optional<Value> bias;
  if (c.has(2)) bias = c.in(2);
  return {convolution(c, c.in(0), c.in(1), bias)};
}

// Zeros between the elements of an axis: each becomes `stride` elements, the last alone.
Value spread_out(NodeContext& c, const Value& x, size_t axis, int64_t stride) {
  if (stride == 1) return x;
  Arithmetic a(c.g);
  const auto at = static_cast<int64_t>(axis);
  Value y = a.unsqueeze(x, {at + 1});
  Dims before(y.dims().size(), 0), after = before;
  after[axis + 1] = stride - 1;
  y = a.pad(y, before, after);
  Dims merged = x.dims();
  const Dim extent = merged[axis] * Dim(stride);
  merged[axis] = extent;
  return c.g.slice(c.g.reshape(y, merged), at, 0, c.g.simplify(extent - Dim(stride - 1)));
}

Values conv_transpose(NodeContext& c) {
  Arithmetic a(c.g);
  Value x = c.in(0), w = c.in(1);
  if (w.rank() != x.rank()) c.fail("weight and input differ in rank");
  if (x.rank() < 3) c.fail(fmt::format("a tensor of rank {} has no spatial axis", x.rank()));
  const size_t n = x.dims().size() - 2;
  const int64_t groups = c.integer("group", 1);
  if (groups < 1) c.fail("group is not positive");
  const Axes kernel = kernel_of(c, w);
  const Axes strides = c.integers("strides", Axes(n, 1)),
             dilations = c.integers("dilations", Axes(n, 1));
  const Axes extra = c.integers("output_padding", Axes(n, 0)), shape = c.integers("output_shape");
  Axes pads = c.integers("pads", Axes(2 * n, 0));
  const std::string mode = c.text("auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (kernel.size() != n || strides.size() != n || dilations.size() != n || extra.size() != n ||
      pads.size() != 2 * n || (!shape.empty() && shape.size() != n))
    c.fail("kernel_shape, strides, dilations, pads or output_shape don't fit the rank");
  constexpr int64_t kLargest = int64_t{1} << 31;  // whose products fit 64 bits
  const auto all_within = [](const Axes& list, int64_t least) {
    return std::all_of(list.begin(), list.end(),
                       [&](int64_t v) { return v >= least && v <= kLargest; });
  };
  if (!all_within(kernel, 1) || !all_within(strides, 1) || !all_within(dilations, 1) ||
      !all_within(extra, 0) || !all_within(pads, -kLargest))
    c.fail("kernel_shape, strides, dilations, pads or output_padding are out of range");
  if (mode == "VALID") pads.assign(2 * n, 0);
  Dims before(n + 2, 0), after = before;
  Window unit{kernel, Axes(n, 1), dilations, Dims(n, 0), Dims(n, 0)};
  for (size_t i = 0; i < n; ++i) {
    const Dim extent = x.dim(i + 2);
    Dim low = pads[i], high = pads[i + n];
    if (!shape.empty() || same) {
      const Dim wanted = shape.empty() ? extent * Dim(strides[i]) : Dim(shape[i]);
      // Negative where more is wanted than there is: the rest stays 0.
      const Dim total = c.g.simplify((extent - Dim(1)) * Dim(strides[i]) +
                                     Dim(extra[i] + unit.reach(i)) - wanted);
      const Dim half = c.g.simplify(ir::floordiv(total, Dim(2)));
      low = mode == "SAME_UPPER" ? half : c.g.simplify(total - half);
      high = c.g.simplify(total - low);
    }
    x = spread_out(c, x, i + 2, strides[i]);
    before[i + 2] = c.g.simplify(Dim(unit.reach(i) - 1) - low);
    after[i + 2] = c.g.simplify(Dim(unit.reach(i) - 1 + extra[i]) - high);
    w = a.reversed(w, static_cast<int64_t>(i) + 2);
  }
  x = a.pad(x, before, after);
  // (cin, cout / g, …) → (cout, cin / g, …)
  Dims apart = w.dims();
  apart[0] = c.g.simplify(ir::floordiv(apart[0], Dim(groups)));
  apart.insert(apart.begin(), Dim(groups));
  Axes order = {0, 2, 1};
  for (size_t i = 0; i < n; ++i) order.push_back(static_cast<int64_t>(i) + 3);
  Value turned = a.transpose(c.g.reshape(w, apart), order);
  Dims merged = {turned.dim(0) * turned.dim(1)};
  merged.insert(merged.end(), turned.dims().begin() + 2, turned.dims().end());
  std::optional<Value> bias;
  if (c.has(2)) bias = c.in(2);
  return {Convolution(c, groups).run(x, c.g.reshape(turned, merged), bias, unit)};
}

// Columns (n, channels * taps, places) added into an image: the places of one tap, spread by the
// strides, form an image that is shifted by the tap.
Values col2im(NodeContext& c) {
  Arithmetic a(c.g);
  const Axes image = c.constants(1), block = c.constants(2);
  const size_t n = image.size();
  const Axes strides = c.integers("strides", Axes(n, 1)),
             dilations = c.integers("dilations", Axes(n, 1));
  const Axes pads = c.integers("pads", Axes(2 * n, 0));
  if (block.size() != n || strides.size() != n || dilations.size() != n || pads.size() != 2 * n)
    c.fail("block_shape, strides, dilations or pads don't fit image_shape");
  constexpr int64_t kMostTaps = 4096, kLargest = int64_t{1} << 31;  // far below overflow
  for (const Axes* list : {&image, &block, &strides, &dilations})
    for (const int64_t v : *list)
      if (v < 1 || v > kLargest)
        c.fail("image_shape, block_shape, strides and dilations must be positive");
  for (const int64_t v : pads)
    if (v < 0 || v > kLargest) c.fail("pads must not be negative");
  const Value& x = c.in(0);
  int64_t taps = 1;
  Axes places(n);
  for (size_t i = 0; i < n; ++i) {
    taps *= block[i];
    if (taps > kMostTaps) c.unsupported("blocks of more than 4096 elements", "use smaller ones");
    const int64_t reach = (block[i] - 1) * dilations[i] + 1;
    const int64_t room = image[i] + pads[i] + pads[i + n] - reach;
    if (room < 0) c.fail("a block is larger than the image");
    places[i] = room / strides[i] + 1;
  }
  const Dim channels = c.g.simplify(ir::floordiv(x.dim(1), Dim(taps)));
  Dims apart = {x.dim(0), channels, Dim(taps)};
  for (int64_t p : places) apart.emplace_back(p);
  const Value columns = c.g.reshape(x, apart);
  std::optional<Value> sum;
  for (int64_t tap = 0; tap < taps; ++tap) {
    Value part = a.squeeze(c.g.slice(columns, 2, Dim(tap), Dim(tap + 1)), {2});
    Dims before(n + 2, 0), after = before;
    int64_t rest = tap;
    for (size_t i = n; i-- > 0;) {
      const int64_t at = (rest % block[i]) * dilations[i] - pads[i];
      rest /= block[i];
      before[i + 2] = at;
      after[i + 2] = image[i] - at - ((places[i] - 1) * strides[i] + 1);
    }
    for (size_t i = 0; i < n; ++i) part = spread_out(c, part, i + 2, strides[i]);
    part = a.pad(part, before, after);
    sum = sum ? a.add(*sum, part) : part;
  }
  return {*sum};
}

}  // namespace

Value convolution(NodeContext& c, const Value& x, const Value& w, const std::optional<Value>& bias,
                  const std::optional<ByteConvolution>& bytes) {
  if (w.rank() != x.rank()) c.fail("weight and input differ in rank");
  const Window window = window_of(c, x, kernel_of(c, w));
  return Convolution(c, c.integer("group", 1), bytes).run(x, w, bias, window);
}

std::span<const Operator> convolution_operators() {
  static const Operator kRows[] = {
      {"Conv", conv},
      {"ConvTranspose", conv_transpose},
      {"Col2Im", col2im},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
