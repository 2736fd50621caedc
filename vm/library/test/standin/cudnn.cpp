// A library that answers as cuDNN 9 does by its backend interface, on the memory and in the streams
// of the stand-in for NVIDIA's driver (vm/runtime/test/standin/cuda.cpp), for tests on machines
// that have no GPU.
//
// Descriptors are bags of attributes; what a graph means is worked out where it is executed, by
// plain loops, when the stream comes to it. Each call is checked as far as the rules say what is
// right: handles, types and counts of attributes, what may change when and must be there, tensors'
// ids, the workspace. What is not is noted (violations()) and refused. The environment's
// NIMBLE_STANDIN_CUDNN_VERSION is the version that it says it is of.
#include "vm/library/test/standin/cudnn.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "vm/runtime/test/standin/cuda.h"

namespace {

constexpr int kOk = 0, kBadParameter = 2000, kNotSupported = 3000, kExecutionFailed = 5000;

enum Kind : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kConfiguration = 3,
  kHeuristics = 4,
  kPlan = 5,
  kForward = 10,
  kPointwiseOperation = 13,
  kGraph = 15,
  kPack = 16,
  kTensor = 17
};
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

struct EngineOf {
  int rules = 3, note = -1;
  size_t workspace = 0;
  bool refused = false;
};
struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<uint8_t> bytes;
};
struct Descriptor {
  int kind = 0;
  bool closed = false;
  std::map<int, Attribute> attributes;
  EngineOf engine;              // of engines, configurations and plans
  Descriptor* graph = nullptr;  // of configurations and plans

