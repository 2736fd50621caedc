// The vendor's routine beside ours, as the detail of a task's phases tells it: how often and by how
// much each is faster where both were timed in the same cases.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "db/store/records.h"

namespace nimble::db {

// What is known of both sides at one size.
struct BothSides {
  Dims size;
  // Times, or ratios to one and the same; nothing: it has none. `ours`: of the fastest.
  std::optional<double> vendor, ours;
  bool vendor_failed = false;  // it was wrong there, or broke off
};

struct VendorStanding {
  size_t sizes = 0;               // at which both have a time: where the vendor took part
  size_t of = 0;                  // sizes at which ours have one
  size_t failed = 0;              // of these, where its result was wrong or it broke off
  size_t wins = 0;                // of `sizes`, where it was faster than all of ours
  double faster = 1, slower = 1;  // geometric means: ours over its where it wins, and back
  std::vector<Dims> ours_behind;  // sizes at which ours takes over 5 % more
  double worst = 0;               // the most that ours takes more, as a share
  friend bool operator==(const VendorStanding&, const VendorStanding&) = default;
};

// Why the routine has no time, where nothing else is known.
inline constexpr char kVendorUntried[] =
    "it was wrong or broke off in the search, or the search did not come to it";

VendorStanding standing_of(std::span<const BothSides> sizes);
// Of several workloads together. Which sizes ours is behind at is each workload's own, and left
// out.
VendorStanding sum_of(std::span<const VendorStanding> all);

// "3/12 by 1.21x, behind 1.35x": how often and by how much it is faster than ours, and slower.
// "3/4 of 12 …" where it took part at 4 of 12 sizes, "-" where it took part at none.
std::string text_of(const VendorStanding& standing);

// A JSON object.
std::string json_text(const VendorStanding& standing);

// Of the detail of a task's phase (Task::detail): what json_text() made, under "vendor". Anybody
// may have written it: nothing if it is missing or of another form.
std::optional<VendorStanding> vendor_standing_of(const std::string& detail);

}  // namespace nimble::db
