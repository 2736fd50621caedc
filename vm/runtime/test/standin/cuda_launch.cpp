// Modules, functions and launches of the stand-in for NVIDIA's driver.
#include <algorithm>
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
                   void** parameters, void** extra, Module** of, std::function<int()>* work) {
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

extern "C" {

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
int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, Stream* stream, void** parameters,
                   void** extra) {
  ENTER();
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  Module* module = nullptr;
  std::function<int()> work;
  if (const int bad =
          prepare_launch(function, grid, block, shared, parameters, extra, &module, &work))
    return bad;
  return add_to_stream(stream, std::move(work), module);
}

}  // extern "C"

}  // namespace standin::cuda
