// Quantised ONNX models, compiled, against what the ONNX standard makes of them
// (compiler/frontend/test/record_quantised.py).
#include <cmath>
#include <filesystem>

#include "compiler/driver/test/harness.h"
#include "compiler/driver/test/policies.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/builder.h"
#include "vm/base/cpu.h"
#include "vm/base/npy.h"

namespace nimble::driver::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(NIMBLE_SOURCE_DIR) / "compiler/frontend/test/data/quantised";

using Tensors = std::map<std::string, ir::TensorRef>;

// The recorded cases of a model: inputs and results by name.
std::map<std::string, Tensors> cases_of(const std::string& model) {
  std::map<std::string, Tensors> out;
  for (const auto& [name, a] : read_npz(kModels / (model + ".npz"))) {
    const size_t dot = name.find('.');
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(a.dtype, a.shape, &data);
    std::copy_n(a.bytes.begin(), t->bytes.size(), data);
    out[name.substr(0, dot)][name.substr(dot + 1)] = std::move(t);
  }
  EXPECT_FALSE(out.empty()) << model;
  return out;
}

ir::TensorRef run(Compiled& model, const Tensors& values) {
  std::vector<ir::TensorRef> inputs;
  for (const exec::Port& p : model.executable().entries.at(0).inputs)
    inputs.push_back(values.at(p.name));
  return model.run("main", inputs).at(0);
}

std::vector<Configuration> configurations() {
  std::vector<Configuration> out = {
      {"default"},         {"two threads"},           {"no native"},
      {"without packing"}, {"without channels last"}, {"without fusion"}};
  out[1].threads = 2;
  out[2].no_native = true;
  out[3].disabled_pass = "pack-weights";
  out[4].disabled_pass = "channels-last";
  out[5].fusion = false;
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    if (!host_cpu().has(level)) continue;
    out.push_back({level});
    out.back().target = level;
  }
  return out;
}

class Quantised : public ::testing::TestWithParam<std::string> {};

// Rounding to bytes may be off by one, once in a thousand; sums in i32 are exact. Floats are sums
// that were scaled, which rounds three times, and a bias.
TEST_P(Quantised, CompiledIsWhatTheStandardSays) {
  const ir::Module m = frontend::import_model(kModels / (GetParam() + ".onnx"));
  const auto cases = cases_of(GetParam());
  for (const Configuration& c : configurations()) {
    SCOPED_TRACE(c.name);
    Compiled model(m, c);
    int64_t elements = 0, apart = 0;
    for (const auto& [number, values] : cases) {
      const ir::TensorRef y = run(model, values), want = values.at("y");
      ASSERT_EQ(y->dtype, want->dtype);
      ASSERT_EQ(y->shape, want->shape);
      for (int64_t i = 0; i < y->elements(); ++i) {
        const double expected = want->value(i), difference = std::abs(y->value(i) - expected);
        const double most = is_float(y->dtype)        ? 2e-5 * std::max(1.0, std::abs(expected))
                            : y->dtype == DType::kI32 ? 0
                                                      : 1;
        ASSERT_LE(difference, most) << "case " << number << ", element " << i;
        apart += !is_float(y->dtype) && difference != 0;
      }
      elements += y->elements();
    }
    EXPECT_LE(apart * 1000, elements);
  }
}

std::vector<std::string> models() {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(kModels))
    if (entry.path().extension() == ".onnx") out.push_back(entry.path().stem());
  std::sort(out.begin(), out.end());
  return out;
}
INSTANTIATE_TEST_SUITE_P(Recorded, Quantised, ::testing::ValuesIn(models()),
                         [](const auto& info) { return info.param; });

bool computes_a_product(const exec::Kernel& k) {
  return k.source.find("packed_matmul") != std::string::npos ||
         k.source.find("packed_conv2d") != std::string::npos;
}

// What follows a product of bytes is fused behind it: its sums never reach memory.
TEST(QuantisedKernels, KeepTheirSums) {
  for (const char* name :
       {"qlinear_conv", "qlinear_conv_photograph", "qlinear_conv_signed_groups",
        "qlinear_conv_pixels", "qdq_convolutions", "qdq_convolutions_signed", "qdq_matmul",
        "qdq_matmul_signed", "qdq_matmul_transposed", "qdq_matmul_fake", "qdq_gemm",
        "dynamic_export", "dynamic_export_off_centre", "dynamic_quantize_matmul",
        "dynamic_quantize_matmul_plain", "matmul_integer_to_float", "dynamic_convolution"}) {
    SCOPED_TRACE(name);
    const Compiled model(frontend::import_model(kModels / (std::string(name) + ".onnx")),
                         {"default"});
    EXPECT_FALSE(model.report().statistics.contains("widen-products.widened"));
    int products = 0;
    for (const exec::Kernel& k : model.executable().kernels) {
      if (!computes_a_product(k)) continue;
      ++products;
      for (const exec::KernelArgument& a : k.contract.arguments) {
        EXPECT_FALSE(a.access == exec::Access::kOut && a.dtype == DType::kI32) << k.source;
      }
    }
    EXPECT_GE(products, 1);
  }
}

