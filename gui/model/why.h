// "Why this kernel?": from an operator of an executable file, or a workload at a shape, down to raw
// samples, a step a line.
#pragma once

#include <QString>
#include <vector>

#include "gui/model/facts.h"
#include "gui/model/selection.h"

namespace nimble::gui {

struct WhyStep {
  QString what;   // "Table", "Test", "Entry", …
  QString text;   // plain
  Choice choice;  // what going to the step selects; parts that are empty stay
  bool operator==(const WhyStep&) const = default;
};

// What an executable file tells of itself: goes before the chain in the database.
std::vector<WhyStep> why(const FileOperator& origin);

// Of the shape and table that are chosen, with the overrides in force over it; without a shape, of
// the measured one that is nearest to 64 of each symbol.
// `measurement` of the entry's configuration at the shape, when it has been read.
std::vector<WhyStep> why(const WorkloadFacts& facts, const Choice& choice,
                         const MeasurementFacts* measurement);

// The measurement that such a chain ends at; empty if there is none.
db::Uuid measurement_behind(const WorkloadFacts& facts, const Choice& choice);

// Why a measurement has no raw samples, and what is left of them.
QString removed_text(const MeasurementFacts& measurement);

// As one text, for the clipboard.
QString text_of(const std::vector<WhyStep>& steps);

}  // namespace nimble::gui
