// What a configuration needs beyond the harness: schedules with a kernel per residue.
#include "compiler/emit/test/harness.h"

namespace nimble::emit::testing {
namespace {

class FullResidues : public TunedSource {
 public:
  Lookup find(const kernels::Workload& w, const kernels::TargetInfo& target) override {
    Lookup out;
    const kernels::Template* t = kernels::template_for(w, target);
    if (!t) return out;
    kernels::Config config = t->default_config(w, target);
    auto tails = config.find("tails");
    if (tails == config.end()) return out;
    tails->second = std::string("residue");
    // As few rows in a tile as the template allows: all residues, but few kernels to compile.
    for (const kernels::Knob& k : t->knobs(w, target)) {
      if (k.name != "rows") continue;
      for (const kernels::KnobValue& rows : k.choices) {
        config["rows"] = rows;
        if (std::get<int64_t>(rows) > 1 && t->valid(w, config, target)) break;
      }
    }
    if (!t->valid(w, config, target)) return out;
    TunedChoice choice;
    choice.candidates = {{std::string(t->name()), config, {}}};
    choice.tree = exec::DispatchTree::single(0);
    out.outcome = Lookup::Outcome::kTuned;
    out.choice = std::move(choice);
    return out;
  }
  std::string identity() const override { return "a kernel per residue"; }
};

}  // namespace

TunedSource& full_residues() {
  static FullResidues source;
  return source;
}

}  // namespace nimble::emit::testing
