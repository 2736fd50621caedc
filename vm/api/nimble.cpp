// The C interface over nimble::rt: translates structs, turns exceptions into status codes.
#include "vm/api/nimble.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "vm/base/error.h"
#include "vm/executable/reader.h"
#include "vm/interpreter/session.h"

using namespace nimble;

// The numbers of the two sides are the same by contract.
static_assert(NIMBLE_INTERNAL == static_cast<int>(Status::kInternal));
static_assert(NIMBLE_F64 == static_cast<int>(DType::kF64));

struct nimble_model {
  struct Port {
    std::vector<const char*> dims;
  };
  std::shared_ptr<const rt::Model> model;
  std::vector<std::vector<Port>> inputs, outputs;  // by entry
};

struct nimble_session {
  std::unique_ptr<rt::Session> session;
  std::vector<rt::InputTensor> inputs;
  std::vector<rt::OutputTensor> outputs;
  std::string text;
};

namespace {

thread_local std::string last_error;

nimble_status record(Status status, std::string_view text) {
  try {
    last_error = text;
    // One line, whatever a model's texts contain.
    for (char& c : last_error)
      if (c == '\n' || c == '\r') c = ' ';
  } catch (...) {
    last_error.clear();
  }
  return static_cast<nimble_status>(status);
}

// Runs `body`, which throws on failure.
template <typename Body>
nimble_status guarded(Body body) {
  try {
    body();
    return NIMBLE_OK;
  } catch (const Error& e) {
    return record(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return record(Status::kExhausted, "the system has no more memory");
  } catch (const std::exception& e) {
    return record(Status::kInternal, e.what());
  } catch (...) {
    return record(Status::kInternal, "an unknown failure");
  }
}

[[noreturn]] void invalid(const std::string& place, const std::string& problem,
                          const std::string& remedy) {
  throw Error(Status::kInvalidArgument, place, problem, remedy);
}

void require(bool condition, const char* function, const char* problem) {
  if (!condition) invalid(function, problem, "see vm/api/nimble.h");
}

// A struct of the caller's, of an older or newer version than ours, as one of ours: what the
// caller does not have keeps our default.
template <typename T>
T upgraded(const T* given, T defaults, const char* function) {
  if (!given) return defaults;
  require(given->struct_size >= sizeof(given->struct_size), function, "struct_size is not set");
  std::memcpy(static_cast<void*>(&defaults), given,
              std::min<uint64_t>(given->struct_size, sizeof(T)));
  defaults.struct_size = sizeof(T);
  return defaults;
}

// Writes the part of `ours` that the caller's struct has room for.
template <typename T>
void hand_back(const T& ours, T* theirs) {
  const uint64_t size = theirs->struct_size;
  std::memcpy(static_cast<void*>(theirs), &ours, std::min<uint64_t>(size, sizeof(T)));
  theirs->struct_size = size;
}

template <typename T>
T* element(T* array, size_t index) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(array) + index * array->struct_size);
}

nimble_model* wrap(std::shared_ptr<const rt::Model> model) {
  auto handle = std::make_unique<nimble_model>();
  auto list = [](const std::vector<exec::Port>& ports) {
    std::vector<nimble_model::Port> out;
    for (const exec::Port& p : ports) {
      auto& dims = out.emplace_back().dims;
      for (const std::string& d : p.dims) dims.push_back(d.c_str());
    }
    return out;
  };
  for (const exec::EntryPoint& e : model->executable().entries) {
    handle->inputs.push_back(list(e.inputs));
    handle->outputs.push_back(list(e.outputs));
  }
  handle->model = std::move(model);
  return handle.release();
}

rt::LoadOptions load_options(const nimble_load_options* options) {
  const auto o = upgraded(options, nimble_load_options NIMBLE_LOAD_OPTIONS_INIT, "nimble_load");
  return {o.trust != 0, o.perf_map != 0};
}

const exec::EntryPoint* entry_of(const nimble_model* model, int32_t entry) {
  if (!model || entry < 0) return nullptr;
  const auto& entries = model->model->executable().entries;
  return static_cast<size_t>(entry) < entries.size() ? &entries[entry] : nullptr;
}

