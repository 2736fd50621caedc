#include "vm/interpreter/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "vm/base/device_number.h"
#include "vm/base/json_writer.h"

namespace nimble::rt {
namespace {

// Operands and words that an instruction may keep: a tuple of a thousand fields is cut short.
constexpr uint32_t kMostOperands = 24;
constexpr size_t kMostWordsEach = 32;  // on the average

// The first word of an operand: what it is, its data type and rank. A scalar's value or a tensor's
// extents follow.
enum class Word : uint8_t { kNone, kScalar, kTensor, kStorage, kAdt, kClosure };
int64_t head(Word what, DType dtype = DType::kF32, int rank = 0) {
  return static_cast<int64_t>(what) | static_cast<int64_t>(dtype) << 8 | int64_t{rank} << 16;
}

std::string tensor_text(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} ({})", name_of(dtype), fmt::join(shape, ", "));
}

// One operand from `words` on, which moves behind it.
std::string operand_text(const int64_t*& words) {
  const auto first = static_cast<uint64_t>(*words++);
  switch (static_cast<Word>(first & 0xff)) {
    case Word::kNone:
      return "nothing";
    case Word::kScalar:
      return fmt::format("{}", *words++);
    case Word::kTensor: {
      const size_t rank = first >> 16;
      const std::span<const int64_t> shape(words, rank);
      words += rank;
      return tensor_text(static_cast<DType>((first >> 8) & 0xff), shape);
    }
    case Word::kStorage:
      return fmt::format("storage of {} bytes", *words++);
    case Word::kAdt:
      return fmt::format("value of tag {}", *words++);
    case Word::kClosure:
      return "closure";
  }
  return {};
}

std::string_view note_of(const exec::BytecodeFunction& f, uint32_t instruction) {
  const auto behind = std::upper_bound(
      f.notes.begin(), f.notes.end(), instruction,
      [](uint32_t at, const exec::SourceNote& note) { return at < note.instruction; });
  return behind == f.notes.begin() ? std::string_view() : std::prev(behind)->text;
}

}  // namespace

Trace::Run& Trace::run() {
  if (runs_.empty()) runs_.emplace_back();
  return runs_.back();
}

void Trace::begin(uint32_t function, uint32_t instruction, uint32_t depth, exec::Opcode op) {
  skipping_ = full();
  if (skipping_) {
    ++dropped_;
    return;
  }
  Run& r = run();
  r.events.push_back({0, 0, r.words.size(), function, instruction, depth, 0, op});
  ++size_;
}

void Trace::add_operand(const Value& v) {
  if (skipping_) return;
  Run& r = run();
  Event& e = r.events.back();
  if (e.operand_count >= kMostOperands || r.words.size() >= most_ * kMostWordsEach) return;
  ++e.operand_count;
  std::vector<int64_t>& words = r.words;
  if (v.is_scalar()) {
    words.insert(words.end(), {head(Word::kScalar), v.scalar});
  } else if (!v.is_object()) {
    words.push_back(head(Word::kNone));
  } else if (v.is(ObjectKind::kTensor)) {
    const Tensor& t = *static_cast<const Tensor*>(v.object);
    words.push_back(head(Word::kTensor, t.dtype, t.rank));
    words.insert(words.end(), t.shape().begin(), t.shape().end());
  } else if (v.is(ObjectKind::kStorage)) {
    const auto bytes = static_cast<const Storage*>(v.object)->bytes;
    words.insert(words.end(), {head(Word::kStorage), static_cast<int64_t>(bytes)});
  } else if (v.is(ObjectKind::kAdt)) {
    words.insert(words.end(), {head(Word::kAdt), static_cast<const Cell*>(v.object)->number});
  } else {
    words.push_back(head(Word::kClosure));
  }
}

void Trace::begin_at(int64_t time) {
  if (!skipping_) run().events.back().start = time;
}

void Trace::end(int64_t ns) {
  if (!skipping_ && !run().events.empty()) run().events.back().ns = ns;
}

void Trace::withdraw() {
  if (skipping_) {
    --dropped_;
    return;
  }
  if (runs_.empty() || runs_.back().events.empty()) return;
  Run& r = runs_.back();
  r.words.resize(r.events.back().operands);
  r.events.pop_back();
  --size_;
}

void Trace::add_memory(int32_t device, uint64_t bytes, int64_t time) {
  if (skipping_) return;
  Run& r = run();
  const auto last = std::find_if(r.memory.rbegin(), r.memory.rend(),
                                 [&](const Memory& m) { return m.device == device; });
  if (last != r.memory.rend() && last->bytes == bytes) return;
  r.memory.push_back({r.events.size(), time, bytes, device});
}

