#include "tuner/service/machines.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tuner/measure/statistics.h"

namespace nimble::tuner::plan {
namespace {

constexpr size_t kLatest = 24;       // cases of a machine that are remembered
constexpr int64_t kJudgedEvery = 4;  // cases of a machine
constexpr size_t kEnough = 4;        // comparable cases that a verdict takes
constexpr size_t kLeastOthers = 2;   // machines, or nobody can tell which of two is right
// Beyond so many times what is usual among the others, and beyond this at all.
constexpr double kBeyondNoise = 4;
constexpr double kLeastApart = 0.05;

double median(std::vector<double> x) {
  return x.empty() ? 0 : median_of(std::move(x));
}

}  // namespace

void Machines::saw(const Machine& machine, const std::string& place, double first_ns,
                   double second_ns, double busy_s) {
  Record& r = records_[machine.uuid];
  r.hardware = machine.hardware;
  ++r.cases;
  r.busy_s += busy_s;
  if (first_ns > 0) {
    r.latest.push_back({place, first_ns, second_ns > 0 ? second_ns / first_ns : 0});
    if (r.latest.size() > kLatest) r.latest.erase(r.latest.begin());
  }
  // A verdict rests on medians, which one case more hardly moves.
  if (r.cases % kJudgedEvery == 0) judge(machine.hardware);
}

// One at a time, that which is furthest off first: who disagrees makes others seem to, as long as
// it counts among those that they are compared with.
void Machines::judge(const db::Hash& hardware) {
  const Places places = places_of(hardware);
  std::vector<db::Uuid> kind;
  for (const auto& [uuid, r] : records_)
    if (r.hardware == hardware) kind.push_back(uuid);
  for (const db::Uuid& uuid : kind)
    if (const Verdict v = compare(uuid, places); v.known && v.status.apart < v.allowed / 2)
      aside_.erase(uuid);
  for (;;) {
    const db::Uuid* worst = nullptr;
    double most = 1;
    for (const db::Uuid& uuid : kind) {
      const Verdict v = compare(uuid, places);
      verdicts_[uuid] = v.status;
      if (!v.known || aside_.contains(uuid) || v.status.apart <= most * v.allowed) continue;
      worst = &uuid;
      most = v.status.apart / v.allowed;
    }
    if (!worst) return;
    aside_.insert(*worst);
  }
}

// Each machine's median at each place, so that one that did many cases counts once.
Machines::Places Machines::places_of(const db::Hash& hardware) const {
  Places at;
  for (const auto& [uuid, r] : records_) {
    if (r.hardware != hardware) continue;
    std::map<std::string, std::vector<double>> ratios, times;
    for (const Seen& s : r.latest) {
      if (s.ratio > 0) ratios[s.place].push_back(std::log(s.ratio));
      times[s.place].push_back(std::log(s.first_ns));
    }
    for (const auto& [place, x] : ratios) at[place][uuid] = {median(x), median(times[place])};
  }
  return at;
}

Machines::Verdict Machines::compare(const db::Uuid& uuid, const Places& places) const {
  std::vector<double> apart, usual, slower;
  std::set<db::Uuid> others;
  for (const auto& [place, machines] : places) {
    const auto own = machines.find(uuid);
    if (own == machines.end()) continue;
    std::vector<double> ratio, time;
    for (const auto& [other, x] : machines) {
      if (other == uuid || aside_.contains(other)) continue;
      others.insert(other);
      ratio.push_back(x.first);
      time.push_back(x.second);
    }
    if (ratio.size() < kLeastOthers) continue;
    const double middle = median(ratio);
    apart.push_back(own->second.first - middle);
    for (double x : ratio) usual.push_back(std::fabs(x - middle));
    slower.push_back(own->second.second - median(time));
  }
  Verdict v;
  // Signed: an error to one side is another machine, one to both sides is noise.
  v.status.apart = std::fabs(median(apart));
  v.status.noise = median(usual);
  v.status.slowness = std::exp(median(slower));
  v.allowed = std::max(kLeastApart, kBeyondNoise * v.status.noise);
  v.known =
      apart.size() >= kEnough ||
      (!apart.empty() && records_.at(uuid).latest.size() >= kEnough && others.size() >= kEnough);
  return v;
}

std::vector<MachineStatus> Machines::status() const {
  std::vector<MachineStatus> out;
  for (const auto& [uuid, r] : records_) {
    MachineStatus s;
    if (const auto it = verdicts_.find(uuid); it != verdicts_.end()) s = it->second;
    s.uuid = uuid;
    s.hardware = r.hardware;
    s.cases = r.cases;
    s.busy_s = r.busy_s;
    s.set_aside = aside_.contains(uuid);
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace nimble::tuner::plan