void describe_port(const std::vector<exec::Port>& ports,
                   const std::vector<nimble_model::Port>& texts, int32_t index, nimble_port* out) {
  require(out != nullptr && out->struct_size >= sizeof(out->struct_size), "nimble_port",
          "struct_size is not set");
  if (index < 0 || static_cast<size_t>(index) >= ports.size())
    throw Error(Status::kNotFound, "nimble_port", fmt::format("there is no port {}", index),
                fmt::format("there are {}", ports.size()));
  const exec::Port& p = ports[index];
  nimble_port ours = NIMBLE_PORT_INIT;
  ours.name = p.name.c_str();
  ours.dtype = static_cast<nimble_dtype>(p.dtype);
  ours.rank = static_cast<int32_t>(p.dims.size());
  ours.dims = texts[index].dims.data();
  ours.extents = p.extents.data();
  ours.default_fill = p.default_fill.c_str();
  hand_back(ours, out);
}

// What an output handed to the user holds on to: memory, shape and strides.
void release_output(nimble_tensor* tensor) {
  delete static_cast<rt::OutputTensor*>(tensor->owner);
}

rt::InputTensor input_of(const nimble_tensor& t, const std::string& place) {
  if (t.rank < 0 || (t.rank > 0 && !t.shape))
    invalid(place, "it has no shape", "set shape and rank");
  if (t.dtype < 0 || t.dtype >= kDTypeCount)
    invalid(place, fmt::format("dtype {} does not exist", t.dtype), "use a NIMBLE_* dtype");
  if (t.device != 0) invalid(place, fmt::format("it is on device {}", t.device), "copy it to 0");
  rt::InputTensor in;
  in.given = true;
  in.dtype = static_cast<DType>(t.dtype);
  in.shape = {t.shape, static_cast<size_t>(t.rank)};
  if (t.strides) in.strides = {t.strides, static_cast<size_t>(t.rank)};
  in.data = t.data ? static_cast<const char*>(t.data) + t.byte_offset : nullptr;
  return in;
}

// Sets handle->inputs in the entry's order.
void collect_inputs(nimble_session* handle, size_t entry, const char* const* names,
                    const nimble_tensor* inputs, size_t count) {
  const rt::EntryPlan& plan = handle->session->plan(entry);
  const std::string& place = handle->session->model().place();
  const auto& ports = plan.entry().inputs;
  handle->inputs.assign(ports.size(), {});
  for (size_t i = 0; i < count; ++i) {
    size_t index = i;
    if (names) {
      require(names[i] != nullptr, "nimble_session_run", "an input's name is NULL");
      index = plan.find_input(names[i]);
    } else if (i >= ports.size()) {
      invalid(place,
              fmt::format("{} inputs given, {} takes {}", count, plan.entry().name, ports.size()),
              "give fewer");
    }
    const std::string here = place + ": input " + ports[index].name;
    if (handle->inputs[index].given) invalid(here, "it is given twice", "give it once");
    const nimble_tensor* t = element(inputs, i);
    handle->inputs[index] =
        input_of(upgraded(t, nimble_tensor NIMBLE_TENSOR_INIT, "nimble_session_run"), here);
  }
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
  if (status < 0 || status > NIMBLE_INTERNAL) return "unknown status";
  return name_of(static_cast<Status>(status)).data();
}

