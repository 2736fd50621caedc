// What the search may choose from: every template that accepts a workload, each with the product
// of its knobs less what it rejects, and the vendor's routine where it computes the workload on
// such a target.
//
// A point is a Candidate as the compiler takes it. All randomness comes from a generator that the
// caller seeds: equal seeds walk equal ways.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "compiler/kernels/template.h"
#include "compiler/tuned/tuned.h"

namespace nimble::tuner {

using Random = std::mt19937_64;

class Space {
 public:
  // Error(kUnsupported) if no template serves the workload. `w` and `t` must outlive the space.
  Space(const kernels::Workload& w, const kernels::TargetInfo& t);

  // An upper bound of the number of points: invalid ones are counted.
  int64_t size() const;
  // Of the first template that serves the workload: what is used untuned.
  tuned::Candidate default_candidate() const;
  // Every point if there are at most `limit` (rejected ones not counted), else nothing.
  std::vector<tuned::Candidate> enumerate(int64_t limit) const;
  // A random point of a template; nothing if none was found in a thousand draws. Of the vendor's
  // routine there is but one, which is no matter of chance.
  std::optional<tuned::Candidate> sample(Random& random) const;
  // Up to `changes` knobs of `from` moved: mostly to a neighbouring choice, sometimes anywhere.
  std::optional<tuned::Candidate> mutate(const tuned::Candidate& from, Random& random,
                                         int changes = 2) const;
  // Each knob from one of two points of the same template.
  std::optional<tuned::Candidate> cross(const tuned::Candidate& a, const tuned::Candidate& b,
                                        Random& random) const;
  // All points that differ from `from` in one knob by one step.
  std::vector<tuned::Candidate> neighbours(const tuned::Candidate& from) const;
  // Position of each knob's choice, scaled to 0…1: coordinates for features and distances.
  std::vector<double> coordinates(const tuned::Candidate& c) const;
  bool contains(const tuned::Candidate& c) const;

  const kernels::Workload& workload() const { return workload_; }
  const kernels::TargetInfo& target() const { return target_; }
  // The vendor's routine, if it takes part.
  std::optional<tuned::Candidate> vendor_candidate() const;
  // Why the vendor's routine takes no part; empty if it does.
  const std::string& no_vendor() const { return no_vendor_; }
  // Where its library is not there, for example.
  void leave_out_vendor(const std::string& why);

 private:
  struct Part {
    const kernels::Template* schedule;
    std::vector<kernels::Knob> knobs;
  };
  const Part* part_of(const tuned::Candidate& c) const;
  bool valid(const Part& p, const kernels::Config& c) const;

  const kernels::Workload& workload_;
  const kernels::TargetInfo& target_;
  std::vector<Part> parts_;
  std::string vendor_, no_vendor_;
};

// The text that identifies a candidate: template and canonical configuration.
std::string text_of(const tuned::Candidate& c);
// The JSON stored as its configuration; a vendor's routine is {"routine": …}.
std::string config_json(const tuned::Candidate& c);
// The inverse, given the template's name. Throws nimble::Error.
tuned::Candidate candidate_of(const std::string& template_name, const std::string& json);

}  // namespace nimble::tuner