void Trace::add_kernel(uint32_t kernel, uint32_t implementation, int32_t threads,
                       std::span<const int64_t> symbols, int64_t start, int64_t ns) {
  if (skipping_ || run().events.empty()) return;
  Run& r = run();
  r.kernels.push_back({r.events.size() - 1, start, ns, r.words.size(), kernel, implementation,
                       static_cast<uint32_t>(symbols.size()), threads});
  r.words.insert(r.words.end(), symbols.begin(), symbols.end());
}

void Trace::clear() noexcept {
  runs_.clear();
  size_ = 0;
  dropped_ = 0;
  skipping_ = false;
}

void Trace::absorb(Trace& other) noexcept {
  dropped_ += other.dropped_;
  while (!other.runs_.empty()) {
    Run& r = other.runs_.front();
    const size_t room = most_ - std::min(size_, most_);
    if (r.events.size() > room) {
      dropped_ += r.events.size() - room;
      r.events.resize(room);
      std::erase_if(r.kernels, [&](const Kernel& k) { return k.event >= room; });
      std::erase_if(r.memory, [&](const Memory& m) { return m.before > room; });
    }
    size_ += r.events.size();
    if (r.events.empty())
      other.runs_.pop_front();
    else
      runs_.splice(runs_.end(), other.runs_, other.runs_.begin());
  }
  other.clear();
}

// Writes the events of one trace. All of them are of one process and thread, kernels that take more
// threads say so; but a GPU's kernels, which the host does not wait for, have a line of their own.
class Trace::Writer {
 public:
  Writer(const exec::Executable& executable, int64_t origin) : e_(executable), origin_(origin) {}

  std::string text(const Trace& trace) {
    json_.begin_object()
        .member("displayTimeUnit", "ns")
        .key("otherData")
        .begin_object()
        .member("dropped_instructions", trace.dropped_)
        .member("instructions", trace.size_)
        .member("producer", "nimble run --trace")
        .end_object()
        .key("traceEvents")
        .begin_array();
    name("process_name", "nimble", kMachine);
    name("thread_name", "machine", kMachine);
    if (std::ranges::any_of(e_.kernels,
                            [](const exec::Kernel& k) { return k.device == kCudaDevice; }))
      name("thread_name", "cuda", kGpu);
    for (const Run& r : trace.runs_) write(r);
    json_.end_array().end_object();
    return json_.text();
  }

 private:
  static constexpr int kMachine = 1, kGpu = 2;  // lines

  // A function's event is written before those inside it, so its end is sought first.
  struct Frame {
    size_t first, behind;  // events
    uint32_t function, depth;
    int64_t end;
  };

  static std::vector<Frame> frames_of(const std::vector<Event>& events) {
    std::vector<Frame> frames;
    std::vector<size_t> open;
    const auto close = [&](size_t at) {
      const Event& last = events[at - 1];
      frames[open.back()].behind = at;
      frames[open.back()].end = last.start + last.ns;
      open.pop_back();
    };
    for (size_t i = 0; i < events.size(); ++i) {
      const Event& e = events[i];
      while (!open.empty() && frames[open.back()].depth > e.depth) close(i);
      if (!open.empty() && frames[open.back()].depth == e.depth) {
        // A call whose result is returned at once takes the place of its caller: a loop's turn.
        const exec::Opcode before = events[i - 1].op;
        const bool replaced = e.instruction == 0 && (before == exec::Opcode::kInvoke ||
                                                     before == exec::Opcode::kInvokeClosure);
        if (!replaced) continue;
        close(i);
      }
      frames.push_back({i, events.size(), e.function, e.depth, 0});
      open.push_back(frames.size() - 1);
    }
    while (!open.empty()) close(events.size());
    return frames;
  }

  void write(const Run& r) {
    const std::vector<Frame> frames = frames_of(r.events);
    size_t frame = 0, kernel = 0, memory = 0;
    for (size_t i = 0; i < r.events.size(); ++i) {
      for (; memory < r.memory.size() && r.memory[memory].before <= i; ++memory)
        write(r.memory[memory]);
      for (; frame < frames.size() && frames[frame].first == i; ++frame)
        write(frames[frame], r.events[i].start);
      write(r, r.events[i]);
      for (; kernel < r.kernels.size() && r.kernels[kernel].event == i; ++kernel)
        write(r, r.kernels[kernel]);
    }
    for (; memory < r.memory.size(); ++memory) write(r.memory[memory]);
  }

  double us(int64_t time) const { return static_cast<double>(time - origin_) / 1e3; }

