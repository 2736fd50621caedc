// Networks with their channels last compute what they computed before, whatever stands between
// convolutions and at their borders; and no more is transposed than the border needs. That a
// template takes channels last is assumed here: the pass is compared with itself by the reference
// interpreter, on channel counts that no vector divides.
#include "compiler/passes/channels_last.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

using Shape = std::vector<int64_t>;

// A constant of the text form, other values for each seed.
std::string constant(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::string extents, values;
  int64_t elements = 1;
  for (int64_t d : shape) {
    extents += (extents.empty() ? "" : ", ") + std::to_string(d);
    elements *= d;
  }
  for (int64_t i = 0; i < elements; ++i)
    values += fmt::format("{}{:.3f}", i ? ", " : "", static_cast<int>(random() % 2001) / 1e3 - 1);
  return fmt::format("f32[{}]{{{}}}", extents, values);
}

// `let %y = conv2d(%x, …)` with same padding.
std::string conv(const std::string& y, const std::string& x, int64_t in, int64_t out, int64_t k,
                 int64_t stride = 1, int64_t groups = 1) {
  return fmt::format(
      "  let %{} = conv2d(%{}, {}, {}) {{strides = [{}, {}], pads = [{}, {}, {}, {}], dilations = "
      "[1, 1], groups = {}}};\n",
      y, x, constant({out, in / groups, k, k}, 7), constant({out}, 11), stride, stride, k / 2,
      k / 2, k / 2, k / 2, groups);
}

bool any(const ir::Expr&, const std::vector<ir::Type>&, const ir::Type&) {
  return true;
}

ir::TensorRef random_tensor(const ir::Type& t, const reference::Symbols& sizes,
                            std::mt19937& random) {
  Shape shape;
  for (const ir::Dim& d : t->dims)
    shape.push_back(d.evaluate([&](const std::string& s) { return std::optional(sizes.at(s)); }));
  int64_t elements = 1;
  for (int64_t d : shape) elements *= d;
  if (t->dtype == DType::kBool) {
    return ir::Tensor::of<uint8_t>(
        t->dtype, shape, std::vector<uint8_t>(static_cast<size_t>(elements), random() % 2));
  }
  std::vector<float> values;
  for (int64_t i = 0; i < elements; ++i)
    values.push_back(static_cast<float>(static_cast<int>(random() % 2001) / 1e3 - 1));
  return ir::Tensor::of(DType::kF32, shape, values);
}

int transposes(const ir::Module& m) {
  int count = 0;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&](const ir::Binding& b) {
      count += b.value->op == "transpose" && b.value->args[0].is_var();
    });
  return count;
}

struct Network {
  const char* name;
  std::string parameters, body;
  int transposes = 0;  // of variables, afterwards
  std::string functions = {};
};

void PrintTo(const Network& n, std::ostream* os) {
  *os << n.name;
}

const std::string kImage = "%x: Tensor[(n, 3, h, w), f32]";

