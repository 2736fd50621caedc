// A template turns (workload, configuration, target) into kernel IR. Its name and version are in
// the database; a row of Templates.def registers it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"
#include "vm/executable/dispatch.h"

namespace nimble::kernels {

// What one kernel computes, in canonical form, so that equal work has an equal key whatever the
// model calls its symbols: a fused group whose parameters are %p0, %p1, …, whose symbols are
// s0, s1, … in order of appearance, and whose leading axes are collapsed into one (b*n becomes
// s0) where every operation of the group works row by row.
//
// A parameter whose index is in the group's attribute "scalars" (ints) is an unboxed integer of
// the caller (a loop counter; its type in the group is Tensor[(), i64] or Tensor[(), bool]): in
// the contract it is a scalar argument that binds a symbol of its own, and its value in the
// group is that symbol.
struct Workload {
  ir::FunctionRef group;          // canonical; types inferred; a result may be a tuple
  std::string anchor;             // name of the operator that decides the template, e.g. "matmul"
  std::string key;                // canonical text of the group: the database compares it in full
  std::string anchor_key;         // the anchor with its types alone: explicit fallback
  exec::KernelContract contract;  // arguments: parameters of `group` in order, then results
  std::vector<bool> constant_parameter;  // from the call site: weights (stay in cache, packed)
  ir::DimContext facts;
  // Values (over the primitive's own symbols) that a caller passes as scalar arguments after the
  // parameters, since no parameter's dims bind them: `range(n)` has no other way to know n.
  std::vector<ir::Dim> extra_scalars;
};

// Canonicalises a primitive function. Two groups with equal keys are interchangeable.
Workload make_workload(const ir::Function& primitive, std::vector<bool> constant_parameter = {});

// "matmul+add+gelu": the operators of a group in order.
std::string source_of(const ir::Function& group);

// What must hold of the symbols for the group to be well typed and does not follow from its
// parameters' and results' types: programs over `symbols` that must not be 0 (requirements.cpp).
std::vector<exec::DimProgram> requirements_of(const ir::Function& group,
                                              const std::vector<std::string>& symbols);

using KnobValue = std::variant<int64_t, std::string>;
struct Knob {
  std::string name;
  std::vector<KnobValue> choices;  // in an order that makes neighbours similar
};
using Config = std::map<std::string, KnobValue>;
std::string to_json(const Config& c);              // canonical: sorted keys, no spaces
Config config_from_json(const std::string& text);  // nimble::Error on bad text
int64_t knob_int(const Config& c, const std::string& name);
const std::string& knob_text(const Config& c, const std::string& name);

// One configuration's kernels: several when tails are resolved by residue (paper, 3.5).
struct Lowered {
  std::vector<kir::Function> functions;  // each with the workload's contract
  exec::DispatchTree tails;              // leaves index `functions`; total
  int max_threads = 0;                   // 0: any number; 1: too little work to split
};

class Template {
 public:
  virtual ~Template() = default;
  virtual std::string_view name() const = 0;
  virtual int version() const = 0;  // raised when equal configurations give other code
  virtual bool accepts(const Workload& w, const TargetInfo& t) const = 0;
  // The search space: the product of the choices, less what `valid` rejects.
  virtual std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const = 0;
  virtual bool valid(const Workload& w, const Config& c, const TargetInfo& t) const = 0;
  // By rule, without measuring; within 1.5x of the tuned one at every shape.
  virtual Config default_config(const Workload& w, const TargetInfo& t) const = 0;
  // `name` prefixes the functions' native symbols.
  virtual Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                        const std::string& name) const = 0;
};

// In order of preference; the first that accepts a workload serves it.
const std::vector<const Template*>& all_templates();
const Template* find_template(std::string_view name);                  // null if there is none
const Template* template_for(const Workload& w, const TargetInfo& t);  // null: nothing serves it

}  // namespace nimble::kernels
