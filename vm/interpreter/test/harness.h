// A session on bytecode written by hand, with kernels that need no compiler.
#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "vm/base/error.h"
#include "vm/executable/assembler.h"
#include "vm/interpreter/session.h"

namespace nimble::rt {

// y = a + b, element by element, split over the threads. Scratch, if asked for, is written.
inline void run_add(const LibraryCall& call, int32_t thread, int32_t threads,
                    nimble_barrier* barrier) {
  const auto* a = static_cast<const float*>(call.tensors[0].data);
  const auto* b = static_cast<const float*>(call.tensors[1].data);
  auto* y = static_cast<float*>(call.tensors[2].data);
  int64_t n = 1;
  for (int64_t extent : call.tensors[2].shape) n *= extent;
  if (call.scratch) static_cast<int32_t*>(call.scratch)[thread] = threads;
  barrier->wait(barrier, thread);
  for (int64_t i = n * thread / threads; i < n * (thread + 1) / threads; ++i) y[i] = a[i] + b[i];
}

inline std::string accept(const exec::KernelContract&) {
  return {};
}

inline void register_kernels() {
  static const bool once = [] {
    using Kind = exec::ImplementationKind;
    add_library_kernel({"test.add", Kind::kHost, "a, b -> y", "Adds.", accept, nullptr, run_add});
    add_library_kernel(
        {"test.threads", Kind::kHost, "-> y i64 (1)", "Threads of the region.", accept, nullptr,
         [](const LibraryCall& call, int32_t thread, int32_t threads, nimble_barrier*) {
           if (thread == 0) *static_cast<int64_t*>(call.tensors[0].data) = threads;
         }});
    add_library_kernel(
        {"test.fail", Kind::kHost, "x -> y", "Fails on its last thread.", accept, nullptr,
         [](const LibraryCall&, int32_t thread, int32_t threads, nimble_barrier* barrier) {
           if (thread + 1 == threads) throw Error(Status::kFatal, "", "index 9 is out of range");
           barrier->wait(barrier, thread);
         }});
    add_library_kernel({"test.vendor", Kind::kVendor, "a, b -> y", "Never there.", accept,
                        [] { return std::string("libnothing.so is not installed"); }, run_add});
    return true;
  }();
  (void)once;
}

struct Result {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<float> floats;
  std::vector<int64_t> integers;
};

struct Input {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

class Interpreter : public ::testing::Test {
 protected:
  void SetUp() override { register_kernels(); }

  void load(const std::string& text, SessionOptions options = {}, bool trust = false) {
    if (options.threads == 0) options.threads = 2;
    session_.reset();
    LoadOptions load_options;
    load_options.trust = trust;
    model_ = Model::load(exec::assemble(text), load_options, "test");
    session_ = std::make_unique<Session>(model_, options);
  }

  std::vector<Result> run(const std::vector<Input>& inputs, size_t outputs = 1,
                          const std::string& entry = "main") {
    std::vector<InputTensor> in;
    for (const Input& i : inputs) in.push_back({i.values.data(), DType::kF32, i.shape, {}, true});
    std::vector<OutputTensor> out(outputs);
    session_->run(session_->find_entry(entry), in, out);
    std::vector<Result> results;
    for (const OutputTensor& o : out) {
      Result r{o.dtype, {o.shape().begin(), o.shape().end()}, {}, {}};
      const int64_t n =
          std::accumulate(r.shape.begin(), r.shape.end(), int64_t{1}, std::multiplies<>());
      for (int64_t i = 0; i < n; ++i) {
        if (o.dtype == DType::kF32) r.floats.push_back(static_cast<const float*>(o.data)[i]);
        if (o.dtype == DType::kI64) r.integers.push_back(static_cast<const int64_t*>(o.data)[i]);
      }
      results.push_back(std::move(r));
    }
    return results;
  }

  std::string failure(const std::vector<Input>& inputs, Status status = Status::kFatal) {
    try {
      run(inputs);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      return e.what();
    }
    return "no failure";
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_;
};

inline constexpr char kAddKernel[] = R"(
scalar "bytes" [a0 4 *]
kernel "add" {
  source "add"
  symbols n
  in f32 ([a0])
  in f32 ([a0])
  out f32 ([a0])
  dispatch { 0: 0 }
  host "test.add"
}
)";

inline constexpr char kScalarEntry[] = R"(
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" i64 [] []
}
)";

inline constexpr char kAddModel[] = R"(
constant "w" f32 [3] { 10, 20, 30 }
function "main" 1 6 {
  .note "add at /layer/Add"
  LoadConst r1, c"w"
  ShapeOf r2, 1, r0
  Invoke r3, f"bytes", (r2)
  AllocStorage r3, r3, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r2)
  InvokePacked k"add", (r0, r1, r5)
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";

}  // namespace nimble::rt
