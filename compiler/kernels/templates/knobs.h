// What templates say alike of knobs and configurations, and of the kernels that these lead to.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "compiler/kernels/template.h"

namespace nimble::kernels {

// ---------------------------------------------------------------- knobs

// Choices of an integer knob.
Knob int_knob(const std::string& name, std::initializer_list<int64_t> choices);
// The knob "tails": how rows that don't fill a tile are computed (tile.h); with residues if the
// template can make a kernel for each remainder.
Knob tails_knob(bool residues);

// Whether a configuration has exactly the knobs, each with one of its choices.
bool within(const std::vector<Knob>& knobs, const Config& c);
// Whether a configuration has exactly the knobs, each of its kind. A name is one of the choices (or
// of fewer residues, tile.h): what a template does not know, it would compile as something else. A
// number may lie outside the choices, which are only where a search looks; the template knows its
// bounds. It is not negative, and no larger than what any template computes with (2^20; 64 copies
// of a loop's body, "unroll").
bool well_formed(const std::vector<Knob>& knobs, const Config& c);

// ---------------------------------------------------------------- what a target's registers hold

// Elements of a type in a vector, at least one.
int lanes_of(const TargetInfo& t, DType dtype);
// The largest panel width of a target, in vectors.
int max_tile_vectors(const TargetInfo& t);
// The rows of a register tile (tile.h) of so many vectors: beside its accumulators stand the
// panel's vectors and one broadcast element. At least one.
int max_tile_rows(const TargetInfo& t, int64_t vectors);
// Relative cost of a column of a product in panels of 1, 2, … vectors.
std::span<const double> panel_costs(const TargetInfo& t);
// Those of a product's tile by default.
int default_tile_rows(const TargetInfo& t, int64_t vectors);

// ---------------------------------------------------------------- the kernels of a configuration

// One kernel for all shapes, on at most `max_threads` threads (0: any number) and as many as have
// something to do.
Lowered one_kernel(kir::Function f, int max_threads = 0);

// Whether the configuration's tails, of `m` rows, can be had: residues need a symbol to dispatch
// on.
bool has_tails(const Config& c, const kir::Dim& m);
// The kernels of a configuration with the knobs "rows" and "tails": one for each remainder of `m`
// by the rows (or of fewer, tile.h) where tails are resolved by residue (paper, 3.5), else one, of
// residue 0.
Lowered kernels_of_tails(
    const Workload& w, const Config& c, const kir::Dim& m, const std::string& name,
    const std::function<kir::Function(int residue, const std::string& name)>& lower);

}  // namespace nimble::kernels
