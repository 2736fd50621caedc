#include "vm/runtime/object.h"

#include <algorithm>
#include <new>

#include "vm/base/checked.h"
#include "vm/base/error.h"

namespace nimble::rt {
namespace {

size_t cell_bytes(size_t fields) {
  return sizeof(Cell) + fields * sizeof(Value);
}

}  // namespace

std::string_view name_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kStorage:
      return "storage";
    case ObjectKind::kTensor:
      return "tensor";
    case ObjectKind::kAdt:
      return "data-type value";
    case ObjectKind::kClosure:
      return "closure";
  }
  return "object";
}

void BlockHold::release(BlockHold* hold) {
  if (hold->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  hold->pool->release(hold->block);
  delete hold;
}

Heap::~Heap() {
  NIMBLE_CHECK(live_ == 0, "{} objects live at the end of their session", live_);
  for (Block& slab : slabs_) pool()->release(slab);
}

void* Heap::take(size_t bytes) {
  const size_t units = (bytes + kUnit - 1) / kUnit;
  ++live_;
  try {
    if (units > kSmallUnits) {
      pool()->charge(bytes);
      if (void* memory = ::operator new(bytes, std::nothrow)) return memory;
      pool()->refund(bytes);
      throw std::bad_alloc();
    }
    if (Object* object = free_[units]) {
      free_[units] = object->next;
      return object;
    }
    const size_t size = units * kUnit;
    if (slab_used_ + size > kSlab) {
      slabs_.emplace_back();  // first, so that nothing fails once the pool has given memory
      try {
        slabs_.back() = pool()->allocate(kSlab);
      } catch (...) {
        slabs_.pop_back();
        throw;
      }
      slab_used_ = 0;
    }
    void* memory = slabs_.back().data + slab_used_;
    slab_used_ += size;
    return memory;
  } catch (...) {
    --live_;
    throw;
  }
}

void Heap::give(void* memory, size_t bytes) {
  const size_t units = (bytes + kUnit - 1) / kUnit;
  --live_;
  if (units > kSmallUnits) {
    pool()->refund(bytes);
    ::operator delete(memory);
    return;
  }
  Object* object = static_cast<Object*>(memory);
  object->next = free_[units];
  free_[units] = object;
}

const std::shared_ptr<StoragePool>& Heap::pool(int32_t number) {
  if (static_cast<size_t>(number) < pools_.size() && pools_[static_cast<size_t>(number)]) [[likely]]
    return pools_[static_cast<size_t>(number)];
  Device& of = device(number);
  std::shared_ptr<StoragePool>& pool = pools_[static_cast<size_t>(number)];
  const StoragePool& cpu = *pools_[kCpuDevice];
  if (!pool) pool = std::make_shared<StoragePool>(of, cpu.limit(), cpu.clears());
  return pool;
}

Storage* Heap::new_storage(uint64_t bytes, int32_t device) {
  const Block block = pool(device)->allocate(bytes);
  void* memory = nullptr;
  try {
    memory = take(sizeof(Storage));
  } catch (...) {
    pool(device)->release(block);
    throw;
  }
  Storage* s = new (memory) Storage;
  s->kind = ObjectKind::kStorage;
  s->device = static_cast<uint8_t>(device);
  s->data = block.data;
  s->bytes = block.bytes;
  return s;
}

Storage* Heap::new_view(Storage::Origin origin, const void* data, uint64_t bytes, int32_t device) {
  Storage* s = new (take(sizeof(Storage))) Storage;
  s->kind = ObjectKind::kStorage;
  s->origin = origin;
  s->device = static_cast<uint8_t>(device);
  look_at(s, data);
  s->bytes = bytes;
  return s;
}

void Heap::look_at(Storage* view, const void* data) {
  // An empty view still needs an address: nullptr means freed.
  static uint8_t nothing[64];
  view->data = data ? static_cast<uint8_t*>(const_cast<void*>(data)) : nothing;
}

Tensor* Heap::new_tensor(Storage* storage, int64_t offset, DType dtype,
                         std::span<const int64_t> shape) {
  if (shape.size() > static_cast<size_t>(kMaxRank))
    throw Error(Status::kUnsupported, "",
                fmt::format("a tensor of {} dims, at most {} are possible", shape.size(), kMaxRank),
                "reshape to fewer dims");
  const auto bytes = try_byte_size(dtype, shape);
  if (!bytes)
    throw Error(Status::kFatal, "",
                fmt::format("the shape ({}) is negative or too large", fmt::join(shape, ", ")),
                "check the extents of the inputs");
  if (!storage->data)
    throw Error(Status::kFatal, "", "a tensor is made in a storage that was freed",
                "report it: the memory plan is wrong");
  const auto begin = static_cast<uint64_t>(offset);  // beyond every storage if it is negative
  if (begin > storage->bytes || static_cast<uint64_t>(*bytes) > storage->bytes - begin ||
      begin % size_of(dtype) != 0)
    throw Error(Status::kFatal, "",
                fmt::format("{} bytes at offset {} do not fit a storage of {} bytes", *bytes,
                            offset, storage->bytes),
                "report it: the memory plan is wrong");
  Tensor* t = new (take(sizeof(Tensor))) Tensor;
  t->kind = ObjectKind::kTensor;
  t->dtype = dtype;
  t->rank = static_cast<uint8_t>(shape.size());
  t->storage = storage;
  t->offset = begin;
  t->capacity = storage->bytes - begin;
  // A tensor may have extents whose product without the zero one overflows; its strides then are
  // never used to address anything, so they may wrap.
  uint64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    t->extents[i] = shape[i];
    t->strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(shape[i]);
  }
  retain(storage);
  return t;
}

