// A graph of cuDNN's operations and the plan by which the library executes it, as both of nimble's
// routines there make them. Internal to vm/library.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "vm/library/cudnn_binding.h"

namespace nimble::rt::cudnn {

// The library tells the difference of no larger alignment of memory.
inline constexpr uint32_t kMostAlignment = 16;

// A tensor of a graph.
struct GraphTensor {
  int type = c::kF32;  // CUDNN_DATA_…
  std::array<int64_t, 4> dims{}, strides{};
  int64_t id = 0;
  uint32_t alignment = 0;
  bool is_virtual = false;  // of no memory
  bool by_value = false;    // one number, which the host has
};

class GraphPlan {
 public:
  using Operations = std::vector<const Descriptor*>;
  // Makes the operations by `make_operations`, with the context's lock held, and a plan of the
  // first engine that the library proposes and that has none of these numerical notes. Throws
  // kept_calls.h's Refused with the reason `none` where there is no such engine, kExhausted where
  // there may be one at another time.
  GraphPlan(std::shared_ptr<const Context> context,
            const std::function<Operations(GraphPlan&)>& make_operations,
            std::span<const int> passed_over, const char* none);
  // Nothing is given back to a device that is lost, nor by a forked child, in which another thread
  // may have held the lock for ever.
  ~GraphPlan();
  GraphPlan(const GraphPlan&) = delete;
  GraphPlan& operator=(const GraphPlan&) = delete;

  // ---- for `make_operations`: what is kept until the plan goes, which may lean on it

  Descriptor& make(int kind);
  const Descriptor& tensor(const GraphTensor& of);

  uint64_t workspace_bytes() const { return workspace_; }
  // Executes it on a stream, on tensors of these ids that lie there.
  void start(const std::vector<int64_t>& ids, const std::vector<void*>& pointers, void* workspace,
             cuda::Stream stream) const;

 private:
  // In the order in which they lean on each other, and with the handle.
  void drop();
  // Whether the first engine that may compute the graph, by these rules, has a plan.
  bool propose(const Descriptor& graph, int rules);
  // Whether this engine may compute it, and has a plan.
  bool make_plan(std::unique_ptr<Descriptor>* configuration);
  bool is_passed_over(const Descriptor& configuration) const;
  // Whether an attempt succeeds that the library may refuse, or fail at.
  bool succeeds(const std::function<bool()>& attempt);

  const std::shared_ptr<const Context> context_;
  const std::vector<int> passed_over_;
  std::vector<std::unique_ptr<Descriptor>> made_;
  std::unique_ptr<Descriptor> plan_;
  uint64_t workspace_ = 0;
  std::exception_ptr without_memory_;  // the last error of that kind while planning
};

}  // namespace nimble::rt::cudnn
