// What a vendor's routine is told: written and read back, and nothing taken that is out of range.
#include "vm/executable/vendor_call.h"

#include <gmock/gmock.h>

#include <limits>

#include "vm/base/error.h"
#include "vm/executable/vendor_epilogue.h"
#include "vm/executable/vendor_routines.h"

namespace nimble::exec {
namespace {

VendorCall sample() {
  VendorCall c;
  c.routine = "onednn.conv2d";
  c.library = "oneDNN 2.6.3 0123";
  c.x = 0;
  c.w = 2;
  c.y = 4;
  c.k = 54;
  c.n = 20;
  c.panel = VendorCall::Panel{16, 2};
  c.image = VendorCall::Image{{3, 3}, {2, 1}, {1, 2}, {1, 0, 1, 2}, 2, false};
  c.then = {{VendorOp::kAdd, 3}, {VendorOp::kLeakyRelu, 0, 0.25F}, {VendorOp::kClip, 0, -1, 6}};
  return c;
}

TEST(VendorCall, IsReadAsItWasWritten) {
  EXPECT_EQ(vendor_call_of(to_json(sample())), sample());
  VendorCall plain = sample();
  plain.panel.reset();
  plain.image->groups = 1;
  plain.image->channels_first = true;
  EXPECT_EQ(vendor_call_of(to_json(plain)), plain);
  plain.image.reset();
  plain.then.clear();
  EXPECT_EQ(vendor_call_of(to_json(plain)), plain);
  EXPECT_EQ(to_json(plain).find("tf32"), std::string::npos);
  VendorCall rounded = plain;
  rounded.panel.reset();
  rounded.tf32 = true;
  EXPECT_EQ(vendor_call_of(to_json(rounded)), rounded);
  VendorCall attention = plain;
  attention.panel.reset();
  attention.k = attention.n = 0;
  attention.attention = VendorCall::Attention{3, 12, 0.125F};
  EXPECT_EQ(vendor_call_of(to_json(attention)), attention);
  // It is nothing else, and nothing follows.
  for (const auto& change : std::vector<void (*)(VendorCall&)>{
           [](VendorCall& c) { c.k = 8; }, [](VendorCall& c) { c.transpose_w = true; },
           [](VendorCall& c) { c.tf32 = true; }, [](VendorCall& c) { c.attention->heads = 0; },
           [](VendorCall& c) { c.then = {{VendorOp::kRelu}}; }}) {
    VendorCall bad = attention;
    change(bad);
    EXPECT_THROW(vendor_call_of(to_json(bad)), Error) << to_json(bad);
  }
  for (int i = 0; i < kVendorOps; ++i) {
    const auto op = static_cast<VendorOp>(i);
    VendorCall one = plain;
    one.then = {{op, has_operand(op) ? 3u : 0u}};
    EXPECT_EQ(vendor_call_of(to_json(one)), one) << name_of(op);
  }
}

// Of the table's rows, once each, and of no CPU's library.
TEST(VendorRoutines, TheirLibrariesHaveVariables) {
  EXPECT_EQ(variable_of_library("cublaslt"), "NIMBLE_CUBLASLT");
  const std::vector<std::string> found = gpu_library_variables();
  EXPECT_EQ(found, (std::vector<std::string>{"NIMBLE_CUBLASLT", "NIMBLE_CUDNN"}));
}

TEST(VendorCall, WhatIsOutOfRangeIsCorrupt) {
  const auto replaced = [](const std::string& from, const std::string& to) {
    std::string text = to_json(sample());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& bad :
       {std::string(""), std::string("{"), std::string("[]"), std::string("null"),
        std::string(R"({"routine":"onednn.matmul"})"),
        replaced("\"k\":54", "\"k\":54,\"tf32\":true"), replaced("\"k\":54", "\"k\":54,\"tf32\":1"),
        replaced("\"k\":54", "\"k\":0"), replaced("\"k\":54", "\"k\":-54"),
        replaced("\"k\":54", "\"k\":9223372036854775807"), replaced("\"k\":54", "\"k\":54.5"),
        replaced("\"k\":54", "\"k\":55"), replaced("\"n\":20", "\"n\":21"),
        replaced("\"n\":20", "\"n\":\"20\""), replaced("\"x\":0", "\"x\":-1"),
        replaced("\"x\":0", "\"x\":70000"), replaced("[16,2]", "[0,2]"), replaced("[16,2]", "[16]"),
        replaced("[16,2]", "[16,100000]"), replaced("\"groups\":2", "\"groups\":0"),
        replaced("\"strides\":[2,1]", "\"strides\":[0,1]"),
        replaced("\"pads\":[1,0,1,2]", "\"pads\":[1,0,1]"),
        replaced("\"pads\":[1,0,1,2]", "\"pads\":[1,0,1,-2]"),
        replaced("\"op\":\"clip\"", "\"op\":\"cosh\""),
        // A relu with a slope is none; nor has one of the others numbers.
        replaced("\"op\":\"leaky_relu\"", "\"op\":\"relu\""),
        replaced("\"op\":\"clip\"", "\"op\":\"leaky_relu\""),
        replaced("\"op\":\"clip\"", "\"op\":\"swish\""),
        replaced("\"alpha\":0.25", "\"alpha\":1e39"), replaced("\"alpha\":0.25", "\"alpha\":1e999"),
        replaced("\"alpha\":0.25", "\"alpha\":null"),
        replaced("\"op\":\"add\",\"tensor\":3", "\"op\":\"add\"")})
    try {
      vendor_call_of(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kCorrupt) << e.what();
    }
}

// Messages become notes of a model, which people read on terminals.
TEST(VendorCall, MessagesQuoteLittleOfTheFile) {
  const std::string name = std::string(100000, 'x') + "\\u001b[2J";
  for (const std::string& op : {"\"" + name + "\"", name, std::string("\"\\u001b[2J\"")}) {
    std::string text = to_json(sample());
    text.replace(text.find("\"clip\""), 6, op);
    try {
      vendor_call_of(text);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_LT(e.problem().size(), 200u);
      EXPECT_EQ(e.problem().find('\x1b'), std::string::npos);
    }
  }
}

TEST(VendorCall, WeightsThatOverflowAreNone) {
  VendorCall huge = sample();
  huge.image.reset();
  huge.k = huge.n = int64_t{1} << 31;
  huge.panel.reset();
  EXPECT_EQ(huge.weight_elements(), std::optional<int64_t>(int64_t{1} << 62));
  huge.n *= 4;
  EXPECT_EQ(huge.weight_elements(), std::nullopt);
  huge.n = 0;  // as the tensor says
  EXPECT_EQ(huge.weight_elements(), std::nullopt);
  EXPECT_EQ(vendor_call_of(to_json(huge)), huge);
}

// Against the layout's own rule (compiler/ir/layout.h), in numbers worked out by hand.
TEST(VendorCall, PanelsAreUnpacked) {
  VendorCall c;
  c.k = 3;
  c.n = 3;
  c.panel = VendorCall::Panel{2, 2};
  // Panel 0: rows 0 and 1 of columns 0 and 1, then row 2 and a filler; panel 1: column 2.
  const std::vector<uint8_t> packed = {1, 4, 2, 5, 7, 0, 8, 0, 3, 6, 99, 99, 9, 0, 99, 99};
  EXPECT_EQ(c.weight_elements(), std::optional<int64_t>(16));
  EXPECT_EQ(unpack_panels(c, DType::kI8, packed.data()),
            (std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  // Two groups of a convolution, each with a panel of its own.
  c.k = 2;
  c.n = 2;
  c.panel = VendorCall::Panel{2, 1};
  c.image = VendorCall::Image{{1, 2}, {1, 1}, {1, 1}, {}, 2, false};
  const std::vector<uint8_t> groups = {1, 99, 2, 99, 3, 99, 4, 99};
  EXPECT_EQ(c.weight_elements(), std::optional<int64_t>(8));
  EXPECT_EQ(unpack_panels(c, DType::kI8, groups.data()), (std::vector<uint8_t>{1, 3, 2, 4}));
}

// Of several factors a library is told one. What f32 cannot hold would not be what they give one
// after the other: by 0 a library does not look at what it multiplies.
TEST(VendorEpilogue, HasOneFactorThatF32Holds) {
  const auto alpha_of = [](const std::vector<float>& factors) {
    VendorCall call;
    for (const float f : factors) call.then.push_back({VendorOp::kLinear, 0, f});
    std::string why;
    const std::optional<VendorEpilogue> epilogue = epilogue_of(call, &why);
    EXPECT_EQ(epilogue.has_value(), why.empty()) << why;
    return epilogue ? epilogue->alpha : 0;
  };
  EXPECT_EQ(alpha_of({}), 1);
  EXPECT_EQ(alpha_of({0.5F, -4}), -2);
  EXPECT_EQ(alpha_of({0}), 0);
  EXPECT_EQ(alpha_of({1e-30F, 1e-30F}), 0);
  EXPECT_EQ(alpha_of({1e-30F, 1e-30F, 1e30F}), 0);
  EXPECT_EQ(alpha_of({1e30F, 1e30F}), 0);
  EXPECT_EQ(alpha_of({1e30F, 1e30F, 1e-30F}), 0);
  EXPECT_EQ(alpha_of({std::numeric_limits<float>::quiet_NaN()}), 0);
  EXPECT_EQ(alpha_of({std::numeric_limits<float>::infinity()}), 0);
}

}  // namespace
}  // namespace nimble::exec
