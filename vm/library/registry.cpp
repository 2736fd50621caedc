#include "vm/library/registry.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "vm/base/error.h"
#include "vm/executable/vendor_routines.h"
#include "vm/library/host_operators.h"
#include "vm/library/vendor_kernels.h"
#include "vm/runtime/fork.h"

namespace nimble::rt {
namespace {

struct Registry {
  ForkSafeLock lock;
  std::map<std::string, std::unique_ptr<LibraryKernel>, std::less<>> kernels;
};

std::vector<LibraryKernel> vendor_kernels() {
  void (*const bind[])(LibraryKernel*) = {
#define NIMBLE_VENDOR_ROUTINE(library, routine, ...) bind_##library##_##routine,
#include "vm/executable/VendorRoutines.def"
#undef NIMBLE_VENDOR_ROUTINE
  };
  std::vector<LibraryKernel> out;
  for (const exec::VendorRoutineInfo& row : exec::all_vendor_routines()) {
    LibraryKernel k;
    k.name = row.name;
    k.kind = exec::ImplementationKind::kVendor;
    k.signature = row.signature;
    k.summary = row.summary;
    bind[out.size()](&k);
    out.push_back(std::move(k));
  }
  return out;
}

// Filled at first use: a static library's own initialisers might be dropped by the linker.
Registry& registry() {
  static Registry* const r = [] {
    auto* made = new Registry;
    for (LibraryKernel& k : host_operators())
      made->kernels.emplace(k.name, std::make_unique<LibraryKernel>(k));
    for (auto family : {selection_operators, ordering_operators, linearise_operators,
                        scatter_operators, vendor_kernels})
      for (LibraryKernel& k : family())
        made->kernels.emplace(k.name, std::make_unique<LibraryKernel>(k));
    return made;
  }();
  return *r;
}

}  // namespace

const LibraryKernel* find_library_kernel(exec::ImplementationKind kind, std::string_view name) {
  Registry& r = registry();
  std::lock_guard guard(r.lock);
  const auto it = r.kernels.find(name);
  return it != r.kernels.end() && it->second->kind == kind ? it->second.get() : nullptr;
}

std::vector<const LibraryKernel*> library_kernels() {
  Registry& r = registry();
  std::lock_guard guard(r.lock);
  std::vector<const LibraryKernel*> all;
  for (const auto& [name, kernel] : r.kernels) all.push_back(kernel.get());
  return all;
}

void add_library_kernel(LibraryKernel kernel) {
  NIMBLE_CHECK(
      kernel.prepare || kernel.prepare_on_gpu || ((kernel.check || kernel.rule) && kernel.run),
      "{}", kernel.name);
  Registry& r = registry();
  std::lock_guard guard(r.lock);
  const std::string name = kernel.name;
  if (!r.kernels.emplace(name, std::make_unique<LibraryKernel>(std::move(kernel))).second)
    throw Error(Status::kInvalidArgument, "",
                fmt::format("a kernel {} is registered already", name), "choose another name");
}

std::string ContractRule::broken_by(const exec::KernelContract& contract) const {
  using Kind = exec::KernelArgument::Kind;
  const exec::KernelArgument* first = nullptr;
  const exec::KernelArgument* same = nullptr;  // the first of those of one dtype
  size_t n = 0, scalars_given = 0, values_given = 0;
  for (const exec::KernelArgument& a : contract.arguments) {
    scalars_given += a.kind == Kind::kScalar;
    values_given += a.kind == Kind::kData;
    if (a.kind != Kind::kTensor) continue;
    if (!first) first = &a;
    if (n >= tensors.size() && !more) return "it has more tensors than its signature";
    const TensorRule& rule = tensors[std::min(n, tensors.size() - 1)];
    if (a.access != rule.access) return fmt::format("tensor {} has the wrong direction", n);
    if (rule.type == TensorRule::Type::kFixed && a.dtype != rule.dtype)
      return fmt::format("tensor {} is {}, not {}", n, name_of(a.dtype), name_of(rule.dtype));
    if (rule.type == TensorRule::Type::kSame) {
      if (!same) same = &a;
      if (a.dtype != same->dtype)
        return fmt::format("tensor {} has the dtype {}, another has {}", n, name_of(a.dtype),
                           name_of(same->dtype));
    }
    const auto rank = static_cast<int>(a.dims.size());
    if (rank < rule.min_rank || rank > rule.max_rank ||
        (rule.rank_of_first && a.dims.size() != first->dims.size()))
      return fmt::format("tensor {} has {} dims", n, rank);
    ++n;
  }
  if (n < tensors.size() - (more ? 1 : 0)) return "it lacks tensors of its signature";
  if (scalars_given < scalars) return "it is not told its parameters";
  if (values_given != values)
    return fmt::format("{} data-type values given, {} expected", values_given, values);
  return {};
}

std::string LibraryKernel::refusal(const exec::KernelContract& contract) const {
  if (rule)
    if (std::string bad = rule->broken_by(contract); !bad.empty()) return bad;
  return check ? check(contract) : "";
}

}  // namespace nimble::rt
