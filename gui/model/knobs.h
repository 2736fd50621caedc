// Configurations as coordinates: an axis per knob that varies, and each configuration's place on
// it.
#pragma once

#include <string>
#include <vector>

#include "gui/model/facts.h"

namespace nimble::gui {

struct KnobAxis {
  std::string name;                 // "template", "rows", …
  std::vector<std::string> values;  // distinct ones, numbers ascending, then text
  std::vector<int> place;           // of each configuration in `values`; -1: it has no such knob
};

// In the order of the alphabet, the template first; a knob that all share is left out.
std::vector<KnobAxis> knob_axes(const std::vector<ConfigFacts>& configs);

}  // namespace nimble::gui
