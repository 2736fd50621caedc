#include "vm/interpreter/frames.h"

#include <algorithm>
#include <new>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

// Registers that are kept however little a run uses.
constexpr size_t kAlwaysKept = 256;
// Frames name registers by 32-bit numbers; 4 GiB of registers are no honest program's need.
constexpr size_t kMostRegisters = size_t{1} << 28;

}  // namespace

FrameStack::~FrameStack() {
  unwind();
  heap_.pool()->refund(charged_);
}

// Makes the array `registers` long and the list of frames as long as the array may need; what is
// in use moves along. On failure all is as before.
void FrameStack::set_size(size_t registers) {
  const uint64_t bytes = registers * sizeof(Value);
  StoragePool& pool = *heap_.pool();
  pool.charge(bytes);
  std::vector<Value> moved;
  try {
    moved.resize(registers);
  } catch (...) {
    pool.refund(bytes);
    throw;
  }
  std::copy(stack_.begin(), stack_.begin() + static_cast<ptrdiff_t>(top_), moved.begin());
  pool.refund(stack_.size() * sizeof(Value));
  charged_ += bytes - stack_.size() * sizeof(Value);
  stack_.swap(moved);
}

void FrameStack::need(size_t registers) {
  const size_t wanted = top_ + registers;
  if (wanted > stack_.size()) {
    if (wanted > kMostRegisters)
      throw Error(Status::kExhausted, "",
                  fmt::format("{} nested calls need {} registers", frames_.size(), wanted),
                  "use smaller inputs or set a lower depth limit");
    set_size(std::max({kAlwaysKept, 2 * stack_.size(), wanted}));
  }
  run_peak_ = std::max(run_peak_, wanted);
}

void FrameStack::push(const DecodedFunction& function, std::span<const Value> arguments,
                      uint32_t result) {
  try {
    if (frames_.size() > depth_limit_)
      throw Error(Status::kExhausted, "",
                  fmt::format("calls are nested more than {} deep", depth_limit_),
                  "raise the depth limit of the session or use smaller inputs");
    need(function.registers);
    if (frames_.size() == frames_.capacity()) {
      const size_t more = std::max<size_t>(16, frames_.size());
      heap_.pool()->charge(more * sizeof(Frame));
      charged_ += more * sizeof(Frame);
      try {
        frames_.reserve(frames_.size() + more);
      } catch (...) {
        charged_ -= more * sizeof(Frame);
        heap_.pool()->refund(more * sizeof(Frame));
        throw;
      }
    }
    frames_.push_back({&function, static_cast<uint32_t>(top_), result, 0});
  } catch (...) {
    for (const Value& v : arguments) heap_.release(v);
    throw;
  }
  std::copy(arguments.begin(), arguments.end(), stack_.begin() + static_cast<ptrdiff_t>(top_));
  top_ += function.registers;
}

void FrameStack::replace(const DecodedFunction& function, std::span<const Value> arguments) {
  Frame& frame = frames_.back();
  clear_registers(frame);
  top_ = frame.base;
  try {
    need(function.registers);
  } catch (...) {
    top_ += frame.function->registers;  // all empty by now: unwind finds a whole frame
    for (const Value& v : arguments) heap_.release(v);
    throw;
  }
  frame.function = &function;
  std::copy(arguments.begin(), arguments.end(), stack_.begin() + static_cast<ptrdiff_t>(top_));
  top_ += function.registers;
}

void FrameStack::clear_registers(const Frame& frame) {
  Value* r = stack_.data() + frame.base;
  for (uint32_t i = 0; i < frame.function->registers; ++i) {
    heap_.release(r[i]);
    r[i] = Value();
  }
}

void FrameStack::pop() {
  clear_registers(frames_.back());
  top_ = frames_.back().base;
  frames_.pop_back();
}

void FrameStack::unwind() {
  while (!frames_.empty()) pop();
}

void FrameStack::end_run() {
  // An eighth is forgotten with each run, as in the storage pool.
  recent_peak_ = std::max(run_peak_, recent_peak_ - recent_peak_ / 8);
  run_peak_ = 0;
  const size_t keep = std::max(kAlwaysKept, 2 * recent_peak_);
  if (stack_.size() <= 2 * keep) return;
  try {
    set_size(keep);
  } catch (const Error&) {  // no room for the copy beside the old one: then do without either
    trim();
  } catch (const std::bad_alloc&) {
    trim();
  }
  if (frames_.capacity() > keep) {
    std::vector<Frame>().swap(frames_);
    heap_.pool()->refund(charged_ - stack_.size() * sizeof(Value));
    charged_ = stack_.size() * sizeof(Value);
  }
}

void FrameStack::trim() {
  std::vector<Value>().swap(stack_);
  std::vector<Frame>().swap(frames_);
  heap_.pool()->refund(charged_);
  charged_ = 0;
}

}  // namespace nimble::rt
