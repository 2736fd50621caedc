#include "db/store/vendor_standing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace nimble::db {
namespace {

using Json = nlohmann::json;

constexpr double kBehind = 0.05;
// Of whatever is read: no campaign has more sizes, and no routine is so much faster.
constexpr int64_t kMostSizes = 1'000'000'000;
constexpr double kMostTimes = 1e18;

// The geometric mean of `count` numbers whose logarithms sum up to `logs`; 1 of none.
double mean_of(double logs, size_t count) {
  return count > 0 ? std::exp(logs / static_cast<double>(count)) : 1;
}

std::optional<size_t> count_at(const Json& j, const char* name) {
  const auto it = j.find(name);
  if (it == j.end() || !it->is_number_integer()) return std::nullopt;
  const auto n = it->get<int64_t>();
  if (n < 0 || n > kMostSizes) return std::nullopt;
  return static_cast<size_t>(n);
}

std::optional<double> number_at(const Json& j, const char* name, double least) {
  const auto it = j.find(name);
  if (it == j.end() || !it->is_number()) return std::nullopt;
  const auto v = it->get<double>();
  if (!(v >= least && v <= kMostTimes)) return std::nullopt;
  return v;
}

}  // namespace

VendorStanding standing_of(std::span<const BothSides> sizes) {
  VendorStanding out;
  double faster = 0, slower = 0;
  for (const BothSides& s : sizes) {
    if (!s.ours) continue;
    ++out.of;
    out.failed += s.vendor_failed;
    if (!s.vendor || s.vendor_failed) continue;
    ++out.sizes;
    const double ratio = *s.ours / *s.vendor;
    if (ratio > 1) {
      ++out.wins;
      faster += std::log(ratio);
    } else {
      slower -= std::log(ratio);
    }
    if (ratio - 1 > kBehind) out.ours_behind.push_back(s.size);
    out.worst = std::max(out.worst, ratio - 1);
  }
  out.faster = mean_of(faster, out.wins);
  out.slower = mean_of(slower, out.sizes - out.wins);
  return out;
}

VendorStanding sum_of(std::span<const VendorStanding> all) {
  VendorStanding out;
  double faster = 0, slower = 0;
  for (const VendorStanding& s : all) {
    out.sizes += s.sizes;
    out.of += s.of;
    out.failed += s.failed;
    out.wins += s.wins;
    faster += static_cast<double>(s.wins) * std::log(s.faster);
    slower += static_cast<double>(s.sizes - s.wins) * std::log(s.slower);
    out.worst = std::max(out.worst, s.worst);
  }
  out.faster = mean_of(faster, out.wins);
  out.slower = mean_of(slower, out.sizes - out.wins);
  return out;
}

std::string text_of(const VendorStanding& s) {
  if (s.sizes == 0) return "-";
  std::string out = fmt::format("{}/{}", s.wins, s.sizes);
  if (s.of > s.sizes) out += fmt::format(" of {}", s.of);
  if (s.wins > 0) out += fmt::format(" by {:.2f}x", s.faster);
  if (s.wins < s.sizes)
    out += fmt::format("{} {:.2f}x", s.wins > 0 ? ", behind" : " behind", s.slower);
  return out;
}

std::string json_text(const VendorStanding& s) {
  return Json{{"sizes", s.sizes},   {"of", s.of},
              {"failed", s.failed}, {"wins", s.wins},
              {"faster", s.faster}, {"slower", s.slower},
              {"worst", s.worst},   {"ours_behind", s.ours_behind}}
      .dump();
}

std::optional<VendorStanding> vendor_standing_of(const std::string& detail) {
  const auto all = Json::parse(detail, nullptr, false);
  if (!all.is_object()) return std::nullopt;
  const auto it = all.find("vendor");
  if (it == all.end() || !it->is_object()) return std::nullopt;
  const Json& j = *it;
  const auto sizes = count_at(j, "sizes"), of = count_at(j, "of"), failed = count_at(j, "failed"),
             wins = count_at(j, "wins");
  const auto faster = number_at(j, "faster", 1), slower = number_at(j, "slower", 1),
             worst = number_at(j, "worst", 0);
  if (!sizes || !of || !failed || !wins || !faster || !slower || !worst) return std::nullopt;
  if (*wins > *sizes || *sizes > *of || *failed > *of) return std::nullopt;
  VendorStanding out{*sizes, *of, *failed, *wins, *faster, *slower, {}, *worst};
  if (const auto behind = j.find("ours_behind"); behind != j.end()) {
    if (!behind->is_array()) return std::nullopt;
    for (const Json& size : *behind) {
      if (!size.is_object() ||
          !std::ranges::all_of(size, [](const Json& extent) { return extent.is_number_integer(); }))
        return std::nullopt;
      out.ours_behind.push_back(size.get<Dims>());
    }
  }
  return out;
}

}  // namespace nimble::db
