// Fault loops over the whole life of a model through the C interface: the n-th call of operator
// new, or of one system call, fails, for n = 1, 2, 3 … until a life no longer makes so many. Each
// ends in success or in a status and a message, never in a crash, and leaves nothing behind.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "vm/api/nimble.h"
#include "vm/base/fault/failing_calls.h"
#include "vm/base/fault/failing_new.h"
#include "vm/base/file.h"
#include "vm/executable/assembler.h"
#include "vm/executable/reader.h"
#include "vm/executable/writer.h"

namespace {

using nimble::FailCall;
using nimble::FailNew;
using nimble::SystemCall;

// main(l: List[(i64, Tensor[(n), f32])], x (n)) -> (l, Cons((300, y), l), y) for y = 3 x by native
// code on several threads; scaled(x (n)) -> (y, w).
constexpr char kModel[] = R"ASM(
constant "w" f32 [3] hot { 10, 20, 30 }
scalar "bytes" [a0 4 *]
kernel "scale" {
  source "scale"
  symbols n
  in f32 ([a0])
  out f32 ([a0])
  dispatch { 0: 0 }
  native "scale"
}
function "scale" 1 6 {
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  AllocStorage r3, r2, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1)
  InvokePacked k"scale", (r0, r5)
  Ret r5
}
function "main" 2 7 {
  Invoke r2, f"scale", (r1)
  LoadConsti r3, 300
  AllocADT r4, 0, (r3, r2)
  AllocADT r5, 1, (r4, r0)
  AllocADT r6, 0, (r0, r5, r2)
  Ret r6
}
function "scaled" 1 4 {
  Invoke r1, f"scale", (r0)
  LoadConst r2, c"w"
  AllocADT r3, 0, (r1, r2)
  Ret r3
}
type "List" data { "Nil" () "Cons" (1, 0) }
type "(i64, Tensor[(n), f32])" tuple (2, 3)
type "i64" scalar i64
type "Tensor[(n), f32]" tensor f32 ["n"] [-1]
entry "main" f1 {
  input "l" type 0
  input "x" f32 ["n"] [-1]
  output "same" type 0
  output "longer" type 0
  output "y" f32 ["n"] [-1]
}
entry "scaled" f2 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
  output "w" f32 ["3"] [3]
}
)ASM";

// All that a life holds. It asks for no memory itself, which might be made to fail.
struct Life {
  ~Life() {
    for (nimble_value* v : values) nimble_value_release(v);
    for (nimble_tensor& t : tensors) nimble_tensor_release(&t);
    nimble_call_destroy(call);
    nimble_session_destroy(session);
    nimble_model_destroy(model);
  }
  nimble_call* call = nullptr;
  nimble_model* model = nullptr;
  nimble_session* session = nullptr;
  nimble_value* values[16] = {};
  nimble_tensor tensors[2] = {NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT};
};

bool wrong = false;  // some result

void expect_scaled(const void* data) {
  const float y[] = {3, 6, 9};
  wrong |= !data || std::memcmp(data, y, sizeof y) != 0;
}

#define STEP(call) \
  if (const nimble_status step = (call); step != NIMBLE_OK) return step

