// Calling a kernel whose arguments are bound: one parallel region of native code or of the library,
// or its portable form.
#include <algorithm>
#include <atomic>
#include <exception>

#include "vm/base/error.h"
#include "vm/interpreter/collapse.h"
#include "vm/interpreter/kernel.h"
#include "vm/interpreter/kernel_faults.h"
#include "vm/interpreter/library_arguments.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::rt {
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

// To wake another thread and wait for it.
constexpr uint64_t kStepsPerThread = 512;

// Long beside what it takes to begin a share or to take it from another thread.
constexpr int64_t kShareNs = 50'000;
// Scratch memory that more shares may take beyond what the threads take, for each thread: what
// they then touch should stay in its cache.
constexpr int64_t kMoreScratch = 64 << 10;

// The most shares for each thread that a call may be cut into.
int32_t most_shares(const KernelTarget& target, int32_t threads) {
  if (!target.divisible || threads == 1) return 1;
  constexpr int32_t kMost = ThreadPool::kMostShares;
  return target.max_threads > 0 ? std::min(kMost, target.max_threads / threads) : kMost;
}

// Bytes of scratch memory for so many shares.
int64_t scratch_for(const PreparedKernel& k, int32_t shares, KernelFrame* frame) {
  frame->symbols[k.symbols] = shares;
  return k.kernel->contract.scratch_bytes.evaluate1({frame->symbols.data(), size_t{k.symbols} + 1});
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
  for (const KernelTarget& target : k.targets) {
    if (target.routine)
      bytes += target.routine->make_ready(library_tensors(k, arguments, frame), shares);
    if (!target.device_routine) continue;
    static_cast<CudaDevice&>(*k.device).enter_quietly();
    if (std::string why; !target.device_routine->find(library_tensors(k, arguments, frame), &why))
      throw Error(Status::kUnsupported, kernel_text(k),
                  fmt::format("{} has nothing for these sizes ({})", target.library->name, why));
  }
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
  int32_t shares = most_shares(target, threads);
  if (k.uses_scratch) {
    int64_t bytes = scratch_for(k, threads, frame);
    // For as many as there may be at another time: a run that had enough memory has it again.
    for (const int64_t most = bytes + threads * kMoreScratch; shares > 1; shares /= 2) {
      const int64_t cut = scratch_for(k, threads * shares, frame);
      if (cut > most) continue;
      bytes = cut;
      break;
    }
    if (bytes < 0) [[unlikely]]
      fail_scratch(k, bytes);
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
    const bool cuttable = shares > 1;
    if (cuttable)
      shares = static_cast<int32_t>(std::clamp<int64_t>(target.last.ns() / kShareNs, 1, shares));
    int64_t ns = 0;
    pool.run(&native_body, &region, threads, shares, cuttable ? &ns : nullptr);
    if (cuttable) target.last.set(ns);
  } else {
    refuse_overlaps(k, arguments, frame);
    if (!ready) tensors = library_tensors(k, arguments, frame);
    size_t scalars = 0, values = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Value& v = arguments[i];
      if (v.is_scalar())
        frame->scalars[scalars++] = v.scalar;
      else if (!v.is(ObjectKind::kTensor))
        frame->values[values++] = static_cast<const Cell*>(v.object);
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
  return {target.implementation, threads, shares, ready};
}

}  // namespace nimble::rt
