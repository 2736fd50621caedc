// Sequences and optional values: those that the importer knows, those that the run makes.
#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"

namespace nimble::frontend {
namespace {

using proto::GraphParts;
using proto::node;
using Names = std::vector<std::string>;

constexpr int kFloat = 1, kInt64 = 7, kBool = 9;

std::string graph_of(const GraphParts& g, const std::string& name) {
  std::string out;
  for (const std::string& n : g.nodes) out += proto::bytes(1, n);
  out += proto::bytes(2, name);
  for (const std::string& t : g.initialisers) out += proto::bytes(5, t);
  for (const std::string& v : g.inputs) out += proto::bytes(11, v);
  for (const std::string& v : g.outputs) out += proto::bytes(12, v);
  return out;
}

std::string graph_attribute(const std::string& name, const GraphParts& g) {
  return proto::bytes(
      5, proto::bytes(1, name) + proto::bytes(6, graph_of(g, name)) + proto::integer(20, 5));
}

ir::Module import_graph(const GraphParts& g) {
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g));
  ir::Module m = import_model(scratch.path("m.onnx"));
  EXPECT_THAT(ir::verify(m), testing::IsEmpty());
  return m;
}

std::vector<float> counted(int64_t n, float from = 0) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = from + static_cast<float>(i);
  return out;
}

Array matrix(int64_t rows, int64_t columns, float from = 0) {
  return array_of({rows, columns}, counted(rows * columns, from));
}

Array integer(int64_t v) {
  return array_of({}, std::vector<int64_t>{v});
}

Array boolean(bool v) {
  return {DType::kBool, {}, {static_cast<uint8_t>(v)}};
}

std::vector<float> floats_of(const Array& a) {
  std::vector<float> out(a.bytes.size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), a.bytes.data(), a.bytes.size());
  return out;
}

void expect_equal(const Array& actual, const std::vector<int64_t>& shape,
                  const std::vector<float>& values) {
  EXPECT_EQ(actual.shape, shape);
  EXPECT_EQ(floats_of(actual), values);
}

// The message of a run that fails.
template <class F>
std::string failure_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// A list whose places are constants leaves nothing behind.
TEST(OnnxSequence, ThatIsKnownNowIsNotInTheProgram) {
  GraphParts g;
  g.nodes = {node("SequenceConstruct", {"x", "y"}, {"s"}),
             node("SequenceInsert", {"s", "x", "zero"}, {"t"}),
             node("SequenceErase", {"t", "last"}, {"u"}),
             node("SequenceAt", {"u", "last"}, {"a"}),
             node("SequenceLength", {"t"}, {"n"}),
             node("ConcatFromSequence", {"t"}, {"c"}, proto::attribute("axis", int64_t{0}))};
  g.initialisers = {proto::tensor("zero", {}, std::vector<int64_t>{0}),
                    proto::tensor("last", {}, std::vector<int64_t>{-1})};
  g.inputs = {proto::value("x", {"n", "2"}), proto::value("y", {"m", "2"})};
  g.outputs = {proto::unshaped("a"), proto::unshaped("n", kInt64), proto::unshaped("c")};
  const ir::Module m = import_graph(g);
  EXPECT_TRUE(m.data_types.empty());
  EXPECT_EQ(m.functions.size(), 1u);
  const Arrays r = run_reference(m, {{"x", matrix(1, 2)}, {"y", matrix(2, 2, 10)}});
  expect_equal(r.at("a"), {1, 2}, {0, 1});
  expect_equal(r.at("c"), {4, 2}, {0, 1, 0, 1, 10, 11, 12, 13});
  EXPECT_EQ(r.at("n").bytes, integer(3).bytes);
}

GraphParts split_and_take(const Names& more_inputs, const std::vector<std::string>& nodes) {
  GraphParts g;
  g.nodes = {node("SplitToSequence", {"x", "chunk"}, {"s"})};
  g.nodes.insert(g.nodes.end(), nodes.begin(), nodes.end());
  g.initialisers = {proto::tensor("chunk", {}, std::vector<int64_t>{2})};
  g.inputs = {proto::value("x", {"n", "2"})};
  for (const std::string& name : more_inputs) g.inputs.push_back(proto::value(name, {}, kInt64));
  return g;
}

