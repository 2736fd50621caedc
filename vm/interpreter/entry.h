// The border between a user's tensors and an entry point: names, dtypes, ranks and extents are
// checked before anything runs, and every message says which input, what it is and what it
// should be.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/interpreter/host_value.h"
#include "vm/runtime/object.h"
#include "vm/runtime/work_meter.h"

namespace nimble::rt {

struct InputTensor {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::span<const int64_t> shape;
  std::span<const int64_t> strides;  // in elements; empty: dense row-major
  bool given = false;                // false: left out, its default is used
  const HostValue* value = nullptr;  // instead of a tensor, where the port has a data type
};

// An entry point with its dims numbered: equal texts are one extent.
class EntryPlan {
 public:
  EntryPlan(const exec::Executable& executable, const exec::EntryPoint& entry,
            const std::string& place);

  // The values to call the entry's function with, one reference each; `inputs` in the entry's
  // order. Dense inputs are borrowed, others copied, missing ones filled, which takes from `meter`:
  // how large they are, the file says. Error(kInvalidArgument, kExhausted, kCancelled), after which
  // `values` is empty. Tensors of borrowed inputs are kept: inputs that look like those of the call
  // before are not checked against each other again, and lead to the same objects.
  void bind(std::span<const InputTensor> inputs, Heap& heap, WorkMeter* meter,
            std::vector<Value>* values);
  // Lets go of what is kept; before the heap dies.
  void drop_kept(Heap& heap);
  // Objects that are kept and that nobody else refers to.
  uint64_t idle_objects() const;

  // The index of an input, looked for at `likely` first; Error(kNotFound) that suggests the nearest
  // name.
  size_t find_input(std::string_view name, size_t likely = SIZE_MAX) const;
  const exec::EntryPoint& entry() const { return entry_; }
  // The dims of tensor inputs that are neither constant nor "?", each text once, and what they were
  // when bind() was last called; -1: no input told it.
  std::span<const std::string> extent_names() const { return names_; }
  std::span<const int64_t> extents() const { return extents_; }

 private:
  static constexpr int32_t kAny = -1, kFixed = -2;
  struct Origin {
    uint32_t input, dim;
  };
  bool looks_as_before(std::span<const InputTensor> inputs) const;
  void check_all(std::span<const InputTensor> inputs);
  void check(size_t index, const InputTensor& input);
  Value make_value(size_t index, const InputTensor& input, NamedExtents* extents, Heap& heap,
                   WorkMeter* meter);
  Value borrow(size_t index, const InputTensor& input, Heap& heap);
  void check_kind(size_t index, const InputTensor& input) const;
  Value default_value(size_t index, Heap& heap, WorkMeter* meter) const;
  std::string port_text(const exec::Port& port) const;

  const exec::Executable& executable_;
  const exec::EntryPoint& entry_;
  const std::string& place_;
  std::vector<std::vector<int32_t>> dims_;              // per input: extent number, kAny or kFixed
  std::vector<std::string> names_;                      // of extents
  std::vector<std::pair<uint64_t, uint32_t>> by_name_;  // hashes of inputs' names, in order
  std::vector<int64_t> extents_;                        // in this call; -1: not yet known
  std::vector<Origin> origins_;                         // which input told it
  std::vector<Tensor*> kept_;  // by input: of the last call, if it was borrowed
};

}  // namespace nimble::rt
