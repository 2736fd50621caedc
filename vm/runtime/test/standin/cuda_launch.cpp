// Modules, functions and launches of the stand-in for NVIDIA's driver.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "vm/runtime/test/standin/assembly.h"
#include "vm/runtime/test/standin/cuda_state.h"

namespace standin::cuda {

const Kernel* find_kernel(const std::string& name) {
  const std::map<std::string, Kernel>& all = state().kernels;
  auto at = all.find(name);
  if (at == all.end()) at = all.find("*");
  return at == all.end() ? nullptr : &at->second;
}

int prepare_launch(Function* function, const unsigned* grid, const unsigned* block, unsigned shared,
                   void** parameters, void** extra, Module** of, std::function<int()>* work,
                   bool together) {
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
  for (int i = 0; i < kernel.parameters(); ++i) {
    Address word = 0;
    std::memcpy(&word, parameters[i], sizeof word);
    words.push_back(word);
  }
  std::vector<TensorMap> maps(static_cast<size_t>(kernel.maps));
  for (size_t i = 0; i < maps.size(); ++i) {
    std::memcpy(&maps[i], parameters[words.size() + i], sizeof maps[i]);
    if (maps[i].mark != 0 && maps[i].mark != TensorMap::kMark)
      return violate("a parameter that is no tensor map");
  }
  const size_t scratch = static_cast<size_t>(kernel.pointers + kernel.symbols);
  const auto step_word = [&](size_t i) {
    return kernel.steps ? static_cast<int64_t>(words[scratch + 2 + i]) : 0;
  };
  const int64_t first_step = step_word(0), end_step = step_word(1);
  const Address meeting = kernel.steps ? words[scratch + 4] : 0;
  if (kernel.steps && (first_step < 0 || end_step <= first_step))
    return violate("a launch of no steps");
  if (!together && end_step - first_step > 1)
    return violate("steps of a grid whose blocks need not be there at once");
  if (together && !kernel.steps) return violate("blocks without steps that wait for each other");
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
    std::vector<StandInMap> described;
    for (const TensorMap& m : maps) {
      StandInMap& d = described.emplace_back();
      d = {m.type, m.rank, pointer(m.memory), {}, {}, {}, m.swizzle};
      std::copy(std::begin(m.extents), std::end(m.extents), d.extents);
      std::copy(std::begin(m.pitches), std::end(m.pitches), d.pitches);
      std::copy(std::begin(m.box), std::end(m.box), d.box);
    }
    const StandInLaunch launch = {{gx, gy, gz},
                                  bx,
                                  shared,
                                  pointers.data(),
                                  symbols.data(),
                                  pointer(words[scratch]),
                                  static_cast<int32_t*>(pointer(words[scratch + 1])),
                                  described.data(),
                                  first_step,
                                  end_step,
                                  together};
    if (together) {
      const auto* met = static_cast<const uint32_t*>(pointer(meeting));
      if (!met || (*met & 0x7fffffff) != 0) violate("a word to meet at that was not cleared");
    }
    return kernel.run(launch);
  };
  return kOk;
}

namespace {

int launch(Function* function, const std::array<unsigned, 3>& grid,
           const std::array<unsigned, 3>& block, unsigned shared, Stream* stream, void** parameters,
           void** extra, bool together) {
  Module* module = nullptr;
  std::function<int()> work;
  if (const int bad = prepare_launch(function, grid.data(), block.data(), shared, parameters, extra,
                                     &module, &work, together))
    return bad;
  return add_to_stream(stream, std::move(work), module);
}

}  // namespace

extern "C" {

// The rules of the driver's manual, as far as our maps go.
int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* memory,
                           const uint64_t* extents, const uint64_t* pitches, const uint32_t* box,
                           const uint32_t* steps, int interleave, int swizzle, int promotion,
                           int fill) {
  ENTER();
  constexpr unsigned kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  const auto address = static_cast<Address>(reinterpret_cast<uintptr_t>(memory));
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0) return violate("a tensor map at no 64 bytes");
  if (type < 0 || type > 9 || rank < 1 || rank > 5 || interleave != 0 || promotion < 0 ||
      promotion > 3 || fill != 0)
    return violate("a tensor map of no kind that we make");
  if (address % 16 != 0) return violate("a tensor map of an address at no 16 bytes");
  if (swizzle < 1 || swizzle > 3 || box[0] * kBytes[type] > 16u << swizzle ||
      box[0] * kBytes[type] % 16 != 0)
    return violate("a box that is wider than its swizzle, or no pieces of 16 bytes");
  TensorMap made;
  uint64_t bytes = kBytes[type];
  for (uint32_t i = 0; i < rank; ++i) {
    if (extents[i] < 1 || extents[i] > uint64_t{1} << 32 || box[i] < 1 || box[i] > 256 ||
        steps[i] != 1)
      return violate("an axis that no tensor map has");
    if (i > 0) {
      if (pitches[i - 1] % 16 != 0 || pitches[i - 1] >= uint64_t{1} << 40 ||
          pitches[i - 1] != bytes)
        return violate("a pitch that no tensor map has, or not a dense one");
      made.pitches[i - 1] = pitches[i - 1];
    }
    bytes *= extents[i];
    made.extents[i] = extents[i];
    made.box[i] = box[i];
  }
  if (!on_device(address, bytes)) return violate("a tensor map of memory that the device has not");
  made.mark = TensorMap::kMark;
  made.memory = address;
  made.type = static_cast<uint16_t>(type);
  made.rank = static_cast<uint8_t>(rank);
  made.swizzle = static_cast<uint8_t>(swizzle);
  std::memset(map, 0, 128);
  std::memcpy(map, &made, sizeof made);
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
  if (!kernel) return kInvalidValue;
  const auto words = static_cast<size_t>(kernel->parameters());
  if (index >= words + static_cast<size_t>(kernel->maps)) return kInvalidValue;
  // Maps lie at multiples of 64.
  *offset = index < words ? 8 * index : (8 * words + 63) / 64 * 64 + 128 * (index - words);
  *bytes = index < words ? 8 : 128;
  return kOk;
}
#endif
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int threads,
                                                size_t shared) {
  ENTER();
  if (threads < 1 || threads > 1024) return violate("a block of no size it may have");
  if (shared > static_cast<size_t>(function->shared))
    return violate("more shared memory than the function may have");
  *blocks = state().resident;
  return kOk;
}
int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, Stream* stream, void** parameters,
                   void** extra) {
  ENTER();
  return launch(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, parameters, extra, false);
}
int cuLaunchCooperativeKernel(Function* function, unsigned gx, unsigned gy, unsigned gz,
                              unsigned bx, unsigned by, unsigned bz, unsigned shared,
                              Stream* stream, void** parameters) {
  ENTER();
  if (uint64_t{gx} * gy * gz > static_cast<uint64_t>(state().resident) * kMultiprocessors)
    return kTooManyBlocks;
  return launch(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, parameters, nullptr, true);
}

}  // extern "C"

}  // namespace standin::cuda
