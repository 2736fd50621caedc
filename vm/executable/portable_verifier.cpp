// The rules of portable kernels. One pass in the order of the code: every register carries its
// type from its declaration, so no rule needs to know how control came to an instruction.
//
// Left to the interpreter, because it depends on the shape: that each accessed element exists,
// that scratch is neither negative nor too large, that the loops end within the budget of steps.
#include <bit>

#include "vm/executable/portable_kernel.h"

namespace nimble::exec {
namespace {

constexpr std::string_view kSentences[kPortableRuleCount + 1] = {
    "",
    "a kernel stays within the limits of its parts",
    "the contract's symbols have index slots, and nothing writes them",
    "index slots exist",
    "value registers exist and have 1, 2, 4, … 64 lanes",
    "scratch extents are dim programs over the contract's symbols",
    "buffers exist",
    "stores go to outputs and scratch",
    "an operation's dtypes agree",
    "an operation's lanes agree",
    "immediates fit",
    "blocks nest",
    "every operation is known",
};

struct Stop {
  PortableFault fault;
};

class Verifier {
 public:
  Verifier(const PortableKernel& k, const KernelContract& c) : k_(k), contract_(c) {
    for (const KernelArgument& a : c.arguments)
      if (a.kind == KernelArgument::Kind::kTensor)
        buffers_.push_back({a.dtype, a.access != Access::kIn});
  }

  void run() {
    declarations();
    for (at_ = 0; at_ < k_.code.size(); ++at_) instruction(k_.code[at_]);
    require(blocks_.empty(), 11, "{} blocks are open at the end", blocks_.size());
  }

 private:
  struct BufferInfo {
    DType dtype;
    bool writable;
  };
  enum class Block { kLoop, kThen, kElse };

  template <typename... Args>
  void require(bool holds, int rule, fmt::format_string<Args...> text, Args&&... args) const {
    if (!holds) throw Stop{{rule, at_, fmt::format(text, std::forward<Args>(args)...)}};
  }

  void declarations() {
    require(k_.indices <= kMaxPortableIndices, 1, "{} index slots", k_.indices);
    require(k_.values.size() <= kMaxPortableValues, 1, "{} values", k_.values.size());
    require(k_.scratch.size() <= kMaxPortableScratch, 1, "{} scratch buffers", k_.scratch.size());
    require(k_.code.size() <= kMaxPortableCode, 1, "{} instructions", k_.code.size());
    require(k_.indices >= contract_.symbols.size(), 2, "{} index slots for {} symbols", k_.indices,
            contract_.symbols.size());
    for (size_t i = 0; i < k_.values.size(); ++i) {
      const PortableValue& v = k_.values[i];
      require(static_cast<int>(v.dtype) < kDTypeCount, 8, "v{} has dtype {}", i,
              static_cast<int>(v.dtype));
      require(v.lanes <= kMaxPortableLanes && std::has_single_bit(v.lanes), 4, "v{} has {} lanes",
              i, v.lanes);
    }
    for (size_t i = 0; i < k_.scratch.size(); ++i) {
      const PortableScratch& s = k_.scratch[i];
      require(static_cast<int>(s.dtype) < kDTypeCount, 8, "s{} has dtype {}", i,
              static_cast<int>(s.dtype));
      const std::string bad = s.extent.verify();
      require(bad.empty(), 5, "s{}: {}", i, bad);
      require(s.extent.results == 1 && s.extent.arguments <= contract_.symbols.size(), 5,
              "s{}: {} results over {} values, there are {} symbols", i, s.extent.results,
              s.extent.arguments, contract_.symbols.size());
      buffers_.push_back({s.dtype, true});
    }
  }

