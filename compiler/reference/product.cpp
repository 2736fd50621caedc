// Reference functions of matrix products, convolution and attention.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "compiler/ir/blockwise.h"
#include "compiler/ir/groupwise.h"
#include "compiler/ir/image_layout.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/winograd.h"
#include "compiler/reference/operand.h"

namespace nimble::reference {
namespace {

using Ints = std::vector<int64_t>;

std::vector<Array> matmul(const OpCall& c) {
  Array y = c.result();
  const Array &a = c.in[0], &b = c.in[1];
  bool ta = ir::attr_or(c.e.attrs, "transpose_a", false);
  bool tb = ir::attr_or(c.e.attrs, "transpose_b", false);
  // A vector operand is a matrix of one row (left) or one column (right).
  Shape as = a.shape, bs = b.shape;
  if (as.size() == 1) as.insert(as.begin(), 1);
  if (bs.size() == 1) bs.push_back(1);
  if (ta) std::swap(as[as.size() - 1], as[as.size() - 2]);
  if (tb) std::swap(bs[bs.size() - 1], bs[bs.size() - 2]);
  int64_t m = as[as.size() - 2], k = as.back(), n = bs.back();
  Shape a_batch(as.begin(), as.end() - 2), b_batch(bs.begin(), bs.end() - 2);
  size_t vectors = (a.shape.size() == 1) + (b.shape.size() == 1);
  Shape batch(y.shape.begin(), y.shape.end() - static_cast<std::ptrdiff_t>(2 - vectors));
  for_each(batch, [&](const Shape& at, int64_t group) {
    int64_t a0 = broadcast_offset(a_batch, at) * m * k;
    int64_t b0 = broadcast_offset(b_batch, at) * k * n;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t col = 0; col < n; ++col) {
        double sum = 0;
        int64_t isum = 0;
        for (int64_t q = 0; q < k; ++q) {
          int64_t ia = a0 + (ta ? q * m + r : r * k + q);
          int64_t ib = b0 + (tb ? col * k + q : q * n + col);
          if (y.floating())
            sum += a.f[static_cast<size_t>(ia)] * b.f[static_cast<size_t>(ib)];
          else
            isum += a.i[static_cast<size_t>(ia)] * b.i[static_cast<size_t>(ib)];
        }
        auto to = static_cast<size_t>((group * m + r) * n + col);
        y.floating() ? void(y.f[to] = sum) : void(y.i[to] = isum);
      }
  });
  return {y};
}

// Kernels may rely on what a product promises of its weights, so here it is asked for.
void require_max_weight(const OpCall& c) {
  const auto most = ir::attr_or<int64_t>(c.e.attrs, "max_weight", 128);
  for (const int64_t w : c.in[1].i)
    if (std::abs(w) > most)
      throw Error(Status::kInvalidArgument, c.e.location.str(),
                  fmt::format("a weight of {} breaks the promise max_weight = {}", w, most),
                  "give the size of the largest weight, or drop the attribute");
}

std::vector<Array> packed_matmul(const OpCall& c) {
  require_max_weight(c);
  Array y = c.result();
  auto k = ir::attr<int64_t>(c.e.attrs, "k"), n = ir::attr<int64_t>(c.e.attrs, "n");
  const ir::Layout layout = *ir::parse_layout(ir::attr<std::string>(c.e.attrs, "layout"));
  const int64_t width = layout.width, group = layout.group;
  int64_t rows = n ? y.size() / n : 0;
  const auto multiply = [&](const auto& x, const auto& w, auto& out) {
    std::vector<typename std::decay_t<decltype(out)>::value_type> sums(static_cast<size_t>(width));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t first = 0; first < n; first += width) {
        std::fill(sums.begin(), sums.end(), 0);
        for (int64_t q = 0; q < k; ++q) {
          const auto left = x[static_cast<size_t>(r * k + q)];
          const auto* right = w.data() + layout.index_of(q, first, k);
          for (int64_t col = 0; col < width; ++col)
            sums[static_cast<size_t>(col)] += left * right[col * group];
        }
        std::copy_n(sums.begin(), std::min(width, n - first), out.begin() + r * n + first);
      }
  };
  if (y.floating())
    multiply(c.in[0].f, c.in[1].f, y.f);
  else
    multiply(c.in[0].i, c.in[1].i, y.i);
  return {y};
}

