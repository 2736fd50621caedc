// From a model to what is tuned: its workloads, how often each is called, and the shapes at which
// each is measured.
//
// Shapes are chosen for the model, then translated for each workload. A model point gives every
// symbol of the model a value (n=64, b=1); a workload's own symbols follow by evaluating the dims
// of its parameters there, since its contract binds each symbol to a parameter's dim (b*n becomes
// s0 where leading axes are collapsed).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "tuner/measure/inputs.h"
#include "tuner/service/points.h"

namespace nimble::tuner {

// A shape of one workload.
struct WorkloadPoint {
  std::vector<int64_t> symbols;  // of the contract
  double weight = 0;
  double exact = 0;  // of that, what is met at just this shape, as far as a trace tells
  bool power_of_two = false;
  bool representative = false;
  bool held_out = false;
  int64_t flops = 0, bytes = 0;
};

// " at 17, 64", for messages; "" where there are no symbols.
std::string at_text(const WorkloadPoint& point);

// Raised when tasks of a workload get other fills: what was expected of those before is of no use.
inline constexpr int kFillsVersion = 3;

struct TuningTask {
  driver::WorkloadUse use;
  std::string label;  // "packed_matmul+add+gelu k=384 n=1536"
  double calls = 0;   // per run of the model; a call in a loop counts once per iteration
  std::vector<WorkloadPoint> points;  // distinct; one is representative
  std::vector<Fill> fills;            // of the tensors that are read; see fills_at
  std::vector<uint8_t> stepping;      // per scalar argument
  double reduction = 1;               // longest sum in it, for the tolerance
  const kernels::Workload& workload() const { return use.workload; }
  size_t representative() const;
  // The fills with the indices of a point: over the whole extent that they index there.
  std::vector<Fill> fills_at(const WorkloadPoint& point) const;
  std::map<size_t, ir::Dim> indexed;  // fill → the extent that its values index, if symbolic
};

// At which sizes a workload can be met: no tensor of it has an extent below zero, and its
// requirements hold. At others a run of the model ends before it comes to the kernel.
class PossibleSizes {
 public:
  // `workload` must outlive this.
  explicit PossibleSizes(const kernels::Workload& workload);
  bool contains(const std::vector<int64_t>& symbols) const;

 private:
  const kernels::Workload& workload_;
  std::vector<exec::DimProgram> requirements_;
};

// Fills in what follows from a task's workload and the symbols of its points: label, work, fills,
// steps, the longest sum.
void complete(TuningTask& task);

// The workloads of a lowered module at these points that run on the target's device, the CPU or the
// GPU, in order of first appearance. Workloads that no template serves are left out; `skipped`
// names them with the reason.
std::vector<TuningTask> tuning_tasks(const ir::Module& lowered,
                                     const std::vector<WeightedPoint>& points,
                                     const kernels::TargetInfo& target,
                                     std::vector<std::string>* skipped);

// The contract's symbols of a workload at a model point; symbols that the model does not name take
// `otherwise`. Nothing if the dims contradict each other there.
std::optional<std::vector<int64_t>> workload_symbols(const driver::WorkloadUse& use,
                                                     const ModelPoint& at, int64_t otherwise);

}  // namespace nimble::tuner
