// The part of the C interface that loads models and describes their entries and types.
#include "vm/api/handles.h"
#include "vm/executable/reader.h"

using namespace nimble;
using namespace nimble::capi;

namespace {

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
  for (const exec::ValueType& t : model->executable().types)
    for (auto& dims = handle->types.emplace_back().dims; const std::string& d : t.dims)
      dims.push_back(d.c_str());
  handle->model = std::move(model);
  return handle.release();
}

rt::LoadOptions load_options(const nimble_load_options* options) {
  const auto o = upgraded(options, nimble_load_options NIMBLE_LOAD_OPTIONS_INIT, "nimble_load");
  return {o.trust != 0, o.perf_map != 0, {o.memory_limit, o.constants_limit, o.verification_limit}};
}

const exec::EntryPoint* entry_of(const nimble_model* model, int32_t entry) {
  if (!model || entry < 0) return nullptr;
  const auto& entries = model->model->executable().entries;
  return static_cast<size_t>(entry) < entries.size() ? &entries[entry] : nullptr;
}

void describe_port(const std::vector<exec::Port>& ports, const std::vector<exec::ValueType>& types,
                   const std::vector<nimble_model::Port>& texts, int32_t index, nimble_port* out) {
  require(out != nullptr, "nimble_port", "port is NULL");
  check_size(out, "nimble_port");
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
  ours.type = p.type < 0 ? "" : types[static_cast<size_t>(p.type)].name.c_str();
  ours.type_index = static_cast<int32_t>(p.type);
  hand_back(ours, out);
}

const exec::ValueType& type_of(const nimble_model* model, int32_t index, const char* function) {
  require(model != nullptr, function, "model is NULL");
  const auto& types = model->model->executable().types;
  if (index < 0 || static_cast<size_t>(index) >= types.size())
    throw Error(Status::kNotFound, function, fmt::format("there is no type {}", index),
                fmt::format("there are {}", types.size()));
  return types[static_cast<size_t>(index)];
}

}  // namespace

extern "C" {

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
    const rt::LoadOptions load = load_options(options);
    exec::Executable e = exec::deserialize({static_cast<const uint8_t*>(bytes), size},
                                           {load.trust, load.limits}, place);
    *model = wrap(rt::Model::load(std::move(e), load, place));
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
    describe_port(e->inputs, model->model->executable().types, model->inputs[entry], index, port);
  });
}
nimble_status nimble_model_output(const nimble_model* model, int32_t entry, int32_t index,
                                  nimble_port* port) {
  return guarded([&] {
    const exec::EntryPoint* e = entry_of(model, entry);
    require(e != nullptr, "nimble_model_output", "there is no such entry point");
    describe_port(e->outputs, model->model->executable().types, model->outputs[entry], index, port);
  });
}

const char* nimble_model_info(const nimble_model* model) {
  return model ? model->model->info().c_str() : "";
}

int32_t nimble_model_type_count(const nimble_model* model) {
  return model ? static_cast<int32_t>(model->types.size()) : 0;
}

nimble_status nimble_model_type(const nimble_model* model, int32_t index, nimble_type* type) {
  constexpr const char* kHere = "nimble_model_type";
  return guarded([&] {
    const exec::ValueType& t = type_of(model, index, kHere);
    require(type != nullptr, kHere, "type is NULL");
    check_size(type, kHere);
    using Kind = exec::ValueType::Kind;
    nimble_type ours = NIMBLE_TYPE_INIT;
    ours.name = t.name.c_str();
    ours.kind = t.kind == Kind::kData    ? NIMBLE_TYPE_DATA
                : t.kind == Kind::kTuple ? NIMBLE_TYPE_TUPLE
                                         : NIMBLE_TYPE_TENSOR;
    ours.dtype = static_cast<nimble_dtype>(t.dtype);
    ours.rank = static_cast<int32_t>(t.dims.size());
    ours.constructor_count = static_cast<int32_t>(t.constructors.size());
    ours.dims = model->types[static_cast<size_t>(index)].dims.data();
    ours.extents = t.extents.data();
    hand_back(ours, type);
  });
}

nimble_status nimble_model_constructor(const nimble_model* model, int32_t type, int64_t tag,
                                       nimble_constructor* constructor) {
  constexpr const char* kHere = "nimble_model_constructor";
  return guarded([&] {
    const exec::ValueType& t = type_of(model, type, kHere);
    require(constructor != nullptr, kHere, "constructor is NULL");
    check_size(constructor, kHere);
    if (tag < 0 || static_cast<uint64_t>(tag) >= t.constructors.size())
      throw Error(Status::kNotFound, kHere, fmt::format("{} has no tag {}", t.name, tag),
                  fmt::format("it has {} constructors", t.constructors.size()));
    const exec::ValueType::Constructor& c = t.constructors[static_cast<size_t>(tag)];
    hand_back(nimble_constructor{sizeof(nimble_constructor), c.name.c_str(), c.fields.data(),
                                 c.fields.size()},
              constructor);
  });
}

int64_t nimble_model_find_tag(const nimble_model* model, const char* constructor) {
  if (!model || !constructor) return -1;
  for (const exec::ValueType& t : model->model->executable().types)
    for (size_t i = 0; i < t.constructors.size(); ++i)
      if (t.kind == exec::ValueType::Kind::kData && t.constructors[i].name == constructor)
        return static_cast<int64_t>(i);
  return -1;
}

}  // extern "C"
