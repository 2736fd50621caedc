// Kernel IR to LLVM IR: the frame of a kernel, its statements and loops.
//
// What a template says is what runs: loops keep their order, those that it unrolls come as copies
// (kernels/unroll.h), vectors are LLVM vectors, and LLVM is kept from vectorising, unrolling,
// interchanging or recognising idioms (a library call would be an outside symbol). What is left to
// LLVM is what it is good at: moving invariants out of loops, common subexpressions, addressing
// modes, scheduling and register allocation.
//
// Register buffers become one stack slot per element; every index is a constant, so LLVM promotes
// all of them to registers. Each buffer has an alias scope of its own (distinct buffers never
// overlap), so that a store into one does not force values of another back from memory.
#include <algorithm>
#include <cstddef>
#include <numeric>

#include "compiler/codegen/llvm/emitter.h"
#include "vm/base/error.h"
#include "vm/base/kernel_abi.h"
#include "vm/executable/check_status.h"

namespace nimble::codegen {

using ir::Dim;
using kir::StmtKind;

llvm::BasicBlock* Emitter::block(const char* name) {
  return llvm::BasicBlock::Create(context_, name, fn_);
}

void Emitter::bind_symbol(const std::string& name, llvm::Value* value) {
  const ir::SymbolFacts facts = f_->facts.facts(name);
  symbols_[name] = {value, depth_, std::max<int64_t>(1, facts.divisor), facts.low >= 0};
  if (value->getName().empty() && !llvm::isa<llvm::Constant>(value)) value->setName(name);
}

llvm::Function* Emitter::emit(const kir::Function& f) {
  f_ = &f;
  places_.clear();
  tile_memory_ = nullptr;
  symbols_.clear();
  locals_.clear();
  dims_.clear();
  addresses_.clear();
  new_dims_.clear();
  new_addresses_.clear();
  depth_ = 0;

  llvm::Type* pointer = b_.getPtrTy();
  auto* signature = llvm::FunctionType::get(
      b_.getInt32Ty(), {pointer, b_.getInt32Ty(), b_.getInt32Ty(), pointer}, false);
  fn_ = llvm::Function::Create(signature, llvm::Function::ExternalLinkage, f.name, module_);
  fn_->setDSOLocal(true);
  fn_->addFnAttr(llvm::Attribute::NoUnwind);
  fn_->addFnAttr("no-builtins");
  fn_->addFnAttr("no-trapping-math", "true");
  fn_->addFnAttr("prefer-vector-width", std::to_string(target_.vector_bits));
  fn_->addFnAttr("min-legal-vector-width", std::to_string(target_.vector_bits));
  b_.SetInsertPoint(block("entry"));
  prologue(f);
  statement(*f.body);
  b_.CreateRet(b_.getInt32(0));
  return fn_;
}

void Emitter::prologue(const kir::Function& f) {
  llvm::Value* args = fn_->getArg(0);
  args->setName("args");
  fn_->addParamAttr(0, llvm::Attribute::NoAlias);
  fn_->addParamAttr(0, llvm::Attribute::ReadOnly);
  thread_ = fn_->getArg(1);
  llvm::Value* threads = fn_->getArg(2);
  barrier_ = fn_->getArg(3);
  thread_->setName("thread.i32");
  threads->setName("threads.i32");
  bind_symbol("thread", b_.CreateZExt(thread_, b_.getInt64Ty(), "thread"));
  bind_symbol("threads", b_.CreateZExt(threads, b_.getInt64Ty(), "threads"));

  llvm::MDNode* none = llvm::MDNode::get(context_, {});
  const auto field = [&](llvm::Value* base, int64_t offset, llvm::Type* type, const char* name) {
    auto* load = b_.CreateLoad(type, b_.CreateConstGEP1_64(b_.getInt8Ty(), base, offset), name);
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, none);
    return load;
  };
  llvm::Type* pointer = b_.getPtrTy();
  if (!f.contract.symbols.empty()) {
    llvm::Value* symbols = field(args, offsetof(nimble_kernel_args, symbols), pointer, "symbols");
    for (size_t i = 0; i < f.contract.symbols.size(); ++i)
      bind_symbol(f.contract.symbols[i],
                  field(symbols, 8 * static_cast<int64_t>(i), b_.getInt64Ty(), ""));
  }
  place_buffers(f);

