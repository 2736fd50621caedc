// The rules of portable kernels. One pass in the order of the code: every register carries its
// type from its declaration, so no rule needs to know how control came to an instruction. The
// rules, P1 and on, stand in PortableRules.def.
//
// Left to the interpreter, because it depends on the shape: that each accessed element exists,
// that scratch is neither negative nor too large, that the loops end within the budget of steps.
#include <bit>

#include "vm/executable/portable_kernel.h"
#include "vm/executable/verifier_rules.h"

namespace nimble::exec {
namespace {

struct Stop {
  PortableViolation fault;
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
    require<PortableFault::kBlocksOpen>(blocks_.empty(), blocks_.size());
  }

 private:
  struct BufferInfo {
    DType dtype;
    bool writable;
  };
  enum class Block { kLoop, kThen, kElse };

  template <PortableFault kFault, typename... Args>
  void require(bool holds, Args&&... args) const {
    if (holds) [[likely]]
      return;
    throw Stop{
        {kFault, info_of(kFault).rule, at_, fault_message<kFault>(std::forward<Args>(args)...)}};
  }

  void declarations() {
    require<PortableFault::kIndexSlots>(k_.indices <= kMaxPortableIndices, k_.indices);
    require<PortableFault::kValues>(k_.values.size() <= kMaxPortableValues, k_.values.size());
    require<PortableFault::kScratchBuffers>(k_.scratch.size() <= kMaxPortableScratch,
                                            k_.scratch.size());
    require<PortableFault::kInstructions>(k_.code.size() <= kMaxPortableCode, k_.code.size());
    require<PortableFault::kSymbolSlots>(k_.indices >= contract_.symbols.size(), k_.indices,
                                         contract_.symbols.size());
    for (size_t i = 0; i < k_.values.size(); ++i) {
      const PortableValue& v = k_.values[i];
      require<PortableFault::kValueDType>(static_cast<int>(v.dtype) < kDTypeCount, i,
                                          static_cast<int>(v.dtype));
      require<PortableFault::kBadLanes>(
          v.lanes <= kMaxPortableLanes && std::has_single_bit(v.lanes), i, v.lanes);
    }
    for (size_t i = 0; i < k_.scratch.size(); ++i) {
      const PortableScratch& s = k_.scratch[i];
      require<PortableFault::kScratchDType>(static_cast<int>(s.dtype) < kDTypeCount, i,
                                            static_cast<int>(s.dtype));
      const std::string bad = s.extent.verify();
      require<PortableFault::kScratchProgram>(bad.empty(), i, bad);
      require<PortableFault::kScratchExtent>(
          s.extent.results == 1 && s.extent.arguments <= contract_.symbols.size(), i,
          s.extent.results, s.extent.arguments, contract_.symbols.size());
      buffers_.push_back({s.dtype, true});
    }
  }

