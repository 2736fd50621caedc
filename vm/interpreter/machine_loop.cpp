// The dispatch loop of machine.h and what its instructions do.
//
// There are two loops of one text. The counted one looks before each instruction whether fuel or
// slice are at their end, and tells the profiler. The plain one, of runs that have no limit but
// what one can cancel, only counts. Neither notes where it stands: an instruction that fails is
// found where the exception passes.
#include <algorithm>
#include <array>

#include "vm/base/checked.h"
#include "vm/base/error.h"
#include "vm/interpreter/gpu_arguments.h"
#include "vm/interpreter/machine.h"
#include "vm/interpreter/registers.h"
#include "vm/interpreter/replay.h"

namespace nimble::rt {
namespace {

using exec::Opcode;

// The last {} of the message stand for the values: what comes before may be a name of the user's.
[[noreturn, gnu::cold]] void stop(std::string_view message, std::span<const uint32_t> values,
                                  const Value* registers) {
  std::vector<size_t> places;  // from the last on
  size_t end = message.size();
  while (places.size() < values.size()) {
    const size_t at = message.rfind("{}", end);
    if (at == std::string_view::npos) break;
    places.push_back(at);
    if (at < 2) break;
    end = at - 2;
  }
  std::string text;
  size_t done = 0;
  for (size_t i = places.size(); i-- > 0;) {
    text += message.substr(done, places[i] - done);
    text += std::to_string(scalar_of(registers[values[values.size() - 1 - i]]));
    done = places[i] + 2;
  }
  text += message.substr(done);
  throw Error(Status::kFatal, "", std::move(text));
}

// What a run may still take: `left` steps of `budget` in this slice, and `fuel`, at its beginning,
// in all.
struct Countdown {
  uint64_t fuel, budget, left;
};

[[noreturn, gnu::cold]] void fail_fuel(uint64_t limit) {
  throw Error(Status::kExhausted, "", fmt::format("the run took more than {} instructions", limit),
              "raise the fuel of the session or use smaller inputs");
}

// Takes steps from the fuel, and from the slice only if the fuel no longer reaches as far: an
// instruction is not cut in two.
Countdown take_from_fuel(Countdown c, uint64_t steps) {
  c.fuel -= steps;
  const uint64_t excess = c.budget > c.fuel ? c.budget - c.fuel : 0;
  c.budget -= excess;
  c.left -= excess;
  return c;
}

// Beyond what is done there: the stand-in's memory is opened for each clearing, copy and kernel,
// which goes through the pages in use.
[[gnu::cold]] uint64_t opening_of(Heap& heap, int32_t device) {
  constexpr uint64_t kSteps = 4096, kBytesPerStep = 512;
  return kSteps + heap.pool(device)->stats().in_use / kBytesPerStep;
}
uint64_t opening_steps(Heap& heap, int32_t device) {
  return device == kStandInDevice ? opening_of(heap, device) : 0;
}

[[noreturn, gnu::cold]] void fail_storage(int64_t bytes) {
  throw Error(Status::kFatal, "", fmt::format("a storage of {} bytes", bytes),
              "check the extents of the inputs");
}

[[noreturn, gnu::cold]] void fail_field(int64_t index, uint32_t count) {
  throw Error(Status::kFatal, "", fmt::format("field {} of a value with {}", index, count),
              "report it: the program reads a field that is not there");
}

[[noreturn, gnu::cold]] void fail_rank(const Tensor& t, int64_t wanted) {
  throw Error(Status::kFatal, "",
              fmt::format("a tensor of {} dims is needed, it has {}", wanted, t.rank),
              "give inputs of the right rank");
}

[[noreturn, gnu::cold]] void fail_arity(const DecodedFunction& callee, uint32_t captured,
                                        uint32_t given) {
  throw Error(Status::kFatal, "",
              fmt::format("\"{}\" takes {} values, the closure holds {} and the call gives {}",
                          callee.source->name, callee.source->parameters, captured, given),
              "report it: the program calls it wrongly");
}

}  // namespace

// Captured values first.
std::span<const Value> Machine::gather(const Value* registers, std::span<const uint32_t> list,
                                       const Cell* closure) {
  Value* to = call_.data();
  if (closure)
    for (const Value& v : closure->values()) *to++ = v;
  for (uint32_t reg : list) *to++ = registers[reg];
  const std::span<const Value> values(call_.data(), to);
  for (const Value& v : values) Heap::retain(v);
  return values;
}

std::span<const Value> Machine::borrow(const Value* registers, std::span<const uint32_t> list) {
  Value* to = call_.data();
  for (uint32_t reg : list) *to++ = registers[reg];
  return {call_.data(), list.size()};
}

void Machine::invoke_scalar(const exec::ScalarFunction& function, Value* results,
                            const Value* registers, std::span<const uint32_t> list) {
  for (size_t i = 0; i < list.size(); ++i) scalars_[i] = scalar_of(registers[list[i]]);
  const uint32_t count = function.program.results;
  function.program.evaluate({scalars_.data(), list.size()}, {results_.data(), count});
  for (uint32_t i = 0; i < count; ++i) put(heap_, results[i], results_[i]);
}

Scratch& Machine::scratch(int32_t device) {
  std::unique_ptr<Scratch>& s = scratch_[static_cast<size_t>(device)];
  if (!s) s = std::make_unique<Scratch>(*heap_.pool(device));
  return *s;
}

void Machine::invoke_packed(const PreparedKernel& kernel, std::span<const Value> call,
                            uint32_t index, Profiler* profiler) {
  bind_arguments(kernel, call, &kernel_frame_);
  if (kernel.launches) {
    const int32_t device = kernel.device->number();
    GpuArguments arguments(kernel, call, &kernel_frame_, *heap_.pool(device));
    const KernelCallResult done =
        launches_.launch(index, call, scratch(device), &kernel_frame_, profiler);
    arguments.copy_back();
    if (profiler && profiler->log()) profiler->log()->add(kernel, call, kernel_frame_, done);
    return;
  }
  if (!profiler) [[likely]] {
    run_kernel(kernel, call, threads_, pool_, scratch(kernel.device->number()), &kernel_frame_);
    return;
  }
  const int64_t start = Profiler::now();
  const KernelCallResult done =
      run_kernel(kernel, call, threads_, pool_, scratch(kernel.device->number()), &kernel_frame_);
  const int64_t ns = Profiler::now() - start;
  if (KernelLog* log = profiler->log()) log->add(kernel, call, kernel_frame_, done);
  const std::span<const int64_t> symbols(kernel_frame_.symbols.data(), kernel.symbols);
  profiler->add_kernel(index, done.implementation, done.threads, symbols, ns);
  if (Trace* trace = profiler->trace())
    trace->add_kernel(index, done.implementation, done.threads, symbols, start, ns);
}

void Machine::trace_memory(Trace* trace) {
  const int64_t time = Profiler::now();
  heap_.for_each_pool([&](const StoragePool& pool) {
    trace->add_memory(pool.device().number(), pool.stats().in_use, time);
  });
}

void Machine::trace_instruction(Trace* trace, const DecodedFunction& f, uint32_t pc,
                                const Value* registers) {
  trace_memory(trace);
  trace->begin(static_cast<uint32_t>(&f - model_.functions().data()), pc,
               static_cast<uint32_t>(frames_.depth()), f.code[pc].op);
  // The file's own form of the instruction tells which of its operands are registers.
  const std::optional<exec::Operands> operands = exec::operands_of(f.source->code[pc]);
  if (!operands) return;
  for (const exec::OperandView& operand : *operands)
    if (operand.spec->kind == exec::OperandKind::kSrc ||
        operand.spec->kind == exec::OperandKind::kSrcs)
      for (const int64_t reg : operand.values) trace->add_operand(registers[reg]);
}

std::span<const int64_t> Machine::extents(const Value* r, std::span<const uint32_t> list,
                                          Extents* out) {
  const size_t rank = std::min<size_t>(list.size(), out->size());  // new_tensor refuses more
  for (size_t i = 0; i < rank; ++i) (*out)[i] = scalar_of(r[list[i]]);
  return {out->data(), rank};
}

Tensor* Machine::alloc_tensor(const Value& in, int64_t offset, DType dtype,
                              std::span<const int64_t> shape) {
  if (!in.is(ObjectKind::kTensor)) return heap_.new_tensor(&storage_of(in), offset, dtype, shape);
  // A view: it must lie inside the tensor, not only inside the tensor's storage.
  const Tensor& whole = tensor_of(in);
  // What has no size is larger than any tensor.
  const auto bytes = static_cast<uint64_t>(try_byte_size(dtype, shape).value_or(INT64_MAX));
  const uint64_t limit = whole.bytes();
  const auto begin = static_cast<uint64_t>(offset);  // large if it is negative
  if (begin > limit || bytes > limit - begin) [[unlikely]]
    throw Error(Status::kFatal, "",
                fmt::format("a part of shape ({}) at byte {} lies outside of a tensor ({})",
                            fmt::join(shape, ", "), offset, fmt::join(whole.shape(), ", ")),
                "index only what is there");
  return heap_.new_tensor(whole.storage, static_cast<int64_t>(whole.offset) + offset, dtype, shape);
}

Tensor* Machine::reshape(const Value& in, std::span<const int64_t> wanted) {
  const Tensor& t = tensor_of(in);
  if (try_element_count(wanted) != try_element_count(t.shape()))
    throw Error(Status::kFatal, "",
                fmt::format("shape ({}) cannot become ({}): the numbers of elements differ",
                            fmt::join(t.shape(), ", "), fmt::join(wanted, ", ")),
                "give inputs whose extents agree");
  return heap_.new_tensor(t.storage, static_cast<int64_t>(t.offset), t.dtype, wanted);
}

Tensor* Machine::device_copy(const Tensor& t, int32_t to, const RunControl& control,
                             Profiler* profiler) {
  const auto from = int32_t{t.storage->device};
  if (is_gpu(from) || is_gpu(to)) model_.check_gpu();
  const uint64_t bytes = t.bytes();
  if (!t.data())
    throw Error(Status::kFatal, "", "a tensor is copied whose storage was freed",
                "report it: the memory plan is wrong");
  Storage* storage = heap_.new_storage(bytes, to);
  Tensor* copied = nullptr;
  try {
    copied = heap_.new_tensor(storage, 0, t.dtype, t.shape());
  } catch (...) {
    heap_.release(storage);
    throw;
  }
  heap_.release(storage);
  try {
    for (uint64_t at = 0; at < bytes; at += WorkMeter::kPollBytes) {
      if (at > 0 && control.cancelled()) WorkMeter::fail_cancelled();
      copy(device(to), copied->data() + at, device(from), t.data() + at,
           std::min(bytes - at, WorkMeter::kPollBytes));
    }
  } catch (...) {
    heap_.release(copied);
    throw;
  }
  if (profiler) profiler->add_copy(from, to, bytes);
  if (from == kCudaDevice && to != kCudaDevice && bytes > 0) try {
      launches_.settle(profiler);  // the copy has waited for all
    } catch (...) {
      heap_.release(copied);
      throw;
    }
  return copied;
}

// Each handler ends in a jump of its own to that of the next instruction, which the processor
// foretells by what usually follows. In the plain loop that is all there is between two
// instructions but for counting them.
#define NIMBLE_NEXT \
  {                 \
    ++at;           \
    NIMBLE_HERE     \
  }
#define NIMBLE_HERE                               \
  {                                               \
    if constexpr (kCounted) goto step;            \
    --left;                                       \
    goto* kHandlers[static_cast<size_t>(at->op)]; \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"  // labels as values

template <bool kCounted>
std::optional<Value> Machine::loop(uint64_t slice, const RunControl& control, Profiler* profiler) {
  static const void* const kHandlers[] = {
#define NIMBLE_OPCODE(name, ...) &&name,
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
  };
  const DecodedFunction* const functions = model_.functions().data();
  const size_t function_count = model_.functions().size();
  const exec::Executable& executable = model_.executable();
  constexpr uint64_t kItems = WorkMeter::kItemsPerStep, kBytes = WorkMeter::kBytesPerStep;
  const bool clears = heap_.pool()->clears();
  // Fuel and slice are one countdown; which of them ran out is asked at its end. Without either
  // it only counts.
  uint64_t fuel = kCounted && limits_.fuel != 0 ? limits_.fuel - executed_ : UINT64_MAX;
  uint64_t budget = kCounted && slice != 0 ? std::min(fuel, slice) : fuel;
  uint64_t left = budget;
  kernel_frame_.meter = {0, &control, heap_.pool().get()};

  // The running frame; set anew whenever frames or the stack move. Nothing may take these by
  // reference, or they live in memory.
  const DecodedFunction* f = nullptr;
  const DecodedInstruction* at = nullptr;  // the instruction in progress
  Value* r = nullptr;
  const auto function = [this] { return frames_.top().function; };
  const auto registers = [this] { return frames_.registers(); };
  const auto call = [this](const DecodedFunction* from, const DecodedInstruction* in,
                           const DecodedFunction& callee, std::span<const Value> arguments,
                           uint32_t result) {
    if (in->tail) {
      frames_.replace(callee, arguments);
    } else {
      frames_.top().pc = static_cast<uint32_t>(in - from->code.data());
      frames_.push(callee, arguments, result);
    }
  };
  // For an instruction that does the work of many: what it takes beyond its own step.
  const auto charge = [&](uint64_t steps) __attribute__((always_inline)) {
    if (steps == 0) [[likely]]
      return;
    if (!kCounted || steps < left) {
      left -= steps;
    } else {
      if (fuel - (budget - left) < steps) fail_fuel(limits_.fuel);
      const Countdown c = take_from_fuel({fuel, budget, left}, steps);
      fuel = c.fuel, budget = c.budget, left = c.left;
      executed_ += steps;
    }
    if (steps >= WorkMeter::kPollSteps && control.cancelled()) [[unlikely]]
      WorkMeter::fail_cancelled();
  };
  int64_t last_time = 0;
  const DecodedInstruction* last = nullptr;  // the instruction being timed
  f = function();
  at = f->code.data() + frames_.top().pc;
  r = registers();

  try {
    NIMBLE_HERE
    [[maybe_unused]] step : {
      if (left == 0) [[unlikely]] {
        if (profiler && last) profiler->add_instruction(last->op, Profiler::now() - last_time);
        if (budget == fuel) fail_fuel(limits_.fuel);
        goto suspended;
      }
      --left;
      if (profiler) [[unlikely]] {
        const int64_t time = Profiler::now();
        if (last) profiler->add_instruction(last->op, time - last_time);
        last_time = time;
        last = at;
        if (Trace* trace = profiler->trace()) {
          trace_instruction(trace, *f, static_cast<uint32_t>(at - f->code.data()), r);
          last_time = Profiler::now();
          trace->begin_at(last_time);
        }
      }
      goto* kHandlers[static_cast<size_t>(at->op)];
    }

  Move : {
    const decoded::Move& in = at->Move;
    put_copy(heap_, r[in.to], r[in.from]);
    NIMBLE_NEXT
  }
  Ret : {
    if (control.interrupted()) [[unlikely]]
      goto interrupted;
    const Value result = r[at->Ret.value];
    Heap::retain(result);
    const uint32_t to = frames_.top().result;
    frames_.pop();
    if (frames_.empty()) {
      executed_ += budget - left;
      if (profiler) {
        profiler->add_instruction(Opcode::kRet, Profiler::now() - last_time);
        if (Trace* trace = profiler->trace()) trace_memory(trace);
      }
      return result;
    }
    f = function();
    at = f->code.data() + frames_.top().pc;
    r = registers();
    heap_.assign(r[to], result);
    NIMBLE_NEXT
  }
  If : {
    if (control.interrupted()) [[unlikely]]
      goto interrupted;
    const decoded::If& in = at->If;
    at = f->code.data() + (scalar_of(r[in.condition]) != 0 ? in.yes : in.no);
    NIMBLE_HERE
  }
  Goto : {
    if (control.interrupted()) [[unlikely]]
      goto interrupted;
    at = f->code.data() + at->Goto.to;
    NIMBLE_HERE
  }
  LoadConst : {
    const decoded::LoadConst& in = at->LoadConst;
    Heap::retain(constants_[in.constant]);
    put(heap_, r[in.to], constants_[in.constant]);
    NIMBLE_NEXT
  }
  LoadConsti : {
    const decoded::LoadConsti& in = at->LoadConsti;
    put(heap_, r[in.to], in.value);
    NIMBLE_NEXT
  }
  AllocStorage : {
    const decoded::AllocStorage& in = at->AllocStorage;
    const int64_t bytes = scalar_of(r[in.bytes]);
    if (bytes < 0) [[unlikely]]
      fail_storage(bytes);
    if (clears)
      charge(static_cast<uint64_t>(bytes) / kBytes +
             opening_steps(heap_, static_cast<int32_t>(in.device)));
    put(heap_, r[in.to],
        heap_.new_storage(static_cast<uint64_t>(bytes), static_cast<int32_t>(in.device)));
    NIMBLE_NEXT
  }
  AllocTensor : {
    const decoded::AllocTensor& in = at->AllocTensor;
    put(heap_, r[in.to],
        alloc_tensor(r[in.storage], scalar_of(r[in.offset]), in.dtype, f->elements(in.shape)));
    NIMBLE_NEXT
  }
  AllocTensorReg : {
    const decoded::AllocTensorReg& in = at->AllocTensorReg;
    const int64_t offset = scalar_of(r[in.offset]);
    Extents shape;
    put(heap_, r[in.to],
        alloc_tensor(r[in.storage], offset, in.dtype, extents(r, f->elements(in.shape), &shape)));
    NIMBLE_NEXT
  }
  AllocADT : {
    const decoded::AllocADT& in = at->AllocADT;
    charge(at->work);
    put(heap_, r[in.to],
        heap_.new_cell(ObjectKind::kAdt, in.tag, borrow(r, f->elements(in.fields))));
    NIMBLE_NEXT
  }
  AllocClosure : {
    const decoded::AllocClosure& in = at->AllocClosure;
    charge(at->work);
    put(heap_, r[in.to],
        heap_.new_cell(ObjectKind::kClosure, in.function, borrow(r, f->elements(in.captured))));
    NIMBLE_NEXT
  }
  FreeStorage : {
    Value& storage = r[at->FreeStorage.storage];
    heap_.free_memory(&storage_of(storage));
    heap_.assign(storage, Value());
    NIMBLE_NEXT
  }
  FreeTensor : {
    Value& tensor = r[at->FreeTensor.tensor];
    if (!tensor.is_object()) [[unlikely]]
      fail_kind("tensor", tensor);
    heap_.assign(tensor, Value());
    NIMBLE_NEXT
  }
  Invoke : {
    if (control.interrupted()) [[unlikely]]
      goto interrupted;
    const decoded::Invoke& in = at->Invoke;
    charge(at->work);
    if (in.function >= function_count) {
      invoke_scalar(executable.scalar_functions[in.function - function_count], r + in.results, r,
                    f->elements(in.arguments));
      NIMBLE_NEXT
    }
    call(f, at, functions[in.function], gather(r, f->elements(in.arguments), nullptr), in.results);
    f = function();
    at = f->code.data();
    r = registers();
    NIMBLE_HERE
  }
  InvokeClosure : {
    if (control.interrupted()) [[unlikely]]
      goto interrupted;
    const decoded::InvokeClosure& in = at->InvokeClosure;
    const Cell& closure = cell_of(r[in.closure], ObjectKind::kClosure);
    const DecodedFunction& callee = functions[static_cast<size_t>(closure.number)];
    if (closure.count + in.arguments.count != callee.source->parameters) [[unlikely]]
      fail_arity(callee, closure.count, in.arguments.count);
    charge((uint64_t{closure.count} + in.arguments.count + callee.registers) / kItems);
    call(f, at, callee, gather(r, f->elements(in.arguments), &closure), in.result);
    f = function();
    at = f->code.data();
    r = registers();
    NIMBLE_HERE
  }
  InvokePacked : {
    if (control.interrupted()) [[unlikely]]
      goto interrupted;
    const decoded::InvokePacked& in = at->InvokePacked;
    const PreparedKernel& kernel = model_.kernels()[in.kernel];
    charge(kernel.contract_steps + opening_steps(heap_, kernel.kernel->device));
    const uint64_t before = fuel - (budget - left);
    kernel_frame_.meter.steps = before;
    invoke_packed(kernel, borrow(r, f->elements(in.arguments)), in.kernel, profiler);
    const uint64_t used = before - kernel_frame_.meter.steps;
    if constexpr (!kCounted) {
      left -= used;
    } else if (used != 0) {
      const Countdown c = take_from_fuel({fuel, budget, left}, used);
      fuel = c.fuel, budget = c.budget, left = c.left;
      executed_ += used;
    }
    NIMBLE_NEXT
  }
  GetField : {
    const decoded::GetField& in = at->GetField;
    const Cell& cell = cell_of(r[in.object], ObjectKind::kAdt);
    if (in.index >= cell.count) [[unlikely]]
      fail_field(in.index, cell.count);
    put_copy(heap_, r[in.to], cell.values()[static_cast<size_t>(in.index)]);
    NIMBLE_NEXT
  }
  GetTag : {
    const decoded::GetTag& in = at->GetTag;
    put(heap_, r[in.to], cell_of(r[in.object], ObjectKind::kAdt).number);
    NIMBLE_NEXT
  }
  DeviceCopy : {
    const decoded::DeviceCopy& in = at->DeviceCopy;
    const Tensor& t = tensor_of(r[in.tensor]);
    charge(t.bytes() / kBytes + opening_steps(heap_, t.storage->device) +
           opening_steps(heap_, static_cast<int32_t>(in.device)));
    put(heap_, r[in.to], device_copy(t, static_cast<int32_t>(in.device), control, profiler));
    NIMBLE_NEXT
  }
  ShapeOf : {
    const decoded::ShapeOf& in = at->ShapeOf;
    const Tensor& t = tensor_of(r[in.tensor]);
    if (t.rank != in.rank) [[unlikely]]
      fail_rank(t, in.rank);
    // The results may overwrite the tensor's own register, and so free it.
    const std::array<int64_t, kMaxRank> shape = t.extents;
    for (int64_t i = 0; i < in.rank; ++i)
      put(heap_, r[in.extents + i], shape[static_cast<size_t>(i)]);
    NIMBLE_NEXT
  }
  ReshapeTensor : {
    const decoded::ReshapeTensor& in = at->ReshapeTensor;
    Extents shape;
    put(heap_, r[in.to], reshape(r[in.tensor], extents(r, f->elements(in.shape), &shape)));
    NIMBLE_NEXT
  }
  Fatal : {
    const decoded::Fatal& in = at->Fatal;
    stop(executable.texts[in.message], f->elements(in.values), r);
  }
  GetElement : {
    const decoded::GetElement& in = at->GetElement;
    put(heap_, r[in.to], element_of(tensor_of(r[in.tensor]), in.index));
    NIMBLE_NEXT
  }
  GetStorage : {
    const decoded::GetStorage& in = at->GetStorage;
    Storage& storage = storage_at_start_of(tensor_of(r[in.tensor]));
    Heap::retain(&storage);
    put(heap_, r[in.to], &storage);
    NIMBLE_NEXT
  }
  GetCapacity : {
    const decoded::GetCapacity& in = at->GetCapacity;
    put(heap_, r[in.to], static_cast<int64_t>(storage_of(r[in.storage]).bytes));
    NIMBLE_NEXT
  }

  interrupted:
    if (control.cancelled()) WorkMeter::fail_cancelled();
    ++left;  // it has not been executed
    if (profiler)
      if (Trace* trace = profiler->trace()) trace->withdraw();
  suspended:  // before the instruction in progress
    frames_.top().pc = static_cast<uint32_t>(at - f->code.data());
    executed_ += budget - left;
    return std::nullopt;
  } catch (...) {
    // No instruction says on its way where it is: who fails does.
    pc_ = static_cast<uint32_t>(at - f->code.data());
    throw;
  }
}

#pragma GCC diagnostic pop

template std::optional<Value> Machine::loop<false>(uint64_t, const RunControl&, Profiler*);
template std::optional<Value> Machine::loop<true>(uint64_t, const RunControl&, Profiler*);

}  // namespace nimble::rt
