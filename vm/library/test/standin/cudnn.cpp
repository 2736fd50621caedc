// A library that answers as cuDNN 9 does by its backend interface, on the memory and in the streams
// of the stand-in for NVIDIA's driver (vm/runtime/test/standin/cuda.cpp), for tests on machines
// that have no GPU.
//
// Descriptors are bags of attributes; what a graph means is worked out where it is executed, by
// plain loops, when the stream comes to it. Each call is checked as far as the rules say what is
// right: handles, types and counts of attributes, what may change when and must be there, tensors'
// ids, the workspace. What is not is noted (violations()) and refused. The environment's
// NIMBLE_STANDIN_CUDNN_VERSION is the version that it says it is of.
//
// Here are what tests ask and the library's functions; cudnn_rules.cpp and cudnn_execution.cpp have
// the rest.
#include "vm/library/test/standin/cudnn.h"

#include <algorithm>
#include <memory>

#include "vm/library/test/standin/cudnn_state.h"

namespace standin::cudnn {

State& state() {
  static State& s = *new State;
  return s;
}

int violate(const std::string& what, int status) {
  return state().calls.violate(what, status);
}

Descriptor* find(void* d, int kind) {
  if (!state().descriptors.contains(d)) return nullptr;
  auto* out = static_cast<Descriptor*>(d);
  return out->kind == kind && out->closed ? out : nullptr;
}

namespace {

// Bytes of an element of an attribute's type; 0 of what is unknown here.
size_t size_of_type(int type) {
  switch (type) {
    case 0:   // a handle
    case 3:   // int64
    case 6:   // a pointer
    case 15:  // a descriptor
      return 8;
    case 1:   // a data type
    case 4:   // float
    case 7:   // a convolution's mode
    case 8:   // rules
    case 10:  // whether NaN is kept
    case 11:  // a note
    case 14:  // a pointwise mode
      return 4;
    case 2:  // boolean
      return 1;
  }
  return 0;
}

// ---- what tests ask

void reset() {
  State& s = state();
  s.engines.clear();
  s.calls.reset();
  s.log.clear();
}
void add_engine(int rules, int note, size_t workspace, int refused) {
  state().engines.push_back({rules, note, workspace, refused != 0});
}
void fail(const char* function, int nth, int status) {
  state().calls.fail(function, nth, status);
}
int calls(const char* function) {
  return state().calls.count(function);
}
const char* violations() {
  return state().calls.violations();
}
size_t alive() {
  return state().handles.size() + state().descriptors.size();
}
const char* graphs() {
  return state().log.c_str();
}

}  // namespace

extern "C" {

const StandInCudnn* standin_cudnn_table() {
  static const StandInCudnn table = {{reset, fail, calls, violations, alive}, add_engine, graphs};
  return &table;
}

size_t cudnnGetVersion() {
  return standin::version_of("NIMBLE_STANDIN_CUDNN_VERSION", 91400);
}
const char* cudnnGetErrorString(int status) {
  static thread_local std::string text;
  return standin::text_of(status, &text);
}
int cudnnCreate(void** handle) {
  ENTER;
  state().handles.insert(*handle = new Handle);
  return kOk;
}
int cudnnDestroy(void* handle) {
  ENTER;
  if (state().handles.erase(handle) == 0) return violate("a handle that is none");
  delete static_cast<Handle*>(handle);
  return kOk;
}
int cudnnSetStream(void* handle, void* stream) {
  ENTER;
  if (!state().handles.contains(handle)) return violate("a handle that is none");
  static_cast<Handle*>(handle)->stream = stream;
  return kOk;
}
int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  ENTER;
  auto* made = new Descriptor;
  made->kind = kind;
  state().descriptors.insert(*descriptor = made);
  return kOk;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
  ENTER;
  if (state().descriptors.erase(descriptor) == 0) return violate("a descriptor that is none");
  delete static_cast<Descriptor*>(descriptor);
  return kOk;
}
int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count,
                             const void* values) {
  ENTER;
  if (!state().descriptors.contains(descriptor)) return violate("a descriptor that is none");
  auto& d = *static_cast<Descriptor*>(descriptor);
  const size_t size = size_of_type(type);
  if (d.closed || size == 0 || count < 1) return violate("an attribute that cannot be set so");
  Attribute& a = d.attributes[attribute];
  a.type = type;
  a.count = count;
  a.bytes.resize(static_cast<size_t>(count) * size);
  std::memcpy(a.bytes.data(), values, a.bytes.size());
  return kOk;
}
int cudnnBackendFinalize(void* descriptor) {
  ENTER;
  if (!state().descriptors.contains(descriptor)) return violate("a descriptor that is none");
  auto& d = *static_cast<Descriptor*>(descriptor);
  if (d.closed) return violate("a descriptor is closed twice");
  const int status = close(d);
  d.closed = status == kOk;
  return status;
}
int cudnnBackendGetAttribute(void* descriptor, int attribute, int type, int64_t most,
                             int64_t* count, void* values) {
  ENTER;
  State& s = state();
  if (!s.descriptors.contains(descriptor)) return violate("a descriptor that is none");
  auto& d = *static_cast<Descriptor*>(descriptor);
  if (d.kind == kHeuristics && attribute == 202 && type == 15 && d.closed) {
    std::vector<EngineOf> engines;
    for (const EngineOf& e : s.engines)
      if (e.rules == d.one<int>(200)) engines.push_back(e);
    if (s.engines.empty() && d.one<int>(200) == 3) engines.push_back({});
    *count = static_cast<int64_t>(engines.size());
    for (size_t i = 0; i < engines.size() && i < static_cast<size_t>(most); ++i) {
      void* to = static_cast<void**>(values)[i];
      if (!s.descriptors.contains(to) || static_cast<Descriptor*>(to)->kind != kConfiguration)
        return violate("results to what is no configuration");
      static_cast<Descriptor*>(to)->engine = engines[i];
      static_cast<Descriptor*>(to)->graph = d.graph;
    }
    return kOk;
  }
  if (d.kind == kConfiguration && attribute == 300 && type == 15 && most == 1) {
    void* to = *static_cast<void**>(values);
    if (!d.graph || !s.descriptors.contains(to) || static_cast<Descriptor*>(to)->kind != kEngine)
      return violate("the engine of what has none");
    static_cast<Descriptor*>(to)->engine = d.engine;
    *count = 1;
    return kOk;
  }
  if (d.kind == kEngine && attribute == 1303 && type == 11) {
    *count = d.engine.note >= 0 ? 1 : 0;
    if (*count > most) return violate("no room for a note");
    if (*count > 0) *static_cast<int*>(values) = d.engine.note;
    return kOk;
  }
  if (d.kind == kPlan && attribute == 402 && type == 3 && d.closed) {
    *static_cast<int64_t*>(values) = static_cast<int64_t>(d.engine.workspace);
    *count = 1;
    return kOk;
  }
  return violate("an attribute that is unknown here");
}
int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  ENTER;
  State& s = state();
  if (!s.handles.contains(handle)) return violate("a handle that is none");
  const Descriptor* p = find(plan, kPlan);
  const Descriptor* v = find(pack, kPack);
  if (!p || !v) return violate("an execution of what is none");
  auto e = std::make_unique<Execution>();
  std::string told;
  if (const int bad = prepare(*p, *v, e.get(), &told)) return bad;
  s.log += told + "\n";
  const auto drop = [](void* what) { delete static_cast<Execution*>(what); };
  if (standin::driver().add_work(static_cast<Handle*>(handle)->stream, run, drop, e.release()) != 0)
    return kExecutionFailed;
  return kOk;
}

}  // extern "C"

}  // namespace standin::cudnn
