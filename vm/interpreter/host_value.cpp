#include "vm/interpreter/host_value.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>

#include "vm/base/checked.h"
#include "vm/base/error.h"

namespace nimble::rt {
namespace {

using exec::ValueType;

constexpr size_t kAlignment = 64;  // a cache line

std::string tensor_text(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} ({})", name_of(dtype), fmt::join(shape, ", "));
}

// The constructor that a tag of the type names; nullptr if none does.
const ValueType::Constructor* constructor_of(const ValueType& type, int64_t tag) {
  if (type.kind != ValueType::Kind::kData && type.kind != ValueType::Kind::kTuple) return nullptr;
  if (static_cast<uint64_t>(tag) >= type.constructors.size()) return nullptr;
  return &type.constructors[static_cast<size_t>(tag)];
}

void check_tensor(const HostValue& v, const ValueType& type, NamedExtents* extents,
                  const std::string& place) {
  auto fail = [&](const std::string& problem) {
    throw Error(Status::kInvalidArgument, place, problem, "give a value of the type " + type.name);
  };
  if (!v.is_tensor()) fail(fmt::format("it holds a constructor where {} belongs", type.name));
  if (v.dtype() != type.dtype || v.shape().size() != type.dims.size())
    fail(fmt::format("it holds {} where {} belongs", tensor_text(v.dtype(), v.shape()), type.name));
  for (size_t d = 0; d < type.dims.size(); ++d) {
    int64_t wanted = type.extents[d];
    if (wanted < 0 && type.dims[d] != "?")
      wanted = extents->try_emplace(type.dims[d], v.shape()[d]).first->second;
    if (wanted >= 0 && v.shape()[d] != wanted)
      fail(fmt::format("dim {} ({}) of a tensor in it is {}, not {}", d, type.dims[d], v.shape()[d],
                       wanted));
  }
}

Value tensor_to_heap(const HostValue& v, const ValueType& type, Heap& heap) {
  if (type.kind == ValueType::Kind::kScalar) {
    int64_t scalar = 0;
    std::memcpy(&scalar, v.bytes(), size_of(v.dtype()));  // little-endian: i64, or a bool's byte
    return Value::of(scalar);
  }
  const uint64_t bytes = static_cast<uint64_t>(*try_byte_size(v.dtype(), v.shape()));
  Storage* storage = heap.new_view(Storage::Origin::kBorrowed, v.bytes(), bytes);
  try {
    const Value t = Value::of(heap.new_tensor(storage, 0, v.dtype(), v.shape()));
    heap.release(storage);
    return t;
  } catch (...) {
    heap.release(storage);
    throw;
  }
}

// What conversions in both directions share: a walk in post-order on an explicit stack, results of
// finished parts on another, parts with several references converted once.
template <typename From, typename To>
struct Walk {
  struct Step {
    const From* from;
    uint32_t type;
    bool built;  // its fields are on the stack of results
  };
  // Room for one result more, so that none is lost between its making and its place.
  void make_room() {
    if (results.size() == results.capacity())
      results.reserve(std::max<size_t>(16, 2 * results.size()));
  }
  std::vector<Step> steps;
  std::vector<To> results;
  std::map<std::pair<const void*, uint32_t>, To> known;
};

}  // namespace

HostValueRef::HostValueRef(const HostValueRef& other) : value_(other.value_) {
  if (value_) value_->retain();
}
HostValueRef::~HostValueRef() {
  if (value_) value_->release();
}

HostValueRef HostValue::tensor(DType dtype, std::span<const int64_t> shape, const void* data) {
  const std::optional<int64_t> bytes = try_byte_size(dtype, shape);
  if (!bytes || shape.size() > static_cast<size_t>(kMaxRank))
    throw Error(Status::kInvalidArgument, "value",
                fmt::format("a tensor of shape ({}) cannot be", fmt::join(shape, ", ")),
                fmt::format("give at most {} extents that are not negative", kMaxRank));
  if (!data && *bytes > 0)
    throw Error(Status::kInvalidArgument, "value", "a tensor has no data", "set its data");
  // One byte at least: an address that may be borrowed.
  HostValue* v = make(-1, dtype, shape.size(), static_cast<size_t>(std::max<int64_t>(*bytes, 1)));
  std::ranges::copy(shape, const_cast<int64_t*>(v->shape().data()));
  if (*bytes > 0) std::memcpy(const_cast<uint8_t*>(v->bytes()), data, static_cast<size_t>(*bytes));
  return HostValueRef(v);
}

