// What oneDNN's routines refuse. (onednn_test.cpp says which versions are asked.)
#include <gmock/gmock.h>

#include "vm/base/error.h"
#include "vm/library/test/onednn_harness.h"

namespace nimble::rt {
namespace {

using exec::VendorCall;
using exec::VendorOp;
using ::testing::HasSubstr;

TEST_P(OneDnn, SizesThatDoNotFitAreRefusedBeforeTheLibrarySeesThem) {
  const std::vector<Data> good = {random_data(DType::kF32, {4, 24}, random_),
                                  random_data(DType::kF32, {1, 24, 48}, random_),
                                  random_data(DType::kF32, {40}, random_),
                                  {DType::kF32, {4, 40}, {}, {}}};
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 3;
  call.k = 24;
  call.n = 40;
  call.panel = VendorCall::Panel{48, 1};
  call.then = {{VendorOp::kAdd, 2}};
  const std::unique_ptr<VendorRoutine> r = routine(call, good);
  const auto refused = [&](size_t tensor, Ints shape) {
    std::vector<Data> bad = good;
    std::vector<LibraryTensor> t = views(bad);
    t[tensor].shape = shape;
    EXPECT_THROW(r->make_ready(t, 1), Error) << tensor;
    EXPECT_EQ(r->find(t), nullptr);
  };
  refused(0, {4, 25});
  refused(0, {5, 24});
  refused(0, {96});
  refused(1, {1, 24, 32});
  refused(1, {1, 23, 48});
  refused(2, {39});
  refused(2, {2, 40});
  refused(3, {4, 41});
  refused(3, {0, 40});
}

// Sizes of entries that a table makes up: no memory lies behind these shapes.
TEST_P(OneDnn, SizesThatNoTensorHasAreRefusedBeforeTheLibrarySeesThem) {
  std::vector<Data> good = {random_data(DType::kF32, {4, 24}, random_),
                            random_data(DType::kF32, {1, 24, 48}, random_),
                            {DType::kF32, {4, 40}, {}, {}}};
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 2;
  call.k = 24;
  call.n = 40;
  call.panel = VendorCall::Panel{48, 1};
  const std::unique_ptr<VendorRoutine> r = routine(call, good);
  for (const Ints& rows : {Ints{int64_t{1} << 31}, Ints{int64_t{1} << 57},
                           Ints{int64_t{1} << 20, int64_t{1} << 20}, Ints{-2, -3}}) {
    Ints x = rows, y = rows;
    x.push_back(24);
    y.push_back(40);
    std::vector<LibraryTensor> t = views(good);
    t[0].shape = x;
    t[2].shape = y;
    try {
      r->make_ready(t, 1);
      ADD_FAILURE() << rows[0];
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported);
      EXPECT_THAT(e.what(), HasSubstr("larger than the library counts"));
    }
    EXPECT_EQ(r->find(t), nullptr);
  }
}

TEST_P(OneDnn, WindowsInThePaddingAloneAndHugeOnesAreRefused) {
  struct Case {
    VendorCall::Image image;
    int64_t height, rows;  // of the image and of the result
    const char* why;
  };
  const std::vector<Case> all = {
      {{{1, 1}, {1, 1}, {1, 1}, {1, 0, 1, 0}, 1, false}, 5, 7, "padding alone"},
      {{{3, 1}, {1, 1}, {1, 1}, {3, 0, 0, 0}, 1, false}, 5, 6, "padding alone"},
      {{{3, 1}, {1, 1}, {1, 1}, {0, 0, 3, 0}, 1, false}, 5, 6, "padding alone"},
      {{{1, 1}, {INT32_MAX, 1}, {1, 1}, {0, 0, 0, 0}, 1, false}, 5, 1, "windows are larger"},
      {{{1, 1}, {1, 1}, {INT32_MAX, 1}, {0, 0, 0, 0}, 1, false}, 5, 5, "windows are larger"},
      {{{2, 1}, {INT32_MAX, 1}, {70000, 1}, {70000, 0, 70000, 0}, 1, false}, 5, 1, "larger"},
      {{{1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1, false}, 1 << 26, 1 << 26, "larger"},
  };
  for (const Case& c : all) {
    const int64_t k = c.image.kernel[0] * 8;
    VendorCall call;
    call.routine = "onednn.conv2d";
    call.w = 1;
    call.y = 2;
    call.k = k;
    call.n = 16;
    call.image = c.image;
    const Ints x = {1, c.height, 3, 8}, y = {1, c.rows, 3, 16};
    std::vector<Data> given = {random_data(DType::kF32, {1, 5, 3, 8}, random_),
                               random_data(DType::kF32, {k, 16}, random_),
                               {DType::kF32, {1, 5, 3, 16}, {}, {}}};
    const std::unique_ptr<VendorRoutine> r = routine(call, given);
    std::vector<LibraryTensor> t = views(given);
    t[0].shape = x;
    t[2].shape = y;
    try {
      r->make_ready(t, 1);
      ADD_FAILURE() << c.why;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported);
      EXPECT_THAT(e.what(), HasSubstr(c.why));
    }
  }
}

TEST_P(OneDnn, RefusesContractsThatTheConfigurationDoesNotFit) {
  const std::vector<Data> good = {{DType::kF32, {4, 24}, {}, {}},
                                  {DType::kF32, {24, 40}, {}, {}},
                                  {DType::kF32, {4, 40}, {}, {}}};
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 2;
  call.k = 24;
  call.n = 40;
  EXPECT_NO_THROW(routine(call, good));
  const auto why = [&](const VendorCall& c, const std::vector<Data>& tensors) -> std::string {
    try {
      routine(c, tensors);
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  };
  VendorCall bad = call;
  bad.y = 3;
  EXPECT_THAT(why(bad, good), HasSubstr("no output"));
  bad = call;
  bad.x = 2;
  EXPECT_THAT(why(bad, good), HasSubstr("no input"));
  bad = call;
  bad.x = 1;
  EXPECT_THAT(why(bad, good), HasSubstr("one tensor"));
  bad = call;
  bad.then = {{VendorOp::kAdd, 7}};
  EXPECT_THAT(why(bad, good), HasSubstr("no input"));
  std::vector<Data> types = good;
  types[0].dtype = DType::kF64;
  EXPECT_THAT(why(call, types), HasSubstr("multiplies no f64"));
  // In groups, with a residual behind: oneDNN 2.7 adds others of its numbers on AVX2.
  VendorCall grouped;
  grouped.routine = "onednn.conv2d";
  grouped.w = 1;
  grouped.y = 3;
  grouped.k = 100;
  grouped.n = 24;
  grouped.image = VendorCall::Image{{5, 5}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 2, false};
  std::vector<Data> images = {{DType::kF32, {1, 11, 11, 8}, {}, {}},
                              {DType::kF32, {100, 24}, {}, {}},
                              {DType::kF32, {1, 7, 7, 24}, {}, {}},
                              {DType::kF32, {1, 7, 7, 24}, {}, {}}};
  EXPECT_EQ(why(grouped, images), "taken");
  grouped.then = {{VendorOp::kAdd, 2}};
  EXPECT_THAT(why(grouped, images), HasSubstr("in groups"));
  images[2].shape = {24};
  EXPECT_EQ(why(grouped, images), "taken");
  // Measured with another version: whatever was found of that tells nothing of this one.
  call.library = "oneDNN 1.0.0";
  EXPECT_THROW(make_onednn_routine(*library_, to_json(call), contract_of(good, 2)), Error);
}

}  // namespace
}  // namespace nimble::rt
