// Elements of images that change places, and images side by side: element-wise groups against the
// reference interpreter.
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

// Elements that change places: images whose few channels become last, and shuffles of channels, of
// a concatenation too; of the last but one its seam lies inside of a turn, the last is along rows.
TEST(Elementwise, ChannelsBecomeLastAndChangePlaces) {
  for (const char* text : {
           "(%x: Tensor[(b, 3, h, w), f32]) { let %y = transpose(%x) {axes = [0, 2, 3, 1]}; %y }",
           "(%x: Tensor[(b, 3, h, w), f32], %z: Tensor[(b, h, w, 3), f32]) "
           "{ let %t = transpose(%x) {axes = [0, 2, 3, 1]}; let %s = add(%t, %z); "
           "let %y = relu(%s); %y }",
           "(%x: Tensor[(b, h, 3, w), f32]) { let %y = transpose(%x) {axes = [3, 1, 0, 2]}; %y }",
           "(%x: Tensor[(b, h, w, 58), f32]) { let %r = reshape(%x) {shape = (b, h, w, 2, 29)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 58)}; %y }",
           "(%x: Tensor[(b, h, w, 12), f32]) { let %r = reshape(%x) {shape = (b, h, w, 3, 4)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 12)}; %y }",
           "(%x: Tensor[(b, h, w, 29), f32], %z: Tensor[(b, h, w, 29), f32]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %r = reshape(%c) {shape = (b, h, w, 2, 29)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 58)}; %y }",
           "(%x: Tensor[(b, h, w, 7), f32], %z: Tensor[(b, h, w, 14), f32]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %r = reshape(%c) {shape = (b, h, w, 3, 7)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; let %n = neg(%t); "
           "let %y = reshape(%n) {shape = (b, h, w, 21)}; %y }",
           "(%x: Tensor[(b, h, w, 5), f32], %z: Tensor[(b, h, w, 13), f32]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %r = reshape(%c) {shape = (b, h, w, 2, 9)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 18)}; %y }",
           "(%x: Tensor[(b, h, w, 116), f16]) { let %r = reshape(%x) {shape = (b, h, w, 2, 58)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 116)}; %y }",
           "(%x: Tensor[(b, h, w, 96), i8]) { let %r = reshape(%x) {shape = (b, h, w, 4, 24)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 96)}; %y }",
           "(%x: Tensor[(b, h, w, 80), f64]) { let %r = reshape(%x) {shape = (b, h, w, 2, 40)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 80)}; %y }",
           "(%x: Tensor[(b, 2, n), i32]) { let %y = transpose(%x) {axes = [0, 2, 1]}; %y }",
           "(%x: Tensor[(2, n), f32], %z: Tensor[(n, 1), f32]) "
           "{ let %t = transpose(%x) {axes = [1, 0]}; let %s = add(%t, %z); "
           "let %y = relu(%s); %y }",
           "(%x: Tensor[(b, h, w, 9), f32], %z: Tensor[(b, h, w, 9), f32]) "
           "{ let %c = concat(%x, %z) {axis = 2}; let %r = reshape(%c) {shape = (b, h, 2*w, 3, "
           "3)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, 2*w, 9)}; %y }",
       }) {
    SCOPED_TRACE(text);
    Case c;
    c.text = std::string("fn @f") + text;
    c.served_by = "elementwise";
    c.oracle = by_reference(c.text);
    // Leading axes that nothing tells apart are one.
    const size_t symbols = workload_of(c.text).contract.symbols.size();
    c.sizes = random_sizes(symbols, symbols > 1 ? 40 / static_cast<int64_t>(symbols) : 70, 8);
    check(c);
    if (HasFatalFailure()) return;
  }
}

// The kernel of a function that is given from its parameters on, at sizes that come to `most`
// together.
Case images(const std::string& function, int64_t most) {
  Case c;
  c.text = "fn @f" + function;
  c.served_by = "elementwise";
  c.oracle = by_reference(c.text);
  const size_t symbols = workload_of(c.text).contract.symbols.size();
  c.sizes = random_sizes(symbols, most / static_cast<int64_t>(symbols), 6);
  c.configurations = 8;
  return c;
}

