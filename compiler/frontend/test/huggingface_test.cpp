// Hugging Face folders, against what transformers and sentence-transformers' formulas recorded
// (record_tiny_bert.py), and damaged ones.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "compiler/frontend/test/support.h"
#include "compiler/ir/safetensors.h"
#include "compiler/ir/text.h"
#include "vm/base/file.h"

namespace nimble::frontend {
namespace {

namespace fs = std::filesystem;

// A copy of the recorded folder that a test may change.
class Folder {
 public:
  Folder() {
    fs::copy(data_path("tiny_bert"), scratch_.path("model"), fs::copy_options::recursive);
  }
  std::string path() const { return scratch_.path("model"); }
  void write(const std::string& name, const std::string& text) {
    scratch_.write("model/" + name, text);
  }
  void set(const std::string& key, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(read_text_file(path() + "/config.json"));
    config[key] = value;
    write("config.json", config.dump());
  }
  void pooling(const std::vector<std::string>& modes, bool normalise) {
    nlohmann::json modules = {
        {{"idx", 0}, {"path", ""}, {"type", "sentence_transformers.models.Transformer"}},
        {{"idx", 1}, {"path", "1_Pooling"}, {"type", "sentence_transformers.models.Pooling"}}};
    if (normalise)
      modules.push_back({{"idx", 2},
                         {"path", "2_Normalize"},
                         {"type", "sentence_transformers.models.Normalize"}});
    write("modules.json", modules.dump());
    nlohmann::json config = {{"word_embedding_dimension", 32}};
    for (const char* m : {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"})
      config[std::string("pooling_mode_") + m] = false;
    for (const std::string& m : modes) config["pooling_mode_" + m] = true;
    write("1_Pooling/config.json", config.dump());
  }

 private:
  Scratch scratch_;
};

std::vector<Arrays> recorded() {
  return read_cases(data_path("tiny_bert.npz"));
}

TEST(HuggingFace, EncoderAgreesWithTransformers) {
  const ir::Module m = import_model(data_path("tiny_bert"));
  EXPECT_THAT(ir::verify(m), testing::IsEmpty());
  const auto& s = m.signatures.at("main");
  EXPECT_THAT(s.input_names, testing::ElementsAre("input_ids", "attention_mask", "token_type_ids"));
  EXPECT_THAT(s.input_defaults, testing::ElementsAre("", "ones", "zeros"));
  EXPECT_THAT(s.output_names, testing::ElementsAre("last_hidden_state", "pooler_output"));
  EXPECT_EQ(ir::str(m.find("main")->result_type),
            "(Tensor[(b, n, 32), f32], Tensor[(b, 32), f32])");
  for (const Arrays& c : recorded()) {
    const Arrays results = run_reference(m, c);
    for (const char* name : {"last_hidden_state", "pooler_output"})
      expect_close(results.at(name), c.at(name), 1e-5, name);
  }
}

TEST(HuggingFace, DefaultsAreOnesAndZeros) {
  const ir::Module m = import_model(data_path("tiny_bert"));
  const std::vector<int64_t> ids = {5, 6, 7}, ones = {1, 1, 1}, zeros = {0, 0, 0};
  const Arrays few = {{"input_ids", array_of({1, 3}, ids)}};
  Arrays all = few;
  all["attention_mask"] = array_of({1, 3}, ones);
  all["token_type_ids"] = array_of({1, 3}, zeros);
  const Arrays a = run_reference(m, few), b = run_reference(m, all);
  EXPECT_EQ(a.at("last_hidden_state"), b.at("last_hidden_state"));
}

struct Mode {
  const char* key;
  const char* recorded;
  friend void PrintTo(const Mode& m, std::ostream* out) { *out << m.recorded; }
};

class Pooling : public testing::TestWithParam<Mode> {};

TEST_P(Pooling, AgreesWithSentenceTransformers) {
  Folder folder;
  folder.pooling({GetParam().key}, false);
  const ir::Module m = import_model(folder.path());
  EXPECT_THAT(m.signatures.at("main").output_names,
              testing::ElementsAre("last_hidden_state", "sentence_embedding"));
  for (const Arrays& c : recorded())
    expect_close(run_reference(m, c).at("sentence_embedding"), c.at(GetParam().recorded), 1e-5,
                 GetParam().key);
}

INSTANTIATE_TEST_SUITE_P(Modes, Pooling,
                         testing::Values(Mode{"cls_token", "cls"}, Mode{"max_tokens", "max"},
                                         Mode{"mean_tokens", "mean"},
                                         Mode{"mean_sqrt_len_tokens", "mean_sqrt_len"}),
                         [](const auto& p) { return std::string(p.param.recorded); });

TEST(HuggingFace, ConcatenatesModesAndNormalises) {
  Folder folder;
  folder.pooling({"mean_tokens", "cls_token"}, true);
  const ir::Module m = import_model(folder.path());
  EXPECT_EQ(ir::str(m.find("main")->result_type->elements[1]), "Tensor[(b, 64), f32]");
  const Arrays c = recorded()[0];
  const Array result = run_reference(m, c).at("sentence_embedding");
  const auto* v = reinterpret_cast<const float*>(result.bytes.data());
  const auto* cls = reinterpret_cast<const float*>(c.at("cls").bytes.data());
  double norm = 0;
  for (int i = 0; i < 64; ++i) norm += static_cast<double>(v[i]) * v[i];
  EXPECT_NEAR(norm, 1, 1e-5);
  EXPECT_NEAR(v[1] / v[0], cls[1] / cls[0], 1e-3);  // cls comes first
}

TEST(HuggingFace, RefusesMoreTokensThanPositions) {
  const ir::Module m = import_model(data_path("tiny_bert"));
  try {
    run_reference(m, {{"input_ids", array_of({1, 65}, std::vector<int64_t>(65, 1))}});
    ADD_FAILURE() << "65 tokens ran";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("at most 64"));
  }
  const Error fixed = error_of([] { import_model(data_path("tiny_bert"), {{{"n", 65}}, {}}); });
  EXPECT_EQ(fixed.status(), Status::kInvalidArgument);
}

TEST(HuggingFace, RefusesIdsOutsideTheVocabulary) {
  const ir::Module m = import_model(data_path("tiny_bert"));
  EXPECT_THROW(run_reference(m, {{"input_ids", array_of({1, 2}, std::vector<int64_t>{64, 0})}}),
               Error);
}

TEST(HuggingFace, ViewsTheMappedWeights) {
  const ir::Module m = import_model(data_path("tiny_bert"));
  const auto file = ir::read_safetensors(data_path("tiny_bert/model.safetensors"));
  size_t weights = 0;
  for (const ir::Binding& b : m.find("main")->body->bindings)
    for (const ir::Atom& a : b.value->args)
      if (a.is_constant() && !a.constant->name.empty()) {
        ++weights;
        EXPECT_TRUE(a.constant->owner);
        EXPECT_TRUE(file.find(a.constant->name)) << a.constant->name;
      }
  EXPECT_EQ(weights, 3u + 2u + 2u * 16u + 2u);
}

TEST(HuggingFace, ReadsShardsAndPrefixedNames) {
  Folder folder;
  const auto whole = ir::read_safetensors(folder.path() + "/model.safetensors");
  ir::SafeTensors parts[2];
  nlohmann::json map;
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    const auto& [name, tensor] = whole.tensors[i];
    parts[i % 2].tensors.emplace_back("bert." + name, tensor);
    map["bert." + name] = i % 2 ? "part-2.safetensors" : "part-1.safetensors";
  }
  ir::write_safetensors(folder.path() + "/part-1.safetensors", parts[0]);
  ir::write_safetensors(folder.path() + "/part-2.safetensors", parts[1]);
  folder.write("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  fs::remove(folder.path() + "/model.safetensors");
  const ir::Module m = import_model(folder.path());
  const Arrays c = recorded()[0];
  expect_close(run_reference(m, c).at("last_hidden_state"), c.at("last_hidden_state"), 1e-5, "");
}

TEST(HuggingFace, CountsItsOperators) {
  const Coverage c = coverage(data_path("tiny_bert"));
  EXPECT_EQ(c.format, "huggingface");
  EXPECT_TRUE(c.complete());
  int64_t attention = 0;
  for (const Coverage::Row& r : c.rows) attention += r.op == "attention" ? r.count : 0;
  EXPECT_EQ(attention, 2);
}

// ------------------------------------------------------------------------------- bad folders

TEST(HuggingFaceErrors, NameTheFileAndTheKey) {
  struct Case {
    const char* key;
    nlohmann::json value;
    Status status;
    const char* text;
  };
  const Case cases[] = {
      {"model_type", "gpt2", Status::kUnsupported, "model_type \"gpt2\""},
      {"hidden_act", "wavelet", Status::kUnsupported, "wavelet"},
      {"position_embedding_type", "relative_key", Status::kUnsupported, "relative_key"},
      {"is_decoder", true, Status::kUnsupported, "decoder"},
      {"hidden_size", "32", Status::kCorrupt, "hidden_size"},
      {"hidden_size", -32, Status::kCorrupt, "hidden_size"},
      {"hidden_size", 1e300, Status::kCorrupt, "hidden_size"},
      {"num_attention_heads", 0, Status::kCorrupt, "num_attention_heads"},
      {"num_attention_heads", 5, Status::kCorrupt, "multiple"},
      {"num_hidden_layers", 3, Status::kNotFound, "encoder.layer.2"},
      {"intermediate_size", 40, Status::kCorrupt, "(48, 32)"},
      {"vocab_size", 65, Status::kCorrupt, "word_embeddings"},
      {"layer_norm_eps", 0, Status::kCorrupt, "layer_norm_eps"},
  };
  for (const Case& c : cases) {
    Folder folder;
    folder.set(c.key, c.value);
    const Error e = error_of([&] { import_model(folder.path()); });
    EXPECT_EQ(e.status(), c.status) << e.what();
    EXPECT_THAT(e.what(), testing::HasSubstr(c.text));
    EXPECT_THAT(e.place(), testing::StartsWith(folder.path()));
  }
}

TEST(HuggingFaceErrors, TruncatedAndMissingFiles) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    Folder folder;
    const std::string file = folder.path() + "/" + name;
    fs::resize_file(file, fs::file_size(file) / 2);
    EXPECT_EQ(error_of([&] { import_model(folder.path()); }).status(), Status::kCorrupt) << name;
    fs::remove(file);
    EXPECT_EQ(error_of([&] { import_model(folder.path()); }).status(), Status::kNotFound) << name;
  }
}

TEST(HuggingFaceErrors, PoolingThatNimbleLacks) {
  Folder folder;
  folder.pooling({"weightedmean_tokens"}, false);
  EXPECT_EQ(error_of([&] { import_model(folder.path()); }).status(), Status::kUnsupported);
  folder.pooling({}, false);
  EXPECT_EQ(error_of([&] { import_model(folder.path()); }).status(), Status::kCorrupt);
  folder.write("modules.json",
               R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
  EXPECT_THAT(error_of([&] { import_model(folder.path()); }).what(), testing::HasSubstr("Dense"));
  folder.write("modules.json",
               R"([{"path": "../up", "type": "sentence_transformers.models.Pooling"}])");
  EXPECT_THAT(error_of([&] { import_model(folder.path()); }).what(), testing::HasSubstr("leaves"));
}

TEST(HuggingFaceErrors, ShardsOutsideTheFolder) {
  Folder folder;
  fs::remove(folder.path() + "/model.safetensors");
  for (const char* shard : {"../x.safetensors", "/etc/passwd", ".hidden", ""}) {
    folder.write("model.safetensors.index.json",
                 nlohmann::json{{"weight_map", {{"w", shard}}}}.dump());
    EXPECT_EQ(error_of([&] { import_model(folder.path()); }).status(), Status::kCorrupt) << shard;
  }
}

TEST(Formats, UnknownOnesAreRefused) {
  Scratch scratch;
  scratch.write("model.bin", "x");
  EXPECT_EQ(error_of([&] { import_model(scratch.path("model.bin")); }).status(),
            Status::kUnsupported);
  EXPECT_EQ(error_of([&] { import_model(scratch.path("absent.onnx")); }).status(),
            Status::kNotFound);
  EXPECT_EQ(error_of([&] { import_model(scratch.path()); }).status(), Status::kNotFound);
}

TEST(Formats, TextIrIsReadWithItsSideFile) {
  Scratch scratch;
  const ir::Module m = import_model(data_path("mlp_dynamo.onnx"));
  ir::write_module(m, scratch.path("mlp.nir"));
  const ir::Module again = import_model(scratch.path("mlp.nir"), {{{"m", 4}}, {}});
  EXPECT_EQ(ir::str(again.find("main")->result_type), "Tensor[(4, 10), f32]");
  const Arrays c = read_cases(data_path("mlp_dynamo.npz"))[0];
  expect_close(run_reference(again, c).at("y"), c.at("y"), 1e-5, "y");
  EXPECT_EQ(coverage(scratch.path("mlp.nir")).format, "text");
  scratch.write("bad.nir", "fn @main(");
  EXPECT_EQ(error_of([&] { coverage(scratch.path("absent.nir")); }).status(), Status::kNotFound);
  EXPECT_THROW(import_model(scratch.path("bad.nir")), Error);
}

// The real model, where NIMBLE_MINILM names its folder (scripts/quickstart fetches it).
TEST(MiniLm, AgreesWithPyTorch) {
  const char* folder = std::getenv("NIMBLE_MINILM");
  if (!folder) GTEST_SKIP() << "NIMBLE_MINILM is not set";
  const ir::Module m = import_model(folder);
  Arrays recorded;
  for (auto& [name, array] :
       read_npz(std::string(NIMBLE_SOURCE_DIR) + "/experiments/recordings/minilm.npz"))
    recorded[name] = array;
  constexpr int64_t n = 16, width = 384;
  const Array& ids = recorded.at("ids");
  Array first{DType::kI64, {1, n}, {ids.bytes.begin(), ids.bytes.begin() + n * 8}};
  const Arrays results = run_reference(m, {{"input_ids", first}});
  expect_close(results.at("last_hidden_state"), recorded.at("hidden16.last_hidden_state"), 2e-5,
               "hidden");
  const Array& all = recorded.at("sentence_embedding");
  Array row{DType::kF32,
            {1, width},
            {all.bytes.begin() + (n - 1) * width * 4, all.bytes.begin() + n * width * 4}};
  expect_close(results.at("sentence_embedding"), row, 1e-5, "embedding");
}

}  // namespace
}  // namespace nimble::frontend
