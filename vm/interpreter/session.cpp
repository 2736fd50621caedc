#include "vm/interpreter/session.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

// More threads than this are a mistake, not a machine.
constexpr int32_t kMaxThreads = 1024;
// An output that fills less than half of its storage, and leaves more than this unused, is copied
// out: keeping it must not keep the whole arena of a run.
constexpr uint64_t kMayWaste = 64 << 10;

int32_t checked_threads(const SessionOptions& options) {
  if (options.threads == 0) return ThreadPool::default_threads();
  if (options.threads < 0 || options.threads > kMaxThreads)
    throw Error(Status::kInvalidArgument, "session options",
                fmt::format("{} threads", options.threads),
                fmt::format("give 1 to {}, or 0 for all that may be used", kMaxThreads));
  return options.threads;
}

Limits limits_of(const SessionOptions& options) {
  Limits limits;
  limits.fuel = options.fuel;
  if (options.depth != 0) limits.depth = options.depth;
  return limits;
}

}  // namespace

OutputTensor& OutputTensor::operator=(OutputTensor&& other) noexcept {
  if (this == &other) return *this;
  release();
  destination = other.destination;
  capacity = other.capacity;
  dtype = other.dtype;
  rank = other.rank;
  extents = other.extents;
  strides = other.strides;
  data = std::exchange(other.data, nullptr);
  hold_ = std::exchange(other.hold_, nullptr);
  value = std::move(other.value);
  return *this;
}

void OutputTensor::release() {
  if (hold_) BlockHold::release(hold_);
  hold_ = nullptr;
  data = nullptr;
  value = {};
}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options)
    : model_(std::move(model)),
      storage_(std::make_shared<StoragePool>(device(0), options.memory_limit, !model_->trusted())),
      pool_(ThreadPool::shared(checked_threads(options), options.pin)),
      threads_(std::min(checked_threads(options), pool_->max_threads())),
      heap_(storage_),
      machine_(std::make_unique<Machine>(*model_, heap_, *pool_, threads_, limits_of(options))),
      profile_(options.profile || options.trace != 0) {
  seen_.set_trace(options.trace);
  profiler_.set_trace(options.trace);
  for (const exec::EntryPoint& entry : model_->executable().entries)
    plans_.emplace_back(model_->executable(), entry, model_->place());
  if (options.record_shapes) shapes_.emplace(plans_.size());
}

Session::~Session() {
  machine_.reset();
  for (EntryPlan& plan : plans_) plan.drop_kept(heap_);
}

size_t Session::find_entry(std::string_view name) const {
  for (size_t i = 0; i < plans_.size(); ++i)
    if (plans_[i].entry().name == name) return i;
  std::vector<std::string> names;
  for (const EntryPlan& plan : plans_) names.push_back(plan.entry().name);
  throw Error(Status::kNotFound, model_->place(), fmt::format("it has no entry point {}", name),
              fmt::format("it has {}", fmt::join(names, ", ")));
}

Session::Lock::Lock(Session& session, Purpose purpose) : session_(&session) {
  RunControl& control = session.control_;
  {
    std::lock_guard guard(session.lock_);
    if (purpose == Purpose::kRun ? control.begin() : control.go_on()) {
      session.profiling_ = session.profile_;
      session.profiling_epoch_ = session.profile_epoch_;
      return;
    }
  }
  const std::string& place = session.model_->place();
  if (control.state() == RunControl::State::kSuspended)
    throw Error(Status::kInvalidArgument, place, "the session has a suspended run",
                "resume or abandon it first, or make a session for the other run");
  if (purpose == Purpose::kResume && control.state() == RunControl::State::kIdle)
    throw Error(Status::kInvalidArgument, place, "the session has no suspended run",
                "start one first");
  throw Error(Status::kInvalidArgument, place, "the session is running already, on another thread",
              "make a session per thread");
}

bool Session::Lock::release() noexcept {
  if (!session_) return true;
  Session& s = *std::exchange(session_, nullptr);
  const bool paused = s.machine_->active();
  if (!paused) {
    s.machine_->end_run();
    s.heap_.for_each_pool([](StoragePool& pool) { pool.end_run(); });
  }
  std::lock_guard guard(s.lock_);
  if (s.profiling_) {
    if (s.profiling_epoch_ == s.profile_epoch_) s.profiler_.absorb(s.seen_);
    s.seen_.clear();
  }
  if (std::exchange(s.trim_wanted_, false)) s.trim_now();
  if (paused)
    s.control_.pause();
  else
    s.control_.end();
  return !s.closed_;
}

