// nimble's runtime for C++: the C interface of nimble.h with ownership and exceptions. Header
// only; needs C++17 and links libnimble.
//
//   nimble::api::Model model("m.nimble", {.trust = true});
//   nimble::api::Session session(model);
//   float x[6] = {…};
//   auto outputs = session.run({{"x", nimble::api::view(x, {2, 3})}});
//   const float* y = outputs[0].data<float>();
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "nimble.h"

namespace nimble::api {

// A failure: the one-line text of nimble_last_error and its status.
class Error : public std::runtime_error {
 public:
  explicit Error(nimble_status status) : std::runtime_error(nimble_last_error()), status_(status) {}
  nimble_status status() const { return status_; }

 private:
  nimble_status status_;
};

inline void check(nimble_status status) {
  if (status != NIMBLE_OK) throw Error(status);
}

template <typename T>
struct dtype_of;
template <>
struct dtype_of<bool> {
  static constexpr nimble_dtype value = NIMBLE_BOOL;
};
template <>
struct dtype_of<int8_t> {
  static constexpr nimble_dtype value = NIMBLE_I8;
};
template <>
struct dtype_of<int16_t> {
  static constexpr nimble_dtype value = NIMBLE_I16;
};
template <>
struct dtype_of<int32_t> {
  static constexpr nimble_dtype value = NIMBLE_I32;
};
template <>
struct dtype_of<int64_t> {
  static constexpr nimble_dtype value = NIMBLE_I64;
};
template <>
struct dtype_of<uint8_t> {
  static constexpr nimble_dtype value = NIMBLE_U8;
};
template <>
struct dtype_of<uint16_t> {
  static constexpr nimble_dtype value = NIMBLE_U16;
};
template <>
struct dtype_of<uint32_t> {
  static constexpr nimble_dtype value = NIMBLE_U32;
};
template <>
struct dtype_of<uint64_t> {
  static constexpr nimble_dtype value = NIMBLE_U64;
};
template <>
struct dtype_of<float> {
  static constexpr nimble_dtype value = NIMBLE_F32;
};
template <>
struct dtype_of<double> {
  static constexpr nimble_dtype value = NIMBLE_F64;
};

// Memory of the caller's with a shape: an input, or a place for an output. Dense row-major.
class View {
 public:
  View(void* data, nimble_dtype dtype, std::vector<int64_t> shape)
      : data_(data), dtype_(dtype), shape_(std::move(shape)) {}
  // Valid as long as the view.
  nimble_tensor tensor() const {
    nimble_tensor t = NIMBLE_TENSOR_INIT;
    t.data = data_;
    t.dtype = dtype_;
    t.shape = shape_.data();
    t.rank = static_cast<int32_t>(shape_.size());
    return t;
  }

