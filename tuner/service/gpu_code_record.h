// What a GPU takes of a candidate (occupancy.h) in the cache beside a campaign.
#pragma once

#include <nlohmann/json.hpp>

#include "tuner/search/occupancy.h"

namespace nimble::tuner {

// What an entry of the cache has as its "gpu_code".
nlohmann::json gpu_code_json(const GpuCode& code);
// Of an entry; of no registers if it has none, as of a CPU or of another version's, or has what no
// assembler says. Earlier versions wrote the numbers alone, in the order of GpuCode.
GpuCode gpu_code_from_json(const nlohmann::json& entry);

}  // namespace nimble::tuner
