#include "vm/runtime/cuda_graph.h"

namespace nimble::rt {

bool CudaGraph::available(const CudaDriver& d) {
  return d.cuGraphCreate && d.cuGraphDestroy && d.cuGraphAddKernelNode_v2 &&
         d.cuGraphInstantiateWithFlags && d.cuGraphLaunch && d.cuGraphExecDestroy;
}

CudaGraph::CudaGraph(CudaDevice& device, std::span<const CudaLaunch> launches) : device_(device) {
  device.enter();
  const CudaDriver& driver = device.driver();
  struct Draft {
    const CudaDriver& driver;
    cuda::Graph graph = nullptr;
    ~Draft() {
      if (graph) driver.cuGraphDestroy(graph);
    }
  } draft{driver};
  device.check(driver.cuGraphCreate(&draft.graph, 0), "cuGraphCreate");
  cuda::GraphNode last = nullptr;
  for (const CudaLaunch& l : launches) {
    cuda::KernelNode node;
    node.function = l.function;
    for (size_t i = 0; i < 3; ++i) node.grid[i] = l.grid[i];
    node.block[0] = l.threads;
    node.shared_bytes = l.shared_bytes;
    node.parameters = l.parameters;
    const cuda::GraphNode before = last;
    device.check(driver.cuGraphAddKernelNode_v2(&last, draft.graph, before ? &before : nullptr,
                                                before ? 1 : 0, &node),
                 "cuGraphAddKernelNode");
  }
  device.check(driver.cuGraphInstantiateWithFlags(&exec_, draft.graph, 0),
               "cuGraphInstantiateWithFlags");
}

CudaGraph::~CudaGraph() {
  if (device_.reenter()) device_.driver().cuGraphExecDestroy(exec_);
}

void CudaGraph::start() {
  device_.launch_graph(exec_);
}

}  // namespace nimble::rt
