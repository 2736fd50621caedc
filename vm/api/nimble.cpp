// The C interface over nimble::rt: translates structs, turns exceptions into status codes. What
// loads and describes models stands in nimble_model.cpp.
#include "vm/api/nimble.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "vm/api/handles.h"
#include "vm/base/error.h"
#include "vm/interpreter/session.h"

using namespace nimble;
using namespace nimble::capi;

// The numbers of the two sides are the same by contract.
static_assert(NIMBLE_INTERNAL == static_cast<int>(Status::kInternal));
static_assert(NIMBLE_RUN_SUSPENDED == static_cast<int>(rt::RunControl::State::kSuspended));
static_assert(NIMBLE_F64 == static_cast<int>(DType::kF64));

struct nimble_session {
  std::unique_ptr<rt::Session> session;
  std::vector<size_t> ports;  // of the caller's inputs
  std::vector<rt::InputTensor> inputs;
  std::vector<rt::OutputTensor> outputs;
};

struct nimble_call {
  nimble_session* session = nullptr;
  size_t entry = 0;
  std::vector<size_t> ports;  // of the caller's inputs
  std::vector<rt::InputTensor> inputs;
  std::vector<rt::OutputTensor> outputs;
};

namespace {

thread_local std::string last_error;
// Instead of it where there is no memory for it.
thread_local const char* last_error_text = "";
}  // namespace

namespace nimble::capi {

nimble_status record(Status status, const char* text) {
  try {
    last_error = text;
    // One line, whatever a model's texts contain.
    for (char& c : last_error)
      if (c == '\n' || c == '\r') c = ' ';
    last_error_text = last_error.c_str();
  } catch (...) {
    last_error_text = "a call failed and there is no memory for the message";
  }
  return static_cast<nimble_status>(status);
}

}  // namespace nimble::capi

namespace {

// The answer to the calling thread's last query of a profile.
thread_local std::string profile_text;
// The same of shapes.
thread_local std::string shapes_text;

// What an output handed to the user holds on to: memory, shape and strides.
void release_output(nimble_tensor* tensor) {
  delete static_cast<rt::OutputTensor*>(tensor->owner);
}

// `place()` names it in messages: text that a call without a fault does not make.
template <typename Place>
rt::InputTensor input_of(const nimble_tensor& t, Place place) {
  if (t.rank < 0 || (t.rank > 0 && !t.shape))
    invalid(place(), "it has no shape", "set shape and rank");
  if (t.dtype < 0 || t.dtype >= kDTypeCount)
    invalid(place(), fmt::format("dtype {} does not exist", t.dtype), "use a NIMBLE_* dtype");
  if (t.device != 0) invalid(place(), fmt::format("it is on device {}", t.device), "copy it to 0");
  rt::InputTensor in;
  in.given = true;
  in.dtype = static_cast<DType>(t.dtype);
  in.shape = {t.shape, static_cast<size_t>(t.rank)};
  if (t.strides) in.strides = {t.strides, static_cast<size_t>(t.rank)};
  in.data = t.data ? static_cast<const char*>(t.data) + t.byte_offset : nullptr;
  return in;
}

// Which of the entry's inputs the caller's are, in his order.
void bind_names(const rt::EntryPlan& plan, const std::string& place, const char* const* names,
                size_t count, const char* function, std::vector<size_t>* indices) {
  const auto& ports = plan.entry().inputs;
  indices->clear();
  std::vector<bool> given(ports.size());
  for (size_t i = 0; i < count; ++i) {
    size_t index = i;
    if (names) {
      require(names[i] != nullptr, function, "an input's name is NULL");
      index = plan.find_input(names[i], i);
    } else if (i >= ports.size()) {
      invalid(place,
              fmt::format("{} inputs given, {} takes {}", count, plan.entry().name, ports.size()),
              "give fewer");
    }
    if (given[index])
      invalid(place + ": input " + ports[index].name, "it is given twice", "give it once");
    given[index] = true;
    indices->push_back(index);
  }
}

// Sets handle->inputs in the entry's order; `get(i, place)` gives the caller's input i.
template <typename Get>
void collect_inputs(nimble_session* handle, size_t entry, const char* const* names, size_t count,
                    const char* function, Get get) {
  const rt::EntryPlan& plan = handle->session->plan(entry);
  const std::string& place = handle->session->model().place();
  const auto& ports = plan.entry().inputs;
  bind_names(plan, place, names, count, function, &handle->ports);
  handle->inputs.assign(ports.size(), {});
  for (size_t i = 0; i < count; ++i) {
    const size_t index = handle->ports[i];
    handle->inputs[index] = get(i, [&] { return place + ": input " + ports[index].name; });
  }
}

size_t find_entry(const rt::Session& session, const char* name) {
  if (name) return session.find_entry(name);
  if (session.model().executable().entries.empty())
    throw Error(Status::kNotFound, session.model().place(), "it has no entry points",
                "compile the model again");
  return 0;
}

// All elements of an array are as large as its first.
template <typename T>
void check_elements(T* array, size_t count, const char* function) {
  for (size_t i = 0; i < count; ++i) {
    check_size(element(array, i), function);
    require(element(array, i)->struct_size == array->struct_size, function,
            "the elements of an array have different struct_size");
  }
}

// Whoever frees a session that was destroyed while a call ran it: the call, when all else is done.
class Held {
 public:
  using Purpose = rt::Session::Lock::Purpose;
  explicit Held(nimble_session* handle, Purpose purpose = Purpose::kRun)
      : handle_(handle), lock(*handle->session, purpose) {}
  ~Held() {
    handle_->outputs.clear();  // of a call that failed: nothing may be kept of it
    if (!lock.release()) delete handle_;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  nimble_session* handle_;

 public:
  rt::Session::Lock lock;
};

// The outputs of one call. What a caller will own is made before the run, so that nothing can fail
// after it.
class Outputs {
 public:
  // Who keeps shape and strides of an output that lies in the caller's buffer: the output itself,
  // or `ours`, until the next run.
  enum class Keep : uint8_t { kNothing, kDescriptions };

