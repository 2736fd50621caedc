#include <gmock/gmock.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "vm/api/nimble.h"
#include "vm/api/nimble.hpp"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace {

using ::testing::HasSubstr;

// main(x (n, 2), w (n, 2) default ones) -> (copy of x, copy of w); spin() never ends.
constexpr char kModel[] = R"(
scalar "bytes" [a0 8 *]
kernel "copy" {
  source "copy"
  symbols n
  in f32 ([a0], [2])
  out f32 ([a0], [2])
  dispatch { 0: 0 }
  host "host.copy"
}
function "copied" 1 7 {
  ShapeOf r1, 2, r0
  Invoke r3, f"bytes", (r1)
  AllocStorage r4, r3, 64, d0
  LoadConsti r5, 0
  AllocTensorReg r6, r4, r5, f32, (r1, r2)
  InvokePacked k"copy", (r0, r6)
  Ret r6
}
function "main" 2 5 {
  Invoke r2, f"copied", (r0)
  Invoke r3, f"copied", (r1)
  AllocADT r4, 0, (r2, r3)
  Ret r4
}
function "spin" 1 1 {
  Goto @0
}
entry "main" f1 {
  input "x" f32 ["n", "2"] [-1, 2]
  input "weights" f32 ["n", "2"] [-1, 2] default "ones"
  output "y" f32 ["n", "2"] [-1, 2]
  output "z" f32 ["n", "2"] [-1, 2]
}
entry "spin" f2 {
  input "x" f32 ["?"] [-1]
  output "y" f32 ["?"] [-1]
}
)";

nimble_model* load() {
  const auto bytes = nimble::exec::serialize(nimble::exec::assemble(kModel));
  nimble_model* model = nullptr;
  EXPECT_EQ(nimble_load_memory(bytes.data(), bytes.size(), nullptr, &model), NIMBLE_OK)
      << nimble_last_error();
  return model;
}

nimble_tensor tensor(float* data, const std::vector<int64_t>& shape) {
  nimble_tensor t = NIMBLE_TENSOR_INIT;
  t.data = data;
  t.dtype = NIMBLE_F32;
  t.shape = shape.data();
  t.rank = static_cast<int32_t>(shape.size());
  return t;
}

class Api : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load();
    nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
    options.threads = 2;
    ASSERT_EQ(nimble_session_create(model_, &options, &session_), NIMBLE_OK);
  }
  void TearDown() override {
    nimble_session_destroy(session_);
    nimble_model_destroy(model_);
  }
  nimble_model* model_ = nullptr;
  nimble_session* session_ = nullptr;
};

TEST_F(Api, DescribesTheModel) {
  EXPECT_EQ(nimble_api_version(), uint32_t{NIMBLE_API_VERSION});
  EXPECT_EQ(nimble_model_entry_count(model_), 2);
  EXPECT_STREQ(nimble_model_entry_name(model_, 1), "spin");
  EXPECT_EQ(nimble_model_entry_name(model_, 2), nullptr);
  EXPECT_EQ(nimble_model_find_entry(model_, nullptr), 0);
  EXPECT_EQ(nimble_model_find_entry(model_, "none"), -1);
  EXPECT_EQ(nimble_model_input_count(model_, 0), 2);
  EXPECT_EQ(nimble_model_output_count(model_, 0), 2);
  nimble_port port = NIMBLE_PORT_INIT;
  ASSERT_EQ(nimble_model_input(model_, 0, 1, &port), NIMBLE_OK);
  EXPECT_STREQ(port.name, "weights");
  EXPECT_STREQ(port.dims[0], "n");
  EXPECT_EQ(port.extents[0], -1);
  EXPECT_EQ(port.extents[1], 2);
  EXPECT_STREQ(port.default_fill, "ones");
  EXPECT_EQ(nimble_model_input(model_, 0, 2, &port), NIMBLE_NOT_FOUND);
  EXPECT_THAT(nimble_model_info(model_), HasSubstr("\"notes\""));
  EXPECT_STREQ(nimble_dtype_name(NIMBLE_BF16), "bf16");
  EXPECT_EQ(nimble_dtype_size(99), 0u);
}

