// Fault loops, as SQLite's: the n-th request for memory of a run fails, for n = 1, 2, 3 … until the
// run no longer makes so many. Each failure must be a clean error, leave nothing behind, and the
// next run give the right answer.
#include <cstring>
#include <functional>

#include "vm/base/fault/failing_calls.h"
#include "vm/base/fault/failing_new.h"
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::ElementsAre;

// Everything that asks for memory: recursion, closures, data-type values small and large, views,
// copies, scratch, kernels, a default and a strided input, scalar, borrowed and partial outputs.
constexpr char kModel[] = R"(
constant "w" f32 [3] { 10, 20, 30 }
scalar "bytes" [a0 4 * 200000 +]
scalar "minus" [a0 1 -]
kernel "add" {
  source "add"
  symbols n
  in f32 ([a0])
  in f32 ([a0])
  out f32 ([a0])
  scratch [a1 64 * 200000 +]
  dispatch { 0: 0 }
  host "test.add"
}
function "main" 2 10 {
  ShapeOf r2, 1, r0
  LoadConsti r3, 300
  AllocClosure r4, f"added", (r0, r3)
  Invoke r5, f"deep", (r3, r4)
  InvokeClosure r6, r4, (r1)
  DeviceCopy r7, r6, d0
  ReshapeTensor r7, r7, (r2)
  AllocADT r8, 1, (r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2, r5, r6, r7, r2)
  GetField r9, r8, 3
  AllocADT r9, 0, (r9, r0, r6, r7)
  Ret r9
}
function "deep" 2 4 {
  If r0, @more, @done
more:
  Invoke r2, f"minus", (r0)
  Invoke r3, f"deep", (r2, r1)
  AllocADT r3, 2, (r3, r1)
done:
  Move r0, r1
  Ret r0
}
function "added" 3 8 {
  ShapeOf r3, 1, r0
  Invoke r4, f"bytes", (r3)
  AllocStorage r5, r4, 64, d0
  LoadConsti r6, 64
  AllocTensorReg r7, r5, r6, f32, (r3)
  InvokePacked k"add", (r0, r2, r7)
  Ret r7
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  input "z" f32 ["n"] [-1] default "ones"
  output "n" i64 [] []
  output "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
  output "copy" f32 ["n"] [-1]
}
)";

class Faults : public Interpreter {
 protected:
  void SetUp() override {
    Interpreter::SetUp();
    model_ = Model::load(exec::assemble(kModel), {}, "test");
    fresh();
  }
  void fresh() {
    session_.reset();
    session_ = std::make_unique<Session>(model_, SessionOptions{2});
    objects_ = session_->live_objects();
  }
  // One run; an odd `way` goes in slices.
  void use(int way) {
    static const float x[] = {1, 0, 2, 0, 3, 0};
    static const int64_t shape[] = {3}, strides[] = {2};
    InputTensor in[2];
    in[0] = {x, DType::kF32, shape, strides, true};
    std::vector<OutputTensor> out(4);
    if (way % 2 == 0) {
      session_->run(0, in, out);
    } else {
      session_->start(0, in);
      while (!session_->resume(50, out)) {
      }
    }
    // Without matchers: they allocate, too, and leak where that fails.
    const float kept[] = {1, 2, 3}, sum[] = {2, 3, 4};
    const int64_t n = 3;
    if (std::memcmp(out[0].data, &n, sizeof n) != 0 ||
        std::memcmp(out[1].data, kept, sizeof kept) != 0 ||
        std::memcmp(out[2].data, sum, sizeof sum) != 0 ||
        std::memcmp(out[3].data, sum, sizeof sum) != 0)
      ADD_FAILURE() << "a wrong result";
  }
  // `fail(n, body)` runs body with its n-th request failing, and tells whether it came to that.
  // Returns how many requests a run makes.
  int loop(const std::function<bool(int, const std::function<void()>&)>& fail, bool fresh_session) {
    for (int n = 1;; ++n) {
      for (int way = 0; way < 2; ++way) {
        SCOPED_TRACE(fmt::format("request {}, way {}", n, way));
        if (fresh_session) fresh();
        const uint64_t in_use = session_->memory().in_use;
        bool threw = false;
        const bool failed = fail(n, [&] {
          try {
            use(way);
          } catch (const Error& e) {
            threw = true;
            EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
          } catch (const std::bad_alloc&) {  // outside of the machine: the C interface tells it
            threw = true;
          }
        });
        if (!failed) {
          EXPECT_FALSE(threw);
          return n - 1;
        }
        // A failure is told, or it was one of those that the run can do without (a block that is
        // given back instead of being kept).
        if (session_->state() == RunControl::State::kSuspended) session_->abandon();
        EXPECT_EQ(session_->state(), RunControl::State::kIdle);
        EXPECT_EQ(session_->live_objects(), objects_);
        if (threw && fresh_session) {
          EXPECT_LE(session_->memory().in_use, in_use + (64 << 10) * 20 + 300000);
        }
        use(way);
        if (::testing::Test::HasFailure()) return n;
      }
    }
  }
  uint64_t objects_ = 0;
};

