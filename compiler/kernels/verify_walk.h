// The verifier's walk over a kernel (verify.cpp), whose rules stand by subject: names, buffers and
// values in verify.cpp, statements of every function and of a CPU's in verify_statements.cpp, and
// what is a GPU's in verify_launch.cpp. A rule that is broken throws a Fault (verify_fault.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/spread.h"
#include "compiler/kernels/verify_fault.h"

namespace nimble::kir {

class Verification {
 public:
  explicit Verification(const Function& f) : f_(f), facts_(f.facts) { spreads_.facts = &facts_; }
  void run();  // once

 private:
  // ---------------------------------------------------------------- verify.cpp

  void header();
  void add_buffer(const BufferRef& b, bool right_scope);
  bool is_block_symbol(const std::string& s) const;
  void check_dim(const Dim& d, const std::string& where);
  void check_buffer(const BufferRef& b, bool write);
  void check_register(const Buffer& b, const Dim& index);
  // The number of one register of a buffer.
  void check_number(const Buffer& b, const Dim& index);
  void check_memory(const BufferRef& b, const Dim& index, const Dim& stride,
                    const std::optional<Dim>& valid, bool write);
  void value(const ValueRef& ref);
  void condition(const Condition& c);

  // ---------------------------------------------------------------- verify_statements.cpp

  void statement(const Stmt& s);
  // Names bound inside a nested block end with it.
  void scoped(const StmtRef& s);
  void loop(const Stmt& s);
  // A failed check leaves the function, and then does not meet the others.
  void check(Spread s) const;
  void tiles(const Stmt& s);
  void tile(const TileRef& t, bool write);
  void tile_dot(const Stmt& s);

  // ---------------------------------------------------------------- verify_launch.cpp

  // What is a GPU's alone, or a CPU's.
  void launch(const Launch& l);
  // Who meets somewhere in the function, and where its signals are.
  void find_meetings(const Stmt& s);
  void gpu_only(std::string_view what) const;
  // Whoever meets within a warp needs all its lanes.
  void warp_meets(std::string_view what) const;
  // The same of a group.
  void group_meets(std::string_view what) const;
  // `count` neighbours of 32 bits each.
  void warp_registers(const TileRef& t, int count, bool write, std::string_view of);
  void warp_dot(const Stmt& s);
  void warp_load(const Stmt& s);
  void group_dot(const Stmt& s);
  void aligned(const Buffer& b, const Dim& index, int64_t bytes, const char* what) const;
  void async_copy(const Stmt& s);
  void tensor_map(const TensorMapRef& m);
  void signal(const Stmt& s);
  void tensor_copy(const Stmt& s);

  struct Shaped {
    Dim rows;
    bool written = false, read = false;
  };

  const Function& f_;
  ir::DimContext facts_;
  std::set<std::string> symbols_, names_, unrolled_;
  Spreads spreads_;
  Spread divergence_ = Spread::kBlock;  // how far control is the same
  std::map<std::string, ValueRef> locals_;
  std::unordered_set<const Buffer*> buffers_;
  std::unordered_set<const Value*> seen_;
  std::map<const Buffer*, Shaped> shaped_;  // within a region
  std::set<const Buffer*> signals_;
  bool in_thread_loop_ = false, has_barrier_ = false, warps_meet_ = false, region_ = false;
  bool has_steps_ = false;
  bool rare_ = false;  // within a value that may not be computed
};

}  // namespace nimble::kir