HostValueRef HostValue::data(int64_t tag, std::vector<HostValueRef> fields) {
  if (tag < 0)
    throw Error(Status::kInvalidArgument, "value", fmt::format("tag {} is negative", tag),
                "tags count a data type's constructors from 0");
  for (const HostValueRef& f : fields)
    if (!f) throw Error(Status::kInvalidArgument, "value", "a field is empty", "give every field");
  HostValue* v = make(tag, DType::kF32, fields.size(), 0);
  std::ranges::uninitialized_move(
      fields, std::span(const_cast<HostValueRef*>(v->fields().data()), fields.size()));
  return HostValueRef(v);
}

HostValue* HostValue::make(int64_t tag, DType dtype, size_t count, size_t elements) {
  static_assert(sizeof(HostValueRef) == sizeof(int64_t) && alignof(HostValueRef) <= kAlignment);
  if (count > UINT32_MAX)
    throw Error(Status::kInvalidArgument, "value", fmt::format("{} fields are too many", count),
                "give at most 2^32 - 1");
  size_t offset = sizeof(HostValue) + count * sizeof(int64_t);
  if (elements > 0) offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = ::operator new(offset + elements, std::align_val_t(kAlignment));
  return new (memory) HostValue(tag, dtype, static_cast<uint32_t>(count), offset);
}

// Without its fields, whose references are gone.
void HostValue::destroy(const HostValue* v) {
  v->~HostValue();
  ::operator delete(const_cast<HostValue*>(v), std::align_val_t(kAlignment));
}

// The dead are a list through their counts, which nobody reads any more: what frees memory must not
// need any.
void HostValue::release() const {
  static_assert(sizeof(refs_) >= sizeof(const HostValue*));
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const HostValue* dead = nullptr;
  auto bury = [&](const HostValue* v) {
    v->refs_.store(reinterpret_cast<uintptr_t>(dead), std::memory_order_relaxed);
    dead = v;
  };
  bury(this);
  while (dead) {
    const HostValue* v = dead;
    dead = reinterpret_cast<const HostValue*>(v->refs_.load(std::memory_order_relaxed));
    for (const HostValueRef& f : v->fields())
      if (f->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) bury(f.get());
    destroy(v);
  }
}

Value to_heap(const HostValue& value, const exec::Executable& executable, uint32_t root,
              NamedExtents* extents, Heap& heap, const std::string& place) {
  Walk<HostValue, Value> walk;
  walk.steps.push_back({&value, root, false});
  auto drop = [&] {
    for (const Value& v : walk.results) heap.release(v);
    for (const auto& [key, v] : walk.known) heap.release(v);
  };
  try {
    while (!walk.steps.empty()) {
      const auto step = walk.steps.back();
      walk.steps.pop_back();
      const HostValue& v = *step.from;
      const ValueType& type = executable.types[step.type];
      walk.make_room();
      if (!step.built) {
        if (auto it = walk.known.find({&v, step.type}); it != walk.known.end()) {
          Heap::retain(it->second);
          walk.results.push_back(it->second);
          continue;
        }
        if (type.kind == ValueType::Kind::kTensor || type.kind == ValueType::Kind::kScalar) {
          check_tensor(v, type, extents, place);
          walk.results.push_back(tensor_to_heap(v, type, heap));
          continue;
        }
        const ValueType::Constructor* c = constructor_of(type, v.tag());
        if (!c || c->fields.size() != v.fields().size())
          throw Error(Status::kInvalidArgument, place,
                      v.is_tensor() ? fmt::format("it holds a tensor where {} belongs", type.name)
                      : c ? fmt::format("{} of {} has {} fields, not {}", c->name, type.name,
                                        c->fields.size(), v.fields().size())
                          : fmt::format("{} has {} constructors, none with tag {}", type.name,
                                        type.constructors.size(), v.tag()),
                      "give a value of the type " + type.name);
        walk.steps.push_back({&v, step.type, true});
        for (size_t i = c->fields.size(); i-- > 0;) {
          __builtin_prefetch(v.fields()[i].get());
          walk.steps.push_back({v.fields()[i].get(), c->fields[i], false});
        }
        continue;
      }
      const size_t count = v.fields().size();
      const std::span<const Value> fields(walk.results.data() + walk.results.size() - count, count);
      const Value cell = Value::of(heap.new_cell(ObjectKind::kAdt, v.tag(), fields));
      for (const Value& field : fields) heap.release(field);
      walk.results.resize(walk.results.size() - count);
      walk.results.push_back(cell);
      if (v.shared() && walk.known.try_emplace({&v, step.type}, cell).second) Heap::retain(cell);
    }
  } catch (...) {
    drop();
    throw;
  }
  const Value result = walk.results.back();
  walk.results.clear();
  drop();
  return result;
}

