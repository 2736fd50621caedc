#include "db/store/rank_correlations.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace nimble::db {
namespace {

constexpr double kMost = 1 + 1e-9;  // rounding is no other form

}  // namespace

RankCorrelations rank_correlations_of(const std::string& detail) {
  RankCorrelations out;
  const auto j = nlohmann::json::parse(detail, nullptr, false);
  if (!j.is_object()) return out;
  const auto all = j.find("rank_correlations");
  if (all == j.end() || !all->is_array()) return out;
  for (const auto& row : *all) {
    if (!row.is_object()) continue;
    const auto round = row.find("round"), correlation = row.find("correlation");
    if (round == row.end() || !round->is_number_integer() || correlation == row.end() ||
        !correlation->is_number())
      continue;
    const auto number = round->get<int64_t>();
    const auto value = correlation->get<double>();
    if ((out.empty() || number > out.back().first) && std::fabs(value) <= kMost)
      out.emplace_back(number, value);
  }
  return out;
}

}  // namespace nimble::db
