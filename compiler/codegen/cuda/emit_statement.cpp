// Kernel IR to CUDA C++: the frame of a kernel and its statements.
//
// What a template says is what runs: loops keep their order and are not unrolled further, vectors
// are their lanes, register buffers are variables, one for each lane of each element or for each 32
// bits of packed ones. What is left to the compiler behind is what it is good at: common
// subexpressions, moving invariants out of loops, scheduling and registers.
//
// Buffers never overlap, which arguments say (__restrict__), so that those that are only read come
// through the read-only cache. In a function with steps of the grid they do not say it: a compiler
// takes it that a barrier leaves such memory as it was.
#include <numeric>

#include "compiler/codegen/cuda/emitter.h"
#include "compiler/kernels/group_fragments.h"
#include "vm/base/error.h"
#include "vm/executable/check_status.h"
#include "vm/executable/launch.h"

namespace nimble::codegen {

using ir::Dim;
using kir::Scope;
using kir::StmtKind;

CudaEmitter::CudaEmitter(const kir::Function& f, const kernels::TargetInfo& target)
    : f_(f), target_(target), facts_(f.facts) {}

void CudaEmitter::refuse(const std::string& what) const {
  throw Error(Status::kUnsupported, f_.name, "it has " + what);
}

// --- Text

void CudaEmitter::line(const std::string& text) {
  text_.append(static_cast<size_t>(2 * depth_), ' ');
  text_ += text;
  text_ += '\n';
}

std::string CudaEmitter::fresh() {
  return fmt::format("v{}", next_++);
}

std::string CudaEmitter::bind(const std::string& type, const std::string& expression) {
  std::string name = fresh();
  line(fmt::format("{}{} {} = {};", type.ends_with("const") ? "" : "const ", type, name,
                   expression));
  return name;
}

// A name of its own that says what it stands for: kernel IR's names are no C++.
std::string CudaEmitter::identifier(const std::string& name) {
  std::string out = fmt::format("n{}_", next_++);
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += plain ? c : '_';
  }
  return out;
}

// --- The frame

std::string CudaEmitter::run() {
  NIMBLE_CHECK(f_.launch.has_value(), "{}", f_.name);
  signature();
  return std::move(text_);
}

void CudaEmitter::signature() {
  std::string parameters;
  const auto add = [&](const std::string& p) {
    parameters += (parameters.empty() ? "" : ", ") + p;
  };
  // What blocks hand each other between steps changes behind a pointer that nobody else has. Those
  // that are only read are not told apart either: of a load from one of two, NVRTC makes one load
  // through the read-only cache, which sees nothing of other blocks.
  const bool steps = kir::steps_of(f_) != nullptr;
  const char* own = steps ? "" : "__restrict__ ";
  for (const kir::BufferRef& b : f_.arguments) {
    places_[b.get()] = identifier(b->name);
    add(fmt::format("{}{}* {}{}", b->writable ? "" : "const ", cuda_memory_type(b->dtype), own,
                    places_[b.get()]));
  }
  std::vector<std::string> symbols;
  for (const std::string& s : f_.contract.symbols) {
    symbols.push_back(identifier(s));
    add("i64 " + symbols.back());
  }
  add(fmt::format("u8* {}scratch", own));
  add("int* status");
  if (steps)
    for (const char* p : {"i64 first_step", "i64 end_step", "u32* arrived"}) add(p);
  for (const kir::TensorMapRef& m : f_.maps) {
    maps_[m.get()] = identifier(m->name);
    add("const __grid_constant__ tensor_map " + maps_[m.get()]);
    argument_alignment_ = std::max(argument_alignment_, kir::kPieceBytes);
  }
  braces(fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}({}) ",
                     f_.launch->threads, f_.name, parameters),
         [&] {
           for (size_t i = 0; i < symbols.size(); ++i) {
             const std::string& name = f_.contract.symbols[i];
             const ir::SymbolFacts facts = facts_.facts(name);
             bind_symbol(name, symbols[i], facts);
             if (symbols_.at(name).narrow)
               symbols_.at(name).text = bind("i32", "(i32)" + symbols[i]);
           }
           bind_symbol("thread", bind("i32", "(i32)threadIdx.x"), {0, f_.launch->threads - 1, 1});
           for (size_t axis = 0; axis < 3; ++axis) {
             const int64_t blocks = facts_.range(f_.launch->grid[axis]).high;
             bind_symbol(kir::kBlockSymbols[axis],
                         bind("i32", fmt::format("(i32)blockIdx.{}", "xyz"[axis])),
                         {0, std::max<int64_t>(0, std::min(exec::kMaxGrid[axis], blocks) - 1), 1});
           }
           place_buffers();
           find_group_sums(*f_.body);
           statement(*f_.body);
         });
}

