#include "compiler/frontend/huggingface/config.h"

#include <filesystem>
#include <map>

#include "compiler/frontend/json_file.h"

namespace nimble::frontend {
namespace {

// A module's folder as modules.json writes it: one name below the model's folder.
std::string module_folder(const JsonFile& file, const nlohmann::json& module) {
  if (!module.contains("path") || !module["path"].is_string())
    file.fail("a module has no \"path\"");
  const std::string path = module["path"].get<std::string>();
  if (path.find('/') != std::string::npos || path == ".." || path == ".")
    file.fail(fmt::format("the module path '{}' leaves the folder", path));
  return path;
}

std::vector<PoolingMode> read_modes(const std::string& path) {
  const JsonFile file(path);
  std::vector<PoolingMode> modes;
  static constexpr std::pair<const char*, PoolingMode> kModes[] = {
      {"pooling_mode_cls_token", PoolingMode::kCls},
      {"pooling_mode_max_tokens", PoolingMode::kMax},
      {"pooling_mode_mean_tokens", PoolingMode::kMean},
      {"pooling_mode_mean_sqrt_len_tokens", PoolingMode::kMeanSqrtLen}};
  for (const auto& [key, mode] : kModes)
    if (file.flag(key)) modes.push_back(mode);
  for (const char* key : {"pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"})
    if (file.flag(key))
      file.unsupported(fmt::format("\"{}\" is not supported", key),
                       "use cls, max or mean pooling, or import the model as ONNX");
  if (modes.empty()) file.fail("no pooling mode is set");
  return modes;
}

}  // namespace

BertConfig read_bert_config(const std::string& folder) {
  const JsonFile file(folder + "/config.json");
  if (!file.root().is_object()) file.fail("is not a JSON object");
  const std::string type = file.text("model_type", "");
  if (type != "bert")
    file.unsupported(fmt::format("model_type \"{}\" is not supported", type),
                     "export the model to ONNX and import that");
  const std::string positions = file.text("position_embedding_type", "absolute");
  if (positions != "absolute")
    file.unsupported(fmt::format("position_embedding_type \"{}\" is not supported", positions),
                     "export the model to ONNX and import that");
  if (file.flag("is_decoder"))
    file.unsupported("a decoder (\"is_decoder\") is not supported",
                     "export the model to ONNX and import that");

  BertConfig c;
  c.hidden = file.positive("hidden_size");
  c.heads = file.positive("num_attention_heads");
  c.layers = file.positive("num_hidden_layers");
  c.intermediate = file.positive("intermediate_size");
  c.vocabulary = file.positive("vocab_size");
  c.positions = file.positive("max_position_embeddings");
  c.types = file.positive("type_vocab_size");
  c.epsilon = file.number("layer_norm_eps", 1e-12);
  if (c.hidden % c.heads != 0)
    file.fail(fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", c.hidden,
                          c.heads));
  if (!(c.epsilon > 0)) file.fail("\"layer_norm_eps\" is not positive");

  static const std::map<std::string, std::string> kActivations = {
      {"gelu", "gelu"},        {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
      {"gelu_python", "gelu"}, {"relu", "relu"},          {"tanh", "tanh"},
      {"silu", "silu"},        {"swish", "silu"}};
  const std::string activation = file.text("hidden_act", "gelu");
  auto it = kActivations.find(activation);
  if (it == kActivations.end())
    file.unsupported(fmt::format("hidden_act \"{}\" is not supported", activation),
                     "export the model to ONNX and import that");
  c.activation = it->second;
  return c;
}

PoolingConfig read_pooling_config(const std::string& folder) {
  PoolingConfig out;
  if (!std::filesystem::exists(folder + "/modules.json")) return out;
  const JsonFile file(folder + "/modules.json");
  if (!file.root().is_array()) file.fail("is not a JSON array");
  for (const nlohmann::json& module : file.root()) {
    if (!module.is_object() || !module.contains("type") || !module["type"].is_string())
      file.fail("a module has no \"type\"");
    const std::string type = module["type"].get<std::string>();
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Transformer") {
      if (!module_folder(file, module).empty())
        file.unsupported("the Transformer module has a folder of its own",
                         "name that folder instead");
    } else if (name == "Pooling") {
      if (!out.modes.empty()) file.fail("there are two Pooling modules");
      out.modes = read_modes(folder + "/" + module_folder(file, module) + "/config.json");
    } else if (name == "Normalize") {
      out.normalise = true;
    } else {
      file.unsupported(fmt::format("the module type \"{}\" is not supported", type),
                       "nimble knows Transformer, Pooling and Normalize");
    }
  }
  if (out.normalise && out.modes.empty()) file.fail("Normalize without Pooling");
  return out;
}

}  // namespace nimble::frontend
