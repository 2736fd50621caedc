#include "vm/runtime/cuda_graph.h"

#include <exception>
#include <mutex>

namespace nimble::rt {
namespace {

// A graph that is being made.
struct Draft {
  const CudaDriver& driver;
  cuda::Graph graph = nullptr;
  ~Draft() {
    if (graph) driver.cuGraphDestroy(graph);
  }
};

// What is asked for in a stream is written down instead of done.
void capture(CudaDevice& device, const CudaLaunch::Captured& start, Draft* draft) {
  const CudaDriver& driver = device.driver();
  const std::lock_guard guard(device.capture_lock());
  const cuda::Stream stream = device.capture_stream();
  device.check(driver.cuStreamBeginCapture_v2(stream, cuda::kOfThread), "cuStreamBeginCapture");
  std::exception_ptr error;
  try {
    start(stream);
  } catch (...) {
    error = std::current_exception();
  }
  // However it went: the stream is the next one's.
  const int ended = driver.cuStreamEndCapture(stream, &draft->graph);
  if (error) std::rethrow_exception(error);
  device.check(ended, "cuStreamEndCapture");
}

}  // namespace

bool CudaGraph::available(const CudaDriver& d) {
  return d.cuGraphCreate && d.cuGraphDestroy && d.cuGraphAddKernelNode_v2 &&
         d.cuGraphInstantiateWithFlags && d.cuGraphLaunch && d.cuGraphExecDestroy;
}

bool CudaGraph::captures(const CudaDriver& d) {
  return available(d) && d.cuStreamBeginCapture_v2 && d.cuStreamEndCapture &&
         d.cuGraphAddChildGraphNode;
}

CudaGraph::CudaGraph(CudaDevice& device, std::span<const CudaLaunch> launches) : device_(device) {
  device.enter();
  const CudaDriver& driver = device.driver();
  Draft draft{driver};
  device.check(driver.cuGraphCreate(&draft.graph, 0), "cuGraphCreate");
  cuda::GraphNode last = nullptr;
  for (const CudaLaunch& l : launches) {
    const cuda::GraphNode before = last;
    const cuda::GraphNode* const after = before ? &before : nullptr;
    const size_t after_count = before ? 1 : 0;
    if (l.captured) {
      Draft part{driver};
      capture(device, *l.captured, &part);
      // A copy of it, which goes with this graph.
      device.check(
          driver.cuGraphAddChildGraphNode(&last, draft.graph, after, after_count, part.graph),
          "cuGraphAddChildGraphNode");
      continue;
    }
    cuda::KernelNode node;
    node.function = l.function;
    for (size_t i = 0; i < 3; ++i) node.grid[i] = l.grid[i];
    node.block[0] = l.threads;
    node.shared_bytes = l.shared_bytes;
    node.parameters = l.parameters;
    device.check(driver.cuGraphAddKernelNode_v2(&last, draft.graph, after, after_count, &node),
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
