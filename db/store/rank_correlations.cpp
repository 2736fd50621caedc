#include "db/store/rank_correlations.h"

#include <nlohmann/json.hpp>

namespace nimble::db {

RankCorrelations rank_correlations_of(const std::string& detail) {
  RankCorrelations out;
  const auto j = nlohmann::json::parse(detail, nullptr, false);
  if (!j.is_object()) return out;
  const auto all = j.find("rank_correlations");
  if (all == j.end() || !all->is_array()) return out;
  for (const auto& row : *all) {
    if (!row.is_object()) continue;
    const auto round = row.find("round"), correlation = row.find("correlation");
    if (round != row.end() && round->is_number_integer() && correlation != row.end() &&
        correlation->is_number())
      out.emplace_back(round->get<int64_t>(), correlation->get<double>());
  }
  return out;
}

}  // namespace nimble::db
