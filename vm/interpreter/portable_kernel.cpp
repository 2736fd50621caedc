// From portable code to operations, and the run.
//
// Each instruction becomes one operation, except End of an If, which is only a place to go to.
// Its function is chosen here by the types that the verifier has seen; value registers become
// byte offsets into the frame, each aligned to a cache line's width for the widest vectors.
//
// A run cannot leave its memory (portable_memory.cpp checks), cannot divide by zero or overflow
// (index arithmetic here and portable_lanes.h are total) and ends: a loop's number of turns is
// fixed when it is entered, the code of a turn is finite, and every turn is paid for in steps.
#include "vm/interpreter/portable_kernel.h"

#include <algorithm>
#include <cstring>

#include "vm/base/checked.h"
#include "vm/base/error.h"
#include "vm/interpreter/portable_operations.h"

namespace nimble::rt {
namespace {

using Operation = PortableOperation;
using State = PortableState;
using exec::PortableInstruction;
using exec::PortableOp;
using exec::PortableValue;

constexpr uint64_t kLine = 64;

// --- Steps ---------------------------------------------------------------------------------------

[[gnu::cold, gnu::noinline]] void refill(State& s, uint64_t cost) {
  WorkMeter& meter = *s.meter;
  meter.steps += s.slice;
  s.slice = 0;
  meter.poll();
  if (meter.steps < cost)
    throw Error(Status::kExhausted, "",
                fmt::format("{}: its portable code took more steps than the run has left", s.name),
                "raise the fuel of the session or use smaller inputs");
  s.slice = std::min(meter.steps, std::max(cost, WorkMeter::kPollSteps));
  meter.steps -= s.slice;
}

void spend(State& s, uint64_t cost) {
  if (s.slice < cost) [[unlikely]]
    refill(s, cost);
  s.slice -= cost;
}

// --- Indices: total functions of 64-bit integers -------------------------------------------------

uint64_t wide(int64_t v) {
  return static_cast<uint64_t>(v);
}
int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<int64_t>(-wide(a));
  return a / b - (a % b != 0 && (a ^ b) < 0 ? 1 : 0);
}
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r ^ b) < 0 ? r + b : r;
}

template <PortableOp Op>
int64_t index_result(int64_t a, int64_t b) {
  if constexpr (Op == PortableOp::kIndexMul)
    return static_cast<int64_t>(wide(a) * wide(b));
  else if constexpr (Op == PortableOp::kIndexDiv)
    return floor_div(a, b);
  else if constexpr (Op == PortableOp::kIndexMod)
    return floor_mod(a, b);
  else if constexpr (Op == PortableOp::kIndexMin)
    return std::min(a, b);
  else if constexpr (Op == PortableOp::kIndexMax)
    return std::max(a, b);
  else if constexpr (Op == PortableOp::kIndexBroadcast)
    return a == 1 ? b : a;
  else if constexpr (Op == PortableOp::kIndexLt)
    return a < b;
  else if constexpr (Op == PortableOp::kIndexLe)
    return a <= b;
  else if constexpr (Op == PortableOp::kIndexEq)
    return a == b;
  else if constexpr (Op == PortableOp::kIndexNe)
    return a != b;
  else
    return a != 0 && b != 0;
}

template <PortableOp Op>
const Operation* index_binary(State& s, const Operation* op) {
  s.index[op->operand[0]] = index_result<Op>(s.index[op->operand[1]], s.index[op->operand[2]]);
  return op + 1;
}

const Operation* index_const(State& s, const Operation* op) {
  s.index[op->operand[0]] = op->immediate;
  return op + 1;
}

const Operation* index_mul_add(State& s, const Operation* op) {
  s.index[op->operand[0]] = static_cast<int64_t>(
      wide(s.index[op->operand[1]]) + wide(s.index[op->operand[2]]) * wide(op->immediate));
  return op + 1;
}

template <class T>
const Operation* index_of(State& s, const Operation* op) {
  T v;
  std::memcpy(&v, s.frame + op->operand[1], sizeof v);
  s.index[op->operand[0]] = static_cast<int64_t>(v);
  return op + 1;
}

Operation::Run index_of_dtype(DType t) {
  switch (t) {
    case DType::kI8:
      return index_of<int8_t>;
    case DType::kI16:
      return index_of<int16_t>;
    case DType::kI32:
      return index_of<int32_t>;
    case DType::kU8:
      return index_of<uint8_t>;
    case DType::kU16:
      return index_of<uint16_t>;
    case DType::kU32:
      return index_of<uint32_t>;
    default:
      return index_of<int64_t>;
  }
}

