// What the stand-in for NVIDIA's driver knows, and how its functions begin. Internal to it:
// cuda.cpp tells what it is.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "vm/runtime/test/standin/calls.h"
#include "vm/runtime/test/standin/cuda.h"

namespace standin::cuda {

inline constexpr int kOk = 0, kInvalidValue = 1, kNotInitialized = 3, kNoDevice = 100,
                     kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
                     kInvalidHandle = 400, kNotFound = 500, kTooManyBlocks = 720,
                     kCaptureUnsupported = 900, kCaptureInvalidated = 901;
inline constexpr int kMultiprocessors = 132;
#ifdef NIMBLE_STANDIN_OLD
inline constexpr int kVersion = 12000;
#else
inline constexpr int kVersion = 13000;
#endif
using Address = unsigned long long;
// Not canonical on x86-64, the kernel's on ARM: no host reads it.
inline constexpr Address kDevice = Address{1} << 55;

struct Kernel {
  int pointers = 0, symbols = 0;
  bool steps = false;
  StandInKernel run = nullptr;
  int maps = 0;

  int parameters() const { return pointers + symbols + 2 + (steps ? 3 : 0); }
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
  struct Graph* capture = nullptr;  // into which it is captured now
  std::thread::id captured_by;
  bool spoiled = false;  // by what no graph may have
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
    std::set<Module*> modules;
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
struct State {
  StandInCalls calls;
  int version = kVersion, devices = 1, capability = 90;
  std::string name = "Stand-in GPU";
  pid_t process = 0;
  bool initialized = false;
  int contexts = 0, generation = 1, sticky = 0;
  int resident = 1;           // blocks on a multiprocessor
  float clock = 0, tick = 1;  // milliseconds; what each piece of work takes
  // Both as the host sees them: these are the pointers that LeakSanitizer looks for.
  std::map<uint8_t*, size_t> memory, pinned;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Module*> modules;
  std::set<Graph*> graphs;
  std::set<GraphExec*> execs;
  std::map<std::string, Kernel> kernels;
};
State& state();

// Notes what is against the rules.
int violate(const std::string& what, int result = kInvalidValue);
// Counts a call; its result if it is to fail, or may not be made.
int enter(const char* name, bool needs_context = true);
#define ENTER(...)                                   \
  const std::lock_guard lock(state().calls.mutex()); \
  if (const int bad = enter(__func__ __VA_OPT__(, ) __VA_ARGS__)) return bad

// ---- memory

uint8_t* host_of(Address a);
// Whether the device has these bytes, in one allocation or pinned.
bool on_device(Address at, size_t bytes);

// ---- streams

bool is_sticky(int result);
// Of a stream that does what it is told: kOk. What is done to one that is captured is noted, and
// spoils it.
int expect_plain(Stream* stream);
// Of a call that the driver does not make while its thread captures: kOk where it does not.
int expect_no_capture(const char* name);
// Kernels' work behind what the stream has: to be done, or into the graph that it is captured into.
int add_to_stream(Stream* stream, std::function<int()> work, Module* module);
// Does what waits in a stream, or in all of them.
int drain(Stream* stream);
int drain_all();

// ---- launches

// What the stand-in makes of a tensor, in as many bytes as the driver does.
struct TensorMap {
  static constexpr uint64_t kMark = 0x70616d2d726f7365;
  uint64_t mark = 0;
  Address memory = 0;
  uint64_t extents[5] = {}, pitches[4] = {};
  uint32_t box[5] = {};
  uint16_t type = 0;
  uint8_t rank = 0, swizzle = 0;
};
static_assert(sizeof(TensorMap) <= 128);

// The kernel of a name, or the one that computes any; nullptr if there is none.
const Kernel* find_kernel(const std::string& name);
// Checks a launch, and makes of it what the stream will do. `together`: its blocks may wait for
// each other.
int prepare_launch(Function* function, const unsigned* grid, const unsigned* block, unsigned shared,
                   void** parameters, void** extra, Module** of, std::function<int()>* work,
                   bool together = false);

}  // namespace standin::cuda
