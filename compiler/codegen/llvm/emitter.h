// Kernel IR to LLVM IR, one function at a time. See emit_statement.cpp for the method.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::codegen {

class Emitter {
 public:
  Emitter(llvm::Module& module, const kernels::TargetInfo& target)
      : module_(module), context_(module.getContext()), target_(target), b_(context_) {}

  // `f` without unrolled loops (kernels/unroll.h).
  llvm::Function* emit(const kir::Function& f);

 private:
  // emit_statement.cpp
  void prologue(const kir::Function& f);
  void bind_symbol(const std::string& name, llvm::Value* value);
  void place_buffers(const kir::Function& f);
  void statement(const kir::Stmt& s);
  void loop(const kir::Stmt& s);
  void counted_loop(const kir::Stmt& s, llvm::Value* begin, llvm::Value* end);
  void thread_loop(const kir::Stmt& s);
  void branch(const kir::Stmt& s);
  void check(const kir::Stmt& s);
  void barrier();
  void store(const kir::Stmt& s);
  llvm::Value* condition(const kir::Condition& c);
  // Forgets the Dims and addresses that `emit` computes, which the block after it cannot see.
  // (Names that it binds nobody asks for again: none is bound twice, unroll.h.)
  template <class Emit>
  void forgetting(Emit emit) {
    const size_t dims = new_dims_.size(), addresses = new_addresses_.size();
    emit();
    for (; new_dims_.size() > dims; new_dims_.pop_back()) dims_.erase(new_dims_.back());
    for (; new_addresses_.size() > addresses; new_addresses_.pop_back())
      addresses_.erase(new_addresses_.back());
  }
  llvm::BasicBlock* block(const char* name);

  // emit_address.cpp
  int64_t constant(const ir::Dim& d) const;
  llvm::Value* dim(const ir::Dim& d);
  llvm::Value* monomial(const ir::Dim::Term& t);
  llvm::Value* atom(const ir::Dim& d);
  llvm::Value* floor_div_mod(const ir::Dim& a, const ir::Dim& b, bool mod);
  bool nonnegative(const ir::Dim& d) const;
  int depth(const ir::Dim& d) const;
  llvm::Value* address(const kir::Buffer& b, const ir::Dim& index);
  llvm::Align alignment(const kir::Buffer& b, const ir::Dim& index) const;
  int64_t divisor(const ir::Dim& d) const;
  void annotate(llvm::Instruction* access, const kir::Buffer& b, bool load);
  llvm::Value* lane_mask(const ir::Dim& valid, int lanes);
  llvm::Value* lane_offsets(const ir::Dim& stride, int lanes);

  // emit_value.cpp
  llvm::Type* type(DType t, int lanes) const;
  llvm::Type* memory_type(DType t, int lanes) const;
  llvm::Value* root(const kir::ValueRef& v);  // starts a statement: clears the memo
  llvm::Value* value(const kir::ValueRef& v);
  llvm::Value* expression(const kir::Value& v);
  llvm::Value* number(DType t, double v, int lanes);
  llvm::Value* integer(DType t, int64_t v, int lanes);
  llvm::Value* load(const kir::Value& v);
  llvm::Value* from_memory(llvm::Value* v, DType t);
  llvm::Value* to_memory(llvm::Value* v, DType t);
  llvm::Value* unary(const kir::Value& v, llvm::Value* a);
  llvm::Value* binary(kir::BinaryOp op, DType t, llvm::Value* a, llvm::Value* c);
  llvm::Value* scale(const kir::Value& v);
  llvm::Value* scale_of(llvm::Value* x, llvm::Value* n, DType dtype, int lanes);
  llvm::Value* select_rare(const kir::Value& v);
  llvm::Value* divide(DType t, bool mod, llvm::Value* a, llvm::Value* c);
  llvm::Value* fma(llvm::Value* a, llvm::Value* c, llvm::Value* d);
  llvm::Value* compare(const kir::Value& v, llvm::Value* a, llvm::Value* c);
  llvm::Value* reduce(const kir::Value& v, llvm::Value* a);