  const auto at = [&](const kir::Buffer& b) -> Place& { return places_.at(&b); };
  if (!f.arguments.empty()) {
    llvm::Value* table = field(args, offsetof(nimble_kernel_args, buffers), pointer, "buffers");
    for (size_t i = 0; i < f.arguments.size(); ++i) {
      const kir::Buffer& b = *f.arguments[i];
      at(b).base = field(table, 8 * static_cast<int64_t>(i), pointer, "");
      at(b).base->setName(b.name);
    }
  }
  if (!f.scratch.empty()) {
    llvm::Value* scratch = field(args, offsetof(nimble_kernel_args, scratch), pointer, "scratch");
    for (const kir::BufferRef& b : f.scratch) {
      const kir::ScratchPlace place = kir::scratch_place(f, *b);
      const Dim offset = place.offset + place.per_thread * Dim::symbol("thread");
      at(*b).base = b_.CreateGEP(b_.getInt8Ty(), scratch, dim(offset));
      if (!llvm::isa<llvm::Argument>(at(*b).base)) at(*b).base->setName(b->name);
    }
  }
  for (const kir::BufferRef& b : f.registers) {
    if (b->scope == kir::Scope::kTile) continue;  // numbered where they are used
    const int64_t extent = constant(b->extent);
    for (int64_t i = 0; i < extent; ++i)
      at(*b).registers.push_back(
          b_.CreateAlloca(type(b->dtype, b->lanes), nullptr, b->name + std::to_string(i)));
  }
}

void Emitter::place_buffers(const kir::Function& f) {
  llvm::MDBuilder md(context_);
  llvm::MDNode* domain = md.createAnonymousAliasScopeDomain(f.name);
  std::vector<std::pair<const kir::Buffer*, llvm::MDNode*>> scopes;
  for (const auto* list : {&f.arguments, &f.scratch})
    for (const kir::BufferRef& b : *list)
      scopes.emplace_back(b.get(), md.createAnonymousAliasScope(domain, b->name));
  for (const auto& [buffer, scope] : scopes) {
    Place& place = places_[buffer];
    place.scope = llvm::MDNode::get(context_, {scope});
    llvm::SmallVector<llvm::Metadata*, 16> others;
    for (const auto& [other, its] : scopes)
      if (other != buffer) others.push_back(its);
    if (!others.empty()) place.others = llvm::MDNode::get(context_, others);
  }
  for (const kir::BufferRef& b : f.registers) places_[b.get()];
}

void Emitter::statement(const kir::Stmt& s) {
  switch (s.kind) {
    case StmtKind::kSeq:
      for (size_t i = 0; i < s.body.size();)
        if (const size_t done = transpose(s.body, i); done > 0)
          i += done;
        else
          statement(*s.body[i++]);
      return;
    case StmtKind::kFor:
      return loop(s);
    case StmtKind::kIf:
      return branch(s);
    case StmtKind::kStore:
      return store(s);
    case StmtKind::kSetRegister:
      b_.CreateStore(root(s.value), places_.at(s.buffer.get()).registers.at(constant(s.index)));
      return;
    case StmtKind::kLet:
      locals_[s.var] = root(s.value);
      return;
    case StmtKind::kLetIndex: {
      llvm::Value* v = root(s.value);
      v = is_signed_int(s.value->dtype) ? b_.CreateSExtOrTrunc(v, b_.getInt64Ty())
                                        : b_.CreateZExtOrTrunc(v, b_.getInt64Ty());
      symbols_[s.var] = {v, depth_, s.facts ? std::max<int64_t>(1, s.facts->divisor) : 1,
                         s.facts && s.facts->low >= 0};
      return;
    }
    case StmtKind::kPrefetch:
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                         {address(*s.buffer, s.index), b_.getInt32(s.for_write),
                          b_.getInt32(s.locality), b_.getInt32(1)});
      return;
    case StmtKind::kBarrier:
      return barrier();
    case StmtKind::kCheck:
      return check(s);
    case StmtKind::kTiles:
    case StmtKind::kTileZero:
    case StmtKind::kTileLoad:
    case StmtKind::kTileStore:
    case StmtKind::kTileDot:
      return tile_statement(s);
#define NIMBLE_GPU_STATEMENT(id, what) case StmtKind::id:
#include "compiler/kernels/Statements.def"
      NIMBLE_UNREACHABLE("a GPU's statement in {}", f_->name);
  }
}