HostValueRef from_heap(const Value& value, const exec::Executable& executable, uint32_t root,
                       WorkMeter* meter, const std::string& place) {
  const uint64_t limit = meter->memory ? meter->memory->limit() : 0;
  uint64_t left = limit == 0 ? UINT64_MAX : limit;
  StepCounter steps(*meter);
  auto take = [&](uint64_t bytes) {  // beside what counts and extents take
    steps.charge_bytes(bytes);
    const uint64_t all = bytes + sizeof(HostValue);
    if (all > left)
      throw Error(Status::kExhausted, place,
                  fmt::format("the value takes more than the memory limit of {} bytes", limit),
                  "raise the limit or use smaller inputs");
    left -= all;
  };
  auto fail = [&](const ValueType& type) {
    throw Error(Status::kFatal, place, "the program returned no value of the type " + type.name,
                "compile the model again");
  };
  Walk<Value, HostValueRef> walk;
  walk.steps.push_back({&value, root, false});
  while (!walk.steps.empty()) {
    const auto step = walk.steps.back();
    walk.steps.pop_back();
    const Value& v = *step.from;
    const ValueType& type = executable.types[step.type];
    if (type.kind == ValueType::Kind::kScalar) {
      if (!v.is_scalar()) fail(type);
      take(sizeof v.scalar);
      walk.results.push_back(HostValue::tensor(type.dtype, {}, &v.scalar));
      continue;
    }
    const bool tensor = type.kind == ValueType::Kind::kTensor;
    if (!v.is(tensor ? ObjectKind::kTensor : ObjectKind::kAdt)) fail(type);
    const std::pair<const void*, uint32_t> key{v.object, step.type};
    if (auto it = walk.known.find(key); it != walk.known.end()) {
      walk.results.push_back(it->second);
      continue;
    }
    if (tensor) {
      const Tensor& t = *static_cast<const Tensor*>(v.object);
      if (t.dtype != type.dtype || t.rank != type.dims.size() || !t.data()) fail(type);
      if (t.storage->device != kCpuDevice && device_checks())
        throw Error(Status::kFatal, place,
                    fmt::format("a tensor in it lies on device {} ({}), not on device 0 (cpu)",
                                t.storage->device, device_name(t.storage->device)),
                    "report it: the program lacks a copy between devices");
      take(t.bytes());
      walk.results.push_back(HostValue::tensor(t.dtype, t.shape(), t.data()));
      if (v.object->refs > 1) walk.known.emplace(key, walk.results.back());
      continue;
    }
    const Cell& cell = *static_cast<const Cell*>(v.object);
    const ValueType::Constructor* c = constructor_of(type, cell.number);
    if (!c || c->fields.size() != cell.count) fail(type);
    if (!step.built) {
      take(cell.count * sizeof(HostValueRef));
      walk.steps.push_back({step.from, step.type, true});
      for (size_t i = cell.count; i-- > 0;)
        walk.steps.push_back({&cell.values()[i], c->fields[i], false});
      continue;
    }
    const auto first = walk.results.end() - static_cast<ptrdiff_t>(cell.count);
    std::vector<HostValueRef> fields(std::make_move_iterator(first),
                                     std::make_move_iterator(walk.results.end()));
    walk.results.erase(first, walk.results.end());
    HostValueRef made = HostValue::data(cell.number, std::move(fields));
    if (v.object->refs > 1) walk.known.emplace(key, made);
    walk.results.push_back(std::move(made));
  }
  return std::move(walk.results.back());
}

}  // namespace nimble::rt
