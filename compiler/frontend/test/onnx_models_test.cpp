// The models that PyTorch's two exporters wrote (experiments/recordings/export_onnx_fixtures.py),
// run by the reference interpreter against PyTorch's recorded outputs at several sizes.
#include <set>

#include "compiler/frontend/test/support.h"

namespace nimble::frontend {
namespace {

class OnnxModel : public testing::TestWithParam<const char*> {};

TEST_P(OnnxModel, AgreesWithPyTorchAtEveryRecordedSize) {
  const std::string name = GetParam();
  const ir::Module m = import_model(data_path(name + ".onnx"));
  const ir::Module::Signature& signature = m.signatures.at("main");
  const std::vector<Arrays> cases = read_cases(data_path(name + ".npz"));
  ASSERT_GE(cases.size(), 3u);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Arrays results = run_reference(m, cases[i]);
    for (const std::string& output : signature.output_names)
      expect_close(results.at(output), cases[i].at(output), 1e-5,
                   fmt::format("{}, case {}, {}", name, i, output));
  }
}

TEST_P(OnnxModel, IsWellFormedAfterInference) {
  const ir::Module m = import_model(data_path(std::string(GetParam()) + ".onnx"));
  EXPECT_THAT(ir::verify(m), testing::IsEmpty());
}

TEST_P(OnnxModel, HasCompleteCoverage) {
  const Coverage c = coverage(data_path(std::string(GetParam()) + ".onnx"));
  EXPECT_EQ(c.format, "onnx");
  EXPECT_TRUE(c.complete());
  EXPECT_FALSE(c.rows.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Exported, OnnxModel,
    testing::Values("mlp_torchscript", "mlp_dynamo", "mlp_external", "convnet_torchscript",
                    "convnet_dynamo", "convnet_any_size_torchscript", "convnet_any_size_dynamo",
                    "bert_eager_torchscript", "bert_eager_dynamo", "bert_sdpa_torchscript",
                    "bert_sdpa_dynamo", "lstm_torchscript", "lstm_dynamo",
                    "lstm_bidirectional_torchscript", "lstm_bidirectional_dynamo",
                    "lstm_batch1_torchscript", "lstm_batch1_dynamo", "gru_torchscript",
                    "gru_dynamo", "decoder_torchscript", "decoder_dynamo", "lists_torchscript"),
    [](const auto& p) { return std::string(p.param); });

// Names and symbols of the model survive, and no dim gets lost in exported shape arithmetic.
TEST(OnnxSignature, KeepsNamesAndSymbols) {
  for (const char* name : {"bert_sdpa_torchscript.onnx", "bert_eager_dynamo.onnx"}) {
    const ir::Module m = import_model(data_path(name));
    const ir::FunctionRef main = m.find("main");
    EXPECT_THAT(m.signatures.at("main").input_names,
                testing::ElementsAre("input_ids", "attention_mask", "token_type_ids"));
    EXPECT_THAT(m.signatures.at("main").output_names,
                testing::ElementsAre("last_hidden_state", "pooler_output"));
    EXPECT_EQ(ir::str(main->parameters[0]->type), "Tensor[(b, n), i64]") << name;
    EXPECT_EQ(ir::str(main->result_type), "(Tensor[(b, n, 32), f32], Tensor[(b, 32), f32])")
        << name;
  }
}

TEST(OnnxSignature, KeepsTheNamesOfNodes) {
  const ir::Module m = import_model(data_path("bert_eager_torchscript.onnx"));
  std::set<std::string> names;
  for (const ir::Binding& b : m.find("main")->body->bindings)
    names.insert(b.value->location.source_name);
  EXPECT_TRUE(names.contains("/bert/encoder/layer.1/attention/self/query/MatMul"));
}

TEST(OnnxRecurrent, TurnsIntoALoopOverACell) {
  const ir::Module m = import_model(data_path("lstm_bidirectional_dynamo.onnx"));
  // Two layers, two directions.
  for (const char* name : {"lstm", "lstm_1", "lstm_2", "lstm_3"}) {
    const ir::FunctionRef loop = m.find(name);
    ASSERT_TRUE(loop) << name;
    EXPECT_EQ(loop->parameters.size(), 5u);
  }
  EXPECT_FALSE(m.find("lstm_4"));
}

// More tokens than the model has positions: a message at run time, not a wrong row.
TEST(OnnxBert, RefusesMoreTokensThanPositions) {
  const ir::Module m = import_model(data_path("bert_sdpa_torchscript.onnx"));
  const std::vector<int64_t> ids(65, 1);
  const Arrays inputs = {{"input_ids", array_of({1, 65}, ids)},
                         {"attention_mask", array_of({1, 65}, ids)},
                         {"token_type_ids", array_of({1, 65}, ids)}};
  EXPECT_THROW(run_reference(m, inputs), Error);
}

}  // namespace
}  // namespace nimble::frontend
