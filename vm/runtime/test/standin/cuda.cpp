// A library that answers as NVIDIA's driver does, on the host's memory, for tests on machines that
// have no GPU.
//
// It does what it is asked as late as the driver may: copies and kernels wait in their stream until
// somebody waits for it, so that memory which is used too early or given back too early shows. The
// device's addresses are none of the host's: to touch them without a copy is a fault. Each call is
// checked as far as the driver's rules say what is right; what is not is noted (violations()) and
// refused.
#include "vm/runtime/test/standin/cuda.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "vm/runtime/test/standin/assembly.h"

namespace {

constexpr int kOk = 0, kInvalidValue = 1, kNotInitialized = 3, kNoDevice = 100,
              kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
              kInvalidHandle = 400, kNotFound = 500;
#ifdef NIMBLE_STANDIN_OLD
constexpr int kVersion = 12000;
#else
constexpr int kVersion = 13000;
#endif
using Address = unsigned long long;
// Not canonical on x86-64, the kernel's on ARM: no host reads it.
constexpr Address kDevice = Address{1} << 55;

struct Kernel {
  int pointers = 0, symbols = 0;
  StandInKernel run = nullptr;
};
struct Function {
  struct Module* module = nullptr;
  std::string name;
  int shared = 48 << 10;
};
struct Module {
  std::map<std::string, Function> functions;
  int pending = 0;
};
struct Stream {
  std::deque<std::function<int()>> work;
};
struct Event {
  bool times = true, recorded = false, done = false;
  float at = 0;
  Stream* stream = nullptr;
};
struct Graph {
  struct Node {
    std::vector<Node*> after;
    std::function<int()> work;
    Module* module = nullptr;
  };
  std::vector<Node*> nodes;  // in the order in which they were added
  ~Graph() {
    for (Node* node : nodes) delete node;
  }
};
struct GraphExec {
  std::vector<std::function<int()>> works;
  std::set<Module*> modules;
  int pending = 0;
  bool destroyed = false;  // goes when it is done
};
struct Fault {
  int calls = 0, result = 0;
};

struct State {
  std::recursive_mutex mutex;
  int version = kVersion, devices = 1, capability = 90;
  pid_t process = 0;
  bool initialized = false;
  int contexts = 0, generation = 1, sticky = 0;
  float clock = 0, tick = 1;  // milliseconds; what each piece of work takes
  // Both as the host sees them: these are the pointers that LeakSanitizer looks for.
  std::map<uint8_t*, size_t> memory, pinned;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Module*> modules;
  std::set<Graph*> graphs;
  std::set<GraphExec*> execs;
  std::map<std::string, Kernel> kernels;
  std::map<std::string, Fault> faults;
  std::map<std::string, int> calls;
  std::string violations;
};
State& state() {
  static State& s = *new State;
  return s;
}
thread_local int current = 0;  // the generation of the context that is current

int violate(const std::string& what, int result = kInvalidValue) {
  state().violations += what + "\n";
  return result;
}

uint8_t* host_of(Address a) {
  return reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(a & ~kDevice));
}

// Whether the device has these bytes, in one allocation or pinned.
bool on_device(Address at, size_t bytes) {
  State& s = state();
  if (!(at & kDevice)) return false;
  uint8_t* host = host_of(at);
  auto m = s.memory.upper_bound(host);
  if (m != s.memory.begin() && (--m, host + bytes <= m->first + m->second)) return true;
  auto p = s.pinned.upper_bound(host);
  return p != s.pinned.begin() && (--p, host + bytes <= p->first + p->second);
}
bool is_pinned(const void* at, size_t bytes) {
  State& s = state();
  auto* host = static_cast<uint8_t*>(const_cast<void*>(at));
  auto p = s.pinned.upper_bound(host);
  return p != s.pinned.begin() && (--p, host + bytes <= p->first + p->second);
}

bool is_sticky(int result) {
  return result == 700 || (result > 701 && result < 720);
}

