#include "tuner/service/drawn_points.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// Draws that repeat an earlier one before the ranges are held to be used up.
constexpr int kMostRepeats = 1000;

std::map<std::string, SizeRange> ranges_of(const ir::Module& m, const DrawOptions& options) {
  const std::vector<std::string> symbols = model_symbols(m), batches = batch_symbols(m);
  std::map<std::string, SizeRange> out;
  for (const std::string& s : symbols)
    out[s] = std::find(batches.begin(), batches.end(), s) != batches.end() ? kDrawnBatches
                                                                           : kDrawnLengths;
  // A tree has no extent, and still its levels have.
  if (symbols.empty()) out[kInside] = kDrawnLengths;
  for (const auto& [s, range] : options.ranges) {
    if (!out.contains(s) || s == kInside)
      throw Error(Status::kInvalidArgument, "--range", fmt::format("the model has no symbol {}", s),
                  symbols.empty() ? "its shapes are all constant"
                                  : fmt::format("it has {}", fmt::join(symbols, ", ")));
    if (range.least < 1 || range.most < range.least)
      throw Error(Status::kInvalidArgument, "--range",
                  fmt::format("{}={}..{} holds no size", s, range.least, range.most),
                  "write SYMBOL=FIRST..LAST, from 1 on");
    out[s] = range;
  }
  return out;
}

}  // namespace

std::vector<WeightedPoint> drawn_points(const ir::Module& m, const DrawOptions& options) {
  const std::map<std::string, SizeRange> ranges = ranges_of(m, options);
  std::mt19937_64 random(options.seed);
  std::set<ModelPoint> seen;
  std::vector<WeightedPoint> out;
  for (int repeats = 0; out.size() < options.count && repeats < kMostRepeats;) {
    ModelPoint at;
    for (const auto& [s, range] : ranges) {
      // Rounded down, so the range goes on to the size behind its last.
      std::uniform_real_distribution<double> exponent(
          std::log2(static_cast<double>(range.least)),
          std::log2(static_cast<double>(range.most) + 1));
      at[s] =
          std::clamp(static_cast<int64_t>(std::exp2(exponent(random))), range.least, range.most);
    }
    if (seen.insert(at).second)
      out.push_back({std::move(at)});
    else
      ++repeats;
  }
  for (WeightedPoint& p : out) p.weight = 1 / static_cast<double>(out.size());
  if (!out.empty()) out.front().representative = true;
  return out;
}

}  // namespace nimble::tuner
