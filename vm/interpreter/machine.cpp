#include "vm/interpreter/machine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "vm/base/checked.h"
#include "vm/base/error.h"

namespace nimble::rt {
namespace {

using exec::Opcode;

[[noreturn, gnu::cold]] void fail_kind(std::string_view expected, const Value& v) {
  throw Error(Status::kFatal, "",
              fmt::format("a {} is needed, the register holds a {}", expected,
                          v.is_scalar()   ? "scalar"
                          : v.is_object() ? name_of(v.object->kind)
                                          : "register without a value"),
              "report it: the program passes a wrong kind of value");
}

Tensor& tensor_of(const Value& v) {
  if (!v.is(ObjectKind::kTensor)) [[unlikely]]
    fail_kind("tensor", v);
  return *static_cast<Tensor*>(v.object);
}
Storage& storage_of(const Value& v) {
  if (!v.is(ObjectKind::kStorage)) [[unlikely]]
    fail_kind("storage", v);
  return *static_cast<Storage*>(v.object);
}
Cell& cell_of(const Value& v, ObjectKind kind) {
  if (!v.is(kind)) [[unlikely]]
    fail_kind(name_of(kind), v);
  return *static_cast<Cell*>(v.object);
}

[[noreturn, gnu::cold]] void fail_element_device(const Tensor& t) {
  throw Error(Status::kFatal, "",
              fmt::format("an element of a {} tensor ({}) is read on device 0 (cpu), it lies on "
                          "device {} ({})",
                          name_of(t.dtype), fmt::join(t.shape(), ", "), t.storage->device,
                          device_name(t.storage->device)),
              "report it: the program lacks a copy between devices");
}

// Element `index` of an integer or bool tensor as a scalar.
int64_t element_of(const Tensor& t, int64_t index) {
  if (index >= t.elements() || is_float(t.dtype)) [[unlikely]]
    throw Error(Status::kFatal, "",
                fmt::format("element {} of a tensor of integers is needed, not of {} ({})", index,
                            name_of(t.dtype), fmt::join(t.shape(), ", ")),
                "give integers or bools");
  const uint8_t* data = t.data();
  if (!data) [[unlikely]]
    throw Error(Status::kFatal, "", "a tensor is read whose storage was freed",
                "report it: the memory plan is wrong");
  if (t.storage->device != kCpuDevice && device_checks() &&
      !device(t.storage->device).host_accessible()) [[unlikely]]
    fail_element_device(t);
  data += static_cast<size_t>(index) * size_of(t.dtype);
  auto load = [&]<typename T>(T value) {
    std::memcpy(&value, data, sizeof value);
    return static_cast<int64_t>(value);
  };
  switch (t.dtype) {
    case DType::kI8:
      return load(int8_t{});
    case DType::kI16:
      return load(int16_t{});
    case DType::kI32:
      return load(int32_t{});
    case DType::kI64:
      return load(int64_t{});
    case DType::kU16:
      return load(uint16_t{});
    case DType::kU32:
      return load(uint32_t{});
    case DType::kU64:
      return load(uint64_t{});
    default:
      return load(uint8_t{});  // bool, u8
  }
}

// The one element of an integer or bool tensor: what If and shape code may be given where data
// decides.
int64_t element_of(const Tensor& t) {
  if (t.elements() != 1) [[unlikely]]
    throw Error(Status::kFatal, "",
                fmt::format("a scalar or a tensor of one integer is needed, not {} ({})",
                            name_of(t.dtype), fmt::join(t.shape(), ", ")),
                "give a single integer or bool");
  return element_of(t, 0);
}

int64_t scalar_of(const Value& v) {
  if (v.is_scalar()) [[likely]]
    return v.scalar;
  return element_of(tensor_of(v));
}

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

// What a tensor that grows is moved or extended in: it must start where the tensor does.
Storage& storage_at_start_of(const Tensor& t) {
  if (t.offset != 0 || !t.storage->writable()) [[unlikely]]
    throw Error(Status::kFatal, "", "a tensor that has no storage of its own is extended",
                "report it: the memory plan is wrong");
  return *t.storage;
}

}  // namespace

Machine::Machine(const Model& model, Heap& heap, ThreadPool& pool, int32_t threads, Limits limits)
    : model_(model),
      heap_(heap),
      pool_(pool),
      threads_(threads),
      limits_(limits),
      frames_(heap, limits.depth) {
  size_t most_results = 0, most_arguments = 0, most_parameters = 0;
  for (const exec::ScalarFunction& f : model.executable().scalar_functions)
    most_results = std::max<size_t>(most_results, f.program.results);
  for (const DecodedFunction& f : model.functions()) {
    most_parameters = std::max<size_t>(most_parameters, f.source->parameters);
    for (const DecodedInstruction& in : f.code)
      most_arguments = std::max<size_t>(most_arguments, in.count);
  }
  const size_t most_values = std::max(most_arguments, most_parameters);
  charged_.at_least(heap.pool().get(), KernelFrame::memory(model.kernels()) +
                                           most_values * sizeof(Value) +
                                           (most_results + most_arguments) * sizeof(int64_t) +
                                           model.executable().constants.size() * sizeof(Tensor*));
  kernel_frame_.reserve(model.kernels());
  results_.resize(most_results);
  scalars_.resize(most_arguments);
  call_.reserve(most_values);
  constants_.reserve(model.executable().constants.size());
  try {
    for (size_t i = 0; i < model.executable().constants.size(); ++i) {
      const exec::Constant& c = model.executable().constants[i];
      Storage* s = heap_.new_view(Storage::Origin::kConstant, model.constant_data(i),
                                  c.bytes.size(), c.device);
      Tensor* t = nullptr;
      try {
        t = heap_.new_tensor(s, 0, c.dtype, c.shape);
      } catch (...) {
        heap_.release(s);
        throw;
      }
      heap_.release(s);
      constants_.push_back(t);
    }
  } catch (...) {
    for (Tensor* t : constants_) heap_.release(t);
    throw;
  }
}

Machine::~Machine() {
  frames_.unwind();
  for (Tensor* t : constants_) heap_.release(t);
}

void Machine::trim() {
  for (const auto& s : scratch_)
    if (s) s->drop();
  kernel_frame_.portable = {};
  if (!active()) frames_.trim();
}

WorkMeter Machine::meter(const RunControl& control, bool next_run) const {
  if (limits_.fuel == 0) return {UINT64_MAX, &control, heap_.pool().get()};
  return {limits_.fuel - (next_run ? 0 : executed_), &control, heap_.pool().get()};
}

void Machine::start(uint32_t function, std::span<const Value> arguments, uint64_t steps) {
  executed_ = steps;
  try {
    frames_.push(model_.functions()[function], arguments, 0);
  } catch (const Error& e) {
    throw Error(e.status(), model_.place(), e.problem(), e.remedy());
  }
}

Position Machine::position() const {
  const Frame& frame = frames_.top();
  const auto function = frame.function - model_.functions().data();
  return {static_cast<uint32_t>(function), frame.pc, static_cast<uint32_t>(frames_.depth()),
          executed_};
}

std::optional<Value> Machine::resume(uint64_t slice, const RunControl& control,
                                     Profiler* profiler) {
  // Unwinds last of all, however the run fails: messages need the frames, and making them may
  // fail as well.
  struct Unwind {
    FrameStack* frames;
    ~Unwind() {
      if (frames) frames->unwind();
    }
  } on_failure{&frames_};
  pc_ = frames_.top().pc;
  auto place = [&] {
    return fmt::format("{}: {}", model_.place(), frames_.top().function->place_of(pc_));
  };
  try {
    std::optional<Value> result = loop(slice, control, profiler);
    on_failure.frames = nullptr;
    return result;
  } catch (const Error& e) {
    const std::string problem =
        e.place().empty() ? e.problem() : fmt::format("{}: {}", e.place(), e.problem());
    throw Error(e.status(), place(), problem, e.remedy());
  } catch (const std::bad_alloc&) {
    throw Error(Status::kExhausted, place(), "the system has no more memory",
                "use smaller inputs or set a memory limit");
  }
}

void Machine::gather(const Value* registers, std::span<const uint32_t> list, const Cell* closure) {
  call_.clear();
  if (closure)
    for (const Value& v : closure->values()) call_.push_back(v);
  for (uint32_t reg : list) call_.push_back(registers[reg]);
  for (const Value& v : call_) Heap::retain(v);
}

void Machine::invoke_scalar(const exec::ScalarFunction& function, Value* results,
                            const Value* registers, std::span<const uint32_t> list) {
  for (size_t i = 0; i < list.size(); ++i) scalars_[i] = scalar_of(registers[list[i]]);
  const uint32_t count = function.program.results;
  try {
    function.program.evaluate({scalars_.data(), list.size()}, {results_.data(), count});
  } catch (const Error& e) {
    throw Error(e.status(), "", fmt::format("{}: {}", function.name, e.problem()), e.remedy());
  }
  for (uint32_t i = 0; i < count; ++i) heap_.assign(results[i], Value::of(results_[i]));
}

Scratch& Machine::scratch(int32_t device) {
  std::unique_ptr<Scratch>& s = scratch_[static_cast<size_t>(device)];
  if (!s) s = std::make_unique<Scratch>(*heap_.pool(device));
  return *s;
}

void Machine::invoke_packed(uint32_t index, const Value* registers, std::span<const uint32_t> list,
                            Profiler* profiler) {
  const PreparedKernel& kernel = model_.kernels()[index];
  call_.clear();  // borrowed here: a kernel call changes no counts
  for (uint32_t reg : list) call_.push_back(registers[reg]);
  bind_arguments(kernel, call_, &kernel_frame_);
  if (!profiler) [[likely]] {
    run_kernel(kernel, call_, threads_, pool_, scratch(kernel.device->number()), &kernel_frame_);
    return;
  }
  const int64_t start = Profiler::now();
  const KernelCallResult done =
      run_kernel(kernel, call_, threads_, pool_, scratch(kernel.device->number()), &kernel_frame_);
  profiler->add_kernel(index, done.implementation, done.threads,
                       {kernel_frame_.symbols.data(), kernel.symbols}, Profiler::now() - start);
}

Value Machine::alloc_tensor(const DecodedFunction& f, const DecodedInstruction& in,
                            const Value* r) {
  int64_t offset = scalar_of(r[in.c]);
  std::array<int64_t, kMaxRank + 1> extents;
  std::span<const int64_t> shape;
  if (in.op == Opcode::kAllocTensor) {
    shape = f.immediate_list(in);
  } else {
    const size_t rank = std::min<size_t>(in.count, extents.size());  // new_tensor refuses more
    for (size_t i = 0; i < rank; ++i) extents[i] = scalar_of(r[f.sources(in)[i]]);
    shape = {extents.data(), rank};
  }
  if (!r[in.b].is(ObjectKind::kTensor))
    return Value::of(heap_.new_tensor(&storage_of(r[in.b]), offset, in.dtype, shape));
  // A view: it must lie inside the tensor, not only inside the tensor's storage.
  const Tensor& whole = tensor_of(r[in.b]);
  const auto bytes = try_byte_size(in.dtype, shape);
  const uint64_t limit = whole.bytes();
  if (offset < 0 || static_cast<uint64_t>(offset) > limit || !bytes || *bytes < 0 ||
      static_cast<uint64_t>(*bytes) > limit - static_cast<uint64_t>(offset)) [[unlikely]]
    throw Error(Status::kFatal, "",
                fmt::format("a part of shape ({}) at byte {} lies outside of a tensor ({})",
                            fmt::join(shape, ", "), offset, fmt::join(whole.shape(), ", ")),
                "index only what is there");
  return Value::of(heap_.new_tensor(whole.storage, static_cast<int64_t>(whole.offset) + offset,
                                    in.dtype, shape));
}

Value Machine::reshape(const DecodedFunction& f, const DecodedInstruction& in, const Value* r) {
  Tensor& t = tensor_of(r[in.b]);
  std::array<int64_t, kMaxRank + 1> shape;
  const size_t rank = std::min<size_t>(in.count, shape.size());
  for (size_t i = 0; i < rank; ++i) shape[i] = scalar_of(r[f.sources(in)[i]]);
  const std::span<const int64_t> wanted(shape.data(), rank);
  if (try_element_count(wanted) != try_element_count(t.shape()))
    throw Error(Status::kFatal, "",
                fmt::format("shape ({}) cannot become ({}): the numbers of elements differ",
                            fmt::join(t.shape(), ", "), fmt::join(wanted, ", ")),
                "give inputs whose extents agree");
  return Value::of(heap_.new_tensor(t.storage, static_cast<int64_t>(t.offset), t.dtype, wanted));
}

Value Machine::device_copy(const DecodedInstruction& in, const Value* r, const RunControl& control,
                           Profiler* profiler) {
  Tensor& t = tensor_of(r[in.b]);
  const auto to = static_cast<int32_t>(in.c), from = int32_t{t.storage->device};
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
  return Value::of(copied);
}

std::optional<Value> Machine::loop(uint64_t slice, const RunControl& control, Profiler* profiler) {
  const std::span<const DecodedFunction> functions = model_.functions();
  const exec::Executable& executable = model_.executable();
  // Fuel and slice are one countdown; which of them ran out is asked at its end.
  uint64_t fuel = limits_.fuel == 0 ? UINT64_MAX : limits_.fuel - executed_;
  uint64_t budget = slice == 0 ? fuel : std::min(fuel, slice);
  uint64_t left = budget;

  // The running frame; set anew whenever frames or the stack move.
  const DecodedFunction* f = nullptr;
  const DecodedInstruction* code = nullptr;
  Value* r = nullptr;
  uint32_t pc = 0;
  auto enter = [&](uint32_t at) {
    f = frames_.top().function;
    code = f->code.data();
    r = frames_.registers();
    pc = at;
  };
  auto call = [&](const DecodedFunction& callee, const DecodedInstruction& in) {
    if (in.tail) {
      frames_.replace(callee, call_);
    } else {
      frames_.top().pc = pc;
      frames_.push(callee, call_, in.a);
    }
    enter(0);
  };
  // Instruction `pc` is the next one when the run goes on.
  auto suspend = [&]() -> std::optional<Value> {
    frames_.top().pc = pc;
    executed_ += budget - left;
    return std::nullopt;
  };
  // Before an instruction has any effect: whether to suspend there instead.
  auto must_stop = [&] {
    if (!control.interrupted()) [[likely]]
      return false;
    if (control.cancelled()) WorkMeter::fail_cancelled();
    ++left;  // it has not been executed
    return true;
  };
  // For an instruction that does the work of many: what it takes beyond its own step.
  auto charge = [&](uint64_t steps) {
    if (steps == 0) [[likely]]
      return;
    if (steps < left) [[likely]] {
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
  constexpr uint64_t kItems = WorkMeter::kItemsPerStep, kBytes = WorkMeter::kBytesPerStep;
  const bool clears = heap_.pool()->clears();
  enter(frames_.top().pc);

  int64_t last_time = 0;
  const DecodedInstruction* last = nullptr;  // the instruction being timed
  while (true) {
    const DecodedInstruction& in = code[pc];
    pc_ = pc;
    if (left == 0) [[unlikely]] {
      if (profiler && last) profiler->add_instruction(last->op, Profiler::now() - last_time);
      if (budget < fuel) return suspend();
      fail_fuel(limits_.fuel);
    }
    --left;
    if (profiler) [[unlikely]] {
      const int64_t time = Profiler::now();
      if (last) profiler->add_instruction(last->op, time - last_time);
      last_time = time;
      last = &in;
    }
    switch (in.op) {
      case Opcode::kMove: {
        Heap::retain(r[in.b]);
        heap_.assign(r[in.a], r[in.b]);
        break;
      }
      case Opcode::kRet: {
        if (must_stop()) return suspend();
        const Value result = r[in.a];
        Heap::retain(result);
        const uint32_t to = frames_.top().result;
        frames_.pop();
        if (frames_.empty()) {
          executed_ += budget - left;
          if (profiler) profiler->add_instruction(Opcode::kRet, Profiler::now() - last_time);
          return result;
        }
        enter(frames_.top().pc);
        heap_.assign(r[to], result);
        break;
      }
      case Opcode::kIf:
        if (must_stop()) return suspend();
        pc = scalar_of(r[in.a]) != 0 ? in.b : in.c;
        continue;
      case Opcode::kGoto:
        if (must_stop()) return suspend();
        pc = in.b;
        continue;
      case Opcode::kLoadConst:
        Heap::retain(constants_[in.b]);
        heap_.assign(r[in.a], Value::of(constants_[in.b]));
        break;
      case Opcode::kLoadConsti:
        heap_.assign(r[in.a], Value::of(in.imm));
        break;
      case Opcode::kAllocStorage: {
        const int64_t bytes = scalar_of(r[in.b]);
        if (bytes < 0)
          throw Error(Status::kFatal, "", fmt::format("a storage of {} bytes", bytes),
                      "check the extents of the inputs");
        if (clears) charge(static_cast<uint64_t>(bytes) / kBytes);
        heap_.assign(r[in.a], Value::of(heap_.new_storage(static_cast<uint64_t>(bytes),
                                                          static_cast<int32_t>(in.c))));
        break;
      }
      case Opcode::kAllocTensor:
      case Opcode::kAllocTensorReg:
        heap_.assign(r[in.a], alloc_tensor(*f, in, r));
        break;
      case Opcode::kAllocADT:
      case Opcode::kAllocClosure: {
        charge(in.count / kItems);
        call_.clear();
        for (uint32_t reg : f->sources(in)) call_.push_back(r[reg]);
        const bool adt = in.op == Opcode::kAllocADT;
        heap_.assign(r[in.a],
                     Value::of(heap_.new_cell(adt ? ObjectKind::kAdt : ObjectKind::kClosure,
                                              adt ? in.imm : static_cast<int64_t>(in.b), call_)));
        break;
      }
      case Opcode::kFreeStorage:
        heap_.free_memory(&storage_of(r[in.a]));
        heap_.assign(r[in.a], Value());
        break;
      case Opcode::kFreeTensor:
        if (!r[in.a].is_object()) fail_kind("tensor", r[in.a]);
        heap_.assign(r[in.a], Value());
        break;
      case Opcode::kInvoke:
        if (must_stop()) return suspend();
        if (in.b >= functions.size()) {
          const exec::ScalarFunction& scalar = executable.scalar_functions[in.b - functions.size()];
          charge((in.count + scalar.program.code.size()) / kItems);
          invoke_scalar(scalar, r + in.a, r, f->sources(in));
          break;
        }
        charge((in.count + functions[in.b].registers) / kItems);
        gather(r, f->sources(in), nullptr);
        call(functions[in.b], in);
        continue;
      case Opcode::kInvokeClosure: {
        if (must_stop()) return suspend();
        const Cell& closure = cell_of(r[in.b], ObjectKind::kClosure);
        const DecodedFunction& callee = functions[static_cast<size_t>(closure.number)];
        if (closure.count + in.count != callee.source->parameters)
          throw Error(
              Status::kFatal, "",
              fmt::format("{} takes {} values, the closure holds {} and the call gives {}",
                          callee.source->name, callee.source->parameters, closure.count, in.count),
              "report it: the program calls it wrongly");
        charge((size_t{closure.count} + in.count + callee.registers) / kItems);
        gather(r, f->sources(in), &closure);
        call(callee, in);
        continue;
      }
      case Opcode::kInvokePacked:
        if (must_stop()) return suspend();
        charge(model_.kernels()[in.b].contract_work / kItems);
        kernel_frame_.meter = {fuel - (budget - left), &control, heap_.pool().get()};
        invoke_packed(in.b, r, f->sources(in), profiler);
        if (const uint64_t used = fuel - (budget - left) - kernel_frame_.meter.steps) {
          const Countdown c = take_from_fuel({fuel, budget, left}, used);
          fuel = c.fuel, budget = c.budget, left = c.left;
          executed_ += used;
        }
        break;
      case Opcode::kGetField: {
        if (in.imm == exec::kStorageField) {
          Storage& storage = storage_at_start_of(tensor_of(r[in.b]));
          Heap::retain(&storage);
          heap_.assign(r[in.a], Value::of(&storage));
          break;
        }
        if (r[in.b].is(ObjectKind::kStorage) && in.imm == 0) {
          const auto bytes = static_cast<int64_t>(storage_of(r[in.b]).bytes);
          heap_.assign(r[in.a], Value::of(bytes));
          break;
        }
        if (r[in.b].is(ObjectKind::kTensor)) {
          heap_.assign(r[in.a], Value::of(element_of(tensor_of(r[in.b]), in.imm)));
          break;
        }
        const Cell& cell = cell_of(r[in.b], ObjectKind::kAdt);
        if (in.imm >= cell.count)
          throw Error(Status::kFatal, "",
                      fmt::format("field {} of a value with {}", in.imm, cell.count),
                      "report it: the program reads a field that is not there");
        const Value field = cell.values()[static_cast<size_t>(in.imm)];
        Heap::retain(field);
        heap_.assign(r[in.a], field);
        break;
      }
      case Opcode::kGetTag:
        heap_.assign(r[in.a], Value::of(cell_of(r[in.b], ObjectKind::kAdt).number));
        break;
      case Opcode::kDeviceCopy:
        charge(tensor_of(r[in.b]).bytes() / kBytes);
        heap_.assign(r[in.a], device_copy(in, r, control, profiler));
        break;
      case Opcode::kShapeOf: {
        const Tensor& t = tensor_of(r[in.b]);
        if (t.rank != in.imm)
          throw Error(Status::kFatal, "",
                      fmt::format("a tensor of {} dims is needed, it has {}", in.imm, t.rank),
                      "give inputs of the right rank");
        // The results may overwrite the tensor's own register, and so free it.
        const std::array<int64_t, kMaxRank> extents = t.extents;
        for (int64_t i = 0; i < in.imm; ++i) heap_.assign(r[in.a + i], Value::of(extents[i]));
        break;
      }
      case Opcode::kReshapeTensor:
        heap_.assign(r[in.a], reshape(*f, in, r));
        break;
      case Opcode::kFatal:
        stop(executable.texts[in.b], f->sources(in), r);
    }
    ++pc;
  }
}

}  // namespace nimble::rt
