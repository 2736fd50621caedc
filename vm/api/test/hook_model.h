// A model whose kernel calls back, so that a test can act in the midst of a run: main(x (n)) ->
// (y = x); the kernel meets at a barrier on all threads, then thread 0 calls the hook. spin(x)
// never ends.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "vm/api/nimble.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"
#include "vm/library/registry.h"

namespace nimble {

inline std::function<void()> hook;

inline nimble_model* load_hook_model() {
  static const bool registered = [] {
    rt::LibraryKernel kernel;
    kernel.name = "test.hook";
    kernel.kind = exec::ImplementationKind::kHost;
    kernel.check = [](const exec::KernelContract&) { return std::string(); };
    kernel.run = [](const rt::LibraryCall& call, int32_t thread, int32_t, nimble_barrier* barrier) {
      barrier->wait(barrier, thread);
      if (thread != 0) return;
      size_t bytes = sizeof(float);
      for (const int64_t extent : call.tensors[0].shape) bytes *= static_cast<size_t>(extent);
      std::memcpy(call.tensors[1].data, call.tensors[0].data, bytes);
      if (hook) hook();
    };
    rt::add_library_kernel(kernel);
    return true;
  }();
  (void)registered;
  const auto bytes = exec::serialize(exec::assemble(R"(
scalar "bytes" [a0 4 *]
kernel "hook" {
  source "hook"
  symbols n
  in f32 ([a0])
  out f32 ([a0])
  dispatch { 0: 0 }
  host "test.hook"
}
function "main" 1 6 {
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  AllocStorage r3, r2, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1)
  InvokePacked k"hook", (r0, r5)
  Ret r5
}
function "spin" 1 1 {
  Goto @0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
entry "spin" f1 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)"));
  nimble_model* model = nullptr;
  EXPECT_EQ(nimble_load_memory(bytes.data(), bytes.size(), nullptr, &model), NIMBLE_OK)
      << nimble_last_error();
  return model;
}

// A model, a session of two threads and an input.
class HookModel : public ::testing::Test {
 protected:
  void SetUp() override {
    hook = nullptr;
    model_ = load_hook_model();
    session_ = session();
    input_ = NIMBLE_TENSOR_INIT;
    input_.data = const_cast<float*>(x_);
    input_.dtype = NIMBLE_F32;
    input_.shape = &three_;
    input_.rank = 1;
  }
  void TearDown() override {
    hook = nullptr;
    nimble_session_destroy(session_);
    nimble_model_destroy(model_);
  }
  nimble_session* session() const {
    nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
    options.threads = 2;
    nimble_session* made = nullptr;
    EXPECT_EQ(nimble_session_create(model_, &options, &made), NIMBLE_OK) << nimble_last_error();
    return made;
  }
  // A run whose result, if there is one, is right.
  nimble_status run(nimble_session* on, const char* entry = "main") const {
    nimble_tensor output = NIMBLE_TENSOR_INIT;
    const nimble_status status = nimble_session_run(on, entry, nullptr, &input_, 1, &output, 1);
    if (status == NIMBLE_OK) {
      EXPECT_EQ(std::memcmp(output.data, x_, sizeof x_), 0);
    }
    nimble_tensor_release(&output);
    return status;
  }
  nimble_status start() const {
    return nimble_session_start(session_, "main", nullptr, &input_, 1);
  }
  nimble_status resume(uint64_t instructions = 0) const {
    nimble_tensor output = NIMBLE_TENSOR_INIT;
    const nimble_status status = nimble_session_resume(session_, instructions, &output, 1);
    nimble_tensor_release(&output);
    return status;
  }
  static nimble_run_position position(const nimble_session* of) {
    nimble_run_position p = NIMBLE_RUN_POSITION_INIT;
    EXPECT_EQ(nimble_session_position(of, &p), NIMBLE_OK);
    return p;
  }
  static nimble_memory_stats memory(const nimble_session* of) {
    nimble_memory_stats m = NIMBLE_MEMORY_STATS_INIT;
    EXPECT_EQ(nimble_session_memory(of, &m), NIMBLE_OK);
    return m;
  }

  nimble_model* model_ = nullptr;
  nimble_session* session_ = nullptr;
  nimble_tensor input_;
  const float x_[3] = {1, 2, 3};
  const int64_t three_ = 3;
};

}  // namespace nimble
