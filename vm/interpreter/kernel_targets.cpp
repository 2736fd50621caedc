// Preparing a kernel: which implementation of it runs here, and what its contract asks of a call.
#include <algorithm>
#include <map>
#include <set>

#include "vm/base/error.h"
#include "vm/interpreter/kernel.h"
#include "vm/interpreter/kernel_faults.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::rt {
namespace {

using exec::ImplementationKind;
using exec::KernelArgument;
using Dim = PreparedKernel::Dim;

// Why a library's implementation cannot run here; "" if it can.
std::string missing_library(const exec::Kernel& kernel, const LibraryKernel* library,
                            bool trusted) {
  if (!library) return "this runtime does not know it";
  // A vendor's code checks nothing that the contract leaves open.
  if (library->kind == ImplementationKind::kVendor && !trusted)
    return "it runs only for a file that is trusted";
  if (is_gpu(kernel.device) != (library->prepare_on_gpu != nullptr))
    return fmt::format("it does not compute on the device \"{}\"", device_name(kernel.device));
  if (std::string bad = library->refusal(kernel.contract); !bad.empty()) return bad;
  return library->unavailable ? library->unavailable() : "";
}

// The kernel has a portable form: the verifier and Model::load_image() have looked.
void use_portable(const exec::Kernel& kernel, KernelTarget* target, PreparedKernel* out) {
  NIMBLE_CHECK(kernel.portable, "{}", kernel.name);
  if (!out->portable)
    out->portable =
        std::make_shared<PortableProgram>(*kernel.portable, kernel.contract, kernel_text(*out));
  target->portable = true;
  target->max_threads = 1;
  if (kernel.implementations[target->implementation].kind != ImplementationKind::kPortable)
    target->implementation = static_cast<uint32_t>(kernel.implementations.size());
}

// What starts on the GPU. The image of a target that the kernel was not tuned for has one function
// for it, under its own name.
void use_launch(const exec::Kernel& kernel, const exec::Implementation& impl,
                const FindOnDevice& find, const PreparedKernel& prepared, const std::string& place,
                KernelTarget* target) {
  const size_t parameters = launch_parameters(prepared, *impl.launch);
  uint32_t shared = 0;  // of all that are started under this symbol
  for (const exec::Implementation& i : kernel.implementations)
    if (i.launch && i.symbol == impl.symbol) shared = std::max(shared, i.launch->shared_bytes);
  target->launch = &*impl.launch;
  const size_t maps = impl.launch->maps.size();
  target->function = find(impl.symbol, shared, parameters, maps);
  if (!target->function) target->function = find(kernel.name, shared, parameters, maps);
  if (!target->function)
    throw Error(Status::kCorrupt, place,
                fmt::format("kernel {}: the GPU's code has no {}", kernel.name, impl.symbol),
                "compile the model again");
  if (impl.launch->steps)
    target->blocks_at_once =
        static_cast<CudaDevice&>(*prepared.device)
            .blocks_at_once(target->function, impl.launch->threads, impl.launch->shared_bytes);
}

// Of one kernel that are told: a file may have a hundred thousand implementations that cannot run.
constexpr size_t kMostNotes = 8;

// Makes the routines that implementations of one kernel describe.
class Routines {
 public:
  Routines(const exec::KernelContract& contract, Device& device)
      : contract_(contract), device_(device) {}

  // Where the library's kernel is such; why it cannot, else "".
  std::string prepare(const exec::Implementation& impl, KernelTarget* target) {
    if (!target->library->prepare && !target->library->prepare_on_gpu) return {};
    const auto [at, is_new] = known_.try_emplace({target->library, impl.config});
    Known& known = at->second;
    if (is_new && known_.size() > kMost)
      known.why = fmt::format("more than {} routines of vendors are told apart", kMost);
    else if (is_new)
      try {
        if (target->library->prepare)
          known.routine = target->library->prepare(impl.config, contract_);
        else  // of a kernel there: missing_library() has looked
          known.device_routine = target->library->prepare_on_gpu(impl.config, contract_,
                                                                 static_cast<CudaDevice&>(device_));
      } catch (const Error& e) {
        known.why = e.problem();
      }
    target->routine = known.routine;
    target->device_routine = known.device_routine;
    return known.why;
  }

