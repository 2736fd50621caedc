#include "vm/library/cudnn_plan.h"

#include <algorithm>
#include <mutex>

#include "vm/base/error.h"
#include "vm/library/kept_calls.h"

namespace nimble::rt::cudnn {
namespace {

constexpr uint64_t kMostPlanWorkspace = uint64_t{256} << 20;
// Engines that are looked at, of each kind of rules; of the later ones none is fast.
constexpr int64_t kMostEngines = 16;

}  // namespace

GraphPlan::GraphPlan(std::shared_ptr<const Context> context,
                     const std::function<Operations(GraphPlan&)>& make_operations,
                     std::span<const int> passed_over, const char* none)
    : context_(std::move(context)), passed_over_(passed_over.begin(), passed_over.end()) {
  const std::lock_guard guard(context_->lock());
  try {
    context_->use(context_->device().stream());  // not one that another thread captures now
    const Operations operations = make_operations(*this);
    Descriptor& graph = make(c::kGraph);
    graph.set_handle(c::kGraphHandle, context_->handle());
    graph.set_all(c::kGraphOperations, operations);
    graph.close();
    for (const int rules : {c::kByRules, c::kFallback})
      if (succeeds([&] { return propose(graph, rules); })) break;
    // There may be some at another time.
    if (!plan_ && without_memory_) std::rethrow_exception(without_memory_);
    if (!plan_) throw Refused{none};
  } catch (...) {
    drop();  // while nobody else has the handle
    throw;
  }
}

GraphPlan::~GraphPlan() {
  if (!context_->device().reenter()) {
    if (plan_) plan_->leave();
    for (const auto& made : made_) made->leave();
    return;
  }
  const std::lock_guard guard(context_->lock());
  drop();
}

void GraphPlan::drop() {
  plan_.reset();
  while (!made_.empty()) made_.pop_back();
}

Descriptor& GraphPlan::make(int kind) {
  made_.push_back(std::make_unique<Descriptor>(*context_, kind));
  return *made_.back();
}

const Descriptor& GraphPlan::tensor(const GraphTensor& of) {
  Descriptor& t = make(c::kTensor);
  t.set_int(c::kTensorType, c::kDataType, of.type);
  t.set(c::kTensorDims, c::kInt64, of.dims.size(), of.dims.data());
  t.set(c::kTensorStrides, c::kInt64, of.strides.size(), of.strides.data());
  t.set_int64(c::kTensorId, of.id);
  t.set_int64(c::kTensorAlignment, of.alignment);
  const bool yes = true;
  if (of.is_virtual) t.set(c::kTensorVirtual, c::kBoolean, 1, &yes);
  if (of.by_value) t.set(c::kTensorByValue, c::kBoolean, 1, &yes);
  t.close();
  return t;
}

void GraphPlan::start(const std::vector<int64_t>& ids, const std::vector<void*>& pointers,
                      void* workspace, cuda::Stream stream) const {
  const Library& l = context_->library();
  const std::lock_guard guard(context_->lock());
  context_->use(stream);
  Descriptor pack(*context_, c::kPack);
  pack.set(c::kPackIds, c::kInt64, ids);
  pack.set(c::kPackPointers, c::kPointer, pointers);
  pack.set_pointer(c::kPackWorkspace, workspace);
  pack.close();
  l.check(l.cudnnBackendExecute(context_->handle(), plan_->get(), pack.get()),
          "cudnnBackendExecute");
}

bool GraphPlan::propose(const Descriptor& graph, int rules) {
  Descriptor& heuristics = make(c::kHeuristics);
  heuristics.set_one(c::kHeuristicGraph, graph);
  heuristics.set_int(c::kHeuristicModeOf, c::kHeuristicMode, rules);
  heuristics.close();
  std::vector<std::unique_ptr<Descriptor>> found;
  std::vector<c::Descriptor> handles;
  for (int64_t i = 0; i < kMostEngines; ++i) {
    found.push_back(std::make_unique<Descriptor>(*context_, c::kConfiguration));
    handles.push_back(found.back()->get());
  }
  const int64_t count =
      heuristics.get(c::kHeuristicResults, c::kDescriptorType, kMostEngines, handles.data());
  for (int64_t i = 0; i < std::clamp<int64_t>(count, 0, kMostEngines); ++i) {
    std::unique_ptr<Descriptor>& configuration = found[static_cast<size_t>(i)];
    if (succeeds([&] { return make_plan(&configuration); })) return true;
  }
  return false;
}

bool GraphPlan::make_plan(std::unique_ptr<Descriptor>* configuration) {
  if (is_passed_over(**configuration)) return false;
  auto plan = std::make_unique<Descriptor>(*context_, c::kPlan);
  plan->set_handle(c::kPlanHandle, context_->handle());
  plan->set_one(c::kPlanConfiguration, **configuration);
  plan->close();
  int64_t bytes = 0;
  plan->get(c::kPlanWorkspace, c::kInt64, 1, &bytes);
  if (bytes < 0 || static_cast<uint64_t>(bytes) > kMostPlanWorkspace) return false;
  made_.push_back(std::move(*configuration));
  plan_ = std::move(plan);
  workspace_ = static_cast<uint64_t>(bytes);
  return true;
}

// What the library proposes it may yet refuse, or fail at (code that it compiles then, for
// instance): what it proposes next may do, or else ours. A loss of the device that nobody has
// noticed yet ends the run where ours is started.
bool GraphPlan::succeeds(const std::function<bool()>& attempt) {
  try {
    return attempt();
  } catch (const Error& e) {
    if (!context_->device().usable()) throw;
    if (e.status() == Status::kExhausted) without_memory_ = std::current_exception();
    return false;
  }
}

bool GraphPlan::is_passed_over(const Descriptor& configuration) const {
  Descriptor engine(*context_, c::kEngine);
  c::Descriptor handle = engine.get();
  configuration.get(c::kConfigurationEngine, c::kDescriptorType, 1, &handle);
  std::array<int, c::kNoteCount> notes{};
  const int64_t count = engine.get(c::kEngineNotes, c::kNumericalNote, c::kNoteCount, notes.data());
  const auto given =
      std::span(notes).first(static_cast<size_t>(std::clamp<int64_t>(count, 0, c::kNoteCount)));
  return std::ranges::any_of(
      given, [&](int note) { return std::ranges::find(passed_over_, note) != passed_over_.end(); });
}

}  // namespace nimble::rt::cudnn
