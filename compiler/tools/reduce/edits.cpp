#include "compiler/tools/reduce/edits.h"

namespace nimble::reduce {

const std::vector<Edit>& all_edits() {
  static const std::vector<Edit> kAll = {
      {"drop functions", drop_functions},
      {"cut off the end of the entry", cut_off},
      {"drop bindings", drop_bindings},
      {"drop what nothing uses", drop_unused},
      {"keep a condition's first branch", keep_then},
      {"keep a condition's second branch", keep_else},
      {"drop cases of a match", drop_cases},
      {"keep a match's last case", keep_last_case},
      {"return one field of a tuple", return_field},
      {"inline calls", inline_calls},
      {"inline groups", inline_groups},
      {"drop parameters", drop_parameters},
      {"replace a binding by its operand", forward_operands},
      {"replace operands by parameters and constants", simplify_operands},
      {"drop operands", drop_operands},
      {"drop attributes", drop_attributes},
      {"drop data types and constructors", drop_data_types},
      {"fix symbols at 1", fix_symbols_at_one},
      {"fix symbols at 2", fix_symbols_at_two},
      {"shrink extents to 1", shrink_extents_to_one},
      {"shrink extents to 2", shrink_extents_to_two},
      {"halve extents", halve_extents},
      {"zero constants", zero_constants},
      {"drop names", drop_names},
  };
  return kAll;
}

}  // namespace nimble::reduce
