#include "vm/runtime/storage_pool.h"

#include <algorithm>
#include <bit>
#include <new>

#include "vm/base/error.h"
#include "vm/runtime/round_up.h"

namespace nimble::rt {
namespace {

constexpr uint64_t kUnit = 64;  // a cache line: sizes are multiples of it
constexpr uint64_t kLargest = uint64_t{1} << 62;

// Where large blocks begin, in bytes of a page: at 0, 1600, 3200, 704, … – any few successive ones
// are far apart, and all 64 lines have their turn.
constexpr uint64_t kSmallPage = 4096, kMove = 25 * kUnit, kMostMoved = kSmallPage - kUnit;
// Blocks of so many bytes do: the page that is added to them is a sixty-fourth at most.
constexpr uint64_t kMovedFrom = 64 * Device::kGranule;

uint64_t rounded(uint64_t bytes) {
  return round_up(std::max<uint64_t>(bytes, 1), kUnit);
}

// Sixteen classes to a power of two; class i begins at (16 + i % 16) << (i / 16 - 4) bytes.
int class_of(uint64_t bytes) {
  const int exponent = std::bit_width(bytes) - 1;
  return 16 * exponent + static_cast<int>((bytes - (uint64_t{1} << exponent)) >> (exponent - 4));
}

// A free block may be an eighth larger than the request …
uint64_t with_reach(uint64_t bytes) {
  return bytes + bytes / 8;
}
// … and a sixteenth more may be held than is live at the peak: 9/8 * 17/16 < 1.2.
uint64_t with_slack(uint64_t bytes) {
  return std::max(bytes + bytes / 16, StoragePool::kAlwaysKept);
}

}  // namespace

StoragePool::~StoragePool() {
  trim();
}

uint64_t StoragePool::held(uint64_t size) const {
  return device_.frees_parts(size) ? round_up(size, Device::kGranule) : size;
}

Block StoragePool::allocate(uint64_t bytes) {
  if (bytes > kLargest)
    throw Error(Status::kExhausted, "", fmt::format("a storage of {} bytes is too large", bytes),
                "use smaller inputs");
  bool zeros = false;
  const uint64_t size = rounded(bytes);
  const Block block = obtain(is_moved(size) ? size + kMostMoved : size, &zeros);
  if (!clears_ || zeros) return block;
  try {
    device_.clear(block.data, block.bytes);  // outside of the lock: it may take long
  } catch (...) {
    release(block);
    throw;
  }
  return block;
}

// `zeros`: whether the block is known to be all zeros.
Block StoragePool::obtain(uint64_t size, bool* zeros) {
  std::lock_guard lock(lock_);
  fail_on_request();
  if (const Block kept = take_kept(size); kept.data) {
    ++stats_.reuses;
    return hand_out(kept);
  }
  if (!make_room(held(size))) fail_at_limit(held(size));
  void* data = device_.allocate(size);
  if (!data) {
    trim_to(0);
    data = device_.allocate(size);
  }
  if (!data)
    throw Error(Status::kExhausted, "",
                fmt::format("the {} has no memory for {} bytes", device_.name(), size),
                "use smaller inputs or set a memory limit");
  stats_.reserved += held(size);
  *zeros = device_.allocates_zeros(size);
  return hand_out({static_cast<uint8_t*>(data), size});
}

// The smallest free block that serves, within reach; null if there is none. Of the host's memory
// the one that was used last; of another device's the lowest, so that a program that makes the same
// requests again gets the same addresses, in whatever order they were given back
// (vm/interpreter/gpu_stretches.h).
Block StoragePool::take_kept(uint64_t size) {
  if (device_.frees_parts(size)) return {ranges_.take(held(size)), size};
  const uint64_t most = with_reach(size);
  const bool lowest = !device_.host_accessible();
  for (int i = class_of(size), last = class_of(most); i <= last; ++i) {
    std::vector<Block>& kept = free_[i];
    const size_t last_look = kept.size() - std::min(kept.size(), kMostLooks);
    size_t chosen = kept.size();
    for (size_t k = kept.size(); k-- > last_look;) {
      if (kept[k].bytes < size || kept[k].bytes > most) continue;
      if (chosen == kept.size() || kept[k].data < kept[chosen].data) chosen = k;
      if (!lowest) break;
    }
    if (chosen < kept.size()) return drop(i, chosen);
  }
  return {};
}

void StoragePool::keep(Block block) {
  if (device_.frees_parts(block.bytes)) return ranges_.give(block.data, held(block.bytes));
  const int i = class_of(block.bytes);
  free_[i].push_back(block);
  occupied_[i / 64] |= uint64_t{1} << (i % 64);
}

// Takes a block off the lists.
Block StoragePool::drop(int size_class, size_t index) {
  std::vector<Block>& kept = free_[size_class];
  const Block block = kept[index];
  kept.erase(kept.begin() + static_cast<ptrdiff_t>(index));
  if (kept.empty()) occupied_[size_class / 64] &= ~(uint64_t{1} << (size_class % 64));
  return block;
}

bool StoragePool::is_moved(uint64_t bytes) const {
  return bytes >= kMovedFrom && device_.host_accessible() && device_.frees_parts(bytes);
}

Block StoragePool::hand_out(Block block) {
  ++stats_.allocations;
  stats_.in_use += held(block.bytes);
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  run_peak_ = std::max(run_peak_, stats_.in_use);
  if (!is_moved(block.bytes)) return block;
  const uint64_t shift = moved_++ * kMove % kSmallPage;
  return {block.data + shift, block.bytes - shift};
}

void StoragePool::release(Block block) {
  if (!block.data) return;
  std::lock_guard lock(lock_);
  if (is_moved(block.bytes)) {
    const uint64_t shift = reinterpret_cast<uintptr_t>(block.data) % kSmallPage;
    block = {block.data - shift, block.bytes + shift};
  }
  stats_.in_use -= held(block.bytes);
  try {
    keep(block);
  } catch (const std::bad_alloc&) {  // no room in the list of what is kept: then don't keep it
    device_.free(block.data, block.bytes);
    stats_.reserved -= held(block.bytes);
  }
}

void StoragePool::charge(uint64_t bytes) {
  std::lock_guard lock(lock_);
  fail_on_request();
  if (!make_room(bytes)) fail_at_limit(bytes);
  charged_ += bytes;
}

void StoragePool::refund(uint64_t bytes) {
  std::lock_guard lock(lock_);
  charged_ -= bytes;
}

void StoragePool::fail_at_limit(uint64_t bytes) const {
  throw Error(
      Status::kExhausted, "",
      fmt::format("the memory limit of {} bytes is reached: {} are live, {} more are needed",
                  limit_, stats_.in_use + charged_, bytes),
      fmt::format("raise the limit to at least {} or use smaller inputs",
                  stats_.in_use + charged_ + bytes));
}

bool StoragePool::make_room(uint64_t bytes) {
  const uint64_t live = stats_.in_use + bytes;
  const uint64_t peak = std::max({recent_peak_, run_peak_, live});
  uint64_t may_hold = with_slack(peak);
  if (limit_ != 0) {
    if (live + charged_ > limit_) return false;
    may_hold = std::min(may_hold, limit_ - charged_);
  }
  if (stats_.reserved + bytes > may_hold) trim_to(may_hold - live);
  return true;
}

// The largest blocks go first: they free most at the fewest system calls. Of those that can be cut
// only so much goes as must.
void StoragePool::trim_to(uint64_t keep) {
  while (ranges_.bytes() > 0 && stats_.reserved - stats_.in_use > keep) {
    const uint64_t excess = stats_.reserved - stats_.in_use - keep;
    const auto [data, bytes] = ranges_.cut(round_up(excess, Device::kGranule), kHugePage);
    device_.free_part(data, bytes);
    stats_.reserved -= bytes;
  }
  for (int word = kClasses / 64 - 1; word >= 0; --word)
    while (occupied_[word] != 0 && stats_.reserved - stats_.in_use > keep) {
      const int i = 64 * word + std::bit_width(occupied_[word]) - 1;
      const Block block = drop(i, free_[i].size() - 1);
      device_.free(block.data, block.bytes);
      stats_.reserved -= block.bytes;
    }
}

void StoragePool::fail_request(uint64_t n) {
  std::lock_guard lock(lock_);
  fail_in_ = n;
}

uint64_t StoragePool::failed_requests() const {
  std::lock_guard lock(lock_);
  return made_to_fail_;
}

void StoragePool::fail_on_request() {
  if (fail_in_ == 0 || --fail_in_ > 0) return;
  ++made_to_fail_;
  throw Error(Status::kExhausted, "", "a request for memory was made to fail", "it is a test");
}

void StoragePool::trim() {
  std::lock_guard lock(lock_);
  trim_to(0);
}

void StoragePool::end_run() {
  std::lock_guard lock(lock_);
  // Part is forgotten with each run, so that one large input is not remembered for ever.
  const uint64_t forgets =
      std::min(recent_peak_ / 8, std::max(kForgetsTimes * run_peak_, kForgets));
  recent_peak_ = std::max(run_peak_, recent_peak_ - forgets);
  run_peak_ = stats_.in_use;
  moved_ = 0;  // the next run's tensors lie as this one's did
  const uint64_t keep = with_slack(recent_peak_);
  if (stats_.reserved > keep) trim_to(keep > stats_.in_use ? keep - stats_.in_use : 0);
}

MemoryStats StoragePool::stats() const {
  std::lock_guard lock(lock_);
  return stats_;
}

}  // namespace nimble::rt
