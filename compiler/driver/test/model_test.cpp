// Whole models against recorded outputs of PyTorch (experiments/recordings/record.py): MiniLM's
// sentence embeddings at every length, the hand-written LSTM at every prefix, and the recorded
// cases of the ONNX importer's fixtures, compiled.
//
// MiniLM's weights are not part of the repository: NIMBLE_MINILM names the folder.
#include <cstdlib>
#include <filesystem>
#include <set>

#include "compiler/driver/test/harness.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/safetensors.h"
#include "compiler/ir/text.h"
#include "vm/base/npy.h"

namespace nimble::driver::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = NIMBLE_SOURCE_DIR;

class Recording {
 public:
  explicit Recording(const fs::path& path) : arrays_(read_npz(path)) {}
  ir::TensorRef tensor(const std::string& name) const {
    for (const auto& [n, a] : arrays_)
      if (n == name) return slice(a, a.shape, 0);
    ADD_FAILURE() << "no recorded array " << name;
    return nullptr;
  }
  // The elements from `first` on as another shape.
  static ir::TensorRef slice(const Array& a, std::vector<int64_t> shape, int64_t first) {
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(a.dtype, std::move(shape), &data);
    std::copy_n(a.bytes.begin() + first * static_cast<int64_t>(size_of(a.dtype)), t->bytes.size(),
                data);
    return t;
  }
  const NamedArrays& arrays() const { return arrays_; }

 private:
  NamedArrays arrays_;
};

// `count` elements of a recorded tensor from `first` on.
ir::TensorRef part(const ir::TensorRef& t, std::vector<int64_t> shape, int64_t first = 0) {
  Array a{t->dtype, t->shape, {t->bytes.begin(), t->bytes.end()}};
  return Recording::slice(a, std::move(shape), first);
}

double largest_difference(const ir::TensorRef& a, const ir::TensorRef& b) {
  EXPECT_EQ(a->shape, b->shape);
  double worst = 0;
  for (int64_t i = 0; i < std::min(a->elements(), b->elements()); ++i) {
    double d = std::abs(a->value(i) - b->value(i));
    worst = d <= worst ? worst : d;  // a NaN counts
  }
  return worst;
}

ir::TensorRef full_mask(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  return ir::Tensor::of<int64_t>(DType::kI64, std::move(shape),
                                 std::vector<int64_t>(static_cast<size_t>(count), 1));
}

TEST(Models, MiniLmAgreesWithPyTorchAtEveryLengthAndBatch) {
  const char* folder = std::getenv("NIMBLE_MINILM");
  if (!folder) GTEST_SKIP() << "set NIMBLE_MINILM to the folder of all-MiniLM-L6-v2";
  Recording recording(kRoot / "experiments/recordings/minilm.npz");
  Configuration c{"default"};
  c.optimize = 2;
  c.threads = 2;
  ir::Module m = frontend::import_model(folder);
  Compiled model(m, c);
  const exec::EntryPoint& entry = model.executable().entries.at(0);
  auto run = [&](const ir::TensorRef& ids, const ir::TensorRef& mask) {
    std::vector<ir::TensorRef> inputs;
    for (const exec::Port& p : entry.inputs)
      inputs.push_back(p.name == "input_ids"        ? ids
                       : p.name == "attention_mask" ? mask
                                                    : part(mask, ids->shape));
    // Token types are all 0.
    for (size_t i = 0; i < inputs.size(); ++i)
      if (entry.inputs[i].name == "token_type_ids")
        inputs[i] = ir::Tensor::of<int64_t>(
            DType::kI64, ids->shape, std::vector<int64_t>(static_cast<size_t>(ids->elements())));
    std::vector<ir::TensorRef> out = model.run("main", inputs);
    for (size_t i = 0; i < out.size(); ++i)
      if (entry.outputs[i].name == "sentence_embedding") return out[i];
    ADD_FAILURE() << "no output sentence_embedding";
    return out[0];
  };
  ir::TensorRef ids = recording.tensor("ids"), expected = recording.tensor("sentence_embedding");
  const int64_t width = expected->shape[1];
  for (int64_t n = 1; n <= ids->shape[0]; ++n)
    ASSERT_LE(largest_difference(run(part(ids, {1, n}), full_mask({1, n})),
                                 part(expected, {1, width}, (n - 1) * width)),
              1e-5)
        << "length " << n;
  for (const char* b : {"batch2", "batch3", "batch4"}) {
    std::string batch = std::string(b) + ".";
    EXPECT_LE(largest_difference(run(recording.tensor(batch + "input_ids"),
                                     recording.tensor(batch + "attention_mask")),
                                 recording.tensor(batch + "sentence_embedding")),
              1e-5)
        << b;
  }
}

// experiments/lstm/weights.py, bit for bit: SplitMix64 in the stream of `seed`.
std::vector<float> uniform(uint64_t seed, size_t count, float scale) {
  std::vector<float> out;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t z = (seed << 32) + i;
    z = z * 0x9E3779B97F4A7C15u + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    out.push_back(static_cast<float>(static_cast<double>(z >> 40) / 8388608.0 - 1) * scale);
  }
  return out;
}