TEST(OnnxSequence, ThatTheRunCutsIsReadFromBothEnds) {
  GraphParts g = split_and_take(
      {"i"}, {node("SequenceAt", {"s", "i"}, {"y"}), node("SequenceLength", {"s"}, {"n"})});
  g.outputs = {proto::unshaped("y"), proto::unshaped("n", kInt64)};
  const ir::Module m = import_graph(g);
  const auto at = [&](int64_t i) {
    return run_reference(m, {{"x", matrix(5, 2)}, {"i", integer(i)}});
  };
  expect_equal(at(0).at("y"), {2, 2}, {0, 1, 2, 3});
  expect_equal(at(1).at("y"), {2, 2}, {4, 5, 6, 7});
  expect_equal(at(-1).at("y"), {1, 2}, {8, 9});
  expect_equal(at(-3).at("y"), {2, 2}, {0, 1, 2, 3});
  EXPECT_EQ(at(0).at("n").bytes, integer(3).bytes);
  EXPECT_THAT(failure_of([&] { at(3); }), testing::HasSubstr("the position in a sequence"));
  EXPECT_THAT(failure_of([&] { at(-4); }), testing::HasSubstr("the position in a sequence"));
}

TEST(OnnxSequence, IsChangedAtPositionsOfTheRun) {
  GraphParts g = split_and_take(
      {"i", "j"},
      {node("SequenceErase", {"s", "i"}, {"t"}), node("SequenceInsert", {"t", "x", "j"}, {"u"}),
       node("ConcatFromSequence", {"u"}, {"y"}, proto::attribute("axis", int64_t{-2}))});
  g.outputs = {proto::unshaped("y")};
  const ir::Module m = import_graph(g);
  const auto run = [&](int64_t i, int64_t j) {
    const Array y =
        run_reference(m, {{"x", matrix(3, 2)}, {"i", integer(i)}, {"j", integer(j)}}).at("y");
    EXPECT_EQ(y.shape, (std::vector<int64_t>{static_cast<int64_t>(y.bytes.size()) / 8, 2}));
    return floats_of(y);
  };
  EXPECT_EQ(run(0, 0), (std::vector<float>{0, 1, 2, 3, 4, 5, 4, 5}));
  EXPECT_EQ(run(0, 1), (std::vector<float>{4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(run(-1, -1), (std::vector<float>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3}));
  EXPECT_THAT(failure_of([&] { run(2, 0); }), testing::HasSubstr("position"));
  EXPECT_THAT(failure_of([&] { run(0, 2); }), testing::HasSubstr("position"));
}

TEST(OnnxSequence, OfLengthsThatTheRunKnows) {
  GraphParts g;
  g.nodes = {node("SplitToSequence", {"x", "lengths"}, {"s"}),
             node("SequenceAt", {"s", "i"}, {"y"})};
  g.inputs = {proto::value("x", {"n", "2"}), proto::value("lengths", {"k"}, kInt64),
              proto::value("i", {}, kInt64)};
  g.outputs = {proto::unshaped("y")};
  const ir::Module m = import_graph(g);
  const auto run = [&](const std::vector<int64_t>& lengths, int64_t i) {
    return run_reference(m, {{"x", matrix(4, 2)},
                             {"lengths", array_of({static_cast<int64_t>(lengths.size())}, lengths)},
                             {"i", integer(i)}})
        .at("y");
  };
  const auto at = [&](int64_t i) { return run({1, 0, 3}, i); };
  expect_equal(at(0), {1, 2}, {0, 1});
  expect_equal(at(1), {0, 2}, {});
  expect_equal(at(2), {3, 2}, counted(6, 2));
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{1, 2}, {1, 4}, {5, -1}, std::vector<int64_t>{}})
    EXPECT_THAT(failure_of([&] { run(wrong, 0); }), testing::HasSubstr("the lengths of the parts"));
}

TEST(OnnxSequence, OfPartsAsLongAsTheRunSays) {
  GraphParts g;
  g.nodes = {node("SplitToSequence", {"x", "chunk"}, {"s"}, proto::attribute("axis", int64_t{1})),
             node("SequenceAt", {"s", "last"}, {"y"})};
  g.initialisers = {proto::tensor("last", {}, std::vector<int64_t>{-1})};
  g.inputs = {proto::value("x", {"2", "n"}), proto::value("chunk", {}, kInt64)};
  g.outputs = {proto::unshaped("y")};
  const ir::Module m = import_graph(g);
  const auto run = [&](int64_t chunk) {
    return run_reference(m, {{"x", matrix(2, 3)}, {"chunk", integer(chunk)}}).at("y");
  };
  expect_equal(run(2), {2, 1}, {2, 5});
  expect_equal(run(7), {2, 3}, counted(6));
  for (int64_t wrong : {0, -1})
    EXPECT_THAT(failure_of([&] { run(wrong); }), testing::HasSubstr("the lengths of the parts"));
}