  void instruction(const PortableInstruction& in) {
    require<PortableFault::kUnknownOperation>(static_cast<int>(in.op) < kPortableOpCount,
                                              static_cast<int>(in.op));
    const PortableOpInfo& info = info_of(in.op);
    // The values in the row's order: what the type rules speak of.
    std::array<PortableValue, 4> v{};
    size_t values = 0;
    const BufferInfo* buffer = nullptr;
    int64_t immediate = 0;
    for (size_t i = 0; i < info.operands.size(); ++i) {
      const int64_t x = in.operands[i];
      const auto u = static_cast<uint64_t>(x);  // large if it is negative
      switch (info.operands[i]) {
        case 'J':
          require<PortableFault::kWritesSymbol>(u >= contract_.symbols.size(), x);
          [[fallthrough]];
        case 'I':
          require<PortableFault::kNoSuchSlot>(u < k_.indices, x, k_.indices);
          break;
        case 'V':
        case 'W':
          require<PortableFault::kNoSuchValue>(u < k_.values.size(), x, k_.values.size());
          v[values++] = k_.values[u];
          break;
        case 'B':
        case 'S':
          require<PortableFault::kNoSuchBuffer>(u < buffers_.size(), x, buffers_.size());
          buffer = &buffers_[u];
          require<PortableFault::kStoresIntoInput>(info.operands[i] == 'B' || buffer->writable, x);
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
    require<PortableFault::kOperandDType>(holds, info.name, name_of(v.dtype));
  }
  void alike(const PortableOpInfo& info, PortableValue a, PortableValue b) const {
    require<PortableFault::kOperandDTypes>(a.dtype == b.dtype, info.name, name_of(a.dtype),
                                           name_of(b.dtype));
    require<PortableFault::kOperandLanes>(a.lanes == b.lanes, info.name, a.lanes, b.lanes);
  }

  void types(const PortableOpInfo& info, std::span<const PortableValue> v, const BufferInfo* buffer,
             int64_t immediate) const {
    const auto all_alike = [&](size_t from) {
      for (size_t i = from + 1; i < v.size(); ++i) alike(info, v[from], v[i]);
    };
    const auto lanes = [&](bool holds) {
      require<PortableFault::kResultLanes>(holds, info.name, v[1].lanes, v[0].lanes);
    };
    const auto same_dtype = [&] {
      require<PortableFault::kResultDType>(v[0].dtype == v[1].dtype, info.name, name_of(v[1].dtype),
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
        dtype(!is_narrow_float(v[1].dtype), info, v[1]);
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
        dtype(v[0].lanes != v[1].lanes || size_of(v[0].dtype) == size_of(v[1].dtype), info, v[1]);
        return lanes(v[0].lanes * size_of(v[0].dtype) == v[1].lanes * size_of(v[1].dtype));
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
        return require<PortableFault::kNoSuchLane>(immediate >= 0 && immediate < v[1].lanes,
                                                   immediate, v[1].lanes);
      case PortableTypes::kConst: {
        const size_t bits = 8 * size_of(v[0].dtype);
        const bool fits = v[0].dtype == DType::kBool ? immediate == 0 || immediate == 1
                          : bits == 64               ? true
                                       : immediate >= 0 && immediate < (int64_t{1} << bits);
        return require<PortableFault::kConstantBits>(fits, static_cast<uint64_t>(immediate),
                                                     name_of(v[0].dtype));
      }
      case PortableTypes::kIota:
        return dtype(v[0].dtype == DType::kI32, info, v[0]);
      case PortableTypes::kFromIndex:
        dtype(v[0].dtype == DType::kI64, info, v[0]);
        return require<PortableFault::kFromIndexLanes>(v[0].lanes == 1, v[0].lanes);
      case PortableTypes::kIndexOf:
        dtype(is_int(v[0].dtype), info, v[0]);
        return require<PortableFault::kIndexOfLanes>(v[0].lanes == 1, v[0].lanes);
      case PortableTypes::kMemory:
        require<PortableFault::kBufferDType>(v[0].dtype == buffer->dtype, info.name,
                                             name_of(v[0].dtype), name_of(buffer->dtype));
        return all_alike(0);
    }
  }

  void control(PortableOp op, int64_t immediate) {
    switch (op) {
      case PortableOp::kLoop:
        require<PortableFault::kLoopStep>(immediate > 0, immediate);
        [[fallthrough]];
      case PortableOp::kIf:
        require<PortableFault::kBlocksTooDeep>(blocks_.size() < kMaxPortableDepth,
                                               kMaxPortableDepth);
        blocks_.push_back(op == PortableOp::kLoop ? Block::kLoop : Block::kThen);
        return;
      case PortableOp::kElse:
        require<PortableFault::kElseAlone>(!blocks_.empty() && blocks_.back() == Block::kThen);
        blocks_.back() = Block::kElse;
        return;
      case PortableOp::kEnd:
        require<PortableFault::kEndAlone>(!blocks_.empty());
        blocks_.pop_back();
        return;
      case PortableOp::kCheck:
        require<PortableFault::kCheckStatus>(immediate > 0 && immediate <= INT32_MAX, immediate);
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

std::optional<PortableViolation> verify_portable(const PortableKernel& kernel,
                                                 const KernelContract& contract) {
  try {
    Verifier(kernel, contract).run();
  } catch (Stop& stop) {
    return std::move(stop.fault);
  }
  return std::nullopt;
}

}  // namespace nimble::exec