const std::vector<Network>& networks() {
  static const std::vector<Network> kAll = {
      // In and out of it, with depthwise and pointwise convolutions of odd channels.
      {"mobile", kImage,
       conv("a", "x", 3, 24, 3, 2) + "  let %b = clip(%a) {min = 0.0, max = 6.0};\n" +
           conv("c", "b", 24, 24, 3, 1, 24) +
           fmt::format("  let %d = mul(%c, {});\n", constant({24, 1, 1}, 3)) +
           conv("e", "d", 24, 40, 1) + conv("f", "e", 40, 24, 1) + "  let %r = add(%f, %b);\n",
       2},
      // Concatenation, split and shuffle of 58 channels; a classifier behind a global mean.
      {"shuffle", kImage,
       conv("a", "x", 3, 58, 3, 2) +
           "  let %l = slice(%a) {axes = [1], starts = (0), ends = (29)};\n"
           "  let %k = slice(%a) {axes = [1], starts = (29), ends = (58)};\n" +
           conv("b", "k", 29, 29, 1) +
           "  let %c = concat(%l, %b) {axis = 1};\n"
           "  let %s = shape_of(%c);\n"
           "  let %d = reshape(%c) {shape = (0, 2, 29, ceildiv(h, 2), ceildiv(w, 2))};\n"
           "  let %e = transpose(%d) {axes = [0, 2, 1, 3, 4]};\n"
           "  let %f = reshape(%e, %s);\n" +
           conv("g", "f", 58, 5, 1) +
           "  let %m = mean(%g) {axes = [2, 3], keepdims = true};\n"
           "  let %v = reshape(%m) {shape = (n, 5)};\n"
           "  let %r = matmul(%v, " +
           constant({5, 3}, 5) + ");\n",
       2},
      // Squeeze and excite through a matrix product.
      {"excite", kImage,
       conv("a", "x", 3, 24, 1) +
           "  let %m = mean(%a) {axes = [2, 3], keepdims = false};\n  let %p = matmul(%m, " +
           constant({24, 24}, 5) +
           ");\n  let %s = sigmoid(%p);\n  let %u = unsqueeze(%s) {axes = [2, 3]};\n"
           "  let %b = mul(%u, %a);\n" +
           conv("c", "b", 24, 5, 1) + "  let %r = reduce_max(%c) {axes = [3], keepdims = false};\n",
       2},
      // Each operator with an axis, over channels, rows and columns.
      {"axes", kImage,
       conv("a", "x", 3, 5, 3) +
           "  let %b = softmax(%a) {axis = 1};\n  let %c = log_softmax(%b) {axis = 2};\n"
           "  let %d = l2_normalize(%c) {axis = -1, epsilon = 1e-6};\n"
           "  let %e = cumsum(%d) {axis = 1, reverse = true};\n"
           "  let %f = cumprod(%a) {axis = 3};\n  let %g = add(%e, %f);\n"
           "  let %i = argmax(%g) {axis = 1, keepdims = false};\n"
           "  let %j = argmax(%g) {axis = 2, keepdims = true};\n"
           "  let %k = sum(%g) {axes = [1], keepdims = false};\n"
           "  let %l = reduce_min(%g) {axes = [-1, 0], keepdims = true};\n"
           "  let %o = prod(%g) {axes = [1], keepdims = true};\n"
           "  let %r = (%i, %j, %k, %l, %o, %g);\n",
       4},
      // Patches of a transformer: the program's own transpose puts channels last.
      {"patches", kImage,
       conv("a", "x", 3, 24, 3, 2) +
           "  let %b = reshape(%a) {shape = (n, 24, ceildiv(h, 2)*ceildiv(w, 2))};\n"
           "  let %c = transpose(%b) {axes = [0, 2, 1]};\n"
           "  let %d = layer_norm(%c, " +
           constant({24}, 1) + ", " + constant({24}, 2) +
           ") {epsilon = 1e-5, axis = 2};\n  let %e = matmul(%d, " + constant({24, 24}, 3) +
           ");\n  let %f = transpose(%e) {axes = [0, 2, 1]};\n"
           "  let %g = reshape(%f) {shape = (n, 24, ceildiv(h, 2), ceildiv(w, 2))};\n" +
           conv("i", "g", 24, 5, 1) + "  let %r = mean(%i) {axes = [2, 3], keepdims = false};\n",
       1},
      // A classifier behind several pixels reads them in the model's order.
      {"flatten", "%x: Tensor[(n, 3, 6, 5), f32]",
       conv("a", "x", 3, 7, 3) +
           "  let %b = reshape(%a) {shape = (n, -1)};\n  let %r = matmul(%b, " +
           constant({210, 4}, 3) + ");\n",
       2},
      // What resizing is made of: rows and columns taken by indices of any rank.
      {"resize", kImage,
       conv("a", "x", 3, 5, 1) +
           "  let %b = gather(%a, i64[5]{0, 0, 1, 1, 2}) {axis = 2};\n"
           "  let %c = gather(%b, i64[2, 2]{0, 1, 1, 2}) {axis = 3};\n"
           "  let %d = gather(%c, 1i64) {axis = 1};\n"
           "  let %e = unsqueeze(%d) {axes = [1]};\n"
           "  let %f = reduce_max(%c) {axes = [4], keepdims = false};\n" +
           conv("g", "f", 5, 5, 3) + "  let %r = (%e, %g);\n",
       2},
      // Operands of every rank, broadcast from every side.
      {"broadcasts",
       kImage + ", %m: Tensor[(n, 1, h, w), f32], %p: Tensor[(h, w), f32], %q: Tensor[(w), f32], "
                "%s: Tensor[(), f32], %t: Tensor[(5, h, w), f32], %k: Tensor[(n, 1, 1, 1), f32]",
       conv("a", "x", 3, 5, 1) +
           "  let %b = mul(%m, %a);\n  let %c = add(%b, %p);\n  let %d = add(%q, %c);\n"
           "  let %e = sub(%d, %s);\n  let %f = maximum(%t, %e);\n  let %g = add(%f, %k);\n"
           "  let %u = greater(%g, 0f32);\n  let %v = where(%u, %g, %p);\n"
           "  let %i = add(%v, f32[1, 1, 1, 1]{2});\n  let %j = mul(%i, " +
           constant({1, 5, 1, 1}, 3) + ");\n  let %r = pow(%j, 2f32);\n",
       3},
      // Larger than what is convolved: expand, pads, crops, strides backwards.
      {"pads", kImage,
       conv("a", "x", 3, 1, 1) +
           "  let %b = pad(%a) {before = [0, 2, 1, 0], after = [0, 1, 0, 3], value = 0.5};\n"
           "  let %c = slice(%b) {axes = [3, 2], starts = (-1, 1), ends = (-100, 100), steps = "
           "[-2, "
           "1]};\n"
           "  let %d = slice(%a) {axes = [1], starts = (0), ends = (1)};\n"
           "  let %e = expand(%d) {shape = (n, 7, h, w)};\n  let %r = (%c, %e);\n",
       3},
      // Read in both orders, in a branch and behind it.
      {"branches", kImage + ", %t: Tensor[(), bool]",
       conv("a", "x", 3, 5, 3) + "  let %b = if (%t) {\n    let %c = relu(%a);\n  " +
           conv("d", "c", 5, 5, 1) +
           "    %d\n  } else {\n    let %e = matmul(%a, %a) {transpose_b = true};\n"
           "    let %f = sum(%e) {axes = [3], keepdims = true};\n"
           "    let %g = add(%f, %a);\n    %g\n  };\n"
           "  let %i = matmul(%a, %b) {transpose_b = true};\n  let %j = relu(%a);\n" +
           conv("k", "j", 5, 3, 1) + "  let %r = (%i, %k);\n",
       7},
      // A convolution over one axis is one over two between unsqueeze and squeeze.
      {"one_axis", "%y: Tensor[(n, 3, h), f32]",
       "  let %x = unsqueeze(%y) {axes = [2]};\n"
       "  let %a = conv2d(%x, " +
           constant({5, 3, 1, 3}, 3) +
           ") {strides = [1, 2], pads = [0, 1, 0, 1], dilations = [1, 1], groups = 1};\n"
           "  let %b = squeeze(%a) {axes = [2]};\n  let %c = gelu(%b);\n"
           "  let %d = unsqueeze(%c) {axes = [2]};\n" +
           conv("e", "d", 5, 5, 1) +
           "  let %f = squeeze(%e) {axes = [2]};\n  let %r = transpose(%f) {axes = [0, 2, 1]};\n",
       1},
      // Pooling: ahead of the first convolution as it is, behind it with channels last.
      {"pools", kImage,
       "  let %p = max_pool2d(%x) {kernel = [2, 2], strides = [1, 1], pads = [1, 1, 0, 0], "
       "dilations "
       "= [1, 1], ceil_mode = false};\n" +
           conv("a", "p", 3, 5, 1) +
           "  let %b = max_pool2d(%a) {kernel = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], "
           "dilations = [1, 1], ceil_mode = true};\n"
           "  let %c = avg_pool2d(%b) {kernel = [2, 2], strides = [1, 1], pads = [0, 1, 1, 0], "
           "dilations = [1, 1], ceil_mode = false, count_include_pad = true};\n"
           "  let %d = avg_pool2d(%c) {kernel = [2, 2], strides = [1, 1], pads = [0, 1, 1, 0], "
           "dilations = [1, 1], ceil_mode = false, count_include_pad = false};\n" +
           conv("r", "d", 5, 7, 1),
       2},
      // One image, two convolutions: turned once, where nothing is asserted of it in between.
      {"siblings", "%x: Tensor[(n, 3, 6, 5), f32]",
       conv("a", "x", 3, 5, 1) + conv("b", "x", 3, 5, 3) + "  let %c = add(%a, %b);\n" +
           conv("d", "c", 5, 3, 1) + "  let %r = add(%d, %x);\n",
       2},
      // Statistics of the run and a normalisation over the last three axes need the model's order.
      {"barriers", kImage + ", %s: Tensor[(5), f32]",
       conv("a", "x", 3, 5, 1) +
           "  let %q = mul(%s, %s);\n"
           "  let %b = batch_norm(%a, %s, %s, %s, %q) {epsilon = 0.5};\n" +
           conv("c", "b", 5, 5, 1) +
           "  let %g = reshape(%c) {shape = (n, 5*h*w)};\n"
           "  let %d = reshape(%g) {shape = (n, 5, h, w)};\n"
           "  let %t = tile(%d) {repeats = (1, 2, 1, 1)};\n" +
           conv("r", "t", 10, 3, 1),
       6},
      // Other functions get and give the model's order.
      {"calls", kImage,
       conv("a", "x", 3, 5, 1) + "  let %b = @twice(%a);\n" + conv("c", "b", 5, 5, 1) +
           "  let %d = @twice(%c);\n  let %e = (%d, %c);\n  let %f = %e[0];\n"
           "  let %r = add(%f, %c);\n",
       6,
       "fn @twice(%x: Tensor[(n, 5, h, w), f32]) -> Tensor[(n, 5, h, w), f32] {\n"
       "  let %y = add(%x, %x);\n  %y\n}\n"},
  };
  return kAll;
}