TEST_F(Api, RunsByNameAndByPosition) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, w = {9, 8, 7, 6, 5, 4};
  const std::vector<int64_t> shape = {3, 2};
  nimble_tensor inputs[] = {tensor(w.data(), shape), tensor(x.data(), shape)};
  const char* names[] = {"weights", "x"};
  nimble_tensor outputs[] = {NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT};
  ASSERT_EQ(nimble_session_run(session_, "main", names, inputs, 2, outputs, 2), NIMBLE_OK)
      << nimble_last_error();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(static_cast<float*>(outputs[0].data)[i], x[i]);
    EXPECT_EQ(static_cast<float*>(outputs[1].data)[i], w[i]);
  }
  EXPECT_EQ(outputs[0].shape[0], 3);
  EXPECT_EQ(outputs[0].strides[0], 2);
  nimble_tensor_release(&outputs[0]);
  nimble_tensor_release(&outputs[1]);
  nimble_tensor_release(&outputs[1]);  // twice is harmless

  // By position, the default for the second; the outputs beyond the first are dropped.
  ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &inputs[1], 1, outputs, 1), NIMBLE_OK);
  EXPECT_EQ(static_cast<float*>(outputs[0].data)[5], 6.0f);
  nimble_tensor_release(&outputs[0]);
}

TEST_F(Api, OutputsOutliveSessionAndLaterRuns) {
  std::vector<float> x = {1, 2};
  const std::vector<int64_t> shape = {1, 2};
  const nimble_tensor input = tensor(x.data(), shape);
  std::vector<nimble_tensor> kept(20, nimble_tensor NIMBLE_TENSOR_INIT);
  for (int i = 0; i < 20; ++i) {
    x[0] = static_cast<float>(i);
    ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &input, 1, &kept[i], 1), NIMBLE_OK);
  }
  nimble_memory_stats stats = NIMBLE_MEMORY_STATS_INIT;
  ASSERT_EQ(nimble_session_memory(session_, &stats), NIMBLE_OK);
  EXPECT_GE(stats.in_use, 20u * 8);
  nimble_session_destroy(session_);
  session_ = nullptr;
  nimble_model_destroy(model_);
  model_ = nullptr;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(static_cast<float*>(kept[i].data)[0], static_cast<float>(i));
    std::thread([&] { nimble_tensor_release(&kept[i]); }).join();
  }
}

TEST_F(Api, WritesToCallersBuffers) {
  std::vector<float> x = {1, 2, 3, 4}, y(6, -1.0f);
  const std::vector<int64_t> shape = {2, 2};
  const nimble_tensor input = tensor(x.data(), shape);
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  output.data = y.data();
  output.byte_offset = 4;
  output.capacity = 16;
  ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &input, 1, &output, 1), NIMBLE_OK);
  EXPECT_THAT(y, ::testing::ElementsAre(-1, 1, 2, 3, 4, -1));
  EXPECT_EQ(output.data, y.data());
  EXPECT_EQ(output.shape[0], 2);
  nimble_tensor_release(&output);
  output = nimble_tensor NIMBLE_TENSOR_INIT;
  output.data = y.data();
  output.capacity = 15;
  EXPECT_EQ(nimble_session_run(session_, nullptr, nullptr, &input, 1, &output, 1),
            NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("16 bytes"));
}

TEST_F(Api, TakesStridedAndUnalignedInputs) {
  float columns[] = {1, 2, 3, 10, 20, 30};  // (3, 2) column-major
  const int64_t shape[] = {3, 2}, strides[] = {1, 3};
  nimble_tensor input = NIMBLE_TENSOR_INIT;
  input.data = columns;
  input.dtype = NIMBLE_F32;
  input.rank = 2;
  input.shape = shape;
  input.strides = strides;
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &input, 1, &output, 1), NIMBLE_OK);
  const float* y = static_cast<float*>(output.data);
  EXPECT_THAT(std::vector<float>(y, y + 6), ::testing::ElementsAre(1, 10, 2, 20, 3, 30));
  nimble_tensor_release(&output);

  std::vector<char> bytes(25);
  std::memcpy(bytes.data() + 1, columns, 24);
  input.data = bytes.data();
  input.byte_offset = 1;
  input.strides = nullptr;
  ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &input, 1, &output, 1), NIMBLE_OK);
  EXPECT_EQ(static_cast<float*>(output.data)[5], 30.0f);
  nimble_tensor_release(&output);
}