int drain(Stream* stream) {
  State& s = state();
  while (!stream->work.empty()) {
    const std::function<int()> work = std::move(stream->work.front());
    stream->work.pop_front();
    s.clock += s.tick;
    const int result = s.sticky ? s.sticky : work();
    if (is_sticky(result)) s.sticky = result;
    if (result != kOk && !s.sticky) return result;
  }
  return s.sticky;
}
int drain_all() {
  int result = state().sticky;
  for (Stream* stream : state().streams)
    if (const int r = drain(stream); r != kOk) result = r;
  return result;
}

const Kernel* find_kernel(const std::string& name) {
  const std::map<std::string, Kernel>& all = state().kernels;
  auto at = all.find(name);
  if (at == all.end()) at = all.find("*");
  return at == all.end() ? nullptr : &at->second;
}

// Counts a call; its result if it is to fail, or may not be made.
int enter(const char* name, bool needs_context = true) {
  State& s = state();
  ++s.calls[name];
  if (auto f = s.faults.find(name); f != s.faults.end() && --f->second.calls == 0) {
    const int result = f->second.result;
    s.faults.erase(f);
    if (is_sticky(result)) s.sticky = result;
    return result;
  }
  if (s.process != ::getpid()) return kNotInitialized;
  if (!needs_context) return kOk;
  if (s.contexts == 0 || current != s.generation)
    return violate(std::string(name) + " without a current context", kInvalidContext);
  return s.sticky;
}

// ---- what tests ask

void reset() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.version = kVersion;
  s.devices = 1;
  s.capability = 90;
  s.tick = 1;
  s.faults.clear();
  s.calls.clear();
  s.violations.clear();
}
void set(int version, int devices, int capability) {
  State& s = state();
  s.version = version;
  s.devices = devices;
  s.capability = capability;
}
void add_kernel(const char* name, int pointers, int symbols, StandInKernel kernel) {
  state().kernels[name] = {pointers, symbols, kernel};
}
void fail(const char* function, int nth, int result) {
  state().faults[function] = {nth, result};
}
int calls(const char* function) {
  return state().calls[function];
}
const char* violations() {
  return state().violations.c_str();
}
size_t alive() {
  State& s = state();
  return s.memory.size() + s.pinned.size() + s.streams.size() + s.events.size() + s.modules.size() +
         s.graphs.size() + s.execs.size();
}
size_t bytes() {
  size_t sum = 0;
  for (const auto& [at, size] : state().memory) sum += size;
  return sum;
}
void take(float milliseconds) {
  state().clock += milliseconds;
}
void tick(float milliseconds) {
  state().tick = milliseconds;
}

void* host_address(uint64_t address, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (on_device(address, bytes)) return host_of(address);
  violate("a library gets memory that the device has not");
  return nullptr;
}
int add_work(void* stream, int (*run)(void*), void* what) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (const int bad = enter("add_work")) return bad;
  auto* const to = static_cast<Stream*>(stream);
  if (!s.streams.contains(to)) return violate("a stream that is none", kInvalidHandle);
  to->work.push_back([=] { return run(what); });
  return kOk;
}

}  // namespace

#define ENTER(...)                           \
  const std::lock_guard lock(state().mutex); \
  if (const int bad = enter(__func__ __VA_OPT__(, ) __VA_ARGS__)) return bad

