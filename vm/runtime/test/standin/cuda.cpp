// A library that answers as NVIDIA's driver does, on the host's memory, for tests on machines that
// have no GPU.
//
// It does what it is asked as late as the driver may: copies and kernels wait in their stream until
// somebody waits for it, so that memory which is used too early or given back too early shows. The
// device's addresses are none of the host's: to touch them without a copy is a fault. Each call is
// checked as far as the driver's rules say what is right; what is not is noted (violations()) and
// refused.
//
// Here are what tests ask, the driver, its devices and contexts; cuda_memory.cpp, cuda_stream.cpp,
// cuda_launch.cpp and cuda_graph.cpp have the rest.
#include "vm/runtime/test/standin/cuda.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "vm/runtime/test/standin/cuda_state.h"

namespace standin::cuda {

namespace {

thread_local int current = 0;  // the generation of the context that is current

}  // namespace

State& state() {
  static State& s = *new State;
  return s;
}

int violate(const std::string& what, int result) {
  return state().calls.violate(what, result);
}

int enter(const char* name, bool needs_context) {
  State& s = state();
  if (const int result = s.calls.enter(name)) {
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

namespace {

void reset() {
  State& s = state();
  const std::lock_guard lock(s.calls.mutex());
  s.version = kVersion;
  s.devices = 1;
  s.capability = 90;
  s.name = "Stand-in GPU";
  s.tick = 1;
  s.resident = 1;
  s.calls.reset();
}
void set(int version, int devices, int capability) {
  State& s = state();
  s.version = version;
  s.devices = devices;
  s.capability = capability;
}
void rename(const char* name) {
  state().name = name;
}
void add_kernel(const char* name, int pointers, int symbols, StandInKernel kernel) {
  state().kernels[name] = {pointers, symbols, false, kernel};
}
void add_stepped_kernel(const char* name, int pointers, int symbols, StandInKernel kernel) {
  state().kernels[name] = {pointers, symbols, true, kernel};
}
void hold_blocks(int blocks) {
  state().resident = blocks;
}
void expect_maps(const char* name, int maps) {
  state().kernels.at(name).maps = maps;
}
void fail(const char* function, int nth, int result) {
  state().calls.fail(function, nth, result);
}
int calls(const char* function) {
  return state().calls.count(function);
}
const char* violations() {
  return state().calls.violations();
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
  const std::lock_guard lock(state().calls.mutex());
  if (on_device(address, bytes)) return host_of(address);
  violate("a library gets memory that the device has not");
  return nullptr;
}
int add_work(void* stream, int (*run)(void*), void (*drop)(void*), void* what) {
  const std::shared_ptr<void> kept(what, drop);
  const std::lock_guard lock(state().calls.mutex());
  if (const int bad = enter("add_work")) return bad;
  return add_to_stream(
      static_cast<Stream*>(stream), [=] { return run(kept.get()); }, nullptr);
}

}  // namespace

extern "C" {

const StandInCuda* standin_cuda_table() {
  static const StandInCuda table = {{reset, fail, calls, violations, alive},
                                    set,
                                    add_kernel,
                                    add_stepped_kernel,
                                    hold_blocks,
                                    bytes,
                                    host_address,
                                    add_work,
                                    take,
                                    tick,
                                    expect_maps,
                                    rename};
  return &table;
}

int cuInit(unsigned) {
  State& s = state();
  const std::lock_guard lock(s.calls.mutex());
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
  std::strncpy(name, state().name.c_str(), static_cast<size_t>(bytes));
  return kOk;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(false);
  const int capability = state().capability;
  switch (attribute) {
    case 16:
      *value = kMultiprocessors;
      return kOk;
    case 33:  // of the bus: each card has one of its own
      *value = 0x3b + device;
      return kOk;
    case 34:
    case 50:
      *value = 0;
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
    case 95:
      *value = 1;
      return kOk;
    case 97:  // of 8.0, 9.0 and 10.0; others have less
      *value = (capability == 80 ? 163 : capability >= 90 && capability <= 103 ? 227 : 99) << 10;
      return kOk;
  }
  return violate("an attribute that is unknown here");
}
#ifndef NIMBLE_STANDIN_OLD
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  ENTER(false);
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(0xa0 + i);
  uuid[15] = static_cast<unsigned char>(device);  // each card has one of its own
  return kOk;
}
#endif
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
  for (Stream* stream : s.streams) {
    delete stream->capture;
    delete stream;
  }
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

}  // extern "C"

}  // namespace standin::cuda
