#include "vm/interpreter/kernel.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>

#include "vm/base/error.h"
#include "vm/executable/check_status.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::ImplementationKind;
using exec::KernelArgument;
using Dim = PreparedKernel::Dim;

std::string kernel_text(const PreparedKernel& k) {
  return k.kernel->source.empty() ? fmt::format("kernel {}", k.kernel->name)
                                  : fmt::format("kernel {} ({})", k.kernel->name, k.kernel->source);
}

[[noreturn, gnu::cold]] void fail_kind(const PreparedKernel& k, size_t argument,
                                       std::string_view expected, std::string_view actual) {
  throw Error(Status::kFatal, "",
              fmt::format("{}: argument {} must be a {}, it is a {}", kernel_text(k), argument,
                          expected, actual),
              "report it: the program passes a wrong kind of value");
}

std::string_view kind_of(const Value& v) {
  if (v.is_scalar()) return "scalar";
  return v.is_object() ? name_of(v.object->kind) : "register without a value";
}

// Expected shape as text, "(2, n = 5, ?)", with what is bound so far.
std::string expected_shape(const PreparedKernel& k, const PreparedKernel::Argument& a,
                           std::span<const int64_t> symbols) {
  std::vector<std::string> parts;
  for (int i = 0; i < a.rank; ++i) {
    const Dim& d = k.dims[a.first_dim + i];
    switch (d.kind) {
      case Dim::Kind::kConstant:
        parts.push_back(std::to_string(d.value));
        break;
      case Dim::Kind::kBind:
        parts.push_back(k.kernel->contract.symbols[d.symbol]);
        break;
      case Dim::Kind::kSymbol:
        parts.push_back(
            fmt::format("{} = {}", k.kernel->contract.symbols[d.symbol], symbols[d.symbol]));
        break;
      case Dim::Kind::kProgram: {
        std::string value = "?";
        try {
          value = std::to_string(d.program->evaluate1(symbols));
        } catch (const Error&) {  // the message is about the shape; overflow has its own
        }
        parts.push_back(fmt::format("{} = {}", d.program->str(), value));
        break;
      }
    }
  }
  return fmt::format("({})", fmt::join(parts, ", "));
}

[[noreturn, gnu::cold]] void fail_tensor(const PreparedKernel& k, size_t argument,
                                         const Tensor& tensor, std::span<const int64_t> symbols) {
  const PreparedKernel::Argument& a = k.arguments[argument];
  throw Error(Status::kFatal, "",
              fmt::format("{}: argument {} must be {} {}, it is {} ({})", kernel_text(k), argument,
                          name_of(a.dtype), expected_shape(k, a, symbols), name_of(tensor.dtype),
                          fmt::join(tensor.shape(), ", ")),
              "give inputs whose extents agree");
}

[[noreturn, gnu::cold]] void fail_device(const PreparedKernel& k, size_t argument,
                                         const Tensor& tensor) {
  throw Error(
      Status::kFatal, "",
      fmt::format("{}: argument {} lies on device {} ({}), the kernel runs on device {} ({})",
                  kernel_text(k), argument, tensor.storage->device,
                  device_name(tensor.storage->device), k.device->number(), k.device->name()),
      "report it: the program lacks a copy between devices");
}

[[noreturn, gnu::cold]] void fail_scalar(const PreparedKernel& k, size_t argument, int64_t expected,
                                         int64_t actual) {
  throw Error(
      Status::kFatal, "",
      fmt::format("{}: argument {} must be {} = {}, it is {}", kernel_text(k), argument,
                  k.kernel->contract.symbols[k.arguments[argument].symbol], expected, actual),
      "report it: the program passes a wrong extent");
}

[[noreturn, gnu::cold]] void fail_requirement(const PreparedKernel& k,
                                              const exec::DimProgram& program,
                                              std::span<const int64_t> symbols) {
  std::vector<std::string> values;
  for (uint32_t i = 0; i < k.symbols; ++i) values.push_back(fmt::format("a{} = {}", i, symbols[i]));
  throw Error(Status::kFatal, "",
              fmt::format("{}: its arguments' extents ({}) break {}", kernel_text(k),
                          fmt::join(values, ", "), program.str()),
              "give inputs whose extents agree");
}

