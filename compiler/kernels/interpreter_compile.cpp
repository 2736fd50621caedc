#include <unordered_map>
#include <unordered_set>

#include "compiler/kernels/gpu_access.h"
#include "compiler/kernels/interpreter_code.h"
#include "compiler/kernels/verify_steps.h"
#include "vm/base/error.h"
#include "vm/executable/check_status.h"

namespace nimble::kir {
namespace {

class Compiler {
 public:
  explicit Compiler(const Function& f) : facts_(f.facts) {
    code_.name = f.name;
    code_.root = f.body;
    by_lane_.insert(slot_of("thread"));
    slot_of("threads");
    code_.contract_symbols = f.contract.symbols;
    for (const std::string& s : f.contract.symbols) {
      slot_of(s);
      code_.facts.push_back(f.facts.facts(s));
    }
    if (f.launch) {
      code_.launch_threads = f.launch->threads;
      for (const Dim& d : f.launch->grid) code_.grid.push_back(dim(d));
      facts_.set("thread", {0, f.launch->threads - 1, 1});
      facts_.set("threads", {f.launch->threads, f.launch->threads, f.launch->threads});
      for (const char* s : kBlockSymbols) {
        slot_of(s);
        facts_.set(s, {0, INT32_MAX, 1});
      }
    }
    for (const auto* list : {&f.arguments, &f.scratch, &f.shared, &f.registers}) {
      for (const BufferRef& b : *list) {
        buffers_[b.get()] = static_cast<int>(code_.buffers.size());
        code_.buffers.push_back(b);
        code_.ready.push_back(is_ready_for_steps(f, *b));
        code_.extents.push_back(dim(b->extent));
      }
    }
    for (const exec::KernelArgument& a : f.contract.arguments)
      if (a.kind == exec::KernelArgument::Kind::kTensor)
        code_.defined.push_back(a.access != exec::Access::kOut);
    code_.arguments = f.arguments.size();
    code_.scratch = f.scratch.size();
    code_.shared = f.shared.size();
    code_.body = statement(*f.body);
  }

  InterpreterCode take() { return std::move(code_); }

 private:
  int slot_of(const std::string& name) { return slots_[name] = code_.symbols++; }

  DimCode dim(const Dim& d) {
    DimCode code;
    for (const Dim::Term& t : d.terms()) {
      if (t.atoms.empty()) {
        code.constant = t.coefficient;
        continue;
      }
      DimCode::Term term{t.coefficient, {}};
      for (const Dim& a : t.atoms) {
        DimCode::Factor factor;
        if (const auto name = a.as_symbol()) {
          factor.slot = slots_.at(*name);
          code.by_lane |= by_lane_.contains(factor.slot);
        } else {
          const auto call = a.as_application();
          NIMBLE_CHECK(call.has_value(), "{}", a.str());
          factor.function = call->function;
          for (const Dim& o : call->operands) {
            factor.operands.push_back(dim(o));
            code.by_lane |= factor.operands.back().by_lane;
          }
        }
        term.factors.push_back(std::move(factor));
      }
      code.terms.push_back(std::move(term));
    }
    return code;
  }

  int reserve(int lanes) {
    const int at = code_.frame;
    code_.frame += lanes;
    return at;
  }

  AccessCode access(const BufferRef& b, const Dim& index, const Dim& stride,
                    const std::optional<Dim>& valid, int lanes = 1) {
    AccessCode a;
    a.buffer = buffers_.at(b.get());
    a.index = dim(index);
    a.stride = dim(stride);
    a.masked = valid.has_value();
    if (valid) a.valid = dim(*valid);
    if (code_.launch_threads > 0 && lanes > 1 && stride.is_constant(1))
      a.width = access_bytes(*b, index, lanes, facts_) / static_cast<int64_t>(size_of(b->dtype));
    return a;
  }

  int value(const ValueRef& v, std::vector<OpCode>& ops) {
    if (v->kind == ValueKind::kLocal) return locals_.at(v->name);
    if (auto it = temporaries_.find(v.get()); it != temporaries_.end()) return it->second;
    OpCode op;
    op.value = v.get();
    for (size_t i = 0; i < v->operands.size(); ++i) op.operand[i] = value(v->operands[i], ops);
    if (!v->operands.empty()) {
      op.from = v->operands[0]->dtype;
      op.from_lanes = v->operands[0]->lanes;
    }
    if (v->kind == ValueKind::kLoad) {
      op.operand[0] = v->passthrough ? value(v->passthrough, ops) : -1;
      op.access = access(v->buffer, v->index, v->stride, v->valid, v->lanes);
    } else if (v->kind == ValueKind::kRegister) {
      op.access = access(v->buffer, v->index, 1, std::nullopt);
    } else if (v->kind == ValueKind::kIndex || v->kind == ValueKind::kShuffle) {
      op.access.index = dim(v->index);
    }
    op.result = reserve(v->lanes);
    temporaries_[v.get()] = op.result;
    ops.push_back(std::move(op));
    return ops.back().result;
  }

  // Of a loop's variable, as the printer takes them.
  void set_facts(const Stmt& s) {
    const auto from = facts_.range(s.begin), to = facts_.range(s.begin + s.extent);
    facts_.set(s.var, {from.low, to.high == INT64_MAX ? INT64_MAX : to.high - 1,
                       facts_.divisible(s.begin, s.step) == ir::Proof::kYes ? s.step : 1});
  }

