// Single operators in their variants, against what ONNX Runtime recorded (record_operators.py).
#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"
#include "compiler/ir/dim_functions.h"
#include "compiler/ir/text.h"

namespace nimble::frontend {
namespace {

std::vector<std::string> recorded_names() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("operators")))
    out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

class OnnxOperator : public testing::TestWithParam<std::string> {};

TEST_P(OnnxOperator, AgreesWithOnnxRuntime) {
  static const NamedArrays kAll = read_npz(data_path("operators.npz"));
  const std::string prefix = GetParam() + "/";
  Arrays arrays;
  for (const auto& [name, array] : kAll)
    if (name.starts_with(prefix)) arrays[name.substr(prefix.size())] = array;
  const ir::Module m = import_model(data_path("operators/" + GetParam() + ".onnx"));
  EXPECT_THAT(ir::verify(m), testing::IsEmpty());
  const Arrays results = run_reference(m, arrays);
  ASSERT_FALSE(results.empty());
  for (const auto& [name, array] : results)
    expect_close(array, arrays.at(name), 2e-6, GetParam() + ", " + name);
}

INSTANTIATE_TEST_SUITE_P(Recorded, OnnxOperator, testing::ValuesIn(recorded_names()),
                         [](const auto& p) { return p.param; });

// A depth that only the run knows is checked then.
TEST(OnnxOneHot, NegativeDepthsAreRefused) {
  proto::GraphParts g;
  g.nodes = {proto::node("OneHot", {"x", "depth", "values"}, {"y"})};
  g.initialisers = {proto::tensor("values", {2}, std::vector<float>{0, 1})};
  g.inputs = {proto::value("x", {"n"}, 7), proto::value("depth", {}, 7)};
  g.outputs = {proto::value("y", {"n", "k"})};
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g));
  const ir::Module m = import_model(scratch.path("m.onnx"));
  const auto run = [&](int64_t depth) {
    return run_reference(m, {{"x", array_of({2}, std::vector<int64_t>{0, -1})},
                             {"depth", array_of({}, std::vector<int64_t>{depth})}});
  };
  expect_close(run(3).at("y"), array_of({2, 3}, std::vector<float>{1, 0, 0, 0, 0, 1}), 0, "");
  EXPECT_EQ(run(0).at("y").shape, (std::vector<int64_t>{2, 0}));
  for (const int64_t depth : {int64_t{-1}, int64_t{-3}, INT64_MIN}) {
    std::string problem;
    try {
      run(depth);
    } catch (const Error& e) {
      problem = e.what();
    }
    EXPECT_THAT(problem, testing::HasSubstr("the depth of OneHot is not negative")) << depth;
  }

  g.inputs.pop_back();
  g.initialisers.push_back(proto::tensor("depth", {}, std::vector<int64_t>{-3}));
  scratch.write("m.onnx", proto::model(g));
  EXPECT_THAT(error_of([&] { import_model(scratch.path("m.onnx")); }).what(),
              testing::HasSubstr("the depth of OneHot is -3"));
}

// The accuracy that a product allows for its activations: bytes at level 4 alone.
TEST(OnnxMatMulNBits, RoundsActivationsWhereTheModelAllowsIt) {
  const auto rounds = [](int64_t level) {
    proto::GraphParts g;
    g.nodes = {proto::node("MatMulNBits", {"x", "w", "s"}, {"y"},
                           proto::attribute("K", int64_t{40}) + proto::attribute("N", int64_t{3}) +
                               proto::attribute("block_size", int64_t{16}) +
                               proto::attribute("accuracy_level", level),
                           "", "com.microsoft")};
    g.inputs = {proto::value("x", {"m", "40"}), proto::value("w", {"3", "3", "8"}, 2),
                proto::value("s", {"9"})};
    g.outputs = {proto::value("y", {"m", "3"})};
    Scratch scratch;
    scratch.write("m.onnx", proto::model(g));
    const ir::Module m = import_model(scratch.path("m.onnx"));
    size_t products = 0, rounded = 0;
    for (const ir::Binding& b : m.find("main")->body->bindings) {
      if (b.value->op != "blockwise_matmul") continue;
      ++products;
      rounded += b.value->attrs.contains("activations");
      EXPECT_EQ(ir::attr<int64_t>(b.value->attrs, "bits"), 4);
    }
    EXPECT_EQ(products, 1U);
    return rounded == 1;
  };
  for (const int64_t level : {0, 1, 2, 3}) EXPECT_FALSE(rounds(level)) << level;
  EXPECT_TRUE(rounds(4));
}