// PyTorch writes lists that a loop appends to so.
TEST(OnnxSequence, GrowsInALoop) {
  GraphParts body;
  body.nodes = {node("Gather", {"x", "i"}, {"row"}), node("Add", {"row", "h"}, {"h2"}),
                node("SequenceInsert", {"s", "h2"}, {"s2"}), node("Identity", {"go"}, {"go2"})};
  body.inputs = {proto::value("i", {}, kInt64), proto::value("go", {}, kBool),
                 proto::value("h", {"2"}), proto::value("s", {})};
  body.outputs = {proto::unshaped("go2", kBool), proto::value("h2", {"2"}), proto::unshaped("s2")};
  GraphParts g;
  g.nodes = {node("SequenceEmpty", {}, {"none"}),
             node("Loop", {"count", "", "zero", "none"}, {"h_out", "s_out"},
                  graph_attribute("body", body)),
             node("ConcatFromSequence", {"s_out"}, {"y"},
                  proto::attribute("axis", int64_t{1}) + proto::attribute("new_axis", int64_t{1})),
             node("SequenceLength", {"s_out"}, {"n"})};
  g.initialisers = {proto::tensor("zero", {2}, std::vector<float>{0, 0})};
  g.inputs = {proto::value("x", {"n", "2"}), proto::value("count", {}, kInt64)};
  g.outputs = {proto::unshaped("y"), proto::unshaped("n", kInt64)};
  const ir::Module m = import_graph(g);
  const Arrays r = run_reference(m, {{"x", matrix(3, 2)}, {"count", integer(3)}});
  expect_equal(r.at("y"), {2, 3}, {0, 2, 6, 1, 4, 9});
  const Arrays none = run_reference(m, {{"x", matrix(3, 2)}, {"count", integer(0)}});
  EXPECT_EQ(none.at("n").bytes, integer(0).bytes);
}

// A list around a loop is read inside it at a place that the run knows.
TEST(OnnxSequence, IsTakenIntoALoop) {
  GraphParts body;
  body.nodes = {node("SequenceAt", {"s", "i"}, {"item"}), node("Add", {"h", "item"}, {"h2"}),
                node("Identity", {"go"}, {"go2"})};
  body.inputs = {proto::value("i", {}, kInt64), proto::value("go", {}, kBool),
                 proto::value("h", {"2"})};
  body.outputs = {proto::unshaped("go2", kBool), proto::value("h2", {"2"})};
  GraphParts g;
  g.nodes = {node("SequenceConstruct", {"a", "one", "b"}, {"s"}),
             node("Loop", {"count", "", "zero"}, {"y"}, graph_attribute("body", body))};
  g.initialisers = {proto::tensor("zero", {2}, std::vector<float>{0, 0}),
                    proto::tensor("one", {2}, std::vector<float>{1, 1})};
  g.inputs = {proto::value("a", {"2"}), proto::value("b", {"2"}),
              proto::value("count", {}, kInt64)};
  g.outputs = {proto::unshaped("y")};
  const ir::Module m = import_graph(g);
  const Array a = array_of({2}, std::vector<float>{10, 20}),
              b = array_of({2}, std::vector<float>{300, 400});
  const auto run = [&](int64_t n) {
    return floats_of(run_reference(m, {{"a", a}, {"b", b}, {"count", integer(n)}}).at("y"));
  };
  EXPECT_EQ(run(1), (std::vector<float>{10, 20}));
  EXPECT_EQ(run(3), (std::vector<float>{311, 421}));
}

TEST(OnnxSequence, ComesFromEitherBranch) {
  GraphParts full, none;
  full.nodes = {node("SequenceConstruct", {"x", "x"}, {"s1"})};
  full.outputs = {proto::unshaped("s1")};
  none.nodes = {node("SequenceEmpty", {}, {"s2"})};
  none.outputs = {proto::unshaped("s2")};
  GraphParts g;
  g.nodes = {node("If", {"c"}, {"s"},
                  graph_attribute("then_branch", full) + graph_attribute("else_branch", none)),
             node("SequenceLength", {"s"}, {"n"})};
  g.inputs = {proto::value("x", {"n"}), proto::value("c", {}, kBool)};
  g.outputs = {proto::unshaped("n", kInt64)};
  const ir::Module m = import_graph(g);
  const Array x = array_of({3}, counted(3));
  EXPECT_EQ(run_reference(m, {{"x", x}, {"c", boolean(true)}}).at("n").bytes, integer(2).bytes);
  EXPECT_EQ(run_reference(m, {{"x", x}, {"c", boolean(false)}}).at("n").bytes, integer(0).bytes);
}