nimble_status live(const char* path) {
  Life life;
  nimble_load_options trust = NIMBLE_LOAD_OPTIONS_INIT;
  trust.trust = 1;
  STEP(nimble_load(path, &trust, &life.model));
  nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
  options.threads = 2;
  options.profile = 1;
  options.record_shapes = 1;
  STEP(nimble_session_create(life.model, &options, &life.session));
  nimble_session* const s = life.session;
  wrong |= nimble_session_threads(s) < 1 || nimble_session_threads(s) > 2;

  // [(7, x), (7, x)], whose cells share their pair.
  const float x[] = {1, 0, 2, 0, 3, 0};
  const int64_t three = 3, two = 2, seven = 7;
  nimble_tensor strided = NIMBLE_TENSOR_INIT, dense = NIMBLE_TENSOR_INIT, number = dense;
  const float packed[] = {1, 2, 3};
  strided.data = const_cast<float*>(x);
  dense.data = const_cast<float*>(packed);
  strided.dtype = dense.dtype = NIMBLE_F32;
  strided.rank = dense.rank = 1;
  strided.shape = dense.shape = &three;
  strided.strides = &two;
  number.data = const_cast<int64_t*>(&seven);
  number.dtype = NIMBLE_I64;
  nimble_value** v = life.values;
  STEP(nimble_value_from_tensor(&number, &v[0]));
  STEP(nimble_value_from_tensor(&dense, &v[1]));
  STEP(nimble_value_from_fields(0, v, 2, &v[2]));
  STEP(nimble_value_from_fields(0, nullptr, 0, &v[3]));
  STEP(nimble_value_from_fields(1, &v[2], 2, &v[4]));
  const nimble_value* again[] = {v[2], v[4]};
  STEP(nimble_value_from_fields(1, again, 2, &v[5]));
  const nimble_value* inputs[] = {v[5], v[1]};
  for (int i = 0; i < 2; ++i) {
    nimble_value* outputs[3] = {};
    STEP(nimble_session_run_values(s, "main", nullptr, inputs, 2, outputs, 3));
    for (int k = 0; k < 3; ++k) v[6 + 3 * i + k] = outputs[k];
    nimble_tensor y = NIMBLE_TENSOR_INIT;
    STEP(nimble_value_tensor(outputs[2], &y));
    expect_scaled(y.data);
    wrong |= nimble_value_field_count(outputs[1]) != 2;
  }

  const char* name = "x";
  STEP(nimble_session_run(s, "scaled", &name, &strided, 1, life.tensors, 2));
  expect_scaled(life.tensors[0].data);
  float own[3] = {};
  nimble_tensor to = NIMBLE_TENSOR_INIT;
  to.data = own;
  to.capacity = sizeof own;
  STEP(nimble_session_start(s, "scaled", nullptr, &dense, 1));
  nimble_status status;
  while ((status = nimble_session_resume(s, 3, &to, 1)) == NIMBLE_SUSPENDED) {
    nimble_run_position at = NIMBLE_RUN_POSITION_INIT;
    STEP(nimble_session_position(s, &at));
  }
  STEP(status);
  nimble_tensor_release(&to);
  to.data = own;
  expect_scaled(own);
  STEP(nimble_call_prepare(s, "scaled", &name, 1, 1, &life.call));
  for (int i = 0; i < 2; ++i) {
    own[0] = 0;
    STEP(nimble_call_run(life.call, &dense, &to));
    expect_scaled(own);
    nimble_tensor_release(&to);
    to.data = own;
  }
  (void)nimble_session_profile_json(s);
  (void)nimble_session_shapes_json(s);
  nimble_session_trim(s);
  return NIMBLE_OK;
}

class ApiFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "faults." + std::to_string(::getpid()) + ".nimble";
    nimble::exec::Executable e = nimble::exec::assemble(kModel);
    const auto image = std::make_shared<std::vector<uint8_t>>(
        nimble::read_file(std::string(NIMBLE_FIXTURE_DIR) + "/good.so"));
    e.images.push_back({"x86-64", {}, *image, image});
    nimble::exec::write(e, path_);
    // What the process makes once: tables, messages, caches.
    EXPECT_EQ(live("/no/such/model/of/a/long/enough/name.nimble"), NIMBLE_NOT_FOUND);
    ASSERT_EQ(live(path_.c_str()), NIMBLE_OK) << nimble_last_error();
  }
  void TearDown() override { std::remove(path_.c_str()); }

  // `fail(n, body)` runs body with its n-th request failing, and tells whether it came to that.
  // Returns the number of requests.
  int loop(const std::function<bool(uint64_t, const std::function<void()>&)>& fail) {
    wrong = false;
    for (int n = 1;; ++n) {
      SCOPED_TRACE("request " + std::to_string(n));
      const nimble::SystemBalance balance = nimble::system_balance();
      const int64_t news = nimble::live_news();
      nimble_status status = NIMBLE_OK;
      const std::function<void()> body = [&] { status = live(path_.c_str()); };
      const bool failed = fail(static_cast<uint64_t>(n), body);
      EXPECT_EQ(nimble::live_news(), news);
      EXPECT_EQ(nimble::system_balance(), balance);
      EXPECT_FALSE(wrong);
      if (!failed) {
        EXPECT_EQ(status, NIMBLE_OK) << nimble_last_error();
        return n - 1;
      }
      if (status != NIMBLE_OK) {
        EXPECT_NE(status, NIMBLE_INTERNAL) << nimble_last_error();
        EXPECT_STRNE(nimble_last_error(), "");
      }
      EXPECT_EQ(live(path_.c_str()), NIMBLE_OK) << nimble_last_error();
      if (::testing::Test::HasFailure()) return n;
    }
  }
  std::string path_;
};

