#include <gmock/gmock.h>

#include "vm/base/error.h"
#include "vm/executable/vendor_routines.h"
#include "vm/library/registry.h"

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

TEST(Library, FindsKernelsByKindAndName) {
  EXPECT_NE(find_library_kernel(ImplementationKind::kHost, "host.copy"), nullptr);
  EXPECT_EQ(find_library_kernel(ImplementationKind::kVendor, "host.copy"), nullptr);
  EXPECT_EQ(find_library_kernel(ImplementationKind::kHost, "host.absent"), nullptr);
  for (const LibraryKernel* k : library_kernels()) {
    EXPECT_FALSE(k->signature.empty()) << k->name;
    EXPECT_FALSE(k->summary.empty()) << k->name;
  }
}

TEST(Library, HasTheRoutineOfEachRow) {
  using Machine = exec::VendorRoutineInfo::Machine;
  for (const exec::VendorRoutineInfo& row : exec::all_vendor_routines()) {
    SCOPED_TRACE(row.name);
    const LibraryKernel* k = find_library_kernel(ImplementationKind::kVendor, row.name);
    ASSERT_NE(k, nullptr);
    EXPECT_EQ(exec::find_vendor_routine(row.name), &row);
    EXPECT_TRUE(k->unavailable);
    EXPECT_TRUE(k->version);
    EXPECT_EQ(k->prepare != nullptr, row.machine == Machine::kCpu);
    EXPECT_EQ(k->prepare_on_gpu != nullptr, row.machine == Machine::kGpu);
  }
  EXPECT_EQ(exec::find_vendor_routine("onednn."), nullptr);
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

}  // namespace
}  // namespace nimble::rt
