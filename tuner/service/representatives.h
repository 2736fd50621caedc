// The shapes that a search runs at, of those at which a workload is measured.
//
// A schedule is compiled once and timed at each of them, so they should be few and stand for what
// is met. Two shapes are alike for a search if they do as much work and move as much memory: their
// distance is what lies between them on a roofline, the mean of the two ratios of flops and of
// bytes, in octaves. The shapes are medoids under it, as a dispatch table's pool is of
// configurations: each of the workload's shapes counts by its weight, and what is lost is its
// distance to the nearest of them. Another one is worth its time if it lowers the mean distance by
// kWorthOctaves.
#pragma once

#include <vector>

#include "tuner/service/workloads.h"

namespace nimble::tuner {

inline constexpr size_t kMostRepresentatives = 5;
inline constexpr double kWorthOctaves = 0.25;

// In octaves, not negative; 0 for shapes of equal work.
double roofline_distance(const WorkloadPoint& a, const WorkloadPoint& b);

// Flops and bytes; 1 at least. What a shape takes is thought to be in proportion.
double work_of(const WorkloadPoint& p);
// The mean over the shapes that a choice may rest on, by their weights.
double mean_work(const TuningTask& task);

// Marks the task's representatives anew: one to `most` medoids, none of them held out. The same
// task has the same ones. Nothing changes if `most` is 0 or all that could be one is held out.
void choose_representatives(TuningTask& task, size_t most = kMostRepresentatives);

// A representative, and what it stands for: the share of the weight of those shapes that are
// nearest to it. Where nothing has weight all shapes count alike, and where all are held out all
// representatives do.
struct Representative {
  size_t point = 0;
  double share = 1;  // all together: 1
};
// The one that stands for most comes first; never empty for a task with points. `among`: of these
// points instead of those that are marked.
std::vector<Representative> representatives_of(const TuningTask& task);
std::vector<Representative> representatives_of(const TuningTask& task, std::vector<size_t> among);

}  // namespace nimble::tuner
