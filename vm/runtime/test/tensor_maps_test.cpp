// Tensor maps as the runtime keeps them, on a stand-in for the driver that encodes them.
#include "vm/runtime/tensor_maps.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>

#include "vm/base/error.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::rt {
namespace {

using ::testing::HasSubstr;

class TensorMapsTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{1} << 20;

  void SetUp() override {
    driver().reset();
    gpu_ = std::make_unique<CudaDevice>(CudaDriver::open());
    memory_ = static_cast<uint8_t*>(gpu_->allocate(kBytes));
    maps_ = std::make_unique<TensorMaps>(*gpu_);
  }
  void TearDown() override {
    gpu_->free(memory_, kBytes);
    gpu_.reset();
    EXPECT_STREQ(driver().violations(), "");
    driver().reset();
  }
  static const StandInCuda& driver() { return standin_cuda(NIMBLE_STANDIN_CUDA); }
  static int encoded() { return driver().calls("cuTensorMapEncodeTiled"); }

  // Rows of bf16 in boxes of eight lines of 128 bytes.
  BoxedTensor rows(int64_t columns, int64_t count, size_t at = 0) const {
    return {DType::kBF16, memory_ + at, 2, {columns, count}, {64, 8}};
  }
  std::string refusal(const BoxedTensor& t) {
    try {
      maps_->find(t);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported) << e.what();
      EXPECT_FALSE(e.remedy().empty());
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  const ScopedVariable library_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
  std::unique_ptr<CudaDevice> gpu_;
  uint8_t* memory_ = nullptr;
  std::unique_ptr<TensorMaps> maps_;
};

TEST_F(TensorMapsTest, AreEncodedOnceForAnAddressExtentsAndBoxes) {
  const TensorMaps::Words first = maps_->find(rows(96, 5));
  EXPECT_EQ(encoded(), 1);
  EXPECT_EQ(maps_->find(rows(96, 5)), first);
  EXPECT_EQ(encoded(), 1);
  BoxedTensor wide = rows(96, 5);
  wide.box = {32, 8};
  BoxedTensor other = rows(96, 5);
  other.dtype = DType::kF16;
  for (const BoxedTensor& t : {rows(96, 6), rows(88, 5), rows(96, 5, 256), wide, other}) {
    const int before = encoded();
    EXPECT_NE(maps_->find(t), first);
    EXPECT_EQ(encoded(), before + 1);
  }
  EXPECT_EQ(maps_->kept(), 6u);
  EXPECT_EQ(maps_->find(rows(96, 5)), first);
  EXPECT_EQ(encoded(), 6);
}

TEST_F(TensorMapsTest, TheLatestAreKept) {
  maps_->find(rows(8, 1));
  maps_->find(rows(8, 2));
  for (size_t i = 2; i < TensorMaps::kKept; ++i) maps_->find(rows(8, static_cast<int64_t>(i) + 1));
  EXPECT_EQ(maps_->kept(), TensorMaps::kKept);
  maps_->find(rows(8, 1));  // the second one is the oldest now
  const int before = encoded();
  maps_->find(rows(16, 1));
  EXPECT_EQ(maps_->kept(), TensorMaps::kKept);
  maps_->find(rows(8, 1));
  EXPECT_EQ(encoded(), before + 1);
  maps_->find(rows(8, 2));
  EXPECT_EQ(encoded(), before + 2);
}

TEST_F(TensorMapsTest, OfNothingAreZerosThatNoDriverEncodes) {
  EXPECT_EQ(maps_->find(rows(0, 5)), TensorMaps::Words{});
  EXPECT_EQ(maps_->find(rows(8, 0)), TensorMaps::Words{});
  EXPECT_EQ(encoded(), 0);
  EXPECT_EQ(maps_->kept(), 0u);
}

TEST_F(TensorMapsTest, WhatNoMapDescribesIsRefused) {
  EXPECT_THAT(refusal(rows(8, 5, 8)), HasSubstr("lies at no multiple of 16 bytes"));
  EXPECT_THAT(refusal(rows(12, 5)), HasSubstr("rows of 24 bytes"));
  EXPECT_THAT(refusal(rows(8, int64_t{1} << 31)), HasSubstr("an extent of 2147483648"));
  BoxedTensor far = rows(8, 1);
  far.rank = 4;
  far.extents = {INT32_MAX - 7, INT32_MAX - 7, INT32_MAX - 7, 1};
  far.box = {64, 8, 1, 1};
  EXPECT_THAT(refusal(far), HasSubstr("bytes apart"));
  EXPECT_EQ(encoded(), 0);
  // What the driver refuses beside that is an error of its own, and nothing is kept of it.
  driver().fail("cuTensorMapEncodeTiled", 1, 1);
  EXPECT_THROW(maps_->find(rows(8, 5)), Error);
  EXPECT_EQ(maps_->kept(), 0u);
  maps_->find(rows(8, 5));
  EXPECT_EQ(maps_->kept(), 1u);
}

}  // namespace
}  // namespace nimble::rt
