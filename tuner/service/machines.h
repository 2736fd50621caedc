// Which machines of a fleet may be compared with each other.
//
// Every case holds the same two anchors. Candidates are compared by their time over the first
// anchor's, so machines may be mixed as far as the second anchor's time over the first's is the
// same on all of one kind. One on which it differs from the others' by more than they differ among
// themselves (it throttles under some code, has other memory, shares its caches with a neighbour)
// would praise the wrong candidates: it is set aside until it agrees again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "db/store/records.h"

namespace nimble::tuner::plan {

struct Machine {
  db::Uuid uuid;
  db::Hash hardware;  // its kind
};

struct MachineStatus {
  db::Uuid uuid;
  db::Hash hardware;
  int64_t cases = 0;
  double busy_s = 0;
  // Median over its latest cases of how far the anchors' ratio is from the kind's, and what is
  // usual among the others; relative.
  double apart = 0, noise = 0;
  // The default schedule's time over the kind's median; 1: as fast as the others.
  double slowness = 1;
  bool set_aside = false;
};

class Machines {
 public:
  // Of a finished case; `place` names task and point. A time that is 0 is none.
  void saw(const Machine& machine, const std::string& place, double first_ns, double second_ns,
           double busy_s);
  bool set_aside(const db::Uuid& machine) const { return aside_.contains(machine); }
  std::vector<MachineStatus> status() const;

 private:
  struct Seen {
    std::string place;
    double first_ns = 0, ratio = 0;
  };
  struct Record {
    db::Hash hardware;
    std::vector<Seen> latest;
    int64_t cases = 0;
    double busy_s = 0;
  };
  struct Verdict {
    MachineStatus status;  // apart, noise, slowness
    double allowed = 0;    // how far apart it may be
    bool known = false;    // there is enough to tell
  };
  // place → machine → logarithms of the anchors' ratio and of the first one's time
  using Places = std::map<std::string, std::map<db::Uuid, std::pair<double, double>>>;

  // How far each machine of the kind is from the others, where enough is known.
  void judge(const db::Hash& hardware);
  Places places_of(const db::Hash& hardware) const;
  // With those that are not set aside.
  Verdict compare(const db::Uuid& machine, const Places& places) const;

  std::map<db::Uuid, Record> records_;
  std::map<db::Uuid, MachineStatus> verdicts_;
  std::set<db::Uuid> aside_;
};

}  // namespace nimble::tuner::plan
