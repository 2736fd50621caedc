// On which device each operator of a function runs where there is a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::passes {

// Asked once for each operator that may become a kernel: whether a template of the GPU takes it.
using TakenByGpu = std::function<bool(const ir::Binding&)>;

// The GPU gets what it has templates for, but for what would cost more to bring there:
//   - extents, counters, and the few integers that are made of such alone, are the host's;
//   - what is done to a value of floats that a kernel of the CPU made stays there, and so does what
//     such kernels alone read and nothing on the GPU made, up to the next product (or other anchor)
//     that a template of the GPU takes: activations between two convolutions that run on the CPU do
//     not travel.
class OperatorDevices {
 public:
  // `entry`: the function's parameters are a user's tensors.
  OperatorDevices(const ir::Function& f, bool entry, const TakenByGpu& taken);

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
  void pull_back(const ir::Function& f);

  std::unordered_map<const ir::Var*, Maker> makers_;
  std::unordered_map<const ir::Var*, int32_t> devices_;
  std::vector<Operator> operators_;  // in order
};

}  // namespace nimble::passes
