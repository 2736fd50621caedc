// Into how many shares the work of native code is cut.
#include <gmock/gmock.h>

#include "vm/base/file.h"
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

class SharesTest : public Interpreter {
 protected:
  // A kernel that takes long enough to be worth cutting, on two threads.
  void load(const std::string& scratch, const std::string& how,
            const std::string& symbol = "count_shares") {
    std::string text = R"(
scalar "bytes" [a0 4 *]
kernel "count_shares" {
  symbols n
  in f32 ([a0])
  out f32 ([a0])
  scratch )" + scratch +
                       R"(
  dispatch { 0: 0 }
  native ")" + symbol + "\" " +
                       how + R"(
}
function "main" 1 6 {
  ShapeOf r2, 1, r0
  Invoke r3, f"bytes", (r2)
  AllocStorage r3, r3, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r2)
  InvokePacked k0, (r0, r5)
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";
    exec::Executable e = exec::assemble(text);
    exec::NativeImage native;
    native.target = "x86-64-v1";
    native.bytes = image_;
    e.images.push_back(native);
    LoadOptions load;
    load.trust = true;
    session_.reset();
    model_ = Model::load(std::move(e), load, "test");
    session_ = std::make_unique<Session>(model_, SessionOptions{2});
  }
  // What the kernel says, at each of its elements: each share was done.
  std::vector<float> shares() { return run({{{64}, std::vector<float>(64)}})[0].floats; }

 private:
  const std::vector<uint8_t> image_ = read_file(NIMBLE_FIXTURE_DIR "/good.so");
};

TEST_F(SharesTest, WhatTakesLongIsCutOnceItIsKnown) {
  load("[0]", "divisible");
  ASSERT_EQ(session_->threads(), 2);
  EXPECT_THAT(shares(), Each(2));
  for (int run = 0; run < 3; ++run) EXPECT_THAT(shares(), Each(AllOf(Ge(4), Le(16))));
}

TEST_F(SharesTest, WhatMayMeetIsNotCut) {
  load("[0]", "");
  for (int run = 0; run < 3; ++run) EXPECT_THAT(shares(), Each(2));
}

// The image of another level has its own function for the kernel: nothing is known of it.
TEST_F(SharesTest, WhatStandsInIsNotCut) {
  load("[0]", "divisible", "of_another_level");
  for (int run = 0; run < 3; ++run) EXPECT_THAT(shares(), Each(2));
}

TEST_F(SharesTest, WhatStandsInIsForAnyNumberOfThreads) {
  load("[0]", "threads 1");
  EXPECT_THAT(shares(), Each(1));
  load("[0]", "threads 1", "of_another_level");
  EXPECT_THAT(shares(), Each(2));
}

TEST_F(SharesTest, NoMoreThanHaveSomethingToDo) {
  load("[0]", "threads 5 divisible");
  EXPECT_THAT(shares(), Each(2));
  for (int run = 0; run < 3; ++run) EXPECT_THAT(shares(), Each(4));  // as many for each thread
}

// The first run takes the scratch memory of all later ones.
TEST_F(SharesTest, ScratchMemoryIsTheSameInAllRuns) {
  load("[0]", "divisible");
  shares();
  const uint64_t without = session_->memory().reserved;
  load("[a1 64 *]", "divisible");
  EXPECT_THAT(shares(), Each(2));
  const uint64_t held = session_->memory().reserved;
  EXPECT_GE(held, without + 16 * 64);
  for (int run = 0; run < 3; ++run) EXPECT_THAT(shares(), Each(Ge(4)));
  EXPECT_EQ(session_->memory().reserved, held);
}

TEST_F(SharesTest, AsManyAsMayHaveTheirScratchMemory) {
  load("[a1 40000 *]", "divisible");
  EXPECT_THAT(shares(), Each(2));
  for (int run = 0; run < 3; ++run) EXPECT_THAT(shares(), Each(4));
}

TEST_F(SharesTest, MuchScratchMemoryIsNotMultiplied) {
  load("[a1 100000 *]", "divisible");  // for each share
  for (int run = 0; run < 3; ++run) EXPECT_THAT(shares(), Each(2));
}

}  // namespace
}  // namespace nimble::rt
