// Programs compiled under a policy of precision, against the reference interpreter of the module as
// the policy rounds it: what a kernel adds to the error of that rounding is as little as in f32.
#include <cmath>

#include "compiler/driver/test/policies.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"
#include "vm/base/cpu.h"
#include "vm/base/half.h"

namespace nimble::driver::testing {
namespace {

using ir::Atom;
using ir::TensorRef;
using Shape = std::vector<int64_t>;

const passes::Precision kPolicies[] = {passes::Precision::kBF16, passes::Precision::kF16};
const passes::Precision kNarrow = kPolicies[0];
const char* const kLastPass = "store-images";

// The tensor with f(its element, its number) as elements.
template <typename F>
TensorRef mapped(const TensorRef& t, F&& f) {
  std::vector<float> values;
  for (int64_t i = 0; i < t->elements(); ++i)
    values.push_back(f(static_cast<float>(t->value(i)), i));
  return ir::Tensor::of(DType::kF32, t->shape, values);
}
TensorRef magnitudes(const TensorRef& t) {
  return mapped(t, [](float v, int64_t) { return std::abs(v); });
}

// x w of weights (k, n), or if transposed (n, k).
ir::Module product(const TensorRef& w, bool transposed) {
  const ir::Dim k = w->shape[transposed ? 1 : 0];
  const ir::VarRef x = ir::make_var("x", ir::tensor_type({ir::Dim::symbol("s"), k}, DType::kF32));
  ir::BlockBuilder body;
  const ir::VarRef y =
      body.call("matmul", {Atom(x), Atom::of(w)}, {{"transpose_b", transposed}}, "y");
  ir::Module m;
  m.set("main", ir::make_function_of({x}, body.finish(y)));
  return m;
}

// A text's main with all parameters but the first replaced by constants, small enough that values
// keep their size from layer to layer.
ir::Module with_weights(const std::string& text) {
  const ir::Module m = ir::parse_module(text);
  const ir::FunctionRef f = m.find("main");
  passes::Rewriter rewriter(
      [](const ir::Binding&, ir::BlockBuilder&) { return std::optional<Atom>(); });
  for (size_t i = 1; i < f->parameters.size(); ++i) {
    Shape shape;
    for (const ir::Dim& d : f->parameters[i]->type->dims) shape.push_back(*d.as_constant());
    const float scale = shape.size() == 1 ? 1 : 1.7f / std::sqrt(static_cast<float>(shape[0]));
    rewriter.substitute(f->parameters[i], Atom::of(tensor(shape, static_cast<unsigned>(i), scale)));
  }
  auto main = std::make_shared<ir::Function>(*rewriter.rewrite(f));
  main->parameters.resize(1);
  ir::Module out;
  out.set("main", std::move(main));
  return out;
}

TensorRef evaluated(const ir::Module& m, const TensorRef& x) {
  return reference::Interpreter(m).run_tensors("main", {x}).at(0);
}

// The first element beyond |y - y64| <= u |y64| + 64 u sum |x w|, u = 2^-24 (docs/running.md); one
// u more, since the reference rounds, too. "" if there is none.
std::string beyond_bound(const TensorRef& got, const TensorRef& want, const TensorRef& terms) {
  if (got->shape != want->shape || got->dtype != want->dtype) return "another type";
  for (int64_t i = 0; i < want->elements(); ++i) {
    const double y = want->value(i), error = std::abs(got->value(i) - y);
    if (!(error <= 0x1p-23 * std::abs(y) + 64 * 0x1p-24 * terms->value(i)))
      return fmt::format("element {}: {} for {}", i, got->value(i), y);
  }
  return "";
}

// The compiled product of `made` against what the product with `w` should be.
class Product {
 public:
  Product(const TensorRef& made, const TensorRef& w, bool transposed, const Configuration& c,
          const Configuration& compiled_as)
      : k_(w->shape[transposed ? 1 : 0]),
        want_(rounded(product(w, transposed), c, kLastPass)),
        terms_(rounded(product(magnitudes(w), transposed), c, kLastPass)),
        compiled_(product(made, transposed), compiled_as) {}
  Product(const TensorRef& w, bool transposed, const Configuration& c)
      : Product(w, w, transposed, c, c) {}

