// The symbols of a kernel's contract: s0, s1, … for those of the group that it computes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::kernels {

class ContractSymbols {
 public:
  // Learns what the parameters' dims bind; `scalar(i)`: parameter i is an unboxed integer.
  void bind(const std::vector<ir::Type>& parameters, const std::set<int64_t>& scalars);

  ir::Dim rewrite(const ir::Dim& d);
  ir::Type rewrite(const ir::Type& t);
  // Attributes of `e`, in which its offsets are no extents.
  ir::Attrs rewrite(const ir::Expr& e, ir::Attrs attrs);

  // A new symbol of the contract.
  std::string next();

  const std::vector<std::string>& names() const { return names_; }
  // Of them, those whose values may be negative.
  const std::vector<std::string>& offsets() const { return offsets_; }
  const std::vector<std::string>& scalar_symbols() const { return scalar_symbols_; }
  const std::vector<std::pair<ir::Dim, std::string>>& extra() const { return extra_; }

 private:
  // A value that parameters do not bind is passed whole, so that what its symbols are (elements of
  // tensors, perhaps negative) is nobody's concern here.
  ir::Dim rewrite_offset(const ir::Dim& d);

  std::vector<std::string> names_, scalar_symbols_, offsets_;
  std::map<ir::Dim, ir::Dim> passed_;
  std::map<std::string, ir::Dim> renamed_, solved_;
  std::map<ir::Dim, ir::Dim> whole_;
  std::vector<std::pair<ir::Dim, std::string>> compound_;
  std::vector<std::pair<ir::Dim, std::string>> extra_;
};

}  // namespace nimble::kernels