TEST_F(Faults, EachRequestToThePoolOfAFirstRun) {
  const int n = loop(
      [&](int at, const std::function<void()>& body) {
        session_->storage()->fail_request(static_cast<uint64_t>(at));
        const uint64_t before = session_->storage()->failed_requests();
        body();
        session_->storage()->fail_request(0);
        return session_->storage()->failed_requests() > before;
      },
      true);
  EXPECT_GT(n, 15);
}

TEST_F(Faults, EachRequestToThePoolOfALaterRun) {
  use(0);
  const int n = loop(
      [&](int at, const std::function<void()>& body) {
        session_->storage()->fail_request(static_cast<uint64_t>(at));
        const uint64_t before = session_->storage()->failed_requests();
        body();
        session_->storage()->fail_request(0);
        return session_->storage()->failed_requests() > before;
      },
      false);
  EXPECT_GT(n, 5);
}

TEST_F(Faults, EachCallOfNewOfAFirstRun) {
  for (const bool all : {false, true}) {
    const int n = loop(
        [&](int at, const std::function<void()>& body) {
          FailNew fail(static_cast<uint64_t>(at), all);
          body();
          return fail.failed();
        },
        true);
    EXPECT_GT(n, 15);
  }
}

TEST_F(Faults, EachCallOfNewThatMakesASession) {
  for (int n = 1;; ++n) {
    std::unique_ptr<Session> session;
    FailNew fail(static_cast<uint64_t>(n));
    try {
      session = std::make_unique<Session>(model_, SessionOptions{2});
    } catch (const std::bad_alloc&) {
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kExhausted);
    }
    if (!fail.failed()) {
      ASSERT_NE(session, nullptr);
      EXPECT_GT(n, 5);
      break;
    }
  }
}

TEST_F(Faults, EveryMemoryLimitUntilItSuffices) {
  for (uint64_t limit = 64 << 10;; limit += 40'000) {
    ASSERT_LT(limit, uint64_t{8} << 20);
    SessionOptions options;
    options.threads = 2;
    options.memory_limit = limit;
    session_.reset();
    try {
      session_ = std::make_unique<Session>(model_, options);
      const uint64_t objects = session_->live_objects();
      int runs = 0;
      try {
        for (; runs < 3; ++runs) use(runs);
      } catch (const Error& e) {
        EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
        if (session_->state() == RunControl::State::kSuspended) session_->abandon();
        EXPECT_EQ(session_->live_objects(), objects);
        EXPECT_LE(session_->memory().reserved, limit);
        continue;
      }
      break;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
    }
  }
}

// tvm#16905: what an allocation that failed should have filled was freed.
TEST_F(Faults, AFailedAllocationFreesNothingThatWasNotMade) {
  SessionOptions options;
  options.memory_limit = 1 << 20;
  load(R"(
scalar "bytes" [a0 4 *]
function "main" 1 7 {
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  AllocStorage r3, r2, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1)
  AllocStorage r3, r2, 64, d0
  AllocTensorReg r5, r3, r4, f32, (r1)
  FreeTensor r5
  FreeStorage r3
  Ret r1
}
)" + std::string(kScalarEntry),
       options);
  const std::vector<float> data(300'000);
  // The first of the two fails, the second, none.
  for (int64_t n : {300'000, 150'000, 1'000}) {
    if (n > 100'000)
      failure({{{n}, data}}, Status::kExhausted);
    else
      EXPECT_THAT(run({{{n}, data}})[0].integers, ElementsAre(n));
    EXPECT_EQ(session_->live_objects(), 0u);
    EXPECT_EQ(session_->memory().in_use, uint64_t{64} << 10) << "the heap's slab";
  }
}

// Large enough to be copied by several threads, of which there are none to be had.
TEST_F(Faults, LargeConstantsNeedNoThreads) {
  for (uint64_t n = 1; n <= 2; ++n) {
    exec::Executable e = exec::assemble(std::string(kAddKernel) + kAddModel);
    const auto bytes = std::make_shared<std::vector<uint8_t>>((9 << 20) + 4);
    for (size_t i = 0; i < bytes->size(); ++i) (*bytes)[i] = static_cast<uint8_t>(i * 31 >> 7);
    e.constants[0].shape = {static_cast<int64_t>(bytes->size() / 4)};
    e.constants[0].bytes = *bytes;
    e.constants[0].owner = bytes;
    e.constants[0].hot = true;
    const FailCall fail(SystemCall::kCreateThread, n, true);
    const auto model = Model::load(std::move(e), {}, "test");
    EXPECT_EQ(std::memcmp(model->constant_data(0), bytes->data(), bytes->size()), 0);
  }
}

TEST_F(Faults, ASessionHasTheThreadsThatTheSystemStarts) {
  session_.reset();
  load(std::string(kAddKernel) + kAddModel);
  session_.reset();
  const FailCall fail(SystemCall::kCreateThread, 2, true);
  session_ = std::make_unique<Session>(model_, SessionOptions{4});
  EXPECT_TRUE(fail.failed());
  EXPECT_EQ(session_->threads(), 2);
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
}

}  // namespace
}  // namespace nimble::rt
