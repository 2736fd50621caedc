// Quantised models against what the ONNX standard makes of them, and what ONNX Runtime does
// (record_quantised.py).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"

namespace nimble::frontend {
namespace {

std::vector<double> numbers(const Array& a) {
  std::vector<double> out;
  const auto get = [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i + sizeof(T) <= a.bytes.size(); i += sizeof(T)) {
      T v;
      std::memcpy(&v, a.bytes.data() + i, sizeof v);
      out.push_back(static_cast<double>(v));
    }
  };
  switch (a.dtype) {
    case DType::kU8:
      get(uint8_t{});
      break;
    case DType::kI8:
      get(int8_t{});
      break;
    case DType::kI32:
      get(int32_t{});
      break;
    default:
      EXPECT_EQ(a.dtype, DType::kF32);
      get(float{});
  }
  return out;
}

class OnnxQuantised : public testing::TestWithParam<std::string> {};

// Bytes may be rounded the other way by f32 on the way to them: by one step, one in a thousand.
// Sums in i32 are exact.
TEST_P(OnnxQuantised, AgreesWithTheStandardAndWithOnnxRuntime) {
  const ir::Module m = import_model(data_path("quantised/" + GetParam() + ".onnx"));
  EXPECT_THAT(ir::verify(m), testing::IsEmpty());
  const std::vector<Arrays> cases = read_cases(data_path("quantised/" + GetParam() + ".npz"));
  ASSERT_FALSE(cases.empty());
  for (const char* recorded : {"y", "y.runtime"}) {
    int64_t elements = 0, apart = 0;
    for (const Arrays& c : cases) {
      const Array y = run_reference(m, c).at("y");
      const Array& want = c.at(recorded);
      ASSERT_EQ(y.dtype, want.dtype);
      ASSERT_EQ(y.shape, want.shape);
      if (is_float(y.dtype)) {
        expect_close(y, want, 2e-5, recorded);
        continue;
      }
      const std::vector<double> got = numbers(y), expected = numbers(want);
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = std::abs(got[i] - expected[i]);
        EXPECT_LE(difference, y.dtype == DType::kI32 ? 0 : 1) << recorded << ", element " << i;
        apart += difference != 0;
      }
      elements += static_cast<int64_t>(got.size());
    }
    EXPECT_LE(apart * 1000, elements) << recorded;
  }
}

std::vector<std::string> recorded_names() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("quantised")))
    if (entry.path().extension() == ".onnx") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

INSTANTIATE_TEST_SUITE_P(Recorded, OnnxQuantised, testing::ValuesIn(recorded_names()),
                         [](const auto& p) { return p.param; });

// How many products and convolutions of an imported model take bytes, and how many floats.
struct Products {
  int bytes = 0, floats = 0;
  friend bool operator==(const Products&, const Products&) = default;
  friend void PrintTo(const Products& p, std::ostream* out) {
    *out << p.bytes << " of bytes, " << p.floats << " of floats";
  }
};
Products products_of(const std::string& name) {
  const ir::Module m = import_model(data_path("quantised/" + name + ".onnx"));
  Products out;
  for (const ir::Binding& b : m.find("main")->body->bindings)
    if (b.value->op == "matmul" || b.value->op == "conv2d")
      ++(b.value->attrs.contains("out") ? out.bytes : out.floats);
  return out;
}

TEST(OnnxQuantisedProducts, TakeBytesWhereTheyCan) {
  for (const char* name : {"qlinear_conv",
                           "qlinear_conv_photograph",
                           "qlinear_conv_signed_groups",
                           "qlinear_conv_pixels",
                           "qlinear_conv_depthwise_bytes",
                           "qlinear_conv_depthwise_signed",
                           "qlinear_conv_pairs",
                           "qlinear_conv_multiplied",
                           "qdq_depthwise",
                           "qdq_depthwise_padded",
                           "qdq_depthwise_signed",
                           "qdq_depthwise_bias",
                           "qdq_residual",
                           "conv_integer",
                           "qdq_matmul",
                           "qdq_matmul_signed",
                           "qdq_matmul_transposed",
                           "qdq_matmul_fake",
                           "qdq_gemm",
                           "dynamic_export",
                           "dynamic_quantize_matmul",
                           "dynamic_convolution"})
    EXPECT_EQ(products_of(name), (Products{1, 0})) << name;
  for (const char* name : {"qdq_convolutions", "qdq_convolutions_signed", "qdq_joined"})
    EXPECT_EQ(products_of(name), (Products{2, 0})) << name;
  // Weights about a zero point that does not leave them bytes.
  for (const char* name :
       {"qlinear_conv_off_centre", "qlinear_conv_depthwise", "conv_integer_off_centre"})
    EXPECT_EQ(products_of(name), (Products{0, 1})) << name;
}

// Where dequantised elements are only moved, or the largest is taken, and the result is quantised
// at the same scale, bytes are all that is left.
TEST(OnnxQuantisedProducts, MovesTakeBytes) {
  for (const char* name : {"qdq_moves", "qdq_moves_signed"}) {
    const ir::Module m = import_model(data_path(std::string("quantised/") + name + ".onnx"));
    const ir::Block& body = *m.find("main")->body;
    std::set<const ir::Var*> read = {body.result.var.get()};
    int quantised = 0, pooled = 0;
    for (auto it = body.bindings.rbegin(); it != body.bindings.rend(); ++it) {
      const ir::Binding& b = *it;
      if (!read.contains(b.var.get())) continue;
      for (const ir::Atom& a : b.value->args)
        if (a.is_var()) read.insert(a.var.get());
      quantised += b.value->op == "div";
      pooled += b.value->op == "max_pool2d";
      if (b.value->op == "max_pool2d" || b.value->op == "concat" || b.value->op == "slice" ||
          b.value->op == "transpose") {
        EXPECT_EQ(size_of(b.var->type->dtype), 1U) << b.value->op;
      }
    }
    EXPECT_EQ(quantised, 1) << name << ": the input alone";
    EXPECT_EQ(pooled, 1) << name;
  }
}