// Calls `body` with the elements of image, weights, bias (null if there is none) and result: all
// floats or all integers.
template <typename Body>
void convolve(const OpCall& c, Array& y, const Body& body) {
  const bool biased = c.in.size() > 2;
  if (y.floating())
    body(c.in[0].f, c.in[1].f, biased ? &c.in[2].f : nullptr, y.f);
  else
    body(c.in[0].i, c.in[1].i, biased ? &c.in[2].i : nullptr, y.i);
}

// A block of a row of x, rounded to integers and their scale: in f32, as the kernels do it.
float round_block(const double* x, int64_t count, double* out) {
  float extreme = 0, poison = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto v = static_cast<float>(x[i]);
    extreme = std::max(extreme, std::fabs(v));
    poison += v * 0;  // NaN if anything is no finite number
  }
  const float scale = extreme / 127 + poison;
  for (int64_t i = 0; i < count; ++i)
    out[i] = scale > 0
                 ? std::clamp(std::nearbyint(static_cast<float>(x[i]) / scale), -128.0F, 127.0F)
                 : 0;
  return scale;
}

std::vector<Array> blockwise_matmul(const OpCall& c) {
  Array y = c.result();
  const Array &x = c.in[0], &w = c.in[1], &scales = c.in[2];
  const ir::Blockwise form = ir::blockwise_of(c.e.attrs);
  const int64_t k = form.k, n = form.n, block = form.block;
  const bool rounds = c.e.attrs.contains("activations");
  const std::vector<uint8_t> bytes(w.i.begin(), w.i.end());
  std::vector<double> row(static_cast<size_t>(k)), by(static_cast<size_t>(form.blocks()), 1.0);
  for (int64_t r = 0; r < y.size() / n; ++r) {
    const double* from = x.f.data() + r * k;
    std::copy_n(from, k, row.begin());
    for (int64_t b = 0; rounds && b < form.blocks(); ++b)
      by[static_cast<size_t>(b)] =
          round_block(from + b * block, std::min(block, k - b * block), row.data() + b * block);
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (int64_t b = 0; b < form.blocks(); ++b) {
        const auto at = static_cast<size_t>(form.scale_index(b, column));
        const double zero = c.in.size() > 3 ? c.in[3].number(static_cast<int64_t>(at))
                                            : static_cast<double>(form.middle());
        double terms = 0;
        for (int64_t q = b * block; q < std::min(k, (b + 1) * block); ++q)
          terms += row[static_cast<size_t>(q)] * (form.number(bytes, q, column) - zero);
        sum += terms * scales.f[at] * by[static_cast<size_t>(b)];
      }
      y.f[static_cast<size_t>(r * n + column)] = sum;
    }
  }
  return {y};
}

// A group of a row of x, rounded to so many steps: in f32, as the kernels do it.
struct RoundedGroup {
  float step = 0, least = 0;
};
RoundedGroup round_group(const double* x, int64_t count, int64_t whole_steps, int64_t* out) {
  const auto steps = static_cast<float>(whole_steps);
  auto most = static_cast<float>(x[0]), least = most;
  float poison = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto v = static_cast<float>(x[i]);
    most = std::max(most, v);
    least = std::min(least, v);
    poison += v * 0;  // NaN if anything is no finite number
  }
  const float range = std::max(most - least, ir::Groupwise::kLeastRange);
  const float inverse = steps / range;
  for (int64_t i = 0; i < count; ++i) {
    const float q = std::nearbyint((static_cast<float>(x[i]) - least) * inverse);
    out[i] = q > 0 ? static_cast<int64_t>(std::min(q, steps)) : 0;
  }
  return {range * (1 / steps) + poison, least};
}