// Longer sums have scales for each 128 terms, or 64: one kernel rounds the rows and multiplies, and
// an outlier is felt in its group alone.
TEST(QuantisedKernels, RoundRowsGroupByGroup) {
  const int64_t n = 20;
  for (const int64_t k : {384, 192}) {
    const int64_t group = k == 384 ? 128 : 64;
    std::vector<float> weights;
    for (int64_t i = 0; i < k * n; ++i) weights.push_back(std::sin(static_cast<float>(i)));
    for (int64_t i = 0; i < group; ++i) weights[static_cast<size_t>(i * n)] = 0;
    const ir::VarRef x = ir::make_var("x", ir::tensor_type({ir::Dim::symbol("s"), k}, DType::kF32));
    ir::BlockBuilder body;
    const ir::VarRef y = body.call(
        "matmul", {ir::Atom(x), ir::Atom::of(ir::Tensor::of(DType::kF32, {k, n}, weights))}, {},
        "y");
    const ir::VarRef z = body.call("relu", {ir::Atom(y)}, {}, "z");
    ir::Module m;
    m.set("main", ir::make_function_of({x}, body.finish(z)));
    const auto weight = [&](int64_t i, int64_t column) {
      return double{weights[static_cast<size_t>(i * n + column)]};
    };
    for (const Configuration& c : ways_to_compile(passes::Precision::kInt8)) {
      SCOPED_TRACE(c.name);
      Compiled model(m, c);
      EXPECT_EQ(model.executable().kernels.size(), 1u);
      EXPECT_EQ(model.report().statistics.at("quantise-products.in-groups"), 1);
      for (const int64_t rows : {0, 1, 18}) {
        std::vector<float> values;
        for (int64_t i = 0; i < rows * k; ++i)
          values.push_back(i % k == 3 ? 50.0F : std::cos(static_cast<float>(i * i)));
        const ir::TensorRef out =
            model.run("main", {ir::Tensor::of(DType::kF32, {rows, k}, values)}).at(0);
        ASSERT_EQ(out->shape, (std::vector<int64_t>{rows, n}));
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t column = 0; column < n; ++column) {
            double sum = 0, steps = 0;
            for (int64_t i = 0; i < k; ++i) {
              sum += values[static_cast<size_t>(r * k + i)] * weight(i, column);
              if (weight(i, column) == 0) continue;  // the outlier's, of the first column
              // Half a step of each operand, by the other; all are within -1 … 1 but the outlier.
              const double least = -1, most = i < group ? 50 : 1;
              steps += (most - least) / 510 * std::abs(weight(i, column)) +
                       std::abs(values[static_cast<size_t>(r * k + i)]) / 254;
            }
            EXPECT_NEAR(out->value(r * n + column), std::max(sum, 0.0), steps / 3);
          }
      }
    }
  }
}

// x (s, k) times a constant matrix (k, n).
ir::Module product_of(int64_t k, int64_t n, const std::vector<float>& weights) {
  const ir::VarRef x = ir::make_var("x", ir::tensor_type({ir::Dim::symbol("s"), k}, DType::kF32));
  ir::BlockBuilder body;
  const ir::VarRef y = body.call(
      "matmul", {ir::Atom(x), ir::Atom::of(ir::Tensor::of(DType::kF32, {k, n}, weights))}, {}, "y");
  ir::Module m;
  m.set("main", ir::make_function_of({x}, body.finish(y)));
  return m;
}

// Every policy that rounds to bytes is off by what its own steps say, no less and no more.
TEST(QuantisedKernels, RangesOfBytesDecideTheError) {
  const int64_t k = 256, n = 20, rows = 9;
  std::vector<float> weights, values;
  for (int64_t i = 0; i < k * n; ++i) weights.push_back(std::sin(static_cast<float>(i)));
  for (int64_t i = 0; i < rows * k; ++i) values.push_back(std::cos(static_cast<float>(i * i)));
  const ir::Module m = product_of(k, n, weights);
  const ir::TensorRef in = ir::Tensor::of(DType::kF32, {rows, k}, values);
  for (const passes::Precision policy :
       {passes::Precision::kInt8, passes::Precision::kInt8Reduced}) {
    const passes::ByteRule& rule = *passes::byte_rule_of(policy, ir::Packs::kMatrix);
    // Operands are waves from -1 to 1, with a mean square of a half. Rounding to steps of a size h
    // is off by h^2 / 12 in the mean square, and errors of terms add up as if drawn.
    const double of_row = 2.0 / static_cast<double>(rule.steps);
    const double of_weight = 1.0 / static_cast<double>(rule.most);
    const double expected =
        std::sqrt(static_cast<double>(k) * (of_row * of_row + of_weight * of_weight) / 24);
    for (const Configuration& c : ways_to_compile(policy)) {
      SCOPED_TRACE(c.name);
      Compiled model(m, c);
      const ir::TensorRef out = model.run("main", {in}).at(0);
      double squares = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t column = 0; column < n; ++column) {
          double off = -out->value(r * n + column);
          for (int64_t i = 0; i < k; ++i)
            off += double{values[static_cast<size_t>(r * k + i)]} *
                   weights[static_cast<size_t>(i * n + column)];
          squares += off * off;
        }
      // The policies differ by a factor of 1.4.
      const double error = std::sqrt(squares / static_cast<double>(rows * n));
      EXPECT_GT(error, 0.75 * expected);
      EXPECT_LT(error, 1.25 * expected);
    }
  }
}