  void instruction(const PortableInstruction& in) {
    require(static_cast<int>(in.op) < kPortableOpCount, 12, "operation {}",
            static_cast<int>(in.op));
    const PortableOpInfo& info = info_of(in.op);
    // The values in the row's order: what the type rules speak of.
    std::array<PortableValue, 4> v{};
    size_t values = 0;
    const BufferInfo* buffer = nullptr;
    int64_t immediate = 0;
    for (size_t i = 0; i < info.operands.size(); ++i) {
      const int64_t x = in.operands[i];
      const bool negative = x < 0;
      const auto u = static_cast<uint64_t>(x);
      switch (info.operands[i]) {
        case 'J':
          require(negative || u >= contract_.symbols.size(), 2, "writes i{}, a symbol", x);
          [[fallthrough]];
        case 'I':
          require(!negative && u < k_.indices, 3, "i{} of {}", x, k_.indices);
          break;
        case 'V':
        case 'W':
          require(!negative && u < k_.values.size(), 4, "v{} of {}", x, k_.values.size());
          v[values++] = k_.values[u];
          break;
        case 'B':
        case 'S':
          require(!negative && u < buffers_.size(), 6, "buffer {} of {}", x, buffers_.size());
          buffer = &buffers_[u];
          require(info.operands[i] == 'B' || buffer->writable, 7, "stores into b{}, an input", x);
          break;
        default:
          immediate = x;
      }
    }
    types(info, std::span(v.data(), values), buffer, immediate);
    control(in.op, immediate);
  }

  static bool is_number(DType t) { return t == DType::kF32 || t == DType::kF64 || is_int(t); }
  static bool is_logic(DType t) { return t == DType::kBool || is_int(t); }

  void dtype(bool holds, const PortableOpInfo& info, PortableValue v) const {
    require(holds, 8, "{} of {}", info.name, name_of(v.dtype));
  }
  void alike(const PortableOpInfo& info, PortableValue a, PortableValue b) const {
    require(a.dtype == b.dtype, 8, "{} of {} and {}", info.name, name_of(a.dtype),
            name_of(b.dtype));
    require(a.lanes == b.lanes, 9, "{} of {} and {} lanes", info.name, a.lanes, b.lanes);
  }