// Images side by side along their channels, with and without what follows; of the last the rows are
// too long to be made one by one, or of unknown length.
TEST(Elementwise, ImagesSideBySide) {
  for (const char* text : {
           "(%x: Tensor[(b, h, w, 24), f32], %z: Tensor[(b, h, w, 40), f32]) "
           "{ let %y = concat(%x, %z) {axis = 3}; %y }",
           "(%x: Tensor[(b, h, w, 58), f32], %z: Tensor[(b, h, w, 1), f32], "
           "%u: Tensor[(b, h, w, 58), f32]) { let %y = concat(%x, %z, %u) {axis = 3}; %y }",
           "(%x: Tensor[(b, h, w, 32), f32], %z: Tensor[(b, h, w, 32), f32], "
           "%s: Tensor[(64), f32], %t: Tensor[(64), f32]) { let %c = concat(%x, %z) {axis = 3}; "
           "let %m = mul(%c, %s); let %a = add(%m, %t); let %y = relu(%a); %y }",
           "(%x: Tensor[(b, h, w, 24), f32], %z: Tensor[(b, 1, 1, 40), f32]) "
           "{ let %r = relu(%x); let %e = expand(%z) {shape = (b, h, w, 40)}; "
           "let %y = concat(%r, %e, %x) {axis = 3}; %y }",
           "(%x: Tensor[(b, h, w, 7), f16], %z: Tensor[(b, h, w, 9), f16]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %y = relu(%c); %y }",
           "(%x: Tensor[(n, 4000), f32], %z: Tensor[(n, 200), f32]) "
           "{ let %y = concat(%x, %z) {axis = 1}; %y }",
           "(%x: Tensor[(b, h, c), f32], %z: Tensor[(b, h, 24), f32]) "
           "{ let %y = concat(%x, %z) {axis = 2}; %y }",
       }) {
    SCOPED_TRACE(text);
    check(images(text, 40));
    if (HasFatalFailure()) return;
  }
}

// Images that are shifted and come in again on the other side, as between windows of attention: no
// vector is of two parts, and none is read behind a mask, which could lie outside of the image.
TEST(Elementwise, ShiftedImages) {
  const std::string image = "(%x: Tensor[(b, 14, w, 24), f32]",
                    shift =
                        "let %s = slice(%x) {axes = [1], starts = (3), ends = (14)}; "
                        "let %t = slice(%x) {axes = [1], starts = (0), ends = (3)}; "
                        "let %c = concat(%s, %t) {axis = 1}; ";
  for (const std::string& text :
       {image + ") { " + shift + "%c }",
        image + ", %z: Tensor[(b, 14, w, 24), f32]) { " + shift + "let %y = add(%z, %c); %y }",
        image + ") { " + shift + "let %n = neg(%c); %n }",
        image + ") { " + shift +
            "let %r = reshape(%c) {shape = (b, 2, 7, w, 24)}; "
            "let %y = transpose(%r) {axes = [0, 2, 1, 3, 4]}; %y }",
        std::string("(%x: Tensor[(b, 2, 24), f32], %z: Tensor[(b, 0, 24), f32], "
                    "%u: Tensor[(b, 1, 24), f32]) { let %y = concat(%x, %z, %u) {axis = 1}; %y }"),
        std::string("(%x: Tensor[(b, 2, 24), f32], %z: Tensor[(b, n, 24), f32]) "
                    "{ let %c = concat(%x, %z) {axis = 1}; "
                    "let %y = transpose(%c) {axes = [1, 0, 2]}; %y }")}) {
    SCOPED_TRACE(text);
    const Case c = images(text, 24);
    check(c);
    if (HasFatalFailure()) return;
    const Workload w = workload_of(c.text);
    const TargetInfo& target = target_by_name("x86-64-v3");
    const Template* t = find_template("elementwise");
    const std::string kernel =
        kir::print(t->lower(w, t->default_config(w, target), target, "kernel").functions.at(0));
    // Of extents that are not known there may be none.
    EXPECT_EQ(kernel.find(" first ") == std::string::npos,
              text.find("(b, n, 24)") == std::string::npos)
        << kernel;
  }
}

}  // namespace
}  // namespace nimble::kernels::testing