TEST(OnnxSequence, IsMapped) {
  GraphParts body;
  body.nodes = {node("Add", {"a", "b"}, {"sum"}), node("Shape", {"a"}, {"shape"})};
  body.inputs = {proto::value("a", {}), proto::value("b", {})};
  body.outputs = {proto::unshaped("sum"), proto::unshaped("shape", kInt64)};
  GraphParts g = split_and_take(
      {}, {node("SequenceMap", {"s", "bias"}, {"t", "shapes"}, graph_attribute("body", body)),
           node("ConcatFromSequence", {"t"}, {"y"}, proto::attribute("axis", int64_t{0})),
           node("ConcatFromSequence", {"shapes"}, {"z"}, proto::attribute("axis", int64_t{0}))});
  g.initialisers.push_back(proto::tensor("bias", {2}, std::vector<float>{100, 200}));
  g.outputs = {proto::unshaped("y"), proto::unshaped("z", kInt64)};
  const Arrays r = run_reference(import_graph(g), {{"x", matrix(3, 2)}});
  expect_equal(r.at("y"), {3, 2}, {100, 201, 102, 203, 104, 205});
  EXPECT_EQ(r.at("z").bytes, array_of({4}, std::vector<int64_t>{2, 2, 1, 2}).bytes);
}

TEST(OnnxSequence, OfSeveralRanksIsRefused) {
  GraphParts g;
  g.nodes = {node("SequenceConstruct", {"x", "y"}, {"s"}), node("SequenceAt", {"s", "i"}, {"z"})};
  g.inputs = {proto::value("x", {"n"}), proto::value("y", {"n", "m"}),
              proto::value("i", {}, kInt64)};
  g.outputs = {proto::unshaped("z")};
  const Error e = error_of([&] { import_graph(g); });
  EXPECT_EQ(e.status(), Status::kUnsupported);
  EXPECT_THAT(e.what(), testing::HasSubstr("give both the same rank"));
}

// What only takes tensors says so, wherever the file puts a sequence.
TEST(OnnxSequence, InTheWrongPlaceIsAnError) {
  GraphParts branch;
  branch.nodes = {node("Identity", {"x"}, {"z"})};
  branch.outputs = {proto::unshaped("z")};
  const std::string branches =
      graph_attribute("then_branch", branch) + graph_attribute("else_branch", branch);
  const std::vector<std::string> nodes = {
      node("If", {"s"}, {"y"}, branches),
      node("Loop", {"s", "", "x"}, {"y"}, graph_attribute("body", branch)),
      node("SequenceAt", {"s", "s"}, {"y"}),
      node("SequenceAt", {"s"}, {"y"}),
      node("SequenceInsert", {"s", "x", "s"}, {"y"}),
      node("SequenceErase", {"x"}, {"y"}),
      node("Relu", {"s"}, {"y"}),
      node("Concat", {"x", "s"}, {"y"}, proto::attribute("axis", int64_t{0}))};
  for (const std::string& n : nodes) {
    GraphParts g;
    g.nodes = {node("SequenceConstruct", {"x"}, {"s"}), n};
    g.inputs = {proto::value("x", {"n"})};
    g.outputs = {proto::unshaped("y")};
    error_of([&] { import_graph(g); });
  }
}

// An optional value that only the run knows to be there, or not.
TEST(OnnxOptional, IsAskedForAndRead) {
  GraphParts some, none;
  some.nodes = {node("Optional", {"x"}, {"o1"})};
  some.outputs = {proto::unshaped("o1")};
  none.nodes = {node("Optional", {}, {"o2"})};
  none.outputs = {proto::unshaped("o2")};
  GraphParts g;
  g.nodes = {node("If", {"c"}, {"o"},
                  graph_attribute("then_branch", some) + graph_attribute("else_branch", none)),
             node("OptionalHasElement", {"o"}, {"there"})};
  g.inputs = {proto::value("x", {"n"}), proto::value("c", {}, kBool)};
  g.outputs = {proto::unshaped("there", kBool)};
  const Array x = array_of({3}, counted(3));
  const ir::Module asks = import_graph(g);
  for (bool c : {false, true})
    EXPECT_EQ(run_reference(asks, {{"x", x}, {"c", boolean(c)}}).at("there").bytes,
              boolean(c).bytes);
  g.nodes.push_back(node("OptionalGetElement", {"o"}, {"y"}));
  g.outputs = {proto::unshaped("y")};
  const ir::Module reads = import_graph(g);
  expect_equal(run_reference(reads, {{"x", x}, {"c", boolean(true)}}).at("y"), {3}, {0, 1, 2});
  EXPECT_THAT(failure_of([&] {
                run_reference(reads, {{"x", x}, {"c", boolean(false)}});
              }),
              testing::HasSubstr("an optional value that is asked for"));
}

}  // namespace
}  // namespace nimble::frontend