void Session::run(const Lock& lock, size_t entry, std::span<const InputTensor> inputs,
                  std::span<OutputTensor> outputs) {
  for (OutputTensor& o : outputs) o.release();
  if (entry < plans_.size()) check_outputs(entry, outputs.size());
  start(lock, entry, inputs);
  while (!resume(lock, 0, outputs)) control_.stay();
}

void Session::check_outputs(size_t entry, size_t outputs) const {
  const exec::EntryPoint& signature = plans_[entry].entry();
  if (outputs > signature.outputs.size())
    throw Error(Status::kInvalidArgument, model_->place(),
                fmt::format("{} gives {} outputs, not {}", signature.name, signature.outputs.size(),
                            outputs),
                "look at its signature with `nimble inspect --signature`");
}

void Session::start(const Lock&, size_t entry, std::span<const InputTensor> inputs) {
  if (entry >= plans_.size())
    throw Error(Status::kNotFound, model_->place(), "it has no entry point",
                "compile the model again");
  EntryPlan& plan = plans_[entry];
  const exec::EntryPoint& signature = plan.entry();
  if (inputs.size() != signature.inputs.size())
    throw Error(Status::kInvalidArgument, model_->place(),
                fmt::format("{} takes {} inputs, not {}", signature.name, signature.inputs.size(),
                            inputs.size()),
                "look at its signature with `nimble inspect --signature`");
  const int64_t start = profiling_ ? Profiler::now() : 0;
  WorkMeter meter = machine_->meter(control_, /*next_run=*/true);
  const uint64_t steps = meter.steps;
  plan.bind(inputs, heap_, &meter, &arguments_);
  entry_ = entry;
  if (shapes_) {
    const std::lock_guard guard(lock_);
    shapes_->add(entry, plan.extents());
  }
  machine_->start(signature.function, arguments_, steps - meter.steps);
  if (profiling_) seen_.add_time(Profiler::now() - start, false);
}

bool Session::resume(const Lock&, uint64_t instructions, std::span<OutputTensor> outputs) {
  for (OutputTensor& o : outputs) o.release();
  check_outputs(entry_, outputs.size());
  Profiler* profiler = profiling_ ? &seen_ : nullptr;
  const int64_t start = profiler ? Profiler::now() : 0;
  const std::optional<Value> result = machine_->resume(instructions, control_, profiler);
  if (result) take_outputs(*result, outputs);
  if (profiler) profiler->add_time(Profiler::now() - start, result.has_value());
  return result.has_value();
}

void Session::abandon() noexcept {
  std::lock_guard guard(lock_);
  if (!control_.go_on()) return;
  machine_->abandon();
  machine_->end_run();
  heap_.for_each_pool([](StoragePool& pool) { pool.end_run(); });
  control_.end();
}

Session::Progress Session::progress() const {
  std::lock_guard guard(lock_);
  Progress progress{control_.state(), 0, std::nullopt};
  if (progress.state != RunControl::State::kIdle) progress.run = control_.number();
  if (progress.state == RunControl::State::kSuspended) progress.position = machine_->position();
  return progress;
}

bool Session::close() noexcept {
  std::lock_guard guard(lock_);
  if (control_.state() != RunControl::State::kRunning) return true;
  closed_ = true;
  control_.cancel();
  return false;
}

void Session::take_outputs(const Value& result, std::span<OutputTensor> outputs) {
  struct Drop {
    Heap& heap;
    const Value& value;
    ~Drop() { heap.release(value); }
  } drop{heap_, result};
  const exec::EntryPoint& signature = plans_[entry_].entry();
  const bool tuple = signature.outputs.size() > 1;
  try {
    if (tuple && (!result.is(ObjectKind::kAdt) ||
                  static_cast<Cell*>(result.object)->count != signature.outputs.size()))
      throw Error(Status::kFatal, model_->place(),
                  fmt::format("{} returned no tuple of {} values", signature.name,
                              signature.outputs.size()),
                  "compile the model again");
    for (size_t i = 0; i < outputs.size(); ++i)
      take_output(tuple ? static_cast<Cell*>(result.object)->values()[i] : result,
                  signature.outputs[i], &outputs[i]);
  } catch (...) {
    for (OutputTensor& o : outputs) o.release();
    throw;
  }
}