// --- Control -------------------------------------------------------------------------------------

const Operation* loop(State& s, const Operation* op) {
  const int64_t extent = s.index[op->operand[2]];
  if (extent <= 0) return op->target;
  s.trips[op->depth] = (extent - 1) / op->immediate + 1;
  s.index[op->operand[0]] = s.index[op->operand[1]];
  spend(s, op->steps);
  return op + 1;
}

const Operation* end_of_loop(State& s, const Operation* op) {
  if (--s.trips[op->depth] == 0) return op + 1;
  int64_t& variable = s.index[op->operand[0]];
  variable = static_cast<int64_t>(wide(variable) + wide(op->immediate));
  spend(s, op->steps);
  return op->target;
}

const Operation* branch(State& s, const Operation* op) {
  return s.index[op->operand[0]] != 0 ? op + 1 : op->target;
}
const Operation* jump(State&, const Operation* op) {
  return op->target;
}
const Operation* check(State& s, const Operation* op) {
  if (s.index[op->operand[0]] != 0) return op + 1;
  s.status = static_cast<int32_t>(op->immediate);
  return nullptr;
}
const Operation* halt(State&, const Operation*) {
  return nullptr;
}

// --- Values that arithmetic does not make --------------------------------------------------------

// The bits of the immediate, little-endian, in every lane.
const Operation* constant(State& s, const Operation* op) {
  uint8_t* to = s.frame + op->operand[0];
  const uint32_t size = op->bytes / op->lanes;
  for (uint32_t i = 0; i < op->lanes; ++i) std::memcpy(to + i * size, &op->immediate, size);
  return op + 1;
}
const Operation* from_index(State& s, const Operation* op) {
  std::memcpy(s.frame + op->operand[0], &s.index[op->operand[1]], sizeof(int64_t));
  return op + 1;
}
const Operation* iota(State& s, const Operation* op) {
  for (uint32_t i = 0; i < op->lanes; ++i)
    std::memcpy(s.frame + op->operand[0] + i * sizeof i, &i, sizeof i);
  return op + 1;
}
// Copy and Bitcast; the registers may be the same one.
const Operation* move(State& s, const Operation* op) {
  std::memmove(s.frame + op->operand[0], s.frame + op->operand[1], op->bytes);
  return op + 1;
}
const Operation* extract(State& s, const Operation* op) {
  std::memmove(s.frame + op->operand[0],
               s.frame + op->operand[1] + static_cast<size_t>(op->immediate) * op->bytes,
               op->bytes);
  return op + 1;
}

}  // namespace

// --- The program ---------------------------------------------------------------------------------

struct PortableProgram::Code {
  std::string name;
  std::vector<Operation> operations;
  size_t symbols = 0, indices = 0, frame_bytes = 0, depth = 0;
  std::vector<uint8_t> argument_size;  // bytes of an element
  std::vector<exec::PortableScratch> scratch;
  uint64_t steps = 0;   // outside of loops, and for clearing registers
  uint64_t memory = 0;  // bytes of a frame
};

namespace {

// Chooses functions and places, then resolves the jumps.
class Translator {
 public:
  Translator(const exec::PortableKernel& k, std::vector<Operation>* out) : k_(k), out_(*out) {
    for (const PortableValue& v : k.values) {
      offsets_.push_back(static_cast<uint32_t>(frame_bytes_));
      frame_bytes_ += (v.lanes * size_of(v.dtype) + kLine - 1) / kLine * kLine;
    }
    out_.reserve(k.code.size() + 1);
    for (const PortableInstruction& in : k.code) instruction(in);
    out_.push_back({.run = halt});
    for (const auto& [from, to] : jumps_) out_[from].target = &out_[to];
  }

  size_t frame_bytes() const { return frame_bytes_; }
  size_t depth() const { return depth_; }
  uint64_t steps() const { return steps_; }

 private:
  struct Block {
    size_t at;             // of its Loop, If or Else
    uint64_t outer_steps;  // Loop: what the block around had counted
    bool loop;
  };

