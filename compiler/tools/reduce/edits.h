// The table of edits that `nimble reduce` tries. An edit finds its sites in a module, in order of
// appearance, and applies itself to those with numbers in a range; it need not know whether what
// comes out is well formed, since every candidate is inferred and tested. One function plus one
// row of edits.cpp adds an edit.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "compiler/tools/reduce/module_copy.h"

namespace nimble::reduce {

// The sites that an edit is to be applied to, counted as it meets them.
class Sites {
 public:
  Sites(size_t begin, size_t end) : begin_(begin), end_(end) {}
  // To be called once per site.
  bool wants() {
    const size_t i = count_++;
    return i >= begin_ && i < end_;
  }
  size_t count() const { return count_; }

 private:
  size_t begin_, end_, count_ = 0;
};

struct Edit {
  const char* name;
  void (*apply)(Copy& copy, Sites& sites);
};
// In the order in which they pay: what removes much comes first.
const std::vector<Edit>& all_edits();

// A value of a type that needs nothing that is computed: a parameter in scope, a small constant.
std::optional<ir::Atom> stand_in(const Scope& scope, const ir::Type& type);

// The families.
void drop_functions(Copy&, Sites&);
void cut_off(Copy&, Sites&);
void drop_bindings(Copy&, Sites&);
void drop_unused(Copy&, Sites&);
void keep_then(Copy&, Sites&);
void keep_else(Copy&, Sites&);
void drop_cases(Copy&, Sites&);
void keep_last_case(Copy&, Sites&);
void return_field(Copy&, Sites&);
void inline_calls(Copy&, Sites&);
void inline_groups(Copy&, Sites&);
void drop_parameters(Copy&, Sites&);
void forward_operands(Copy&, Sites&);
void simplify_operands(Copy&, Sites&);
void drop_operands(Copy&, Sites&);
void drop_attributes(Copy&, Sites&);
void drop_names(Copy&, Sites&);
void drop_data_types(Copy&, Sites&);
void fix_symbols_at_one(Copy&, Sites&);
void fix_symbols_at_two(Copy&, Sites&);
void shrink_extents_to_one(Copy&, Sites&);
void shrink_extents_to_two(Copy&, Sites&);
void halve_extents(Copy&, Sites&);
void zero_constants(Copy&, Sites&);

}  // namespace nimble::reduce