  BoxCode box(const Stmt& s) {
    BoxCode code;
    code.buffer = buffers_.at(s.map->buffer.get());
    for (const Dim& d : s.map->extents) code.extents.push_back(dim(d));
    for (const Dim& d : s.coordinates) code.coordinates.push_back(dim(d));
    return code;
  }

  StmtCode nested(const Stmt& s) {
    const auto slots = slots_;
    const auto locals = locals_;
    StmtCode code = statement(s);
    slots_ = slots;
    locals_ = locals;
    return code;
  }

  StmtCode statement(const Stmt& s) {
    StmtCode code;
    code.stmt = &s;
    for (const Condition::Term& t : s.condition.terms)
      code.condition.push_back({dim(t.a), dim(t.b), t.op});
    if (s.value) {
      temporaries_.clear();
      code.value = value(s.value, code.ops);
    }
    for (const TileShape& t : s.shapes)
      code.tiles.push_back(access(t.tile, t.rows, 1, std::nullopt));
    for (const TileRef& t : s.tiles)
      code.tiles.push_back(access(t.buffer, t.number, 1, std::nullopt));
    for (const GroupView& v : s.views)
      code.views.push_back(access(v.buffer, v.index, 1, std::nullopt));
    switch (s.kind) {
      case StmtKind::kSeq:
        for (const StmtRef& b : s.body) code.body.push_back(statement(*b));
        break;
      case StmtKind::kFor: {
        code.begin = dim(s.begin);
        code.extent = dim(s.extent);
        code.steps = s.loop == LoopKind::kSteps;
        const auto slots = slots_;
        code.slot = slot_of(s.var);
        set_facts(s);
        if (code.begin.by_lane) by_lane_.insert(code.slot);
        code.body.push_back(nested(*s.body[0]));
        slots_ = slots;
        break;
      }
      case StmtKind::kIf:
        for (const StmtRef& b : s.body) code.body.push_back(nested(*b));
        break;
      case StmtKind::kStore:
        code.access = access(s.buffer, s.index, s.stride, s.valid, s.value->lanes);
        break;
      case StmtKind::kSetRegister:
        code.access = access(s.buffer, s.index, 1, std::nullopt);
        break;
      case StmtKind::kLet:
        code.slot = reserve(s.value->lanes);
        locals_[s.var] = code.slot;
        break;
      case StmtKind::kLetIndex:
        code.slot = slot_of(s.var);
        facts_.set(s.var, s.facts.value_or(ir::SymbolFacts{INT64_MIN, INT64_MAX, 1}));
        by_lane_.insert(code.slot);
        break;
      case StmtKind::kPrefetch:
        break;
      case StmtKind::kBarrier:
        code_.has_barrier = true;
        code.meets = s.together == Together::kBlock;
        break;
      case StmtKind::kCheck:
        code.check = exec::check_status(s.message);
        break;
      case StmtKind::kTiles:
        code.body.push_back(nested(*s.body[0]));
        break;
      case StmtKind::kTileLoad:
      case StmtKind::kTileStore:
        code.access = access(s.buffer, s.index, s.stride, std::nullopt);
        break;
      case StmtKind::kWarpLoad:
        code.access = access(s.buffer, s.index, 1, std::nullopt);
        break;
      case StmtKind::kAsyncCopy:
        code.access = access(s.buffer, s.index, 1, s.valid);
        code.to = access(s.to_buffer, s.to_index, 1, std::nullopt);
        code.access.width = code.to.width = s.lanes;  // whatever is known
        break;
      case StmtKind::kSignalInit:
      case StmtKind::kSignalArrive:
        code.access = access(s.buffer, s.index, 1, std::nullopt);
        break;
      case StmtKind::kSignalWait:
        code.access = access(s.buffer, s.index, 1, std::nullopt);
        code.begin = dim(s.phase);
        code.meets = true;
        break;
      case StmtKind::kTensorCopy:
        code.access = access(s.buffer, s.index, 1, std::nullopt);
        code.to = access(s.to_buffer, s.to_index, 1, std::nullopt);
        code.box = box(s);
        break;
      case StmtKind::kTileZero:
      case StmtKind::kTileDot:
      case StmtKind::kWarpDot:
      case StmtKind::kAsyncCommit:
      case StmtKind::kAsyncWait:
      case StmtKind::kGroupDot:
      case StmtKind::kGroupFence:
      case StmtKind::kGroupCommit:
      case StmtKind::kGroupWait:
      case StmtKind::kProxyFence:
        break;
    }
    for (const StmtCode& b : code.body) {
      code.meets |= b.meets;
      code.steps |= b.steps;
    }
    return code;
  }

  InterpreterCode code_;
  ir::DimContext facts_;  // of what is in sight
  std::unordered_map<std::string, int> slots_, locals_;
  std::unordered_set<int> by_lane_;  // slots whose values differ between the lanes of a warp
  std::unordered_map<const Buffer*, int> buffers_;
  std::unordered_map<const Value*, int> temporaries_;
};

}  // namespace

InterpreterCode compile_for_interpreter(const Function& f) {
  return Compiler(f).take();
}

}  // namespace nimble::kir