  void instruction(const PortableInstruction& in) {
    const exec::PortableOpInfo& info = exec::info_of(in.op);
    Operation op;
    std::array<PortableValue, 4> v{};
    size_t values = 0;
    for (size_t i = 0; i < info.operands.size(); ++i) {
      const int64_t x = in.operands[i];
      if (info.operands[i] == 'N') {
        op.immediate = x;
      } else if (info.operands[i] == 'V' || info.operands[i] == 'W') {
        v[values++] = k_.values[static_cast<size_t>(x)];
        op.operand[i] = offsets_[static_cast<size_t>(x)];
      } else {
        op.operand[i] = static_cast<uint32_t>(x);
      }
    }
    op.lanes = v[0].lanes;
    op.bytes = static_cast<uint32_t>(v[0].lanes * size_of(v[0].dtype));
    ++steps_;
    switch (in.op) {
      case PortableOp::kLoop:
      case PortableOp::kIf:
      case PortableOp::kElse:
      case PortableOp::kEnd:
        return control(in.op, op);
      default:
        op.run = function_of(in.op, v);
        // These read more lanes than they write.
        if (info.types == exec::PortableTypes::kReduceNumber ||
            info.types == exec::PortableTypes::kReduceLogic)
          op.lanes = v[1].lanes;
        out_.push_back(op);
    }
  }

  void control(PortableOp kind, Operation op) {
    const size_t at = out_.size();
    switch (kind) {
      case PortableOp::kLoop:
        op.run = loop;
        op.depth = static_cast<uint32_t>(loops_++);
        depth_ = std::max(depth_, loops_);
        blocks_.push_back({at, steps_, true});
        steps_ = 1;
        out_.push_back(op);
        return;
      case PortableOp::kIf:
        op.run = branch;
        blocks_.push_back({at, 0, false});
        out_.push_back(op);
        return;
      case PortableOp::kElse:
        op.run = jump;
        jumps_.emplace_back(blocks_.back().at, at + 1);
        blocks_.back().at = at;
        out_.push_back(op);
        return;
      default: {
        const Block block = blocks_.back();
        blocks_.pop_back();
        if (!block.loop) {
          jumps_.emplace_back(block.at, at);
          return;
        }
        --loops_;
        Operation& head = out_[block.at];
        head.steps = steps_;
        steps_ = block.outer_steps;
        op = head;
        op.run = end_of_loop;
        jumps_.emplace_back(block.at, at + 1);
        jumps_.emplace_back(at, block.at + 1);
        out_.push_back(op);
      }
    }
  }

  static Operation::Run function_of(PortableOp op, std::span<const PortableValue> v) {
    switch (op) {
      case PortableOp::kIndexConst:
        return index_const;
      case PortableOp::kIndexMulAdd:
        return index_mul_add;
      case PortableOp::kIndexMul:
        return index_binary<PortableOp::kIndexMul>;
      case PortableOp::kIndexDiv:
        return index_binary<PortableOp::kIndexDiv>;
      case PortableOp::kIndexMod:
        return index_binary<PortableOp::kIndexMod>;
      case PortableOp::kIndexMin:
        return index_binary<PortableOp::kIndexMin>;
      case PortableOp::kIndexMax:
        return index_binary<PortableOp::kIndexMax>;
      case PortableOp::kIndexBroadcast:
        return index_binary<PortableOp::kIndexBroadcast>;
      case PortableOp::kIndexLt:
        return index_binary<PortableOp::kIndexLt>;
      case PortableOp::kIndexLe:
        return index_binary<PortableOp::kIndexLe>;
      case PortableOp::kIndexEq:
        return index_binary<PortableOp::kIndexEq>;
      case PortableOp::kIndexNe:
        return index_binary<PortableOp::kIndexNe>;
      case PortableOp::kIndexAnd:
        return index_binary<PortableOp::kIndexAnd>;
      case PortableOp::kIndexOf:
        return index_of_dtype(v[0].dtype);
      case PortableOp::kCheck:
        return check;
      case PortableOp::kConst:
        return constant;
      case PortableOp::kFromIndex:
        return from_index;
      case PortableOp::kIota:
        return iota;
      case PortableOp::kCopy:
      case PortableOp::kBitcast:
        return move;
      case PortableOp::kExtract:
        return extract;
      case PortableOp::kCast:
        return portable_cast(v[1], v[0].dtype);
      default:
        return exec::info_of(op).types == exec::PortableTypes::kMemory
                   ? portable_memory(op, v[0])
                   : portable_arithmetic(op, v[0], v[1]);
    }
  }

  const exec::PortableKernel& k_;
  std::vector<Operation>& out_;
  std::vector<uint32_t> offsets_;
  std::vector<std::pair<size_t, size_t>> jumps_;
  std::vector<Block> blocks_;
  size_t frame_bytes_ = 0, loops_ = 0, depth_ = 0;
  uint64_t steps_ = 1;
};

}  // namespace

