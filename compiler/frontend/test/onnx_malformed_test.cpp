// Files that are damaged, contradictory or hostile: one line, with a place and a remedy, each time.
#include <random>

#include "compiler/frontend/test/onnx_file.h"
#include "vm/base/file.h"

namespace nimble::frontend {
namespace {

using proto::attribute;
using proto::GraphParts;
using proto::node;
using proto::tensor;
using proto::unshaped;
using proto::value;

std::string attribute_of_graph(const std::string& name, const std::string& graph) {
  constexpr int kGraph = 5;
  return proto::bytes(5,
                      proto::bytes(1, name) + proto::bytes(6, graph) + proto::integer(20, kGraph));
}

GraphParts relu() {
  return {{node("Relu", {"x"}, {"y"}, "", "the_relu")},
          {},
          {value("x", {"n", "4"})},
          {value("y", {"n", "4"})}};
}

TEST_F(OnnxFile, SmallestModelWorks) {
  const ir::Module m = import(proto::model(relu()));
  const std::vector<float> x = {-1, 2, -3, 4}, y = {0, 2, 0, 4};
  expect_close(run_reference(m, {{"x", array_of({1, 4}, x)}}).at("y"), array_of({1, 4}, y), 0, "");
}

// --------------------------------------------------------------------------------- the format

// Every prefix of a file, and thousands of flipped bytes: an import or an Error, nothing else.
TEST_F(OnnxFile, EveryTruncationIsAnError) {
  const std::string whole = read_text_file(data_path("lstm_batch1_torchscript.onnx"));
  for (size_t size = 0; size < whole.size(); size += size < 300 ? 1 : 211) {
    scratch_.write("m.onnx", whole.substr(0, size));
    EXPECT_THROW(import_model(scratch_.path("m.onnx")), Error) << size;
  }
}

TEST_F(OnnxFile, FlippedBytesNeverCrash) {
  const std::string whole = read_text_file(data_path("mlp_torchscript.onnx"));
  std::mt19937 random(7);
  int errors = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    for (int k = 0; k < 3; ++k)
      damaged[random() % 900] = static_cast<char>(random());  // the structure stands in front
    scratch_.write("m.onnx", damaged);
    try {
      import_model(scratch_.path("m.onnx"));
    } catch (const Error& e) {
      ++errors;
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    }
  }
  EXPECT_GT(errors, 50);
}

TEST_F(OnnxFile, TextIsNoModel) {
  EXPECT_EQ(import_error("hello, this is not a model").status(), Status::kCorrupt);
  EXPECT_EQ(import_error("").status(), Status::kCorrupt);
}

TEST_F(OnnxFile, NamesTheByteOfAFault) {
  const std::string m = proto::model(relu());
  const Error e = import_error(m.substr(0, m.size() - 12));
  EXPECT_EQ(e.status(), Status::kCorrupt);
  EXPECT_THAT(e.place(), testing::HasSubstr("byte "));
}

TEST_F(OnnxFile, DeepNestingIsRefused) {
  std::string graph;  // graphs in attributes of nodes in graphs in …
  for (int i = 0; i < 200; ++i)
    graph = proto::bytes(1, proto::bytes(4, "If") + proto::bytes(5, proto::bytes(6, graph)));
  const Error e = import_error(proto::integer(1, 8) + proto::bytes(7, graph));
  EXPECT_THAT(e.what(), testing::HasSubstr("nested more than 200 deep"));
  EXPECT_THAT(e.remedy(), testing::HasSubstr("fewer Ifs"));
}

// Far deeper than exporters go, and within the limit.
TEST_F(OnnxFile, SixtyNestedIfsAreFine) {
  const auto graph = [](const std::string& name, const std::string& a_node) {
    return attribute_of_graph(name, proto::bytes(1, a_node) + proto::bytes(2, name) +
                                        proto::bytes(12, value("y", {"n"})));
  };
  std::string nodes = node("Relu", {"x"}, {"y"});
  for (int i = 0; i < 60; ++i)
    nodes = node("If", {"c"}, {"y"},
                 graph("then_branch", nodes) + graph("else_branch", node("Neg", {"x"}, {"y"})));
  const ir::Module m = import(
      proto::model({{nodes}, {}, {value("x", {"n"}), value("c", {}, 9)}, {value("y", {"n"})}}));
  for (const uint8_t c : {0, 1}) {
    const std::vector<float> x = {-1, 2},
                             y = c ? std::vector<float>{0, 2} : std::vector<float>{1, -2};
    expect_close(
        run_reference(m, {{"x", array_of({2}, x)}, {"c", {DType::kBool, {}, {c}}}}).at("y"),
        array_of({2}, y), 0, "");
  }
}

TEST_F(OnnxFile, DeclaredOutputsThatContradictTheirNodes) {
  GraphParts g = relu();
  g.outputs = {value("y", {"n", "4"}, 7)};
  const Error e = import_error(proto::model(g));
  EXPECT_THAT(e.place(), testing::HasSubstr("output y"));
  EXPECT_THAT(e.problem(), testing::HasSubstr("declared as i64 and computed as f32"));
  // A stale shape does no harm; one that says less is no contradiction.
  const auto warning = [&](const std::vector<std::string>& dims) {
    g.outputs = {value("y", dims)};
    testing::internal::CaptureStderr();
    import(proto::model(g));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warning({"n", "5"}),
              testing::HasSubstr("output y: it is declared with the shape (n, 5) "
                                 "and computed as Tensor[(n, 4), f32]"));
  EXPECT_THAT(warning({"4"}), testing::HasSubstr("shape (4)"));
  EXPECT_EQ(warning({"k", ""}), "");
  EXPECT_EQ(warning({"7", "4"}), "") << "n may be 7";
}

TEST_F(OnnxFile, LengthsBeyondTheFileAreRefused) {
  const std::string huge = std::string("\x3a", 1) + proto::varint(UINT64_MAX);
  EXPECT_EQ(import_error(proto::integer(1, 8) + huge).status(), Status::kCorrupt);
  const std::string endless = std::string("\x08", 1) + std::string(11, '\xff');
  EXPECT_EQ(import_error(endless).status(), Status::kCorrupt);
}

TEST_F(OnnxFile, VersionsOutsideTheRange) {
  EXPECT_EQ(import_error(proto::model(relu(), 5)).status(), Status::kUnsupported);
  EXPECT_EQ(import_error(proto::model(relu(), 99)).status(), Status::kUnsupported);
}

// --------------------------------------------------------------------------------- the graph

TEST_F(OnnxFile, ContradictionsNameTheNode) {
  GraphParts undefined = relu();
  undefined.nodes[0] = node("Relu", {"z"}, {"y"}, "", "the_relu");
  EXPECT_THAT(import_error(proto::model(undefined)).what(), testing::HasSubstr("the_relu"));

  GraphParts twice = relu();
  twice.nodes.push_back(node("Relu", {"x"}, {"y"}, "", "again"));
  EXPECT_THAT(import_error(proto::model(twice)).what(), testing::HasSubstr("defined twice"));

  GraphParts no_output = relu();
  no_output.outputs = {unshaped("absent")};
  EXPECT_THAT(import_error(proto::model(no_output)).what(), testing::HasSubstr("absent"));

  GraphParts shapes = relu();
  shapes.inputs.push_back(value("w", {"3", "5"}));
  shapes.nodes[0] = node("MatMul", {"x", "w"}, {"y"}, "", "the_product");
  const Error e = import_error(proto::model(shapes));
  EXPECT_EQ(e.status(), Status::kInvalidArgument);
  EXPECT_THAT(e.place(), testing::HasSubstr("the_product"));

  GraphParts types = relu();
  types.inputs.push_back(value("w", {"4"}, 7));
  types.nodes[0] = node("Add", {"x", "w"}, {"y"}, "", "the_sum");
  EXPECT_THAT(import_error(proto::model(types)).place(), testing::HasSubstr("the_sum"));
}

TEST_F(OnnxFile, TypesThatNimbleLacks) {
  GraphParts strings = relu();
  strings.inputs[0] = value("x", {"n"}, 8);
  EXPECT_EQ(import_error(proto::model(strings)).status(), Status::kUnsupported);
  GraphParts negative = relu();
  negative.inputs[0] = value("x", {"-3"});
  EXPECT_EQ(import_error(proto::model(negative)).status(), Status::kCorrupt);
}

TEST_F(OnnxFile, TensorsWithOtherSizesThanTheirShape) {
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{5}, {-4}, {INT64_MAX, 8}, {int64_t{1} << 62, 4}}) {
    GraphParts g = relu();
    g.initialisers = {tensor("w", dims, std::vector<float>{1, 2, 3, 4})};
    g.nodes[0] = node("Add", {"x", "w"}, {"y"});
    const Error e = import_error(proto::model(g));
    EXPECT_EQ(e.status(), Status::kCorrupt) << e.what();
    EXPECT_THAT(e.place(), testing::HasSubstr("initialiser w"));
  }
}