 private:
  // The compiler writes one for each library. Each is compared with the whole contract, and a file
  // may have a hundred thousand.
  static constexpr size_t kMost = 16;
  struct Known {
    std::shared_ptr<VendorRoutine> routine;
    std::shared_ptr<DeviceRoutine> device_routine;
    std::string why;
  };
  const exec::KernelContract& contract_;
  Device& device_;
  std::map<std::pair<const LibraryKernel*, std::string_view>, Known> known_;
};

// Fills out->targets and, where needed, out->portable.
void resolve_targets(const exec::Kernel& kernel, const NativeCode& code, const std::string& place,
                     std::vector<std::string>* notes, PreparedKernel* out) {
  std::vector<std::string> missing(kernel.implementations.size());
  std::map<const LibraryKernel*, std::string> why;  // each looks at the whole contract: once
  Routines routines_of(kernel.contract, *out->device);
  // A form that the host runs is none for what lies on a GPU.
  const bool portable = kernel.portable && !is_gpu(kernel.device);
  const FindNative& find_native = code.host;
  for (size_t i = 0; i < kernel.implementations.size(); ++i) {
    const exec::Implementation& impl = kernel.implementations[i];
    KernelTarget target;
    target.max_threads = impl.max_threads;
    target.implementation = static_cast<uint32_t>(i);
    if (impl.launch && code.device) {
      use_launch(kernel, impl, code.device, *out, place, &target);
      out->launches = true;
      out->alignment = std::max(out->alignment, impl.launch->alignment);
    } else if (impl.kind == ImplementationKind::kPortable ||
               (!find_native && (impl.kind == ImplementationKind::kNative ||
                                 (impl.kind == ImplementationKind::kVendor && portable)))) {
      use_portable(kernel, &target, out);
    } else if (impl.kind == ImplementationKind::kNative) {
      target.native = find_native(impl.symbol);
      target.divisible = impl.divisible && target.native;
      // The image of a level that the kernel was not tuned for has one function for it, of which
      // nothing is known.
      if (!target.native) {
        target.native = find_native(kernel.name);
        target.max_threads = 0;
      }
      if (!target.native)
        throw Error(Status::kCorrupt, place,
                    fmt::format("kernel {}: the native code has no {}", kernel.name, impl.symbol),
                    "compile the model again");
    } else {
      target.library = find_library_kernel(impl.kind, impl.symbol);
      if (!target.library && impl.kind == ImplementationKind::kHost)
        throw Error(
            Status::kUnsupported, place,
            fmt::format("kernel {} needs {}, which this runtime lacks", kernel.name, impl.symbol),
            "use a runtime as new as the compiler");
      const auto [found, is_new] = why.try_emplace(target.library);
      // Nothing is a GPU's in a model that is not trusted.
      if (is_new)
        found->second =
            missing_library(kernel, target.library, find_native || is_gpu(kernel.device));
      missing[i] = found->second;
      if (missing[i].empty()) missing[i] = routines_of.prepare(impl, &target);
      out->launches |= target.device_routine != nullptr;
    }
    out->targets.push_back(std::move(target));
  }
  // What serves any shape stands in before what is ready for a few.
  size_t first_at = missing.size();
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing[i].empty() && (first_at == missing.size() || (out->targets[first_at].is_routine() &&
                                                              !out->targets[i].is_routine())))
      first_at = i;
  const auto first = missing.begin() + static_cast<long>(first_at);
  std::set<std::string_view> told;
  for (size_t i = 0; i < missing.size(); ++i) {
    if (missing[i].empty()) continue;
    const std::string& symbol = kernel.implementations[i].symbol;
    std::string stand_in = "its portable form";
    if (first != missing.end()) {
      const size_t at = static_cast<size_t>(first - missing.begin());
      out->targets[i] = out->targets[at];
      stand_in = kernel.implementations[at].symbol;
    } else if (portable) {
      use_portable(kernel, &out->targets[i], out);
    } else {
      throw Error(Status::kIncompatible, place,
                  fmt::format("kernel {} can only run as {}: {}", kernel.name, symbol, missing[i]),
                  find_native
                      ? "install it, or compile the model again: what stands in for it is made then"
                      : "compile the model with --portable=on, or set `trust` in the load "
                        "options if you trust where the file comes from");
    }
    if (told.size() < kMostNotes && told.insert(symbol).second)
      notes->push_back(fmt::format("kernel {}: {} is not available ({}); {} runs instead",
                                   kernel.name, symbol, missing[i], stand_in));
  }
  const bool routines = std::any_of(out->targets.begin(), out->targets.end(),
                                    [](const KernelTarget& t) { return t.is_routine(); });
  if (!routines) return;
  if (!out->targets[first_at].is_routine()) {
    out->stand_in = out->targets[first_at];
  } else if (portable) {
    out->stand_in = out->targets[first_at];
    out->stand_in->library = nullptr;
    out->stand_in->routine = nullptr;
    use_portable(kernel, &*out->stand_in, out);
  }
}