PortableProgram::PortableProgram(const exec::PortableKernel& kernel,
                                 const exec::KernelContract& contract, std::string name) {
  auto code = std::make_unique<Code>();
  code->name = std::move(name);
  const Translator t(kernel, &code->operations);
  code->symbols = contract.symbols.size();
  code->indices = kernel.indices;
  code->frame_bytes = t.frame_bytes();
  code->depth = t.depth();
  code->steps =
      t.steps() + (t.frame_bytes() + kernel.indices * sizeof(int64_t)) / WorkMeter::kBytesPerStep;
  for (const exec::PortableScratch& s : kernel.scratch)  // evaluated twice
    code->steps += 2 * s.extent.code.size() / WorkMeter::kItemsPerStep;
  for (const exec::KernelArgument& a : contract.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor)
      code->argument_size.push_back(static_cast<uint8_t>(size_of(a.dtype)));
  code->scratch = kernel.scratch;
  code->memory = t.frame_bytes() + (kernel.indices + t.depth()) * sizeof(int64_t) +
                 (code->argument_size.size() + kernel.scratch.size()) * sizeof(PortableMemory);
  code_ = std::move(code);
}

PortableProgram::~PortableProgram() = default;

uint64_t PortableProgram::memory() const {
  return sizeof *code_ + code_->operations.capacity() * sizeof(Operation) +
         code_->scratch.capacity() * sizeof(exec::PortableScratch);
}

uint64_t PortableProgram::scratch_bytes(std::span<const int64_t> symbols) const {
  uint64_t total = 0;
  for (const exec::PortableScratch& s : code_->scratch) {
    const int64_t extent = s.extent.evaluate1(symbols);
    if (extent < 0)
      throw Error(Status::kFatal, "",
                  fmt::format("{} asks for {} elements of scratch", code_->name, extent),
                  "report it: the kernel is wrong");
    const uint64_t limit = kMaxScratchBytes / size_of(s.dtype);
    const uint64_t bytes =
        static_cast<uint64_t>(extent) > limit
            ? kMaxScratchBytes + 1
            : (static_cast<uint64_t>(extent) * size_of(s.dtype) + kLine - 1) / kLine * kLine;
    total += bytes;  // at most 256 buffers: no overflow
    if (total > kMaxScratchBytes)
      throw Error(
          Status::kExhausted, "",
          fmt::format("{} asks for more than {} bytes of scratch", code_->name, kMaxScratchBytes),
          "use smaller inputs");
  }
  return total;
}

int32_t PortableProgram::run(std::span<const PortableBuffer> buffers,
                             std::span<const int64_t> symbols, uint8_t* scratch,
                             PortableFrame* frame, WorkMeter* meter) const {
  const Code& c = *code_;
  NIMBLE_CHECK(buffers.size() == c.argument_size.size() && symbols.size() == c.symbols);
  State s;
  s.meter = meter;
  s.name = c.name.c_str();
  spend(s, c.steps);  // before anything is cleared
  frame->charged_.at_least(meter->memory, c.memory);
  frame->buffers_.clear();
  for (size_t i = 0; i < buffers.size(); ++i)
    frame->buffers_.push_back(
        {buffers[i].data, static_cast<int64_t>(buffers[i].bytes / c.argument_size[i])});
  for (const exec::PortableScratch& s : c.scratch) {
    const int64_t extent = s.extent.evaluate1(symbols);
    const uint64_t bytes = static_cast<uint64_t>(extent) * size_of(s.dtype);
    frame->buffers_.push_back({scratch, extent});
    for (uint64_t at = 0; at < bytes; at += WorkMeter::kPollBytes) {
      std::memset(scratch + at, 0, std::min(bytes - at, WorkMeter::kPollBytes));
      meter->poll();
    }
    scratch += (bytes + kLine - 1) / kLine * kLine;
  }
  frame->indices_.assign(c.indices, 0);
  std::copy(symbols.begin(), symbols.end(), frame->indices_.begin());
  frame->trips_.resize(c.depth);

  s.index = frame->indices_.data();
  s.frame = frame->registers(c.frame_bytes);
  s.trips = frame->trips_.data();
  s.buffers = frame->buffers_.data();
  for (const Operation* op = c.operations.data(); op;) op = op->run(s, op);
  meter->steps += s.slice;
  return s.status;
}

PortableFrame::PortableFrame() = default;
PortableFrame::~PortableFrame() = default;

uint8_t* PortableFrame::registers(size_t bytes) {
  lines_.assign((bytes + kLine - 1) / kLine, Line{});
  return lines_.empty() ? nullptr : lines_.front().bytes;
}

}  // namespace nimble::rt