// ONNX Runtime has no batch-first recurrence: it must equal the other layout, transposed.
TEST(OnnxRecurrentLayout, BatchFirstEqualsSequenceFirst) {
  constexpr int64_t n = 4, b = 2, width = 3, h = 2;
  auto make = [&](bool batch_first) {
    std::vector<float> w(4 * h * width), r(4 * h * h);
    for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
    for (size_t i = 0; i < r.size(); ++i) r[i] = std::cos(static_cast<float>(i));
    proto::GraphParts g;
    g.nodes = {proto::node(
        "LSTM", {"x", "w", "r"}, {"y", "h", "c"},
        proto::attribute("hidden_size", h) + proto::attribute("layout", int64_t{batch_first}))};
    g.initialisers = {proto::tensor("w", {1, 4 * h, width}, w),
                      proto::tensor("r", {1, 4 * h, h}, r)};
    g.inputs = {proto::value("x", batch_first ? std::vector<std::string>{"b", "n", "3"}
                                              : std::vector<std::string>{"n", "b", "3"})};
    g.outputs = {proto::unshaped("y"), proto::unshaped("h")};
    Scratch scratch;
    scratch.write("m.onnx", proto::model(g));
    return import_model(scratch.path("m.onnx"));
  };
  std::vector<float> by_step(n * b * width), by_batch(n * b * width);
  for (int64_t t = 0; t < n; ++t)
    for (int64_t k = 0; k < b; ++k)
      for (int64_t i = 0; i < width; ++i)
        by_step[static_cast<size_t>((t * b + k) * width + i)] =
            by_batch[static_cast<size_t>((k * n + t) * width + i)] =
                static_cast<float>(t - k) * 0.3f + static_cast<float>(i);
  const Arrays a = run_reference(make(false), {{"x", array_of({n, b, width}, by_step)}});
  const Arrays c = run_reference(make(true), {{"x", array_of({b, n, width}, by_batch)}});
  EXPECT_EQ(c.at("y").shape, (std::vector<int64_t>{b, n, 1, h}));
  EXPECT_EQ(c.at("h").shape, (std::vector<int64_t>{b, 1, h}));
  const auto* y = reinterpret_cast<const float*>(a.at("y").bytes.data());
  const auto* z = reinterpret_cast<const float*>(c.at("y").bytes.data());
  for (int64_t t = 0; t < n; ++t)
    for (int64_t k = 0; k < b; ++k)
      for (int64_t i = 0; i < h; ++i)
        EXPECT_EQ(y[(t * b + k) * h + i], z[(k * n + t) * h + i]) << t << " " << k << " " << i;
}

// embedding_bag slices the starts of a slice out of a tensor: that it is one is known to the run.
TEST(OnnxSlice, TakesAStartThatWasSlicedOut) {
  proto::GraphParts g;
  g.nodes = {proto::node("Add", {"i", "one"}, {"j"}),
             proto::node("Slice", {"offsets", "i", "j"}, {"start"}),
             proto::node("Slice", {"x", "start", "end"}, {"y"})};
  g.initialisers = {proto::tensor("one", {1}, std::vector<int64_t>{1}),
                    proto::tensor("end", {1}, std::vector<int64_t>{100})};
  g.inputs = {proto::value("x", {"n", "2"}), proto::value("offsets", {"k"}, 7),
              proto::value("i", {"1"}, 7)};
  g.outputs = {proto::unshaped("y")};
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g));
  const ir::Module m = import_model(scratch.path("m.onnx"));
  const auto run = [&](int64_t i) {
    return run_reference(m, {{"x", array_of({3, 2}, std::vector<float>{0, 1, 2, 3, 4, 5})},
                             {"offsets", array_of({2}, std::vector<int64_t>{2, 1})},
                             {"i", array_of({1}, std::vector<int64_t>{i})}})
        .at("y")
        .shape;
  };
  EXPECT_EQ(run(0), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(run(1), (std::vector<int64_t>{2, 2}));
  EXPECT_THROW(run(2), Error);  // no start is left
}