void Emitter::loop(const kir::Stmt& s) {
  switch (s.loop) {
    case kir::LoopKind::kSerial:
      return counted_loop(s, dim(s.begin), dim(s.begin + s.extent));
    case kir::LoopKind::kUnroll:
      NIMBLE_UNREACHABLE("loop {} of {} was to be unrolled", s.var, f_->name);
    case kir::LoopKind::kThread:
      return thread_loop(s);
    case kir::LoopKind::kSteps:
      NIMBLE_UNREACHABLE("a GPU's loop {} in {}", s.var, f_->name);
  }
}

void Emitter::counted_loop(const kir::Stmt& s, llvm::Value* begin, llvm::Value* end) {
  // guard; do { body } while (next < end): the form LLVM's loop passes want.
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* body = block(s.var.c_str());
  llvm::BasicBlock* after = block("after");
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), body, after);
  b_.SetInsertPoint(body);
  llvm::PHINode* var = b_.CreatePHI(b_.getInt64Ty(), 2, s.var);
  var->addIncoming(begin, before);
  ++depth_;
  const auto start = s.begin.as_constant();
  const int64_t multiple = s.loop == kir::LoopKind::kSerial && start ? std::gcd(*start, s.step) : 1;
  symbols_[s.var] = {var, depth_, std::max<int64_t>(1, multiple),
                     s.step > 0 && nonnegative(s.begin)};
  forgetting([&] { statement(*s.body[0]); });
  symbols_.erase(s.var);
  --depth_;
  llvm::Value* next = b_.CreateNSWAdd(var, b_.getInt64(s.step));
  var->addIncoming(next, b_.GetInsertBlock());
  auto* back = b_.CreateCondBr(b_.CreateICmpSLT(next, end), body, after);
  llvm::SmallVector<llvm::Metadata*, 4> hints = {nullptr};
  for (const char* hint : {"llvm.loop.unroll.disable", "llvm.loop.mustprogress"})
    hints.push_back(llvm::MDNode::get(context_, llvm::MDString::get(context_, hint)));
  llvm::MDNode* id = llvm::MDNode::getDistinct(context_, hints);
  id->replaceOperandWith(0, id);
  back->setMetadata(llvm::LLVMContext::MD_loop, id);
  b_.SetInsertPoint(after);
}

void Emitter::thread_loop(const kir::Stmt& s) {
  llvm::Value* trips = dim(kir::trip_count(s));
  // No work, no chunk: a negative extent must not turn into a range.
  trips = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, trips, b_.getInt64(0));
  llvm::Value* thread = symbols_.at("thread").value;
  llvm::Value* threads = symbols_.at("threads").value;
  const auto share = [&](llvm::Value* t) {
    llvm::Value* iteration = b_.CreateUDiv(b_.CreateMul(t, trips), threads);
    return b_.CreateNSWAdd(dim(s.begin), b_.CreateNSWMul(iteration, b_.getInt64(s.step)));
  };
  llvm::Value* from = share(thread);
  llvm::Value* to = share(b_.CreateAdd(thread, b_.getInt64(1)));
  counted_loop(s, from, to);
}

