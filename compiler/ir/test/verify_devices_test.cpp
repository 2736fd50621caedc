// Rule V15: every way in which a placed program may read a value where it does not lie.
#include <gmock/gmock.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"

namespace nimble::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> faults(const std::string& functions) {
  return verify(infer_types(parse_module(functions)));
}

// A main that takes x on the CPU and gives its result there.
std::string main_with(const std::string& body, const std::string& more = "") {
  return more +
         "fn @main(%x: Tensor[(4), f32], %p: Tensor[(), bool]) -> Tensor[(4), f32] "
         "attrs {parameters_on = [0, -1], results_on = [0]} {\n" +
         body + "}\n";
}

constexpr const char* kThere = "let %a = device_copy(%x) {device = 1, from = 0};\n";
std::string group(const char* to, const char* from, int device) {
  return fmt::format(
      "let %{} = group fn(%q{}: Tensor[(4), f32]) -> Tensor[(4), f32] attrs {{device = {}, "
      "primitive = true}} {{ let %e{} = exp(%q{}); %e{} }} (%{});\n",
      to, to, device, to, to, to, from);
}

TEST(VerifyDevices, AcceptsWhatIsPlacedWell) {
  EXPECT_THAT(faults(main_with(kThere + group("b", "a", 1) +
                               "let %c = device_copy(%b) {device = 0, from = 1};\n" +
                               group("d", "c", 0) + "%d\n")),
              IsEmpty());
  // Not placed: not its business.
  EXPECT_THAT(faults(std::string("fn @main(%x: Tensor[(4), f32]) { ") + kThere + "%a }"),
              IsEmpty());
}

TEST(VerifyDevices, RefusesAResultElsewhere) {
  EXPECT_THAT(
      faults(main_with(std::string(kThere) + "%a\n")),
      ElementsAre(HasSubstr("@main: the result: V15: it lies on device 1 (stand-in) where 0 "
                            "(cpu) is needed")));
}

TEST(VerifyDevices, RefusesAKernelsOperandElsewhere) {
  EXPECT_THAT(faults(main_with(group("b", "x", 1) +
                               "let %c = device_copy(%b) {device = 0, from = 1};\n%c\n")),
              ElementsAre(HasSubstr("@main:%b: operand 1: V15")));
}

TEST(VerifyDevices, RefusesACopyFromElsewhere) {
  EXPECT_THAT(faults(main_with("let %c = device_copy(%x) {device = 0, from = 1};\n%c\n")),
              ElementsAre(HasSubstr("@main:%c: operand 1: V15")));
}

TEST(VerifyDevices, RefusesArgumentsAndBranchesElsewhere) {
  const std::string callee =
      "fn @f(%y: Tensor[(4), f32]) -> Tensor[(4), f32] attrs {parameters_on = [1], "
      "results_on = [0]} { let %z = device_copy(%y) {device = 0, from = 1}; %z }\n";
  EXPECT_THAT(faults(main_with("let %r = @f(%x);\n%r\n", callee)),
              ElementsAre(HasSubstr("@main:%r: operand 1: V15")));
  EXPECT_THAT(faults(main_with(std::string(kThere) + "let %r = @f(%a);\n%r\n", callee)), IsEmpty());
  EXPECT_THAT(faults(main_with(std::string(kThere) + "let %r = if (%p) { %a } else { %x };\n%x\n")),
              ElementsAre(HasSubstr("@main:%r: a branch: V15")));
}

TEST(VerifyDevices, FollowsViewsAndTuples) {
  EXPECT_THAT(faults(main_with(std::string(kThere) + "let %v = reshape(%a) {shape = (2, 2)};\n"
                                                     "let %t = (%x, %v);\nlet %u = %t[1];\n"
                                                     "let %w = reshape(%u) {shape = (4,)};\n%w\n")),
              ElementsAre(HasSubstr("the result: V15")));
}

// Who reads elements as symbols reads them on the host.
TEST(VerifyDevices, RefusesElementsElsewhere) {
  const auto reading = [](const char* from) {
    return "fn @main(%x: Tensor[(4), f32], %i: Tensor[(1), i64]) -> Tensor[(1), i64] "
           "attrs {parameters_on = [0, 1], results_on = [0]} {\n"
           "let %h = device_copy(%i) {device = 0, from = 1};\n"
           "let %e = read_extents(" +
           std::string(from) + ") {symbols = [\"k\"]};\n%h\n}\n";
  };
  EXPECT_THAT(faults(reading("%h")), IsEmpty());
  EXPECT_THAT(faults(reading("%i")), ElementsAre(HasSubstr("@main:%e: operand 1: V15")));
}

TEST(VerifyDevices, RefusesAnnotationsThatAreLeft) {
  EXPECT_THAT(faults(main_with("let %y = on_device(%x) {device = 0};\n%y\n")),
              ElementsAre(HasSubstr("V15: on_device after placement")));
}

TEST(DeviceOperators, AreTheIdentityAndNameTheirDevices) {
  const Module m = infer_types(
      parse_module("fn @main(%x: Tensor[(n, 3), f32]) { let %a = device_copy(%x) {device = 1}; "
                   "let %b = on_device(%a) {device = 1}; %b }"));
  EXPECT_EQ(str(m.find("main")->result_type), "Tensor[(n, 3), f32]");
  // Contents stay known, so shapes computed from a placed vector keep their dims.
  const Module s = infer_types(parse_module(
      "fn @main(%x: Tensor[(n, 6), f32]) { let %s = on_device(i64[2]{6, -1}) {device = 0}; "
      "let %y = reshape(%x, %s); %y }"));
  EXPECT_EQ(str(s.find("main")->result_type), "Tensor[(6, n), f32]");
  for (const char* bad : {"on_device(%x) {device = 3}", "device_copy(%x) {device = -1}",
                          "device_copy(%x) {device = 1, from = 3}", "on_device(%x)"}) {
    EXPECT_THROW(infer_types(parse_module(
                     fmt::format("fn @main(%x: Tensor[(n), f32]) {{ let %y = {}; %y }}", bad))),
                 Error)
        << bad;
  }
}

}  // namespace
}  // namespace nimble::ir