TEST_F(Api, RefusesBadInputInOneLine) {
  std::vector<float> x(8, 1.0f);
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  auto fails = [&](const char* name, nimble_tensor input, nimble_status status, const char* text) {
    EXPECT_EQ(nimble_session_run(session_, "main", &name, &input, 1, &output, 1), status);
    EXPECT_THAT(nimble_last_error(), HasSubstr(text));
    EXPECT_EQ(std::string(nimble_last_error()).find('\n'), std::string::npos);
    EXPECT_EQ(output.data, nullptr);
  };
  const std::vector<int64_t> good = {4, 2}, wide = {2, 4}, flat = {8}, negative = {-4, 2};
  fails("weigths", tensor(x.data(), good), NIMBLE_NOT_FOUND, "did you mean weights");
  fails("weights", tensor(x.data(), good), NIMBLE_INVALID_ARGUMENT, "input x");
  fails("x", tensor(x.data(), wide), NIMBLE_INVALID_ARGUMENT, "dim 1 is 4, not 2");
  fails("x", tensor(x.data(), flat), NIMBLE_INVALID_ARGUMENT, "1 dims, not 2");
  fails("x", tensor(x.data(), negative), NIMBLE_INVALID_ARGUMENT, "negative");
  fails("x", tensor(nullptr, good), NIMBLE_INVALID_ARGUMENT, "no data");
  nimble_tensor wrong = tensor(x.data(), good);
  wrong.dtype = NIMBLE_I64;
  fails("x", wrong, NIMBLE_INVALID_ARGUMENT, "it is i64, not f32");
  wrong.dtype = 77;
  fails("x", wrong, NIMBLE_INVALID_ARGUMENT, "dtype 77");
  wrong.struct_size = 0;
  fails("x", wrong, NIMBLE_INVALID_ARGUMENT, "struct_size");
  EXPECT_EQ(nimble_session_run(session_, "mian", nullptr, nullptr, 0, &output, 1),
            NIMBLE_NOT_FOUND);
  const nimble_tensor both[] = {tensor(x.data(), good), tensor(x.data(), good)};
  const std::vector<int64_t> shorter = {3, 2};
  const nimble_tensor uneven[] = {tensor(x.data(), good), tensor(x.data(), shorter)};
  EXPECT_EQ(nimble_session_run(session_, nullptr, nullptr, uneven, 2, &output, 1),
            NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("dim 0 (n) is 3, but dim 0 of x makes it 4"));
  const char* twice[] = {"x", "x"};
  EXPECT_EQ(nimble_session_run(session_, nullptr, twice, both, 2, &output, 1),
            NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_session_run(nullptr, nullptr, nullptr, nullptr, 0, nullptr, 0),
            NIMBLE_INVALID_ARGUMENT);
  nimble_model* none = nullptr;
  EXPECT_EQ(nimble_load("/nowhere/m.nimble", nullptr, &none), NIMBLE_NOT_FOUND);
  EXPECT_EQ(none, nullptr);
  EXPECT_THAT(nimble_last_error(), HasSubstr("/nowhere/m.nimble"));
}

TEST_F(Api, OlderCallersStructsAreFilledUp) {
  nimble_session_options old = NIMBLE_SESSION_OPTIONS_INIT;
  old.struct_size = offsetof(nimble_session_options, pin);  // knows only `threads`
  old.threads = 1;
  old.memory_limit = 1;  // beyond its size: not read
  nimble_session* session = nullptr;
  ASSERT_EQ(nimble_session_create(model_, &old, &session), NIMBLE_OK) << nimble_last_error();
  EXPECT_EQ(nimble_session_threads(session), 1);
  nimble_session_destroy(session);
  nimble_port port = NIMBLE_PORT_INIT;
  port.struct_size = offsetof(nimble_port, dtype);
  ASSERT_EQ(nimble_model_input(model_, 0, 0, &port), NIMBLE_OK);
  EXPECT_STREQ(port.name, "x");
  EXPECT_EQ(port.rank, 0);
}

TEST_F(Api, LoadingHasLimits) {
  const auto bytes = nimble::exec::serialize(nimble::exec::assemble(kModel));
  nimble_load_options options = NIMBLE_LOAD_OPTIONS_INIT;
  auto load_with = [&] {
    nimble_model* model = nullptr;
    const nimble_status status = nimble_load_memory(bytes.data(), bytes.size(), &options, &model);
    EXPECT_EQ(model != nullptr, status == NIMBLE_OK);
    nimble_model_destroy(model);
    return status;
  };
  for (const int32_t trust : {0, 1}) {
    options.trust = trust;
    options.memory_limit = 0;
    EXPECT_EQ(load_with(), NIMBLE_OK);
    options.memory_limit = UINT64_MAX;
    EXPECT_EQ(load_with(), NIMBLE_OK);
    options.memory_limit = bytes.size() + 100;
    EXPECT_EQ(load_with(), NIMBLE_EXHAUSTED);
    EXPECT_THAT(nimble_last_error(), HasSubstr("memory_limit in the load options"));
  }
  // A caller from before the limits has a struct without them, and the defaults.
  options.struct_size = offsetof(nimble_load_options, memory_limit);
  EXPECT_EQ(load_with(), NIMBLE_OK);
}

