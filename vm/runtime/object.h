// What a VM register holds: nothing, an unboxed 64-bit scalar, or a counted reference to an
// object: a storage, a tensor inside one, a data-type value or a closure.
//
// Objects belong to one session and are touched by the thread that runs it only, so their counts
// are plain integers. What outlives a run, the memory of an output, leaves the session through a
// BlockHold, whose count is atomic. Dead objects go to free lists: a loop at steady state never
// reaches the system's allocator. Freeing walks a list of the dead instead of recursing, so a
// linked list of a million cells dies without a million stack frames.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "vm/base/dtype.h"
#include "vm/runtime/storage_pool.h"

namespace nimble::rt {

enum class ObjectKind : uint8_t { kStorage, kTensor, kAdt, kClosure };
std::string_view name_of(ObjectKind kind);

struct Object {
  Object* next = nullptr;  // in a free list, or in the list of the dead
  // As wide as an address: there is no room for more references than it counts.
  uint64_t refs = 1;
  ObjectKind kind;  // last: what derives from it uses the bytes behind
};

struct Value {
  enum class Tag : uint8_t { kNone, kScalar, kObject };
  union {
    int64_t scalar;
    Object* object;
  };
  Tag tag = Tag::kNone;

  Value() : scalar(0) {}
  static Value of(int64_t scalar) {
    Value v;
    v.scalar = scalar;
    v.tag = Tag::kScalar;
    return v;
  }
  static Value of(Object* object) {
    Value v;
    v.object = object;
    v.tag = Tag::kObject;
    return v;
  }
  bool is_scalar() const { return tag == Tag::kScalar; }
  bool is_object() const { return tag == Tag::kObject; }
  bool is(ObjectKind kind) const { return is_object() && object->kind == kind; }
};

// Memory of a pool, owned jointly by a session and by users of its outputs.
struct BlockHold {
  std::atomic<uint64_t> refs{1};
  std::shared_ptr<StoragePool> pool;
  Block block;
  static void release(BlockHold* hold);  // thread safe
};

struct Storage : Object {
  // Only pool memory is written; constants and borrowed inputs are read.
  enum class Origin : uint8_t { kPool, kConstant, kBorrowed };
  Origin origin = Origin::kPool;
  uint8_t device = 0;
  uint8_t* data = nullptr;  // nullptr once freed
  uint64_t bytes = 0;
  BlockHold* hold = nullptr;  // once an output shares the memory
  bool writable() const { return origin == Origin::kPool; }
};

struct Tensor : Object {
  DType dtype = DType::kF32;
  uint8_t rank = 0;
  Storage* storage = nullptr;
  uint64_t offset = 0;    // bytes from the storage's start
  uint64_t capacity = 0;  // bytes from there to the storage's end
  std::array<int64_t, kMaxRank> extents;
  std::array<int64_t, kMaxRank> strides;  // in elements; dense row-major

  std::span<const int64_t> shape() const { return {extents.data(), rank}; }
  uint8_t* data() const { return storage->data ? storage->data + offset : nullptr; }
  int64_t elements() const {
    uint64_t n = 1;  // may wrap on the way to a 0, as the other extents of an empty tensor may
    for (int i = 0; i < rank; ++i) n *= static_cast<uint64_t>(extents[i]);
    return static_cast<int64_t>(n);
  }
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * size_of(dtype); }
};

// A data-type value or a closure: a number (tag or function) and values.
struct Cell : Object {
  uint32_t count = 0;
  int64_t number = 0;
  Value* fields() { return reinterpret_cast<Value*>(this + 1); }
  std::span<const Value> values() const {
    return {reinterpret_cast<const Value*>(this + 1), count};
  }
};
static_assert(sizeof(Storage) <= 64 && sizeof(Tensor) <= 3 * 64 && sizeof(Cell) == 32);

// Makes and frees the objects of one session.
class Heap {
 public:
  // `pool` is the CPU's; each other device gets one of its own, of the same limit and cleared as
  // it, when it is first asked for memory.
  explicit Heap(std::shared_ptr<StoragePool> pool) { pools_[kCpuDevice] = std::move(pool); }
  ~Heap();  // every object must be dead
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // All objects come with one reference, the caller's.
  Storage* new_storage(uint64_t bytes, int32_t device = kCpuDevice);
  Storage* new_view(Storage::Origin origin, const void* data, uint64_t bytes,
                    int32_t device = kCpuDevice);
  // Makes a view one of other memory, of as many bytes.
  static void look_at(Storage* view, const void* data);
  // Takes its own reference to `storage`. Error(kFatal) unless the tensor lies inside, the offset
  // is aligned to the element and the extents are not negative.
  Tensor* new_tensor(Storage* storage, int64_t offset, DType dtype, std::span<const int64_t> shape);
  // Takes its own references to `fields`.
  Cell* new_cell(ObjectKind kind, int64_t number, std::span<const Value> fields);

  static void retain(Object* object) { ++object->refs; }
  static void retain(Value v) {
    if (v.is_object()) retain(v.object);
  }
  void release(Object* object) {
    if (--object->refs == 0) destroy(object);
  }
  void release(Value v) {
    if (v.is_object()) release(v.object);
  }
  // Stores `value`, whose reference moves in, over what `slot` held.
  void assign(Value& slot, Value value) {
    const Value old = slot;
    slot = value;
    release(old);
  }
  // Gives the memory of a storage back while references to it remain.
  void free_memory(Storage* storage);
  // A share in the storage's memory that may leave the session (pool memory only).
  BlockHold* hold(Storage* storage);

  const std::shared_ptr<StoragePool>& pool() const { return pools_[kCpuDevice]; }
  // Error(kUnsupported) if there is no such device.
  const std::shared_ptr<StoragePool>& pool(int32_t device);
  // Of all devices that were asked for memory.
  template <typename Visit>
  void for_each_pool(Visit visit) const {
    for (const std::shared_ptr<StoragePool>& p : pools_)
      if (p) visit(*p);
  }
  uint64_t live() const { return live_; }

 private:
  static constexpr size_t kUnit = 64, kSlab = 64 << 10, kSmallUnits = 16;
  void* take(size_t bytes);
  void give(void* memory, size_t bytes);
  void destroy(Object* object);

  std::array<std::shared_ptr<StoragePool>, kDeviceCount> pools_;
  std::array<Object*, kSmallUnits + 1> free_{};  // by size in units
  std::vector<Block> slabs_;
  size_t slab_used_ = kSlab;
  uint64_t live_ = 0;
};

}  // namespace nimble::rt