extern "C" {

const StandInCuda* standin_cuda_table() {
  static const StandInCuda table = {reset, set,   add_kernel,   fail,     calls, violations,
                                    alive, bytes, host_address, add_work, take,  tick};
  return &table;
}

int cuInit(unsigned) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.initialized) s.process = ::getpid();
  s.initialized = true;
  if (const int bad = enter("cuInit", false)) return bad;
  return s.devices == 0 ? kNoDevice : kOk;
}
int cuDriverGetVersion(int* version) {
  *version = state().version;
  return kOk;
}
int cuGetErrorName(int result, const char** name) {
  static std::map<int, std::string> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},     {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {100, "CUDA_ERROR_NO_DEVICE"},       {200, "CUDA_ERROR_INVALID_IMAGE"},
      {218, "CUDA_ERROR_INVALID_PTX"},     {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}};
  const auto at = names.find(result);
  *name = at == names.end() ? "CUDA_ERROR_UNKNOWN" : at->second.c_str();
  return kOk;
}
int cuGetErrorString(int, const char** text) {
  *text = "as the stand-in says";
  return kOk;
}
int cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = state().devices;
  return kOk;
}
int cuDeviceGet(int* device, int ordinal) {
  ENTER(false);
  if (ordinal < 0 || ordinal >= state().devices) return kInvalidDevice;
  *device = ordinal;
  return kOk;
}
int cuDeviceGetName(char* name, int bytes, int) {
  ENTER(false);
  std::strncpy(name, "Stand-in GPU", static_cast<size_t>(bytes));
  return kOk;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER(false);
  const int capability = state().capability;
  switch (attribute) {
    case 16:
      *value = 132;
      return kOk;
    case 36:  // kHz of the memory, and the bits of its bus
      *value = 2'619'000;
      return kOk;
    case 37:
      *value = 5120;
      return kOk;
    case 38:
      *value = 50 << 20;
      return kOk;
    case 75:
      *value = capability / 10;
      return kOk;
    case 76:
      *value = capability % 10;
      return kOk;
    case 97:  // of 8.0, 9.0 and 10.0; others have less
      *value = (capability == 80 ? 163 : capability >= 90 && capability <= 103 ? 227 : 99) << 10;
      return kOk;
  }
  return violate("an attribute that is unknown here");
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  ENTER(false);
  *bytes = size_t{80} << 30;
  return kOk;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  ENTER(false);
  ++state().contexts;
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(state().generation));
  return kOk;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  ENTER(false);
  if (state().contexts == 0) return violate("a context is released that nobody holds");
  --state().contexts;
  return kOk;
}
int cuDevicePrimaryCtxReset_v2(int) {
  ENTER(false);
  State& s = state();
  s.contexts = 0;
  ++s.generation;
  s.sticky = 0;
  for (const auto& [at, size] : s.memory) std::free(at);
  for (const auto& [at, size] : s.pinned) std::free(at);
  for (Stream* stream : s.streams) delete stream;
  for (Event* event : s.events) delete event;
  for (Module* module : s.modules) delete module;
  for (Graph* graph : s.graphs) delete graph;
  for (GraphExec* exec : s.execs) delete exec;
  s.memory.clear();
  s.pinned.clear();
  s.streams.clear();
  s.events.clear();
  s.modules.clear();
  s.graphs.clear();
  s.execs.clear();
  return kOk;
}
int cuCtxSetCurrent(void* context) {
  ENTER(false);
  current = static_cast<int>(reinterpret_cast<intptr_t>(context));
  return kOk;
}
int cuMemAlloc_v2(Address* memory, size_t bytes) {
  ENTER();
  if (bytes == 0) return violate("an allocation of nothing");
  auto* host = static_cast<uint8_t*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (!host) return 2;
  std::memset(host, 0xa5, bytes);
  *memory = static_cast<Address>(reinterpret_cast<uintptr_t>(host)) | kDevice;
  state().memory[host] = bytes;
  return kOk;
}
int cuMemFree_v2(Address memory) {
  ENTER();
  const int result = drain_all();
  const auto at = state().memory.find(host_of(memory));
  if (at == state().memory.end()) return violate("memory is freed that was not allocated");
  std::free(at->first);
  state().memory.erase(at);
  return result;
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER();
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  state().pinned[static_cast<uint8_t*>(*memory)] = bytes;
  return kOk;
}
int cuMemFreeHost(void* memory) {
  ENTER();
  drain_all();
  const auto at = state().pinned.find(static_cast<uint8_t*>(memory));
  if (at == state().pinned.end()) return violate("pinned memory is freed that is none");
  std::free(memory);
  state().pinned.erase(at);
  return kOk;
}
int cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned) {
  ENTER();
  if (!is_pinned(host, 1)) return violate("memory that is not pinned has no address there");
  *device = static_cast<Address>(reinterpret_cast<uintptr_t>(host)) | kDevice;
  return kOk;
}

