#include "vm/interpreter/replay.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

constexpr uint64_t kLine = 64;

uint64_t lines(uint64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

[[noreturn]] void refuse(const PreparedKernel& k, const char* what) {
  throw Error(Status::kUnsupported, "", fmt::format("{}: {}", k.kernel->name, what),
              "replay runs whose kernels are native ones and the library's, on the CPU");
}

}  // namespace

void KernelLog::clear() {
  calls_.clear();
  written_.clear();
  kept_.clear();
}

bool KernelLog::written(const uint8_t* data, uint64_t bytes) const {
  auto after = written_.upper_bound(data);
  return after != written_.begin() && std::prev(after)->second >= data + bytes;
}

void KernelLog::note_written(const uint8_t* data, uint64_t bytes) {
  const uint8_t *begin = data, *end = data + bytes;
  auto at = written_.upper_bound(begin);
  if (at != written_.begin() && std::prev(at)->second >= begin) --at;
  while (at != written_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = written_.erase(at);
  }
  written_[begin] = end;
}

void KernelLog::add(const PreparedKernel& k, std::span<const Value> arguments,
                    const KernelFrame& frame, const KernelCallResult& result) {
  Call call;
  const auto target = std::find_if(k.targets.begin(), k.targets.end(), [&](const auto& t) {
    return t.implementation == result.implementation;
  });
  if (target == k.targets.end() || target->portable) refuse(k, "its portable form ran");
  if (k.device->number() != kCpuDevice) refuse(k, "it runs on another device");
  call.native = target->native;
  call.library = target->library;
  call.ready = result.ready;
  call.threads = result.threads;
  call.shares_per_thread = result.shares_per_thread;
  call.symbols.assign(frame.symbols.begin(), frame.symbols.begin() + k.symbols);
  if (k.uses_scratch)
    call.scratch = static_cast<uint64_t>(
        k.kernel->contract.scratch_bytes.evaluate1({frame.symbols.data(), size_t{k.symbols} + 1}));
  std::vector<std::pair<const uint8_t*, uint64_t>> writes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Value& v = arguments[i];
    if (v.is_scalar()) {
      call.scalars.push_back(v.scalar);
      continue;
    }
    if (!v.is(ObjectKind::kTensor)) refuse(k, "it takes a value of a data type");
    const Tensor& t = *static_cast<const Tensor*>(v.object);
    Buffer b{t.data(), t.bytes(), t.storage->origin == Storage::Origin::kPool, t.dtype, {}};
    // The surplus leading axes of a contract that collapses them are multiplied into its first.
    const size_t rank = k.arguments[i].rank, surplus = t.rank - rank;
    for (size_t d = 0; d < rank; ++d) b.shape.push_back(t.extents[d + surplus]);
    for (size_t d = 0; d < surplus; ++d) b.shape[0] *= t.extents[d];
    const bool out = k.arguments[i].access != exec::Access::kIn;
    if (out) writes.emplace_back(b.data, b.bytes);
    if (b.moves && !out && !written(b.data, b.bytes)) {
      b.data = kept_.emplace_back(b.data, b.data + b.bytes).data();
      b.moves = false;
    }
    call.buffers.push_back(std::move(b));
  }
  for (const auto& [data, bytes] : writes)
    if (bytes > 0) note_written(data, bytes);
  calls_.push_back(std::move(call));
}

// A call as it will be made.
struct KernelReplay::Prepared {
  nimble_kernel_args args{};
  nimble_kernel_fn native = nullptr;
  const LibraryKernel* library = nullptr;
  const ReadyCall* ready = nullptr;
  int32_t threads = 1, shares_per_thread = 1;
  std::vector<void*> buffers;
  std::vector<int64_t> symbols, scalars;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<LibraryTensor> tensors;
  WorkMeter meter;
  LibraryCall call;
  ThreadPool* pool = nullptr;
  std::atomic<bool> failed{false};

  static void body(void* context, int32_t thread, int32_t threads, nimble_barrier* barrier) {
    Prepared& p = *static_cast<Prepared*>(context);
    bool good = false;
    if (p.native) {
      good = p.native(&p.args, thread, threads, barrier) == 0;
    } else {
      try {
        if (p.ready)
          p.ready->run(p.call, thread, threads);
        else
          p.library->run(p.call, thread, threads, barrier);
        good = true;
      } catch (...) {  // what failed here did not in the run: there is no message to keep
      }
    }
    if (good) return;
    p.failed.store(true, std::memory_order_relaxed);
    if (threads > 1) p.pool->barrier().abandon();
  }
};

