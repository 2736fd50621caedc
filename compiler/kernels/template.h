// A template turns (workload, configuration, target) into kernel IR. Its name is in the database; a
// row of Templates.def registers it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"
#include "compiler/kernels/workload.h"

namespace nimble::kernels {

using KnobValue = std::variant<int64_t, std::string>;
struct Knob {
  std::string name;
  std::vector<KnobValue> choices;  // in an order that makes neighbours similar
  // Its value is the rows of a tile: how much is left over of an extent matters for the time.
  bool tile = false;
};
using Config = std::map<std::string, KnobValue>;
std::string choices_text(const Knob& k);           // for people: "1, 2, 4"
std::string to_json(const Config& c);              // canonical: sorted keys, no spaces
Config config_from_json(const std::string& text);  // nimble::Error on bad text
int64_t knob_int(const Config& c, const std::string& name);
const std::string& knob_text(const Config& c, const std::string& name);

// One configuration's kernels: several when tails are resolved by residue (paper, 3.5).
struct Lowered {
  std::vector<kir::Function> functions;  // each with the workload's contract
  exec::DispatchTree tails;              // leaves index `functions`; total
  // The most threads that do it, and shares that it is cut into; 0: any number.
  int max_threads = 0;
  // Whether more shares than threads cost next to nothing, as long as none waits for another. Not
  // where each share converts all weights for itself, or counts on what its thread's cache holds.
  bool divisible = true;
};

class Template {
 public:
  virtual ~Template() = default;
  virtual std::string_view name() const = 0;
  // Whether its kernels are a GPU's: others serve CPUs alone.
  virtual bool for_gpu() const { return false; }
  // Whether results may be parts of in/out arguments (the trait in_out).
  virtual bool writes_parts() const { return false; }
  virtual bool accepts(const Workload& w, const TargetInfo& t) const = 0;
  // The search space: the product of the choices, less what `valid` rejects.
  virtual std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const = 0;
  virtual bool valid(const Workload& w, const Config& c, const TargetInfo& t) const = 0;
  // By rule, without measuring; within 1.5x of the tuned one at every shape.
  virtual Config default_config(const Workload& w, const TargetInfo& t) const = 0;
  // `name` prefixes the functions' native symbols.
  virtual Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                        const std::string& name) const = 0;
  // Whether it serves a workload on a machine of its kind or another.
  bool serves(const Workload& w, const TargetInfo& t) const {
    return for_gpu() == t.is_gpu() && (!w.writes_part() || writes_parts()) && accepts(w, t);
  }
};

// In order of preference; the first that accepts a workload serves it.
const std::vector<const Template*>& all_templates();
const Template* find_template(std::string_view name);                  // null if there is none
const Template* template_for(const Workload& w, const TargetInfo& t);  // null: nothing serves it

}  // namespace nimble::kernels
