// Convolutions compiled with --winograd, against the reference interpreter of the module as it is:
// how far they may be off is what docs/running.md states.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compiler/driver/test/policies.h"
#include "compiler/ir/text.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::driver::testing {
namespace {

using ir::Atom;
using ir::TensorRef;
using Shape = std::vector<int64_t>;

constexpr int64_t kTiles[] = {2, 4};
constexpr const char* kCounted = "use-winograd.convolutions";

Configuration by_tiles(int64_t tile) {
  Configuration c{"default"};
  c.winograd = tile;
  return c;
}

// As an importer makes it, of images (b, c, h, w) with pads of 1.
ir::Module convolution(const TensorRef& weights, const TensorRef& bias, int64_t stride = 1) {
  const auto symbol = [](const char* name) { return ir::Dim::symbol(name); };
  const ir::VarRef x = ir::make_var(
      "x", ir::tensor_type({symbol("b"), ir::Dim(weights->shape[1]), symbol("h"), symbol("w")},
                           DType::kF32));
  ir::BlockBuilder body;
  const ir::VarRef y = body.call("conv2d", {Atom(x), Atom::of(weights), Atom::of(bias)},
                                 {{"strides", Shape{stride, stride}},
                                  {"pads", Shape{1, 1, 1, 1}},
                                  {"dilations", Shape{1, 1}},
                                  {"groups", int64_t{1}}},
                                 "y");
  ir::Module m;
  m.set("main", ir::make_function_of({x}, body.finish(y)));
  return m;
}

TensorRef evaluated(const ir::Module& m, const TensorRef& x) {
  return reference::Interpreter(m).run_tensors("main", {x}).at(0);
}

// The first element beyond |y - y64| <= u |y64| + k u s, u = 2^-24, where s is the sum over the
// input channels of the largest |x| of those under the element's tile times the sum of |w|; one u
// more, since the reference rounds, too. "" if there is none.
std::string beyond_bound(const TensorRef& got, const TensorRef& want, const TensorRef& x,
                         const TensorRef& w, int64_t tile) {
  if (got->shape != want->shape || got->dtype != want->dtype) return "another type";
  const double k = tile == 2 ? 8 : 64, u = 0x1p-24;
  const int64_t channels = x->shape[1], height = x->shape[2], width = x->shape[3];
  const int64_t filters = w->shape[0];
  std::vector<double> sums;  // of |w|, (filter, channel)
  for (int64_t i = 0; i < filters * channels; ++i) {
    double sum = 0;
    for (int64_t tap = 0; tap < 9; ++tap) sum += std::abs(w->value(i * 9 + tap));
    sums.push_back(sum);
  }
  for (int64_t i = 0; i < want->elements(); ++i) {
    const int64_t left = i % width / tile * tile, top = i / width % height / tile * tile;
    const int64_t filter = i / width / height % filters, image = i / width / height / filters;
    double s = 0;
    for (int64_t c = 0; c < channels; ++c) {
      double most = 0;
      for (int64_t y = std::max<int64_t>(0, top - 1); y < std::min(height, top + tile + 1); ++y)
        for (int64_t z = std::max<int64_t>(0, left - 1); z < std::min(width, left + tile + 1); ++z)
          most =
              std::max(most, std::abs(x->value(((image * channels + c) * height + y) * width + z)));
      s += most * sums[static_cast<size_t>(filter * channels + c)];
    }
    const double y = want->value(i), error = std::abs(got->value(i) - y);
    if (!(error <= 2 * u * std::abs(y) + k * u * s))
      return fmt::format("element {}: {} for {}", i, got->value(i), y);
  }
  return "";
}

TEST(Winograd, KeepsItsBoundAtAwkwardSizes) {
  size_t turn = 0;
  for (const int64_t tile : kTiles)
    for (Configuration c : ways_to_compile({})) {
      c.winograd = tile;
      for (const auto& [in, out] : {std::pair<int64_t, int64_t>{16, 16}, {24, 40}, {40, 24}}) {
        // All of them as a user compiles; of other ways a part.
        if (!c.name.starts_with("default") && turn++ % 3 != 0) continue;
        const TensorRef w = tensor({out, in, 3, 3}, 7), bias = tensor({out}, 8);
        const ir::Module m = convolution(w, bias);
        Compiled compiled(m, c);
        EXPECT_EQ(compiled.report().statistics.at(kCounted), 1);
        for (const Shape& s : {Shape{1, 1, 1},
                               {1, 2, 2},
                               {1, 3, 3},
                               {2, 5, 7},
                               {1, 13, 11},
                               {1, 4, 17},
                               {0, 8, 8}}) {
          const TensorRef x = tensor({s[0], in, s[1], s[2]}, 99);
          EXPECT_EQ(beyond_bound(compiled.run("main", {x}).at(0), evaluated(m, x), x, w, tile), "")
              << c.name << ", " << tile << ": " << in << " -> " << out << " at "
              << fmt::format("{}", fmt::join(s, " x "));
        }
      }
    }
}

// What the bound is there for: a kernel that lacks a tap, or a channel.
TEST(Winograd, TheBoundFindsWhatIsMissing) {
  const TensorRef w = tensor({24, 40, 3, 3}, 7), bias = tensor({24}, 8);
  const TensorRef x = tensor({1, 40, 9, 10}, 99);
  const TensorRef want = evaluated(convolution(w, bias), x);
  const auto fault = [&](int64_t tile, const auto& is_missing) {
    std::vector<float> values;
    for (int64_t i = 0; i < w->elements(); ++i)
      values.push_back(is_missing(i) ? 0 : static_cast<float>(w->value(i)));
    const TensorRef some = ir::Tensor::of(DType::kF32, w->shape, values);
    Compiled compiled(convolution(some, bias), by_tiles(tile));
    return beyond_bound(compiled.run("main", {x}).at(0), want, x, w, tile);
  };
  for (const int64_t tile : kTiles) {
    EXPECT_EQ(fault(tile, [](int64_t) { return false; }), "");
    EXPECT_NE(fault(tile, [](int64_t i) { return i % 9 == 8; }), "");
    EXPECT_NE(fault(tile, [](int64_t i) { return i / 9 % 40 == 39; }), "");
    EXPECT_NE(fault(tile, [](int64_t i) { return i / 9 / 40 == 23; }), "");
  }
}

// Whatever may not be made so, or would not gain, is to the bit what it is without the option.
TEST(Winograd, TheRestIsAsItWas) {
  struct Other {
    const char* what;
    int64_t in, out, stride;
    float infinite;
  };
  for (const Other& o :
       {Other{"one channel", 1, 16, 1, 0},
        {"three channels", 3, 24, 1, 0},
        {"few filters", 16, 3, 1, 0},
        {"a stride", 16, 16, 2, 0},
        {"an infinite weight", 16, 16, 1, std::numeric_limits<float>::infinity()}}) {
    SCOPED_TRACE(o.what);
    std::vector<float> values;
    const TensorRef drawn = tensor({o.out, o.in, 3, 3}, 7);
    for (int64_t i = 0; i < drawn->elements(); ++i)
      values.push_back(static_cast<float>(drawn->value(i)));
    if (o.infinite != 0) values[5] = o.infinite;
    const ir::Module m = convolution(ir::Tensor::of(DType::kF32, drawn->shape, values),
                                     tensor({o.out}, 8), o.stride);
    const TensorRef x = tensor({2, o.in, 7, 9}, 99);
    const TensorRef plain = Compiled(m, Configuration{"default"}).run("main", {x}).at(0);
    for (const int64_t tile : kTiles) {
      Compiled compiled(m, by_tiles(tile));
      EXPECT_FALSE(compiled.report().statistics.contains(kCounted));
      const TensorRef got = compiled.run("main", {x}).at(0);
      EXPECT_TRUE(std::equal(got->bytes.begin(), got->bytes.end(), plain->bytes.begin(),
                             plain->bytes.end()));
    }
  }
}

// Two convolutions, what is fused behind them, and a residual, at sizes that the run says.
constexpr const char* kBlock = R"(
fn @main(%x: Tensor[(b, 24, h, w), f32], %f: Tensor[(24, 24, 3, 3), f32], %g: Tensor[(24, 24, 3, 3), f32]) {
  let %a = conv2d(%x, %f) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1};
  let %r = relu(%a);
  let %c = conv2d(%r, %g) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1};
  let %s = add(%c, %x);
  let %y = sigmoid(%s);
  %y
})";