 private:
  void* data_;
  nimble_dtype dtype_;
  std::vector<int64_t> shape_;
};

// An input is never written, so const data may be given.
template <typename T>
View view(const T* data, std::vector<int64_t> shape) {
  return View(const_cast<T*>(data), dtype_of<T>::value, std::move(shape));
}

// A result; its memory lives as long as it.
class Tensor {
 public:
  Tensor() : tensor_ NIMBLE_TENSOR_INIT {}
  explicit Tensor(nimble_tensor tensor) : tensor_(tensor) {}
  Tensor(Tensor&& other) noexcept : tensor_(other.tensor_) {
    other.tensor_ = nimble_tensor NIMBLE_TENSOR_INIT;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~Tensor() { nimble_tensor_release(&tensor_); }

  nimble_dtype dtype() const { return tensor_.dtype; }
  std::vector<int64_t> shape() const { return {tensor_.shape, tensor_.shape + tensor_.rank}; }
  int64_t elements() const {
    int64_t n = 1;
    for (int32_t i = 0; i < tensor_.rank; ++i) n *= tensor_.shape[i];
    return n;
  }
  size_t bytes() const { return static_cast<size_t>(elements()) * nimble_dtype_size(dtype()); }
  const void* raw() const { return static_cast<const char*>(tensor_.data) + tensor_.byte_offset; }
  template <typename T>
  const T* data() const {
    if (dtype_of<T>::value != dtype())
      throw std::invalid_argument(std::string("the tensor is ") + nimble_dtype_name(dtype()));
    return static_cast<const T*>(raw());
  }

 private:
  nimble_tensor tensor_;
};

// A tensor, or a constructor's number with fields; 0 and the fields for a tuple. Cheap to copy:
// parts are shared.
//   Value list = Value::data(model.tag("Nil"));
//   list = Value::data(model.tag("Cons"), {Value::of(view(x, {2, 3})), list});
class Value {
 public:
  Value() = default;
  explicit Value(nimble_value* adopted) : value_(adopted) {}
  Value(const Value& other) : value_(other.value_) { nimble_value_retain(value_); }
  Value(Value&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Value& operator=(Value other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Value() { nimble_value_release(value_); }

  static Value of(const View& tensor) {
    nimble_value* made = nullptr;
    const nimble_tensor t = tensor.tensor();
    check(nimble_value_from_tensor(&t, &made));
    return Value(made);
  }
  static Value data(int64_t tag, const std::vector<Value>& fields = {}) {
    std::vector<const nimble_value*> handles;
    for (const Value& f : fields) handles.push_back(f.value_);
    nimble_value* made = nullptr;
    check(nimble_value_from_fields(tag, handles.data(), handles.size(), &made));
    return Value(made);
  }

  bool is_tensor() const { return tag() < 0; }
  int64_t tag() const { return nimble_value_tag(value_); }
  size_t size() const { return nimble_value_field_count(value_); }
  Value field(size_t index) const {
    const nimble_value* f = nimble_value_field(value_, index);
    if (!f) throw std::out_of_range("the value has no field " + std::to_string(index));
    nimble_value_retain(f);
    return Value(const_cast<nimble_value*>(f));
  }
  std::vector<int64_t> shape() const {
    const nimble_tensor t = tensor();
    return {t.shape, t.shape + t.rank};
  }
  nimble_dtype dtype() const { return tensor().dtype; }
  // Of a tensor; valid as long as the value.
  const void* raw() const { return tensor().data; }
  // Valid as long as the value.
  template <typename T>
  const T* elements() const {
    const nimble_tensor t = tensor();
    if (dtype_of<T>::value != t.dtype)
      throw std::invalid_argument(std::string("the tensor is ") + nimble_dtype_name(t.dtype));
    return static_cast<const T*>(t.data);
  }
  const nimble_value* handle() const { return value_; }

 private:
  nimble_tensor tensor() const {
    nimble_tensor t = NIMBLE_TENSOR_INIT;
    check(nimble_value_tensor(value_, &t));
    return t;
  }
  nimble_value* value_ = nullptr;
};

struct Port {
  std::string name;
  nimble_dtype dtype;
  std::vector<std::string> dims;
  std::vector<int64_t> extents;  // -1 where not constant
  std::string default_fill;      // "": required
  std::string type;              // "": a tensor; else a Value of this type
  int32_t type_index;            // its place in Model::types(); -1 of a tensor
};

// What a part of a Value must look like.
struct Type {
  struct Constructor {
    std::string name;  // "" of a tuple
    std::vector<uint32_t> fields;
  };
  std::string name;
  nimble_type_kind kind;
  nimble_dtype dtype;  // of a tensor, as the next two
  std::vector<std::string> dims;
  std::vector<int64_t> extents;           // -1 where not constant
  std::vector<Constructor> constructors;  // by tag; of a tuple: one
};

struct LoadOptions {
  bool trust = false;  // false: portable kernels run, not the file's native code
  bool perf_map = false;
  // Limits of loading, beyond which it throws an Error of NIMBLE_EXHAUSTED; 0 as in nimble.h.
  uint64_t memory_limit = 0;
  uint64_t constants_limit = 0;
  uint64_t verification_limit = 0;
};

class Model {
 public:
  explicit Model(const std::string& path, LoadOptions options = {}) {
    nimble_load_options o = NIMBLE_LOAD_OPTIONS_INIT;
    o.trust = options.trust;
    o.perf_map = options.perf_map;
    o.memory_limit = options.memory_limit;
    o.constants_limit = options.constants_limit;
    o.verification_limit = options.verification_limit;
    check(nimble_load(path.c_str(), &o, &model_));
  }
  Model(Model&& other) noexcept : model_(std::exchange(other.model_, nullptr)) {}
  Model& operator=(Model&& other) noexcept {
    std::swap(model_, other.model_);
    return *this;
  }
  ~Model() { nimble_model_destroy(model_); }

  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (int32_t i = 0; i < nimble_model_entry_count(model_); ++i)
      names.emplace_back(nimble_model_entry_name(model_, i));
    return names;
  }
  // Of an entry point; "" is the default one.
  std::vector<Port> inputs(const std::string& entry = "") const {
    return ports(entry, &nimble_model_input_count, &nimble_model_input);
  }
  std::vector<Port> outputs(const std::string& entry = "") const {
    return ports(entry, &nimble_model_output_count, &nimble_model_output);
  }
  // The types of values; ports and fields name them by index.
  std::vector<Type> types() const {
    std::vector<Type> all;
    for (int32_t i = 0; i < nimble_model_type_count(model_); ++i) {
      nimble_type t = NIMBLE_TYPE_INIT;
      check(nimble_model_type(model_, i, &t));
      Type& type = all.emplace_back();
      type.name = t.name;
      type.kind = t.kind;
      type.dtype = t.dtype;
      type.dims.assign(t.dims, t.dims + t.rank);
      type.extents.assign(t.extents, t.extents + t.rank);
      for (int64_t tag = 0; tag < t.constructor_count; ++tag) {
        nimble_constructor c = NIMBLE_CONSTRUCTOR_INIT;
        check(nimble_model_constructor(model_, i, tag, &c));
        type.constructors.push_back({c.name, {c.fields, c.fields + c.field_count}});
      }
    }
    return all;
  }
  // The number of a constructor of the data types that entry points take or return.
  int64_t tag(const std::string& constructor) const {
    const int64_t tag = nimble_model_find_tag(model_, constructor.c_str());
    if (tag < 0) throw std::invalid_argument("the model has no constructor " + constructor);
    return tag;
  }
  std::string info() const { return nimble_model_info(model_); }
  nimble_model* handle() const { return model_; }

 private:
  template <typename Count, typename Get>
  std::vector<Port> ports(const std::string& entry, Count count, Get get) const {
    const int32_t e = nimble_model_find_entry(model_, entry.empty() ? nullptr : entry.c_str());
    if (e < 0) throw std::invalid_argument("the model has no entry point " + entry);
    std::vector<Port> all;
    for (int32_t i = 0; i < count(model_, e); ++i) {
      nimble_port p = NIMBLE_PORT_INIT;
      check(get(model_, e, i, &p));
      all.push_back({p.name,
                     p.dtype,
                     {p.dims, p.dims + p.rank},
                     {p.extents, p.extents + p.rank},
                     p.default_fill,
                     p.type,
                     p.type_index});
    }
    return all;
  }
  nimble_model* model_ = nullptr;
};

struct SessionOptions {
  int32_t threads = 0;
  bool pin = false;
  // Limits of a run, beyond which it throws an Error of NIMBLE_EXHAUSTED; 0 as in nimble.h.
  uint64_t memory_limit = 0;
  uint64_t fuel = 0;
  uint32_t depth = 0;
  bool profile = false;
  bool record_shapes = false;
  uint32_t trace = 0;
};

using NamedView = std::pair<std::string, View>;
using NamedValue = std::pair<std::string, Value>;

class Session {
 public:
  explicit Session(const Model& model, SessionOptions options = {}) : model_(model.handle()) {
    nimble_session_options o = NIMBLE_SESSION_OPTIONS_INIT;
    o.threads = options.threads;
    o.pin = options.pin;
    o.memory_limit = options.memory_limit;
    o.fuel = options.fuel;
    o.depth = options.depth;
    o.profile = options.profile;
    o.record_shapes = options.record_shapes;
    o.trace = options.trace;
    check(nimble_session_create(model.handle(), &o, &session_));
    for (int32_t i = 0; i < nimble_model_entry_count(model_); ++i)
      outputs_.emplace_back(nimble_model_entry_name(model_, i),
                            nimble_model_output_count(model_, i));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { nimble_session_destroy(session_); }

  // All outputs of the entry point ("": the default one), in memory of the library's.
  std::vector<Tensor> run(const std::vector<NamedView>& inputs, const std::string& entry = "") {
    const Call call(inputs);
    std::vector<nimble_tensor> raw(output_count(entry), nimble_tensor NIMBLE_TENSOR_INIT);
    check(nimble_session_run(session_, entry.empty() ? nullptr : entry.c_str(), call.names.data(),
                             call.tensors.data(), call.tensors.size(), raw.data(), raw.size()));
    return owned(raw);
  }

  // Begins a run that can be suspended; the inputs' memory is borrowed until it has ended.
  void start(const std::vector<NamedView>& inputs, const std::string& entry = "") {
    const Call call(inputs);
    check(nimble_session_start(session_, entry.empty() ? nullptr : entry.c_str(), call.names.data(),
                               call.tensors.data(), call.tensors.size()));
    started_ = output_count(entry);
  }
  // Goes on with it, for `instructions` at most (0: no limit) or until suspend(): all outputs,
  // or nothing if it is not done.
  std::optional<std::vector<Tensor>> resume(uint64_t instructions = 0) {
    std::vector<nimble_tensor> raw(started_, nimble_tensor NIMBLE_TENSOR_INIT);
    const nimble_status status =
        nimble_session_resume(session_, instructions, raw.data(), raw.size());
    if (status == NIMBLE_SUSPENDED) return std::nullopt;
    check(status);
    return owned(raw);
  }
  // From any thread, or a signal handler.
  void suspend() noexcept { nimble_session_suspend(session_); }
  void abandon() noexcept { nimble_session_abandon(session_); }
  nimble_run_position position() const {
    nimble_run_position position = NIMBLE_RUN_POSITION_INIT;
    check(nimble_session_position(session_, &position));
    return position;
  }

  // The same for entry points that take or return data types.
  std::vector<Value> run_values(const std::vector<NamedValue>& inputs,
                                const std::string& entry = "") {
    std::vector<const char*> names;
    std::vector<const nimble_value*> handles;
    for (const NamedValue& in : inputs) {
      names.push_back(in.first.c_str());
      handles.push_back(in.second.handle());
    }
    std::vector<nimble_value*> raw(output_count(entry));
    check(nimble_session_run_values(session_, entry.empty() ? nullptr : entry.c_str(), names.data(),
                                    handles.data(), handles.size(), raw.data(), raw.size()));
    std::vector<Value> outputs;
    for (nimble_value* v : raw) outputs.emplace_back(v);
    return outputs;
  }
  // The run in progress, whichever it is. From any thread, or a signal handler, as the next.
  void cancel() noexcept { nimble_cancel(session_); }
  // The run of this number alone, over or not yet begun as it may be: next_run(), asked before it
  // began.
  void cancel(uint64_t run) noexcept { nimble_cancel_run(session_, run); }
  uint64_t next_run() const noexcept { return nimble_session_next_run(session_); }
  void set_profiling(bool on) { nimble_session_set_profiling(session_, on); }
  std::string profile_json() { return nimble_session_profile_json(session_); }
  std::string trace_json() { return nimble_session_trace_json(session_); }
  std::string shapes_json() { return nimble_session_shapes_json(session_); }
  std::string profile_table() { return nimble_session_profile_table(session_); }
  nimble_memory_stats memory() const {
    nimble_memory_stats stats = NIMBLE_MEMORY_STATS_INIT;
    check(nimble_session_memory(session_, &stats));
    return stats;
  }
  void trim() { nimble_session_trim(session_); }
  int32_t threads() const { return nimble_session_threads(session_); }
  nimble_session* handle() const { return session_; }

 private:
  struct Call {
    explicit Call(const std::vector<NamedView>& inputs) {
      for (const NamedView& in : inputs) {
        names.push_back(in.first.c_str());
        tensors.push_back(in.second.tensor());
      }
    }
    std::vector<const char*> names;
    std::vector<nimble_tensor> tensors;
  };
  size_t output_count(const std::string& entry) const {
    size_t count = outputs_.empty() ? 0 : static_cast<size_t>(outputs_[0].second);
    for (const auto& [name, n] : outputs_)
      if (name == entry) count = static_cast<size_t>(n);
    return count;
  }
  static std::vector<Tensor> owned(const std::vector<nimble_tensor>& raw) {
    std::vector<Tensor> outputs;
    outputs.reserve(raw.size());
    for (const nimble_tensor& t : raw) outputs.emplace_back(t);
    return outputs;
  }

  nimble_model* model_;
  nimble_session* session_ = nullptr;
  size_t started_ = 0;                                    // outputs of the run that was started
  std::vector<std::pair<std::string, int32_t>> outputs_;  // by entry
};

}  // namespace nimble::api
