// On which device each operator of a function runs where there is a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::passes {

// Whether a template of a device, the CPU or the GPU, takes an operator that may become a kernel.
// Asked at most once for each of both.
using TakenBy = std::function<bool(const ir::Binding&, int32_t device)>;

// The GPU gets what it has templates for, but for what would cost more to bring there, if the CPU
// has one for it (operators have the form that the GPU's take, expand-cells, widen-products):
//   - extents, counters, and the few integers that are made of such alone, are the host's;
//   - what is done to a value of floats that a kernel of the CPU made stays there, and so does what
//     such kernels alone read and nothing on the GPU made, up to the next product (or other anchor)
//     that a template of the GPU takes: activations between two convolutions that run on the CPU do
//     not travel.
class OperatorDevices {
 public:
  // `entry`: the function's parameters are a user's tensors.
  OperatorDevices(const ir::Function& f, bool entry, TakenBy taken);

  // Of the operator that a variable is bound to. Nothing for what may go with its neighbours:
  // views.
  std::optional<int32_t> of(const ir::Var* v) const;

 private:
  // Where a value is made.
  enum class Maker {
    kOpen,  // parameters, results of calls and branches: nothing is known, or it is a view of such
    kHost,  // no kernel, or one of the runtime's library
    kCpu,
    kGpu,
  };
  struct Operator {
    const ir::Binding* binding;
    bool view = false, movable = false;
  };

  Maker maker(const ir::Atom& a) const;
  // Of what is no operator that may become a kernel.
  Maker outside(const ir::Binding& b) const;
  bool is_few_host_integers(const ir::Binding& b) const;
  bool follows_cpu(const ir::Binding& b) const;
  // Of an operator that a kernel is to compute: the GPU's alone, or `otherwise`.
  Maker unless_gpu_alone(const ir::Binding& b, Maker otherwise);
  bool is_taken(const ir::Binding& b, int32_t device);
  void pull_back(const ir::Function& f);

  TakenBy taken_;
  std::map<std::pair<const ir::Var*, int32_t>, bool> known_;  // what it said
  std::unordered_map<const ir::Var*, Maker> makers_;
  std::unordered_map<const ir::Var*, int32_t> devices_;
  std::vector<Operator> operators_;  // in order
};

}  // namespace nimble::passes