bool CudaEmitter::in_words(const kir::Buffer& b) {
  return size_of(b.dtype) < 4 && b.dtype != DType::kBool &&
         size_of(b.dtype) * static_cast<size_t>(b.lanes) % 4 == 0;
}

int CudaEmitter::registers_of(const kir::Buffer& b) {
  return in_words(b) ? static_cast<int>(size_of(b.dtype)) * b.lanes / 4 : b.lanes;
}

std::string CudaEmitter::register_name(const kir::Buffer& b, int64_t element, int part) const {
  const std::string& name = places_.at(&b);
  return registers_of(b) == 1 ? fmt::format("{}_{}", name, element)
                              : fmt::format("{}_{}_{}", name, element, part);
}

void CudaEmitter::place_buffers() {
  for (const kir::BufferRef& b : f_.scratch) {
    if (b->scope != Scope::kScratch) refuse(fmt::format("{}, memory of a CPU's thread", b->name));
    places_[b.get()] =
        bind(fmt::format("{}* const", cuda_memory_type(b->dtype)),
             fmt::format("reinterpret_cast<{}*>(scratch + {})", cuda_memory_type(b->dtype),
                         dim(kir::scratch_place(f_, *b).offset).text));
  }
  for (const kir::BufferRef& b : f_.shared)
    places_[b.get()] = bind(fmt::format("{}* const", cuda_memory_type(b->dtype)),
                            fmt::format("reinterpret_cast<{}*>(nimble_shared + {})",
                                        cuda_memory_type(b->dtype), kir::shared_place(f_, *b)));
  for (const kir::BufferRef& b : f_.registers) {
    if (b->scope == Scope::kTile) refuse(fmt::format("{}, matrix registers of a CPU", b->name));
    places_[b.get()] = identifier(b->name);
    std::string names;
    for (int64_t i = 0; i < constant(b->extent); ++i)
      for (int part = 0; part < registers_of(*b); ++part)
        names += (names.empty() ? " " : ", ") + register_name(*b, i, part);
    if (!names.empty())
      line(fmt::format("{}{};", in_words(*b) ? "u32" : cuda_type(b->dtype), names));
  }
}

// --- Statements

void CudaEmitter::statement(const kir::Stmt& s) {
  begin_statement();
  switch (s.kind) {
    case StmtKind::kSeq:
      for (const kir::StmtRef& b : s.body) statement(*b);
      return;
    case StmtKind::kFor:
      return loop(s);
    case StmtKind::kIf:
      return branch(s);
    case StmtKind::kStore:
      return store(s);
    case StmtKind::kSetRegister:
      return set_register(s);
    case StmtKind::kLet:
      locals_[s.var] = value(s.value);
      return;
    case StmtKind::kLetIndex:
      return let_index(s);
    case StmtKind::kPrefetch:
      return prefetch(s);
    case StmtKind::kBarrier:
      return barrier(s);
    case StmtKind::kCheck:
      return check(s);
    case StmtKind::kWarpDot:
      return warp_dot(s);
    case StmtKind::kWarpLoad:
      return warp_load(s);
    case StmtKind::kAsyncCopy:
      return async_copy(s);
    case StmtKind::kAsyncCommit:
      return line("commit_async();");
    case StmtKind::kAsyncWait:
      return line(fmt::format("wait_async<{}>();", s.count));
    case StmtKind::kGroupDot:
    case StmtKind::kGroupFence:
    case StmtKind::kGroupCommit:
    case StmtKind::kGroupWait:
    case StmtKind::kProxyFence:
      return group_statement(s);
    case StmtKind::kSignalInit:
    case StmtKind::kSignalArrive:
    case StmtKind::kSignalWait:
    case StmtKind::kTensorCopy:
      return signal_statement(s);
#define NIMBLE_CPU_STATEMENT(id, what) case StmtKind::id:
#include "compiler/kernels/Statements.def"
      refuse("matrix registers of a CPU");
  }
}