std::vector<Array> packed_groupwise_matmul(const OpCall& c) {
  require_max_weight(c);
  Array y = c.result();
  const Array &x = c.in[0], &w = c.in[1], &scales = c.in[2], &sums = c.in[3];
  const ir::Groupwise form = ir::groupwise_of(c.e.attrs);
  std::vector<int64_t> q(static_cast<size_t>(form.group));
  for (int64_t r = 0; r < y.size() / form.n; ++r)
    for (int64_t g = 0; g < form.groups(); ++g) {
      const int64_t first = g * form.group;
      const RoundedGroup by =
          round_group(x.f.data() + r * form.k + first, form.group, form.steps, q.data());
      for (int64_t column = 0; column < form.n; ++column) {
        int64_t sum = 0;
        for (int64_t i = 0; i < form.group; ++i)
          sum += q[static_cast<size_t>(i)] *
                 w.i[static_cast<size_t>(form.layout.index_of(first + i, column, form.k))];
        const auto of_group = static_cast<size_t>(g * form.stored() + column);
        y.f[static_cast<size_t>(r * form.n + column)] +=
            double{by.least} * sums.f[of_group] +
            static_cast<double>(sum) * by.step * scales.f[of_group];
      }
    }
  return {y};
}

std::vector<Array> conv2d(const OpCall& c) {
  Array y = c.result();
  const Array &x = c.in[0], &w = c.in[1];
  const auto& strides = ir::attr<Ints>(c.e.attrs, "strides");
  const auto& pads = ir::attr<Ints>(c.e.attrs, "pads");
  const auto& dilations = ir::attr<Ints>(c.e.attrs, "dilations");
  const bool skip_padding = ir::attr_or(c.e.attrs, "skip_padding", false);
  int64_t groups = ir::attr<int64_t>(c.e.attrs, "groups");
  const ir::ImageLayout l = ir::image_layout_of(c.e.attrs);
  const Shape x_steps = strides_of(x.shape), w_steps = strides_of(w.shape);
  int64_t channels = w.shape[l.input];
  int64_t height = x.shape[l.spatial[0]], width = x.shape[l.spatial[1]];
  int64_t per_group = y.shape[l.channel] / groups;
  convolve(c, y, [&](const auto& image, const auto& weights, const auto* bias, auto& out) {
    using Number = typename std::decay_t<decltype(out)>::value_type;
    for_each(y.shape, [&](const Shape& at, int64_t flat) {
      int64_t o = at[l.channel], first = o / per_group * channels;
      Number sum = bias ? (*bias)[static_cast<size_t>(o)] : Number{0};
      for (int64_t ch = 0; ch < channels; ++ch)
        for (int64_t i = 0; i < w.shape[l.taps[0]]; ++i)
          for (int64_t j = 0; j < w.shape[l.taps[1]]; ++j) {
            int64_t r = at[l.spatial[0]] * strides[0] - pads[0] + i * dilations[0];
            int64_t q = at[l.spatial[1]] * strides[1] - pads[1] + j * dilations[1];
            const bool padding = r < 0 || r >= height || q < 0 || q >= width;
            // Padding is zeros, which times an infinite weight are not numbers.
            if (padding && skip_padding) continue;
            const int64_t from = at[0] * x_steps[0] + (first + ch) * x_steps[l.channel] +
                                 r * x_steps[l.spatial[0]] + q * x_steps[l.spatial[1]];
            const int64_t tap = o * w_steps[l.filter] + ch * w_steps[l.input] +
                                i * w_steps[l.taps[0]] + j * w_steps[l.taps[1]];
            sum += (padding ? Number{0} : image[static_cast<size_t>(from)]) *
                   weights[static_cast<size_t>(tap)];
          }
      out[static_cast<size_t>(flat)] = sum;
    });
  });
  return {y};
}

