// Forward data flow over basic blocks. A block's entry state maps each register to a value of the
// lattice below; a work list runs blocks until no entry state changes; then each reachable block
// is run once more to report. States are kept only at block entries, so memory is
// 2 × registers × blocks bytes, which R2 bounds. Next to its value a register has the device of the
// tensor or storage in it, as far as that is known.
#include "vm/executable/verifier_flow.h"

#include <algorithm>
#include <deque>

#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

// Order of the lattice: a kind < kUnknown < kFreed < kUnwritten, and kTensor < kConstant (a
// tensor that may be a constant must not be written).
enum class Value : uint8_t {
  kScalar,
  kTensor,
  kConstant,
  kStorage,
  kAdt,
  kClosure,
  kUnknown,
  kFreed,
  kUnwritten,
};

constexpr const char* kNames[] = {"a scalar",          "a tensor",  "a constant", "a storage",
                                  "a data-type value", "a closure", "unknown",    "freed",
                                  "unwritten"};

bool is_tensor(Value v) {
  return v == Value::kTensor || v == Value::kConstant;
}

Value join(Value a, Value b) {
  if (a == b) return a;
  if (a == Value::kUnwritten || b == Value::kUnwritten) return Value::kUnwritten;
  if (a == Value::kFreed || b == Value::kFreed) return Value::kFreed;
  if (is_tensor(a) && is_tensor(b)) return Value::kConstant;
  return Value::kUnknown;
}

std::vector<size_t> targets_of(const Instruction& in) {
  const auto operands = operands_of(in);
  std::vector<size_t> out;
  for (const OperandView& o : *operands)
    if (o.spec->kind == OperandKind::kTarget) out.push_back(static_cast<size_t>(o.value()));
  return out;
}

constexpr uint64_t kMaxStateBytes = uint64_t{1} << 26;

// Some device or none; one of that number would never be looked at closer.
constexpr uint8_t kAnywhere = 255;

struct Slot {
  Value value = Value::kUnwritten;
  uint8_t device = kAnywhere;
  friend bool operator==(const Slot&, const Slot&) = default;
};

Slot join(Slot a, Slot b) {
  return {join(a.value, b.value), a.device == b.device ? a.device : kAnywhere};
}

class Flow {
 public:
  Flow(const Executable& e, const BytecodeFunction& f, size_t limit, std::vector<Violation>* found)
      : e_(e), f_(f), limit_(limit), found_(found) {}

  void run() {
    find_blocks();
    if (uint64_t{f_.registers} * starts_.size() > kMaxStateBytes) {
      found_->push_back({f_.name, 2,
                         fmt::format("{} registers and {} blocks are too many to verify",
                                     f_.registers, starts_.size())});
      return;
    }
    entry_.resize(starts_.size());
    State first(f_.registers);
    std::fill(first.begin(), first.begin() + f_.parameters, Slot{Value::kUnknown});
    flow_into(0, first);
    while (!work_.empty()) {
      const uint32_t block = work_.front();
      work_.pop_front();
      queued_[block] = false;
      run_block(block, false);
    }
    for (uint32_t b = 0; b < starts_.size(); ++b) run_block(b, true);
  }

 private:
  using State = std::vector<Slot>;

  void find_blocks() {
    std::vector<bool> leader(f_.code.size());
    leader[0] = true;
    for (size_t i = 0; i < f_.code.size(); ++i) {
      const Instruction& in = f_.code[i];
      if (info_of(in.op).effect != Effect::kControl) continue;
      if (i + 1 < f_.code.size()) leader[i + 1] = true;
      for (size_t target : targets_of(in)) leader[target] = true;
    }
    block_of_.resize(f_.code.size());
    for (size_t i = 0; i < f_.code.size(); ++i) {
      if (leader[i]) starts_.push_back(static_cast<uint32_t>(i));
      block_of_[i] = static_cast<uint32_t>(starts_.size()) - 1;
    }
    queued_.resize(starts_.size());
    reached_.resize(starts_.size());
  }

  void flow_into(uint32_t block, const State& state) {
    bool changed = !reached_[block];
    State& entry = entry_[block];
    if (changed) {
      entry = state;
      reached_[block] = true;
    } else {
      for (size_t r = 0; r < entry.size(); ++r) {
        const Slot joined = join(entry[r], state[r]);
        changed |= !(joined == entry[r]);
        entry[r] = joined;
      }
    }
    if (changed && !queued_[block]) {
      queued_[block] = true;
      work_.push_back(block);
    }
  }