TEST_F(ApiFaults, EachCallOfNew) {
  for (const bool all_later : {false, true}) {
    const int n = loop([&](uint64_t at, const std::function<void()>& body) {
      const FailNew fail(at, all_later);
      body();
      return fail.failed();
    });
    EXPECT_GT(n, 100);
  }
}

TEST_F(ApiFaults, EachSystemCall) {
  int calls = 0;
  for (const SystemCall call : nimble::all_system_calls()) {
    SCOPED_TRACE(std::string(name_of(call)));
    for (const bool all_later : {false, true})
      calls += loop([&](uint64_t at, const std::function<void()>& body) {
        const FailCall fail(call, at, all_later);
        body();
        return fail.failed();
      });
  }
  EXPECT_GT(calls, 10);
}

// A model that cannot be written over is as it was.
TEST_F(ApiFaults, WritingAModel) {
  const nimble::exec::Executable model = nimble::exec::read(path_);
  int faults = 0;
  const auto loop = [&](const auto& under_fault) {
    for (uint64_t n = 1;; ++n, ++faults) {
      const nimble::SystemBalance balance = nimble::system_balance();
      const bool failed = under_fault(n, [&] {
        try {
          nimble::exec::write(model, path_);
        } catch (const std::bad_alloc&) {
        } catch (const nimble::Error& e) {
          EXPECT_EQ(e.status(), nimble::Status::kIo) << e.what();
        }
      });
      EXPECT_EQ(nimble::system_balance(), balance);
      EXPECT_EQ(live(path_.c_str()), NIMBLE_OK) << nimble_last_error();
      if (!failed || HasFailure()) return;
    }
  };
  loop([](uint64_t n, const auto& body) {
    const FailNew fail(n);
    body();
    return fail.failed();
  });
  for (const SystemCall call : nimble::all_system_calls())
    loop([&](uint64_t n, const auto& body) {
      const FailCall fail(call, n);
      body();
      return fail.failed();
    });
  EXPECT_GT(faults, 20);
}

// With no threads to be had a session has fewer, and says so.
TEST_F(ApiFaults, WithoutThreadsASessionHasOne) {
  Life life;
  nimble_load_options trust = NIMBLE_LOAD_OPTIONS_INIT;
  trust.trust = 1;
  ASSERT_EQ(nimble_load(path_.c_str(), &trust, &life.model), NIMBLE_OK);
  nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
  options.threads = 4;
  for (const int started : {0, 1, 2}) {
    const FailCall fail(SystemCall::kCreateThread, static_cast<uint64_t>(started) + 1, true);
    nimble_session* session = nullptr;
    ASSERT_EQ(nimble_session_create(life.model, &options, &session), NIMBLE_OK);
    EXPECT_TRUE(fail.failed());
    EXPECT_EQ(nimble_session_threads(session), started + 1);
    const float x[] = {1, 2, 3};
    const int64_t three = 3;
    nimble_tensor in = NIMBLE_TENSOR_INIT, out = NIMBLE_TENSOR_INIT;
    in.data = const_cast<float*>(x);
    in.dtype = NIMBLE_F32;
    in.rank = 1;
    in.shape = &three;
    ASSERT_EQ(nimble_session_run(session, "scaled", nullptr, &in, 1, &out, 1), NIMBLE_OK);
    expect_scaled(out.data);
    EXPECT_FALSE(wrong);
    nimble_tensor_release(&out);
    nimble_session_destroy(session);
  }
}

// Freeing must not need what there is none of.
TEST(ValueFaults, ATreeDiesWithoutMemory) {
  const int64_t news = nimble::live_news();
  const int64_t one = 1;
  nimble_tensor t = NIMBLE_TENSOR_INIT;
  t.data = const_cast<int64_t*>(&one);
  t.dtype = NIMBLE_I64;
  nimble_value* list = nullptr;
  ASSERT_EQ(nimble_value_from_fields(0, nullptr, 0, &list), NIMBLE_OK);
  for (int i = 0; i < 1000; ++i) {
    nimble_value *number = nullptr, *longer = nullptr;
    ASSERT_EQ(nimble_value_from_tensor(&t, &number), NIMBLE_OK);
    const nimble_value* fields[] = {number, list, number};
    ASSERT_EQ(nimble_value_from_fields(1, fields, 3, &longer), NIMBLE_OK);
    nimble_value_release(number);
    nimble_value_release(list);
    list = longer;
  }
  const FailNew fail(1, true);
  nimble_value_release(list);
  EXPECT_FALSE(fail.failed());
  EXPECT_EQ(nimble::live_news(), news);
}

}  // namespace