static int add_copy(Stream* stream, void* to, const void* from, size_t bytes,
                    std::vector<std::pair<Address, size_t>> needs) {
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  for (const auto& [at, size] : needs)
    if (!on_device(at, size)) return violate("a copy beyond what was allocated");
  stream->work.push_back([=] {
    for (const auto& [at, size] : needs)
      if (!on_device(at, size)) return violate("a copy of memory that was freed meanwhile");
    std::memcpy(to, from, bytes);
    return kOk;
  });
  return kOk;
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
  ENTER();
  if (is_pinned(from, bytes)) return add_copy(stream, host_of(to), from, bytes, {{to, bytes}});
  // From other memory the driver copies at once.
  if (const int result = add_copy(stream, host_of(to), from, bytes, {{to, bytes}})) return result;
  return drain(stream);
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
  ENTER();
  return add_copy(stream, to, host_of(from), bytes, {{from, bytes}});
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
  ENTER();
  return add_copy(stream, host_of(to), host_of(from), bytes, {{to, bytes}, {from, bytes}});
}
int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Stream* stream) {
  ENTER();
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  if (!on_device(to, bytes)) return violate("memory is set beyond what was allocated");
  stream->work.push_back([=] {
    if (!on_device(to, bytes)) return violate("memory is set that was freed meanwhile");
    std::memset(host_of(to), value, bytes);
    return kOk;
  });
  return kOk;
}
int cuStreamCreate(Stream** stream, unsigned) {
  ENTER();
  state().streams.insert(*stream = new Stream);
  return kOk;
}
int cuStreamDestroy_v2(Stream* stream) {
  ENTER();
  if (state().streams.erase(stream) == 0) return violate("a stream that is none", kInvalidHandle);
  if (!stream->work.empty()) violate("a stream is destroyed before its work is done");
  delete stream;
  return kOk;
}
int cuStreamSynchronize(Stream* stream) {
  ENTER();
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  return drain(stream);
}
int cuEventCreate(Event** event, unsigned flags) {
  ENTER();
  *event = new Event;
  (*event)->times = (flags & 2) == 0;
  state().events.insert(*event);
  return kOk;
}
int cuEventDestroy_v2(Event* event) {
  ENTER();
  if (!state().events.contains(event)) return violate("an event that is none", kInvalidHandle);
  if (event->recorded && !event->done && state().streams.contains(event->stream))
    drain(event->stream);  // the driver keeps it until then
  state().events.erase(event);
  delete event;
  return kOk;
}
int cuEventRecord(Event* event, Stream* stream) {
  ENTER();
  if (!state().events.contains(event) || !state().streams.contains(stream))
    return violate("an event or a stream that is none", kInvalidHandle);
  event->recorded = true;
  event->done = false;
  event->stream = stream;
  stream->work.push_back([event] {
    event->done = true;
    event->at = state().clock;
    return kOk;
  });
  return kOk;
}
int cuEventSynchronize(Event* event) {
  ENTER();
  if (!state().events.contains(event)) return violate("an event that is none", kInvalidHandle);
  return event->recorded && !event->done ? drain(event->stream) : kOk;
}
int cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  ENTER();
  if (!state().events.contains(begin) || !state().events.contains(end) || !begin->times ||
      !end->times || !begin->done || !end->done)
    return violate("a time between events that have none", kInvalidHandle);
  *milliseconds = end->at - begin->at;
  return kOk;
}
int cuModuleLoadDataEx(Module** module, const void* image, unsigned, const int*, void** values) {
  ENTER();
  const std::string text = static_cast<const char*>(image);
  if (text.starts_with(".version") || text.starts_with("//")) {
    std::vector<std::string> names;
    std::string log;
    if (const int bad = compile_assembly(text, state().version, &names, &log)) {
      std::strcpy(static_cast<char*>(values[0]), log.c_str());
      return bad;
    }
    auto* made = new Module;
    for (const std::string& name : names) made->functions[name] = {made, name};
    state().modules.insert(*module = made);
    return kOk;
  }
  const std::string head = STANDIN_CUDA_IMAGE;
  if (text.compare(0, head.size(), head) != 0) {
    std::strcpy(static_cast<char*>(values[0]), "it does not begin as an image does");
    return kInvalidImage;
  }
  auto* made = new Module;
  for (size_t at = head.size(); at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) {
      const std::string name = text.substr(at, end - at);
      made->functions[name] = {made, name};
    }
    at = end + 1;
  }
  state().modules.insert(*module = made);
  return kOk;
}
int cuModuleUnload(Module* module) {
  ENTER();
  if (!state().modules.contains(module)) return violate("a module that is none", kInvalidHandle);
  if (module->pending > 0) violate("a module is unloaded while its kernels run");
  for (const GraphExec* exec : state().execs)
    if (exec->modules.contains(module))
      violate("a module is unloaded before graphs of its kernels");
  state().modules.erase(module);
  delete module;
  return kOk;
}
int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER();
  if (!state().modules.contains(module)) return violate("a module that is none", kInvalidHandle);
  const auto at = module->functions.find(name);
  if (at == module->functions.end()) return kNotFound;
  *function = &at->second;
  return kOk;
}
int cuFuncSetAttribute(Function* function, int attribute, int value) {
  ENTER();
  if (attribute != 8 || value > 227 << 10) return kInvalidValue;
  function->shared = value;
  return kOk;
}
#ifndef NIMBLE_STANDIN_OLD
int cuFuncGetParamInfo(Function* function, size_t index, size_t* offset, size_t* bytes) {
  ENTER();
  const Kernel* kernel = find_kernel(function->name);
  if (!kernel || index >= static_cast<size_t>(kernel->pointers + kernel->symbols + 2))
    return kInvalidValue;
  *offset = 8 * index;
  *bytes = 8;
  return kOk;
}
#endif
// Checks a launch, and makes of it what the stream will do.
static int prepare_launch(Function* function, const unsigned* grid, const unsigned* block,
                          unsigned shared, void** parameters, void** extra, Module** of,
                          std::function<int()>* work) {
  State& s = state();
  Module* module = nullptr;
  for (Module* m : s.modules)
    for (auto& [name, f] : m->functions)
      if (&f == function) module = m;
  if (!module) return violate("a function that is none", kInvalidHandle);
  const unsigned gx = grid[0], gy = grid[1], gz = grid[2], bx = block[0];
  if (gx == 0 || gy == 0 || gz == 0 || gx > INT32_MAX || gy > 65535 || gz > 65535)
    return violate("a grid that is empty or too large");
  if (bx == 0 || bx > 1024 || block[1] != 1 || block[2] != 1)
    return violate("a block of no size it may have");
  if (shared > static_cast<unsigned>(function->shared))
    return violate("more shared memory than the function may have");
  const Kernel* found = find_kernel(function->name);
  if (!found) return violate("nobody says what " + function->name + " computes");
  if (extra) return violate("parameters by another way");
  const Kernel kernel = *found;
  std::vector<Address> words;
  for (int i = 0; i < kernel.pointers + kernel.symbols + 2; ++i) {
    Address word = 0;
    std::memcpy(&word, parameters[i], sizeof word);
    words.push_back(word);
  }
  *of = module;
  *work = [=] {
    std::vector<void*> pointers;
    std::vector<int64_t> symbols;
    const auto pointer = [](Address word) -> void* {
      if (word == 0 || !(word & kDevice)) return nullptr;  // of what is empty
      if (!on_device(word, 1)) {
        violate("a kernel gets memory that was freed");
        return nullptr;
      }
      return host_of(word);
    };
    const size_t n = static_cast<size_t>(kernel.pointers);
    for (size_t i = 0; i < n; ++i) pointers.push_back(pointer(words[i]));
    for (size_t i = 0; i < static_cast<size_t>(kernel.symbols); ++i)
      symbols.push_back(static_cast<int64_t>(words[n + i]));
    const StandInLaunch launch = {{gx, gy, gz},
                                  bx,
                                  shared,
                                  pointers.data(),
                                  symbols.data(),
                                  pointer(words[words.size() - 2]),
                                  static_cast<int32_t*>(pointer(words.back()))};
    return kernel.run(launch);
  };
  return kOk;
}
int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, Stream* stream, void** parameters,
                   void** extra) {
  ENTER();
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  Module* module = nullptr;
  std::function<int()> work;
  if (const int bad =
          prepare_launch(function, grid, block, shared, parameters, extra, &module, &work))
    return bad;
  ++module->pending;
  stream->work.push_back([module, work] {
    --module->pending;
    return work();
  });
  return kOk;
}