  std::string fault(int64_t rows) {
    const TensorRef x = tensor({rows, k_}, 99);
    return beyond_bound(compiled_.run("main", {x}).at(0), evaluated(want_, x),
                        evaluated(terms_, magnitudes(x)));
  }

 private:
  int64_t k_;
  ir::Module want_, terms_;
  Compiled compiled_;
};

std::vector<Configuration> configurations() {
  std::vector<Configuration> all;
  for (const passes::Precision policy : kPolicies)
    for (Configuration& c : ways_to_compile(policy)) all.push_back(std::move(c));
  return all;
}

TEST(Precision, ProductsKeepTheirBoundAtAwkwardSizes) {
  const std::pair<int64_t, int64_t> sizes[] = {{2, 1},   {1, 7},   {3, 48},   {46, 49},
                                               {47, 47}, {48, 96}, {130, 17}, {256, 130}};
  size_t turn = 0;
  for (const Configuration& c : configurations())
    for (const auto& [k, n] : sizes) {
      // All of them as a user compiles, and for each target; of other ways a part.
      if (!c.name.starts_with("default") && c.target == "native" && turn++ % 3 != 0) continue;
      const bool transposed = (k + n) % 3 == 0;
      Product p(tensor(transposed ? Shape{n, k} : Shape{k, n}, 7), transposed, c);
      for (int64_t rows : {0, 1, 13, 33})
        EXPECT_EQ(p.fault(rows), "") << c.name << ": " << rows << " x " << k << " x " << n;
    }
}

// What the bound is there for: a kernel that lacks its last pair, or a column, or that does not
// round its operands.
TEST(Precision, TheBoundFindsWhatIsMissing) {
  const int64_t k = 768, n = 49;
  const TensorRef w = tensor({k, n}, 7);
  const TensorRef pair = mapped(w, [&](float v, int64_t i) { return i / n >= k - 2 ? 0.0f : v; });
  const TensorRef column = mapped(w, [&](float v, int64_t i) { return i % n == n - 1 ? 0.0f : v; });
  for (const passes::Precision policy : kPolicies) {
    const Configuration c = under(policy);
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Product(w, false, c).fault(5), "");
    EXPECT_NE(Product(pair, w, false, c, c).fault(5), "");
    EXPECT_NE(Product(column, w, false, c, c).fault(5), "");
    EXPECT_NE(Product(w, w, false, c, Configuration{"as it is"}).fault(5), "");
  }
}

// Halfway cases, and numbers near both ends of the range.
TEST(Precision, OperandsRoundToNearestEven) {
  const TensorRef w = ir::Tensor::of<float>(DType::kF32, {2, 2}, {1, 0, 0, 1});
  const std::vector<float> values = {1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -1 - 0x1p-8f, 0x1p100f,
                                     3.3e38f,     0x1p-120f,       -0.0f,        1.0f};
  const TensorRef x = ir::Tensor::of<float>(DType::kF32, {4, 2}, values);
  const TensorRef y = Compiled(product(w, false), under(kNarrow)).run("main", {x}).at(0);
  EXPECT_EQ(y->value(0), 1);
  EXPECT_EQ(y->value(1), 1 + 0x1p-6);
  EXPECT_EQ(y->value(2), -1);
  EXPECT_EQ(y->value(3), 0x1p100);
  EXPECT_EQ(y->value(5), 0x1p-120);
  EXPECT_EQ(y->value(7), 1);
}

TensorRef as_f16(const TensorRef& t) {
  return mapped(t, [](float v, int64_t) { return f32_from_f16(f16_from_f32(v)); });
}

// The highest level of this machine at which f16 is storage alone.
std::string level_of_storage() {
  std::string best;
  for (const std::string& level : kernels::machine_levels())
    if (host_cpu().has(level) &&
        kernels::rows_type(kernels::target_by_name(level), DType::kF16) == DType::kF32)
      best = level;
  return best;
}

// Only weights are rounded to f16: where they are f16 as they stand, nothing is.
TEST(Precision, WeightsThatAreF16LoseNothing) {
  const TensorRef w = as_f16(tensor({48, 70}, 7)), x = tensor({13, 48}, 99);
  const auto y = [&](Configuration c) {
    c.target = level_of_storage();
    return Compiled(product(w, false), c).run("main", {x}).at(0);
  };
  const TensorRef plain = y(Configuration{"as it is"});
  const TensorRef narrow_one = y(under(passes::Precision::kF16));
  for (int64_t i = 0; i < plain->elements(); ++i)
    ASSERT_EQ(narrow_one->value(i), plain->value(i)) << i;
}

// On targets that multiply f16 both factors are rounded to it, the other one as it comes. Their
// portable kernels tell on every machine; what lacks a pair or a column, or leaves the other
// operand as it is, is beyond the bound.
TEST(Precision, BothFactorsAreF16WhereATargetMultipliesThem) {
  for (const char* level : {"x86-64-v4-amx-fp16", "aarch64-fp16fml"}) {
    Configuration c = under(passes::Precision::kF16);
    c.target = level;
    c.no_native = true;
    SCOPED_TRACE(level);
    const std::pair<int64_t, int64_t> sizes[] = {{2, 1}, {46, 49}, {130, 17}};
    for (const auto& [k, n] : sizes) {
      const bool transposed = k == 130;
      Product p(tensor(transposed ? Shape{n, k} : Shape{k, n}, 7), transposed, c);
      for (const int64_t rows : {0, 1, 13, 33})
        EXPECT_EQ(p.fault(rows), "") << rows << " x " << k << " x " << n;
    }
    const int64_t k = 768, n = 17;
    const TensorRef w = tensor({k, n}, 7);
    const TensorRef pair = mapped(w, [&](float v, int64_t i) { return i / n >= k - 2 ? 0.0f : v; });
    const TensorRef column =
        mapped(w, [&](float v, int64_t i) { return i % n == n - 1 ? 0.0f : v; });
    Configuration storage = under(passes::Precision::kF16);
    storage.target = level_of_storage();
    EXPECT_NE(Product(pair, w, false, c, c).fault(5), "");
    EXPECT_NE(Product(column, w, false, c, c).fault(5), "");
    EXPECT_NE(Product(w, w, false, c, storage).fault(5), "");
    EXPECT_EQ(Compiled(product(w, false), c).report().statistics.at("set-precision.casts"), 1);
    // Of an odd number of terms the weights are stored in f16, no more.
    const Compiled odd(product(tensor({47, n}, 7), false), c);
    EXPECT_EQ(odd.report().statistics.at("set-precision.products"), 1);
    EXPECT_FALSE(odd.report().statistics.contains("set-precision.casts"));
  }
}

// The largest f16 is 65504; from 65520 on a number would become infinite.
TEST(Precision, WeightsBeyondTheRangeStayAsTheyAre) {
  const Configuration c = under(passes::Precision::kF16);
  const TensorRef one = ir::Tensor::of<float>(DType::kF32, {1, 2}, {1, 1});
  const auto products = [&](float largest) {
    const TensorRef w = ir::Tensor::of<float>(DType::kF32, {2, 2}, {largest, 0, 0, -1});
    Compiled compiled(product(w, false), c);
    EXPECT_NEAR(compiled.run("main", {one}).at(0)->value(0) / largest, 1, 1e-3);
    const auto& statistics = compiled.report().statistics;
    const auto at = statistics.find("set-precision.products");
    return at == statistics.end() ? 0 : at->second;
  };
  EXPECT_EQ(products(65519), 1);
  EXPECT_EQ(products(65520), 0);
  EXPECT_EQ(products(1e30f), 0);
}

constexpr char kPerceptron[] = R"(
fn @main(%x: Tensor[(n, 64), f32], %w1: Tensor[(64, 96), f32], %b1: Tensor[(96), f32], %w2: Tensor[(96, 64), f32], %b2: Tensor[(64), f32]) {
  let %p = matmul(%x, %w1);
  let %q = add(%p, %b1);
  let %h = gelu(%q);
  let %r = matmul(%h, %w2);
  let %s = add(%r, %b2);
  let %y = add(%s, %x);
  %y
})";
constexpr char kLayer[] = R"(
fn @main(%x: Tensor[(2, n, 64), f32], %wq: Tensor[(64, 64), f32], %wk: Tensor[(64, 64), f32], %wv: Tensor[(64, 64), f32], %wo: Tensor[(64, 64), f32], %g: Tensor[(64), f32], %c: Tensor[(64), f32], %w1: Tensor[(64, 96), f32], %w2: Tensor[(96, 64), f32]) {
  let %q = matmul(%x, %wq);
  let %k = matmul(%x, %wk);
  let %v = matmul(%x, %wv);
  let %a = attention(%q, %k, %v) {heads = 4, scale = 0.25};
  let %o = matmul(%a, %wo);
  let %r = add(%o, %x);
  let %z = layer_norm(%r, %g, %c) {epsilon = 1e-5, axis = -1};
  let %f = matmul(%z, %w1);
  let %e = gelu(%f);
  let %h = matmul(%e, %w2);
  let %s = add(%h, %z);
  %s
})";

