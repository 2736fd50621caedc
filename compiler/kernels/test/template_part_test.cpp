// Kernels whose results are parts of in/out arguments, and that read such parts: they agree with
// the reference, and what lies between their rows stays.
#include <cstdio>

#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

struct PartCase {
  const char* parameters;
  const char* body;  // binds %y, the result
  int axis;
  int64_t extent;         // along the axis, room included
  int64_t own, pitch;     // elements of a row that the kernel writes, and of the whole row
  const char* served_by;  // as %y alone is
  Sizes sizes;
  const char* also = "";  // results besides the part, ahead of it
};

void check_part(const PartCase& p) {
  const std::string also = p.also;
  const auto text = [&](const std::string& last) {
    return fmt::format("fn @f({}) {{ {} {} }}", p.parameters, p.body, last);
  };
  const std::string part =
      fmt::format("let %z = pitched(%y) {{axis = {}, extent = {}}};", p.axis, p.extent);
  Case c;
  c.text = text(also.empty() ? part + " %z" : part + fmt::format(" let %t = ({}, %z); %t", also));
  c.served_by = p.served_by;
  c.sizes = p.sizes;
  c.tolerance = 1e-4;
  c.configurations = 10;
  const Oracle whole = by_reference(c.text);
  c.oracle = [whole, p](const Arrays& in, Arrays& out) {
    Arrays made = out;
    whole(in, made);
    for (size_t r = 0; r + 1 < out.size(); ++r) out[r] = made[r];
    Array& z = out.back();
    for (int64_t i = 0; i < z.size(); ++i)
      if (i % p.pitch < p.own) z[i] = made.back()[i];
  };
  const Workload w = workload_of(c.text);
  ASSERT_TRUE(w.writes_part());
  EXPECT_EQ(w.contract.arguments.back().access, exec::Access::kInOut);
  const Template* plain = template_for(
      workload_of(text(also.empty() ? "%y" : fmt::format("let %t = ({}, %y); %t", also))),
      mode().targets.front());
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->name(), p.served_by);
  check_in_mode(c);
}

const Sizes kRows = {{0}, {1}, {2}, {7}, {8}, {9}, {31}, {130}};
const Sizes kImages = {{1, 7, 7}, {2, 9, 31}, {0, 8, 8}, {1, 3, 43}, {1, 1, 1}, {3, 2, 15}};

TEST(Part, OfElementwiseGroups) {
  check_part({"%x: Tensor[(b, n, 24), f32], %c: Tensor[(24), f32]",
              "let %a = add(%x, %c); let %y = relu(%a);", 2, 58, 24, 58, "elementwise",
              few({0, 1, 2, 7, 33})});
  // One element of a row; no room at all.
  check_part({"%x: Tensor[(n, 1), f32]", "let %y = exp(%x);", 1, 3, 1, 3, "elementwise", kRows});
  check_part(
      {"%x: Tensor[(n, 40), f32]", "let %y = exp(%x);", 1, 40, 40, 40, "elementwise", kRows});
  // Rows of several axes, bytes, long rows.
  check_part(
      {"%x: Tensor[(n, 3, 7), f32]", "let %y = neg(%x);", 1, 5, 21, 35, "elementwise", kRows});
  check_part({"%x: Tensor[(n, 17), u8]", "let %y = maximum(%x, %x);", 1, 31, 17, 31, "elementwise",
              kRows});
  check_part({"%x: Tensor[(n, 5001), f32]", "let %y = neg(%x);", 1, 6000, 5001, 6000, "elementwise",
              few({0, 1, 3})});
}

TEST(Part, OfWhatMovesElements) {
  check_part({"%x: Tensor[(n, 24), f32], %y0: Tensor[(n, 17), f32]",
              "let %y = concat(%x, %y0) {axis = 1};", 1, 58, 41, 58, "elementwise", kRows});
  check_part({"%x: Tensor[(n, 3, 20), f32]", "let %y = transpose(%x) {axes = [0, 2, 1]};", 2, 8, 3,
              8, "elementwise", kRows});
  check_part({"%x: Tensor[(n, 2, 29), f32]",
              "let %a = transpose(%x) {axes = [0, 2, 1]}; let %y = reshape(%a) {shape = (n, 58)};",
              1, 64, 58, 64, "elementwise", kRows});
  check_part({"%x: Tensor[(n, 58), f32]",
              "let %a = slice(%x) {axes = [1], starts = (0), ends = (24)}; let %y = relu(%a);", 1,
              40, 24, 40, "elementwise", kRows});
}