// Where there is one group, a row is scanned and quantised by one kernel.
TEST(QuantisedKernels, ScanAndQuantiseRowsAtOnce) {
  const int64_t k = 48, n = 20;
  std::vector<float> weights;
  for (int64_t i = 0; i < k * n; ++i) weights.push_back(std::sin(static_cast<float>(i)));
  const ir::Module m = product_of(k, n, weights);
  Configuration c{"default"};
  c.precision = passes::Precision::kInt8;
  Compiled model(m, c);
  EXPECT_EQ(model.executable().kernels.size(), 2u);
  EXPECT_EQ(model.report().statistics.at("fuse.rows"), 1);
  EXPECT_EQ(model.report().statistics.at("fuse.rows-beside"), 1);
  for (int64_t rows : {0, 1, 7}) {
    std::vector<float> values;
    for (int64_t i = 0; i < rows * k; ++i) values.push_back(std::cos(static_cast<float>(i * i)));
    const ir::TensorRef out =
        model.run("main", {ir::Tensor::of(DType::kF32, {rows, k}, values)}).at(0);
    ASSERT_EQ(out->shape, (std::vector<int64_t>{rows, n}));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += double{values[static_cast<size_t>(r * k + i)]} *
                 weights[static_cast<size_t>(i * n + column)];
        // Each of x and w is off by half a step at most, and all of them never one way.
        EXPECT_NEAR(out->value(r * n + column), sum, k / 127.0 / 4);
      }
  }
}

// A normalisation quantises its rows itself, and gives them in f32 to the residual.
TEST(QuantisedKernels, NormalisationsQuantiseTheirRows) {
  const int64_t k = 32;
  std::vector<float> weights, ones(static_cast<size_t>(k), 1);
  for (int64_t i = 0; i < k * k; ++i) weights.push_back(std::sin(static_cast<float>(i)) / 6);
  const auto constant = [](std::vector<int64_t> shape, const std::vector<float>& values) {
    return ir::Atom::of(ir::Tensor::of(DType::kF32, std::move(shape), values));
  };
  const ir::VarRef x = ir::make_var(
      "x", ir::tensor_type({ir::Dim::symbol("b"), ir::Dim::symbol("s"), k}, DType::kF32));
  ir::BlockBuilder body;
  const ir::VarRef z = body.call(
      "layer_norm", {ir::Atom(x), constant({k}, ones), constant({k}, std::vector<float>(32, 0.5F))},
      {{"epsilon", 1e-5}, {"axis", int64_t{-1}}}, "z");
  const ir::VarRef p = body.call("matmul", {ir::Atom(z), constant({k, k}, weights)}, {}, "p");
  const ir::VarRef y = body.call("add", {ir::Atom(p), ir::Atom(z)}, {}, "y");
  ir::Module m;
  m.set("main", ir::make_function_of({x}, body.finish(y)));
  Compiled wide(m, {"f32"});
  for (const int threads : {1, 2}) {
    Configuration c{"int8"};
    c.precision = passes::Precision::kInt8;
    c.threads = threads;
    Compiled model(m, c);
    EXPECT_EQ(model.executable().kernels.size(), 2u);
    EXPECT_EQ(model.report().statistics.at("fuse.rows-again"), 1);
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0, 3}, {1, 1}, {2, 7}}) {
      std::vector<float> values;
      for (int64_t i = 0; i < rows[0] * rows[1] * k; ++i)
        values.push_back(std::cos(static_cast<float>(i * i)));
      const ir::TensorRef in = ir::Tensor::of(DType::kF32, {rows[0], rows[1], k}, values);
      EXPECT_EQ(difference_of(model.run("main", {in}), wide.run("main", {in}), 5e-2), "");
    }
  }
}

}  // namespace
}  // namespace nimble::driver::testing