void Session::take_output(const Value& value, const exec::Port& port, OutputTensor* output) {
  auto fail = [&](Status status, const std::string& problem, const std::string& remedy) {
    throw Error(status, fmt::format("{}: output {}", model_->place(), port.name), problem, remedy);
  };
  if (port.type >= 0) {
    if (output->destination)
      fail(Status::kInvalidArgument, "it is a value of a data type, which no buffer holds",
           "give no buffer");
    WorkMeter meter = machine_->meter(control_, /*next_run=*/false);
    const std::string place = fmt::format("{}: output {}", model_->place(), port.name);
    try {
      output->value =
          from_heap(value, model_->executable(), static_cast<uint32_t>(port.type), &meter, place);
    } catch (const Error& e) {
      throw Error(e.status(), place, e.problem(), e.remedy());
    }
    return;
  }
  struct Held {
    Heap& heap;
    Value value;
    ~Held() { heap.release(value); }
  } made{heap_, Value()};
  const Value* shown = &value;
  if (value.is_scalar()) {
    // Scalars have no memory of their own; a user sees them as tensors without dims.
    if (!is_int(port.dtype) && port.dtype != DType::kBool)
      fail(Status::kFatal, "the program returned a scalar", "compile the model again");
    Storage* storage = heap_.new_storage(sizeof(int64_t));
    const Held memory{heap_, Value::of(storage)};
    std::memcpy(storage->data, &value.scalar, sizeof(int64_t));  // little-endian: truncates
    made.value = Value::of(heap_.new_tensor(storage, 0, port.dtype, {}));
    shown = &made.value;
  } else if (!value.is(ObjectKind::kTensor)) {
    fail(Status::kUnsupported, "it is not a tensor", "return tensors from entry points");
  }

  const Tensor& t = *static_cast<const Tensor*>(shown->object);
  if (t.dtype != port.dtype || t.rank != port.dims.size())
    fail(Status::kFatal,
         fmt::format("the program returned {} with {} dims, not {} with {}", name_of(t.dtype),
                     t.rank, name_of(port.dtype), port.dims.size()),
         "compile the model again");
  const uint8_t* data = t.data();
  if (!data) fail(Status::kFatal, "it lies in a storage that was freed", "compile the model again");
  if (t.storage->device != kCpuDevice && device_checks())
    fail(Status::kFatal,
         fmt::format("it lies on device {} ({}), not on device 0 (cpu)", t.storage->device,
                     device_name(t.storage->device)),
         "report it: the program lacks a copy between devices");
  const uint64_t bytes = t.bytes();
  output->dtype = t.dtype;
  output->rank = t.rank;
  output->extents = t.extents;
  output->strides = t.strides;
  if (output->destination) {
    if (output->capacity < bytes)
      fail(Status::kInvalidArgument,
           fmt::format("it takes {} bytes, the buffer given has {}", bytes, output->capacity),
           "give a larger buffer, or none");
    if (bytes > 0) std::memcpy(output->destination, data, bytes);
    output->data = output->destination;
    return;
  }
  Storage* storage = t.storage;
  const bool mine = storage->origin == Storage::Origin::kPool && storage->device == kCpuDevice;
  if (mine && storage->bytes <= 2 * bytes + kMayWaste) {
    output->hold_ = heap_.hold(storage);
    output->data = t.data();
    return;
  }
  Storage* copy = heap_.new_storage(bytes);
  const Held memory{heap_, Value::of(copy)};
  if (bytes > 0) std::memcpy(copy->data, data, bytes);
  output->hold_ = heap_.hold(copy);
  output->data = copy->data;
}

uint64_t Session::live_objects() const {
  uint64_t live = heap_.live();
  for (const EntryPlan& plan : plans_) live -= plan.idle_objects();
  return live;
}

void Session::trim() noexcept {
  std::lock_guard guard(lock_);
  if (control_.state() == RunControl::State::kRunning)
    trim_wanted_ = true;
  else
    trim_now();
}

void Session::trim_now() noexcept {
  machine_->trim();
  heap_.for_each_pool([](StoragePool& pool) { pool.trim(); });
}

void Session::set_profiling(bool on) noexcept {
  std::lock_guard guard(lock_);
  profile_ = on;
  if (!on) return;
  profiler_.clear();
  ++profile_epoch_;
}

std::string Session::shapes_json() const {
  const std::lock_guard guard(lock_);
  return shapes_ ? shapes_->json(plans_) : ShapeCounts(plans_.size()).json(plans_);
}

Profiler Session::profiler() const {
  std::lock_guard guard(lock_);
  return profiler_;
}

}  // namespace nimble::rt
