#include "tuner/space/space.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/kernels/vendor.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr int kDraws = 1000;

size_t index_of(const kernels::Knob& k, const kernels::Config& c) {
  const auto it = c.find(k.name);
  if (it == c.end()) return k.choices.size();
  return static_cast<size_t>(std::find(k.choices.begin(), k.choices.end(), it->second) -
                             k.choices.begin());
}

size_t below(Random& random, size_t n) {
  return std::uniform_int_distribution<size_t>(0, n - 1)(random);
}

}  // namespace

Space::Space(const kernels::Workload& w, const kernels::TargetInfo& t) : workload_(w), target_(t) {
  for (const kernels::Template* schedule : kernels::all_templates())
    if (schedule->serves(w, t)) parts_.push_back({schedule, schedule->knobs(w, t)});
  if (parts_.empty())
    throw Error(Status::kUnsupported, "workload " + w.anchor,
                fmt::format("no kernel template serves it on {}", t.level),
                "nimble check lists what is served");
  if (const auto call = kernels::vendor_call_of(w, t, &no_vendor_)) vendor_ = call->routine;
}

std::optional<tuned::Candidate> Space::vendor_candidate() const {
  if (vendor_.empty()) return std::nullopt;
  return tuned::Candidate{tuned::kVendorTemplate, {}, vendor_};
}

void Space::leave_out_vendor(const std::string& why) {
  vendor_.clear();
  no_vendor_ = why;
}

int64_t Space::size() const {
  int64_t total = vendor_.empty() ? 0 : 1;
  for (const Part& p : parts_) {
    int64_t product = 1;
    for (const kernels::Knob& k : p.knobs) product *= static_cast<int64_t>(k.choices.size());
    total += product;
  }
  return total;
}

const Space::Part* Space::part_of(const tuned::Candidate& c) const {
  for (const Part& p : parts_)
    if (p.schedule->name() == c.template_name) return &p;
  return nullptr;
}

bool Space::valid(const Part& p, const kernels::Config& c) const {
  return p.schedule->valid(workload_, c, target_);
}

bool Space::contains(const tuned::Candidate& c) const {
  if (!c.vendor.empty()) return c.vendor == vendor_;
  const Part* p = part_of(c);
  if (!p || c.config.size() != p->knobs.size()) return false;
  for (const kernels::Knob& k : p->knobs)
    if (index_of(k, c.config) == k.choices.size()) return false;
  return valid(*p, c.config);
}

tuned::Candidate Space::default_candidate() const {
  const kernels::Template* t = parts_[0].schedule;
  return {std::string(t->name()), t->default_config(workload_, target_), {}};
}

std::vector<tuned::Candidate> Space::enumerate(int64_t limit) const {
  std::vector<tuned::Candidate> out;
  // Most products are far beyond any limit; do not walk those.
  if (size() > limit * 16) return {};
  for (const Part& p : parts_) {
    std::vector<size_t> at(p.knobs.size(), 0);
    for (bool more = true; more;) {
      tuned::Candidate c{std::string(p.schedule->name()), {}, {}};
      for (size_t k = 0; k < at.size(); ++k) c.config[p.knobs[k].name] = p.knobs[k].choices[at[k]];
      if (valid(p, c.config)) out.push_back(std::move(c));
      more = false;
      for (size_t k = 0; k < at.size() && !more; ++k) {
        if (++at[k] < p.knobs[k].choices.size())
          more = true;
        else
          at[k] = 0;
      }
    }
  }
  if (!vendor_.empty()) out.push_back({tuned::kVendorTemplate, {}, vendor_});
  if (static_cast<int64_t>(out.size()) > limit) return {};
  return out;
}

std::optional<tuned::Candidate> Space::sample(Random& random) const {
  for (int draw = 0; draw < kDraws; ++draw) {
    const Part& p = parts_[below(random, parts_.size())];
    tuned::Candidate c{std::string(p.schedule->name()), {}, {}};
    for (const kernels::Knob& k : p.knobs)
      c.config[k.name] = k.choices[below(random, k.choices.size())];
    if (valid(p, c.config)) return c;
  }
  return std::nullopt;
}