  // As many as `ours` has.
  Outputs(std::vector<rt::OutputTensor>* ours, Keep keep, nimble_tensor* theirs,
          const char* function)
      : ours_(*ours), theirs_(theirs) {
    require(theirs || ours_.empty(), function, "outputs is NULL");
    check_elements(theirs, ours_.size(), function);
    // Less would leave no place for `owner` and `release`. The size of the first version, which
    // stays, however nimble_tensor grows.
    constexpr uint64_t kLeast = offsetof(nimble_tensor, release) + sizeof(nimble_tensor::release);
    static_assert(kLeast == 80);
    require(ours_.empty() || theirs->struct_size >= kLeast, function,
            "an output's struct_size is too small");
    for (size_t i = 0; i < ours_.size(); ++i) {
      const nimble_tensor given =
          upgraded(element(theirs, i), nimble_tensor NIMBLE_TENSOR_INIT, function);
      ours_[i] = {};
      if (!given.data || keep == Keep::kNothing) {
        owners_.resize(ours_.size());
        owners_[i] = std::make_unique<rt::OutputTensor>();
      }
      if (!given.data) continue;
      ours_[i].destination = static_cast<char*>(given.data) + given.byte_offset;
      ours_[i].capacity = given.capacity;
    }
  }

  std::span<rt::OutputTensor> span() { return ours_; }

  void give() noexcept {
    for (size_t i = 0; i < ours_.size(); ++i) {
      rt::OutputTensor* owner = i < owners_.size() ? owners_[i].release() : nullptr;
      if (owner) *owner = std::move(ours_[i]);
      rt::OutputTensor& o = owner ? *owner : ours_[i];
      nimble_tensor t = NIMBLE_TENSOR_INIT;
      if (o.destination) {  // the caller's buffer stays as the caller described it
        const nimble_tensor* given = element(theirs_, i);
        t.data = given->data;
        t.byte_offset = given->byte_offset;
        t.capacity = given->capacity;
      } else {
        t.data = o.data;
        t.capacity = 0;
      }
      t.shape = o.extents.data();
      t.strides = o.strides.data();
      t.rank = o.rank;
      t.dtype = static_cast<nimble_dtype>(o.dtype);
      t.owner = owner;
      t.release = owner ? &release_output : nullptr;
      hand_back(t, element(theirs_, i));
    }
  }