// Of a version to come: what it adds is refused where it is set, as the caller would wait in vain.
TEST_F(Api, NewerCallersAreToldWhatIsNotKnown) {
  struct {
    nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
    uint64_t later = 0;
  } newer;
  newer.options.struct_size = sizeof newer;
  newer.options.threads = 1;
  nimble_session* session = nullptr;
  ASSERT_EQ(nimble_session_create(model_, &newer.options, &session), NIMBLE_OK)
      << nimble_last_error();
  nimble_session_destroy(session);
  newer.later = uint64_t{1} << 63;
  EXPECT_EQ(nimble_session_create(model_, &newer.options, &session), NIMBLE_UNSUPPORTED);
  EXPECT_THAT(nimble_last_error(), HasSubstr("beyond the 48 bytes"));
  newer.options.struct_size = uint64_t{1} << 40;  // nobody has set it
  EXPECT_EQ(nimble_session_create(model_, &newer.options, &session), NIMBLE_INVALID_ARGUMENT);

  // Arrays: each element as large as the first, and what lies behind ours is left alone.
  struct Later {
    nimble_tensor tensor = NIMBLE_TENSOR_INIT;
    uint64_t later = 0;
  } in[2], out[2];
  std::vector<float> x = {1, 2, 3, 4};
  const std::vector<int64_t> shape = {2, 2};
  for (Later& t : in) t.tensor = tensor(x.data(), shape);
  for (Later* t : {&in[0], &in[1], &out[0], &out[1]}) t->tensor.struct_size = sizeof *t;
  auto run = [&] {
    return nimble_session_run(session_, nullptr, nullptr, &in[0].tensor, 2, &out[0].tensor, 2);
  };
  ASSERT_EQ(run(), NIMBLE_OK) << nimble_last_error();
  for (Later& t : out) {
    EXPECT_EQ(static_cast<float*>(t.tensor.data)[3], 4.0f);
    EXPECT_EQ(t.tensor.struct_size, sizeof t);
    EXPECT_EQ(t.later, 0u);
    nimble_tensor_release(&t.tensor);
  }
  in[1].later = 1;
  EXPECT_EQ(run(), NIMBLE_UNSUPPORTED);
  in[1].later = 0;
  in[1].tensor.struct_size = sizeof(nimble_tensor);
  EXPECT_EQ(run(), NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("different struct_size"));
}

