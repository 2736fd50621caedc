// Files that are damaged, contradictory or hostile: one line, with a place and a remedy, each time.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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
  EXPECT_EQ(import_error(proto::model(relu(), 6)).status(), Status::kUnsupported);
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
  g.nodes = {node("Relu", {"x"}, {"a"}), node("NonMaxSuppression", {"a"}, {"b"}, "", "nms_1"),
             node("NonMaxSuppression", {"b"}, {"c"}, "", "nms_2"),
             node("Fancy", {"c"}, {"d"}, "", "fancy", "com.example"),
             node("Mod", {"d", "d"}, {"y"}, attribute("fmod", int64_t{1}), "mod")};
  const Error e = import_error(proto::model(g));
  EXPECT_EQ(e.status(), Status::kUnsupported);
  const std::string text = e.what();
  auto occurrences = [&](const std::string& s) {
    size_t n = 0;
    for (size_t at = text.find(s); at != std::string::npos; at = text.find(s, at + 1)) ++n;
    return n;
  };
  for (const char* name : {"nms_1", "nms_2", "com.example", "fmod"})
    EXPECT_EQ(occurrences(name), 1u) << name << " in " << text;
  EXPECT_THAT(text, testing::HasSubstr("4 unsupported nodes"));
  EXPECT_THAT(text, testing::HasSubstr("opset 20"));
  EXPECT_EQ(occurrences("Relu"), 0u);

  const Coverage c = coverage(scratch_.path("m.onnx"));
  EXPECT_FALSE(c.complete());
  for (const Coverage::Row& r : c.rows) {
    EXPECT_EQ(r.supported, r.op == "Relu") << r.op;
    EXPECT_EQ(r.reason.empty(), r.supported) << r.op;
    EXPECT_EQ(r.count, r.op == "NonMaxSuppression" ? 2 : 1);
  }
}

TEST_F(OnnxFile, NodesInSubgraphsAreListedToo) {
  GraphParts g = relu();
  const std::string body = proto::bytes(1, node("Exotic", {}, {"z"}, "", "inside"));
  g.nodes[0] =
      node("If", {"x"}, {"y"},
           proto::bytes(5, proto::bytes(1, "then_branch") + proto::bytes(6, body)), "branch");
  const std::string text = import_error(proto::model(g)).what();
  EXPECT_THAT(text, testing::HasSubstr("branch"));
  EXPECT_THAT(text, testing::HasSubstr("inside"));
}

TEST_F(OnnxFile, ShapesThatDependOnDataAreRefused) {
  GraphParts g = relu();
  g.inputs.push_back(value("shape", {"2"}, 7));
  g.nodes[0] = node("Reshape", {"x", "shape"}, {"y"}, "", "the_reshape");
  const Error e = import_error(proto::model(g));
  EXPECT_EQ(e.status(), Status::kUnsupported);
  EXPECT_THAT(e.what(), testing::HasSubstr("the_reshape"));
}

// ------------------------------------------------------------------------------ external data