ir::Module parsed(const Network& n) {
  return ir::infer_types(ir::parse_module(
      fmt::format("{}fn @main({}) {{\n{}  %r\n}}", n.functions, n.parameters, n.body)));
}

// At two choices of sizes.
void compare(const ir::Module& before, const ir::Module& after) {
  const ir::FunctionRef main = before.find("main");
  for (const reference::Symbols& sizes : {reference::Symbols{{"n", 1}, {"h", 7}, {"w", 5}},
                                          reference::Symbols{{"n", 3}, {"h", 4}, {"w", 9}}}) {
    std::mt19937 random(17);
    std::vector<ir::TensorRef> inputs;
    for (const ir::VarRef& p : main->parameters)
      inputs.push_back(random_tensor(p->type, sizes, random));
    const auto expected = reference::Interpreter(before).run_tensors("main", inputs);
    const auto got = reference::Interpreter(after).run_tensors("main", inputs);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t k = 0; k < got.size(); ++k) {
      ASSERT_EQ(got[k]->shape, expected[k]->shape) << k;
      for (int64_t i = 0; i < got[k]->elements(); ++i) {
        const double want = expected[k]->value(i);
        ASSERT_NEAR(got[k]->value(i), want, 1e-4 * std::max(1.0, std::fabs(want))) << k << " " << i;
      }
    }
  }
}

