// Decoding loops, compiled: programs in text IR and loops around an exported step, compared with
// the sequences that plain numpy found (experiments/recordings/record_decoding.py). Both exporters'
// step has the same weights as the programs, so all give the same sequences.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/driver/test/harness.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/text.h"
#include "vm/base/npy.h"

namespace nimble::driver::testing {
namespace {

namespace fs = std::filesystem;
using ir::TensorRef;

const fs::path kData = fs::path(NIMBLE_SOURCE_DIR) / "compiler/driver/test/data";
const fs::path kModels = fs::path(NIMBLE_SOURCE_DIR) / "compiler/frontend/test/data";
constexpr int kCases = 10;
constexpr int64_t kEnd = 12, kContext = 24, kTopK = 10;

class Recorded {
 public:
  Recorded() : arrays_(read_npz(kData / "decoding.npz")) {}
  TensorRef operator()(int number, const std::string& name) const {
    for (const auto& [n, a] : arrays_)
      if (n == std::to_string(number) + "." + name) {
        uint8_t* data = nullptr;
        auto t = ir::Tensor::make(a.dtype, a.shape, &data);
        std::copy(a.bytes.begin(), a.bytes.end(), data);
        return t;
      }
    ADD_FAILURE() << "no array " << number << "." << name;
    return nullptr;
  }

 private:
  NamedArrays arrays_;
};

TensorRef with_shape(const TensorRef& t, std::vector<int64_t> shape) {
  auto out = std::make_shared<ir::Tensor>(*t);
  out->shape = std::move(shape);
  return out;
}

std::string numbers(const TensorRef& t) {
  std::string out;
  for (int64_t i = 0; i < t->elements(); ++i) out += std::to_string(t->integer(i)) + " ";
  return out;
}

ir::Module program(const std::string& kind) {
  return ir::read_module(kData / ("decode_" + kind + ".nir"));
}

ir::Module loop_around(const std::string& exporter, const std::string& choice,
                       int64_t end_token = kEnd) {
  frontend::ImportOptions options;
  options.decode.choice = choice;
  options.decode.end_token = end_token;
  options.decode.context = kContext;
  options.decode.top_k = kTopK;
  return frontend::import_model(kModels / ("decoder_" + exporter + ".onnx"), options);
}

Configuration threads() {
  Configuration c{"threads"};
  c.threads = 2;
  return c;
}

Configuration without(const std::string& pass) {
  Configuration c{"without " + pass};
  c.disabled_pass = pass;
  return c;
}

Configuration checked() {
  Configuration c{"checked"};
  c.no_native = true;
  return c;
}

// Runs all cases of a module whose prompt has `input_rank` axes.
void expect_sequences(const ir::Module& m, const std::string& kind, size_t input_rank,
                      const std::vector<Configuration>& configurations) {
  const Recorded recorded;
  for (const Configuration& c : configurations) {
    SCOPED_TRACE(c.name);
    Compiled compiled(m, c);
    for (int i = 0; i < kCases; ++i) {
      SCOPED_TRACE(i);
      TensorRef ids = recorded(i, "input_ids");
      if (input_rank == 2) ids = with_shape(ids, {1, ids->elements()});
      std::vector<TensorRef> inputs = {ids, recorded(i, "max_new")};
      if (kind == "sample") {
        inputs.push_back(recorded(i, "temperature"));
        inputs.push_back(recorded(i, "uniform"));
      }
      const std::vector<TensorRef> out = compiled.run("main", inputs);
      const TensorRef expected = recorded(i, kind);
      EXPECT_EQ(out[0]->shape.size(), std::max(expected->shape.size(), input_rank));
      EXPECT_EQ(numbers(out[0]), numbers(expected));
      if (kind == "beam") expect_close({out[1]}, {recorded(i, "scores")}, 1e-4);
    }
  }
}

TEST(Decode, GreedyInTextIr) {
  expect_sequences(program("greedy"), "greedy", 1, {threads(), checked(), without("grow-tensors")});
}
TEST(Decode, SampledInTextIr) {
  expect_sequences(program("sample"), "sample", 1, {threads()});
}
TEST(Decode, BeamSearchInTextIr) {
  expect_sequences(program("beam"), "beam", 1, {threads(), checked(), without("grow-tensors")});
}

class DecodeExported : public ::testing::TestWithParam<const char*> {};

TEST_P(DecodeExported, Greedy) {
  expect_sequences(loop_around(GetParam(), "greedy"), "greedy", 2,
                   {threads(), without("lay-out-states")});
}
TEST_P(DecodeExported, RefusesANegativeTemperature) {
  const Recorded recorded;
  Compiled compiled(loop_around(GetParam(), "sample"), threads());
  const TensorRef ids = recorded(0, "input_ids");
  const auto run = [&](float temperature) {
    return compiled.run(
        "main", {with_shape(ids, {1, ids->elements()}), recorded(0, "max_new"),
                 ir::Tensor::of<float>(DType::kF32, {}, {temperature}), recorded(0, "uniform")});
  };
  EXPECT_EQ(numbers(run(0)[0]), numbers(recorded(0, "greedy")));
  try {
    run(-1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("temperature must not be negative"), std::string::npos)
        << e.what();
  }
}
TEST_P(DecodeExported, Sampled) {
  expect_sequences(loop_around(GetParam(), "sample"), "sample", 2, {threads()});
}

// Every cache is extended in place: no kernel of a step but attention and its mask sees the
// positions, except where a cache moves to twice the room.
TEST_P(DecodeExported, AStepCopiesNoCache) {
  Configuration c{"default"};
  CompileReport report;
  auto executable = compile(loop_around(GetParam(), "greedy", -1), options_of(c), &report);
  EXPECT_EQ(report.statistics["lay-out-states.parameters"], 4);
  EXPECT_EQ(report.statistics["grow-tensors.appends"], 5);
  EXPECT_EQ(report.statistics["fuse-attention.found"], 4);  // prompt and step, two layers each
  const auto model = load(std::move(executable), c);
  rt::SessionOptions options;
  options.profile = true;
  rt::Session session(model, options);
  const auto out = run_session(
      session, "main",
      {ir::Tensor::of<int64_t>(DType::kI64, {1, 1}, {3}), ir::Tensor::scalar_i64(kContext)});
  ASSERT_EQ(out[0]->shape, (std::vector<int64_t>{1, kContext}));
  const auto profile = nlohmann::json::parse(session.profiler().json(model->executable()));
  int64_t attention = 0, copied = 0;
  for (const auto& k : profile["kernels"]) {
    int64_t largest = 0;
    for (const auto& [symbol, extent] : k["shape"].items())
      largest = std::max(largest, extent.get<int64_t>());
    const bool attends = k["name"].get<std::string>().find("attention") != std::string::npos;
    if (attends) attention += k["count"].get<int64_t>();
    // A cache has 8 elements a position; what a mask or a row has is no more than the positions.
    if (!attends && largest > kContext) copied += largest * k["count"].get<int64_t>();
  }
  EXPECT_EQ(attention, 2 * (kContext - 1));
  // Four caches move when they are full; together that is less than twice the last size of each.
  // Copying them at every step would be 4 * 8 * 24 * 24 / 2 elements.
  EXPECT_LE(copied, 4 * 2 * 8 * kContext);
}

INSTANTIATE_TEST_SUITE_P(Exporters, DecodeExported, ::testing::Values("torchscript", "dynamo"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace nimble::driver::testing
