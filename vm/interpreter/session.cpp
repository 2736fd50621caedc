#include "vm/interpreter/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "cancel() runs in signal handlers");

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
  return *this;
}

void OutputTensor::release() {
  if (hold_) BlockHold::release(hold_);
  hold_ = nullptr;
  data = nullptr;
}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options)
    : model_(std::move(model)),
      threads_(checked_threads(options)),
      storage_(std::make_shared<StoragePool>(device(0), options.memory_limit)),
      pool_(ThreadPool::shared(threads_, options.pin)),
      heap_(storage_),
      machine_(std::make_unique<Machine>(*model_, heap_, *pool_, threads_, limits_of(options))),
      profile_(options.profile) {
  for (const exec::EntryPoint& entry : model_->executable().entries)
    plans_.emplace_back(entry, model_->place());
}

Session::~Session() {
  machine_.reset();
}

size_t Session::find_entry(std::string_view name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].entry().name == name) return i;
    names.push_back(plans_[i].entry().name);
  }
  throw Error(Status::kNotFound, model_->place(), fmt::format("it has no entry point {}", name),
              fmt::format("it has {}", fmt::join(names, ", ")));
}

Session::Lock::Lock(Session& session) : session_(session) {
  if (session.running_.exchange(true, std::memory_order_acquire))
    throw Error(Status::kInvalidArgument, session.model_->place(),
                "the session is running already, on another thread", "make a session per thread");
  session.cancelled_.store(false, std::memory_order_relaxed);
}

Session::Lock::~Lock() {
  session_.storage_->end_run();
  session_.running_.store(false, std::memory_order_release);
}

void Session::run(const Lock&, size_t entry, std::span<const InputTensor> inputs,
                  std::span<OutputTensor> outputs) {
  for (OutputTensor& o : outputs) o.release();
  if (entry >= plans_.size())
    throw Error(Status::kNotFound, model_->place(), "it has no entry point",
                "compile the model again");
  EntryPlan& plan = plans_[entry];
  const exec::EntryPoint& signature = plan.entry();
  if (inputs.size() != signature.inputs.size() || outputs.size() > signature.outputs.size())
    throw Error(Status::kInvalidArgument, model_->place(),
                fmt::format("{} takes {} inputs and gives {} outputs, not {} and {}",
                            signature.name, signature.inputs.size(), signature.outputs.size(),
                            inputs.size(), outputs.size()),
                "look at its signature with `nimble inspect --signature`");
  Profiler* profiler = profile_ ? &profiler_ : nullptr;
  const int64_t start = profiler ? Profiler::now() : 0;
  plan.bind(inputs, heap_, &arguments_);
  Value result = machine_->execute(signature.function, arguments_, cancelled_, profiler);
  try {
    const bool tuple = signature.outputs.size() > 1;
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
    heap_.release(result);
    for (OutputTensor& o : outputs) o.release();
    throw;
  }
  heap_.release(result);
  if (profiler) profiler->add_run(Profiler::now() - start);
}

void Session::take_output(const Value& value, const exec::Port& port, OutputTensor* output) {
  auto fail = [&](Status status, const std::string& problem, const std::string& remedy) {
    throw Error(status, fmt::format("{}: output {}", model_->place(), port.name), problem, remedy);
  };
  Value held = value;
  if (value.is_scalar()) {
    // Scalars have no memory of their own; a user sees them as tensors without dims.
    if (!port.dims.empty() || !(is_int(port.dtype) || port.dtype == DType::kBool))
      fail(Status::kFatal, "the program returned a scalar", "compile the model again");
    Storage* storage = heap_.new_storage(sizeof(int64_t));
    std::memcpy(storage->data, &value.scalar, sizeof(int64_t));  // little-endian: truncates
    held = Value::of(heap_.new_tensor(storage, 0, port.dtype, {}));
    heap_.release(storage);
  } else if (value.is(ObjectKind::kTensor)) {
    Heap::retain(held);
  } else {
    fail(Status::kUnsupported, "it is no tensor", "return tensors from entry points");
  }
  struct Drop {
    Heap& heap;
    Value value;
    ~Drop() { heap.release(value); }
  } drop{heap_, held};

  const Tensor& t = *static_cast<const Tensor*>(held.object);
  if (t.dtype != port.dtype || t.rank != port.dims.size())
    fail(Status::kFatal,
         fmt::format("the program returned {} with {} dims, not {} with {}", name_of(t.dtype),
                     t.rank, name_of(port.dtype), port.dims.size()),
         "compile the model again");
  const uint8_t* data = t.data();
  if (!data) fail(Status::kFatal, "it lies in a storage that was freed", "compile the model again");
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
  const bool mine = storage->origin == Storage::Origin::kPool;
  if (mine && storage->bytes <= 2 * bytes + kMayWaste) {
    output->hold_ = heap_.hold(storage);
    output->data = t.data();
    return;
  }
  Storage* copy = heap_.new_storage(bytes);
  if (bytes > 0) std::memcpy(copy->data, data, bytes);
  output->data = copy->data;
  output->hold_ = heap_.hold(copy);
  heap_.release(copy);
}

void Session::cancel() noexcept {
  if (running_.load(std::memory_order_relaxed)) cancelled_.store(true, std::memory_order_relaxed);
}

void Session::trim() {
  machine_->trim();
  storage_->trim();
}

void Session::set_profiling(bool on) {
  profile_ = on;
  if (on) profiler_.clear();
}

}  // namespace nimble::rt