// A residual, a pooling and a concatenation between convolutions.
constexpr char kImages[] = R"(
fn @main(%x: Tensor[(b, 16, h, w), f32], %w1: Tensor[(16, 16, 1, 1), f32], %w2: Tensor[(16, 16, 1, 1), f32], %w3: Tensor[(16, 16, 1, 1), f32], %w4: Tensor[(16, 32, 1, 1), f32]) {
  let %a = conv2d(%x, %w1) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1};
  let %v = relu(%a);
  let %c = conv2d(%v, %w2) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1};
  let %s = add(%c, %v);
  let %t = relu(%s);
  let %m = max_pool2d(%t) {kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], ceil_mode = false};
  let %d = conv2d(%m, %w3) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1};
  let %e = relu(%d);
  let %j = concat(%e, %m) {axis = 1};
  let %y = conv2d(%j, %w4) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1};
  %y
})";

// A difference in the last bit of an f32 value may turn the rounding of a bf16 operand behind it,
// which moves what is made of it by 2^-8 of one term: more than the bound of a single product.
TEST(Precision, ModelsAreTheirRoundedSelves) {
  for (const char* text : {kPerceptron, kLayer})
    for (const Configuration& c : configurations()) {
      SCOPED_TRACE(c.name);
      const ir::Module m = with_weights(text);
      Compiled compiled(m, c);
      const ir::Module reference = rounded(m, c, kLastPass);
      for (int64_t n : {0, 1, 7, 33}) {
        const TensorRef x =
            tensor(text == kLayer ? Shape{2, n, 64} : Shape{n, 64}, static_cast<unsigned>(n));
        EXPECT_EQ(difference_of(compiled.run("main", {x}), {evaluated(reference, x)}, 1e-2), "")
            << n;
      }
    }
}

