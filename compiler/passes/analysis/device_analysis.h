// On which device each value of a module lies and each kernel runs, and where that takes copies.
// See place_devices.cpp for the rules.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/passes/analysis/device_domains.h"

namespace nimble::passes {

// A block and where it stands in the one around it.
struct BlockScope {
  const ir::Block* block = nullptr;
  const BlockScope* outer = nullptr;  // null for a function's body
  size_t index = 0;                   // of the binding in outer->block that holds this block
  std::string function;
};

// One read of a value: operand `operand` of the expression that `var` is bound to, or the result of
// a block (var null).
struct DeviceUse {
  const ir::Var* var = nullptr;
  size_t operand = 0;
  const BlockScope* scope = nullptr;
  size_t index = 0;  // of the binding in the scope's block; its size for the result
  ir::Atom atom;
  Place at, wanted;  // where the value is, where it must be; `at` of a constant is empty
  ir::Location location;
};

class DeviceAnalysis {
 public:
  // `target`: where kernels go that nothing constrains. Error(kInvalidArgument) for a device that
  // does not exist.
  DeviceAnalysis(const ir::Module& m, int32_t target);
  DeviceAnalysis(const DeviceAnalysis&) = delete;
  DeviceAnalysis& operator=(const DeviceAnalysis&) = delete;

  const std::vector<DeviceUse>& uses() const { return uses_; }
  // The device of the group or write_row that a variable is bound to.
  int32_t kernel_device(const ir::Var* v) const;
  const Place& place(const ir::Var* v) const { return places_.at(v); }
  const Place& result(const std::string& function) const { return results_.at(function); }
  std::vector<int32_t> devices(const Place& p) const { return devices_of(p, &domains_); }
  bool is_entry(const std::string& function) const;

 private:
  void declare(const std::string& name, const ir::Function& f);
  void function(const std::string& name, const ir::Function& f);
  void block(const ir::Block& b, const BlockScope* scope);
  void expression(const ir::Binding& b);
  void call(const ir::Binding& b);
  void group(const ir::Binding& b);
  void operation(const ir::Binding& b);
  void annotation(const ir::Binding& b);
  void match(const ir::Binding& b);
  void pattern(const ir::Pattern& p, const Place& at);
  const BlockScope* nested(const ir::Block& b);

  void use(const ir::Expr& e, size_t operand, Place wanted);
  void use_on_host(const ir::Expr& e, size_t operand);
  void result_use(const ir::Block& b, const BlockScope* scope, const Place& wanted,
                  const ir::Location& location);
  void define(const ir::Binding& b, Place p) { places_[b.var.get()] = std::move(p); }
  Place place_of(const ir::Atom& a) const;
  // The single domain of a data-type value or closure.
  Domain domain_of(const ir::Atom& a);
  // A function used as a value: all it takes and gives lies in one domain.
  void function_value(const std::string& name, size_t captured, Domain domain);
  // Of the binding in hand; `attrs`: those of its group, if it is one.
  Domain kernel(const ir::Attrs& attrs = {});
  void settle(int32_t target);

  const ir::Module& module_;
  const int32_t target_;
  mutable DeviceDomains domains_;
  std::unordered_map<const ir::Var*, Place> places_;
  std::map<std::string, Place> results_;
  std::unordered_map<const ir::Var*, Domain> kernels_;
  std::vector<std::unique_ptr<BlockScope>> scopes_;
  std::vector<DeviceUse> uses_;
  std::vector<size_t> first_;  // uses to unite before all others
  const ir::Function* function_ = nullptr;
  const ir::Var* var_ = nullptr;  // of the binding in hand
  const BlockScope* scope_ = nullptr;
  size_t index_ = 0;
};

// The device of an attribute `device`; Error(kInvalidArgument) if there is none of the number.
int32_t device_attribute(const ir::Attrs& attrs, const std::string& name,
                         const ir::Location& location, int32_t otherwise);

}  // namespace nimble::passes
