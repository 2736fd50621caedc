// A case as the database keeps it, so that a machine that has no compiler can measure it: the
// extents, how operands are filled, the policy, and what is expected.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "db/store/store.h"
#include "tuner/measure/protocol.h"

namespace nimble::tuner {

// A policy as JSON, all of it. The inverse throws Error(kCorrupt) naming `place` for one that the
// measuring process would refuse.
std::string json_text(const Policy& policy);
Policy policy_from_json(const std::string& text, const std::string& place);

// How times are taken.
db::MeasurePolicy policy_record(const Policy& policy, int64_t threads);

// Without entries and limit, which are a job's. `expected`: blob of expected_bytes().
db::MeasureCase case_record(const Case& c, const db::Hash& workload, const db::Hash& shape,
                            const db::Digest& expected);
std::vector<uint8_t> expected_bytes(const Case& c);

// The inverse. Error(kCorrupt) for a record that is none, of test data that this program makes
// otherwise, or whose policy is not the one that its times are to be filed under.
Case case_of(const db::MeasureCase& record, std::span<const uint8_t> expected);

}  // namespace nimble::tuner
