// Sees the time of day jump. Leases in a file end by the machine's time of day, which somebody may
// set: after a jump forward all of them look as if they had run out, though who holds them is alive
// and renews them soon.
#pragma once

#include <cstdint>
#include <optional>

namespace nimble::db {

class JumpWatch {
 public:
  // Told both clocks now, in ms. False: within the last `grace_ms` of elapsed time the time of day
  // was seen to have gone forward by more than elapsed time did. What happened before the first
  // call is not known.
  bool steady(int64_t time_of_day, int64_t elapsed, int64_t grace_ms) {
    const int64_t between = time_of_day - elapsed;
    if (between_ && between > *between_ + kSlack) jumped_ = elapsed;
    between_ = between;
    return !jumped_ || elapsed - *jumped_ >= grace_ms;
  }

 private:
  static constexpr int64_t kSlack = 250;  // ms; adjusted smoothly, a clock gains far less
  std::optional<int64_t> between_, jumped_;
};

}  // namespace nimble::db
