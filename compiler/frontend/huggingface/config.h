// The settings of a Hugging Face folder, read and checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::frontend {

struct BertConfig {
  int64_t hidden = 0, heads = 0, layers = 0, intermediate = 0;
  int64_t vocabulary = 0, positions = 0, types = 0;
  double epsilon = 1e-12;
  std::string activation;  // an IR operator; "silu" for x * sigmoid(x)
};

// sentence-transformers' pooling. Several modes are concatenated in the order of the enum, which
// is that of its Pooling module.
enum class PoolingMode { kCls, kMax, kMean, kMeanSqrtLen };
struct PoolingConfig {
  std::vector<PoolingMode> modes;  // empty: the folder configures no pooling
  bool normalise = false;
};

// Both throw nimble::Error: kNotFound, kCorrupt, kUnsupported with the file and the key.
BertConfig read_bert_config(const std::string& folder);
PoolingConfig read_pooling_config(const std::string& folder);

}  // namespace nimble::frontend