const char* nimble_last_error(void) {
  return last_error.c_str();
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

nimble_status nimble_load(const char* path, const nimble_load_options* options,
                          nimble_model** model) {
  return guarded([&] {
    require(path && model, "nimble_load", "path or model is NULL");
    *model = nullptr;
    *model = wrap(rt::Model::load(path, load_options(options)));
  });
}

nimble_status nimble_load_memory(const void* bytes, size_t size, const nimble_load_options* options,
                                 nimble_model** model) {
  return guarded([&] {
    require(bytes && model, "nimble_load_memory", "bytes or model is NULL");
    *model = nullptr;
    const std::string place = "model in memory";
    exec::Executable e = exec::deserialize({static_cast<const uint8_t*>(bytes), size}, {}, place);
    *model = wrap(rt::Model::load(std::move(e), load_options(options), place));
  });
}

void nimble_model_destroy(nimble_model* model) {
  delete model;
}

int32_t nimble_model_entry_count(const nimble_model* model) {
  return model ? static_cast<int32_t>(model->model->executable().entries.size()) : 0;
}
const char* nimble_model_entry_name(const nimble_model* model, int32_t entry) {
  const exec::EntryPoint* e = entry_of(model, entry);
  return e ? e->name.c_str() : nullptr;
}
int32_t nimble_model_find_entry(const nimble_model* model, const char* name) {
  for (int32_t i = 0; entry_of(model, i); ++i)
    if (!name || entry_of(model, i)->name == name) return i;
  return -1;
}
int32_t nimble_model_input_count(const nimble_model* model, int32_t entry) {
  const exec::EntryPoint* e = entry_of(model, entry);
  return e ? static_cast<int32_t>(e->inputs.size()) : 0;
}
int32_t nimble_model_output_count(const nimble_model* model, int32_t entry) {
  const exec::EntryPoint* e = entry_of(model, entry);
  return e ? static_cast<int32_t>(e->outputs.size()) : 0;
}

nimble_status nimble_model_input(const nimble_model* model, int32_t entry, int32_t index,
                                 nimble_port* port) {
  return guarded([&] {
    const exec::EntryPoint* e = entry_of(model, entry);
    require(e != nullptr, "nimble_model_input", "there is no such entry point");
    describe_port(e->inputs, model->inputs[entry], index, port);
  });
}
nimble_status nimble_model_output(const nimble_model* model, int32_t entry, int32_t index,
                                  nimble_port* port) {
  return guarded([&] {
    const exec::EntryPoint* e = entry_of(model, entry);
    require(e != nullptr, "nimble_model_output", "there is no such entry point");
    describe_port(e->outputs, model->outputs[entry], index, port);
  });
}

const char* nimble_model_info(const nimble_model* model) {
  return model ? model->model->info().c_str() : "";
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
        model->model,
        rt::SessionOptions{o.threads, o.pin != 0, o.memory_limit, o.fuel, o.depth, o.profile != 0});
    *session = handle.release();
  });
}

void nimble_session_destroy(nimble_session* session) {
  delete session;
}

nimble_status nimble_session_run(nimble_session* session, const char* entry,
                                 const char* const* input_names, const nimble_tensor* inputs,
                                 size_t input_count, nimble_tensor* outputs, size_t output_count) {
  return guarded([&] {
    require(session != nullptr, "nimble_session_run", "session is NULL");
    require((inputs || input_count == 0) && (outputs || output_count == 0), "nimble_session_run",
            "inputs or outputs is NULL");
    rt::Session& s = *session->session;
    const rt::Session::Lock lock(s);
    const size_t index = entry ? s.find_entry(entry) : 0;
    if (index >= s.model().executable().entries.size())
      throw Error(Status::kNotFound, s.model().place(), "it has no entry points",
                  "compile the model again");
    collect_inputs(session, index, input_names, inputs, input_count);
    session->outputs.clear();
    session->outputs.resize(output_count);
    for (size_t i = 0; i < output_count; ++i) {
      // Less would leave no place for `owner` and `release`.
      require(element(outputs, i)->struct_size >= sizeof(nimble_tensor), "nimble_session_run",
              "an output's struct_size is too small");
      const nimble_tensor& given = *element(outputs, i);
      if (!given.data) continue;
      session->outputs[i].destination = static_cast<char*>(given.data) + given.byte_offset;
      session->outputs[i].capacity = given.capacity;
    }
    s.run(lock, index, session->inputs, session->outputs);
    std::vector<std::unique_ptr<rt::OutputTensor>> owners;
    for (rt::OutputTensor& o : session->outputs)
      owners.push_back(std::make_unique<rt::OutputTensor>(std::move(o)));
    for (size_t i = 0; i < output_count; ++i) {
      rt::OutputTensor& o = *owners[i];
      nimble_tensor t = NIMBLE_TENSOR_INIT;
      if (o.destination) {  // the caller's buffer stays as the caller described it
        const nimble_tensor* given = element(outputs, i);
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
      t.owner = owners[i].release();
      t.release = &release_output;
      hand_back(t, element(outputs, i));
    }
  });
}

void nimble_cancel(nimble_session* session) {
  if (session) session->session->cancel();
}

nimble_status nimble_session_memory(const nimble_session* session, nimble_memory_stats* stats) {
  return guarded([&] {
    require(session && stats && stats->struct_size >= sizeof(stats->struct_size),
            "nimble_session_memory", "session or stats is NULL, or struct_size is not set");
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
  if (!session) return "";
  const rt::Session& s = *session->session;
  guarded([&] { session->text = s.profiler().json(s.model().executable()); });
  return session->text.c_str();
}

const char* nimble_session_profile_table(nimble_session* session) {
  if (!session) return "";
  const rt::Session& s = *session->session;
  guarded([&] { session->text = s.profiler().table(s.model().executable()); });
  return session->text.c_str();
}

}  // extern "C"
