#include "db/store/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "vm/base/error.h"

namespace nimble::db {
namespace {

// What may be compared: times of one thing under one policy.
using Place = std::tuple<Hash, Hash, Hash, int64_t>;  // workload, shape, policy, threads
using Times = std::vector<Measured>;

// The newest time of each configuration in each role and session.
std::map<Place, Times> times_of(Store& store, const MeasuredQuery& query) {
  std::map<Place, std::map<std::tuple<Role, Hash, Hash, Uuid>, Measured>> newest;
  store.measured(query, [&](const Measured& m) {
    auto& place = newest[{m.workload, m.shape, m.policy, m.threads}];
    auto [at, is_new] = place.try_emplace({m.role, m.config, m.code_hash, m.host_state}, m);
    const auto later = [](const Measured& x) { return std::tie(x.created_at, x.measurement); };
    if (!is_new && later(at->second) < later(m)) at->second = m;
    return true;
  });
  std::map<Place, Times> out;
  for (auto& [place, rows] : newest)
    for (auto& [key, m] : rows) out[place].push_back(std::move(m));
  return out;
}

// The fastest of a role, by the newest time of each configuration; null if nothing has the role.
const Measured* best_of(const Times& times, Role role) {
  std::map<std::pair<Hash, std::string>, const Measured*> newest;
  for (const Measured& m : times) {
    if (m.role != role) continue;
    const Measured*& kept = newest[{m.config, m.code_hash}];
    if (!kept ||
        std::tie(kept->created_at, kept->measurement) < std::tie(m.created_at, m.measurement))
      kept = &m;
  }
  const Measured* best = nullptr;
  for (const auto& [config, m] : newest)
    if (!best || m->median_ns < best->median_ns) best = m;
  return best;
}

// A time on the logarithmic scale, with the squares of its half widths.
struct Log {
  double value = 0, below = 0, above = 0;
};
double square(double x) {
  return x * x;
}
Log log_of(const Measured& m) {
  return {std::log(m.median_ns), square(std::log(m.median_ns / m.ci_low_ns)),
          square(std::log(m.ci_high_ns / m.median_ns))};
}
Log difference(const Log& x, const Log& y) {
  return {x.value - y.value, x.below + y.above, x.above + y.below};
}
Log mean_of(const std::vector<Log>& all) {
  Log sum;
  for (const Log& x : all) sum = {sum.value + x.value, sum.below + x.below, sum.above + x.above};
  const auto n = static_cast<double>(all.size());
  return {sum.value / n, sum.below / square(n), sum.above / square(n)};
}
Ratio ratio_of(const Log& x) {
  return {std::exp(x.value), std::exp(x.value - std::sqrt(x.below)),
          std::exp(x.value + std::sqrt(x.above))};
}

// What each kernel that both sides timed beside their best took longer there.
std::vector<Log> anchors_of(const Times& a, const Measured& best_a, const Times& b,
                            const Measured& best_b) {
  const auto beside = [](const Times& times, const Measured& best) {
    std::map<std::string, const Measured*> out;
    for (const Measured& m : times)
      if (m.host_state == best.host_state) out.emplace(m.code_hash, &m);
    return out;
  };
  const auto of_a = beside(a, best_a), of_b = beside(b, best_b);
  std::vector<Log> out;
  for (const auto& [code, m] : of_a) {
    const auto twin = of_b.find(code);
    if (twin != of_b.end() && code != best_a.code_hash && code != best_b.code_hash)
      out.push_back(difference(log_of(*twin->second), log_of(*m)));
  }
  return out;
}

}  // namespace

std::string_view name_of(Verdict v) {
  switch (v) {
    case Verdict::kSame:
      return "same";
    case Verdict::kFaster:
      return "faster";
    case Verdict::kSlower:
      return "slower";
  }
  NIMBLE_UNREACHABLE("verdict {}", static_cast<int>(v));
}

CampaignDiff compare(Store& store, const MeasuredQuery& a, const MeasuredQuery& b,
                     double smallest) {
  const std::map<Place, Times> of_a = times_of(store, a), of_b = times_of(store, b);
  CampaignDiff out;
  std::vector<Log> all;
  for (const auto& [place, times_a] : of_a) {
    const auto twin = of_b.find(place);
    if (twin == of_b.end()) continue;
    const Times& times_b = twin->second;
    const Measured *best_a = nullptr, *best_b = nullptr;
    for (const Role role : {Role::kVerify, Role::kCross, Role::kSearch, Role::kBaseline}) {
      best_a = best_of(times_a, role);
      best_b = best_of(times_b, role);
      if (best_a && best_b) break;
    }
    if (!best_a || !best_b) continue;
    Compared row{*best_a, *best_b, {}, false, 1, 0, Verdict::kSame};
    Log change = difference(log_of(*best_b), log_of(*best_a));
    row.side_by_side = best_a->host_state == best_b->host_state;
    if (best_a->hardware == best_b->hardware && !row.side_by_side) {
      const std::vector<Log> anchors = anchors_of(times_a, *best_a, times_b, *best_b);
      row.anchors = static_cast<int64_t>(anchors.size());
      if (!anchors.empty()) {
        const Log drift = mean_of(anchors);
        row.drift = std::exp(drift.value);
        change = difference(change, drift);
      }
    }
    row.ratio = ratio_of(change);
    if (row.ratio.low > 1 + smallest) row.verdict = Verdict::kSlower;
    if (row.ratio.high < 1 / (1 + smallest)) row.verdict = Verdict::kFaster;
    out.slower += row.verdict == Verdict::kSlower;
    out.faster += row.verdict == Verdict::kFaster;
    all.push_back(change);
    out.rows.push_back(std::move(row));
  }
  if (!all.empty()) out.mean = ratio_of(mean_of(all));
  std::stable_sort(out.rows.begin(), out.rows.end(), [](const Compared& x, const Compared& y) {
    return x.ratio.value > y.ratio.value;
  });
  return out;
}

}  // namespace nimble::db