  void run_block(uint32_t block, bool reporting) {
    if (!reached_[block]) return;
    reporting_ = reporting;
    state_ = entry_[block];
    const size_t end = block + 1 < starts_.size() ? starts_[block + 1] : f_.code.size();
    for (at_ = starts_[block]; at_ < end; ++at_) step(f_.code[at_]);
    if (reporting) return;
    const Instruction& last = f_.code[end - 1];
    if (info_of(last.op).effect != Effect::kControl) return flow_into(block + 1, state_);
    const State out = state_;
    for (size_t target : targets_of(last)) flow_into(block_of_[target], out);
  }

  void report(int rule, std::string message) {
    if (reporting_ && limit_ > 0) {
      --limit_;
      found_->push_back({fmt::format("{}@{}", f_.name, at_), rule, std::move(message)});
    }
  }

  // The value in a register that is read; after a report kUnknown, so that one fault is told once.
  Value read(int64_t r) {
    const Value v = state_[static_cast<size_t>(r)].value;
    if (v == Value::kUnwritten)
      report(5, fmt::format("register {} may be read before it is written", r));
    else if (v == Value::kFreed)
      report(6, fmt::format("register {} may be read after it was freed", r));
    else
      return v;
    state_[static_cast<size_t>(r)] = {Value::kUnknown};
    return Value::kUnknown;
  }

  template <typename Fits>
  Value need(int64_t r, const char* what, Fits fits, int rule = 7) {
    const Value v = read(r);
    if (v != Value::kUnknown && !fits(v))
      report(rule, fmt::format("register {} holds {} where {} is needed", r,
                               kNames[static_cast<int>(v)], what));
    return v;
  }
  void need_scalar(int64_t r, int rule = 7) {
    need(
        r, "a scalar", [](Value v) { return v == Value::kScalar; }, rule);
  }
  Value need_tensor(int64_t r, int rule = 7) { return need(r, "a tensor", is_tensor, rule); }
  void need_exactly(int64_t r, Value wanted) {
    need(r, kNames[static_cast<int>(wanted)], [wanted](Value v) { return v == wanted; });
  }
  void set(int64_t r, Value v, uint8_t device = kAnywhere) {
    state_[static_cast<size_t>(r)] = {v, device};
  }
  uint8_t device_of(int64_t r) const { return state_[static_cast<size_t>(r)].device; }
  void need_device(int64_t r, uint8_t wanted, const std::string& by) {
    if (const uint8_t device = device_of(r); device != kAnywhere && device != wanted)
      report(21, fmt::format("register {} lies on device {}, {} needs it on device {}", r, device,
                             by, wanted));
  }

  void step(const Instruction& in) {
    const std::vector<OperandView> o = *operands_of(in);
    switch (in.op) {
      case Opcode::kMove:
        return copy_register(o[0].value(), o[1].value());
      case Opcode::kRet:
        read(o[0].value());
        return;
      case Opcode::kIf:
        need(o[0].value(), "a scalar or a bool tensor",
             [](Value v) { return v == Value::kScalar || is_tensor(v); });
        return need_device(o[0].value(), 0, "If");
      case Opcode::kGoto:
        return;
      case Opcode::kFatal:
        for (int64_t r : o[1].values) need_scalar(r);
        return;
      case Opcode::kLoadConst:
        return set(o[0].value(), Value::kConstant,
                   static_cast<uint8_t>(e_.constants[static_cast<size_t>(o[1].value())].device));
      case Opcode::kLoadConsti:
        return set(o[0].value(), Value::kScalar);
      case Opcode::kAllocStorage:
        need_scalar(o[1].value());
        return set(o[0].value(), Value::kStorage, static_cast<uint8_t>(o[3].value()));
      case Opcode::kAllocTensor:
      case Opcode::kAllocTensorReg:
        return alloc_tensor(o, in.op == Opcode::kAllocTensorReg);
      case Opcode::kAllocADT:
        for (int64_t r : o[2].values) read(r);
        return set(o[0].value(), Value::kAdt);
      case Opcode::kAllocClosure:
        for (int64_t r : o[2].values) read(r);
        return set(o[0].value(), Value::kClosure);
      case Opcode::kFreeStorage:
        need_exactly(o[0].value(), Value::kStorage);
        return set(o[0].value(), Value::kFreed);
      case Opcode::kFreeTensor:
        need(o[0].value(), "a tensor or another object",
             [](Value v) { return v != Value::kScalar; });
        return set(o[0].value(), Value::kFreed);
      case Opcode::kInvoke:
        return invoke(o);
      case Opcode::kInvokeClosure:
        need_exactly(o[1].value(), Value::kClosure);
        for (int64_t r : o[2].values) read(r);
        return set(o[0].value(), Value::kUnknown);
      case Opcode::kInvokePacked:
        return invoke_packed(o);
      case Opcode::kGetField: {
        if (o[2].value() == kStorageField) {
          need_tensor(o[1].value());
          return set(o[0].value(), Value::kStorage);
        }
        const Value v = need(o[1].value(), "a data-type value, a tensor or a storage", [](Value k) {
          return k == Value::kAdt || k == Value::kStorage || is_tensor(k);
        });
        if (is_tensor(v)) need_device(o[1].value(), 0, "GetField");
        const bool scalar = is_tensor(v) || v == Value::kStorage;
        return set(o[0].value(), scalar ? Value::kScalar : Value::kUnknown);
      }
      case Opcode::kGetTag:
        need_exactly(o[1].value(), Value::kAdt);
        return set(o[0].value(), Value::kScalar);
      case Opcode::kDeviceCopy:
        need_tensor(o[1].value());
        return set(o[0].value(), Value::kTensor, static_cast<uint8_t>(o[2].value()));
      case Opcode::kShapeOf:
        need_tensor(o[2].value());
        for (int64_t i = 0; i < o[1].value(); ++i) set(o[0].value() + i, Value::kScalar);
        return;
      case Opcode::kReshapeTensor: {
        // It shares the data, so a reshaped constant is a constant.
        const Value v = need_tensor(o[1].value());
        for (int64_t r : o[2].values) need_scalar(r);
        return set(o[0].value(), v, device_of(o[1].value()));
      }
    }
  }

