// An ONNX model as its file says it, before any meaning is given to it. The members are those of
// onnx.proto's messages that nimble reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "vm/base/file.h"
#include "vm/base/printable.h"

namespace nimble::frontend::onnx {

struct TensorData {  // TensorProto
  std::string name;
  int32_t type = 0;
  std::vector<int64_t> dims;
  // The values: raw, or in the one of these lists that belongs to the type, or in another file.
  bool has_raw = false, is_external = false;
  std::span<const uint8_t> raw;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> integers;  // int32_data, int64_data, uint64_data
  std::vector<std::pair<std::string, std::string>> external;
};

struct Graph;

struct Attribute {
  std::string name, reference;  // reference: of an attribute of the enclosing function
  int64_t type = 0;             // AttributeProto.AttributeType
  float f = 0;
  int64_t i = 0;
  std::string s;
  std::shared_ptr<const TensorData> t;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  std::vector<std::shared_ptr<const Graph>> graphs;  // g and graphs
};

struct Node {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> attributes;

  const Attribute* find(const std::string& attribute) const;
  std::string label() const;  // its name, or "Op → output" where it has none
};

struct ValueInfo {
  struct Dim {
    bool has_value = false;
    int64_t value = 0;
    std::string symbol;  // may be empty: nothing is known
  };
  std::string name;
  bool is_tensor = false, has_shape = false;  // of what `around` holds
  std::string around;  // outermost first: 's' a sequence of it, 'o' an optional one
  int32_t type = 0;
  std::vector<Dim> dims;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<TensorData> initialisers;
  std::vector<ValueInfo> inputs, outputs;
  bool has_sparse = false;
};

struct LocalFunction {  // FunctionProto
  std::string name, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> defaults;
  std::vector<Node> nodes;
  std::map<std::string, int64_t> opsets;
};

struct Model {
  std::string path;
  std::shared_ptr<const MappedFile> file;  // what the raw data of tensors views
  int64_t ir_version = 0;
  std::string producer;
  std::map<std::string, int64_t> opsets;  // by domain; the standard one is ""
  Graph graph;
  std::vector<LocalFunction> functions;
};

// Maps and parses a file. nimble::Error: kNotFound, kIo; kCorrupt with the byte.
Model read_model(const std::string& path);

// "ai.onnx" is a long name of the standard domain "".
std::string canonical_domain(std::string domain);

}  // namespace nimble::frontend::onnx