#ifndef NIMBLE_STANDIN_OLD
struct KernelNode {
  Function* function;
  unsigned grid[3], block[3], shared;
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};
int cuGraphCreate(Graph** graph, unsigned flags) {
  ENTER();
  if (flags != 0) return kInvalidValue;
  state().graphs.insert(*graph = new Graph);
  return kOk;
}
int cuGraphDestroy(Graph* graph) {
  ENTER();
  if (state().graphs.erase(graph) == 0) return violate("a graph that is none", kInvalidHandle);
  delete graph;
  return kOk;
}
int cuGraphAddKernelNode_v2(Graph::Node** node, Graph* graph, Graph::Node* const* after,
                            size_t count, const KernelNode* launch) {
  ENTER();
  if (!state().graphs.contains(graph)) return violate("a graph that is none", kInvalidHandle);
  auto made = std::make_unique<Graph::Node>();
  for (size_t i = 0; i < count; ++i) {
    if (std::find(graph->nodes.begin(), graph->nodes.end(), after[i]) == graph->nodes.end())
      return violate("a node behind one that is not its graph's", kInvalidValue);
    made->after.push_back(after[i]);
  }
  if (launch->kernel || launch->context) return violate("a kernel by another handle");
  if (const int bad = prepare_launch(launch->function, launch->grid, launch->block, launch->shared,
                                     launch->parameters, launch->extra, &made->module, &made->work))
    return bad;
  graph->nodes.push_back(*node = made.release());
  return kOk;
}
int cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long flags) {
  ENTER();
  if (!state().graphs.contains(graph)) return violate("a graph that is none", kInvalidHandle);
  if (flags != 0) return kInvalidValue;
  auto made = std::make_unique<GraphExec>();
  // Nodes without an order between them may run in any: the latest first.
  std::set<Graph::Node*> done;
  while (done.size() < graph->nodes.size())
    for (size_t i = graph->nodes.size(); i-- > 0;) {
      Graph::Node* node = graph->nodes[i];
      const bool ready = std::all_of(node->after.begin(), node->after.end(),
                                     [&](Graph::Node* n) { return done.contains(n); });
      if (!ready || !done.insert(node).second) continue;
      made->works.push_back(node->work);
      made->modules.insert(node->module);
      break;
    }
  state().execs.insert(*exec = made.release());
  return kOk;
}
int cuGraphLaunch(GraphExec* exec, Stream* stream) {
  ENTER();
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  if (!state().execs.contains(exec)) return violate("a graph that is none", kInvalidHandle);
  for (Module* module : exec->modules) ++module->pending;
  ++exec->pending;
  for (const auto& work : exec->works) stream->work.push_back(work);
  stream->work.push_back([exec] {
    for (Module* module : exec->modules) --module->pending;
    if (--exec->pending == 0 && exec->destroyed) delete exec;
    return kOk;
  });
  return kOk;
}
int cuGraphExecDestroy(GraphExec* exec) {
  ENTER();
  if (state().execs.erase(exec) == 0) return violate("a graph that is none", kInvalidHandle);
  exec->destroyed = true;
  if (exec->pending == 0) delete exec;
  return kOk;
}
#endif

}  // extern "C"
