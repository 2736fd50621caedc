// Reductions with tests that look at the text: what must be left is known.
#include "compiler/tools/reduce/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/tools/reduce/command_test.h"
#include "compiler/tools/reduce/edits.h"
#include "vm/base/file.h"

namespace nimble::reduce {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kProgram[] = R"(
source "model";
signature @main {inputs = ["x", "w", "c"], outputs = ["y", "z"], defaults = ["", "", ""]};
fn @helper(%a: Tensor[(k, 8), f32]) -> Tensor[(k, 8), f32] {
  let %b = relu(%a);
  let %c = tanh(%b);
  %c
}
fn @loop(%i: Tensor[(), i64], %s: Tensor[(n, 8), f32]) -> Tensor[(n, 8), f32] {
  let %more = less(%i, 3i64);
  let %r = if (%more) {
    let %next = add(%i, 1i64);
    let %t = exp(%s);
    let %u = @loop(%next, %t);
    %u
  } else { %s };
  %r
}
fn @main(%x: Tensor[(n, 16), f32], %w: Tensor[(16, 8), f32], %c: Tensor[(), bool]) attrs {range.n = [1, 64]} {
  let %m = matmul(%x, %w) from "/encoder/MatMul";
  let %h = @helper(%m);
  let %l = @loop(0i64, %h);
  let %i = if (%c) {
    let %p = softmax(%l) {axis = 1};
    %p
  } else {
    let %q = sigmoid(%l);
    %q
  };
  let %j = concat(%i, %h, %l) {axis = 0};
  let %k = leaky_relu(%i) {alpha = 0.5};
  let %out = (%j, %k);
  %out
}
)";

Test contains(std::vector<std::string> words) {
  return [words](const std::string& path) {
    const std::string text = read_text_file(path);
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string& w) { return text.find(w) != std::string::npos; });
  };
}

Outcome reduced(const std::string& program, const Test& test, Options options = {}) {
  return reduce(ir::parse_module(program), test, options);
}

TEST(Reduce, KeepsOneOperatorOfAProgram) {
  const Outcome out = reduced(kProgram, contains({"softmax("}));
  const std::string text = ir::print(out.module);
  EXPECT_TRUE(out.complete);
  EXPECT_TRUE(out.inferred);
  EXPECT_EQ(out.module.functions.size(), 1u) << text;
  EXPECT_EQ(out.module.find("main")->body->bindings.size(), 1u) << text;
  EXPECT_EQ(out.module.find("main")->parameters.size(), 0u) << text;
  EXPECT_THAT(text, Not(HasSubstr("signature")));
  EXPECT_THAT(text, Not(HasSubstr("source")));
  EXPECT_THAT(text, Not(HasSubstr("16")));
  EXPECT_THAT(text, Not(HasSubstr("range.n")));
}

TEST(Reduce, KeepsWhatDependsOnEachOther) {
  const Outcome out = reduced(kProgram, contains({"softmax(", "tanh(", "concat("}));
  const std::string text = ir::print(out.module);
  EXPECT_EQ(out.module.functions.size(), 1u) << text;
  EXPECT_LE(out.module.find("main")->body->bindings.size(), 3u) << text;
  EXPECT_THAT(text, Not(HasSubstr("matmul")));
  EXPECT_THAT(text, Not(HasSubstr("if (")));
}

TEST(Reduce, KeepsALoopThatIsNeeded) {
  const Outcome out = reduced(kProgram, contains({"@loop(%", "if ("}));
  const std::string text = ir::print(out.module);
  ASSERT_NE(out.module.find("loop"), nullptr) << text;
  EXPECT_EQ(out.module.find("helper"), nullptr) << text;
  EXPECT_THAT(text, Not(HasSubstr("exp(")));
  EXPECT_TRUE(ir::verify(out.module).empty()) << text;
}

// Whatever the test says, each accepted module is well formed and smaller than the one before.
TEST(Reduce, EveryStepIsWellFormedAndSmaller) {
  Size last = size_of(ir::infer_types(ir::parse_module(kProgram)));
  last[0] += 1;
  int saved = 0;
  Options options;
  options.save = [&](const ir::Module& m) {
    ++saved;
    EXPECT_LT(size_of(m), last);
    last = size_of(m);
    EXPECT_TRUE(ir::verify(ir::infer_types(m)).empty()) << ir::print(m);
  };
  const Outcome out = reduced(kProgram, contains({"fn @main"}), options);
  EXPECT_GT(saved, 5);
  EXPECT_EQ(out.module.find("main")->body->bindings.size(), 0u) << ir::print(out.module);
}

