// Portable code under construction: regions, registers and index arithmetic.
//
// Placement. Code is appended to regions, one for each open block. An operation without effects
// goes to the outermost region in which its operands are known, so that loop invariants leave
// their loops here: nothing will move them later. Index arithmetic and value arithmetic are total
// functions, hence moving them out of a condition or of an empty loop changes nothing but time.
//
// Registers. A value's register is free again when its last reader has been placed: at the end
// of a statement for what was computed in the region at work, at the end of the region for what
// was moved outwards. What is moved outwards takes a fresh register: code that stands before it
// in an inner region runs after it, and would overwrite a register that was used there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "vm/executable/portable_kernel.h"

namespace nimble::codegen {

struct Placed {
  int64_t at = 0;    // slot or register
  size_t depth = 0;  // of the region from which on it is known
};

class PortableBuilder {
 public:
  PortableBuilder(const std::string& name, const std::vector<std::string>& symbols);

  // --- Regions
  size_t depth() const { return regions_.size() - 1; }
  void open(exec::PortableOp op, std::initializer_list<int64_t> operands);
  // Ends the region and appends it, with its head, to the one around.
  void close();
  void otherwise();  // the Else of the If that is open
  exec::PortableKernel finish();

  // --- Indices
  void bind(const std::string& symbol, Placed slot);
  void unbind(const std::string& symbol);
  Placed index(const ir::Dim& d);
  int64_t new_slot() { return kernel_.indices++; }
  struct Address {
    int64_t outer, inner, displacement;
  };
  // An element's index as the sum of what an outer region knows, the rest, and a constant.
  Address address(const ir::Dim& d);
  Placed condition(const kir::Condition& c);

  // --- Values
  // A register of the region at work, free at the end of the statement unless kept.
  int64_t temporary(exec::PortableValue type);
  int64_t fresh(exec::PortableValue type);  // for the whole kernel
  // The result of an operation without effects, placed as far outwards as `depth` allows.
  Placed pure(exec::PortableOp op, exec::PortableValue type, size_t depth,
              std::initializer_list<int64_t> operands);
  Placed constant(exec::PortableValue type, int64_t bits);
  void keep(int64_t value);  // until the region at work ends
  void end_statement();
  void emit(exec::PortableOp op, std::initializer_list<int64_t> operands) {
    emit_at(depth(), op, operands);
  }
  bool is_temporary(int64_t value) const;

  exec::PortableKernel& kernel() { return kernel_; }

 private:
  struct Region {
    exec::PortableInstruction head;
    std::vector<exec::PortableInstruction> code;
    std::map<ir::Dim, int64_t> dims;  // those whose slots this region computes
    std::vector<int64_t> kept;
    bool divided = false;
  };
  void emit_at(size_t depth, exec::PortableOp op, std::initializer_list<int64_t> operands);
  Placed product(const std::vector<ir::Dim>& atoms);
  Placed atom(const ir::Dim& d);
  size_t depth_of(const ir::Dim& d) const;
  Placed remember(const ir::Dim& d, Placed p);
  Placed binary(exec::PortableOp op, Placed a, Placed b);
  static int64_t key(exec::PortableValue v) { return static_cast<int>(v.dtype) * 256 + v.lanes; }

  std::string name_;
  exec::PortableKernel kernel_;
  std::vector<Region> regions_;
  std::map<std::string, Placed> symbols_;
  std::map<std::pair<int64_t, int64_t>, int64_t> constants_;
  std::map<int64_t, std::vector<int64_t>> free_;
  std::vector<int64_t> temporaries_;
};

}  // namespace nimble::codegen
