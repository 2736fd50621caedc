// Files that are damaged, contradictory or hostile: one line, with a place and a remedy, each time.
#include <random>

#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"
#include "vm/base/file.h"

namespace nimble::frontend {
namespace {

namespace fs = std::filesystem;
using proto::attribute;
using proto::GraphParts;
using proto::node;
using proto::tensor;
using proto::value;

class OnnxFile : public testing::Test {
 protected:
  Error import_error(const std::string& contents) {
    scratch_.write("m.onnx", contents);
    return error_of([&] { import_model(scratch_.path("m.onnx")); });
  }
  ir::Module import(const std::string& contents) {
    scratch_.write("m.onnx", contents);
    return import_model(scratch_.path("m.onnx"));
  }
  Scratch scratch_;
};

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
  EXPECT_EQ(import_error("hello, this is no model").status(), Status::kCorrupt);
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
  EXPECT_THAT(e.what(), testing::HasSubstr("too deeply"));
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
  no_output.outputs = {value("absent", {})};
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
  EXPECT_THAT(e.what(), testing::HasSubstr("too deeply"));
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
