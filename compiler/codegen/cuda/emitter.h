// Kernel IR to CUDA C++, one function at a time. See emit_statement.cpp for the method.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::codegen {

class CudaEmitter {
 public:
  // `f` without unrolled loops (kernels/unroll.h).
  CudaEmitter(const kir::Function& f, const kernels::TargetInfo& target);
  // The kernel alone; cuda_prelude() comes before it.
  std::string run();
  // Behind that: bytes of the widest access to an argument.
  int argument_alignment() const { return argument_alignment_; }

 private:
  // A value's lanes as C++ expressions without effect: one for each lane, or one for each 32 bits
  // of what they are in memory (lane 0 first, zeros behind the last one); at least one of the two.
  struct Parts {
    std::vector<std::string> lanes, words;
  };
  // An integer expression; `narrow`: an i32, else an i64.
  struct Integer {
    std::string text;
    bool narrow = true;
  };

  // emit_statement.cpp
  void signature();
  void place_buffers();
  void statement(const kir::Stmt& s);
  void block(const kir::Stmt& s);
  void loop(const kir::Stmt& s);
  void branch(const kir::Stmt& s);
  void check(const kir::Stmt& s);
  void set_register(const kir::Stmt& s);
  void let_index(const kir::Stmt& s);
  void prefetch(const kir::Stmt& s);
  void barrier(const kir::Stmt& s);
  std::string condition(const kir::Condition& c);
  [[noreturn]] void refuse(const std::string& what) const;

  // Text.
  void line(const std::string& text);
  std::string fresh();
  std::string bind(const std::string& type, const std::string& expression);
  std::string identifier(const std::string& name);
  template <class Body>
  void braces(const std::string& head, const Body& body) {
    line(head + "{");
    ++depth_;
    body();
    --depth_;
    line("}");
  }

  // emit_dim.cpp
  int64_t constant(const ir::Dim& d) const;
  Integer dim(const ir::Dim& d);
  Integer atom(const ir::Dim& d);
  Integer floor_div_mod(const ir::Dim& a, const ir::Dim& b, bool mod);
  std::string wide(const ir::Dim& d);  // as an i64
  Integer bound(const ir::Dim& d);     // in a variable of its own, unless it is a constant
  bool fits_i32(const ir::Dim& d) const;
  void bind_symbol(const std::string& name, const std::string& text, ir::SymbolFacts facts);

  // emit_memory.cpp
  // `bytes`: of each access through it.
  std::string pointer(const kir::Buffer& b, const ir::Dim& index, int bytes);
  Parts load(const kir::Value& v);
  void load_dense(const kir::Value& v, Parts& out);
  void load_chunk(const std::string& from, int bytes, const std::vector<std::string>& to);
  void store(const kir::Stmt& s);
  void store_chunk(const std::string& to, int bytes, const std::vector<std::string>& words,
                   size_t first);

  // emit_value.cpp
  void begin_statement();  // forgets the values of the one before
  const std::vector<std::string>& lanes(const kir::ValueRef& v);
  const std::vector<std::string>& words(const kir::ValueRef& v);
  Parts& value(const kir::ValueRef& v);
  Parts expression(const kir::Value& v);
  std::vector<std::string> lanes_of(const std::vector<std::string>& words, DType t, int lanes);
  std::vector<std::string> words_of(const std::vector<std::string>& lanes, DType t);
  std::string number(DType t, double v) const;
  std::string integer(DType t, int64_t v) const;
  Parts by_lane(const kir::Value& v);
  std::string unary(const kir::Value& v, const std::string& a) const;
  std::string binary(kir::BinaryOp op, DType t, const std::string& a, const std::string& c) const;
  std::string cast(DType from, DType to, const std::string& a) const;
  Parts cast_pairs(const kir::Value& v);
  Parts select_rare(const kir::Value& v);
  Parts bitcast(const kir::Value& v);
  Parts reduce(const kir::Value& v);
  Parts shuffle(const kir::Value& v);
  Parts in_others(kir::ValueRef v);

  // emit_warp.cpp
  void warp_dot(const kir::Stmt& s);
  void warp_load(const kir::Stmt& s);
  void async_copy(const kir::Stmt& s);
  std::string factor_word(const kir::Buffer& b, int64_t number) const;

  // emit_group.cpp
  void group_statement(const kir::Stmt& s);
  void group_dot(const kir::Stmt& s);
  std::string descriptor(const kir::GroupView& v);
  void find_group_sums(const kir::Stmt& s);
  std::string group_sums() const;

  // emit_signal.cpp
  void signal_statement(const kir::Stmt& s);
  void tensor_copy(const kir::Stmt& s);

  // A buffer's element as registers: its lanes, or its words if lanes are narrower than these.
  static bool in_words(const kir::Buffer& b);
  static int registers_of(const kir::Buffer& b);
  std::string register_name(const kir::Buffer& b, int64_t element, int part) const;

  const kir::Function& f_;
  const kernels::TargetInfo& target_;
  ir::DimContext facts_;
  std::string text_;
  int depth_ = 0;
  int next_ = 0;
  int argument_alignment_ = 1;

  std::map<std::string, Integer> symbols_;
  std::map<std::string, Parts> locals_;
  std::unordered_map<const kir::Buffer*, std::string> places_;
  std::unordered_map<const kir::TensorMap*, std::string> maps_;
  std::unordered_map<const kir::Value*, Parts> memo_;
  std::vector<kir::ValueRef> made_;             // for the memo: its keys must stay
  std::vector<const kir::Buffer*> group_sums_;  // registers into which groups multiply
};

// "f32"; f16 and bf16 are u16.
std::string_view cuda_type(DType t);
// In memory: a bool is a byte.
std::string_view cuda_memory_type(DType t);
// As instructions of PTX that multiply matrices name it.
std::string_view ptx_type(DType t);
// What stands before the kernels of a program.
std::string_view cuda_prelude();

}  // namespace nimble::codegen