// Under bf16 images are stored so between convolutions; under f16 they are f32.
TEST(Precision, NetworksOfImagesAreTheirRoundedSelves) {
  const ir::Module m = with_weights(kImages);
  for (const Configuration& c : configurations()) {
    SCOPED_TRACE(c.name);
    Compiled compiled(m, c);
    const auto& statistics = compiled.report().statistics;
    const auto stored = statistics.find("store-images.values");
    // The input ahead of its transposition and behind it, the sum's operand, the pooling's and its
    // result, the concatenation's and its own result.
    EXPECT_EQ(stored == statistics.end() ? 0 : stored->second,
              c.precision == passes::Precision::kBF16 ? 7 : 0);
    const ir::Module reference = rounded(m, c, kLastPass);
    for (const Shape& shape : {Shape{1, 16, 7, 9}, Shape{2, 16, 8, 5}, Shape{1, 16, 1, 1}}) {
      const TensorRef x = tensor(shape, 5);
      EXPECT_EQ(difference_of(compiled.run("main", {x}), {evaluated(reference, x)}, 3e-2), "")
          << shape[2];
    }
  }
}

TEST(Precision, OfALayerProductsAreNarrowAndTheRestIsNot) {
  const ir::Module m = with_weights(kLayer);
  const Compiled compiled(m, under(kNarrow));
  // Those of q, k and v are one by then (merge-products).
  EXPECT_EQ(compiled.report().statistics.at("set-precision.products"), 4);
  // x, the attention's result, the normalised rows and the activations; and q, k and v, which are
  // parts of one product, where this machine multiplies bf16.
  const bool multiplied =
      kernels::multiplies_factors(kernels::target_by_name("native"), DType::kBF16);
  EXPECT_EQ(compiled.report().statistics.at("set-precision.casts"), multiplied ? 5 : 4);
  EXPECT_EQ(compiled.report().statistics.contains("set-precision.attentions"), multiplied);
  // The normalised rows are a residual, too.
  EXPECT_EQ(compiled.report().statistics.at("fuse.kept"), 1);
  EXPECT_EQ(compiled.executable().provenance.options.at("precision"), "bf16");
  const Compiled plain(m, Configuration{"default"});
  EXPECT_FALSE(plain.report().statistics.contains("set-precision.products"));
  EXPECT_FALSE(plain.report().statistics.contains("fuse.kept"));
  EXPECT_EQ(plain.executable().provenance.options.at("precision"), "f32");
}

