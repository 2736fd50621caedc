// Writes ONNX files for tests: small graphs, and files that no exporter would write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nimble::frontend::proto {

// Protobuf's wire format.
std::string varint(uint64_t v);
std::string integer(uint32_t field, int64_t v);
std::string bytes(uint32_t field, std::string_view v);
std::string fixed32(uint32_t field, float v);

struct GraphParts {
  std::vector<std::string> nodes, initialisers, inputs, outputs;
};

// An attribute; the value decides its kind.
std::string attribute(const std::string& name, int64_t v);
std::string attribute(const std::string& name, float v);
std::string attribute(const std::string& name, const std::string& v);
std::string attribute(const std::string& name, const std::vector<int64_t>& v);
std::string attribute(const std::string& name, const std::vector<std::string>& v);
std::string attribute(const std::string& name, const GraphParts& v);

std::string node(const std::string& op, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs, const std::string& attributes = {},
                 const std::string& name = {}, const std::string& domain = {});

// Tensors with raw data.
std::string tensor(const std::string& name, const std::vector<int64_t>& dims,
                   const std::vector<float>& values);
std::string tensor(const std::string& name, const std::vector<int64_t>& dims,
                   const std::vector<int64_t>& values);
// A tensor of floats whose data lies outside; `entries` are the external_data pairs.
std::string external_tensor(const std::string& name, const std::vector<int64_t>& dims,
                            const std::vector<std::pair<std::string, std::string>>& entries);

// A value's type; dims are numbers or symbols ("" for neither). Element type 1: float, 7: int64.
std::string value(const std::string& name, const std::vector<std::string>& dims, int type = 1);
// One that does not tell its shape.
std::string unshaped(const std::string& name, int type = 1);

std::string model(const GraphParts& g, int64_t opset = 20, const std::string& extra = {});

}  // namespace nimble::frontend::proto
