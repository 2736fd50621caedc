// Rounds of a search: which candidates to measure next, given those measured so far.
//
// A round's proposals come from a pool of mutations and crossings of the best points known and of
// random points, less what was tried. The cost model ranks the pool. Most of the round takes the
// highest ranks, spread out: of near-twins the better one goes first and the other pays for its
// likeness. A share (epsilon) is random, so that what the model misjudges can still be found.
// Before the model has learnt anything the round is the default configuration, the seeds that the
// caller gives, the default's neighbours and random points; or, with a model that an earlier search
// left, what that one ranks highest in their place.
//
// A space may be searched at several shapes at once: a schedule is compiled once and timed at each,
// and timing is the cheaper half. What is best at one shape is rarely the best at another that is
// far away, so each shape in turn has a place in a round and among the points that mutations start
// from. The model learns from all: its rows are of a point at a shape, with the times of other
// shapes scaled so that the fastest of each take what the fastest of the first takes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tuner/search/cost_model.h"
#include "tuner/space/space.h"

namespace nimble::tuner {

// Spaces of no more points are known point by point, and searched to their end.
inline constexpr int64_t kEnumerateUpTo = 256;

struct SearchOptions {
  uint64_t seed = 0;
  int threads = 1;
  std::vector<std::vector<int64_t>> shapes;  // that are searched at: symbols of each, one or more
  // Points of the space that go first, behind the default: what was good elsewhere.
  std::vector<tuned::Candidate> seeds;
  size_t pool = 192;     // points ranked per round
  size_t elites = 12;    // points that mutations start from
  double epsilon = 0.2;  // share of random points
  int jobs = 1;          // threads that lower the pool for its features
  // Every point behind the default is drawn, whatever was learnt: what a model is compared with.
  bool random = false;
};

struct Proposal {
  tuned::Candidate candidate;
  // By shape; empty if it was not ranked, none at a shape behind the first of which no time is
  // known.
  std::vector<std::optional<double>> predicted_ns;
};

class Search {
 public:
  Search(const Space& space, SearchOptions options);

  // Forgets all but how points look to the model, for a search of the same space from the start.
  void begin_anew(uint64_t seed);
  // Ranks by this model while nothing was learnt here; also after begin_anew().
  // Error(kIncompatible) for a model of other features than this space's points have.
  void begin_with(CostModel earlier);
  // Up to `count` points never proposed before; empty when the space is used up.
  std::vector<Proposal> propose(size_t count);
  // What became of a point at a shape (its place among the options'); without a time it failed, and
  // is only remembered as tried. Told again, the later time counts.
  void tell(const tuned::Candidate& c, std::optional<double> time_ns, size_t shape = 0);
  // Trains the model on all times told. Returns the rank correlation between what the model so far
  // predicted for the points told since the last call and their times, a mean over the shapes;
  // nothing without enough of them at any.
  std::optional<double> learn();

  size_t tried() const { return tried_.size(); }
  size_t measured() const { return points_.size(); }
  const CostModel& model() const { return model_; }
  // The fastest at a shape first.
  std::vector<std::pair<tuned::Candidate, double>> best(size_t count, size_t shape = 0) const;

 private:
  using Features = std::vector<std::vector<float>>;  // by shape
  struct Point {
    tuned::Candidate candidate;
    std::vector<std::optional<double>> times_ns;  // by shape
    Features features;
  };
  const Features& features(const tuned::Candidate& c);
  Features make_features(const tuned::Candidate& c) const;  // thread safe
  std::vector<Proposal> draw(size_t count);
  void add(std::vector<tuned::Candidate>& pool, std::set<std::string>& seen,
           std::optional<tuned::Candidate> c) const;
  // The best of each shape in turn.
  std::vector<tuned::Candidate> elites() const;
  // What takes the fastest of a shape over what it takes the fastest of the first that has times.
  std::optional<double> scale(size_t shape) const;
  // Points of a round that is not ranked, and of one that is.
  std::vector<tuned::Candidate> make_pool();
  std::vector<Proposal> choose(const std::vector<tuned::Candidate>& pool, size_t count,
                               const CostModel& ranks);

  const Space& space_;
  const std::vector<tuned::Candidate> all_;  // of a small space
  SearchOptions options_;
  Random random_;
  CostModel model_;
  std::optional<CostModel> earlier_;  // of another search
  std::vector<Point> points_;
  std::map<std::string, size_t> point_of_;
  std::set<std::string> tried_;
  std::vector<double> fastest_ns_;  // known, by shape
  // Of points proposed and not yet told, by shape.
  std::map<std::string, std::vector<std::optional<double>>> predicted_;
  std::vector<std::vector<std::pair<double, double>>> checked_;  // predicted, measured; by shape
  std::map<std::string, Features> feature_cache_;
};

}  // namespace nimble::tuner