void CudaEmitter::loop(const kir::Stmt& s) {
  if (s.loop == kir::LoopKind::kUnroll)
    NIMBLE_UNREACHABLE("loop {} of {} was to be unrolled", s.var, f_.name);
  const bool steps = s.loop == kir::LoopKind::kSteps;
  if (s.loop != kir::LoopKind::kSerial && !steps)
    refuse(fmt::format("loop {}, which is bound to {}", s.var, kir::name_of(s.loop)));
  const auto from = facts_.range(s.begin), to = facts_.range(s.begin + s.extent);
  const ir::SymbolFacts facts{from.low, to.high == INT64_MAX ? INT64_MAX : to.high - 1,
                              facts_.divisible(s.begin, s.step) == ir::Proof::kYes ? s.step : 1};
  const bool narrow = from.low >= INT32_MIN && from.high <= INT32_MAX && to.low >= INT32_MIN &&
                      to.high <= INT32_MAX - s.step;
  const char* type = narrow ? "i32" : "i64";
  const std::string begin = steps ? fmt::format("({})first_step", type) : dim(s.begin).text;
  const std::string end =
      bind(type, steps ? fmt::format("({})end_step", type) : dim(s.begin + s.extent).text);
  const std::string var = identifier(s.var);
  line("#pragma unroll 1");
  braces(fmt::format("for ({0} {1} = {2}; {1} < {3}; {1} += {4}) ", type, var, begin, end, s.step),
         [&] {
           bind_symbol(s.var, var, facts);
           symbols_.at(s.var).narrow = narrow;
           statement(*s.body[0]);
           if (steps) line(fmt::format("if ({} + 1 < {}) meet_grid(arrived);", var, end));
         });
  symbols_.erase(s.var);
}

std::string CudaEmitter::condition(const kir::Condition& c) {
  using Op = kir::Condition::Op;
  std::string all;
  for (const kir::Condition::Term& t : c.terms) {
    const char* op = t.op == Op::kLt ? "<" : t.op == Op::kLe ? "<=" : t.op == Op::kEq ? "==" : "!=";
    all += fmt::format("{}{} {} {}", all.empty() ? "" : " && ", dim(t.a).text, op, dim(t.b).text);
  }
  return all.empty() ? "true" : all;
}

void CudaEmitter::branch(const kir::Stmt& s) {
  braces(fmt::format("if ({}) ", condition(s.condition)), [&] { statement(*s.body[0]); });
  if (s.body.size() > 1) braces("else ", [&] { statement(*s.body[1]); });
}

void CudaEmitter::check(const kir::Stmt& s) {
  braces(fmt::format("if (!({})) ", condition(s.condition)), [&] {
    line(fmt::format("fail(status, {});", exec::check_status(s.message)));
    line("return;");
  });
}

void CudaEmitter::set_register(const kir::Stmt& s) {
  const kir::Buffer& b = *s.buffer;
  const std::vector<std::string>& parts = in_words(b) ? words(s.value) : lanes(s.value);
  for (int i = 0; i < registers_of(b); ++i)
    line(fmt::format("{} = {};", register_name(b, constant(s.index), i),
                     parts[static_cast<size_t>(i)]));
}

void CudaEmitter::let_index(const kir::Stmt& s) {
  const DType t = s.value->dtype;
  ir::SymbolFacts facts = s.facts.value_or(ir::SymbolFacts{INT64_MIN, INT64_MAX, 1});
  if (!s.facts && size_of(t) <= 4 && t != DType::kU32) facts = {INT32_MIN, INT32_MAX, 1};
  const std::string from = lanes(s.value)[0];
  bind_symbol(s.var, "", facts);
  Integer& symbol = symbols_.at(s.var);
  symbol.text = bind(symbol.narrow ? "i32" : "i64",
                     fmt::format("({}){}", symbol.narrow ? "i32" : "i64", from));
}

void CudaEmitter::prefetch(const kir::Stmt& s) {
  if (s.buffer->scope == Scope::kShared) return;          // it is as near as can be
  const std::string at = pointer(*s.buffer, s.index, 1);  // any byte of a line
  line(fmt::format("prefetch_{}({});", s.locality == 3 ? "l1" : "l2", at));
}

void CudaEmitter::barrier(const kir::Stmt& s) {
  switch (s.together) {
    case kir::Together::kBlock:
      return line("__syncthreads();");
    case kir::Together::kWarp:
      return line("__syncwarp();");
    case kir::Together::kRegion:
      refuse("a barrier of a CPU's threads");
  }
}

}  // namespace nimble::codegen
