// Version 3's binding against a stand-in, so that it is tested where no such library is installed;
// and libraries that are refused.
#include <gmock/gmock.h>

#include <cstdlib>

#include "vm/base/error.h"
#include "vm/library/onednn_binding.h"

namespace nimble::rt::onednn {
namespace {

using exec::VendorOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Desc matrix(int64_t rows, int64_t columns) {
  return {DType::kF32, {rows, columns}, {columns, 1}};
}

TEST(OneDnnStandin, ProductsGoThroughTheThirdVersionsBinding) {
  const std::unique_ptr<Library> library = open_library(3, NIMBLE_STANDIN_OMP);
  ASSERT_EQ(library->problem(), "");
  EXPECT_EQ(library->version(), "oneDNN 3.2.0 stand-in");
  Problem p{matrix(2, 3), matrix(3, 2), matrix(2, 2)};
  p.packs = true;
  p.bias = matrix(1, 2);
  p.steps = {{VendorOp::kAdd, 0, 0, matrix(2, 2)},
             {VendorOp::kRelu, 0, 0, {}},
             {VendorOp::kAdd, 0, 0, matrix(1, 1)}};
  const std::unique_ptr<Primitive> primitive = library->make(p);
  const std::vector<float> x = {1, 2, 3, 4, 5, 6}, w = {1, 0, 0, 1, 2, -1}, bias = {10, 20},
                           residual = {0, -100, 1, 2}, number = {0.5};
  const std::unique_ptr<Weights> packed = primitive->pack(w.data());
  EXPECT_EQ(packed->bytes(), 24u);
  EXPECT_EQ(primitive->scratchpad_bytes(), 64u);
  EXPECT_TRUE(primitive->shares_weights_with(*library->make(p)));
  std::vector<float> y(4, -1);
  const void* operands[] = {residual.data(), number.data()};
  primitive->execution(packed.get())->run(x.data(), nullptr, bias.data(), operands, y.data());
  // Sums 7 -1 and 16 -1, with what follows.
  EXPECT_THAT(y, ElementsAre(17.5F, 0.5F, 27.5F, 21.5F));
  p.packs = false;
  p.steps.clear();
  p.bias.reset();
  const std::unique_ptr<Primitive> plain = library->make(p);
  plain->execution(nullptr)->run(x.data(), w.data(), nullptr, {}, y.data());
  EXPECT_THAT(y, ElementsAre(7, -1, 16, -1));
}

TEST(OneDnnStandin, WhatTheLibraryHasNotIsUnsupported) {
  const std::unique_ptr<Library> library = open_library(3, NIMBLE_STANDIN_OMP);
  Problem p{matrix(2, 3), matrix(3, 2), matrix(2, 2)};
  p.steps = {{VendorOp::kGelu, 0, 0, {}}};
  try {
    library->make(p);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
  }
}

// Without VNNI pairs of products saturate at 16 bits, whatever the CPU could do.
TEST(OneDnnStandin, BytesAreExactWhereTheLibraryMayUseTheInstructions) {
  const std::unique_ptr<Library> library = open_library(3, NIMBLE_STANDIN_OMP);
  const auto exact = [&](const char* isa) {
    ::setenv("NIMBLE_STANDIN_ISA", isa, 1);
    const bool is = library->adds_bytes_exactly();
    ::unsetenv("NIMBLE_STANDIN_ISA");
    return is;
  };
  for (const char* with : {"0xf", "0x1f", "0x67", "0xe7", "0x1ef", "0xfef"})
    EXPECT_TRUE(exact(with)) << with;
  for (const char* without : {"0", "0x1", "0x3", "0x7", "0x27"})
    EXPECT_FALSE(exact(without)) << without;
  EXPECT_FALSE(open_library(3, "/nowhere/libdnnl.so.3")->adds_bytes_exactly());
}

TEST(OneDnnStandin, OtherThreadsThanOpenMpsAreRefused) {
  EXPECT_THAT(open_library(3, NIMBLE_STANDIN_TBB)->problem(), HasSubstr("threads"));
}

TEST(OneDnnStandin, OfTwoThatCannotBeUsedTheInstalledOneSaysWhy) {
  const auto file = [](const char* name) { return open_library(3, name); };
  const char nowhere[] = "/nowhere/libdnnl.so.3";
  EXPECT_THAT(better_of(file(NIMBLE_STANDIN_TBB), file(nowhere))->problem(), HasSubstr("threads"));
  EXPECT_THAT(better_of(file(nowhere), file(NIMBLE_STANDIN_TBB))->problem(), HasSubstr("threads"));
  EXPECT_THAT(better_of(file(nowhere), file(nowhere))->problem(), HasSubstr("not installed"));
  EXPECT_EQ(better_of(file(NIMBLE_STANDIN_OMP), file(nowhere))->problem(), "");
  EXPECT_EQ(better_of(file(NIMBLE_STANDIN_TBB), file(NIMBLE_STANDIN_OMP))->problem(), "");
}

TEST(OneDnnStandin, AnotherVersionIsRefused) {
  EXPECT_THAT(open_library(2, NIMBLE_STANDIN_OMP)->problem(), HasSubstr("is oneDNN 3.2"));
  EXPECT_THAT(open_library(3, "/nowhere/libdnnl.so.3")->problem(), HasSubstr("not installed"));
}

}  // namespace
}  // namespace nimble::rt::onednn