  void copy_register(int64_t to, int64_t from) {
    const Value v = read(from);
    set(to, v, device_of(from));
  }

  void alloc_tensor(const std::vector<OperandView>& o, bool shape_in_registers) {
    const Value base = need(o[1].value(), "a storage or a tensor",
                            [](Value v) { return v == Value::kStorage || is_tensor(v); });
    need_scalar(o[2].value());
    if (shape_in_registers)
      for (int64_t r : o[4].values) need_scalar(r);
    set(o[0].value(), base == Value::kConstant ? Value::kConstant : Value::kTensor,
        device_of(o[1].value()));
  }

  void invoke(const std::vector<OperandView>& o) {
    const Callee callee = *callee_of(e_, o[1].value());
    for (int64_t r : o[2].values) {
      if (callee.is_scalar)
        need_scalar(r);
      else
        read(r);
    }
    for (uint64_t i = 0; i < callee.results; ++i)
      set(o[0].value() + static_cast<int64_t>(i),
          callee.is_scalar ? Value::kScalar : Value::kUnknown);
  }

  void invoke_packed(const std::vector<OperandView>& o) {
    const Kernel& kernel = e_.kernels[static_cast<size_t>(o[0].value())];
    const std::vector<KernelArgument>& wanted = kernel.contract.arguments;
    if (wanted.size() != o[1].values.size())
      return report(14, fmt::format("{} arguments to kernel {}, which takes {}", o[1].values.size(),
                                    kernel.name, wanted.size()));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const int64_t r = o[1].values[i];
      if (wanted[i].kind == KernelArgument::Kind::kScalar) {
        need_scalar(r, 14);
        continue;
      }
      if (wanted[i].kind == KernelArgument::Kind::kData) {
        need(
            r, "a data-type value", [](Value v) { return v == Value::kAdt; }, 14);
        continue;
      }
      if (need_tensor(r, 14) == Value::kConstant && wanted[i].access != Access::kIn)
        report(15, fmt::format("kernel {} writes register {}, which may hold a constant",
                               kernel.name, r));
      need_device(r, static_cast<uint8_t>(kernel.device), "kernel " + kernel.name);
    }
  }

  const Executable& e_;
  const BytecodeFunction& f_;
  size_t limit_;
  std::vector<Violation>* found_;
  std::vector<uint32_t> starts_;    // first instruction of each block
  std::vector<uint32_t> block_of_;  // by instruction
  std::vector<State> entry_;        // by block
  std::vector<bool> reached_, queued_;
  std::deque<uint32_t> work_;
  State state_;  // at instruction at_
  size_t at_ = 0;
  bool reporting_ = false;
};

}  // namespace

std::optional<Callee> callee_of(const Executable& e, int64_t index) {
  if (index < 0) return std::nullopt;
  const size_t i = static_cast<size_t>(index), functions = e.functions.size();
  if (i < functions) return Callee{&e.functions[i].name, e.functions[i].parameters, 1, false};
  if (i - functions >= e.scalar_functions.size()) return std::nullopt;
  const ScalarFunction& f = e.scalar_functions[i - functions];
  return Callee{&f.name, f.program.arguments, f.program.results, true};
}

void check_flow(const Executable& e, const BytecodeFunction& f, size_t limit,
                std::vector<Violation>* found) {
  Flow(e, f, limit, found).run();
}

}  // namespace nimble::exec