// repeat_interleave expands to a shape with a part of a length that only the run knows.
TEST(OnnxExpand, TakesAShapeOfAsManyExtentsAsThereAreAxes) {
  proto::GraphParts g;
  g.nodes = {proto::node("Concat", {"rows", "width"}, {"to"}, proto::attribute("axis", int64_t{0})),
             proto::node("Expand", {"x", "to"}, {"y"})};
  g.initialisers = {proto::tensor("width", {1}, std::vector<int64_t>{2})};
  g.inputs = {proto::value("x", {"1", "2"}), proto::value("rows", {"k"}, 7)};
  g.outputs = {proto::unshaped("y")};
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g));
  const ir::Module m = import_model(scratch.path("m.onnx"));
  const auto run = [&](std::vector<int64_t> rows) {
    return run_reference(m, {{"x", array_of({1, 2}, std::vector<float>{0, 1})},
                             {"rows", array_of({static_cast<int64_t>(rows.size())}, rows)}})
        .at("y")
        .shape;
  };
  EXPECT_EQ(run({3}), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(run({0}), (std::vector<int64_t>{0, 2}));
  EXPECT_THROW(run({3, 1}), Error);
}

// What a window that was rounded up reaches beyond the padding does not count; one operator does
// it.
TEST(OnnxAveragePool, CountsThePaddingOfRoundedUpWindows) {
  proto::GraphParts g;
  g.nodes = {proto::node("AveragePool", {"x"}, {"y"},
                         proto::attribute("kernel_shape", std::vector<int64_t>{1, 3}) +
                             proto::attribute("strides", std::vector<int64_t>{1, 2}) +
                             proto::attribute("pads", std::vector<int64_t>{0, 1, 0, 1}) +
                             proto::attribute("ceil_mode", int64_t{1}) +
                             proto::attribute("count_include_pad", int64_t{1}))};
  g.inputs = {proto::value("x", {"1", "1", "1", "w"})};
  g.outputs = {proto::unshaped("y")};
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g));
  const ir::Module m = import_model(scratch.path("m.onnx"));
  EXPECT_NE(ir::print(m).find("avg_pool2d("), std::string::npos);
  const Array x = array_of({1, 1, 1, 6}, std::vector<float>{1, 2, 3, 4, 5, 6});
  expect_close(run_reference(m, {{"x", x}}).at("y"),
               array_of({1, 1, 1, 4}, std::vector<float>{1, 3, 5, 3}), 1e-6, "");
}

// An index outside its own axis is an error, also where it would fall into another row.
TEST(OnnxGatherNd, ChecksEachIndexOfATuple) {
  const ir::Module m = import_model(data_path("operators/gather_nd_rows.onnx"));
  const Array x = array_of({2, 3}, std::vector<float>{0, 1, 2, 3, 4, 5});
  auto run = [&](std::vector<int64_t> tuple) {
    return run_reference(m, {{"x", x}, {"i", array_of({1, 2}, tuple)}}).at("y");
  };
  expect_close(run({1, -3}), array_of({1}, std::vector<float>{3}), 0, "");
  EXPECT_THROW(run({0, 3}), Error);
  EXPECT_THROW(run({1, -4}), Error);
  EXPECT_THROW(run({-3, 0}), Error);
}

// -------------------------------------------------------------------------------- symbols

// Whatever a model calls its dims, no symbol looks like the beginning of a call.
TEST(OnnxSymbols, AreNoFunctionsOfDims) {
  for (const ir::DimFunction& f : ir::dim_functions()) {
    const std::string name(f.name);
    proto::GraphParts g;
    g.nodes = {proto::node("Identity", {"x"}, {"y"})};
    g.inputs = {proto::value("x", {name, name + "_"})};
    g.outputs = {proto::value("y", {name, name + "_"})};
    Scratch scratch;
    scratch.write("m.onnx", proto::model(g));
    const ir::Module m = import_model(scratch.path("m.onnx"));
    EXPECT_EQ(ir::str(m.find("main")->parameters[0]->type),
              fmt::format("Tensor[({0}_, {0}__), f32]", name));
  }
}

