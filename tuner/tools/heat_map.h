// A report on dispatch as a picture.
#pragma once

#include <string>

#include "tuner/service/dispatch_report.h"

namespace nimble::tools {

// SVG: a panel for each workload that has shapes. Of several symbols the first two are the axes and
// the colour is the regret; of one it is the axis and the regret the other. Sizes go by ratio.
std::string heat_map(const tuner::DispatchReport& report);

}  // namespace nimble::tools
