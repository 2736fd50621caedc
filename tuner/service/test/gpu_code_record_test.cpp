#include "tuner/service/gpu_code_record.h"

#include <gtest/gtest.h>

namespace nimble::tuner {
namespace {

using nlohmann::json;

void expect_equal(const GpuCode& a, const GpuCode& b) {
  EXPECT_EQ(a.threads, b.threads);
  EXPECT_EQ(a.shared_bytes, b.shared_bytes);
  EXPECT_EQ(a.registers, b.registers);
  EXPECT_EQ(a.spill_bytes, b.spill_bytes);
}

constexpr GpuCode kCode = {256, 49152, 128, 40};

TEST(GpuCodeRecord, ComesBackFromAnEntry) {
  const json entry = {{"kernel", 3}, {"gpu_code", gpu_code_json(kCode)}};
  EXPECT_EQ(entry, json::parse(R"({"kernel": 3, "gpu_code": {
      "threads": 256, "shared_bytes": 49152, "registers": 128, "spill_bytes": 40}})"));
  expect_equal(gpu_code_from_json(entry), kCode);
}

TEST(GpuCodeRecord, IsReadFromEntriesOfEarlierVersions) {
  expect_equal(gpu_code_from_json(json::parse(R"({"gpu_code": [256, 49152, 128, 40]})")), kCode);
  // They wrote one for a CPU's candidates, too.
  expect_equal(gpu_code_from_json(json::parse(R"({"gpu_code": [0, 0, 0, 0]})")), {});
}

TEST(GpuCodeRecord, IsNotKnownOfWhatNoAssemblerSays) {
  for (
      const char* text :
      {R"({})", R"({"gpu_code": null})", R"({"gpu_code": 7})", R"({"gpu_code": "four"})",
       R"({"gpu_code": [256, 0, 128]})", R"({"gpu_code": [256, 0, 128, 0, 0]})",
       R"({"gpu_code": [256, 0, 128, -1]})", R"({"gpu_code": [256, 0, 300, 0]})",
       R"({"gpu_code": [256, 0, 1.5, 0]})", R"({"gpu_code": [256, 0, "128", 0]})",
       R"({"gpu_code": {"threads": 256, "shared_bytes": 0, "registers": 128}})",
       R"({"gpu_code": {"threads": 256, "shared_bytes": 0, "registers": 128, "spills": 0}})",
       R"({"gpu_code": {"threads": 2048, "shared_bytes": 0, "registers": 9, "spill_bytes": 0}})",
       R"({"gpu_code": {"threads": 256, "shared_bytes": 0, "registers": true, "spill_bytes": 0}})"}) {
    SCOPED_TRACE(text);
    expect_equal(gpu_code_from_json(json::parse(text)), {});
  }
}

}  // namespace
}  // namespace nimble::tuner
