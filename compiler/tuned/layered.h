// Several tuning databases at once: one's own over those that came with a machine or a model.
#pragma once

#include <memory>
#include <vector>

#include "compiler/tuned/tuned.h"

namespace nimble::tuned {

// Asks the sources in order. The first that has exact records of a workload, or an override of it,
// serves it; where none has, the first that has anything that can be used. Records of two sources
// are never mixed for one workload: times of one database are not compared with another's.
std::unique_ptr<TunedSource> layered_source(std::vector<std::unique_ptr<TunedSource>> sources);

}  // namespace nimble::tuned
