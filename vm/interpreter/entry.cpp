#include "vm/interpreter/entry.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "vm/base/checked.h"
#include "vm/base/edit_distance.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::rt {
namespace {

// Whether the elements lie one after another in row-major order; extents of 1 have no stride that
// matters.
bool is_dense(const InputTensor& t) {
  if (t.strides.empty()) return true;
  int64_t expected = 1;
  for (size_t i = t.shape.size(); i-- > 0;) {
    if (t.shape[i] == 0) return true;
    if (t.shape[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

void copy_strided(uint8_t* to, const uint8_t* from, size_t element, std::span<const int64_t> shape,
                  std::span<const int64_t> strides) {
  if (shape.empty()) {
    std::memcpy(to, from, element);
    return;
  }
  const int64_t step = strides[0] * static_cast<int64_t>(element);
  int64_t inner = static_cast<int64_t>(element);
  for (int64_t extent : shape.subspan(1)) inner *= extent;
  for (int64_t i = 0; i < shape[0]; ++i)
    copy_strided(to + i * inner, from + i * step, element, shape.subspan(1), strides.subspan(1));
}

// The bits of a one, little-endian.
uint64_t one_of(DType dtype) {
  uint64_t one = 1;
  switch (dtype) {
    case DType::kF16:
      one = 0x3c00;
      break;
    case DType::kBF16:
      one = 0x3f80;
      break;
    case DType::kF32:
      one = 0x3f800000;
      break;
    case DType::kF64:
      one = 0x3ff0000000000000;
      break;
    default:
      break;
  }
  return one;
}

// Zeros or ones over memory that may be large.
void fill(DType dtype, bool ones, uint8_t* data, uint64_t bytes, const WorkMeter& meter) {
  const size_t size = size_of(dtype);
  const uint64_t one = ones ? one_of(dtype) : 0;
  for (uint64_t from = 0; from < bytes; from += WorkMeter::kPollBytes) {
    meter.poll();
    const uint64_t to = std::min(bytes, from + WorkMeter::kPollBytes);
    if (ones)
      for (uint64_t at = from; at < to; at += size) std::memcpy(data + at, &one, size);
    else
      std::memset(data + from, 0, to - from);
  }
}

Value make_tensor(Heap& heap, Storage* storage, DType dtype, std::span<const int64_t> shape) {
  try {
    const Value v = Value::of(heap.new_tensor(storage, 0, dtype, shape));
    heap.release(storage);
    return v;
  } catch (...) {
    heap.release(storage);
    throw;
  }
}

// Whether a tensor that was borrowed for an earlier call has the dtype and extents of this input.
bool alike(const Tensor& kept, const InputTensor& in) {
  return kept.dtype == in.dtype && std::ranges::equal(kept.shape(), in.shape);
}

}  // namespace

EntryPlan::EntryPlan(const exec::Executable& executable, const exec::EntryPoint& entry,
                     const std::string& place)
    : executable_(executable), entry_(entry), place_(place) {
  std::map<std::string_view, int32_t> numbers;
  for (const exec::Port& port : entry.inputs) {
    std::vector<int32_t>& dims = dims_.emplace_back();
    for (size_t i = 0; i < port.dims.size(); ++i) {
      if (port.extents[i] >= 0) {
        dims.push_back(kFixed);
      } else if (port.dims[i] == "?") {
        dims.push_back(kAny);
      } else {
        const auto [at, is_new] =
            numbers.try_emplace(port.dims[i], static_cast<int32_t>(names_.size()));
        if (is_new) names_.push_back(port.dims[i]);
        dims.push_back(at->second);
      }
    }
  }
  extents_.resize(names_.size());
  origins_.resize(names_.size());
  kept_.resize(entry.inputs.size());
  for (uint32_t i = 0; i < entry.inputs.size(); ++i)
    by_name_.push_back({hash64(entry.inputs[i].name), i});
  std::sort(by_name_.begin(), by_name_.end());
}

size_t EntryPlan::find_input(std::string_view name, size_t likely) const {
  const std::vector<exec::Port>& ports = entry_.inputs;
  if (likely < ports.size() && ports[likely].name == name) return likely;
  const uint64_t hash = hash64(name);
  const auto first = std::lower_bound(by_name_.begin(), by_name_.end(), std::pair(hash, 0u));
  for (auto at = first; at != by_name_.end() && at->first == hash; ++at)
    if (ports[at->second].name == name) return at->second;
  std::vector<std::string> names;
  for (const exec::Port& port : ports) names.push_back(port.name);
  const std::string_view near = nearest_name(name, names);
  throw Error(Status::kNotFound, place_, fmt::format("{} has no input {}", entry_.name, name),
              near.empty() ? fmt::format("its inputs are {}", fmt::join(names, ", "))
                           : fmt::format("did you mean {}?", near));
}

std::string EntryPlan::port_text(const exec::Port& port) const {
  if (port.type >= 0) return "a " + executable_.types[static_cast<size_t>(port.type)].name;
  return fmt::format("{} ({})", name_of(port.dtype), fmt::join(port.dims, ", "));
}

void EntryPlan::check_kind(size_t index, const InputTensor& input) const {
  const exec::Port& port = entry_.inputs[index];
  if ((port.type >= 0) != (input.value != nullptr))
    throw Error(Status::kInvalidArgument, fmt::format("{}: input {}", place_, port.name),
                port.type >= 0 ? "it is a tensor, not a value of a data type"
                               : "it is a value of a data type, not a tensor",
                "give " + port_text(port));
}

void EntryPlan::check(size_t index, const InputTensor& input) {
  const exec::Port& port = entry_.inputs[index];
  auto fail = [&](const std::string& problem, const std::string& remedy) {
    throw Error(Status::kInvalidArgument, fmt::format("{}: input {}", place_, port.name), problem,
                remedy);
  };
  const auto wanted = [&] { return "give " + port_text(port); };  // few calls need it
  if (input.dtype != port.dtype)
    fail(fmt::format("it is {}, not {}", name_of(input.dtype), name_of(port.dtype)), wanted());
  if (input.shape.size() != port.dims.size())
    fail(fmt::format("it has {} dims, not {}", input.shape.size(), port.dims.size()), wanted());
  if (!input.strides.empty() && input.strides.size() != input.shape.size())
    fail("it has as many strides as dims", wanted());
  if (!try_byte_size(input.dtype, input.shape))
    fail(fmt::format("its shape ({}) is negative or too large", fmt::join(input.shape, ", ")),
         wanted());
  for (size_t d = 0; d < input.shape.size(); ++d) {
    const int64_t extent = input.shape[d];
    const int32_t number = dims_[index][d];
    if (number == kFixed && extent != port.extents[d])
      fail(fmt::format("dim {} is {}, not {}", d, extent, port.extents[d]), wanted());
    if (number < 0) continue;
    if (extents_[number] < 0) {
      extents_[number] = extent;
      origins_[number] = {static_cast<uint32_t>(index), static_cast<uint32_t>(d)};
    } else if (extents_[number] != extent) {
      const Origin& o = origins_[number];
      fail(fmt::format("dim {} ({}) is {}, but dim {} of {} makes it {}", d, port.dims[d], extent,
                       o.dim, entry_.inputs[o.input].name, extents_[number]),
           "give inputs whose extents agree");
    }
  }
  if (!input.data && try_element_count(input.shape) != 0) fail("it has no data", wanted());
}

Value EntryPlan::default_value(size_t index, Heap& heap, WorkMeter* meter) const {
  const exec::Port& port = entry_.inputs[index];
  std::array<int64_t, kMaxRank> shape{};
  for (size_t d = 0; d < port.dims.size(); ++d) {
    const int32_t number = dims_[index][d];
    shape[d] = number == kFixed ? port.extents[d] : number >= 0 ? extents_[number] : -1;
    if (shape[d] < 0)
      throw Error(
          Status::kInvalidArgument, fmt::format("{}: input {}", place_, port.name),
          fmt::format("it is not given, and no other input tells its dim {} ({})", d, port.dims[d]),
          "give " + port_text(port));
  }
  const std::span<const int64_t> extents(shape.data(), port.dims.size());
  const std::optional<int64_t> bytes = try_byte_size(port.dtype, extents);
  if (!bytes)
    throw Error(Status::kInvalidArgument, fmt::format("{}: input {}", place_, port.name),
                "its default is too large", "give smaller inputs");
  Storage* storage = nullptr;
  try {
    meter->charge(static_cast<uint64_t>(*bytes) / WorkMeter::kBytesPerStep);
    storage = heap.new_storage(static_cast<uint64_t>(*bytes));
    const bool ones = port.default_fill == "ones";
    if (ones || !heap.pool()->clears())
      fill(port.dtype, ones, storage->data, static_cast<uint64_t>(*bytes), *meter);
  } catch (const Error& e) {
    if (storage) heap.release(storage);
    throw Error(e.status(), fmt::format("{}: input {}", place_, port.name),
                "its default cannot be made: " + e.problem(), e.remedy());
  }
  return make_tensor(heap, storage, port.dtype, extents);
}

// Whether all inputs are tensors that can be borrowed, of the dtypes and extents of those that the
// call before borrowed: then check_all() has nothing new to look at.
bool EntryPlan::looks_as_before(std::span<const InputTensor> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputTensor& in = inputs[i];
    if (!in.given || in.value || !in.strides.empty() || !in.data || !kept_[i] ||
        !alike(*kept_[i], in))
      return false;
  }
  return true;
}

void EntryPlan::check_all(std::span<const InputTensor> inputs) {
  std::fill(extents_.begin(), extents_.end(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const exec::Port& port = entry_.inputs[i];
    if (inputs[i].given) {
      check_kind(i, inputs[i]);
      if (port.type < 0) check(i, inputs[i]);
    } else if (port.default_fill.empty()) {
      throw Error(Status::kInvalidArgument, fmt::format("{}: input {}", place_, port.name),
                  "it is not given and has no default", "give " + port_text(port));
    }
  }
}

Value EntryPlan::borrow(size_t index, const InputTensor& in, Heap& heap) {
  Tensor*& kept = kept_[index];
  // What an earlier run left behind somewhere must not change.
  if (kept && kept->refs == 1 && kept->storage->refs == 1 && alike(*kept, in)) {
    Heap::look_at(kept->storage, in.data);
  } else {
    if (kept) heap.release(kept);
    kept = nullptr;
    const uint64_t bytes = static_cast<uint64_t>(*try_byte_size(in.dtype, in.shape));
    Storage* view = heap.new_view(Storage::Origin::kBorrowed, in.data, bytes);
    kept = static_cast<Tensor*>(make_tensor(heap, view, in.dtype, in.shape).object);
  }
  Heap::retain(kept);
  return Value::of(kept);
}

Value EntryPlan::make_value(size_t index, const InputTensor& in, NamedExtents* extents, Heap& heap,
                            WorkMeter* meter) {
  const exec::Port& port = entry_.inputs[index];
  if (in.given && !in.value && is_dense(in) &&
      reinterpret_cast<uintptr_t>(in.data) % size_of(in.dtype) == 0)
    return borrow(index, in, heap);
  if (kept_[index]) heap.release(kept_[index]);
  kept_[index] = nullptr;
  if (!in.given) return default_value(index, heap, meter);
  if (in.value)
    return to_heap(*in.value, executable_, static_cast<uint32_t>(port.type), extents, heap,
                   fmt::format("{}: input {}", place_, port.name));
  const uint64_t bytes = static_cast<uint64_t>(*try_byte_size(in.dtype, in.shape));
  Storage* copy = heap.new_storage(bytes);
  if (is_dense(in))
    std::memcpy(copy->data, in.data, bytes);
  else
    copy_strided(copy->data, static_cast<const uint8_t*>(in.data), size_of(in.dtype), in.shape,
                 in.strides);
  return make_tensor(heap, copy, in.dtype, in.shape);
}

void EntryPlan::drop_kept(Heap& heap) {
  for (Tensor*& t : kept_) {
    if (t) heap.release(t);
    t = nullptr;
  }
}

uint64_t EntryPlan::idle_objects() const {
  uint64_t objects = 0;
  for (const Tensor* t : kept_)
    if (t && t->refs == 1) objects += t->storage->refs == 1 ? 2 : 1;
  return objects;
}

void EntryPlan::bind(std::span<const InputTensor> inputs, Heap& heap, WorkMeter* meter,
                     std::vector<Value>* values) {
  values->clear();
  values->reserve(inputs.size());  // so that no value is lost between its making and its place
  if (!looks_as_before(inputs)) check_all(inputs);
  NamedExtents extents;  // what the tensors tell of the values
  if (std::any_of(inputs.begin(), inputs.end(), [](const InputTensor& i) { return i.value; }))
    for (size_t i = 0; i < names_.size(); ++i)
      if (extents_[i] >= 0) extents[names_[i]] = extents_[i];
  try {
    for (size_t i = 0; i < inputs.size(); ++i)
      values->push_back(make_value(i, inputs[i], &extents, heap, meter));
  } catch (...) {
    for (const Value& v : *values) heap.release(v);
    values->clear();
    throw;
  }
}

}  // namespace nimble::rt