KernelReplay::KernelReplay(const KernelLog& log, ThreadPool& pool) : pool_(pool) {
  // Stretches of the run's memory that touch or overlap stay together.
  std::vector<std::pair<const uint8_t*, const uint8_t*>> touched;
  uint64_t scratch = 0;
  for (const KernelLog::Call& c : log.calls_) {
    scratch = std::max(scratch, c.scratch);
    for (const KernelLog::Buffer& b : c.buffers)
      if (b.moves && b.bytes > 0) touched.emplace_back(b.data, b.data + b.bytes);
  }
  std::sort(touched.begin(), touched.end());
  const uint8_t* begin = nullptr;
  for (const auto& [from, to] : touched) {
    if (!begin || from > stretches_[begin].end) stretches_[begin = from].end = to;
    stretches_[begin].end = std::max(stretches_[begin].end, to);
  }
  // Each keeps its place in a page, which decides how the caches' sets are shared.
  constexpr uint64_t kPage = 4096;
  std::map<const uint8_t*, uint64_t> offsets;
  uint64_t size = 0;
  for (const auto& [from, stretch] : stretches_) {
    size = (size + kPage - 1) / kPage * kPage + reinterpret_cast<uintptr_t>(from) % kPage;
    offsets[from] = size;
    size += static_cast<uint64_t>(stretch.end - from);
  }
  const uint64_t scratch_at = lines(size);
  bytes_ = scratch_at + lines(scratch);
  if (bytes_ > 0) memory_ = static_cast<uint8_t*>(map_huge(bytes_));
  if (bytes_ > 0 && !memory_)
    throw Error(Status::kExhausted, "", fmt::format("no memory for {} bytes", bytes_),
                "use smaller inputs");
  std::fill_n(memory_, bytes_, uint8_t{0});  // its pages are there before the first run
  for (auto& [from, stretch] : stretches_) stretch.data = memory_ + offsets[from];

  for (const KernelLog::Call& c : log.calls_) {
    Prepared& p = *calls_.emplace_back(std::make_unique<Prepared>());
    p.native = c.native;
    p.library = c.library;
    p.ready = c.ready;
    p.threads = c.threads;
    p.shares_per_thread = c.shares_per_thread;
    p.symbols = c.symbols;
    p.scalars = c.scalars;
    p.pool = &pool;
    void* const work = c.scratch > 0 ? memory_ + scratch_at : nullptr;
    for (const KernelLog::Buffer& b : c.buffers) {
      const uint8_t* moved = b.moves ? at(b.data) : b.data;
      p.buffers.push_back(const_cast<uint8_t*>(moved ? moved : b.data));
      p.shapes.push_back(b.shape);
      p.tensors.push_back({b.dtype, p.shapes.back(), p.buffers.back()});
    }
    for (size_t i = 0; i < p.shapes.size(); ++i) p.tensors[i].shape = p.shapes[i];
    p.args = {NIMBLE_KERNEL_ABI_VERSION, static_cast<uint32_t>(p.buffers.size()), p.buffers.data(),
              p.symbols.data(), work};
    p.call = {p.tensors, p.symbols, p.scalars, work, {}, &p.meter};
  }
}

KernelReplay::~KernelReplay() {
  if (memory_) unmap_huge(memory_, bytes_);
}

const uint8_t* KernelReplay::at(const void* recorded) const {
  const auto* address = static_cast<const uint8_t*>(recorded);
  auto after = stretches_.upper_bound(address);
  if (after == stretches_.begin()) return nullptr;
  const auto& [begin, stretch] = *std::prev(after);
  return address < stretch.end ? stretch.data + (address - begin) : nullptr;
}

void KernelReplay::run() {
  for (const std::unique_ptr<Prepared>& p : calls_) {
    pool_.run(&Prepared::body, p.get(), p->threads, p->shares_per_thread);
    if (p->failed.load(std::memory_order_relaxed)) [[unlikely]]
      throw Error(Status::kFatal, "", "a kernel refused what it had taken in the run",
                  "report it: the replay is wrong");
  }
}

}  // namespace nimble::rt