// Where a target multiplies bf16, or f16, attention takes its factors so. Portable kernels tell on
// every machine.
TEST(Precision, AttentionIsNarrowWhereATargetMultipliesIt) {
  const ir::Module m = with_weights(kLayer);
  const std::pair<passes::Precision, const char*> targets[] = {
      {passes::Precision::kBF16, "x86-64-v4-amx"},
      {passes::Precision::kBF16, "x86-64-v4-bf16"},
      {passes::Precision::kBF16, "aarch64-bf16"},
      {passes::Precision::kF16, "x86-64-v4-amx-fp16"},
      {passes::Precision::kF16, "aarch64-fp16fml"}};
  for (const auto& [policy, level] : targets) {
    SCOPED_TRACE(level);
    Configuration c = under(policy);
    c.target = level;
    c.no_native = true;
    Compiled compiled(m, c);
    EXPECT_EQ(compiled.report().statistics.at("set-precision.attentions"), 1);
    EXPECT_EQ(compiled.report().statistics.at("set-precision.casts"), 5);
    const ir::Module reference = rounded(m, c, kLastPass);
    for (const int64_t n : {0, 1, 7, 33}) {
      const TensorRef x = tensor({2, n, 64}, static_cast<unsigned>(n));
      EXPECT_EQ(difference_of(compiled.run("main", {x}), {evaluated(reference, x)}, 1e-2), "") << n;
    }
  }
  for (const passes::Precision policy : kPolicies) {
    Configuration c = under(policy);
    c.target = level_of_storage();
    if (kernels::multiplies_factors(kernels::target_by_name(c.target), DType::kBF16)) continue;
    EXPECT_FALSE(Compiled(m, c).report().statistics.contains("set-precision.attentions"));
  }
}

TEST(Precision, NarrowWeightsTakeHalfTheMemory) {
  const ir::Module m = with_weights(kLayer);
  const auto matrices = [](const exec::Executable& e, DType type) {
    return std::count_if(e.constants.begin(), e.constants.end(), [&](const exec::Constant& c) {
      return c.dtype == type && c.shape.size() > 2;
    });
  };
  const Compiled compiled(m, under(kNarrow));
  EXPECT_EQ(matrices(compiled.executable(), DType::kBF16), 4);
  EXPECT_EQ(matrices(compiled.executable(), DType::kF32), 0);
  Configuration storage = under(passes::Precision::kF16);
  storage.target = level_of_storage();
  const Compiled halves(m, storage);
  EXPECT_EQ(matrices(halves.executable(), DType::kF16), 4);
  EXPECT_EQ(matrices(halves.executable(), DType::kF32), 0);
  EXPECT_FALSE(halves.report().statistics.contains("set-precision.casts"));
}

// Where no GPU is a target, tf32 is f32, records and code alike.
TEST(Precision, Tf32IsF32OnACpu) {
  const ir::Module m = with_weights(kLayer);
  const Compiled wide(m, under(passes::Precision::kF32)), tf32(m, under(passes::Precision::kTf32));
  const exec::Executable &a = wide.executable(), &b = tf32.executable();
  ASSERT_EQ(a.kernels.size(), b.kernels.size());
  for (size_t i = 0; i < a.kernels.size(); ++i) {
    EXPECT_EQ(a.kernels[i].workload, b.kernels[i].workload);
    EXPECT_EQ(a.kernels[i].implementations[0].code_hash, b.kernels[i].implementations[0].code_hash);
  }
  EXPECT_EQ(b.provenance.options.at("precision"), "tf32");
}

}  // namespace
}  // namespace nimble::driver::testing