[[noreturn, gnu::cold]] void fail_overlap(const PreparedKernel& k, size_t a, size_t b) {
  throw Error(Status::kFatal, "",
              fmt::format("{}: arguments {} and {} share memory, which it writes", kernel_text(k),
                          std::min(a, b), std::max(a, b)),
              "report it: the memory plan is wrong");
}

[[noreturn, gnu::cold]] void fail_memory(const PreparedKernel& k, size_t argument,
                                         const Tensor& tensor) {
  throw Error(Status::kFatal, "",
              fmt::format("{}: argument {} {}", kernel_text(k), argument,
                          tensor.data() ? "would be written but is a constant or an input"
                                        : "lies in a storage that was freed"),
              "report it: the memory plan is wrong");
}

}  // namespace

namespace {

// Why a library's implementation cannot run here; "" if it can.
std::string missing_library(const exec::Kernel& kernel, const LibraryKernel* library,
                            bool trusted) {
  if (!library) return "this runtime does not know it";
  // A vendor's code checks nothing that the contract leaves open.
  if (library->kind == ImplementationKind::kVendor && !trusted)
    return "it runs only for a file that is trusted";
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

// Of one kernel that are told: a file may have a hundred thousand implementations that cannot run.
constexpr size_t kMostNotes = 8;

// Makes the routines that implementations of one kernel describe.
class Routines {
 public:
  explicit Routines(const exec::KernelContract& contract) : contract_(contract) {}

  // Where the library's kernel is such; why it cannot, else "".
  std::string prepare(const exec::Implementation& impl, KernelTarget* target) {
    if (!target->library->prepare) return {};
    const auto [at, is_new] = known_.try_emplace({target->library, impl.config});
    Known& known = at->second;
    if (is_new && known_.size() > kMost)
      known.why = fmt::format("more than {} routines of vendors are told apart", kMost);
    else if (is_new)
      try {
        known.routine = target->library->prepare(impl.config, contract_);
      } catch (const Error& e) {
        known.why = e.problem();
      }
    target->routine = known.routine;
    return known.why;
  }

 private:
  // The compiler writes one for each library. Each is compared with the whole contract, and a file
  // may have a hundred thousand.
  static constexpr size_t kMost = 16;
  struct Known {
    std::shared_ptr<VendorRoutine> routine;
    std::string why;
  };
  const exec::KernelContract& contract_;
  std::map<std::pair<const LibraryKernel*, std::string_view>, Known> known_;
};

// Fills out->targets and, where needed, out->portable.
void resolve_targets(const exec::Kernel& kernel, const FindNative& find_native,
                     const std::string& place, std::vector<std::string>* notes,
                     PreparedKernel* out) {
  std::vector<std::string> missing(kernel.implementations.size());
  std::map<const LibraryKernel*, std::string> why;  // each looks at the whole contract: once
  Routines routines_of(kernel.contract);
  for (size_t i = 0; i < kernel.implementations.size(); ++i) {
    const exec::Implementation& impl = kernel.implementations[i];
    KernelTarget target;
    target.max_threads = impl.max_threads;
    target.implementation = static_cast<uint32_t>(i);
    if (impl.kind == ImplementationKind::kPortable ||
        (!find_native && (impl.kind == ImplementationKind::kNative ||
                          (impl.kind == ImplementationKind::kVendor && kernel.portable)))) {
      use_portable(kernel, &target, out);
    } else if (impl.kind == ImplementationKind::kNative) {
      target.native = find_native(impl.symbol);
      // The image of a level that the kernel was not tuned for has one function for it.
      if (!target.native) target.native = find_native(kernel.name);
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
      if (is_new) found->second = missing_library(kernel, target.library, bool{find_native});
      missing[i] = found->second;
      if (missing[i].empty()) missing[i] = routines_of.prepare(impl, &target);
    }
    out->targets.push_back(std::move(target));
  }
  // What serves any shape stands in before what is ready for a few.
  size_t first_at = missing.size();
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing[i].empty() && (first_at == missing.size() ||
                               (out->targets[first_at].routine && !out->targets[i].routine)))
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
    } else if (kernel.portable) {
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
                                    [](const KernelTarget& t) { return t.routine != nullptr; });
  if (!routines) return;
  if (!out->targets[first_at].routine) {
    out->stand_in = out->targets[first_at];
  } else if (kernel.portable) {
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

PreparedKernel prepare_kernel(const exec::Kernel& kernel, const FindNative& find_native,
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

  resolve_targets(kernel, find_native, place, notes, &out);
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

namespace {

// The most that one kernel of a model has of each.
struct Most {
  explicit Most(std::span<const PreparedKernel> kernels) {
    for (const PreparedKernel& k : kernels) {
      if (k.library) of_library = std::max<size_t>(of_library, k.tensors);
      tensors = std::max<size_t>(tensors, k.tensors);
      symbols = std::max<size_t>(symbols, k.symbols);
      others = std::max(others, k.arguments.size() - k.tensors);
    }
  }
  size_t tensors = 0, of_library = 0, symbols = 0, others = 0;
};

}  // namespace

void KernelFrame::reserve(std::span<const PreparedKernel> kernels) {
  const Most most(kernels);
  buffers.resize(most.tensors);
  tensors.resize(most.of_library);
  ranges.resize(most.of_library);
  collapsed.resize(most.of_library);
  portable_buffers.resize(most.tensors);
  scalars.resize(most.others);
  values.resize(most.others);
  symbols.resize(most.symbols + 1);
}

uint64_t KernelFrame::memory(std::span<const PreparedKernel> kernels) {
  const Most most(kernels);
  return most.tensors * (sizeof(void*) + sizeof(PortableBuffer)) +
         most.of_library * (sizeof tensors[0] + sizeof ranges[0] + sizeof collapsed[0]) +
         most.others * (sizeof(int64_t) + sizeof(const Cell*)) +
         (most.symbols + 1) * sizeof(int64_t);
}

void* Scratch::at_least(uint64_t bytes) {
  if (bytes > block_.bytes) {
    drop();
    block_ = pool_.allocate(bytes);
  }
  return block_.data;
}

void Scratch::drop() {
  pool_.release(block_);
  block_ = {};
}

namespace {

// The first dim of a contract that collapses the `surplus` leading axes of `t` into it; false if it
// exceeds 63 bits.
bool try_collapse(const Tensor& t, int surplus, int64_t* extent) {
  *extent = t.extents[surplus];
  for (int e = 0; e < surplus; ++e)
    if (__builtin_mul_overflow(*extent, t.extents[e], extent)) return false;
  return true;
}

}  // namespace

void bind_arguments(const PreparedKernel& k, std::span<const Value> arguments, KernelFrame* frame) {
  int64_t* symbols = frame->symbols.data();
  void** buffer = frame->buffers.data();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const PreparedKernel::Argument& a = k.arguments[i];
    const Value& v = arguments[i];
    if (a.kind == KernelArgument::Kind::kScalar) {
      if (!v.is_scalar()) [[unlikely]]
        fail_kind(k, i, "scalar", kind_of(v));
      if (!a.binds && symbols[a.symbol] != v.scalar) [[unlikely]]
        fail_scalar(k, i, symbols[a.symbol], v.scalar);
      symbols[a.symbol] = v.scalar;
      continue;
    }
    if (a.kind == KernelArgument::Kind::kData) {
      if (!v.is(ObjectKind::kAdt)) [[unlikely]]
        fail_kind(k, i, "data-type value", kind_of(v));
      continue;
    }
    if (!v.is(ObjectKind::kTensor)) [[unlikely]]
      fail_kind(k, i, "tensor", kind_of(v));
    const Tensor& t = *static_cast<const Tensor*>(v.object);
    const int surplus = t.rank - a.rank;
    if (t.dtype != a.dtype || surplus < 0 || (surplus > 0 && !a.collapse)) [[unlikely]]
      fail_tensor(k, i, t, frame->symbols);
    const Dim* dim = k.dims.data() + a.first_dim;
    for (int d = 0; d < a.rank; ++d, ++dim) {
      int64_t expected = 0;
      int64_t extent = t.extents[d + surplus];
      // Only the product of an empty tensor's other extents can exceed 63 bits.
      if (d == 0 && surplus > 0 && !try_collapse(t, surplus, &extent)) [[unlikely]]
        fail_tensor(k, i, t, frame->symbols);
      switch (dim->kind) {
        case Dim::Kind::kBind:
          symbols[dim->symbol] = extent;
          continue;
        case Dim::Kind::kSymbol:
          expected = symbols[dim->symbol];
          break;
        case Dim::Kind::kConstant:
          expected = dim->value;
          break;
        case Dim::Kind::kProgram:
          expected = dim->program->evaluate1(frame->symbols);
          break;
      }
      if (extent != expected) [[unlikely]]
        fail_tensor(k, i, t, frame->symbols);
    }
    uint8_t* data = t.data();
    if (!data || (a.access != Access::kIn && !t.storage->writable())) [[unlikely]]
      fail_memory(k, i, t);
    if (t.storage->device != k.device->number() && device_checks()) [[unlikely]]
      fail_device(k, i, t);
    *buffer++ = data;
  }
  for (const exec::DimProgram& p : k.kernel->contract.requirements)
    if (p.evaluate1(frame->symbols) == 0) [[unlikely]]
      fail_requirement(k, p, frame->symbols);
}

namespace {

// What the threads of a region share.
struct Region {
  nimble_kernel_args args;
  nimble_kernel_fn native = nullptr;
  const LibraryKernel* library = nullptr;
  const ReadyCall* ready = nullptr;  // of the library's, if it is a routine
  LibraryCall call;
  ThreadPool* pool = nullptr;
  std::atomic<int32_t> status{0};
  std::atomic_flag failed;
  std::exception_ptr error;
};

void native_body(void* context, int32_t thread, int32_t threads, nimble_barrier* barrier) {
  Region& r = *static_cast<Region*>(context);
  const int32_t status = r.native(&r.args, thread, threads, barrier);
  if (status != 0) [[unlikely]] {
    r.status.store(status, std::memory_order_relaxed);
    if (threads > 1) r.pool->barrier().abandon();
  }
}

void library_body(void* context, int32_t thread, int32_t threads, nimble_barrier* barrier) {
  Region& r = *static_cast<Region*>(context);
  try {
    if (r.ready)
      r.ready->run(r.call, thread, threads);
    else
      r.library->run(r.call, thread, threads, barrier);
  } catch (...) {
    if (!r.failed.test_and_set()) r.error = std::current_exception();
    if (threads > 1) r.pool->barrier().abandon();
  }
}

[[noreturn, gnu::cold]] void fail_check(const PreparedKernel& k, int32_t status,
                                        std::span<const int64_t> symbols) {
  std::string problem;
  if (k.texts)
    for (const std::string& text : *k.texts)
      if (exec::check_status(text) == status) problem = text;
  if (problem.empty())
    problem = fmt::format(
        "a check of the kernel failed with code {}, such as an index out of range", status);
  std::string extents;
  for (size_t i = 0; i < symbols.size(); ++i)
    extents += fmt::format("{}{} = {}", i ? ", " : "; ", k.kernel->contract.symbols[i], symbols[i]);
  throw Error(Status::kFatal, "", fmt::format("{}: {}{}", kernel_text(k), problem, extents),
              "check the values of the inputs");
}

// The bytes of a tensor whose shape the contract has accepted: they lie in its storage.
uint64_t bytes_of(const Tensor& t) {
  uint64_t bytes = size_of(t.dtype);
  for (const int64_t extent : t.shape()) {
    if (extent == 0) return 0;
    bytes *= static_cast<uint64_t>(extent);
  }
  return bytes;
}

void run_portable(const PreparedKernel& k, std::span<const Value> arguments, Scratch& scratch,
                  KernelFrame* frame) {
  size_t n = 0;
  for (const Value& v : arguments)
    if (v.is(ObjectKind::kTensor)) {
      const Tensor& t = *static_cast<const Tensor*>(v.object);
      frame->portable_buffers[n++] = {t.data(), bytes_of(t)};
    }
  const std::span<const int64_t> symbols(frame->symbols.data(), k.symbols);
  const uint64_t bytes = k.portable->scratch_bytes(symbols);
  if (bytes > 0) frame->meter.charge_bytes(bytes);  // it is cleared
  auto* space = bytes > 0 ? static_cast<uint8_t*>(scratch.at_least(bytes)) : nullptr;
  const KernelScope open(*k.device);  // its memory may be closed to the host otherwise
  const int32_t status = k.portable->run({frame->portable_buffers.data(), n}, symbols, space,
                                         &frame->portable, &frame->meter);
  if (status != 0) [[unlikely]]
    fail_check(k, status, symbols);
}

}  // namespace

namespace {

// The shape as the contract has accepted it, and as its verifier reasons about it.
std::span<const int64_t> contract_shape(const Tensor& t, uint8_t rank, CollapsedShape* space) {
  if (t.rank == rank) return t.shape();
  const int surplus = t.rank - rank;
  try_collapse(t, surplus, space->data());  // bind_arguments has looked
  std::copy_n(t.extents.begin() + surplus + 1, rank - 1, space->begin() + 1);
  return {space->data(), rank};
}

// To wake another thread and wait for it.
constexpr uint64_t kStepsPerThread = 512;

// Arguments up to which comparing them in pairs is faster than sorting.
constexpr size_t kFewArguments = 16;

// Where a tensor lies. `end` is `begin` if there is nothing in it.
KernelFrame::Range range_of(const Tensor& t, size_t argument, bool written) {
  const auto begin = reinterpret_cast<uintptr_t>(t.data());
  return {begin, begin + bytes_of(t), argument, written};
}

// Operators of the library assume that what they write is nobody else's. (Native code is trusted to
// stand what the compiler plans, and portable code checks each access.) `written`: the tensor that
// is argument `at`, among few.
void refuse_overlap(const PreparedKernel& k, std::span<const Value> arguments,
                    const Tensor& written, size_t at) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is(ObjectKind::kTensor) || i == at) continue;
    const Tensor& other = *static_cast<const Tensor*>(arguments[i].object);
    // What is written lies in a storage of a pool, whose memory is in no other.
    if (other.storage != written.storage) [[likely]]
      continue;
    const KernelFrame::Range a = range_of(written, at, true), b = range_of(other, i, false);
    if (std::max(a.begin, b.begin) < std::min(a.end, b.end)) [[unlikely]]
      fail_overlap(k, i, at);
  }
}