std::optional<tuned::Candidate> Space::mutate(const tuned::Candidate& from, Random& random,
                                              int changes) const {
  const Part* p = part_of(from);
  if (!p) return sample(random);
  std::vector<const kernels::Knob*> movable;
  for (const kernels::Knob& k : p->knobs)
    if (k.choices.size() > 1) movable.push_back(&k);
  if (movable.empty()) return std::nullopt;
  for (int draw = 0; draw < kDraws; ++draw) {
    tuned::Candidate c = from;
    const auto count = 1 + below(random, static_cast<size_t>(std::max(1, changes)));
    for (size_t i = 0; i < count; ++i) {
      const kernels::Knob& k = *movable[below(random, movable.size())];
      const size_t now = index_of(k, c.config);
      size_t next = below(random, k.choices.size());
      // Two moves of three are one step.
      if (now < k.choices.size() && below(random, 3) < 2)
        next = now == 0                      ? 1
               : now + 1 == k.choices.size() ? now - 1
               : below(random, 2) == 0       ? now - 1
                                             : now + 1;
      c.config[k.name] = k.choices[next];
    }
    if (c.config != from.config && valid(*p, c.config)) return c;
  }
  return std::nullopt;
}

std::optional<tuned::Candidate> Space::cross(const tuned::Candidate& a, const tuned::Candidate& b,
                                             Random& random) const {
  const Part* p = part_of(a);
  if (!p || a.template_name != b.template_name) return std::nullopt;
  tuned::Candidate c = a;
  for (const kernels::Knob& k : p->knobs)
    if (below(random, 2) == 0 && b.config.contains(k.name)) c.config[k.name] = b.config.at(k.name);
  if (!valid(*p, c.config)) return std::nullopt;
  return c;
}

std::vector<tuned::Candidate> Space::neighbours(const tuned::Candidate& from) const {
  std::vector<tuned::Candidate> out;
  const Part* p = part_of(from);
  if (!p) return out;
  for (const kernels::Knob& k : p->knobs) {
    const size_t now = index_of(k, from.config);
    for (size_t next : {now - 1, now + 1}) {
      if (now >= k.choices.size() || next >= k.choices.size()) continue;
      tuned::Candidate c = from;
      c.config[k.name] = k.choices[next];
      if (valid(*p, c.config)) out.push_back(std::move(c));
    }
  }
  return out;
}

std::vector<double> Space::coordinates(const tuned::Candidate& c) const {
  std::vector<double> out;
  for (const Part& p : parts_) {
    const bool mine = c.vendor.empty() && p.schedule->name() == c.template_name;
    out.push_back(mine ? 1 : 0);
    for (const kernels::Knob& k : p.knobs) {
      const double steps = std::max<double>(1, static_cast<double>(k.choices.size()) - 1);
      out.push_back(mine ? static_cast<double>(index_of(k, c.config)) / steps : -1);
    }
  }
  return out;
}

std::string text_of(const tuned::Candidate& c) {
  return c.template_name + config_json(c);
}

std::string config_json(const tuned::Candidate& c) {
  if (!c.vendor.empty()) return nlohmann::json{{"routine", c.vendor}}.dump();
  return kernels::to_json(c.config);
}

tuned::Candidate candidate_of(const std::string& template_name, const std::string& json) {
  if (template_name != tuned::kVendorTemplate)
    return {template_name, kernels::config_from_json(json), {}};
  try {
    return {template_name, {}, nlohmann::json::parse(json).at("routine").get<std::string>()};
  } catch (const nlohmann::json::exception& e) {
    throw Error(Status::kCorrupt, "configuration of a vendor's routine", e.what(),
                "tune the workload again");
  }
}

}  // namespace nimble::tuner