class ExternalFile : public OnnxFile {
 protected:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  void SetUp() override {
    // 64 floats 0…63 in the model's folder, below it and beside it.
    std::vector<float> values(64);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    contents_.assign(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    scratch_.write("folder/w.bin", contents_);
    scratch_.write("folder/sub/w.bin", contents_);
    scratch_.write("outside.bin", contents_);
  }

  std::string model_with(const Entries& entries, std::vector<int64_t> dims = {4}) {
    GraphParts g = relu();
    g.initialisers = {proto::external_tensor("w", dims, entries)};
    g.nodes[0] = node("Add", {"x", "w"}, {"y"});
    scratch_.write("folder/m.onnx", proto::model(g));
    return scratch_.path("folder/m.onnx");
  }
  void expect_refused(const Entries& entries, const std::string& text,
                      Status status = Status::kCorrupt) {
    const std::string path = model_with(entries);
    const Error e = error_of([&] { import_model(path); });
    EXPECT_EQ(e.status(), status) << e.what();
    EXPECT_THAT(e.what(), testing::HasSubstr(text));
    EXPECT_THAT(e.place(), testing::HasSubstr("initialiser w"));
  }
  void expect_first(const Entries& entries, float first) {
    const ir::Module m = import_model(model_with(entries));
    const std::vector<float> x = {0, 0, 0, 0}, y = {first, first + 1, first + 2, first + 3};
    expect_close(run_reference(m, {{"x", array_of({1, 4}, x)}}).at("y"), array_of({1, 4}, y), 0,
                 "");
  }
  std::string contents_;
};

TEST_F(ExternalFile, PlainFilesAreRead) {
  expect_first({{"location", "w.bin"}}, 0);
  expect_first({{"location", "w.bin"}, {"offset", "8"}}, 2);
  expect_first({{"location", "sub/w.bin"}, {"offset", "240"}, {"length", "16"}}, 60);
  expect_first({{"location", "w.bin"}, {"offset", "4"}, {"checksum", "unused"}}, 1);
}

TEST_F(ExternalFile, ReadsBytesThatAreNotAligned) {
  scratch_.write("folder/odd.bin", "!" + contents_);
  expect_first({{"location", "odd.bin"}, {"offset", "1"}}, 0);
}

TEST_F(ExternalFile, ReadsAModelNamedWithoutAFolder) {
  const std::string path = model_with({{"location", "w.bin"}});
  const fs::path before = fs::current_path();
  fs::current_path(scratch_.path("folder"));
  EXPECT_NO_THROW(import_model("m.onnx"));
  fs::current_path(before);
}

TEST_F(ExternalFile, LocationsThatLeaveTheFolder) {
  expect_refused({{"location", "../outside.bin"}}, "'..'");
  expect_refused({{"location", "sub/../../outside.bin"}}, "'..'");
  expect_refused({{"location", "sub/.."}}, "'..'");
  expect_refused({{"location", scratch_.path("outside.bin")}}, "absolute");
  expect_refused({{"location", "/etc/passwd"}}, "absolute");
}

TEST_F(ExternalFile, LocationsThatAreNotPlain) {
  expect_refused({{"location", ""}}, "no location");
  expect_refused({}, "no location");
  expect_refused({{"location", "./w.bin"}}, "'.'");
  expect_refused({{"location", "sub//w.bin"}}, "''");
  expect_refused({{"location", "sub/"}}, "''");
  expect_refused({{"location", "sub\\w.bin"}}, "forbidden");
  expect_refused({{"location", std::string("w.bin\0.png", 10)}}, "forbidden");
  expect_refused({{"location", "w.bin\n"}}, "forbidden");
  expect_refused({{"location", std::string(5000, 'a')}}, "too long");
}

TEST_F(ExternalFile, SymbolicLinks) {
  fs::create_symlink(scratch_.path("outside.bin"), scratch_.path("folder/link.bin"));
  expect_refused({{"location", "link.bin"}}, "symbolic link");
  fs::create_symlink("w.bin", scratch_.path("folder/inner.bin"));
  expect_refused({{"location", "inner.bin"}}, "symbolic link");
  fs::create_directory_symlink(scratch_.path(), scratch_.path("folder/up"));
  expect_refused({{"location", "up/outside.bin"}}, "symbolic link");
  fs::create_directory_symlink("sub", scratch_.path("folder/alias"));
  expect_refused({{"location", "alias/w.bin"}}, "symbolic link");
}

TEST_F(ExternalFile, HardLinks) {
  fs::create_hard_link(scratch_.path("outside.bin"), scratch_.path("folder/hard.bin"));
  expect_refused({{"location", "hard.bin"}}, "hard links");
}

TEST_F(ExternalFile, ThingsThatAreNoFiles) {
  expect_refused({{"location", "sub"}}, "no regular file");
  ASSERT_EQ(::mkfifo(scratch_.path("folder/fifo").c_str(), 0600), 0);
  expect_refused({{"location", "fifo"}}, "no regular file");
  expect_refused({{"location", "absent.bin"}}, "absent.bin", Status::kNotFound);
  expect_refused({{"location", "w.bin/x"}}, "w.bin/x");
}

TEST_F(ExternalFile, BoundsOutsideTheFile) {
  expect_refused({{"location", "w.bin"}, {"offset", "244"}}, "outside");
  expect_refused({{"location", "w.bin"}, {"offset", "18446744073709551615"}}, "no number");
  expect_refused({{"location", "w.bin"}, {"offset", "9223372036854775807"}}, "outside");
  expect_refused({{"location", "w.bin"}, {"offset", "99999999999999999999999"}}, "no number");
  expect_refused({{"location", "w.bin"}, {"offset", "-4"}}, "no number");
  expect_refused({{"location", "w.bin"}, {"offset", "4x"}}, "no number");
  expect_refused({{"location", "w.bin"}, {"offset", ""}}, "no number");
  expect_refused({{"location", "w.bin"}, {"length", "12"}}, "12 bytes where the shape needs 16");
  scratch_.write("folder/empty.bin", "");
  expect_refused({{"location", "empty.bin"}}, "outside");
  fs::resize_file(scratch_.path("folder/w.bin"), 15);
  expect_refused({{"location", "w.bin"}}, "outside");
}

TEST_F(ExternalFile, ShapesThatAreTooLarge) {
  const std::string path = model_with({{"location", "w.bin"}}, {int64_t{1} << 40, 4});
  EXPECT_EQ(error_of([&] { import_model(path); }).status(), Status::kCorrupt);
}

}  // namespace
}  // namespace nimble::frontend