  // emit_fragment.cpp
  llvm::Value* broadcast(llvm::Value* v, int from, int to);
  llvm::Value* dot(const kir::Value& v);
  llvm::Value* dot_of(const kir::FragmentRow& row, llvm::Value* a, llvm::Value* c, llvm::Value* sum,
                      int lanes);
  llvm::Value* dot_by_neon(kir::Fragment f, llvm::Value* a, llvm::Value* c, llvm::Value* sum);
  llvm::Value* dot_by_i16(llvm::Value* a, llvm::Value* c, llvm::Value* sum, int bits);
  llvm::Value* added(llvm::Value* sum, llvm::Value* products);
  llvm::Value* lanes_of(llvm::Value* v, int first, int from, int to);
  // What `of` makes of the lower halves of some vectors and of the upper ones, as one vector.
  using OfHalves = llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)>;
  llvm::Value* by_halves(llvm::ArrayRef<llvm::Value*> vectors, OfHalves of);

  // emit_transpose.cpp
  // Emits the statements from body[from] on that copy a square block from rows to columns; how many
  // these are, 0 if they do not.
  size_t transpose(const std::vector<kir::StmtRef>& body, size_t from);

  // emit_tile.cpp
  void tile_statement(const kir::Stmt& s);
  void tiles(const kir::Stmt& s);
  llvm::Value* tile_config(const kir::Stmt& s);
  llvm::Value* tile(const kir::TileRef& t);  // its number, an immediate

  // emit_cast.cpp
  llvm::Value* cast(llvm::Value* v, DType from, DType to, int lanes);
  llvm::Value* clipped_to_integer(llvm::Value* v, DType to, int lanes);
  llvm::Value* f32_to_i32(llvm::Value* v, int lanes, bool rounds);
  llvm::Value* narrow_to_f32(llvm::Value* v, DType from, int lanes);
  llvm::Value* f32_to_narrow(llvm::Value* v, DType to, int lanes);
  llvm::Value* f16_to_f32_by_integers(llvm::Value* v, int lanes);
  llvm::Value* f32_to_f16_by_integers(llvm::Value* v, int lanes);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const kernels::TargetInfo& target_;
  llvm::IRBuilder<> b_;

  const kir::Function* f_ = nullptr;
  llvm::Function* fn_ = nullptr;
  llvm::Value* thread_ = nullptr;   // i32
  llvm::Value* barrier_ = nullptr;  // nimble_barrier*, unused if there is one thread

  struct Place {
    llvm::Value* base = nullptr;               // memory buffers
    std::vector<llvm::AllocaInst*> registers;  // register buffers: one slot an element
    llvm::MDNode* scope = nullptr;             // alias.scope list of this buffer alone
    llvm::MDNode* others = nullptr;            // noalias list: every other buffer
  };
  std::unordered_map<const kir::Buffer*, Place> places_;
  // Of the region at work: the first matrix register of each buffer.
  std::unordered_map<const kir::Buffer*, int64_t> tile_numbers_;
  llvm::AllocaInst* tile_memory_ = nullptr;  // where configurations are loaded from

  struct Symbol {
    llvm::Value* value = nullptr;  // i64
    int depth = 0;                 // loops around its definition
    int64_t divisor = 1;
    bool nonnegative = false;
  };
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, llvm::Value*> locals_;
  int depth_ = 0;

  // Dims and addresses computed so far, valid where the current block dominates: a nested block
  // undoes its additions when it ends.
  struct AddressKey {
    const kir::Buffer* buffer;
    ir::Dim index;
    friend bool operator<(const AddressKey& a, const AddressKey& b) {
      return a.buffer != b.buffer ? a.buffer < b.buffer : a.index < b.index;
    }
  };
  std::map<ir::Dim, llvm::Value*> dims_;
  std::map<AddressKey, llvm::Value*> addresses_;
  std::vector<ir::Dim> new_dims_;
  std::vector<AddressKey> new_addresses_;

  std::unordered_map<const kir::Value*, llvm::Value*> memo_;
  std::vector<kir::ValueRef> made_;  // for the memo: its keys must stay
};

}  // namespace nimble::codegen
