// Data values and closures where a corpus of tensors cannot look: across the entry's border, a
// hundred thousand calls deep, a million cells long, and in the instructions that they become.
#include <gmock/gmock.h>

#include <cmath>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/text.h"
#include "vm/executable/opcodes.h"

namespace nimble::driver::testing {
namespace {

using rt::HostValue;
using rt::HostValueRef;
using ::testing::HasSubstr;

constexpr const char* kListType = "data List[A] { Nil; Cons(A, List[A]) }\n";

HostValueRef integer(int64_t v) {
  return HostValue::tensor(DType::kI64, {}, &v);
}
HostValueRef vector(std::vector<float> v) {
  const int64_t n = static_cast<int64_t>(v.size());
  return HostValue::tensor(DType::kF32, {&n, 1}, v.data());
}
HostValueRef list_of(const std::vector<HostValueRef>& items) {
  HostValueRef l = HostValue::data(0, {});
  for (size_t i = items.size(); i-- > 0;) l = HostValue::data(1, {items[i], l});
  return l;
}

class Driver {
 public:
  explicit Driver(const std::string& text, rt::SessionOptions options = {},
                  const Configuration& c = {"default"}) {
    exec::Executable e = driver::compile(ir::parse_module(text, "test"), options_of(c), &report);
    for (const exec::BytecodeFunction& f : e.functions)
      for (const exec::Instruction& i : f.code) ++instructions[std::string(exec::name_of(i.op))];
    model = load(std::move(e), c);
    options.threads = 1;
    session = std::make_unique<rt::Session>(model, options);
  }
  std::vector<HostValueRef> operator()(const std::vector<HostValueRef>& inputs) {
    std::vector<rt::InputTensor> in;
    for (const HostValueRef& v : inputs) {
      rt::InputTensor t;
      t.given = true;
      if (v->is_tensor()) {
        t.dtype = v->dtype();
        t.shape = v->shape();
        t.data = v->bytes();
      } else {
        t.value = v.get();
      }
      in.push_back(t);
    }
    std::vector<rt::OutputTensor> out(session->plan(0).entry().outputs.size());
    session->run(0, in, out);
    std::vector<HostValueRef> results;
    for (const rt::OutputTensor& o : out)
      results.push_back(o.value ? o.value : HostValue::tensor(o.dtype, o.shape(), o.data));
    return results;
  }
  std::string failure(const std::vector<HostValueRef>& inputs, Status status) {
    try {
      (*this)(inputs);
      return "no failure";
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      return e.what();
    }
  }
  CompileReport report;
  std::map<std::string, int> instructions;
  std::shared_ptr<const rt::Model> model;
  std::unique_ptr<rt::Session> session;
};

int64_t number_in(const HostValueRef& v) {
  return *reinterpret_cast<const int64_t*>(v->bytes());
}

TEST(DataValues, CrossTheEntry) {
  const std::string text = std::string(kListType) + R"(
fn @scale(%l: List[(Tensor[(n), f32], Tensor[(), i64])], %k: Tensor[(), i64], %x: Tensor[(n), f32]) -> List[(Tensor[(n), f32], Tensor[(), i64])] {
  let %r = match (%l) {
    Nil => { %l }
    Cons((%v, %i), %rest) => {
      let %j = add(%i, %k);
      let %f = cast(%j) {dtype = f32};
      let %w = mul(%v, %f);
      let %y = add(%w, %x);
      let %p = (%y, %j);
      let %s = @scale(%rest, %k, %x);
      let %c = Cons(%p, %s);
      %c
    }
  };
  %r
}
fn @main(%l: List[(Tensor[(n), f32], Tensor[(), i64])], %k: Tensor[(), i64], %x: Tensor[(n), f32]) -> (List[(Tensor[(n), f32], Tensor[(), i64])], Tensor[(), i64]) {
  let %s = @scale(%l, %k, %x);
  let %j = add(%k, 1i64);
  let %r = (%s, %j);
  %r
})";
  for (bool through_a_file : {false, true}) {
    Configuration c{"default"};
    c.round_trip = through_a_file;
    Driver run(text, {}, c);
    std::vector<HostValueRef> items;
    for (int64_t i = 0; i < 5; ++i)
      items.push_back(HostValue::data(0, {vector({1, 2, static_cast<float>(i)}), integer(i)}));
    const HostValueRef offset = vector({0, 1, 0});
    auto out = run({list_of(items), integer(10), offset});
    EXPECT_EQ(number_in(out[1]), 11);
    HostValueRef rest = out[0];
    for (int64_t i = 0; i < 5; ++i) {
      ASSERT_EQ(rest->tag(), 1);
      const HostValueRef pair = rest->fields()[0];
      EXPECT_EQ(number_in(pair->fields()[1]), i + 10);
      const auto* x = reinterpret_cast<const float*>(pair->fields()[0]->bytes());
      EXPECT_EQ(x[1], static_cast<float>(2 * (i + 10) + 1));
      EXPECT_EQ(x[2], static_cast<float>(i * (i + 10)));
      const HostValueRef next = rest->fields()[1];
      rest = next;
    }
    EXPECT_EQ(rest->tag(), 0);
    // Verified bytecode does not make a caller's values right.
    EXPECT_THAT(run.failure({integer(1), integer(1), offset}, Status::kInvalidArgument),
                HasSubstr("List"));
    EXPECT_THAT(run.failure({HostValue::data(3, {}), integer(1), offset}, Status::kInvalidArgument),
                HasSubstr("tag 3"));
    items.push_back(HostValue::data(0, {vector({1}), integer(0)}));
    EXPECT_THAT(run.failure({list_of(items), integer(1), offset}, Status::kInvalidArgument),
                HasSubstr("dim 0 (n)"));
  }
}

TEST(DataValues, FunctionsDoNotCrossTheEntry) {
  const std::pair<const char*, Status> programs[] = {
      {"fn @main(%f: fn(Tensor[(n), f32]) -> Tensor[(n), f32], %x: Tensor[(n), f32]) "
       "{ let %y = %f(%x); %y }",
       Status::kInvalidArgument},
      {"data Nest[A] { End; More(A, Nest[(A, A)]) } fn @main(%n: "
       "Nest[Tensor[(2), f32]]) -> Nest[Tensor[(2), f32]] { %n }",
       Status::kUnsupported}};
  for (const auto& [text, status] : programs) {
    try {
      Driver run(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
    }
  }
}

// @length is not a tail call: each level is a frame of the VM's own stack.
constexpr const char* kDeep = R"(
fn @build(%i: Tensor[(), i64], %l: List[Tensor[(), i64]]) -> List[Tensor[(), i64]] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %c = Cons(%i, %l);
    let %j = sub(%i, 1i64);
    let %m = @build(%j, %c);
    %m
  } else { %l };
  %r
}
fn @length[A](%l: List[A]) -> Tensor[(), i64] {
  let %r = match (%l) {
    Nil => { 0i64 }
    Cons(_, %rest) => { let %n = @length(%rest); let %m = add(%n, 1i64); %m }
  };
  %r
}
fn @sum(%l: List[Tensor[(), i64]], %a: Tensor[(), i64]) -> Tensor[(), i64] {
  let %r = match (%l) {
    Nil => { %a }
    Cons(%x, %rest) => { let %b = add(%a, %x); let %s = @sum(%rest, %b); %s }
  };
  %r
}
)";