// Model-local functions that call themselves would never end.
TEST_F(OnnxFile, EndlessFunctionsAreRefused) {
  GraphParts g = relu();
  g.nodes[0] = node("F", {"x"}, {"y"}, "", "call", "local");
  const std::string function = proto::bytes(1, "F") + proto::bytes(4, "a") + proto::bytes(5, "b") +
                               proto::bytes(7, node("F", {"a"}, {"b"}, "", "", "local")) +
                               proto::bytes(10, "local");
  const Error e = import_error(proto::model(g, 20, proto::bytes(25, function)));
  EXPECT_THAT(e.what(), testing::HasSubstr("nested more than 100 deep"));
}

// A file of a kilobyte is at most as much work as its kilobyte: f0 calls f1 twice, that f2 twice, …
TEST_F(OnnxFile, FunctionsThatGrowExponentiallyAreRefused) {
  std::string functions;
  for (int i = 0; i < 30; ++i) {
    const std::string callee = i == 29 ? "Relu" : fmt::format("f{}", i + 1);
    const std::string domain = i == 29 ? "" : "here";
    functions += proto::bytes(25, proto::bytes(1, fmt::format("f{}", i)) + proto::bytes(4, "x") +
                                      proto::bytes(5, "y") +
                                      proto::bytes(7, node(callee, {"x"}, {"m"}, "", "", domain)) +
                                      proto::bytes(7, node(callee, {"m"}, {"y"}, "", "", domain)) +
                                      proto::bytes(10, "here"));
  }
  GraphParts g = relu();
  g.nodes = {node("f0", {"x"}, {"y"}, "", "", "here")};
  EXPECT_THAT(import_error(proto::model(g, 20, functions)).what(),
              testing::HasSubstr("too many nodes"));
}