std::vector<Array> packed_conv2d(const OpCall& c) {
  require_max_weight(c);
  Array y = c.result();
  const Array& x = c.in[0];
  const auto& kernel = ir::attr<Ints>(c.e.attrs, "kernel");
  const auto& strides = ir::attr<Ints>(c.e.attrs, "strides");
  const auto& pads = ir::attr<Ints>(c.e.attrs, "pads");
  const auto& dilations = ir::attr<Ints>(c.e.attrs, "dilations");
  const bool skip_padding = ir::attr_or(c.e.attrs, "skip_padding", false);
  const ir::Layout layout = *ir::parse_layout(ir::attr<std::string>(c.e.attrs, "layout"));
  const auto groups = ir::attr_or<int64_t>(c.e.attrs, "groups", 1);
  const ir::ImageLayout l =
      *ir::parse_image_layout(ir::attr_or<std::string>(c.e.attrs, "image_layout", "nhwc"));
  const Shape x_steps = strides_of(x.shape);
  const int64_t height = x.shape[l.spatial[0]], width = x.shape[l.spatial[1]];
  const int64_t channels = x.shape[l.channel] / groups;
  const int64_t taps = kernel[0] * kernel[1];
  const int64_t k =
      l.channels_last() ? taps * channels : *layout.rows_of_planes(channels, taps).as_constant();
  const int64_t filters = y.shape[3] / groups;
  const int64_t panels = (filters + layout.width - 1) / layout.width;
  std::vector<int64_t> rows(static_cast<size_t>(k));  // where each begins in a panel
  for (int64_t q = 0; q < k; ++q) rows[static_cast<size_t>(q)] = layout.index_of(q, 0, k);
  convolve(c, y, [&](const auto& image, const auto& weights, const auto* bias, auto& out) {
    using Number = typename std::decay_t<decltype(out)>::value_type;
    for_each(y.shape, [&](const Shape& at, int64_t flat) {
      const int64_t o = at[3], group = o / filters;
      const int64_t column =
          group * panels * layout.panel_elements(k) + layout.index_of(0, o % filters, k);
      Number sum = bias ? (*bias)[static_cast<size_t>(o)] : Number{0};
      for (int64_t ch = 0; ch < channels; ++ch)
        for (int64_t i = 0; i < kernel[0]; ++i)
          for (int64_t j = 0; j < kernel[1]; ++j) {
            const int64_t r = at[1] * strides[0] - pads[0] + i * dilations[0];
            const int64_t q = at[2] * strides[1] - pads[1] + j * dilations[1];
            const bool padding = r < 0 || r >= height || q < 0 || q >= width;
            if (padding && skip_padding) continue;
            const int64_t from = at[0] * x_steps[0] + r * x_steps[l.spatial[0]] +
                                 q * x_steps[l.spatial[1]] +
                                 (group * channels + ch) * x_steps[l.channel];
            const int64_t at_tap = i * kernel[1] + j;
            const int64_t row =
                l.channels_last() ? at_tap * channels + ch : layout.row_of_plane(ch, at_tap, taps);
            const int64_t tap = column + rows[static_cast<size_t>(row)];
            sum += (padding ? Number{0} : image[static_cast<size_t>(from)]) *
                   weights[static_cast<size_t>(tap)];
          }
      out[static_cast<size_t>(flat)] = sum;
    });
  });
  return {y};
}

// left m right' of a row-major m (n, n), left and right being one matrix (rows, n). What is times
// zero does not count, be it infinite.
std::vector<double> transformed(std::span<const double> matrix, int64_t rows, int64_t n,
                                const std::vector<double>& m) {
  const auto product = [&](int64_t count, const auto& element) {
    std::vector<double> out;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t q = 0; q < n; ++q)
          if (const double factor = matrix[static_cast<size_t>(r * n + q)]; factor != 0)
            sum += factor * element(i, q);
        out.push_back(sum);
      }
    return out;
  };
  // Along rows, (n, rows), then along columns: the result's transpose.
  const std::vector<double> half =
      product(n, [&](int64_t i, int64_t q) { return m[static_cast<size_t>(i * n + q)]; });
  const std::vector<double> turned =
      product(rows, [&](int64_t i, int64_t q) { return half[static_cast<size_t>(q * rows + i)]; });
  std::vector<double> out(turned.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < rows; ++j)
      out[static_cast<size_t>(j * rows + i)] = turned[static_cast<size_t>(i * rows + j)];
  return out;
}