TEST(Part, BesidesAnotherResult) {
  check_part({"%x: Tensor[(n, 24), f32]", "let %e = exp(%x); let %y = relu(%x);", 1, 40, 24, 40,
              "elementwise", kRows, "%e"});
}

TEST(Part, OfProducts) {
  for (const char* n : {"1", "24", "37", "58", "130"}) {
    SCOPED_TRACE(n);
    const std::string parameters = fmt::format(
        "%x: Tensor[(n, 13), f32], %w: Tensor[(13, {}), f32], %c: Tensor[({}), f32]", n, n);
    const Workload plain = workload_of("fn @f(" + parameters +
                                       ") { let %a = matmul(%x, %w); let %y = add(%a, %c); %y }");
    const Template* t = template_for(plain, mode().targets.front());
    ASSERT_NE(t, nullptr);
    const std::string name(t->name());
    check_part({parameters.c_str(), "let %a = matmul(%x, %w); let %y = add(%a, %c);", 1, 140,
                std::stoll(n), 140, name.c_str(), kRows});
    if (HasFatalFailure()) return;
  }
}

TEST(Part, OfConvolutions) {
  check_part(
      {"%x: Tensor[(b, h, w, 24), f32], %k: Tensor[(3, 3, 24, 40), f32], %c: Tensor[(40), f32]",
       "let %a = conv2d(%x, %k, %c) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], "
       "skip_padding = true, groups = 1, layout = \"nhwc\"}; let %y = relu(%a);",
       3, 58, 40, 58, "conv2d_nhwc", kImages});
  check_part({"%x: Tensor[(b, h, w, 58), f32], %k: Tensor[(3, 3, 1, 58), f32]",
              "let %y = conv2d(%x, %k) {strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], "
              "skip_padding = true, groups = 58, layout = \"nhwc\"};",
              3, 61, 58, 61, "depthwise_nhwc", kImages});
}

TEST(Part, OfPlanes) {
  for (const char* size : {"7, 9", "1, 1", "5, 31"}) {
    SCOPED_TRACE(size);
    int h = 0, w = 0;
    ASSERT_EQ(std::sscanf(size, "%d, %d", &h, &w), 2);
    const std::string parameters =
        fmt::format("%x: Tensor[(b, 3, {}), f32], %k: Tensor[(5, 3, 3, 3), f32]", size);
    check_part(
        {parameters.c_str(),
         "let %y = conv2d(%x, %k) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], "
         "groups = 1};",
         1, 8, int64_t{5} * h * w, int64_t{8} * h * w, "conv2d", few({0, 1, 2})});
    if (HasFatalFailure()) return;
  }
}

TEST(Part, OfPooling) {
  for (const char* op : {"max_pool2d", "avg_pool2d"}) {
    SCOPED_TRACE(op);
    const std::string body = fmt::format(
        "let %y = {}(%x) {{kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, "
        "1], "
        "ceil_mode = false, layout = \"nhwc\"{}}};",
        op, op[0] == 'a' ? ", count_include_pad = false" : "");
    check_part(
        {"%x: Tensor[(b, h, w, 24), f32]", body.c_str(), 3, 40, 24, 40, "pool2d_nhwc", kImages});
    // Joined along lines and pixels.
    check_part({"%x: Tensor[(b, 7, 9, 24), f32]", body.c_str(), 1, 6, 4 * 5 * 24, 6 * 5 * 24,
                "pool2d_nhwc", few({0, 1, 3})});
    check_part({"%x: Tensor[(b, 7, 9, 24), f32]", body.c_str(), 2, 8, 5 * 24, 8 * 24, "pool2d_nhwc",
                few({0, 1, 3})});
    if (HasFatalFailure()) return;
  }
}

TEST(Part, IsRefusedByTemplatesThatWriteWholeResults) {
  for (const char* text :
       {"fn @f(%x: Tensor[(n, 8), f32]) { let %y = softmax(%x) {axis = 1}; "
        "let %z = pitched(%y) {axis = 1, extent = 9}; %z }",
        // A part is a result, and nothing reads it.
        "fn @f(%x: Tensor[(n, 8), f32]) { let %y = pitched(%x) {axis = 1, extent = 9}; "
        "let %z = exp(%y); %z }"})
    for (const TargetInfo& t : mode().targets)
      EXPECT_EQ(template_for(workload_of(text), t), nullptr);
  const Workload part = workload_of(
      "fn @f(%x: Tensor[(n, 8), f32]) { let %y = exp(%x); "
      "let %z = pitched(%y) {axis = 1, extent = 9}; %z }");
  EXPECT_EQ(template_for(part, target_by_name("sm_90a")), nullptr);
}

}  // namespace
}  // namespace nimble::kernels::testing