  void types(const PortableOpInfo& info, std::span<const PortableValue> v, const BufferInfo* buffer,
             int64_t immediate) const {
    const auto all_alike = [&](size_t from) {
      for (size_t i = from + 1; i < v.size(); ++i) alike(info, v[from], v[i]);
    };
    const auto lanes = [&](bool holds) {
      require(holds, 9, "{} of {} to {} lanes", info.name, v[1].lanes, v[0].lanes);
    };
    const auto same_dtype = [&] {
      require(v[0].dtype == v[1].dtype, 8, "{} of {} to {}", info.name, name_of(v[1].dtype),
              name_of(v[0].dtype));
    };
    switch (info.types) {
      case PortableTypes::kNone:
        return;
      case PortableTypes::kSame:
        return all_alike(0);
      case PortableTypes::kNumber:
        dtype(is_number(v[0].dtype), info, v[0]);
        return all_alike(0);
      case PortableTypes::kFloat:
        dtype(v[0].dtype == DType::kF32 || v[0].dtype == DType::kF64, info, v[0]);
        return all_alike(0);
      case PortableTypes::kInteger:
        dtype(is_int(v[0].dtype), info, v[0]);
        return all_alike(0);
      case PortableTypes::kLogic:
        dtype(is_logic(v[0].dtype), info, v[0]);
        return all_alike(0);
      case PortableTypes::kCompare:
        dtype(v[0].dtype == DType::kBool, info, v[0]);
        dtype(v[1].dtype != DType::kF16 && v[1].dtype != DType::kBF16, info, v[1]);
        lanes(v[0].lanes == v[1].lanes);
        return all_alike(1);
      case PortableTypes::kSelect:
        dtype(v[1].dtype == DType::kBool, info, v[1]);
        lanes(v[0].lanes == v[1].lanes);
        alike(info, v[0], v[2]);
        return alike(info, v[0], v[3]);
      case PortableTypes::kCast:
        return lanes(v[0].lanes == v[1].lanes);
      case PortableTypes::kBitcast:
        for (const PortableValue& x : v) dtype(x.dtype != DType::kBool, info, x);
        dtype(size_of(v[0].dtype) == size_of(v[1].dtype), info, v[1]);
        return lanes(v[0].lanes == v[1].lanes);
      case PortableTypes::kBroadcast:
        same_dtype();
        return lanes(v[1].lanes == 1);
      case PortableTypes::kReduceNumber:
      case PortableTypes::kReduceLogic:
        dtype(info.types == PortableTypes::kReduceNumber ? is_number(v[0].dtype)
                                                         : is_logic(v[0].dtype),
              info, v[0]);
        same_dtype();
        return lanes(v[0].lanes == 1);
      case PortableTypes::kExtract:
        same_dtype();
        lanes(v[0].lanes == 1);
        return require(immediate >= 0 && immediate < v[1].lanes, 10, "lane {} of {}", immediate,
                       v[1].lanes);
      case PortableTypes::kConst: {
        const size_t bits = 8 * size_of(v[0].dtype);
        const bool fits = v[0].dtype == DType::kBool ? immediate == 0 || immediate == 1
                          : bits == 64               ? true
                                       : immediate >= 0 && immediate < (int64_t{1} << bits);
        return require(fits, 10, "the bits {:#x} of a {}", static_cast<uint64_t>(immediate),
                       name_of(v[0].dtype));
      }
      case PortableTypes::kIota:
        return dtype(v[0].dtype == DType::kI32, info, v[0]);
      case PortableTypes::kFromIndex:
        dtype(v[0].dtype == DType::kI64, info, v[0]);
        return require(v[0].lanes == 1, 9, "FromIndex to {} lanes", v[0].lanes);
      case PortableTypes::kIndexOf:
        dtype(is_int(v[0].dtype), info, v[0]);
        return require(v[0].lanes == 1, 9, "IndexOf {} lanes", v[0].lanes);
      case PortableTypes::kMemory:
        require(v[0].dtype == buffer->dtype, 8, "{} of {} with a buffer of {}", info.name,
                name_of(v[0].dtype), name_of(buffer->dtype));
        return all_alike(0);
    }
  }

  void control(PortableOp op, int64_t immediate) {
    switch (op) {
      case PortableOp::kLoop:
        require(immediate > 0, 10, "a loop in steps of {}", immediate);
        [[fallthrough]];
      case PortableOp::kIf:
        require(blocks_.size() < kMaxPortableDepth, 11, "more than {} blocks within each other",
                kMaxPortableDepth);
        blocks_.push_back(op == PortableOp::kLoop ? Block::kLoop : Block::kThen);
        return;
      case PortableOp::kElse:
        require(!blocks_.empty() && blocks_.back() == Block::kThen, 11, "Else without an If");
        blocks_.back() = Block::kElse;
        return;
      case PortableOp::kEnd:
        require(!blocks_.empty(), 11, "End without a block");
        blocks_.pop_back();
        return;
      case PortableOp::kCheck:
        require(immediate > 0 && immediate <= INT32_MAX, 10, "status {}", immediate);
        return;
      default:
        return;
    }
  }

  const PortableKernel& k_;
  const KernelContract& contract_;
  std::vector<BufferInfo> buffers_;
  std::vector<Block> blocks_;
  size_t at_ = 0;
};

}  // namespace

std::string_view portable_rule_sentence(int rule) {
  return rule >= 1 && rule <= kPortableRuleCount ? kSentences[rule] : std::string_view();
}

std::optional<PortableFault> verify_portable(const PortableKernel& kernel,
                                             const KernelContract& contract) {
  try {
    Verifier(kernel, contract).run();
  } catch (Stop& stop) {
    return std::move(stop.fault);
  }
  return std::nullopt;
}

}  // namespace nimble::exec