TEST_F(Api, CancelsARunFromAnotherThread) {
  float x = 0;
  const std::vector<int64_t> shape = {1};
  const nimble_tensor input = tensor(&x, shape);
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  nimble_cancel(session_);  // without a run: nothing
  std::atomic<bool> done{false};
  std::thread canceller([&] {
    while (!done) {
      nimble_cancel(session_);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(nimble_session_run(session_, "spin", nullptr, &input, 1, &output, 1), NIMBLE_CANCELLED);
  done = true;
  canceller.join();
  EXPECT_THAT(nimble_last_error(), HasSubstr("\"spin\", instruction 0: "));
}

nimble_session* signalled = nullptr;

TEST_F(Api, CancelsFromASignalHandler) {
  float x = 0;
  const std::vector<int64_t> shape = {1};
  const nimble_tensor input = tensor(&x, shape);
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  signalled = session_;
  const auto before = std::signal(SIGALRM, [](int) { nimble_cancel(signalled); });
  struct itimerval timer = {{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  EXPECT_EQ(nimble_session_run(session_, "spin", nullptr, &input, 1, &output, 1), NIMBLE_CANCELLED);
  timer = {};
  setitimer(ITIMER_REAL, &timer, nullptr);
  std::signal(SIGALRM, before);
}

TEST_F(Api, RefusesASecondRunOnOneSession) {
  float x = 0;
  const std::vector<int64_t> shape = {1};
  const nimble_tensor input = tensor(&x, shape);
  std::thread runner([&] {
    nimble_tensor output = NIMBLE_TENSOR_INIT;
    nimble_status status = NIMBLE_OK;
    do {  // the calls below may hold the session for a moment
      status = nimble_session_run(session_, "spin", nullptr, &input, 1, &output, 1);
    } while (status == NIMBLE_INVALID_ARGUMENT);
    EXPECT_EQ(status, NIMBLE_CANCELLED);
  });
  std::string text;
  while (text.find("running already") == std::string::npos) {
    nimble_tensor output = NIMBLE_TENSOR_INIT;
    EXPECT_NE(nimble_session_run(session_, "none", nullptr, nullptr, 0, &output, 1), NIMBLE_OK);
    text = nimble_last_error();
    std::this_thread::yield();
  }
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  EXPECT_EQ(nimble_session_resume(session_, 0, &output, 1), NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("running already"));
  nimble_cancel(session_);
  runner.join();
}

TEST_F(Api, ProfilesAndTrims) {
  nimble_session_set_profiling(session_, 1);
  float x[] = {1, 2};
  const std::vector<int64_t> shape = {1, 2};
  const nimble_tensor input = tensor(x, shape);
  for (int i = 0; i < 3; ++i) {
    nimble_tensor output = NIMBLE_TENSOR_INIT;
    ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &input, 1, &output, 1), NIMBLE_OK);
    nimble_tensor_release(&output);
  }
  const std::string json = nimble_session_profile_json(session_);
  EXPECT_THAT(json, HasSubstr("\"runs\":3"));
  EXPECT_THAT(json, HasSubstr("\"implementation\":\"host.copy\""));
  EXPECT_THAT(json, HasSubstr("\"shape\":{\"n\":1}"));
  EXPECT_THAT(nimble_session_profile_table(session_), HasSubstr("copy [n=1]"));
  nimble_session_trim(session_);
}

TEST_F(Api, CountsShapes) {
  const auto run = [](nimble_session* session, int64_t n, bool both) {
    std::vector<float> x(static_cast<size_t>(2 * n), 1);
    const std::vector<int64_t> shape = {n, 2};
    const nimble_tensor inputs[] = {tensor(x.data(), shape), tensor(x.data(), shape)};
    nimble_tensor output = NIMBLE_TENSOR_INIT;
    const nimble_status status =
        nimble_session_run(session, "main", nullptr, inputs, both ? 2 : 1, &output, 1);
    nimble_tensor_release(&output);
    return status;
  };
  EXPECT_EQ(run(session_, 3, true), NIMBLE_OK);
  const std::string nothing =
      "{\"entries\":[{\"further\":0,\"name\":\"main\",\"shapes\":[],\"symbols\":[\"n\"]},"
      "{\"further\":0,\"name\":\"spin\",\"shapes\":[],\"symbols\":[]}]}";
  EXPECT_EQ(nimble_session_shapes_json(session_), nothing) << "it was not asked to record";

  nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
  options.record_shapes = 1;
  nimble_session* session = nullptr;
  ASSERT_EQ(nimble_session_create(model_, &options, &session), NIMBLE_OK);
  EXPECT_EQ(nimble_session_shapes_json(session), nothing);
  for (const int64_t n : {5, 5, 0, 5, 3, 0, 5}) EXPECT_EQ(run(session, n, n == 5), NIMBLE_OK);
  // What is refused is no run.
  float x[] = {1, 2};
  const std::vector<int64_t> wrong = {1, 1};
  const nimble_tensor input = tensor(x, wrong);
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  EXPECT_EQ(nimble_session_run(session, nullptr, nullptr, &input, 1, &output, 1),
            NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_session_shapes_json(session),
              HasSubstr("\"shapes\":[{\"count\":4,\"extents\":[5]},{\"count\":2,\"extents\":[0]},"
                        "{\"count\":1,\"extents\":[3]}]"));
  nimble_session_destroy(session);
  EXPECT_STREQ(nimble_session_shapes_json(nullptr), "");
}

TEST(CppApi, RunsAndThrows) {
  const std::string path = ::testing::TempDir() + "api_test.nimble";
  nimble::exec::write(nimble::exec::assemble(kModel), path);
  const nimble::api::Model model(path);
  EXPECT_EQ(model.entries().size(), 2u);
  EXPECT_EQ(model.inputs()[1].default_fill, "ones");
  nimble::api::Session session(model, {2});
  const float x[] = {1, 2, 3, 4};
  const auto y = session.run({{"x", nimble::api::view(x, {2, 2})}});
  ASSERT_EQ(y.size(), 2u);
  EXPECT_EQ(y[0].data<float>()[3], 4.0f);
  EXPECT_EQ(y[1].data<float>()[0], 1.0f);
  EXPECT_THROW(y[0].data<int64_t>(), std::invalid_argument);
  try {
    session.run({});
    FAIL();
  } catch (const nimble::api::Error& e) {
    EXPECT_EQ(e.status(), NIMBLE_INVALID_ARGUMENT);
    EXPECT_THAT(e.what(), HasSubstr("input x"));
  }
  std::remove(path.c_str());
}

}  // namespace