Cell* Heap::new_cell(ObjectKind kind, int64_t number, std::span<const Value> fields) {
  Cell* c = new (take(cell_bytes(fields.size()))) Cell;
  c->kind = kind;
  c->number = number;
  c->count = static_cast<uint32_t>(fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    retain(fields[i]);
    new (c->fields() + i) Value(fields[i]);
  }
  return c;
}

void Heap::free_memory(Storage* storage) {
  if (!storage->data) return;
  if (storage->hold)
    BlockHold::release(storage->hold);
  else if (storage->origin == Storage::Origin::kPool)
    pools_[storage->device]->release({storage->data, storage->bytes});
  storage->hold = nullptr;
  storage->data = nullptr;
}

BlockHold* Heap::hold(Storage* storage) {
  NIMBLE_CHECK(storage->origin == Storage::Origin::kPool && storage->data);
  if (!storage->hold) {
    storage->hold = new BlockHold;
    storage->hold->pool = pools_[storage->device];
    storage->hold->block = {storage->data, storage->bytes};
  }
  storage->hold->refs.fetch_add(1, std::memory_order_relaxed);
  return storage->hold;
}

void Heap::destroy(Object* first) {
  first->next = nullptr;
  Object* dead = first;
  auto drop = [&](Object* object) {
    if (--object->refs > 0) return;
    object->next = dead;
    dead = object;
  };
  while (dead) {
    Object* object = dead;
    dead = object->next;
    switch (object->kind) {
      case ObjectKind::kStorage: {
        Storage* s = static_cast<Storage*>(object);
        free_memory(s);
        give(s, sizeof(Storage));
        break;
      }
      case ObjectKind::kTensor: {
        Tensor* t = static_cast<Tensor*>(object);
        drop(t->storage);
        give(t, sizeof(Tensor));
        break;
      }
      case ObjectKind::kAdt:
      case ObjectKind::kClosure: {
        Cell* c = static_cast<Cell*>(object);
        for (const Value& v : c->values())
          if (v.is_object()) drop(v.object);
        give(c, cell_bytes(c->count));
        break;
      }
    }
  }
}

}  // namespace nimble::rt
