// Graphs of the stand-in for NVIDIA's driver; the oldest driver that is used need not have them.
#ifndef NIMBLE_STANDIN_OLD
#include <algorithm>
#include <memory>

#include "vm/runtime/test/standin/cuda_state.h"

namespace standin::cuda {

namespace {

struct KernelNode {
  Function* function;
  unsigned grid[3], block[3], shared;
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};

}  // namespace

extern "C" {

int cuGraphCreate(Graph** graph, unsigned flags) {
  ENTER();
  if (flags != 0) return kInvalidValue;
  state().graphs.insert(*graph = new Graph);
  return kOk;
}
int cuGraphDestroy(Graph* graph) {
  ENTER();
  if (state().graphs.erase(graph) == 0) return violate("a graph that is none", kInvalidHandle);
  delete graph;
  return kOk;
}
int cuGraphAddKernelNode_v2(Graph::Node** node, Graph* graph, Graph::Node* const* after,
                            size_t count, const KernelNode* launch) {
  ENTER();
  if (!state().graphs.contains(graph)) return violate("a graph that is none", kInvalidHandle);
  auto made = std::make_unique<Graph::Node>();
  for (size_t i = 0; i < count; ++i) {
    if (std::find(graph->nodes.begin(), graph->nodes.end(), after[i]) == graph->nodes.end())
      return violate("a node behind one that is not its graph's", kInvalidValue);
    made->after.push_back(after[i]);
  }
  if (launch->kernel || launch->context) return violate("a kernel by another handle");
  if (const int bad = prepare_launch(launch->function, launch->grid, launch->block, launch->shared,
                                     launch->parameters, launch->extra, &made->module, &made->work))
    return bad;
  graph->nodes.push_back(*node = made.release());
  return kOk;
}
int cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long flags) {
  ENTER();
  if (!state().graphs.contains(graph)) return violate("a graph that is none", kInvalidHandle);
  if (flags != 0) return kInvalidValue;
  auto made = std::make_unique<GraphExec>();
  // Nodes without an order between them may run in any: the latest first.
  std::set<Graph::Node*> done;
  while (done.size() < graph->nodes.size())
    for (size_t i = graph->nodes.size(); i-- > 0;) {
      Graph::Node* node = graph->nodes[i];
      const bool ready = std::all_of(node->after.begin(), node->after.end(),
                                     [&](Graph::Node* n) { return done.contains(n); });
      if (!ready || !done.insert(node).second) continue;
      made->works.push_back(node->work);
      made->modules.insert(node->module);
      break;
    }
  state().execs.insert(*exec = made.release());
  return kOk;
}
int cuGraphLaunch(GraphExec* exec, Stream* stream) {
  ENTER();
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  if (!state().execs.contains(exec)) return violate("a graph that is none", kInvalidHandle);
  for (Module* module : exec->modules) ++module->pending;
  ++exec->pending;
  for (const auto& work : exec->works) stream->work.push_back(work);
  stream->work.push_back([exec] {
    for (Module* module : exec->modules) --module->pending;
    if (--exec->pending == 0 && exec->destroyed) delete exec;
    return kOk;
  });
  return kOk;
}
int cuGraphExecDestroy(GraphExec* exec) {
  ENTER();
  if (state().execs.erase(exec) == 0) return violate("a graph that is none", kInvalidHandle);
  exec->destroyed = true;
  if (exec->pending == 0) delete exec;
  return kOk;
}

}  // extern "C"

}  // namespace standin::cuda
#endif
