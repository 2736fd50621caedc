#include "compiler/frontend/huggingface/weights.h"

#include <filesystem>
#include <set>

#include "compiler/frontend/json_file.h"
#include "compiler/ir/safetensors.h"

namespace nimble::frontend {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// The files that hold the weights, relative to the folder.
std::set<std::string> weight_files(const std::string& folder) {
  namespace fs = std::filesystem;
  if (fs::exists(folder + "/model.safetensors")) return {"model.safetensors"};
  const std::string index = folder + "/model.safetensors.index.json";
  if (!fs::exists(index))
    throw Error(Status::kNotFound, folder + "/model.safetensors", "there is no such file",
                "save the model with save_pretrained(folder, safe_serialization=True)");
  const JsonFile file(index);
  if (!file.has("weight_map") || !file.root()["weight_map"].is_object())
    file.fail("\"weight_map\" is missing");
  std::set<std::string> out;
  for (const auto& [name, shard] : file.root()["weight_map"].items()) {
    if (!shard.is_string()) file.fail(fmt::format("the file of {} is not a string", name));
    const std::string s = shard.get<std::string>();
    if (s.empty() || s[0] == '.' || s.find('/') != std::string::npos)
      file.fail(fmt::format("the shard '{}' is not a plain file name", s));
    out.insert(s);
  }
  return out;
}

}  // namespace

Weights::Weights(const std::string& folder) : folder_(folder) {
  for (const std::string& file : weight_files(folder))
    for (const auto& [name, tensor] : ir::read_safetensors(folder + "/" + file).tensors)
      if (!tensors_.emplace(name, tensor).second)
        throw Error(Status::kCorrupt, folder, fmt::format("two shards hold the tensor {}", name),
                    "download the model again");
}

ir::TensorRef Weights::get(const std::string& name, const std::vector<int64_t>& shape) const {
  auto it = tensors_.find(prefix_ + name);
  if (it == tensors_.end())
    throw Error(Status::kNotFound, folder_, fmt::format("there is no weight {}{}", prefix_, name),
                "check that config.json belongs to these weights");
  const ir::TensorRef& t = it->second;
  if (t->shape != shape)
    throw Error(Status::kCorrupt, folder_,
                fmt::format("the weight {} has shape {} where config.json asks for {}", it->first,
                            shape_text(t->shape), shape_text(shape)),
                "check that config.json belongs to these weights");
  if (t->dtype == DType::kF32) return t;
  if (!is_float(t->dtype))
    throw Error(Status::kUnsupported, folder_,
                fmt::format("the weight {} is {}", it->first, nimble::name_of(t->dtype)),
                "use float weights");
  uint8_t* data = nullptr;
  auto out = ir::Tensor::make(DType::kF32, shape, &data);
  out->name = it->first;
  float* values = reinterpret_cast<float*>(data);
  for (int64_t i = 0, n = t->elements(); i < n; ++i) values[i] = static_cast<float>(t->value(i));
  return out;
}

}  // namespace nimble::frontend