TEST(Models, TheLstmInTextAgreesWithPyTorchAtEveryPrefix) {
  const fs::path folder =
      fs::path(::testing::TempDir()) / ("nimble-lstm-" + std::to_string(getpid()));
  fs::create_directory(folder);
  fs::copy_file(kRoot / "experiments/lstm/lstm.nir", folder / "lstm.nir");
  const auto scale = static_cast<float>(1 / std::sqrt(512.0));
  ir::SafeTensors weights;
  uint64_t seed = 0;
  for (auto [name, shape] : {std::pair<const char*, std::vector<int64_t>>{"weight_ih", {2048, 300}},
                             {"weight_hh", {2048, 512}},
                             {"bias_ih", {2048}},
                             {"bias_hh", {2048}}}) {
    size_t count = 1;
    for (int64_t d : shape) count *= static_cast<size_t>(d);
    weights.tensors.push_back(
        {name, ir::Tensor::of<float>(DType::kF32, shape, uniform(++seed, count, scale))});
  }
  ir::write_safetensors(folder / "lstm.nir.safetensors", weights);
  Recording recording(kRoot / "experiments/recordings/lstm.npz");
  ir::TensorRef x = recording.tensor("x"), y = recording.tensor("y");
  for (int threads : {1, 2}) {
    Configuration c{"default"};
    c.optimize = 2;
    c.threads = threads;
    Compiled model(frontend::import_model(folder / "lstm.nir"), c);
    for (int64_t n = 1; n <= x->shape[0]; ++n)
      ASSERT_LE(
          largest_difference(model.run("main", {part(x, {n, 1, 300})})[0], part(y, {n, 1, 512})),
          1e-5)
          << "length " << n << ", threads " << threads;
  }
  fs::remove_all(folder);
}

// Members of a fixture's .npz are CASE.VALUE.
class OnnxFixture : public ::testing::TestWithParam<std::string> {};

TEST_P(OnnxFixture, CompiledAgreesWithItsRecording) {
  const fs::path data = kRoot / "compiler/frontend/test/data";
  Compiled model(frontend::import_model(data / (GetParam() + ".onnx")), {"default"});
  const exec::EntryPoint& entry = model.executable().entries.at(0);
  std::map<std::string, std::map<std::string, ir::TensorRef>> cases;
  const Recording recording(data / (GetParam() + ".npz"));
  for (const auto& [name, a] : recording.arrays()) {
    size_t dot = name.find('.');
    cases[name.substr(0, dot)][name.substr(dot + 1)] = Recording::slice(a, a.shape, 0);
  }
  ASSERT_FALSE(cases.empty());
  for (auto& [name, values] : cases) {
    std::vector<ir::TensorRef> inputs;
    for (const exec::Port& p : entry.inputs) {
      ASSERT_TRUE(values.count(p.name)) << p.name;
      inputs.push_back(values[p.name]);
    }
    std::vector<ir::TensorRef> out = model.run("main", inputs);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(values.count(entry.outputs[i].name)) << entry.outputs[i].name;
      EXPECT_LE(largest_difference(out[i], values[entry.outputs[i].name]), 2e-5)
          << name << ": " << entry.outputs[i].name;
    }
  }
}

std::vector<std::string> fixtures() {
  std::vector<std::string> out;
  for (const auto& f : fs::directory_iterator(kRoot / "compiler/frontend/test/data"))
    if (f.path().extension() == ".onnx" && fs::exists(fs::path(f.path()).replace_extension(".npz")))
      out.push_back(f.path().stem());
  std::sort(out.begin(), out.end());
  return out;
}
INSTANTIATE_TEST_SUITE_P(Onnx, OnnxFixture, ::testing::ValuesIn(fixtures()),
                         [](const auto& info) { return info.param; });

// Compiled, with its recurrent weights packed, against the reference: forwards, backwards and both,
// the reset gate behind the product and ahead of it.
TEST(Models, GrusAgreeWithTheReferenceInEitherDirection) {
  for (const auto& [name, directions] : std::map<std::string, int64_t>{
           {"gru_plain", 1}, {"gru_reverse", 1}, {"gru_both_reset_first", 2}}) {
    SCOPED_TRACE(name);
    const fs::path data = kRoot / "compiler/frontend/test/data/operators";
    Compiled model(frontend::import_model(data / (name + ".onnx")), {"default"});
    // The weights of the input and of the state.
    EXPECT_EQ(model.report().statistics.at("pack-weights.packed"), 2 * directions);
    Program p;
    p.name = name;
    unsigned seed = 0;
    for (const int64_t n : {0, 1, 2, 7, 30})
      for (const int64_t b : {1, 3, 5}) model.check(p, {{"n", n}, {"b", b}}, ++seed);
  }
}

// A GRU step in the text of the IR is the operator, in both forms, and its weights are packed.
TEST(Models, AGruByHandIsRecognisedAndPacked) {
  for (const char* name : {"gru.nir", "gru_reset_first.nir"}) {
    SCOPED_TRACE(name);
    const fs::path loops = kRoot / "compiler/driver/test/programs/loop";
    Compiled model(frontend::import_model(loops / name), {"default"});
    const std::map<std::string, int64_t>& counts = model.report().statistics;
    ASSERT_TRUE(counts.contains("recognise-cells.gru"));
    EXPECT_EQ(counts.at("recognise-cells.gru"), 1);
    EXPECT_EQ(counts.at("hoist-projections.hoisted"), 1);
    EXPECT_EQ(counts.at("pack-weights.packed"), 2);
  }
}

}  // namespace
}  // namespace nimble::driver::testing
