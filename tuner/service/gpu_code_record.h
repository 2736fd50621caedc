// What a GPU takes of a candidate (occupancy.h) in the cache beside a campaign.
#pragma once

#include <nlohmann/json.hpp>

#include "tuner/search/occupancy.h"

namespace nimble::tuner {

nlohmann::json gpu_code_json(const GpuCode& code);
// Of an entry of the cache, its "gpu_code". One that another version wrote may have none, and what
// no assembler says is as good as none.
GpuCode gpu_code_from_json(const nlohmann::json& entry);

}  // namespace nimble::tuner
