// What a machine's record says of it.
#include "db/store/host_records.h"

#include <gtest/gtest.h>

#include "vm/base/cpu.h"

namespace nimble::db {
namespace {

int64_t last_cache_of(const std::string& caches) {
  Hardware h;
  h.caches = caches;
  return last_cache_bytes(h);
}

TEST(HostRecords, TellTheLastCache) {
  EXPECT_EQ(last_cache_of("L1 32K/1, L2 1024K/1, L3 32768K/2"), int64_t{32} << 20);
  EXPECT_EQ(last_cache_of("L3 107520K/2, L1 48K/1"), int64_t{105} << 20);
  EXPECT_EQ(last_cache_of("L1 32K/1, L2 512K/4"), int64_t{512} << 10);
  for (const char* nothing : {"", ",", "L", "L3", "L3 -5K/1", "L3 0K/1", "none", "L3 K/1, "})
    EXPECT_EQ(last_cache_of(nothing), 0) << nothing;
  EXPECT_GE(last_cache_of("L3 99999999999999999999K/1"), 0);  // whoever wrote that
  const Hardware here = host_hardware();
  int64_t bytes = 0;
  for (int level = 1; level <= 4; ++level)
    if (const int64_t of_level = host_cpu().cache_bytes(level)) bytes = of_level;
  EXPECT_EQ(last_cache_bytes(here), bytes) << here.caches;
}

}  // namespace
}  // namespace nimble::db
