// Operators whose operands and attributes make no sense together: one line each, with the node.
#include <random>

#include "compiler/frontend/onnx/operators.h"
#include "compiler/frontend/test/onnx_file.h"

namespace nimble::frontend {
namespace {

using proto::attribute;
using proto::GraphParts;
using proto::node;
using proto::tensor;
using proto::unshaped;
using proto::value;

// Numbers at the end of 64 bits, and lists without elements, where a rule computes with them.
TEST_F(OnnxFile, ExtremeAttributesAreErrors) {
  constexpr int64_t kMost = INT64_MAX;
  auto error_at = [&](const std::string& n, const std::vector<std::string>& initialisers = {},
                      const std::vector<std::string>& dims = {"1", "1", "8", "8"}) {
    const GraphParts g = {{n}, initialisers, {value("x", dims)}, {unshaped("y")}};
    return import_error(proto::model(g));
  };
  const std::string kernel = attribute("kernel_shape", std::vector<int64_t>{3, 3}),
                    same = attribute("auto_pad", "SAME_UPPER");
  for (const std::string& attributes :
       {kernel + attribute("dilations", std::vector<int64_t>{kMost, 1}),
        kernel + attribute("pads", std::vector<int64_t>{kMost, 0, kMost, 0}),
        kernel + same + attribute("dilations", std::vector<int64_t>{kMost, kMost}),
        same + attribute("kernel_shape", std::vector<int64_t>{kMost, 1}) +
            attribute("strides", std::vector<int64_t>{kMost, 2}) +
            attribute("dilations", std::vector<int64_t>{kMost, 1})})
    EXPECT_NE(error_at(node("MaxPool", {"x"}, {"y"}, attributes)).problem(), "");
  const std::vector<std::string> weights = {tensor("w", {1, 4, 1}, std::vector<float>(4)),
                                            tensor("r", {1, 4, 1}, std::vector<float>(4))};
  for (const char* layer : {"LSTM", "RNN"})
    EXPECT_THAT(error_at(node(layer, {"x", "w", "r"}, {"y"}, attribute("hidden_size", kMost)),
                         weights, {"n", "b", "1"})
                    .what(),
                testing::HasSubstr("hidden size"));
  EXPECT_NE(error_at(node("Reshape", {"x", "to"}, {"y"}),
                     {tensor("to", {4}, std::vector<int64_t>{kMost, kMost, -1, 2})})
                .problem(),
            "");
  const std::string none = tensor("none", {0}, std::vector<int64_t>{}),
                    one = tensor("one", {}, std::vector<int64_t>{1});
  EXPECT_THAT(error_at(node("Range", {"one", "one", "none"}, {"y"}), {none, one}).what(),
              testing::HasSubstr("0 elements"));
  EXPECT_THAT(error_at(node("NonMaxSuppression", {"x", "x", "none"}, {"y"}), {none}).what(),
              testing::HasSubstr("0 elements"));
  EXPECT_THAT(
      error_at(node("MelWeightMatrix", {"one", "one", "one", "none", "one"}, {"y"}), {none, one})
          .what(),
      testing::HasSubstr("0 elements"));
  EXPECT_THAT(error_at(node("OneHot", {"x", "none", "x"}, {"y"}), {none}).what(),
              testing::HasSubstr("not one number"));
  const std::string filter = tensor("w", {1, 1, 3, 3}, std::vector<float>(9));
  using List = std::vector<int64_t>;
  for (const std::string& attributes :
       {attribute("strides", List{INT64_MIN, 1}), attribute("dilations", List{kMost, kMost}),
        attribute("output_padding", List{kMost, 0}), attribute("pads", List{kMost, 0, 0, 0}),
        attribute("group", int64_t{0})})
    EXPECT_NE(error_at(node("ConvTranspose", {"x", "w"}, {"y"}, attributes), {filter}).problem(),
              "");
  // Whose sum is a small number modulo 2^64.
  EXPECT_NE(error_at(node("MaxUnpool", {"x", "at"}, {"y"},
                          kernel + attribute("pads", List{kMost, 0, kMost, 0})),
                     {tensor("at", {1, 1, 8, 8}, List(64))})
                .problem(),
            "");
  const int64_t large = int64_t{1} << 32;
  const std::string regions = tensor("r", {1, 4}, std::vector<float>(4)),
                    images = tensor("i", {1}, std::vector<int64_t>(1));
  EXPECT_NE(error_at(node("RoiAlign", {"x", "r", "i"}, {"y"},
                          attribute("output_height", large) + attribute("sampling_ratio", large)),
                     {regions, images})
                .problem(),
            "");
  EXPECT_THAT(error_at(node("ReverseSequence", {"x", "one"}, {"y"},
                            attribute("time_axis", kMost) + attribute("batch_axis", int64_t{1})),
                       {one})
                  .what(),
              testing::HasSubstr("0 and 1"));
  for (const float bound : {HUGE_VALF, NAN})
    EXPECT_THAT(error_at(node("RandomUniformLike", {"x"}, {"y"}, attribute("high", bound))).what(),
                testing::HasSubstr("random numbers from 0"));
  // Places around a sample are two along each axis, so 2^30.
  EXPECT_THAT(
      error_at(node("GridSample", {"x", "x"}, {"y"}), {}, std::vector<std::string>(32, "2")).what(),
      testing::HasSubstr("over 30 axes"));
}

// Strides and extents of every remainder: as many windows as ceil(extent / stride).
TEST_F(OnnxFile, SamePaddingKeepsTheRatio) {
  for (int64_t extent : {1, 7, 8, 9})
    for (int64_t stride : {1, 2, 3, 8, 10})
      for (int64_t size : {1, 2, 3, 5}) {
        const GraphParts g = {{node("MaxPool", {"x"}, {"y"},
                                    attribute("kernel_shape", std::vector<int64_t>{size, size}) +
                                        attribute("strides", std::vector<int64_t>{stride, 1}) +
                                        attribute("auto_pad", "SAME_LOWER"))},
                              {},
                              {value("x", {"1", "1", std::to_string(extent), "3"})},
                              {unshaped("y")}};
        const ir::Type y = ir::infer_types(import(proto::model(g))).find("main")->result_type;
        EXPECT_EQ(y->dims[2], ir::Dim((extent + stride - 1) / stride))
            << extent << " " << stride << " " << size;
      }
}

// Sizes that divide by zero, overflow, or would be unrolled without end.
TEST_F(OnnxFile, WindowsWithoutMeaningAreRefused) {
  GraphParts g = {{}, {}, {value("x", {"1", "4", "16"})}, {unshaped("y")}};
  using Axes = std::vector<int64_t>;
  const auto col2im = [&](const Axes& block, const Axes& strides, const Axes& dilations) {
    g.nodes = {node("Col2Im", {"x", "image", "block"}, {"y"},
                    attribute("strides", strides) + attribute("dilations", dilations), "columns")};
    g.initialisers = {tensor("image", {2}, Axes{5, 5}), tensor("block", {2}, block)};
    return proto::model(g);
  };
  const int64_t large = int64_t{1} << 32;
  for (const std::string& bad :
       {col2im({2, 2}, {0, 0}, {1, 1}), col2im({2, 2}, {INT64_MIN, 1}, {1, 1}),
        col2im({2, 2}, {1, 1}, {INT64_MAX, 1}), col2im({large, large}, {1, 1}, {1, 1}),
        col2im({100, 100}, {1, 1}, {1, 1}), col2im({9, 9}, {1, 1}, {1, 1})})
    EXPECT_THAT(import_error(bad).what(), testing::HasSubstr("columns"));
  import(col2im({2, 2}, {1, 1}, {1, 1}));

  g.inputs = {value("x", {"1", "4", "2", "2"})};
  g.initialisers = {};
  for (const int64_t size : {int64_t{0}, INT64_MIN, large}) {
    g.nodes = {node("LRN", {"x"}, {"y"}, attribute("size", size), "neighbours")};
    EXPECT_THAT(import_error(proto::model(g)).what(), testing::HasSubstr("neighbours"));
  }
  g.inputs = {value("x", {"1", "1", "9999", "2", "2"})};
  g.nodes = {node("Conv", {"x", "w"}, {"y"}, "", "long_kernel")};
  g.initialisers = {tensor("w", {1, 1, 5000, 1, 1}, std::vector<float>(5000))};
  EXPECT_THAT(import_error(proto::model(g)).what(), testing::HasSubstr("long_kernel"));
}

// Numbers of which no extent, no filter and no spectrum can be made.
TEST_F(OnnxFile, ScalesAndFrequenciesWithoutMeaningAreRefused) {
  GraphParts g = {{}, {}, {value("x", {"n", "8"})}, {unshaped("y")}};
  for (const std::string mode : {"linear", "cubic"}) {
    g.nodes = {node("Resize", {"x", "", "scales"}, {"y"},
                    attribute("mode", mode) + attribute("antialias", int64_t{1}), "the_resize")};
    for (const float scale : {1e-30f, 1e-9f, 1e30f}) {
      g.initialisers = {tensor("scales", {2}, std::vector<float>{1, scale})};
      EXPECT_THAT(import_error(proto::model(g)).what(), testing::HasSubstr("the_resize")) << scale;
    }
    g.initialisers = {tensor("scales", {2}, std::vector<float>{1, 0.25})};
    import(proto::model(g));
  }

  g.nodes = {node("MelWeightMatrix", {"bins", "length", "rate", "low", "high"}, {"y"}, "", "mel")};
  const auto mel = [&](int64_t bins, int64_t length, float rate) {
    g.initialisers = {tensor("bins", {}, std::vector<int64_t>{bins}),
                      tensor("length", {}, std::vector<int64_t>{length}),
                      tensor("rate", {}, std::vector<float>{rate}),
                      tensor("low", {}, std::vector<float>{0}),
                      tensor("high", {}, std::vector<float>{4000})};
    return proto::model(g);
  };
  for (const std::string& bad :
       {mel(8, 1000, 1e-9f), mel(8, 1000, 0), mel(4096, 1 << 20, 8000), mel(8, INT64_MAX, 8000)})
    EXPECT_THAT(import_error(bad).what(), testing::HasSubstr("mel"));
  import(mel(8, 1000, 0.01f));  // beyond the spectrum, but not beyond all bounds
  import(mel(8, 256, 8000));
}

// Weights by blocks: what of them is not read, and numbers that contradict one another.
TEST_F(OnnxFile, WeightsInBlocksWithoutMeaningAreRefused) {
  constexpr int kU8 = 2;
  struct Form {
    int64_t k = 40, n = 3, bits = 4, block = 16;
    std::vector<std::string> w = {"3", "3", "8"}, s = {"9"}, z = {"6"};
    std::string more;
  };
  const auto product = [&](const Form& f,
                           const std::vector<std::string>& inputs = {"x", "w", "s", "z"}) {
    GraphParts g = {{},
                    {},
                    {value("x", {"m", "40"}), value("w", f.w, kU8), value("s", f.s),
                     value("z", f.z, kU8), value("i", {"40"}, 6), value("b", {"4"})},
                    {unshaped("y")}};
    g.nodes = {node("MatMulNBits", inputs, {"y"},
                    attribute("K", f.k) + attribute("N", f.n) + attribute("bits", f.bits) +
                        attribute("block_size", f.block) + f.more,
                    "the_product", "com.microsoft")};
    return proto::model(g);
  };
  import(product({}));
  import(product({}, {"x", "w", "s"}));
  import(product({.s = {"3", "3"}, .z = { "3", "2" }}));
  const auto refused = [&](const std::string& model, const std::string& why) {
    EXPECT_THAT(import_error(model).what(),
                testing::AllOf(testing::HasSubstr("the_product"), testing::HasSubstr(why)));
  };
  refused(product({.bits = 2}), "weights of 2 bits");
  refused(product({}, {"x", "w", "s", "z", "i"}), "g_idx");
  refused(product({.more = attribute("weight_prepacked", int64_t{1})}), "packed for one runtime");
  for (const int64_t block : {int64_t{0}, int64_t{8}, int64_t{48}, INT64_MIN})
    refused(product({.block = block}), "block_size is");
  for (const int64_t extent : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    refused(product({.k = extent}), "K is");
    refused(product({.n = extent}), "and N is");
  }
  refused(product({.k = 49}), "B has 72 elements");
  refused(product({.s = {"8"}}), "scales has 8 elements");
  refused(product({.z = {"9"}}), "zero_points has 9 elements");
  refused(product({.k = 41}), "contracted dim");
  refused(product({}, {"x", "w", "s", "z", "", "b"}), "bias has 4 elements");
}

// ONNX Runtime's product of bytes has one scale and zero point of its first operand. More would
// meet the columns of the result.
TEST_F(OnnxFile, ScalesOfRowsOfMatMulIntegerToFloatAreRefused) {
  const auto product = [](const std::string& scales, const std::string& zeros) {
    GraphParts g = {{node("MatMulIntegerToFloat", {"x", "w", "s", "t", "z"}, {"y"}, "",
                          "the_product", "com.microsoft")},
                    {},
                    {value("x", {"3", "5"}, 2), value("w", {"5", "3"}, 3), value("s", {scales}),
                     value("t", {"3"}), value("z", {zeros}, 2)},
                    {unshaped("y")}};
    return proto::model(g);
  };
  import(product("1", "1"));
  for (const bool scales : {true, false})
    EXPECT_THAT(import_error(product(scales ? "3" : "1", scales ? "1" : "3")).what(),
                testing::AllOf(testing::HasSubstr("the_product"),
                               testing::HasSubstr("scales or zero points of A")));
}

// They were cut to integers that need not hold them, and added to 128.
TEST_F(OnnxFile, ZeroPointsOfAnotherTypeThanTheBytesAreRefused) {
  for (const float zero : {0.5F, 1e30F, NAN}) {
    GraphParts g = {{node("MatMulInteger", {"x", "w", "z"}, {"y"}, "", "the_product")},
                    {tensor("z", {}, std::vector<float>{zero})},
                    {value("x", {"3", "5"}, 3), value("w", {"5", "3"}, 3)},
                    {unshaped("y", 6)}};
    EXPECT_THAT(import_error(proto::model(g)).what(),
                testing::AllOf(testing::HasSubstr("the_product"),
                               testing::HasSubstr("a zero point is f32")));
  }
}

// An operand may lack an axis that its rule looks at, and an extent may be so large that the
// product of two has no 64 bits.
TEST_F(OnnxFile, OperandsOfOtherRanksAreRefused) {
  const std::string large = "4611686018427387904";
  const auto refused = [&](const std::string& op, std::vector<std::vector<std::string>> shapes,
                           const std::string& attributes, int last_type = 1) {
    GraphParts g = {{}, {}, {}, {unshaped("y")}};
    std::vector<std::string> names;
    for (size_t i = 0; i < shapes.size(); ++i) {
      names.push_back("x" + std::to_string(i));
      g.inputs.push_back(value(names.back(), shapes[i], i + 1 == shapes.size() ? last_type : 1));
    }
    g.nodes = {node(op, names, {"y"}, attributes, "the_node")};
    const Error e = import_error(proto::model(g));
    EXPECT_THAT(e.place(), testing::HasSubstr("the_node")) << e.what();
  };
  constexpr int kI64 = 7;
  refused("RoiAlign", {{"1", "2", "8", "8"}, {"3", "4"}, {}}, "", kI64);
  refused("RoiAlign", {{"1", "2", "8", "8"}, {"3", "4"}, {"3", "1"}}, "", kI64);
  refused("DeformConv", {{"1", "2", "8", "8"}, {"2", "2", "3", "3"}, {"1", "18"}}, "");
  refused("DeformConv", {{"1", "2", "8", "8"}, {"2", "2", large, large}, {"1", "18", "6", "6"}},
          "");
  refused("DeformConv", {{"1", large, "8", "8"}, {"2", large, "3", "3"}, {"1", "18", "6", "6"}},
          attribute("offset_group", int64_t{1} << 62));
  for (const std::vector<std::string>& shape : {std::vector<std::string>{}, {"4"}, {"4", "8"}}) {
    refused("ConvTranspose", {shape, shape}, "");
    if (shape.size() < 2) refused("LRN", {shape}, attribute("size", int64_t{3}));
  }
  refused("ScatterElements", {{"3"}, {"3"}, {}}, "");
  refused("ScatterElements", {{"3", "4"}, {"3", "4"}, {"12"}}, "");
  refused("ScatterElements", {{"3", "4"}, {"12"}, {"3", "4"}}, "");
  refused("Det", {{"3", "2", "4"}}, "");
}

// Each with operands of any number, rank, extents and type, constants among them.
TEST_F(OnnxFile, NoOperatorTakesItsOperandsForGranted) {
  constexpr int kVariants = 24;
  constexpr int kTypes[] = {1, 1, 7, 2, 3, 9};  // f32, i64, u8, i8, bool
  std::mt19937 random(11);
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  std::string attributes;
  for (const char* name : {"K", "N", "blocksize", "hidden_size", "kv_num_heads", "num_groups",
                           "num_heads", "num_scan_inputs", "q_num_heads", "size", "to"})
    attributes += attribute(name, int64_t{1});
  for (const onnx::Operator* op : onnx::all_operators())
    for (int i = 0; i < kVariants; ++i) {
      GraphParts g = {{}, {}, {}, {unshaped("y")}};
      std::vector<std::string> names;
      for (size_t count = 1 + below(6); names.size() < count;) {
        names.push_back("x" + std::to_string(names.size()));
        const bool constant = below(2) == 0;
        std::vector<int64_t> extents(below(5));
        std::vector<std::string> dims;
        size_t elements = 1;
        for (int64_t& extent : extents) {
          extent = static_cast<int64_t>(below(4));
          elements *= static_cast<size_t>(extent);
          dims.push_back(extent == 3 ? "n" : std::to_string(extent));
        }
        if (!constant)
          g.inputs.push_back(value(names.back(), dims, kTypes[below(std::size(kTypes))]));
        else if (below(2) == 0)
          g.initialisers.push_back(tensor(names.back(), extents, std::vector<float>(elements, 1)));
        else
          g.initialisers.push_back(
              tensor(names.back(), extents, std::vector<int64_t>(elements, 1)));
      }
      g.nodes = {node(op->name, names, {"y"}, i % 2 == 0 ? attributes : std::string(), "the_node",
                      op->domain)};
      SCOPED_TRACE(fmt::format("{} {}", op->name, i));
      try {
        import(proto::model(g));
      } catch (const Error& e) {
        EXPECT_NE(e.status(), Status::kInternal) << e.what();
      }
    }
}

// Keys of two axes, and a modifier that gives nothing.
TEST_F(OnnxFile, FlexAttentionOfOtherShapesIsRefused) {
  const auto flex = [](const std::string& keys, const std::string& modifier) {
    const GraphParts g = {
        {node("FlexAttention", {"q", keys, keys}, {"y"}, attribute("scale", 1.0f) + modifier,
              "the_node", "ai.onnx.preview")},
        {},
        {value("q", {"1", "4", "3", "8"}), value("k", {"1", "2"})},
        {unshaped("y")}};
    return proto::model(g);
  };
  import(flex("q", ""));
  EXPECT_THAT(import_error(flex("k", "")).what(),
              testing::AllOf(testing::HasSubstr("the_node"), testing::HasSubstr("rank 4")));
  const GraphParts nothing = {{}, {}, {value("s", {"1", "4", "3", "3"})}, {}};
  EXPECT_THAT(import_error(flex("q", attribute("score_mod", nothing))).what(),
              testing::AllOf(testing::HasSubstr("the_node"), testing::HasSubstr("0 results")));
}

// A scale for each block of an axis has all axes of its tensor.
TEST_F(OnnxFile, BlocksOfScalesThatDoNotCoverTheirTensorAreRefused) {
  using Axes = std::vector<int64_t>;
  const auto quantise = [](const std::string& op, const std::vector<std::string>& x,
                           const Axes& scales, int64_t block, int64_t axis) {
    int64_t count = 1;
    for (const int64_t extent : scales) count *= extent;
    const std::vector<float> ones(static_cast<size_t>(count), 1);
    const GraphParts g = {
        {node(op, {"x", "s"}, {"y"}, attribute("block_size", block) + attribute("axis", axis),
              "the_node")},
        {tensor("s", scales, ones)},
        {value("x", x, op == "QuantizeLinear" ? 1 : 2)},
        {unshaped("y", op == "QuantizeLinear" ? 2 : 1)}};
    return proto::model(g, 21);
  };
  for (const std::string op : {"QuantizeLinear", "DequantizeLinear"}) {
    import(quantise(op, {"4", "32"}, {4, 2}, 16, 1));
    import(quantise(op, {"4", "33"}, {4, 3}, 16, -1));
    import(quantise(op, {"n", "m"}, {4, 2}, 16, 1));
    for (const std::string& bad :
         {quantise(op, {"4", "32"}, {}, 16, 1), quantise(op, {"4", "32"}, {2}, 16, 1),
          quantise(op, {"4", "32"}, {4, 2, 1}, 16, 1), quantise(op, {"32"}, {2}, 16, 1),
          quantise(op, {}, {}, 16, 0), quantise(op, {"4", "32"}, {4, 1}, 16, 1),
          quantise(op, {"4", "32"}, {4, 3}, 16, 1), quantise(op, {"4", "32"}, {4, 2}, -16, 1),
          quantise(op, {"4", "32"}, {4, 2}, INT64_MAX, 1)})
      EXPECT_THAT(import_error(bad).place(), testing::HasSubstr("the_node"));
  }
}

}  // namespace
}  // namespace nimble::frontend