 private:
  std::vector<rt::OutputTensor>& ours_;
  nimble_tensor* theirs_;
  std::vector<std::unique_ptr<rt::OutputTensor>> owners_;
};

const rt::HostValue& value_of(const nimble_value* value, const char* function) {
  require(value != nullptr, function, "a value is NULL");
  return *reinterpret_cast<const rt::HostValue*>(value);
}

// Hands a reference over to the caller.
nimble_value* handle_of(rt::HostValueRef value) {
  return reinterpret_cast<nimble_value*>(const_cast<rt::HostValue*>(value.release()));
}

rt::HostValueRef share(const rt::HostValue& value) {
  value.retain();
  return rt::HostValueRef(&value);
}

// A value as an input: tensors take the usual way, with names of extents and all.
rt::InputTensor input_of(const rt::HostValue& value) {
  rt::InputTensor in;
  in.given = true;
  if (value.is_tensor()) {
    in.dtype = value.dtype();
    in.shape = value.shape();
    in.data = value.bytes();
  } else {
    in.value = &value;
  }
  return in;
}

// Tensors by name or in order, as the inputs of an entry point.
void collect_tensors(nimble_session* session, size_t entry, const char* const* names,
                     const nimble_tensor* inputs, size_t count, const char* function) {
  check_elements(inputs, count, function);
  collect_inputs(session, entry, names, count, function, [&](size_t i, const auto& place) {
    return input_of(upgraded(element(inputs, i), nimble_tensor NIMBLE_TENSOR_INIT, function),
                    place);
  });
}

// Tensors cannot hold what is of a data type.
void require_tensors(const rt::Session& s, size_t entry, size_t outputs) {
  const std::vector<exec::Port>& ports = s.plan(entry).entry().outputs;
  for (size_t i = 0; i < std::min(outputs, ports.size()); ++i)
    if (ports[i].type >= 0)
      throw Error(Status::kUnsupported, s.model().place() + ": output " + ports[i].name,
                  "it is a value of a data type", "run the model with nimble_session_run_values");
}

const char* profile_of(const nimble_session* session,
                       std::string (rt::Profiler::*text)(const exec::Executable&) const) {
  if (!session) return "";
  const rt::Session& s = *session->session;
  const nimble_status status =
      guarded([&] { profile_text = (s.profiler().*text)(s.model().executable()); });
  return status == NIMBLE_OK ? profile_text.c_str() : "";
}

}  // namespace

extern "C" {

uint32_t nimble_api_version(void) {
  return NIMBLE_API_VERSION;
}
const char* nimble_version(void) {
  return NIMBLE_VERSION;
}

const char* nimble_status_name(nimble_status status) {
  if (status == NIMBLE_SUSPENDED) return "suspended";
  if (status < 0 || status > NIMBLE_INTERNAL) return "unknown status";
  return name_of(static_cast<Status>(status)).data();
}

const char* nimble_last_error(void) {
  return last_error_text;
}

const char* nimble_dtype_name(nimble_dtype dtype) {
  if (dtype < 0 || dtype >= kDTypeCount) return nullptr;
  return name_of(static_cast<DType>(dtype)).data();
}
size_t nimble_dtype_size(nimble_dtype dtype) {
  return dtype < 0 || dtype >= kDTypeCount ? 0 : size_of(static_cast<DType>(dtype));
}

void nimble_tensor_release(nimble_tensor* tensor) {
  if (!tensor) return;
  if (tensor->release) tensor->release(tensor);
  tensor->release = nullptr;
  tensor->owner = nullptr;
  tensor->data = nullptr;
  tensor->shape = nullptr;
  tensor->strides = nullptr;
}

nimble_status nimble_session_create(nimble_model* model, const nimble_session_options* options,
                                    nimble_session** session) {
  return guarded([&] {
    require(model && session, "nimble_session_create", "model or session is NULL");
    *session = nullptr;
    const auto o = upgraded(options, nimble_session_options NIMBLE_SESSION_OPTIONS_INIT,
                            "nimble_session_create");
    auto handle = std::make_unique<nimble_session>();
    handle->session = std::make_unique<rt::Session>(
        model->model, rt::SessionOptions{o.threads, o.pin != 0, o.memory_limit, o.fuel, o.depth,
                                         o.profile != 0, o.record_shapes != 0, o.trace});
    *session = handle.release();
  });
}

void nimble_session_destroy(nimble_session* session) {
  if (session && session->session->close()) delete session;
}

nimble_status nimble_session_run(nimble_session* session, const char* entry,
                                 const char* const* input_names, const nimble_tensor* inputs,
                                 size_t input_count, nimble_tensor* outputs, size_t output_count) {
  return guarded([&] {
    require(session != nullptr, "nimble_session_run", "session is NULL");
    require(inputs || input_count == 0, "nimble_session_run", "inputs is NULL");
    rt::Session& s = *session->session;
    const Held held(session);
    const size_t index = find_entry(s, entry);
    require_tensors(s, index, output_count);
    collect_tensors(session, index, input_names, inputs, input_count, "nimble_session_run");
    session->outputs.resize(output_count);
    Outputs results(&session->outputs, Outputs::Keep::kNothing, outputs, "nimble_session_run");
    s.run(held.lock, index, session->inputs, results.span());
    results.give();
  });
}

nimble_status nimble_call_prepare(nimble_session* session, const char* entry,
                                  const char* const* input_names, size_t input_count,
                                  size_t output_count, nimble_call** call) {
  constexpr const char* kHere = "nimble_call_prepare";
  return guarded([&] {
    require(session && call, kHere, "session or call is NULL");
    *call = nullptr;
    const rt::Session& s = *session->session;
    auto made = std::make_unique<nimble_call>();
    made->session = session;
    made->entry = find_entry(s, entry);
    require_tensors(s, made->entry, output_count);
    const rt::EntryPlan& plan = s.plan(made->entry);
    bind_names(plan, s.model().place(), input_names, input_count, kHere, &made->ports);
    s.check_outputs(made->entry, output_count);
    made->inputs.resize(plan.entry().inputs.size());
    made->outputs.resize(output_count);
    *call = made.release();
  });
}

nimble_status nimble_call_run(nimble_call* call, const nimble_tensor* inputs,
                              nimble_tensor* outputs) {
  constexpr const char* kHere = "nimble_call_run";
  return guarded([&] {
    require(call != nullptr, kHere, "call is NULL");
    require(inputs || call->ports.empty(), kHere, "inputs is NULL");
    rt::Session& s = *call->session->session;
    const Held held(call->session);
    check_elements(inputs, call->ports.size(), kHere);
    for (size_t i = 0; i < call->ports.size(); ++i) {
      const auto here = [&] {
        return s.model().place() + ": input " +
               s.plan(call->entry).entry().inputs[call->ports[i]].name;
      };
      call->inputs[call->ports[i]] =
          input_of(upgraded(element(inputs, i), nimble_tensor NIMBLE_TENSOR_INIT, kHere), here);
    }
    Outputs results(&call->outputs, Outputs::Keep::kDescriptions, outputs, kHere);
    s.run(held.lock, call->entry, call->inputs, results.span());
    results.give();
  });
}

void nimble_call_destroy(nimble_call* call) {
  delete call;
}

nimble_status nimble_session_start(nimble_session* session, const char* entry,
                                   const char* const* input_names, const nimble_tensor* inputs,
                                   size_t input_count) {
  return guarded([&] {
    require(session != nullptr, "nimble_session_start", "session is NULL");
    require(inputs || input_count == 0, "nimble_session_start", "inputs is NULL");
    rt::Session& s = *session->session;
    const Held held(session);
    const size_t index = find_entry(s, entry);
    require_tensors(s, index, SIZE_MAX);
    collect_tensors(session, index, input_names, inputs, input_count, "nimble_session_start");
    s.start(held.lock, index, session->inputs);
  });
}

nimble_status nimble_session_resume(nimble_session* session, uint64_t instructions,
                                    nimble_tensor* outputs, size_t output_count) {
  return guarded([&]() -> nimble_status {
    require(session != nullptr, "nimble_session_resume", "session is NULL");
    rt::Session& s = *session->session;
    const Held held(session, Held::Purpose::kResume);
    session->outputs.resize(output_count);
    Outputs results(&session->outputs, Outputs::Keep::kNothing, outputs, "nimble_session_resume");
    if (!s.resume(held.lock, instructions, results.span())) return NIMBLE_SUSPENDED;
    results.give();
    return NIMBLE_OK;
  });
}

void nimble_session_suspend(nimble_session* session) {
  if (session) session->session->suspend();
}

void nimble_session_abandon(nimble_session* session) {
  if (session) session->session->abandon();
}

nimble_status nimble_session_position(const nimble_session* session,
                                      nimble_run_position* position) {
  return guarded([&] {
    require(session && position, "nimble_session_position", "session or position is NULL");
    check_size(position, "nimble_session_position");
    const rt::Session& s = *session->session;
    const rt::Session::Progress progress = s.progress();
    nimble_run_position ours = NIMBLE_RUN_POSITION_INIT;
    ours.state = static_cast<nimble_run_state>(progress.state);
    ours.run = progress.run;
    if (const std::optional<rt::Position>& at = progress.position) {
      const rt::DecodedFunction& function = s.model().functions()[at->function];
      ours.function = function.source->name.c_str();
      ours.instruction = at->instruction;
      ours.source = function.note_of(at->instruction).data();
      ours.instructions = at->instructions;
      ours.depth = at->depth - 1;
    }
    hand_back(ours, position);
  });
}

nimble_status nimble_session_run_values(nimble_session* session, const char* entry,
                                        const char* const* input_names,
                                        const nimble_value* const* inputs, size_t input_count,
                                        nimble_value** outputs, size_t output_count) {
  constexpr const char* kHere = "nimble_session_run_values";
  return guarded([&] {
    require(session != nullptr, kHere, "session is NULL");
    require((inputs || input_count == 0) && (outputs || output_count == 0), kHere,
            "inputs or outputs is NULL");
    rt::Session& s = *session->session;
    const Held held(session);
    const size_t index = find_entry(s, entry);
    collect_inputs(session, index, input_names, input_count, kHere,
                   [&](size_t i, const auto&) { return input_of(value_of(inputs[i], kHere)); });
    session->outputs.clear();
    session->outputs.resize(output_count);
    s.run(held.lock, index, session->inputs, session->outputs);
    std::vector<rt::HostValueRef> values;
    for (rt::OutputTensor& o : session->outputs)
      values.push_back(o.value ? o.value : rt::HostValue::tensor(o.dtype, o.shape(), o.data));
    for (size_t i = 0; i < output_count; ++i) outputs[i] = handle_of(std::move(values[i]));
  });
}

nimble_status nimble_value_from_tensor(const nimble_tensor* tensor, nimble_value** value) {
  constexpr const char* kHere = "nimble_value_from_tensor";
  return guarded([&] {
    require(tensor && value, kHere, "tensor or value is NULL");
    *value = nullptr;
    const rt::InputTensor in = input_of(upgraded(tensor, nimble_tensor NIMBLE_TENSOR_INIT, kHere),
                                        [] { return std::string("value"); });
    int64_t expected = 1;
    for (size_t i = in.strides.size(); i-- > 0; expected *= in.shape[i])
      if (in.shape[i] > 1 && in.strides[i] != expected)
        invalid("value", "its tensor is not dense", "copy it row by row first");
    *value = handle_of(rt::HostValue::tensor(in.dtype, in.shape, in.data));
  });
}

nimble_status nimble_value_from_fields(int64_t tag, const nimble_value* const* fields, size_t count,
                                       nimble_value** value) {
  constexpr const char* kHere = "nimble_value_from_fields";
  return guarded([&] {
    require((fields || count == 0) && value, kHere, "fields or value is NULL");
    *value = nullptr;
    std::vector<rt::HostValueRef> parts;
    for (size_t i = 0; i < count; ++i) parts.push_back(share(value_of(fields[i], kHere)));
    *value = handle_of(rt::HostValue::data(tag, std::move(parts)));
  });
}

void nimble_value_retain(const nimble_value* value) {
  if (value) reinterpret_cast<const rt::HostValue*>(value)->retain();
}
void nimble_value_release(const nimble_value* value) {
  if (value) reinterpret_cast<const rt::HostValue*>(value)->release();
}
int64_t nimble_value_tag(const nimble_value* value) {
  return value ? reinterpret_cast<const rt::HostValue*>(value)->tag() : -1;
}
size_t nimble_value_field_count(const nimble_value* value) {
  return value ? reinterpret_cast<const rt::HostValue*>(value)->fields().size() : 0;
}
const nimble_value* nimble_value_field(const nimble_value* value, size_t index) {
  if (index >= nimble_value_field_count(value)) return nullptr;
  const rt::HostValue& v = *reinterpret_cast<const rt::HostValue*>(value);
  return reinterpret_cast<const nimble_value*>(v.fields()[index].get());
}

nimble_status nimble_value_tensor(const nimble_value* value, nimble_tensor* tensor) {
  constexpr const char* kHere = "nimble_value_tensor";
  return guarded([&] {
    require(tensor != nullptr, kHere, "tensor is NULL");
    check_size(tensor, kHere);
    const rt::HostValue& v = value_of(value, kHere);
    require(v.is_tensor(), kHere, "the value is not a tensor");
    nimble_tensor t = NIMBLE_TENSOR_INIT;
    t.data = const_cast<uint8_t*>(v.bytes());
    t.shape = v.shape().data();
    t.rank = static_cast<int32_t>(v.shape().size());
    t.dtype = static_cast<nimble_dtype>(v.dtype());
    hand_back(t, tensor);
  });
}

void nimble_cancel(nimble_session* session) {
  if (session) session->session->cancel();
}

uint64_t nimble_session_next_run(const nimble_session* session) {
  return session ? session->session->next_run() : 0;
}

void nimble_cancel_run(nimble_session* session, uint64_t run) {
  if (session) session->session->cancel(run);
}

nimble_status nimble_session_memory(const nimble_session* session, nimble_memory_stats* stats) {
  return guarded([&] {
    require(session && stats, "nimble_session_memory", "session or stats is NULL");
    check_size(stats, "nimble_session_memory");
    const rt::MemoryStats m = session->session->memory();
    hand_back(nimble_memory_stats{sizeof(nimble_memory_stats), m.in_use, m.reserved, m.peak,
                                  m.allocations, m.reuses},
              stats);
  });
}

void nimble_session_trim(nimble_session* session) {
  if (session) session->session->trim();
}

int32_t nimble_session_threads(const nimble_session* session) {
  return session ? session->session->threads() : 0;
}

void nimble_session_set_profiling(nimble_session* session, int32_t on) {
  if (session) session->session->set_profiling(on != 0);
}

const char* nimble_session_profile_json(nimble_session* session) {
  return profile_of(session, &rt::Profiler::json);
}

const char* nimble_session_trace_json(nimble_session* session) {
  return profile_of(session, &rt::Profiler::trace_json);
}

const char* nimble_session_shapes_json(nimble_session* session) {
  if (!session) return "";
  const nimble_status status = guarded([&] { shapes_text = session->session->shapes_json(); });
  return status == NIMBLE_OK ? shapes_text.c_str() : "";
}

const char* nimble_session_profile_table(nimble_session* session) {
  return profile_of(session, &rt::Profiler::table);
}

}  // extern "C"
