#include "vm/base/cpu_list.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "vm/base/cpu.h"
#include "vm/base/error.h"

namespace nimble {
namespace {

using Cpus = std::vector<int>;

TEST(CpuList, IsReadAsLinuxWritesIt) {
  EXPECT_EQ(cpu_list_from_text("0-3,8", "--cpus"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(cpu_list_from_text("7", "--cpus"), (Cpus{7}));
  EXPECT_EQ(cpu_list_from_text("3,1-3,2", "--cpus"), (Cpus{1, 2, 3})) << "in order, each once";
  for (const char* bad : {"", ",", "1,", "1-", "-1", "3-1", "a", "1 2", "1-2-3", "0x1",
                          "99999999999", "65536", "0-65536", "1;2"})
    EXPECT_THROW(cpu_list_from_text(bad, "--cpus"), Error) << bad;
}

TEST(CpuList, IsWrittenAsItIsRead) {
  for (const char* text : {"0", "0-3", "0-3,8", "0,2,4", "1-2,7-8"})
    EXPECT_EQ(cpu_list_text(cpu_list_from_text(text, "")), text);
}

TEST(CpuList, AProcessIsBoundToWhatItMayUseAlone) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  bind_to_cpus({first});
  EXPECT_EQ(detect_cpu().affinity_cpus, 1);
  EXPECT_THROW(bind_to_cpus({first, 65535}), Error);
  EXPECT_EQ(detect_cpu().affinity_cpus, 1) << "as before";
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace nimble
