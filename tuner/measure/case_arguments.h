// The data of one case: what its kernels are called with, in as many copies as its policy rotates
// through, kept from one case to the next where that needs the same. It lies on the kernels'
// device.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tuner/measure/protocol.h"
#include "vm/base/error.h"
#include "vm/executable/contract.h"
#include "vm/runtime/device.h"
#include "vm/runtime/object.h"
#include "vm/runtime/storage_pool.h"

namespace nimble::tuner {

// Memory of a device's, the host's in huge pages: where the VM keeps large constants at run time.
class Memory {
 public:
  Memory(rt::Device& device, size_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<uint8_t*>(device.allocate(bytes))) {
    if (!data_)
      throw Error(Status::kExhausted, "worker",
                  fmt::format("no memory for {} bytes on device \"{}\"", bytes_, device.name()),
                  "free some, or tune smaller sizes");
  }
  ~Memory() { device_.free(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  rt::Device& device_;
  size_t bytes_;
  uint8_t* data_;
};

// Blocks for the next case: the system clears the pages of new ones, which takes longer than to
// fill them.
class Blocks {
 public:
  explicit Blocks(rt::Device& device) : device_(device) {}
  rt::Device& device() const { return device_; }
  std::unique_ptr<Memory> take(uint64_t bytes) {
    const auto it = spare_.lower_bound(bytes);
    if (it == spare_.end() || it->first > 2 * bytes)
      return std::make_unique<Memory>(device_, bytes);
    std::unique_ptr<Memory> block = std::move(it->second);
    held_ -= it->first;
    spare_.erase(it);
    return block;
  }
  void give(std::unique_ptr<Memory> block) {
    if (held_ + block->bytes() > kMost) return;
    held_ += block->bytes();
    spare_.emplace(block->bytes(), std::move(block));
  }

 private:
  static constexpr uint64_t kMost = uint64_t{64} << 20;
  rt::Device& device_;
  std::multimap<uint64_t, std::unique_ptr<Memory>> spare_;  // by size
  uint64_t held_ = 0;
};

// Memory that is given back as a whole.
class Arena {
 public:
  explicit Arena(std::shared_ptr<Blocks> source) : source_(std::move(source)) {}
  ~Arena() {
    for (auto& block : blocks_) source_->give(std::move(block));
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  rt::Device& device() const { return source_->device(); }
  uint8_t* take(uint64_t bytes) {
    // Small ones share a block: thousands of copies must not take a huge page each.
    const uint64_t size = (bytes + 63) / 64 * 64;
    if (blocks_.empty() || used_ + size > blocks_.back()->bytes()) {
      blocks_.push_back(source_->take(std::max(kBlock, size)));
      used_ = 0;
    }
    used_ += size;
    return blocks_.back()->data() + used_ - size;
  }

 private:
  static constexpr uint64_t kBlock = uint64_t{2} << 20;
  std::shared_ptr<Blocks> source_;
  std::vector<std::unique_ptr<Memory>> blocks_;
  uint64_t used_ = 0;  // bytes of the last one
};

// fill_tensor() for memory of a device.
void fill_on(rt::Device& device, const Fill& fill, DType dtype, uint64_t seed, uint32_t index,
             uint8_t* data, uint64_t bytes);

// The copies of each weight. They are most of a case's data and the same at all sizes.
class Weights {
 public:
  explicit Weights(std::shared_ptr<Blocks> blocks) : arena_(std::move(blocks)) {}
  struct Key {
    Fill fill;
    DType dtype{};
    uint64_t bytes = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // Whether what it has of the argument, if anything, is that.
  bool serves(uint32_t argument, const Key& key) const {
    const auto it = all_.find(argument);
    return it == all_.end() || it->second.key == key;
  }
  uint8_t* copy(uint32_t argument, const Key& key, size_t number) {
    Weight& w = all_.try_emplace(argument, Weight{key, {}}).first->second;
    while (w.copies.size() <= number) {
      uint8_t* data = arena_.take(key.bytes);
      if (w.copies.empty())
        fill_on(arena_.device(), key.fill, key.dtype, 0, argument, data, key.bytes);
      else if (key.bytes > 0)
        arena_.device().copy_within(data, w.copies[0], key.bytes);
      w.copies.push_back(data);
    }
    return w.copies[number];
  }

 private:
  struct Weight {
    Key key;
    std::vector<uint8_t*> copies;
  };
  std::map<uint32_t, Weight> all_;
  Arena arena_;
};

// The arguments of a case, in every variant that runs use in turn.
class Arguments {
 public:
  // `beat` is called now and then while the data is made. `weights` has those of the case before;
  // others take their place if this case needs others. Error(kInvalidArgument) where the case does
  // not fit the contract, kExhausted where there is not enough memory.
  Arguments(const exec::KernelContract& contract, const Case& c, std::shared_ptr<Weights>& weights,
            const std::shared_ptr<Blocks>& blocks, const std::function<void()>& beat);
  ~Arguments() {
    for (auto& all : values_)
      for (rt::Value v : all) heap_.release(v);
    for (rt::Storage* s : storages_) heap_.release(s);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  size_t variants() const { return values_.size(); }
  std::span<const rt::Value> values(size_t variant) const { return values_[variant]; }
  size_t outputs() const { return outputs_.size(); }
  DType output_type(size_t i) const { return output_types_[i]; }
  // What is written there, once kernels are through; valid until the next call.
  std::span<const uint8_t> output(size_t i);
  // Empties the results, so that those of the entry before cannot pass for this one's.
  void poison() const;

 private:
  struct Shape {
    std::vector<int64_t> extents;
    uint64_t bytes = 1;
    const Fill* fill = nullptr;
    rt::Storage* shared = nullptr;  // of arguments that all variants have in common
    rt::Storage* filled = nullptr;  // the first copy
  };
  [[noreturn]] static void bad(const std::string& problem) {
    throw Error(Status::kInvalidArgument, "measurement", problem,
                "the case does not fit the candidates' contract");
  }
  static void require(bool ok, const char* what) {
    if (!ok) bad(fmt::format("another number of {} than the contract has", what));
  }

  static bool is_weight(const exec::KernelArgument& a, const Shape& s) {
    return s.fill && s.fill->constant && a.access == exec::Access::kIn;
  }
  static Weights::Key key_of(const exec::KernelArgument& a, const Shape& s) {
    return {*s.fill, a.dtype, s.bytes};
  }
  // Borrowed memory is not writable for the VM's checks; outputs come from the pool.
  rt::Storage* view(uint8_t* data, uint64_t bytes) {
    rt::Storage* s = heap_.new_view(rt::Storage::Origin::kBorrowed, data, bytes, device_.number());
    storages_.push_back(s);
    return s;
  }

  void build(const exec::KernelContract& contract, const Case& c, size_t variant);

  rt::Device& device_;
  rt::Heap heap_;
  std::vector<Shape> shapes_;
  size_t copies_ = 1;
  std::shared_ptr<Weights> weights_;
  Arena arena_;
  std::vector<rt::Storage*> storages_;
  std::vector<std::vector<rt::Value>> values_;
  std::vector<std::span<uint8_t>> outputs_;  // of the first variant, on the device
  std::vector<DType> output_types_;
  std::vector<uint8_t> read_;  // of a device that the host does not address
};

}  // namespace nimble::tuner