TEST(DataValues, RecursionAHundredThousandLevelsDeep) {
  rt::SessionOptions options;
  options.depth = 100'010;
  Driver run(std::string(kListType) + kDeep + R"(
fn @main(%n: Tensor[(), i64]) {
  let %e: List[Tensor[(), i64]] = Nil();
  let %l = @build(%n, %e);
  let %r = @length(%l);
  %r
})",
             options);
  EXPECT_EQ(number_in(run({integer(100'000)})[0]), 100'000);
  EXPECT_THAT(run.failure({integer(100'010)}, Status::kExhausted), HasSubstr("nested"));
  EXPECT_EQ(number_in(run({integer(0)})[0]), 0);
}

TEST(DataValues, AMillionCellsLiveAndDie) {
  Driver run(std::string(kListType) + kDeep + R"(
fn @main(%n: Tensor[(), i64]) {
  let %e: List[Tensor[(), i64]] = Nil();
  let %l = @build(%n, %e);
  let %r = @sum(%l, 0i64);
  let %m = @build(%n, %e);
  let %q = @sum(%m, %r);
  %q
})");
  const int64_t n = 1'000'000;
  EXPECT_EQ(number_in(run({integer(n)})[0]), n * (n + 1));
  const uint64_t held = run.session->memory().in_use;
  EXPECT_EQ(number_in(run({integer(n)})[0]), n * (n + 1));
  EXPECT_EQ(run.session->memory().in_use, held);  // nothing leaks; the second run reuses all
}

// The session's heap refuses to die with live objects, so every other test looks for leaks too.
TEST(DataValues, RecursiveClosuresDoNotLeak) {
  Driver run(std::string(kListType) + R"(
fn @chain(%i: Tensor[(), i64], %x: Tensor[(n), f32], %k: fn(Tensor[(n), f32]) -> Tensor[(n), f32]) -> Tensor[(n), f32] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %next = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] {
      let %a = add(%v, %x);
      let %b = %k(%a);
      %b
    };
    let %j = sub(%i, 1i64);
    let %s = @chain(%j, %x, %next);
    %s
  } else { let %s = %k(%x); %s };
  %r
}
fn @main(%i: Tensor[(), i64], %x: Tensor[(n), f32]) {
  let %id = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] { let %a = tanh(%v); %a };
  let %r = @chain(%i, %x, %id);
  %r
})");
  const auto once = run({integer(50), vector({0.01f, -0.02f})});
  EXPECT_NEAR(reinterpret_cast<const float*>(once[0]->bytes())[0], std::tanh(0.51), 1e-5);
  const uint64_t held = run.session->memory().in_use;
  for (int i = 0; i < 3; ++i) run({integer(50), vector({0.01f, -0.02f})});
  EXPECT_EQ(run.session->memory().in_use, held);
}

TEST(DataValues, TagsAndKnownClosuresCostNoAllocation) {
  Driver run(std::string(kListType) + kDeep + R"(
fn @main(%n: Tensor[(), i64], %k: Tensor[(), i64]) {
  let %e: List[Tensor[(), i64]] = Nil();
  let %f = fn(%x: Tensor[(), i64]) -> Tensor[(), i64] { let %y = mul(%x, %k); %y };
  let %a = %f(%n);
  let %l = @build(%a, %e);
  let %s = @sum(%l, 0i64);
  let %b = %f(%s);
  %b
})");
  EXPECT_EQ(number_in(run({integer(3), integer(2)})[0]), 42);
  EXPECT_EQ(run.instructions["AllocClosure"], 0);
  EXPECT_EQ(run.instructions["InvokeClosure"], 0);
  EXPECT_EQ(run.instructions["GetTag"], 1);
  EXPECT_EQ(run.report.statistics["convert-closures.direct_calls"], 2);
  // Only the border's result is a tensor.
  EXPECT_EQ(run.instructions["AllocStorage"], 1);
}

TEST(DataValues, MemoryOfAListIsGivenBackWhileItIsConsumed) {
  rt::SessionOptions options;
  options.memory_limit = 24 << 20;
  // 64 lists of 1,000 rows of 4 KiB in turn: 4 MB each, 256 MB in all.
  Driver run(std::string(kListType) + R"(
fn @rows(%i: Tensor[(), i64], %x: Tensor[(m), f32], %l: List[Tensor[(m), f32]]) -> List[Tensor[(m), f32]] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %y = exp(%x);
    let %c = Cons(%y, %l);
    let %j = sub(%i, 1i64);
    let %s = @rows(%j, %x, %c);
    %s
  } else { %l };
  %r
}
fn @total(%l: List[Tensor[(m), f32]], %a: Tensor[(m), f32]) -> Tensor[(m), f32] {
  let %r = match (%l) {
    Nil => { %a }
    Cons(%x, %rest) => { let %b = add(%a, %x); let %s = @total(%rest, %b); %s }
  };
  %r
}
fn @again(%i: Tensor[(), i64], %x: Tensor[(m), f32], %a: Tensor[(m), f32]) -> Tensor[(m), f32] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %e: List[Tensor[(m), f32]] = Nil();
    let %l = @rows(1000i64, %x, %e);
    let %b = @total(%l, %a);
    let %j = sub(%i, 1i64);
    let %s = @again(%j, %x, %b);
    %s
  } else { %a };
  %r
}
fn @main(%x: Tensor[(m), f32]) {
  let %z = sub(%x, %x);
  let %r = @again(64i64, %x, %z);
  %r
})",
             options);
  const auto out = run({vector(std::vector<float>(1024, 0.0f))});
  EXPECT_EQ(reinterpret_cast<const float*>(out[0]->bytes())[1023], 64000.0f);
}