class TurnedNetwork : public testing::TestWithParam<Network> {};

TEST_P(TurnedNetwork, ComputesTheSame) {
  const Network& network = GetParam();
  const ir::Module before = parsed(network);
  PassContext context;
  ir::Module after = channels_last_where(before, any, context);
  ASSERT_EQ(ir::verify(after), std::vector<std::string>());
  after = ir::infer_types(after);
  ASSERT_EQ(ir::verify(after), std::vector<std::string>());
  EXPECT_GT(context.statistics["channels-last.images"], 0);
  EXPECT_EQ(transposes(after), network.transposes) << ir::print(after);
  compare(before, after);
}

INSTANTIATE_TEST_SUITE_P(Networks, TurnedNetwork, testing::ValuesIn(networks()),
                         [](const testing::TestParamInfo<Network>& n) {
                           return std::string(n.param.name);
                         });

TEST(ChannelsLast, StaysWhereNoKernelTakesIt) {
  PassContext context;
  const auto none = [](const ir::Expr&, const std::vector<ir::Type>&, const ir::Type&) {
    return false;
  };
  for (const Network& n : networks()) {
    const ir::Module m = parsed(n);
    EXPECT_EQ(channels_last_where(m, none, context).find("main"), m.find("main")) << n.name;
  }
}

// What has no kernel with channels last keeps the program's order among those that have.
TEST(ChannelsLast, StaysForTheOperatorsThatNoKernelTakes) {
  const auto no_pooling = [](const ir::Expr& e, const std::vector<ir::Type>&, const ir::Type&) {
    return e.op == "conv2d";
  };
  for (const Network& n : networks()) {
    const ir::Module m = parsed(n);
    PassContext context;
    const ir::Module after = ir::infer_types(channels_last_where(m, no_pooling, context));
    EXPECT_EQ(ir::verify(after), std::vector<std::string>()) << n.name;
    compare(m, after);
  }
}

// A function without convolutions is the same object afterwards.
TEST(ChannelsLast, LeavesOtherFunctionsAlone) {
  const ir::Module m = parsed(networks().back());
  PassContext context;
  const ir::Module after = channels_last_where(m, any, context);
  EXPECT_EQ(after.find("twice"), m.find("twice"));
  EXPECT_NE(after.find("main"), m.find("main"));
}

}  // namespace
}  // namespace nimble::passes