// The same for all that are written of many arguments.
[[gnu::noinline]] void refuse_overlaps(const PreparedKernel& k, std::span<const Value> arguments,
                                       KernelFrame* frame) {
  using Range = KernelFrame::Range;
  size_t n = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is(ObjectKind::kTensor)) continue;
    const Range r = range_of(*static_cast<const Tensor*>(arguments[i].object), i,
                             k.arguments[i].access != Access::kIn);
    if (r.begin < r.end) frame->ranges[n++] = r;
  }
  const std::span<Range> ranges(frame->ranges.data(), n);
  std::ranges::sort(ranges, {}, &Range::begin);
  // Of the ranges so far, those that reach farthest: of all, and of those that are written.
  const Range* last = nullptr;
  const Range* last_written = nullptr;
  for (const Range& r : ranges) {
    const Range* other = r.written ? last : last_written;
    if (other && r.begin < other->end) [[unlikely]]
      fail_overlap(k, other->argument, r.argument);
    if (!last || r.end > last->end) last = &r;
    if (r.written && (!last_written || r.end > last_written->end)) last_written = &r;
  }
}

// The tensors of a bound call as the library sees them.
std::span<const LibraryTensor> library_tensors(const PreparedKernel& k,
                                               std::span<const Value> arguments,
                                               KernelFrame* frame) {
  size_t n = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is(ObjectKind::kTensor)) continue;
    const Tensor& t = *static_cast<const Tensor*>(arguments[i].object);
    frame->tensors[n] = {t.dtype, contract_shape(t, k.arguments[i].rank, &frame->collapsed[n]),
                         t.data()};
    ++n;
  }
  return {frame->tensors.data(), n};
}

