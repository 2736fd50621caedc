// How a campaign is spoken of on a command line.
#include <cmath>

#include "tuner/service/campaign.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::tuner {
namespace {

constexpr double kLongest = 100.0 * 366 * 24 * 3600;  // a century, in s

}  // namespace

const char kBudgetRule[] =
    "How a budget is spent: reading the model counts. The default schedule of every workload is\n"
    "measured first; that tells the share of the model's time that each takes. Workloads are "
    "tuned\n"
    "hottest first, each with a part of the remaining budget in proportion to the root of its\n"
    "share: 60 % of it for the search at the representative sizes, the rest for the\n"
    "cross-evaluation of the best k at all sizes and for verifying the winners side by side. What\n"
    "a small budget drops, in this order: rounds of the search, then configurations of the\n"
    "cross-evaluation (fewer k), then its sizes, then the coldest workloads, which keep their\n"
    "default schedule and are listed. What a workload leaves over goes to the next, and what all\n"
    "leave over goes to further rounds for the hottest, until nothing is left to try, or to gain\n"
    "(--patience, --max-trials). Nothing is compiled while something is measured. The campaign\n"
    "ends with its budget, whatever it is at.";

double parse_duration(const std::string& text) {
  size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = text.substr(end);
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (end == 0 || scale == 0 || !(value > 0) || !(value * scale <= kLongest))
    throw Error(Status::kInvalidArgument, "--budget",
                fmt::format("\"{}\" is not a time{}", printable(text),
                            value * scale > kLongest ? " that anybody waits for" : ""),
                "give, for example, 90s, 5m or 1.5h");
  return value * scale;
}

double parse_share(const std::string& text) {
  size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end > 0 && text.substr(end) == "%") {
    value /= 100;
    ++end;
  }
  if (end != text.size() || end == 0 || !(value > 0 && value <= 1))
    throw Error(Status::kInvalidArgument, "--only-hot", fmt::format("\"{}\" is not a share", text),
                "give, for example, 90% or 0.9");
  return value;
}

}  // namespace nimble::tuner
