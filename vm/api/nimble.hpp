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

struct Port {
  std::string name;
  nimble_dtype dtype;
  std::vector<std::string> dims;
  std::vector<int64_t> extents;  // -1 where not constant
  std::string default_fill;      // "": required
};

struct LoadOptions {
  bool trust = false;
  bool perf_map = false;
};

class Model {
 public:
  explicit Model(const std::string& path, LoadOptions options = {}) {
    nimble_load_options o = NIMBLE_LOAD_OPTIONS_INIT;
    o.trust = options.trust;
    o.perf_map = options.perf_map;
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
                     p.default_fill});
    }
    return all;
  }
  nimble_model* model_ = nullptr;
};

struct SessionOptions {
  int32_t threads = 0;
  bool pin = false;
  uint64_t memory_limit = 0;
  uint64_t fuel = 0;
  uint32_t depth = 0;
  bool profile = false;
};

using NamedView = std::pair<std::string, View>;

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
    size_t count = outputs_.empty() ? 0 : static_cast<size_t>(outputs_[0].second);
    for (const auto& [name, n] : outputs_)
      if (name == entry) count = static_cast<size_t>(n);
    std::vector<const char*> names;
    std::vector<nimble_tensor> tensors;
    for (const NamedView& in : inputs) {
      names.push_back(in.first.c_str());
      tensors.push_back(in.second.tensor());
    }
    std::vector<nimble_tensor> raw(count, nimble_tensor NIMBLE_TENSOR_INIT);
    check(nimble_session_run(session_, entry.empty() ? nullptr : entry.c_str(), names.data(),
                             tensors.data(), tensors.size(), raw.data(), raw.size()));
    std::vector<Tensor> outputs;
    outputs.reserve(count);
    for (const nimble_tensor& t : raw) outputs.emplace_back(t);
    return outputs;
  }
  // From any thread, or a signal handler.
  void cancel() noexcept { nimble_cancel(session_); }
  void set_profiling(bool on) { nimble_session_set_profiling(session_, on); }
  std::string profile_json() { return nimble_session_profile_json(session_); }
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
  nimble_model* model_;
  nimble_session* session_ = nullptr;
  std::vector<std::pair<std::string, int32_t>> outputs_;  // by entry
};

}  // namespace nimble::api
