#include <gmock/gmock.h>

#include <cmath>

#include "vm/base/error.h"
#include "vm/library/registry.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::DimProgram;
using exec::ImplementationKind;
using ::testing::HasSubstr;

exec::KernelArgument tensor(DType dtype, Access access, std::vector<DimProgram> dims) {
  exec::KernelArgument a;
  a.dtype = dtype;
  a.access = access;
  a.dims = std::move(dims);
  return a;
}

exec::KernelContract matmul_contract(bool bias) {
  const auto m = DimProgram::argument(0), k = DimProgram::argument(1), n = DimProgram::argument(2);
  exec::KernelContract c;
  c.symbols = {"m", "k", "n"};
  c.arguments = {tensor(DType::kF32, Access::kIn, {m, k}),
                 tensor(DType::kF32, Access::kIn, {k, n})};
  if (bias) c.arguments.push_back(tensor(DType::kF32, Access::kIn, {n}));
  c.arguments.push_back(tensor(DType::kF32, Access::kOut, {m, n}));
  return c;
}

TEST(Library, FindsKernelsByKindAndName) {
  EXPECT_NE(find_library_kernel(ImplementationKind::kHost, "host.copy"), nullptr);
  EXPECT_EQ(find_library_kernel(ImplementationKind::kVendor, "host.copy"), nullptr);
  EXPECT_EQ(find_library_kernel(ImplementationKind::kHost, "host.absent"), nullptr);
  for (const LibraryKernel* k : library_kernels()) {
    EXPECT_FALSE(k->signature.empty()) << k->name;
    EXPECT_FALSE(k->summary.empty()) << k->name;
  }
}

TEST(Library, NamesAreUnique) {
  LibraryKernel k = *find_library_kernel(ImplementationKind::kHost, "host.copy");
  EXPECT_THROW(add_library_kernel(k), Error);
}

// As many results as the value's kinds have calls and fields; but none is without dims.
TEST(Library, LineariseHasAnyNumberOfResults) {
  const auto* k = find_library_kernel(ImplementationKind::kHost, "host.linearise");
  exec::KernelContract c;
  c.symbols = {"n"};
  c.arguments.resize(2);
  c.arguments[0].kind = exec::KernelArgument::Kind::kData;
  c.arguments[1].kind = exec::KernelArgument::Kind::kScalar;
  const auto n = DimProgram::argument(0);
  EXPECT_NE(k->refusal(c), "");
  c.arguments.push_back(tensor(DType::kI64, Access::kOut, {n, n}));
  EXPECT_EQ(k->refusal(c), "");
  for (const DType t : {DType::kI64, DType::kF32, DType::kBool}) {
    c.arguments.push_back(tensor(t, Access::kOut, {n}));
    EXPECT_EQ(k->refusal(c), "");
  }
  c.arguments.back().dims.clear();
  EXPECT_THAT(k->refusal(c), HasSubstr("has 0 dims"));
  const auto* copy = find_library_kernel(ImplementationKind::kHost, "host.copy");
  c.arguments = {tensor(DType::kI64, Access::kIn, {n}), tensor(DType::kI64, Access::kOut, {n})};
  EXPECT_EQ(copy->refusal(c), "");
  c.arguments.push_back(c.arguments[1]);
  EXPECT_THAT(copy->refusal(c), HasSubstr("more tensors"));
}

TEST(Library, CopySplitsOverThreads) {
  const auto* copy = find_library_kernel(ImplementationKind::kHost, "host.copy");
  const auto n = DimProgram::argument(0);
  exec::KernelContract c;
  c.symbols = {"n"};
  c.arguments = {tensor(DType::kU8, Access::kIn, {n}), tensor(DType::kU8, Access::kOut, {n})};
  EXPECT_EQ(copy->refusal(c), "");
  c.arguments[1].dtype = DType::kI8;
  EXPECT_THAT(copy->refusal(c), HasSubstr("dtype"));
  for (int64_t size : {0, 1, 63, 64, 65, 200, 1000}) {
    std::vector<uint8_t> x(size), y(size);
    for (int64_t i = 0; i < size; ++i) x[i] = static_cast<uint8_t>(i * 7);
    const LibraryTensor tensors[] = {{DType::kU8, {&size, 1}, x.data()},
                                     {DType::kU8, {&size, 1}, y.data()}};
    WorkMeter meter;
    for (int t = 0; t < 3; ++t) copy->run({tensors, {}, {}, nullptr, {}, &meter}, t, 3, nullptr);
    EXPECT_EQ(x, y);
  }
}

TEST(OneDnn, ChecksContracts) {
  const auto* k = find_library_kernel(ImplementationKind::kVendor, "onednn.matmul");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->refusal(matmul_contract(false)), "");
  EXPECT_EQ(k->refusal(matmul_contract(true)), "");
  auto bad = matmul_contract(true);
  bad.arguments[2].dims = {DimProgram::argument(0)};
  EXPECT_THAT(k->refusal(bad), HasSubstr("bias"));
  bad = matmul_contract(false);
  bad.arguments[0].dtype = DType::kF64;
  EXPECT_THAT(k->refusal(bad), HasSubstr("f32"));
  bad = matmul_contract(false);
  bad.arguments.pop_back();
  EXPECT_NE(k->refusal(bad), "");
}

TEST(OneDnn, MatmulAgreesWithPlainLoops) {
  const auto* kernel = find_library_kernel(ImplementationKind::kVendor, "onednn.matmul");
  if (const std::string why = kernel->unavailable(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(2);
  for (bool bias : {false, true})
    for (int64_t m : {0, 1, 2, 5, 37})
      for (int64_t k : {0, 1, 19, 64}) {
        const int64_t n = 33;
        std::vector<float> x(m * k), w(k * n), b(n), y(m * n, -1.0f);
        for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.1f * static_cast<float>(i));
        for (size_t i = 0; i < w.size(); ++i) w[i] = std::cos(0.3f * static_cast<float>(i));
        for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i);
        const int64_t xs[] = {m, k}, ws[] = {k, n}, bs[] = {n}, ys[] = {m, n};
        std::vector<LibraryTensor> tensors = {{DType::kF32, xs, x.data()},
                                              {DType::kF32, ws, w.data()}};
        if (bias) tensors.push_back({DType::kF32, bs, b.data()});
        tensors.push_back({DType::kF32, ys, y.data()});
        struct Context {
          const LibraryKernel* kernel;
          LibraryCall call;
        } context{kernel, {tensors, {}, {}, nullptr}};
        pool.run(
            [](void* p, int32_t thread, int32_t threads, nimble_barrier* barrier) {
              auto* c = static_cast<Context*>(p);
              c->kernel->run(c->call, thread, threads, barrier);
            },
            &context, 2);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = bias ? b[j] : 0.0;
            for (int64_t l = 0; l < k; ++l) sum += double{x[i * k + l]} * w[l * n + j];
            ASSERT_NEAR(y[i * n + j], sum, 1e-4) << m << " " << k << " " << i << " " << j;
          }
      }
}

}  // namespace
}  // namespace nimble::rt