// Joined with itself thirty times, four floats are 16 GiB: the run's to make, not the importer's.
TEST_F(OnnxFile, ConstantsThatGrowExponentiallyAreNotComputed) {
  GraphParts g;
  g.initialisers = {tensor("w0", {4}, std::vector<float>{1, 2, 3, 4})};
  for (int i = 0; i < 30; ++i) {
    const std::string from = fmt::format("w{}", i), to = fmt::format("w{}", i + 1);
    g.nodes.push_back(node("Concat", {from, from}, {to}, attribute("axis", int64_t{0})));
  }
  g.nodes.push_back(node("Add", {"w30", "x"}, {"y"}));
  g.inputs = {value("x", {"1"})};
  g.outputs = {value("y", {"n"})};
  const ir::Module m = import(proto::model(g));
  EXPECT_EQ(ir::str(ir::infer_types(m).find("main")->result_type), "Tensor[(4294967296), f32]");

  // A range, too.
  GraphParts r;
  r.initialisers = {tensor("from", {}, std::vector<float>{0}),
                    tensor("to", {}, std::vector<float>{9e7}),
                    tensor("by", {}, std::vector<float>{1})};
  r.nodes = {node("Range", {"from", "to", "by"}, {"r"}), node("Add", {"r", "x"}, {"y"})};
  r.inputs = {value("x", {"1"})};
  r.outputs = {value("y", {"n"})};
  const ir::Module made_at_run_time = import(proto::model(r));
  EXPECT_EQ(made_at_run_time.find("main")->body->bindings.front().value->op, "range");
}