// The longest way from the root of a dispatch tree to a leaf; nodes lead to later ones only.
uint64_t depth_of(const exec::DispatchTree& tree) {
  std::vector<uint32_t> depth(tree.nodes.size(), 0);
  for (size_t i = tree.nodes.size(); i-- > 0;) {
    const exec::DispatchNode& n = tree.nodes[i];
    if (n.test != exec::DispatchNode::Test::kLeaf)
      depth[i] = 1 + std::max(depth[n.yes], depth[n.no]);
  }
  return depth.empty() ? 0 : depth[0];
}

// A dim whose program is one operation costs no more than its check; a requirement is a check more.
uint64_t contract_work(const exec::Kernel& kernel) {
  uint64_t work = depth_of(kernel.dispatch);
  auto add = [&](const exec::DimProgram& p) { work += p.code.size() > 1 ? p.code.size() : 0; };
  for (const KernelArgument& a : kernel.contract.arguments)
    for (const exec::DimProgram& p : a.dims) add(p);
  for (const exec::DimProgram& p : kernel.contract.requirements) add(p);
  add(kernel.contract.scratch_bytes);
  return work + kernel.contract.arguments.size() + kernel.contract.requirements.size();
}

}  // namespace

PreparedKernel prepare_kernel(const exec::Kernel& kernel, const NativeCode& code,
                              const std::string& place, std::vector<std::string>* notes) {
  PreparedKernel out;
  out.kernel = &kernel;
  out.device = &device(kernel.device);
  out.symbols = static_cast<uint32_t>(kernel.contract.symbols.size());
  std::vector<bool> bound(out.symbols, false);
  for (const KernelArgument& a : kernel.contract.arguments) {
    PreparedKernel::Argument p{a.kind,
                               a.access,
                               a.dtype,
                               static_cast<uint8_t>(a.dims.size()),
                               a.collapse_leading,
                               static_cast<uint32_t>(out.dims.size()),
                               a.symbol};
    if (a.kind == KernelArgument::Kind::kScalar) {
      p.binds = !bound[a.symbol];
      bound[a.symbol] = true;
    } else if (a.kind == KernelArgument::Kind::kTensor) {
      ++out.tensors;
      for (const exec::DimProgram& program : a.dims) {
        Dim d{Dim::Kind::kProgram, 0, 0, &program};
        if (program.is_constant(&d.value)) {
          d.kind = Dim::Kind::kConstant;
        } else if (program.is_argument(&d.symbol)) {
          d.kind = bound[d.symbol] ? Dim::Kind::kSymbol : Dim::Kind::kBind;
          bound[d.symbol] = true;
        }
        out.dims.push_back(d);
      }
    }
    out.arguments.push_back(p);
  }

  resolve_targets(kernel, code, place, notes, &out);
  int64_t scratch = -1;
  out.uses_scratch = !(kernel.contract.scratch_bytes.is_constant(&scratch) && scratch == 0);
  out.single = kernel.dispatch.nodes.size() == 1;
  for (const KernelTarget& target : out.targets) out.library |= target.library != nullptr;
  out.contract_steps = contract_work(kernel) / WorkMeter::kItemsPerStep;
  return out;
}

uint64_t PreparedKernel::memory() const {
  return sizeof *this + arguments.capacity() * sizeof(Argument) + dims.capacity() * sizeof(Dim) +
         targets.capacity() * sizeof(KernelTarget) + (portable ? portable->memory() : 0);
}

}  // namespace nimble::rt