// By the tiles, in f64: the weights are those of f32, so it is not quite the plain convolution.
std::vector<Array> packed_winograd(const OpCall& c) {
  Array y = c.result();
  const Array &x = c.in[0], &u = c.in[1];
  const ir::Winograd& form = ir::winograd_of(c.e.attrs);
  const auto& pads = ir::attr<Ints>(c.e.attrs, "pads");
  const int64_t tile = form.tile, points = form.points(), products = form.products();
  const int64_t channels = x.shape[3], filters = y.shape[3], width = u.shape[3];
  const auto at = [](const Shape& s, int64_t b, int64_t i, int64_t j, int64_t k) {
    return static_cast<size_t>(((b * s[1] + i) * s[2] + j) * s[3] + k);
  };
  for_each({y.shape[0], (y.shape[1] + tile - 1) / tile, (y.shape[2] + tile - 1) / tile},
           [&](const Shape& t, int64_t) {
             const int64_t top = t[1] * tile, left = t[2] * tile;
             std::vector<std::vector<double>> image;  // of each channel
             for (int64_t ch = 0; ch < channels; ++ch) {
               std::vector<double> pixels;
               for (int64_t i = top - pads[0]; i < top - pads[0] + points; ++i)
                 for (int64_t j = left - pads[1]; j < left - pads[1] + points; ++j) {
                   const bool padding = i < 0 || i >= x.shape[1] || j < 0 || j >= x.shape[2];
                   pixels.push_back(padding ? 0 : x.f[at(x.shape, t[0], i, j, ch)]);
                 }
               image.push_back(transformed(form.image, points, points, pixels));
             }
             for (int64_t o = 0; o < filters; ++o) {
               std::vector<double> sums(static_cast<size_t>(products), 0.0);
               for (int64_t s = 0; s < products; ++s)
                 for (int64_t ch = 0; ch < channels; ++ch)
                   sums[static_cast<size_t>(s)] +=
                       image[static_cast<size_t>(ch)][static_cast<size_t>(s)] *
                       u.f[at(u.shape, o / width, s, ch, o % width)];
               const std::vector<double> pixels = transformed(form.result, tile, points, sums);
               for (int64_t i = 0; i < std::min(tile, y.shape[1] - top); ++i)
                 for (int64_t j = 0; j < std::min(tile, y.shape[2] - left); ++j)
                   y.f[at(y.shape, t[0], top + i, left + j, o)] =
                       pixels[static_cast<size_t>(i * tile + j)] +
                       (c.in.size() > 2 ? c.in[2].f[static_cast<size_t>(o)] : 0);
             }
           });
  return {y};
}

// What a mask adds to the score at (b, h, i, j): a bool one lets keys through.
double bias(const Array& mask, const Shape& at) {
  const auto i = static_cast<size_t>(broadcast_offset(mask.shape, at));
  if (mask.floating()) return mask.f[i];
  return mask.i[i] ? 0 : -INFINITY;
}

std::vector<Array> attention(const OpCall& c) {
  Array y = c.result();
  const Array &q = c.in[0], &k = c.in[1], &v = c.in[2];
  auto heads = ir::attr<int64_t>(c.e.attrs, "heads");
  auto scale = ir::attr<double>(c.e.attrs, "scale");
  int64_t batch = q.shape[0], n = q.shape[1], m = k.shape[1];
  int64_t d = q.shape[2] / heads, dv = v.shape[2] / heads;
  std::vector<double> p(static_cast<size_t>(m));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < n; ++i) {
        double top = -INFINITY, total = 0;
        for (int64_t j = 0; j < m; ++j) {
          double s = 0;
          for (int64_t e = 0; e < d; ++e)
            s += q.f[static_cast<size_t>((b * n + i) * q.shape[2] + h * d + e)] *
                 k.f[static_cast<size_t>((b * m + j) * k.shape[2] + h * d + e)];
          s *= scale;
          if (c.in.size() > 3) s += bias(c.in[3], {b, h, i, j});
          p[static_cast<size_t>(j)] = s;
          top = std::max(top, s);
        }
        for (double& s : p) total += s = std::exp(s - top);
        for (int64_t e = 0; e < dv; ++e) {
          double sum = 0;
          for (int64_t j = 0; j < m; ++j)
            sum += p[static_cast<size_t>(j)] *
                   v.f[static_cast<size_t>((b * m + j) * v.shape[2] + h * dv + e)];
          y.f[static_cast<size_t>((b * n + i) * y.shape[2] + h * dv + e)] = m > 0 ? sum / total : 0;
        }
      }
  return {y};
}

}  // namespace

ReferenceFunction find_product(const std::string& op) {
  static const std::map<std::string, ReferenceFunction> kTable = {
      {"matmul", matmul},
      {"packed_matmul", packed_matmul},
      {"blockwise_matmul", blockwise_matmul},
      {"packed_groupwise_matmul", packed_groupwise_matmul},
      {"conv2d", conv2d},
      {"packed_conv2d", packed_conv2d},
      {"packed_winograd", packed_winograd},
      {"attention", attention}};
  auto it = kTable.find(op);
  return it == kTable.end() ? nullptr : it->second;
}

}  // namespace nimble::reference