  void name(const char* what, const char* is, int line) {
    json_.begin_object()
        .member("name", what)
        .member("ph", "M")
        .member("pid", 1)
        .member("tid", line);
    json_.key("args").begin_object().member("name", is).end_object().end_object();
  }
  void begin(std::string_view name, const char* category, int64_t start, int64_t ns,
             int line = kMachine) {
    json_.begin_object()
        .member("name", name)
        .member("cat", category)
        .member("ph", "X")
        .member("ts", us(start))
        .member("dur", static_cast<double>(ns) / 1e3)
        .member("pid", 1)
        .member("tid", line)
        .key("args")
        .begin_object();
  }
  void end() { json_.end_object().end_object(); }

  void write(const Memory& m) {
    json_.begin_object()
        .member("name", "memory")
        .member("ph", "C")
        .member("ts", us(m.time))
        .member("pid", 1)
        .key("args")
        .begin_object()
        .member(device_name(m.device), m.bytes);
    end();
  }

  void write(const Frame& f, int64_t start) {
    const exec::BytecodeFunction& function = e_.functions[f.function];
    begin(function.name, "function", start, f.end - start);
    json_.member("depth", f.depth);
    if (!function.origin.empty()) json_.member("source", function.origin);
    end();
  }

  void write(const Run& r, const Event& event) {
    const exec::BytecodeFunction& function = e_.functions[event.function];
    const exec::Instruction& instruction = function.code[event.instruction];
    begin(exec::name_of(event.op), "instruction", event.start, event.ns);
    json_.member("function", function.name)
        .member("instruction", event.instruction)
        .member("depth", event.depth);
    if (const std::string_view note = note_of(function, event.instruction); !note.empty())
      json_.member("source", note);
    const int64_t* words = r.words.data() + event.operands;
    uint32_t left = event.operand_count;
    const std::optional<exec::Operands> operands = exec::operands_of(instruction);
    if (operands)
      for (const exec::OperandView& operand : *operands) write(operand, words, left);
    end();
  }

  // `left`: operands that are still in `words`.
  void write(const exec::OperandView& operand, const int64_t*& words, uint32_t& left) {
    using Kind = exec::OperandKind;
    const auto index = operand.values.empty() ? size_t{0} : static_cast<size_t>(operand.value());
    std::string text;
    switch (operand.spec->kind) {
      case Kind::kSrc:
      case Kind::kSrcs:
        for (size_t i = 0; i < operand.values.size(); ++i) {
          if (i > 0) text += ", ";
          text += left > 0 ? operand_text(words) : "…";
          if (left == 0) break;
          --left;
        }
        break;
      case Kind::kImms:
        text = fmt::format("({})", fmt::join(operand.values, ", "));
        break;
      case Kind::kImm:
        text = fmt::format("{}", operand.value());
        break;
      case Kind::kConst:
        text = fmt::format("{}: {}", e_.constants[index].name,
                           tensor_text(e_.constants[index].dtype, e_.constants[index].shape));
        break;
      case Kind::kFunc:
        text = index < e_.functions.size() ? e_.functions[index].name
                                           : e_.scalar_functions[index - e_.functions.size()].name;
        break;
      case Kind::kKernel:
        text = e_.kernels[index].name;
        break;
      case Kind::kDType:
        text = name_of(static_cast<DType>(index));
        break;
      case Kind::kDevice:
        text = device_name(static_cast<int32_t>(index));
        break;
      case Kind::kDst:
      case Kind::kDsts:
      case Kind::kTarget:
      case Kind::kText:
        return;
    }
    // "function" and "instruction" say already where the instruction stands.
    json_.member(operand.spec->kind == Kind::kFunc ? "callee" : operand.spec->name, text);
  }

  void write(const Run& r, const Kernel& k) {
    const exec::Kernel& kernel = e_.kernels[k.kernel];
    const bool portable = k.implementation >= kernel.implementations.size();
    begin(kernel.name, "kernel", k.start, k.ns, kernel.device == kCudaDevice ? kGpu : kMachine);
    json_.member("source", kernel.source);
    json_.key("shape").begin_object();
    for (size_t i = 0; i < k.symbol_count; ++i)
      json_.member(kernel.contract.symbols[i], r.words[k.symbols + i]);
    json_.end_object()
        .member("implementation",
                portable ? "portable"
                         : std::string_view(kernel.implementations[k.implementation].symbol))
        .member("threads", k.threads);
    end();
  }

  const exec::Executable& e_;
  const int64_t origin_;
  JsonWriter json_;
};

std::string Trace::json(const exec::Executable& executable) const {
  const bool any = !runs_.empty() && !runs_.front().events.empty();
  int64_t origin = any ? runs_.front().events.front().start : 0;
  if (any && !runs_.front().memory.empty())
    origin = std::min(origin, runs_.front().memory.front().time);
  return Writer(executable, origin).text(*this);
}

}  // namespace nimble::rt
