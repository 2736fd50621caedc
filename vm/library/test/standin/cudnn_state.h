// What the stand-in for cuDNN knows: descriptors as bags of attributes. Internal to it: cudnn.cpp
// tells what it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "vm/library/test/standin/gpu_library.h"

namespace standin::cudnn {

inline constexpr int kF32 = 0, kF16 = 2, kBF16 = 9;  // types of elements
inline constexpr int kOk = 0, kBadParameter = 2000, kNotSupported = 3000, kExecutionFailed = 5000;

enum Kind : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kConfiguration = 3,
  kHeuristics = 4,
  kPlan = 5,
  kForward = 10,
  kPointwiseOperation = 13,
  kGraph = 15,
  kPack = 16,
  kTensor = 17,
  kAttention = 41
};

struct EngineOf {
  int rules = 3, note = -1;
  size_t workspace = 0;
  bool refused = false;
};
struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<uint8_t> bytes;
};
struct Descriptor {
  int kind = 0;
  bool closed = false;
  std::map<int, Attribute> attributes;
  EngineOf engine;              // of engines, configurations and plans
  Descriptor* graph = nullptr;  // of configurations and plans

  template <class T>
  T one(int attribute, T otherwise = {}) const {
    const auto at = attributes.find(attribute);
    T out = otherwise;
    if (at != attributes.end() && at->second.bytes.size() >= sizeof out)
      std::memcpy(&out, at->second.bytes.data(), sizeof out);
    return out;
  }
  template <class T>
  std::vector<T> all(int attribute) const {
    const auto at = attributes.find(attribute);
    if (at == attributes.end()) return {};
    std::vector<T> out(static_cast<size_t>(at->second.count));
    if (!out.empty()) std::memcpy(out.data(), at->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
};
struct Handle {
  void* stream = nullptr;
};

struct State {
  StandInCalls calls;
  std::vector<EngineOf> engines;
  std::set<void*> handles, descriptors;
  std::string log;
};
State& state();

// Notes what is against the rules.
int violate(const std::string& what, int status = kBadParameter);
// A descriptor of this kind that is closed; nullptr: it is none.
Descriptor* find(void* d, int kind);

// The rules of closing a descriptor (cudnn_rules.cpp): a status.
int close(Descriptor& d);

using Shape = std::vector<int64_t>;

// ---- execution (cudnn_execution.cpp)

// What is executed, as it was then: descriptors may go before the stream comes to it.
struct Operation {
  bool convolution = false;
  int attention = -1;  // the type of its elements; -1: it is none
  int64_t v = 0;       // of attention, beside x and b: queries and keys
  float scale = 1;
  int mode = 0;
  bool keeps_nans = false;      // of a ReLU; the default is not told, here it is another number
  int64_t x = 0, b = 0, y = 0;  // ids; 0: none
  Shape before, strides, dilations;
};
struct Execution {
  std::vector<Operation> operations;
  std::map<int64_t, Shape> shapes;
  std::set<int64_t> virtuals;
  std::map<int64_t, uint64_t> addresses;
  uint64_t workspace = 0;
  size_t workspace_bytes = 0;
};

// What is to be executed of a plan and its memory, and how it is `told` to tests: a status.
int prepare(const Descriptor& plan, const Descriptor& pack, Execution* e, std::string* told);
// Executes it, an Execution, whenever the stream comes to it: a result of the driver's.
int run(void* execution);

}  // namespace standin::cudnn