TEST_F(OnnxFile, LocalFunctionsAreInlined) {
  GraphParts g = relu();
  g.nodes[0] = node("F", {"x"}, {"y"}, attribute("slope", 0.25f), "call", "local");
  const std::string inner =
      node("LeakyRelu", {"a"}, {"b"},
           proto::bytes(5, proto::bytes(1, "alpha") + proto::bytes(21, "slope")));
  const std::string function = proto::bytes(1, "F") + proto::bytes(4, "a") + proto::bytes(5, "b") +
                               proto::bytes(7, inner) + proto::bytes(9, proto::integer(2, 20)) +
                               proto::bytes(10, "local");
  const ir::Module m = import(proto::model(g, 20, proto::bytes(25, function)));
  const std::vector<float> x = {-4, 2, -8, 4}, y = {-1, 2, -2, 4};
  expect_close(run_reference(m, {{"x", array_of({1, 4}, x)}}).at("y"), array_of({1, 4}, y), 0, "");
}

// --------------------------------------------------------------------- what nimble does not have

TEST_F(OnnxFile, OneErrorListsEveryUnsupportedNodeOnce) {
  GraphParts g = relu();
  g.nodes = {node("Relu", {"x"}, {"a"}), node("StringNormalizer", {"a"}, {"b"}, "", "text_1"),
             node("StringNormalizer", {"b"}, {"c"}, "", "text_2"),
             node("Fancy", {"c"}, {"d"}, "", "fancy", "com.example"),
             node("Cast", {"d"}, {"y"}, attribute("to", int64_t{8}), "to_text")};
  const Error e = import_error(proto::model(g));
  EXPECT_EQ(e.status(), Status::kUnsupported);
  const std::string text = e.what();
  auto occurrences = [&](const std::string& s) {
    size_t n = 0;
    for (size_t at = text.find(s); at != std::string::npos; at = text.find(s, at + 1)) ++n;
    return n;
  };
  for (const char* name : {"text_1", "text_2", "com.example", "element type 8"})
    EXPECT_EQ(occurrences(name), 1u) << name << " in " << text;
  EXPECT_THAT(text, testing::HasSubstr("4 unsupported nodes"));
  EXPECT_THAT(text, testing::HasSubstr("opset 20"));
  EXPECT_EQ(occurrences("Relu"), 0u);

  const Coverage c = coverage(scratch_.path("m.onnx"));
  EXPECT_FALSE(c.complete());
  for (const Coverage::Row& r : c.rows) {
    EXPECT_EQ(r.supported, r.op == "Relu") << r.op;
    EXPECT_EQ(r.reason.empty(), r.supported) << r.op;
    EXPECT_EQ(r.count, r.op == "StringNormalizer" ? 2 : 1);
  }
}

TEST_F(OnnxFile, NodesInSubgraphsAreListedToo) {
  GraphParts g = relu();
  const std::string body = proto::bytes(1, node("Exotic", {}, {"z"}, "", "inside"));
  g.nodes[0] =
      node("If", {"x"}, {"y"},
           proto::bytes(5, proto::bytes(1, "then_branch") + proto::bytes(6, body)), "branch");
  const std::string text = import_error(proto::model(g)).what();
  EXPECT_THAT(text, testing::HasSubstr("inside"));
}

TEST_F(OnnxFile, AShapeOfUnknownRankIsRefused) {
  GraphParts g = relu();
  g.inputs.push_back(value("shape", {"r"}, 7));  // how many extents, only the run knows
  g.nodes[0] = node("Reshape", {"x", "shape"}, {"y"}, "", "the_reshape");
  EXPECT_THAT(import_error(proto::model(g)).what(), testing::HasSubstr("the_reshape"));
}

}  // namespace
}  // namespace nimble::frontend