ir::Module block() {
  const ir::Module m = ir::parse_module(kBlock);
  const ir::FunctionRef f = m.find("main");
  passes::Rewriter rewriter(
      [](const ir::Binding&, ir::BlockBuilder&) { return std::optional<Atom>(); });
  for (size_t i = 1; i < f->parameters.size(); ++i)
    rewriter.substitute(f->parameters[i],
                        Atom::of(tensor({24, 24, 3, 3}, static_cast<unsigned>(i), 0.1F)));
  auto main = std::make_shared<ir::Function>(*rewriter.rewrite(f));
  main->parameters.resize(1);
  ir::Module out;
  out.set("main", std::move(main));
  return out;
}

TEST(Winograd, BlocksOfANetworkAreTheSameOnAnyNumberOfThreads) {
  const ir::Module m = block();
  for (const int64_t tile : kTiles) {
    Compiled one(m, by_tiles(tile));
    EXPECT_EQ(one.report().statistics.at(kCounted), 2);
    EXPECT_EQ(std::count_if(one.report().kernels.begin(), one.report().kernels.end(),
                            [](const KernelReport& k) { return k.template_name == "winograd"; }),
              2);
    Configuration c = by_tiles(tile);
    c.threads = 3;
    Compiled three(m, c);
    for (const Shape& s : {Shape{1, 7, 7}, {2, 14, 9}, {3, 1, 30}, {1, 31, 29}}) {
      const TensorRef x = tensor({s[0], 24, s[1], s[2]}, 5);
      const std::vector<TensorRef> got = one.run("main", {x});
      EXPECT_EQ(difference_of(got, {evaluated(m, x)}, 2e-5), "") << tile;
      const TensorRef other = three.run("main", {x}).at(0);
      EXPECT_TRUE(std::equal(got[0]->bytes.begin(), got[0]->bytes.end(), other->bytes.begin(),
                             other->bytes.end()))
          << tile;
    }
  }
}

TEST(Winograd, TheOptionIsToldWhereItWasGiven) {
  const ir::Module m = convolution(tensor({16, 16, 3, 3}, 1), tensor({16}, 2));
  EXPECT_EQ(Compiled(m, by_tiles(4)).executable().provenance.options.at("winograd"), "4");
  const Compiled plain(m, Configuration{"default"});
  EXPECT_FALSE(plain.executable().provenance.options.contains("winograd"));
  EXPECT_FALSE(plain.report().statistics.contains(kCounted));
}

// Under a policy that narrows convolutions these stay narrow.
TEST(Winograd, NarrowConvolutionsStayNarrow) {
  const ir::Module m = convolution(tensor({16, 16, 3, 3}, 1), tensor({16}, 2));
  for (const passes::Precision policy : {passes::Precision::kBF16, passes::Precision::kF16}) {
    Configuration c = under(policy);
    c.winograd = 4;
    const Compiled compiled(m, c);
    EXPECT_FALSE(compiled.report().statistics.contains(kCounted));
    EXPECT_EQ(compiled.report().statistics.at("set-precision.products"), 1);
  }
}

}  // namespace
}  // namespace nimble::driver::testing
