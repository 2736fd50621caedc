#include "vm/runtime/storage_pool.h"

#include <algorithm>
#include <bit>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

constexpr uint64_t kSmallest = 64;
constexpr uint64_t kLargest = uint64_t{1} << 62;
// What may be kept however little a run uses.
constexpr uint64_t kAlwaysKept = uint64_t{16} << 20;
// A free block may be this many classes above the request: under twice its size.
constexpr int kReach = 3;

// Class i holds blocks of (4 + i % 4) << (i / 4 - 2) bytes; i / 4 is the exponent.
int class_of(uint64_t bytes) {
  const int exponent = std::bit_width(bytes) - 1;
  const uint64_t step = uint64_t{1} << (exponent - 2);
  const uint64_t quarter = (bytes - (uint64_t{1} << exponent) + step - 1) / step;  // 0 … 4
  return 4 * exponent + static_cast<int>(quarter);
}
uint64_t class_bytes(int index) {
  return static_cast<uint64_t>(4 + index % 4) << (index / 4 - 2);
}

}  // namespace

StoragePool::~StoragePool() {
  trim();
}

Block StoragePool::allocate(uint64_t bytes) {
  if (bytes > kLargest)
    throw Error(Status::kExhausted, "", fmt::format("a storage of {} bytes is too large", bytes),
                "use smaller inputs");
  const int wanted = class_of(std::max(bytes, kSmallest));
  std::lock_guard lock(mutex_);
  auto hand_out = [&](uint8_t* data, uint64_t size) {
    ++stats_.allocations;
    stats_.in_use += size;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    run_peak_ = std::max(run_peak_, stats_.in_use);
    return Block{data, size};
  };
  for (int i = wanted; i <= std::min(wanted + kReach, kClasses - 1); ++i)
    if (!free_[i].empty()) {
      uint8_t* data = free_[i].back();
      free_[i].pop_back();
      ++stats_.reuses;
      return hand_out(data, class_bytes(i));
    }
  const uint64_t size = class_bytes(wanted);
  if (!make_room(size))
    throw Error(Status::kExhausted, "",
                fmt::format("the memory limit of {} bytes is reached ({} in use, {} more needed)",
                            limit_, stats_.in_use + charged_, size),
                "raise the limit or use smaller inputs");
  void* data = device_.allocate(size);
  if (!data) {
    trim_to(0);
    data = device_.allocate(size);
  }
  if (!data)
    throw Error(Status::kExhausted, "",
                fmt::format("the {} has no memory for {} bytes", device_.name(), size),
                "use smaller inputs or set a memory limit");
  stats_.reserved += size;
  return hand_out(static_cast<uint8_t*>(data), size);
}

void StoragePool::release(Block block) {
  if (!block.data) return;
  std::lock_guard lock(mutex_);
  stats_.in_use -= block.bytes;
  free_[class_of(block.bytes)].push_back(block.data);
}

void StoragePool::charge(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!make_room(bytes))
    throw Error(Status::kExhausted, "",
                fmt::format("the memory limit of {} bytes is reached ({} in use, {} more needed)",
                            limit_, stats_.in_use + charged_, bytes),
                "raise the limit");
  charged_ += bytes;
}

void StoragePool::refund(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  charged_ -= bytes;
}

bool StoragePool::make_room(uint64_t bytes) {
  if (limit_ == 0) return true;
  if (stats_.in_use + charged_ + bytes > limit_) return false;
  const uint64_t may_keep = limit_ - bytes - charged_ - stats_.in_use;
  if (stats_.reserved - stats_.in_use > may_keep) trim_to(may_keep);
  return true;
}

// The largest blocks go first: they free most at the fewest system calls.
void StoragePool::trim_to(uint64_t keep) {
  for (int i = kClasses - 1; i >= 0 && stats_.reserved - stats_.in_use > keep; --i)
    while (!free_[i].empty() && stats_.reserved - stats_.in_use > keep) {
      device_.free(free_[i].back(), class_bytes(i));
      free_[i].pop_back();
      stats_.reserved -= class_bytes(i);
    }
}

void StoragePool::trim() {
  std::lock_guard lock(mutex_);
  trim_to(0);
}

void StoragePool::end_run() {
  std::lock_guard lock(mutex_);
  // An eighth is forgotten with each run, so that one large input is not remembered for ever.
  recent_peak_ = std::max(run_peak_, recent_peak_ - recent_peak_ / 8);
  run_peak_ = stats_.in_use;
  const uint64_t keep = 2 * recent_peak_ + kAlwaysKept;
  if (stats_.reserved > keep) trim_to(keep > stats_.in_use ? keep - stats_.in_use : 0);
}

MemoryStats StoragePool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace nimble::rt
