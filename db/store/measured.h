// Measurements with all that they may be compared by, one after the other, for whoever weighs or
// exports many: see Store::measured.
#pragma once

#include "db/store/records.h"

namespace nimble::db {

// What is empty does not matter.
struct MeasuredQuery {
  std::optional<Uuid> campaign;
  std::optional<Hash> workload, hardware;
  std::vector<Hash> toolchains;  // any of them
};

struct Measured {
  Uuid measurement, trial, campaign;
  Hash workload, shape, config, artifact, toolchain, policy, hardware;
  Uuid machine;
  Uuid host_state;  // what was timed side by side has one in common
  std::string code_hash;
  Dims dims;
  int64_t flops = 0;
  std::string config_json, template_name;
  int64_t template_version = 0;
  Role role = Role::kSearch;
  int64_t threads = 1, round = 0, n = 0;
  double median_ns = 0, ci_low_ns = 0, ci_high_ns = 0;
  double compile_ms = 0;
  std::string stop_reason;
  int64_t created_at = 0;
};

}  // namespace nimble::db
