#include "vm/interpreter/machine.h"

#include <algorithm>
#include <new>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

std::string problem_of(const Error& e) {
  return e.place().empty() ? e.problem() : fmt::format("{}: {}", e.place(), e.problem());
}

}  // namespace

Machine::Machine(const Model& model, Heap& heap, ThreadPool& pool, int32_t threads, Limits limits)
    : model_(model),
      heap_(heap),
      pool_(pool),
      threads_(threads),
      limits_(limits),
      launches_(model.kernels()),
      frames_(heap, limits.depth) {
  size_t most_results = 0, most_arguments = 0, most_parameters = 0;
  for (const exec::ScalarFunction& f : model.executable().scalar_functions)
    most_results = std::max<size_t>(most_results, f.program.results);
  for (const DecodedFunction& f : model.functions()) {
    most_parameters = std::max<size_t>(most_parameters, f.source->parameters);
    most_arguments = std::max<size_t>(most_arguments, f.longest_list);
  }
  const size_t most_values = std::max(most_arguments, most_parameters);
  charged_.at_least(heap.pool().get(), KernelFrame::memory(model.kernels()) +
                                           most_values * sizeof(Value) +
                                           (most_results + most_arguments) * sizeof(int64_t) +
                                           model.executable().constants.size() * sizeof(Tensor*));
  kernel_frame_.reserve(model.kernels());
  results_.resize(most_results);
  scalars_.resize(most_arguments);
  call_.resize(most_values);
  constants_.reserve(model.executable().constants.size());
  try {
    for (size_t i = 0; i < model.executable().constants.size(); ++i) {
      const exec::Constant& c = model.executable().constants[i];
      Storage* s = heap_.new_view(Storage::Origin::kConstant, model.constant_data(i),
                                  c.bytes.size(), c.device);
      Tensor* t = nullptr;
      try {
        t = heap_.new_tensor(s, 0, c.dtype, c.shape);
      } catch (...) {
        heap_.release(s);
        throw;
      }
      heap_.release(s);
      constants_.push_back(t);
    }
  } catch (...) {
    for (Tensor* t : constants_) heap_.release(t);
    throw;
  }
}

Machine::~Machine() {
  frames_.unwind();
  for (Tensor* t : constants_) heap_.release(t);
}

void Machine::trim() {
  for (const auto& s : scratch_)
    if (s) s->drop();
  launches_.trim();
  kernel_frame_.portable = {};
  if (!active()) frames_.trim();
}

WorkMeter Machine::meter(const RunControl& control, bool next_run) const {
  if (limits_.fuel == 0) return {UINT64_MAX, &control, heap_.pool().get()};
  return {limits_.fuel - (next_run ? 0 : executed_), &control, heap_.pool().get()};
}

void Machine::start(uint32_t function, std::span<const Value> arguments, uint64_t steps) {
  executed_ = steps;
  launches_.forget();
  try {
    frames_.push(model_.functions()[function], arguments, 0);
  } catch (const Error& e) {
    throw Error(e.status(), model_.place(), problem_of(e), e.remedy());
  }
}

void Machine::finish(const Value& result, Profiler* profiler) {
  try {
    launches_.wait(profiler);
  } catch (...) {
    heap_.release(result);
    throw;
  }
}

Position Machine::position() const {
  const Frame& frame = frames_.top();
  const auto function = frame.function - model_.functions().data();
  return {static_cast<uint32_t>(function), frame.pc, static_cast<uint32_t>(frames_.depth()),
          executed_};
}

std::optional<Value> Machine::resume(uint64_t slice, const RunControl& control,
                                     Profiler* profiler) {
  // Unwinds last of all, however the run fails: messages need the frames, and making them may
  // fail as well.
  struct Unwind {
    FrameStack* frames;
    GpuLaunches* launches;
    ~Unwind() {
      if (!frames) return;
      launches->drop_slice();
      frames->unwind();
    }
  } on_failure{&frames_, &launches_};
  pc_ = frames_.top().pc;
  auto place = [&] {
    if (frames_.empty()) return model_.place();  // at its end
    return fmt::format("{}: {}", model_.place(), frames_.top().function->place_of(pc_));
  };
  try {
    model_.check_gpu();
    launches_.begin_slice();
    const bool counted = limits_.fuel != 0 || slice != 0 || profiler;
    std::optional<Value> result =
        counted ? loop<true>(slice, control, profiler) : loop<false>(0, control, nullptr);
    if (!result) launches_.end_slice();
    on_failure.frames = nullptr;
    if (result && launches_.pending()) finish(*result, profiler);
    return result;
  } catch (const Error& e) {
    throw Error(e.status(), place(), problem_of(e) + launches_.suspects(), e.remedy());
  } catch (const std::bad_alloc&) {
    throw Error(Status::kExhausted, place(), "the system has no more memory",
                "use smaller inputs or set a memory limit");
  }
}

}  // namespace nimble::rt