// n flags; case i wants flags i and i+1 set. As a tree the tests are as many as Fibonacci's
// numbers, and the default stands at every leaf.
std::string flags_match(int n) {
  std::string parameters, values, cases;
  for (int i = 0; i < n; ++i) {
    parameters += fmt::format("{}%b{}: Tensor[(), i64]", i ? ", " : "", i);
    values += fmt::format(
        "  let %c{0} = equal(%b{0}, 1i64);\n"
        "  let %f{0} = if (%c{0}) {{ let %s = Yes(); %s }} else {{ let %s = No(); %s }};\n",
        i);
  }
  std::string tuple;
  for (int i = 0; i < n; ++i) tuple += fmt::format("{}%f{}", i ? ", " : "", i);
  for (int i = 0; i + 1 < n; ++i) {
    cases += "    (";
    for (int j = 0; j < n; ++j)
      cases += fmt::format("{}{}", j ? ", " : "", j == i || j == i + 1 ? "Yes" : "_");
    cases += fmt::format(") => {{ let %r = add(%b0, {}i64); let %q = mul(%r, %b1); %q }}\n", i);
  }
  return "data Flag { No; Yes }\nfn @main(" + parameters + ") {\n" + values + "  let %t = (" +
         tuple + ");\n  let %r = match (%t) {\n" + cases +
         "    _ => { let %r = sub(%b0, 7i64); let %q = mul(%r, 2i64); %q }\n  };\n  %r\n}";
}

TEST(DataValues, OverlappingPatternsStaySmall) {
  std::map<int, int64_t> tests;
  for (int n : {6, 12, 24}) {
    Driver run(flags_match(n));
    tests[n] = run.report.statistics["flatten-matches.tests"];
    // One multiplication for each case and the default, wherever they are shared.
    std::vector<HostValueRef> in;
    for (int i = 0; i < n; ++i) in.push_back(integer(i == 0 || i == n - 2 || i == n - 1));
    EXPECT_EQ(number_in(run(in)[0]), 0) << "b1 is 0";
    in[0] = integer(0);
    EXPECT_EQ(number_in(run(in)[0]), 0);
    in[1] = integer(2);  // no flag, but a factor
    EXPECT_EQ(number_in(run(in)[0]), 2 * (n - 2));
    for (HostValueRef& v : in) v = integer(0);
    EXPECT_EQ(number_in(run(in)[0]), -14);
  }
  // Linear, at most three tests a flag: as a tree, 24 flags would take more than 10^4.
  for (const auto& [n, count] : tests) EXPECT_LE(count, 3 * n);
}

}  // namespace
}  // namespace nimble::driver::testing
