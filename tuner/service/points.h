// The shapes at which a model is tuned.
//
// Symbols are of two kinds. A *batch* is called b, batch or batch_size, or, in a model that calls
// none so, leads every symbolic shape among the inputs while others vary behind it (exporters call
// their symbols s10 and s21). All others are *lengths*; where there are none, batches are.
//
// The points are a line and what lies beside it. On the line lengths move together, through the
// paper's powers of two (section 3.5), odd sizes, and quantiles of the trace, with batches of 1.
// Beside it lie, where several symbols vary, the medoids of the joint distribution: of the rows of
// a trace, or of draws that are even by ratio, half of them with batches of 1, of which none has
// more than four times the largest size in all (batch × length). Medoids are chosen as a dispatch
// table's pool is: what is lost is the distance by ratio to the nearest point. Likely rows of a
// trace, of which a tenth of all it has or more is one, are points, too: a dispatch table may have
// entries for just these.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "tuner/service/trace.h"

namespace nimble::tuner {

// Values of the model's symbols; of a model whose inputs have none, the size of what varies inside
// of it stands under kInside.
using ModelPoint = std::map<std::string, int64_t>;
inline constexpr char kInside[] = "";

struct PointOptions {
  std::optional<Trace> trace;
  // That the trace's columns are of, in their order; none: those called like a column, or, of one
  // column, n or the first length.
  std::vector<std::string> symbols;
  std::map<std::string, int64_t> fixed;  // symbols with one value each
  int64_t representative = 64;           // the length that the search runs at
  int64_t largest = 256;
  uint64_t seed = 0;
};

struct WeightedPoint {
  ModelPoint at;
  double weight = 0;          // over all points; sums to 1
  double exact = 0;           // of that, what the trace has at just this point, if it is likely
  bool power_of_two = false;  // one of the paper's sizes
  bool representative = false;
  bool held_out = false;  // of no weight: a choice made at the other sizes is tried there
};

// The symbols of an entry function's parameters, in order of appearance.
std::vector<std::string> model_symbols(const ir::Module& m);
// The batches among them.
std::vector<std::string> batch_symbols(const ir::Module& m);
// The points, with weights by the trace, each of its rows counted for the nearest point by ratio,
// and a tenth of the mass spread over all points alike; without a trace half of the mass lies on
// the line. A symbol that a trace does not speak of is 1 if it is a batch, else it moves with the
// lengths that it speaks of. Error(kInvalidArgument) for an unknown symbol.
std::vector<WeightedPoint> model_points(const ir::Module& m, const PointOptions& options);

}  // namespace nimble::tuner
