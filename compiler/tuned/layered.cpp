#include "compiler/tuned/layered.h"

#include "vm/base/error.h"

namespace nimble::tuned {
namespace {

// Somebody decided it here, or it was measured here with the code that is generated now, as far as
// the records tell.
bool decides(const Lookup& found) {
  using Outcome = Lookup::Outcome;
  if (!found.choice) return false;
  // A choice without a table is one of overrides alone.
  return (found.outcome == Outcome::kTuned && found.other_toolchain.empty()) ||
         found.outcome == Outcome::kUntuned ||
         found.choice->evidence.find("\"override\":true") != std::string::npos;
}

class LayeredSource : public TunedSource {
 public:
  explicit LayeredSource(std::vector<std::unique_ptr<TunedSource>> sources)
      : sources_(std::move(sources)) {
    NIMBLE_CHECK(!sources_.empty());
  }

  Lookup find(const kernels::Workload& w, const kernels::TargetInfo& target,
              const std::string& policy_class) override {
    std::optional<Lookup> usable, first;
    for (const auto& source : sources_) {
      Lookup found = source->find(w, target, policy_class);
      if (decides(found)) return found;
      if (found.choice && !usable)
        usable = std::move(found);
      else if (!first || (first->reason.empty() && !found.reason.empty()))
        first = std::move(found);  // what there is to say
    }
    return std::move(usable ? *usable : *first);
  }

  std::string identity() const override {
    std::string out;
    for (const auto& source : sources_) out += (out.empty() ? "" : ", ") + source->identity();
    return out;
  }

  // All have the records of one machine, as far as they have any.
  int64_t last_cache_bytes(const kernels::TargetInfo& target) const override {
    return sources_[0]->last_cache_bytes(target);
  }

 private:
  std::vector<std::unique_ptr<TunedSource>> sources_;
};

}  // namespace

std::unique_ptr<TunedSource> layered_source(std::vector<std::unique_ptr<TunedSource>> sources) {
  if (sources.size() == 1) return std::move(sources[0]);
  return std::make_unique<LayeredSource>(std::move(sources));
}

}  // namespace nimble::tuned