const KernelTarget& stand_in_of(const PreparedKernel& k, const KernelTarget& routine) {
  if (!k.stand_in)
    throw Error(Status::kUnsupported, "",
                fmt::format("{}: {} is not ready for these sizes, and nothing stands in for it",
                            kernel_text(k), routine.library->name),
                "compile the model again: what stands in for it is made then");
  return *k.stand_in;
}

}  // namespace

uint64_t make_ready(const PreparedKernel& k, std::span<const Value> arguments, int32_t shares,
                    KernelFrame* frame) {
  uint64_t bytes = 0;
  for (const KernelTarget& target : k.targets)
    if (target.routine)
      bytes += target.routine->make_ready(library_tensors(k, arguments, frame), shares);
  return bytes;
}

void forget_ready(const PreparedKernel& k) {
  for (const KernelTarget& target : k.targets)
    if (target.routine) target.routine->forget();
}

KernelCallResult run_kernel(const PreparedKernel& k, std::span<const Value> arguments,
                            int32_t threads, ThreadPool& pool, Scratch& scratch,
                            KernelFrame* frame) {
  const std::span<const int64_t> symbols(frame->symbols.data(), k.symbols);
  const uint32_t leaf =
      k.single ? k.kernel->dispatch.nodes[0].yes : k.kernel->dispatch.choose(symbols, threads);
  const KernelTarget* chosen = &k.targets[leaf];
  const ReadyCall* ready = nullptr;
  std::span<const LibraryTensor> tensors;
  if (chosen->routine) [[unlikely]] {
    tensors = library_tensors(k, arguments, frame);
    ready = chosen->routine->find(tensors);
    if (!ready) chosen = &stand_in_of(k, *chosen);
  }
  const KernelTarget& target = *chosen;
  if (target.portable) {
    run_portable(k, arguments, scratch, frame);
    return {target.implementation, 1};
  }
  if (target.max_threads > 0) threads = std::min(threads, target.max_threads);

  Region region;
  if (k.uses_scratch) {
    frame->symbols[k.symbols] = threads;
    const int64_t bytes =
        k.kernel->contract.scratch_bytes.evaluate1({frame->symbols.data(), size_t{k.symbols} + 1});
    if (bytes < 0) [[unlikely]]
      throw Error(Status::kFatal, "",
                  fmt::format("{} asks for {} bytes of scratch", kernel_text(k), bytes),
                  "report it: the kernel's contract is wrong");
    if (target.library && bytes > 0) frame->meter.charge_bytes(static_cast<uint64_t>(bytes));
    region.args.scratch = scratch.at_least(static_cast<uint64_t>(bytes));
  } else {
    region.args.scratch = nullptr;
  }
  region.pool = &pool;
  // A file that nobody trusts may ask for all threads for a few bytes.
  if (target.library && threads > 1) [[unlikely]]
    frame->meter.charge(kStepsPerThread * static_cast<uint64_t>(threads - 1));
  const KernelScope scope(*k.device);
  if (target.native) {
    region.native = target.native;
    region.args.version = NIMBLE_KERNEL_ABI_VERSION;
    region.args.buffer_count = k.tensors;
    region.args.buffers = frame->buffers.data();
    region.args.symbols = frame->symbols.data();
    pool.run(&native_body, &region, threads);
  } else {
    const bool few = arguments.size() <= kFewArguments;
    if (!few) [[unlikely]]
      refuse_overlaps(k, arguments, frame);
    if (!ready) tensors = library_tensors(k, arguments, frame);
    size_t scalars = 0, values = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Value& v = arguments[i];
      if (v.is(ObjectKind::kTensor)) {
        if (k.arguments[i].access != Access::kIn && few)
          refuse_overlap(k, arguments, *static_cast<const Tensor*>(v.object), i);
      } else if (v.is_object()) {
        frame->values[values++] = static_cast<const Cell*>(v.object);
      } else {
        frame->scalars[scalars++] = v.scalar;
      }
    }
    region.library = target.library;
    region.ready = ready;
    region.call = {tensors,
                   symbols,
                   {frame->scalars.data(), scalars},
                   region.args.scratch,
                   {frame->values.data(), values},
                   &frame->meter};
    pool.run(&library_body, &region, threads);
    if (region.error) std::rethrow_exception(region.error);
  }
  if (const int32_t status = region.status.load(std::memory_order_relaxed)) [[unlikely]]
    fail_check(k, status, symbols);
  return {target.implementation, threads, ready};
}

}  // namespace nimble::rt