TEST(Specialise, FixesAndRenamesSymbols) {
  const std::string path = data_path("bert_eager_dynamo.onnx");
  auto input = [&](const ImportOptions& o) {
    return ir::str(import_model(path, o).find("main")->parameters[0]->type);
  };
  EXPECT_EQ(input({{{"n", 16}}, {}}), "Tensor[(b, 16), i64]");
  EXPECT_EQ(input({{{"n", 16}, {"b", 1}}, {}}), "Tensor[(1, 16), i64]");
  EXPECT_EQ(input({{}, {{"n", "tokens"}}}), "Tensor[(b, tokens), i64]");
  EXPECT_EQ(input({{}, {{"n", "b"}, {"b", "n"}}}), "Tensor[(n, b), i64]");
  EXPECT_EQ(input({{{"t", 8}}, {{"n", "t"}}}), "Tensor[(b, 8), i64]");
}

TEST(Specialise, ComputesTheSameAsTheSymbolicModel) {
  for (const char* name : {"lstm_dynamo", "bert_eager_torchscript"}) {
    const Arrays c = read_cases(data_path(std::string(name) + ".npz"))[0];  // b = 2, n = 7
    const ir::Module m = import_model(data_path(std::string(name) + ".onnx"), {{{"n", 7}}, {}});
    for (const auto& [output, array] : run_reference(m, c))
      expect_close(array, c.at(output), 1e-5, output);
  }
}

// Seven times x becomes all products of two of its elements, and x: with a symbol the importer
// meets a polynomial of too many terms, which the extent that is asked for never makes.
TEST(Specialise, ExtentsAreInPlaceBeforeAnythingIsTyped) {
  proto::GraphParts g;
  g.inputs = {proto::value("x0", {"n"})};
  g.initialisers = {proto::tensor("flat", {1}, std::vector<int64_t>{-1}),
                    proto::tensor("rows", {2}, std::vector<int64_t>{1, -1}),
                    proto::tensor("columns", {2}, std::vector<int64_t>{-1, 1})};
  const auto add = [&](const std::string& op, const std::vector<std::string>& from, int i,
                       const std::string& attributes = {}) {
    const std::string to = fmt::format("{}{}", op == "Concat" ? "x" : op + from[1], i);
    g.nodes.push_back(proto::node(op, from, {to}, attributes));
    return to;
  };
  std::string x = "x0";
  for (int i = 1; i <= 7; ++i) {
    const std::string row = add("Reshape", {x, "rows"}, i),
                      column = add("Reshape", {x, "columns"}, i);
    const std::string all = add("Reshape", {add("Mul", {row, column}, i), "flat"}, i);
    x = add("Concat", {all, x}, i, proto::attribute("axis", int64_t{0}));
  }
  g.outputs = {proto::value(x, {""})};
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g));
  const std::string path = scratch.path("m.onnx");
  EXPECT_THAT(error_of([&] { import_model(path); }).what(), testing::HasSubstr("64 bits"));
  const ir::Module m = import_model(path, {{{"n", 0}}, {}});
  EXPECT_EQ(ir::str(m.find("main")->result_type), "Tensor[(0), f32]");
  EXPECT_THAT(error_of([&] {
                import_model(path, {{{"m", 0}}, {}});
              }).what(),
              testing::HasSubstr("the model has no symbol m"));
}

TEST(Specialise, RefusesWhatMakesNoSense) {
  const std::string path = data_path("mlp_dynamo.onnx");
  auto status = [&](const ImportOptions& o) {
    return error_of([&] { import_model(path, o); }).status();
  };
  EXPECT_EQ(status({{{"n", 1}}, {}}), Status::kInvalidArgument);
  EXPECT_EQ(status({{{"m", -1}}, {}}), Status::kInvalidArgument);
  EXPECT_EQ(status({{}, {{"m", "1m"}}}), Status::kInvalidArgument);
  EXPECT_EQ(status({{}, {{"k", "m"}}}), Status::kInvalidArgument);
  for (const char* text :
       {"n", "n=", "n=x", "=4", "n=-1", "n=1,n=2", "n=1.5", "n=99999999999999999999"})
    EXPECT_EQ(error_of([&] { parse_shapes(text); }).status(), Status::kInvalidArgument) << text;
  EXPECT_EQ(parse_shapes("b=1,n=128"), (std::map<std::string, int64_t>{{"b", 1}, {"n", 128}}));
  EXPECT_TRUE(parse_shapes("").empty());
}

}  // namespace
}  // namespace nimble::frontend