// A scale may be a vector of one number, which stays the constant that it is.
TEST(OnnxQuantisedProducts, MovesTakeBytesWhoseScaleIsAVector) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}}) {
    proto::GraphParts g;
    g.nodes = {proto::node("QuantizeLinear", {"x", "s"}, {"q"}),
               proto::node("DequantizeLinear", {"q", "s"}, {"a"}),
               proto::node("Flatten", {"a"}, {"f"}),
               proto::node("QuantizeLinear", {"f", "s"}, {"y"})};
    g.inputs = {proto::value("x", {"2", "2", "1"})};
    g.initialisers = {proto::tensor("s", shape, std::vector<float>{0.5})};
    g.outputs = {proto::value("y", {"2", "2"}, 2)};
    Scratch scratch;
    scratch.write("m.onnx", proto::model(g));
    const ir::Module m = import_model(scratch.path("m.onnx"));
    const ir::Block& body = *m.find("main")->body;
    EXPECT_EQ(std::count_if(body.bindings.begin(), body.bindings.end(),
                            [](const ir::Binding& b) { return b.value->op == "div"; }),
              1)
        << shape.size();
    const Arrays inputs = {{"x", array_of({2, 2, 1}, std::vector<float>{1, 3, 300, -1})}};
    EXPECT_EQ(numbers(run_reference(m, inputs).at("y")), (std::vector<double>{2, 6, 255, 0}));
  }
}

// Sums that i32 might not hold: of 65,793 terms of 255 * 128 it does.
TEST(OnnxQuantisedProducts, LongSumsStayInFloats) {
  constexpr int64_t kMost = 65793;
  for (const int64_t k : {kMost, kMost + 1}) {
    proto::GraphParts g;
    g.nodes = {proto::node("QuantizeLinear", {"x", "one"}, {"q"}),
               proto::node("DequantizeLinear", {"q", "one"}, {"a"}),
               proto::node("QuantizeLinear", {"w", "one"}, {"v"},
                           proto::attribute("output_dtype", int64_t{3})),  // i8
               proto::node("DequantizeLinear", {"v", "one"}, {"b"}),
               proto::node("MatMul", {"a", "b"}, {"y"})};
    g.inputs = {proto::value("x", {"2", std::to_string(k)})};
    g.initialisers = {
        proto::tensor("w", {k, 2}, std::vector<float>(static_cast<size_t>(2 * k), 127)),
        proto::tensor("one", {}, std::vector<float>{1})};
    g.outputs = {proto::value("y", {"2", "2"})};
    Scratch scratch;
    scratch.write("m.onnx", proto::model(g, 21));
    const ir::Module m = import_model(scratch.path("m.onnx"));
    const std::vector<ir::Binding>& all = m.find("main")->body->bindings;
    EXPECT_EQ(std::any_of(all.begin(), all.end(),
                          [](const ir::Binding& b) { return b.value->attrs.contains("out"); }),
              k == kMost);
  }
}

// A product of dequantised tensors that are no bytes with one scale and constant weights stays in
// floats: activations with a scale for each row, and weights that are computed.
TEST(OnnxQuantisedProducts, StayInFloatsElsewhere) {
  for (const bool rows : {true, false}) {
    proto::GraphParts g;
    g.nodes = {
        proto::node("QuantizeLinear", {"x", "s"}, {"q"}, proto::attribute("axis", int64_t{0})),
        proto::node("DequantizeLinear", {"q", "s"}, {"a"}, proto::attribute("axis", int64_t{0})),
        proto::node("QuantizeLinear", {"w", "one"}, {"v"}),
        proto::node("DequantizeLinear", {"v", "one"}, {"b"}),
        proto::node("MatMul", {"a", "b"}, {"y"})};
    const std::vector<float> weights = {1, 2, 3, 4};
    g.inputs = {proto::value("x", {"2", "2"})};
    if (rows)
      g.initialisers = {proto::tensor("w", {2, 2}, weights)};
    else
      g.inputs.push_back(proto::value("w", {"2", "2"}));
    g.initialisers.push_back(rows ? proto::tensor("s", {2}, std::vector<float>{0.5, 2})
                                  : proto::tensor("s", {}, std::vector<float>{0.5}));
    g.initialisers.push_back(proto::tensor("one", {}, std::vector<float>{1}));
    g.outputs = {proto::value("y", {"2", "2"})};
    Scratch scratch;
    scratch.write("m.onnx", proto::model(g));
    const ir::Module m = import_model(scratch.path("m.onnx"));
    for (const ir::Binding& b : m.find("main")->body->bindings)
      EXPECT_FALSE(b.value->attrs.contains("out")) << b.value->op;
    Arrays inputs = {{"x", array_of({2, 2}, std::vector<float>{1, 3, 5, 4.2F})}};
    if (!rows) inputs["w"] = array_of({2, 2}, weights);
    const std::vector<float> want =
        rows ? std::vector<float>{10, 14, 16, 24} : std::vector<float>{10, 14, 17, 26};
    expect_close(run_reference(m, inputs).at("y"), array_of({2, 2}, want), 1e-6, "");
  }
}

}  // namespace
}  // namespace nimble::frontend
