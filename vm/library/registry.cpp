#include "vm/library/registry.h"

#include <map>
#include <memory>
#include <mutex>

#include "vm/base/error.h"
#include "vm/library/host_operators.h"
#include "vm/library/onednn.h"

namespace nimble::rt {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<LibraryKernel>, std::less<>> kernels;
};

// Filled at first use: a static library's own initialisers might be dropped by the linker.
Registry& registry() {
  static Registry* const r = [] {
    auto* made = new Registry;
    for (LibraryKernel& k : host_operators())
      made->kernels.emplace(k.name, std::make_unique<LibraryKernel>(k));
    for (auto family :
         {selection_operators, ordering_operators, linearise_operators, scatter_operators})
      for (LibraryKernel& k : family())
        made->kernels.emplace(k.name, std::make_unique<LibraryKernel>(k));
    for (LibraryKernel& k : onednn_kernels())
      made->kernels.emplace(k.name, std::make_unique<LibraryKernel>(k));
    return made;
  }();
  return *r;
}

}  // namespace

const LibraryKernel* find_library_kernel(exec::ImplementationKind kind, std::string_view name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto it = r.kernels.find(name);
  return it != r.kernels.end() && it->second->kind == kind ? it->second.get() : nullptr;
}

std::vector<const LibraryKernel*> library_kernels() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::vector<const LibraryKernel*> all;
  for (const auto& [name, kernel] : r.kernels) all.push_back(kernel.get());
  return all;
}

void add_library_kernel(LibraryKernel kernel) {
  NIMBLE_CHECK(kernel.check && kernel.run, "{}", kernel.name);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const std::string name = kernel.name;
  if (!r.kernels.emplace(name, std::make_unique<LibraryKernel>(std::move(kernel))).second)
    throw Error(Status::kInvalidArgument, "",
                fmt::format("a kernel {} is registered already", name), "choose another name");
}

std::string check_arguments(const exec::KernelContract& contract,
                            std::span<const ArgumentRule> rules) {
  size_t n = 0;
  for (const exec::KernelArgument& a : contract.arguments) {
    if (a.kind != exec::KernelArgument::Kind::kTensor) continue;
    if (n < rules.size()) {
      const ArgumentRule& rule = rules[n];
      if (a.dtype != rule.dtype)
        return fmt::format("tensor {} is {}, not {}", n, name_of(a.dtype), name_of(rule.dtype));
      if (a.access != rule.access) return fmt::format("tensor {} has the wrong direction", n);
      if (a.dims.size() < rule.min_rank || a.dims.size() > rule.max_rank)
        return fmt::format("tensor {} has {} dims", n, a.dims.size());
    }
    ++n;
  }
  if (n != rules.size()) return fmt::format("{} tensors given, {} expected", n, rules.size());
  return {};
}

}  // namespace nimble::rt
