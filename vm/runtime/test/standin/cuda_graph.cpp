// Graphs of the stand-in for NVIDIA's driver; the oldest driver that is used need not have them.
#ifndef NIMBLE_STANDIN_OLD
#include <algorithm>
#include <memory>
#include <utility>

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

int put_behind(const Graph& graph, Graph::Node* const* after, size_t count, Graph::Node* node) {
  for (size_t i = 0; i < count; ++i) {
    if (std::find(graph.nodes.begin(), graph.nodes.end(), after[i]) == graph.nodes.end())
      return violate("a node behind one that is not its graph's", kInvalidValue);
    node->after.push_back(after[i]);
  }
  return kOk;
}

// Nodes without an order between them may run in any: the latest first.
void flatten(const Graph& graph, GraphExec* out) {
  std::set<Graph::Node*> done;
  while (done.size() < graph.nodes.size())
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      Graph::Node* node = graph.nodes[i];
      const bool ready = std::all_of(node->after.begin(), node->after.end(),
                                     [&](Graph::Node* n) { return done.contains(n); });
      if (!ready || !done.insert(node).second) continue;
      out->works.push_back(node->work);
      out->modules.insert(node->modules.begin(), node->modules.end());
      break;
    }
}

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
  if (const int bad = put_behind(*graph, after, count, made.get())) return bad;
  if (launch->kernel || launch->context) return violate("a kernel by another handle");
  Module* module = nullptr;
  if (const int bad = prepare_launch(launch->function, launch->grid, launch->block, launch->shared,
                                     launch->parameters, launch->extra, &module, &made->work))
    return bad;
  made->modules.insert(module);
  graph->nodes.push_back(*node = made.release());
  return kOk;
}
int cuGraphAddChildGraphNode(Graph::Node** node, Graph* graph, Graph::Node* const* after,
                             size_t count, Graph* child) {
  ENTER();
  if (!state().graphs.contains(graph) || !state().graphs.contains(child) || graph == child)
    return violate("a graph that is none", kInvalidHandle);
  auto made = std::make_unique<Graph::Node>();
  if (const int bad = put_behind(*graph, after, count, made.get())) return bad;
  GraphExec all;  // a copy of what it is now
  flatten(*child, &all);
  made->modules = all.modules;
  made->work = [works = all.works] {
    for (const auto& work : works)
      if (const int result = work()) return result;
    return kOk;
  };
  graph->nodes.push_back(*node = made.release());
  return kOk;
}
int cuStreamBeginCapture_v2(Stream* stream, int mode) {
  ENTER();
  if (const int bad = expect_plain(stream)) return bad;
  if (mode != 1) return violate("a capture that other threads disturb, or that lets all pass");
  stream->capture = new Graph;
  stream->captured_by = std::this_thread::get_id();
  stream->spoiled = false;
  return kOk;
}
int cuStreamEndCapture(Stream* stream, Graph** graph) {
  *graph = nullptr;
  State& s = state();
  const std::lock_guard lock(s.calls.mutex());
  // A call that is to fail ends it all the same.
  const int failure = enter(__func__);
  if (!s.streams.contains(stream) || !stream->capture)
    return violate("a capture ends that has not begun");
  if (stream->captured_by != std::this_thread::get_id())
    return violate("another thread ends a capture");
  std::unique_ptr<Graph> made(std::exchange(stream->capture, nullptr));
  if (failure || stream->spoiled) return failure ? failure : kCaptureInvalidated;
  s.graphs.insert(*graph = made.release());
  return kOk;
}
int cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long flags) {
  ENTER();
  if (!state().graphs.contains(graph)) return violate("a graph that is none", kInvalidHandle);
  if (flags != 0) return kInvalidValue;
  auto made = std::make_unique<GraphExec>();
  flatten(*graph, made.get());
  state().execs.insert(*exec = made.release());
  return kOk;
}
int cuGraphLaunch(GraphExec* exec, Stream* stream) {
  ENTER();
  if (const int bad = expect_plain(stream)) return bad;
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