TEST(Reduce, ShrinksExtentsAndConstants) {
  const Outcome out = reduced(R"(
fn @main(%x: Tensor[(n, 40, 30), f32]) {
  let %y = add(%x, f32[2, 1, 3]{1, 2, 3, 4, 5, 6});
  %y
}
)",
                              [](const std::string& path) {
                                const std::string text = read_text_file(path);
                                return text.find("add(%") != std::string::npos &&
                                       text.find("f32[") != std::string::npos;
                              });
  // It does not type as it stands, so candidates are only held to parse.
  EXPECT_FALSE(out.inferred);
  const std::string text = ir::print(out.module);
  EXPECT_THAT(text, Not(HasSubstr("40")));
  EXPECT_THAT(text, Not(HasSubstr("{1, 2")));
}

TEST(Reduce, StopsAtTheLimitWithTheBestSoFar) {
  Options options;
  options.most_tests = 3;
  const Outcome out = reduced(kProgram, contains({"softmax("}), options);
  EXPECT_FALSE(out.complete);
  EXPECT_LE(out.progress.tests, 3);
  EXPECT_THAT(ir::print(out.module), HasSubstr("softmax("));
  int asked = 0;
  options = {};
  options.interrupted = [&] { return ++asked > 30; };
  EXPECT_FALSE(reduced(kProgram, contains({"softmax("}), options).complete);
}

TEST(Reduce, MatchesLoseCasesAndBindings) {
  const Outcome out = reduced(R"(
data List { Nil; Cons(Tensor[(4), f32], List) }
fn @total(%l: List) -> Tensor[(4), f32] {
  let %r = match (%l) {
    Nil() => { f32[4]{0, 0, 0, 0} }
    Cons(%x, %rest) => {
      let %t = @total(%rest);
      let %s = add(%x, %t);
      let %e = exp(%s);
      %e
    }
  };
  %r
}
fn @main(%x: Tensor[(4), f32]) {
  let %n = Nil();
  let %l = Cons(%x, %n);
  let %y = @total(%l);
  let %z = neg(%y);
  %z
}
)",
                              contains({"exp("}));
  const std::string text = ir::print(out.module);
  EXPECT_THAT(text, Not(HasSubstr("neg(")));
  EXPECT_THAT(text, Not(HasSubstr("Nil() =>")));
  EXPECT_THAT(text, Not(HasSubstr("Nil =>")));
  EXPECT_THAT(text, HasSubstr("exp("));
}

// Every edit finds a site somewhere, leaves what it was given alone, and can be applied to all of
// its sites at once without harm to the copy.
TEST(Edits, LeaveTheOriginalAlone) {
  const ir::Module m = ir::infer_types(ir::parse_module(kProgram));
  const std::string before = ir::print(m);
  for (const Edit& edit : all_edits()) {
    Copy copy(m);
    Sites sites(0, SIZE_MAX);
    edit.apply(copy, sites);
    copy.finish();
    (void)size_of(copy.module());
    EXPECT_EQ(ir::print(m), before) << edit.name;
    Copy none(m);
    Sites nothing(0, 0);
    edit.apply(none, nothing);
    none.finish();
    EXPECT_EQ(ir::print(none.module()), before) << edit.name;
  }
}

TEST(Command, GivesItsVerdict) {
  EXPECT_EQ(run_command("exit 3; :", "x", 10).code, 3);
  EXPECT_EQ(run_command("kill -SEGV $$; :", "x", 10).code, 139);
  EXPECT_EQ(run_command("echo", "it's {}", 10).output, "it's {}\n");
  EXPECT_EQ(run_command("echo a {} b {} >&2", "p q", 10).output, "a p q b p q\n");
  EXPECT_TRUE(run_command("sleep 30 # {}", "x", 0.1).timed_out);
  EXPECT_FALSE(run_command("sleep 30 # {}", "x", 20, [] { return true; }).timed_out);
}

}  // namespace
}  // namespace nimble::reduce