llvm::Value* Emitter::condition(const kir::Condition& c) {
  using Op = kir::Condition::Op;
  llvm::Value* all = b_.getTrue();
  for (const kir::Condition::Term& t : c.terms) {
    const auto predicate = t.op == Op::kLt   ? llvm::CmpInst::ICMP_SLT
                           : t.op == Op::kLe ? llvm::CmpInst::ICMP_SLE
                           : t.op == Op::kEq ? llvm::CmpInst::ICMP_EQ
                                             : llvm::CmpInst::ICMP_NE;
    all = b_.CreateAnd(all, b_.CreateICmp(predicate, dim(t.a), dim(t.b)));
  }
  return all;
}

void Emitter::branch(const kir::Stmt& s) {
  llvm::Value* c = condition(s.condition);
  llvm::BasicBlock* then = block("then");
  llvm::BasicBlock* otherwise = s.body.size() > 1 ? block("else") : nullptr;
  llvm::BasicBlock* after = block("after");
  b_.CreateCondBr(c, then, otherwise ? otherwise : after);
  b_.SetInsertPoint(then);
  forgetting([&] { statement(*s.body[0]); });
  b_.CreateBr(after);
  if (otherwise) {
    b_.SetInsertPoint(otherwise);
    forgetting([&] { statement(*s.body[1]); });
    b_.CreateBr(after);
  }
  b_.SetInsertPoint(after);
}

void Emitter::check(const kir::Stmt& s) {
  llvm::BasicBlock* holds = block("holds");
  llvm::BasicBlock* fails = block("fails");
  b_.CreateCondBr(condition(s.condition), holds, fails,
                  llvm::MDBuilder(context_).createLikelyBranchWeights());
  b_.SetInsertPoint(fails);
  b_.CreateRet(b_.getInt32(static_cast<uint32_t>(exec::check_status(s.message))));
  b_.SetInsertPoint(holds);
}

void Emitter::barrier() {
  // One thread has nobody to wait for, and may pass no barrier at all.
  llvm::BasicBlock* wait = block("wait");
  llvm::BasicBlock* after = block("after");
  llvm::Value* several = b_.CreateICmpUGT(symbols_.at("threads").value, b_.getInt64(1));
  b_.CreateCondBr(several, wait, after);
  b_.SetInsertPoint(wait);
  static_assert(offsetof(nimble_barrier, wait) == 0);
  llvm::Value* function = b_.CreateLoad(b_.getPtrTy(), barrier_, "wait");
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt32Ty()}, false);
  b_.CreateCall(type, function, {barrier_, thread_})->setDoesNotThrow();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void Emitter::store(const kir::Stmt& s) {
  llvm::Value* v = to_memory(root(s.value), s.value->dtype);
  const int lanes = s.value->lanes;
  llvm::Value* to = address(*s.buffer, s.index);
  const bool dense = lanes == 1 || s.stride.is_constant(1);
  if (dense && !s.valid) {
    llvm::StoreInst* store = b_.CreateAlignedStore(v, to, alignment(*s.buffer, s.index));
    annotate(store, *s.buffer, false);
    return;
  }
  llvm::Value* mask = s.valid ? lane_mask(*s.valid, lanes) : nullptr;
  if (lanes == 1) {
    v = b_.CreateInsertElement(llvm::PoisonValue::get(llvm::FixedVectorType::get(v->getType(), 1)),
                               v, uint64_t{0});
  }
  if (dense) {
    annotate(b_.CreateMaskedStore(v, to, alignment(*s.buffer, s.index), mask), *s.buffer, false);
    return;
  }
  const llvm::Align element(size_of(s.buffer->dtype));
  llvm::Type* scalar = memory_type(s.buffer->dtype, 1);
  if (!mask) {
    for (int i = 0; i < lanes; ++i) {
      llvm::Value* at = address(*s.buffer, s.index + s.stride * i);
      annotate(b_.CreateAlignedStore(b_.CreateExtractElement(v, i), at, element), *s.buffer, false);
    }
    return;
  }
  llvm::Value* pointers = b_.CreateGEP(scalar, to, lane_offsets(s.stride, lanes));
  annotate(b_.CreateMaskedScatter(v, pointers, element, mask), *s.buffer, false);
}

}  // namespace nimble::codegen