  template <class T>
  T one(int attribute, T otherwise = {}) const {
    const auto at = attributes.find(attribute);
    T out = otherwise;
    if (at != attributes.end() && at->second.bytes.size() >= sizeof out)
      std::memcpy(&out, at->second.bytes.data(), sizeof out);
    return out;
  }
  template <class T>
  std::vector<T> all(int attribute) const {
    const auto at = attributes.find(attribute);
    if (at == attributes.end()) return {};
    std::vector<T> out(static_cast<size_t>(at->second.count));
    if (!out.empty()) std::memcpy(out.data(), at->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
};
struct Handle {
  void* stream = nullptr;
};
struct Fault {
  int calls = 0, status = 0;
};

struct State {
  std::recursive_mutex mutex;
  std::vector<EngineOf> engines;
  std::set<void*> handles, descriptors;
  std::map<std::string, Fault> faults;
  std::map<std::string, int> calls;
  std::string violations, log;
};
State& state() {
  static State& s = *new State;
  return s;
}

int violate(const std::string& what, int status = kBadParameter) {
  state().violations += what + "\n";
  return status;
}

const StandInCuda& driver() {
  return standin_cuda(std::getenv("NIMBLE_CUDA_DRIVER"));
}

int enter(const char* name) {
  State& s = state();
  ++s.calls[name];
  if (auto f = s.faults.find(name); f != s.faults.end() && --f->second.calls == 0) {
    const int status = f->second.status;
    s.faults.erase(f);
    return status;
  }
  return kOk;
}

Descriptor* find(void* d, int kind) {
  if (!state().descriptors.contains(d)) return nullptr;
  auto* out = static_cast<Descriptor*>(d);
  return out->kind == kind && out->closed ? out : nullptr;
}

// ---- graphs

using Shape = std::vector<int64_t>;

int64_t count_of(const Shape& s) {
  int64_t n = 1;
  for (const int64_t extent : s) n *= extent;
  return n;
}

// What is executed, as it was then: descriptors may go before the stream comes to it.
struct Operation {
  bool convolution = false;
  int mode = 0;
  bool keeps_nans = false;      // of a ReLU; the default is not told, here it is another number
  int64_t x = 0, b = 0, y = 0;  // ids; 0: none
  Shape before, strides, dilations;
};
struct Execution {
  std::vector<Operation> operations;
  std::map<int64_t, Shape> shapes;
  std::set<int64_t> virtuals;
  std::map<int64_t, uint64_t> addresses;
  uint64_t workspace = 0;
  size_t workspace_bytes = 0;
};

void convolve(const Operation& o, const Shape& xs, const Shape& ws, const Shape& ys, const float* x,
              const float* w, float* y) {
  const int64_t depth = ws[1], groups = xs[1] / depth, filters = ws[0] / groups;
  for (int64_t b = 0; b < ys[0]; ++b)
    for (int64_t f = 0; f < ys[1]; ++f)
      for (int64_t i = 0; i < ys[2]; ++i)
        for (int64_t j = 0; j < ys[3]; ++j) {
          float sum = 0;
          for (int64_t c = 0; c < depth; ++c)
            for (int64_t u = 0; u < ws[2]; ++u)
              for (int64_t v = 0; v < ws[3]; ++v) {
                const int64_t row = i * o.strides[0] - o.before[0] + u * o.dilations[0];
                const int64_t column = j * o.strides[1] - o.before[1] + v * o.dilations[1];
                if (row < 0 || row >= xs[2] || column < 0 || column >= xs[3]) continue;
                const int64_t channel = f / filters * depth + c;
                sum += x[((b * xs[1] + channel) * xs[2] + row) * xs[3] + column] *
                       w[((f * depth + c) * ws[2] + u) * ws[3] + v];
              }
          *y++ = sum;
        }
}

int run(void* context) {
  const std::unique_ptr<Execution> e(static_cast<Execution*>(context));
  std::map<int64_t, std::vector<float>> temporary;
  const auto memory = [&](int64_t id) -> float* {
    const Shape& shape = e->shapes.at(id);
    const auto count = static_cast<size_t>(count_of(shape));
    if (e->virtuals.contains(id)) {
      auto& t = temporary[id];
      t.resize(count);
      return t.data();
    }
    return static_cast<float*>(driver().host_of(e->addresses.at(id), count * sizeof(float)));
  };
  if (e->workspace_bytes > 0) {
    void* space = driver().host_of(e->workspace, e->workspace_bytes);
    if (!space) return 700;
    std::memset(space, 0x77, e->workspace_bytes);
  }
  for (const Operation& o : e->operations) {
    const float* x = memory(o.x);
    const float* b = o.b != 0 ? memory(o.b) : x;
    float* y = memory(o.y);
    if (!x || !b || !y) return 700;
    const Shape& ys = e->shapes.at(o.y);
    if (o.convolution) {
      convolve(o, e->shapes.at(o.x), e->shapes.at(o.b), ys, x, b, y);
      continue;
    }
    const bool by_channel = o.b != 0 && e->shapes.at(o.b) != ys;
    for (int64_t i = 0; i < count_of(ys); ++i) {
      const int64_t channel = i / (ys[2] * ys[3]) % ys[1];
      if (o.mode == 100)
        y[i] = x[i] > 0 || (o.keeps_nans && std::isnan(x[i])) ? x[i] : 0.0F;
      else
        y[i] = x[i] + b[by_channel ? channel : i];
    }
  }
  return 0;
}

// ---- what tests ask

void reset() {
  State& s = state();
  s.engines.clear();
  s.faults.clear();
  s.calls.clear();
  s.violations.clear();
  s.log.clear();
}
void add_engine(int rules, int note, size_t workspace, int refused) {
  state().engines.push_back({rules, note, workspace, refused != 0});
}
void fail(const char* function, int nth, int status) {
  state().faults[function] = {nth, status};
}
int calls(const char* function) {
  return state().calls[function];
}
const char* violations() {
  return state().violations.c_str();
}
size_t alive() {
  return state().handles.size() + state().descriptors.size();
}
const char* graphs() {
  return state().log.c_str();
}

// ---- closing

bool has(const Descriptor& d, std::initializer_list<int> attributes) {
  return std::all_of(attributes.begin(), attributes.end(),
                     [&](int a) { return d.attributes.contains(a); });
}

int close_tensor(const Descriptor& d) {
  if (!has(d, {900, 901, 902, 903, 906})) return violate("a tensor that is not whole");
  const Shape dims = d.all<int64_t>(902), strides = d.all<int64_t>(903);
  if (dims.size() != 4 || strides.size() != 4) return violate("a tensor without four axes");
  int64_t dense = 1;
  for (size_t i = 4; i-- > 0; dense *= dims[i])
    if (dims[i] < 1 || strides[i] != dense) return violate("a tensor that is not dense");
  if (d.one<int>(901, -1) != 0) return violate("a tensor that is not f32", kNotSupported);
  const int64_t alignment = d.one<int64_t>(900);
  if (alignment < 4 || (alignment & (alignment - 1)) != 0) return violate("an odd alignment");
  return kOk;
}

int close_forward(const Descriptor& d) {
  if (!has(d, {700, 701, 702, 703, 704, 705})) return violate("a convolution that is not whole");
  Descriptor* x = find(d.one<void*>(704), kTensor);
  Descriptor* w = find(d.one<void*>(703), kTensor);
  Descriptor* y = find(d.one<void*>(705), kTensor);
  Descriptor* c = find(d.one<void*>(702), kConvolution);
  if (!x || !w || !y || !c) return violate("a convolution of what is none, or not closed");
  if (d.one<float>(700) != 1 || d.one<float>(701) != 0) return violate("factors of a convolution");
  const Shape xs = x->all<int64_t>(902), ws = w->all<int64_t>(902), ys = y->all<int64_t>(902);
  const Shape before = c->all<int64_t>(105), after = c->all<int64_t>(104),
              strides = c->all<int64_t>(103), dilations = c->all<int64_t>(102);
  if (xs[1] % ws[1] != 0 || ws[0] % (xs[1] / ws[1]) != 0 || ys[0] != xs[0] || ys[1] != ws[0])
    return violate("channels of a convolution that do not match");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = (ws[2 + i] - 1) * dilations[i] + 1;
    if (ys[2 + i] != (xs[2 + i] + before[i] + after[i] - reach) / strides[i] + 1)
      return violate("extents of a convolution that do not match");
  }
  return kOk;
}

int close(Descriptor& d) {
  switch (d.kind) {
    case kTensor:
      return close_tensor(d);
    case kConvolution:
      if (!has(d, {100, 101, 102, 103, 104, 105, 106}) || d.one<int>(101) != 1 ||
          d.one<int>(100) != 0 || d.one<int64_t>(106) != 2)
        return violate("a convolution's windows that are not whole");
      return kOk;
    case kForward:
      return close_forward(d);
    case kPointwise:
      if (d.attributes.contains(2) && (d.attributes.at(2).type != 10 || d.one<int>(0) != 100))
        return violate("NaN is asked for where there is no choice");
      return has(d, {0, 1}) ? kOk : violate("a pointwise operation without a mode");
    case kPointwiseOperation: {
      Descriptor* what = find(d.one<void*>(750), kPointwise);
      if (!what || !find(d.one<void*>(751), kTensor) || !find(d.one<void*>(753), kTensor))
        return violate("a pointwise operation that is not whole");
      const bool adds = what->one<int>(0) == 0;
      if (adds != (find(d.one<void*>(752), kTensor) != nullptr))
        return violate("a pointwise operation with the wrong operands");
      return kOk;
    }
    case kGraph:
      if (!state().handles.contains(d.one<void*>(800)) || d.all<void*>(801).empty())
        return violate("a graph that is not whole");
      for (void* o : d.all<void*>(801))
        if (!find(o, kForward) && !find(o, kPointwiseOperation))
          return violate("a graph of what is no operation");
      return kOk;
    case kHeuristics:
      d.graph = find(d.one<void*>(201), kGraph);
      return d.graph && has(d, {200}) ? kOk : violate("rules without a graph");
    case kPlan: {
      auto* configuration = static_cast<Descriptor*>(d.one<void*>(401));
      if (!state().handles.contains(d.one<void*>(400)) ||
          !state().descriptors.contains(configuration) || configuration->kind != kConfiguration ||
          !configuration->graph)
        return violate("a plan that is not whole");
      if (configuration->engine.refused) return kNotSupported + 2;
      d.engine = configuration->engine;
      d.graph = configuration->graph;
      return kOk;
    }
    case kPack:
      if (!has(d, {1000, 1001, 1003}) || d.all<int64_t>(1000).size() != d.all<void*>(1001).size())
        return violate("a pack that is not whole");
      return kOk;
  }
  return violate("a descriptor of this kind is not closed");
}

// ---- execution

// The tensor's id, its extents noted.
int64_t note_tensor(Descriptor* t, Execution* e) {
  const auto id = t->one<int64_t>(906);
  e->shapes[id] = t->all<int64_t>(902);
  if (t->one<bool>(907)) e->virtuals.insert(id);
  return id;
}

int prepare(const Descriptor& plan, const Descriptor& pack, Execution* e, std::string* told) {
  if (!state().descriptors.contains(plan.graph)) return violate("a plan whose graph is gone");
  std::map<int64_t, int64_t> alignments;
  for (void* o : plan.graph->all<void*>(801)) {
    if (!state().descriptors.contains(o)) return violate("a plan whose operations are gone");
    const auto& d = *static_cast<Descriptor*>(o);
    Operation operation;
    operation.convolution = d.kind == kForward;
    const int x = operation.convolution ? 704 : 751, b = operation.convolution ? 703 : 752,
              y = operation.convolution ? 705 : 753;
    for (const auto& [attribute, to] :
         {std::pair{x, &operation.x}, {b, &operation.b}, {y, &operation.y}}) {
      Descriptor* t = find(d.one<void*>(attribute), kTensor);
      if (!t && attribute == 752) continue;
      if (!t) return violate("a plan whose tensors are gone");
      *to = note_tensor(t, e);
      alignments[*to] = t->one<int64_t>(900);
    }
    if (operation.convolution) {
      const auto& c = *static_cast<Descriptor*>(d.one<void*>(702));
      operation.before = c.all<int64_t>(105);
      operation.strides = c.all<int64_t>(103);
      operation.dilations = c.all<int64_t>(102);
      *told += "convolution";
    } else {
      const auto& what = *static_cast<Descriptor*>(d.one<void*>(750));
      operation.mode = what.one<int>(0);
      operation.keeps_nans = what.one<int>(2) == 1;
      *told += operation.mode == 100                              ? ", relu"
               : e->shapes[operation.b] == e->shapes[operation.y] ? ", add"
                                                                  : ", bias";
    }
    e->operations.push_back(operation);
  }
  const std::vector<int64_t> ids = pack.all<int64_t>(1000);
  const std::vector<uint64_t> pointers = pack.all<uint64_t>(1001);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!e->shapes.contains(ids[i]) || e->virtuals.contains(ids[i]) ||
        !e->addresses.emplace(ids[i], pointers[i]).second)
      return violate("memory of a tensor that takes none");
    if (pointers[i] % static_cast<uint64_t>(alignments[ids[i]]) != 0)
      return violate("an address that is not aligned as was promised");
  }
  if (e->addresses.size() + e->virtuals.size() != e->shapes.size())
    return violate("a tensor without memory");
  e->workspace = pack.one<uint64_t>(1003);
  e->workspace_bytes = plan.engine.workspace;
  if (e->workspace_bytes > 0 && e->workspace % 256 != 0)
    return violate("a workspace that is not aligned");
  return kOk;
}

}  // namespace

#define ENTER                                \
  const std::lock_guard lock(state().mutex); \
  if (const int bad = enter(__func__)) return bad

extern "C" {

const StandInCudnn* standin_cudnn_table() {
  static const StandInCudnn table = {reset, add_engine, fail, calls, violations, alive, graphs};
  return &table;
}

size_t cudnnGetVersion() {
  const char* set = std::getenv("NIMBLE_STANDIN_CUDNN_VERSION");
  return set ? std::strtoull(set, nullptr, 10) : 91400;
}
const char* cudnnGetErrorString(int status) {
  static thread_local std::string text;
  text = "status " + std::to_string(status) + " of the stand-in";
  return text.c_str();
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
  if (driver().add_work(static_cast<Handle*>(handle)->stream, run, e.get()) != 0)
    return kExecutionFailed;
  e.release();
  return kOk;
}

}  // extern "C"
