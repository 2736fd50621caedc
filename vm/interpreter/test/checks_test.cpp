// The checks of a run, one by one: what is just allowed works, what is not is an error that says
// so. scripts/mutate-verifier tells which are missing. Here those of entry points;
// kernel_checks_test.cpp has the others.
#include <gmock/gmock.h>

#include "vm/base/fault/failing_calls.h"
#include "vm/interpreter/test/checks_harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- What an entry point returns ----------------------------------------------------------------

constexpr char kTypes[] = R"(
type "i64" scalar i64
type "Pair" tuple (0, 2)
type "Vector" tensor f32 ["n"] [-1]
type "Maybe" data { "Nothing" () "Just" (0) }
constant "integers" i64 [3] { 1, 2, 3 }
)";

TEST_F(Checks, ReturnedValuesAreOfTheirTypes) {
  const auto returns = [&](int type, const std::string& code) {
    load(kTypes + ("function \"main\" 1 6 { LoadConsti r1, 7  " + code + "  Ret r2 }\n") +
         fmt::format("entry \"main\" f0 {{ input \"x\" f32 [\"n\"] [-1]  output \"y\" type {} }}",
                     type));
    return failure_of({kThree});
  };
  const std::string scalar = "Move r2, r1", tensor = "Move r2, r0", nothing = "AllocADT r2, 0, ()",
                    just = "AllocADT r2, 1, (r1)", pair = "AllocADT r2, 0, (r1, r0)",
                    integers = "LoadConst r2, c0",
                    reshaped =
                        "LoadConsti r3, 1  LoadConsti r4, 3  "
                        "ReshapeTensor r2, r0, (r3, r4)",
                    freed =
                        "LoadConsti r3, 64  AllocStorage r3, r3, 64, d0  LoadConsti r4, 0  "
                        "AllocTensor r2, r3, r4, f32, [3]  FreeStorage r3";
  struct Case {
    int type;
    std::vector<std::string> right, wrong;
  };
  const Case cases[] = {{0, {scalar}, {tensor, integers, nothing}},
                        {1, {pair}, {scalar, tensor, nothing, just, "AllocADT r2, 1, (r1, r0)"}},
                        {2, {tensor}, {scalar, nothing, integers, reshaped, freed}},
                        {3,
                         {nothing, just},
                         {scalar, tensor, "AllocADT r2, 0, (r1)", "AllocADT r2, 1, ()",
                          "AllocADT r2, 2, ()", "AllocADT r2, 1, (r0)"}}};
  for (const Case& c : cases) {
    for (const std::string& code : c.right) EXPECT_EQ(returns(c.type, code), "") << code;
    for (const std::string& code : c.wrong)
      EXPECT_THAT(returns(c.type, code), HasSubstr("returned no value of the type")) << code;
  }
}

TEST_F(Checks, ReturnedTensorsAreOfTheirPorts) {
  const auto returns = [&](const std::string& port, const std::string& code,
                           Status status = Status::kFatal) {
    load(kTypes + ("function \"main\" 1 6 { LoadConsti r1, 7  " + code + "  Ret r2 }\n") +
         "entry \"main\" f0 { input \"x\" f32 [\"n\"] [-1]  " + port + " }");
    return failure_of({kThree}, status);
  };
  const std::string vector = "output \"y\" f32 [\"n\"] [-1]", scalar = "Move r2, r1",
                    tensor = "Move r2, r0", adt = "AllocADT r2, 0, (r0, r0)";
  EXPECT_EQ(returns(vector, tensor), "");
  EXPECT_THAT(returns(vector, scalar), HasSubstr("returned a scalar"));
  EXPECT_THAT(returns(vector, adt, Status::kUnsupported), HasSubstr("it is no"));
  EXPECT_THAT(returns(vector, "LoadConst r2, c0"), HasSubstr("returned i64 with 1 dims"));
  EXPECT_THAT(returns("output \"y\" f32 [\"n\", \"m\"] [-1, -1]", tensor),
              HasSubstr("returned f32 with 1 dims"));
  EXPECT_THAT(returns(vector,
                      "LoadConsti r3, 64  AllocStorage r3, r3, 64, d0  LoadConsti r4, 0  "
                      "AllocTensor r2, r3, r4, f32, [3]  FreeStorage r3"),
              HasSubstr("storage that was freed"));
  // Scalars are tensors without dims, of integers or bools.
  for (const char* dtype : {"i64", "i32", "u8", "bool"})
    EXPECT_EQ(returns(fmt::format("output \"y\" {} [] []", dtype), scalar), "") << dtype;
  EXPECT_THAT(returns("output \"y\" f32 [] []", scalar), HasSubstr("returned a scalar"));
  // Several outputs are a tuple of as many.
  const std::string two = vector + " output \"z\" f32 [\"n\"] [-1]";
  EXPECT_EQ(returns(two, adt), "");
  EXPECT_THAT(returns(two, tensor), HasSubstr("no tuple of 2"));
  EXPECT_THAT(returns(two, scalar), HasSubstr("no tuple of 2"));
  EXPECT_THAT(returns(two, "AllocADT r2, 0, (r0)"), HasSubstr("no tuple of 2"));
  EXPECT_THAT(returns(two, "AllocADT r2, 0, (r0, r0, r0)"), HasSubstr("no tuple of 2"));
}

TEST_F(Checks, NoBufferHoldsAValue) {
  load(kTypes + std::string("function \"main\" 1 2 { LoadConsti r1, 7  Ret r1 }\n"
                            "entry \"main\" f0 { input \"x\" f32 [\"n\"] [-1]  "
                            "output \"y\" type 0 }"));
  const int64_t shape[] = {3};
  const InputTensor in{kThree.values.data(), DType::kF32, shape, {}, true};
  int64_t buffer = 0;
  OutputTensor out;
  out.destination = &buffer;
  out.capacity = sizeof buffer;
  try {
    session_->run(0, {&in, 1}, {&out, 1});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("no buffer holds"));
  }
}

// --- What an entry point is given ---------------------------------------------------------------

TEST_F(Checks, EntryPointsThatAreNotThere) {
  load(std::string(kAddKernel) + kAddModel);
  const int64_t shape[] = {3};
  const InputTensor in{kThree.values.data(), DType::kF32, shape, {}, true};
  for (const size_t entry : {size_t{1}, size_t{99}}) {
    OutputTensor out;
    try {
      session_->run(entry, {&in, 1}, {&out, 1});
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kNotFound);
    }
  }
}

TEST_F(Checks, ThreadsOfASession) {
  load(std::string(kAddKernel) + kAddModel);
  const FailCall none(SystemCall::kCreateThread, 1, true);
  for (const int32_t threads : {-1, 1025, INT32_MIN}) {
    SessionOptions options;
    options.threads = threads;
    EXPECT_THROW(Session(model_, options), Error) << threads;
  }
  for (const int32_t threads : {0, 1, 1024}) {
    SessionOptions options;
    options.threads = threads;
    EXPECT_NO_THROW(Session(model_, options)) << threads;
  }
}

// A call with the shapes of the one before is looked at less, but not overlooked.
TEST_F(Checks, ALaterCallIsCheckedAsTheFirst) {
  load(std::string(kAddKernel) + kAddModel);
  const int64_t shape[] = {3}, other[] = {2};
  const auto call = [&](const InputTensor& in) -> std::string {
    OutputTensor out;
    try {
      session_->run(0, {&in, 1}, {&out, 1});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const InputTensor good{kThree.values.data(), DType::kF32, shape, {}, true};
  const auto after_a_good_one = [&](const InputTensor& in) {
    EXPECT_EQ(call(good), "");
    return call(in);
  };
  InputTensor in = good;
  in.dtype = DType::kI32;
  EXPECT_THAT(after_a_good_one(in), HasSubstr("it is i32, not f32"));
  in = good;
  in.given = false;
  EXPECT_THAT(after_a_good_one(in), HasSubstr("it is not given and has no default"));
  in = good;
  in.data = nullptr;
  EXPECT_THAT(after_a_good_one(in), HasSubstr("it has no data"));
  in = good;
  in.shape = other;
  EXPECT_THAT(after_a_good_one(in), HasSubstr("add"));
  const int64_t strides[] = {1, 1};
  in = good;
  in.strides = strides;
  EXPECT_THAT(after_a_good_one(in), HasSubstr("as many strides as dims"));
  const HostValueRef value = HostValue::data(0, {});
  in = good;
  in.value = value.get();
  EXPECT_THAT(after_a_good_one(in), HasSubstr("it is a value of a data type, not a tensor"));
  EXPECT_EQ(call(good), "");
}

// Elements that lie one after another are not copied: memory of the caller's is no memory of the
// session's.
TEST_F(Checks, DenseInputsAreBorrowed) {
  SessionOptions options;
  options.memory_limit = 1 << 20;
  load(R"(
function "main" 1 2 { LoadConsti r1, 1  Ret r1 }
entry "main" f0 { input "x" f32 ["1", "n"] [1, -1]  output "y" i64 [] [] }
)",
       options);
  const int64_t n = 1 << 19;  // twice the limit
  const std::vector<float> data(2 * n);
  const auto fits = [&](std::vector<int64_t> strides) {
    const int64_t shape[] = {1, n};
    const InputTensor in{data.data(), DType::kF32, shape, strides, true};
    OutputTensor out;
    try {
      session_->run(0, {&in, 1}, {&out, 1});
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kExhausted);
      return false;
    }
    return true;
  };
  EXPECT_TRUE(fits({}));
  EXPECT_TRUE(fits({n, 1}));
  EXPECT_TRUE(fits({99, 1}));
  EXPECT_FALSE(fits({n, 2}));
}

TEST_F(Checks, StridesOfExtentsOfOneDoNotMatter) {
  load(R"(
function "main" 1 1 { Ret r0 }
entry "main" f0 { input "x" f32 ["1", "n"] [1, -1]  output "y" f32 ["1", "n"] [1, -1] }
)");
  const float data[] = {1, 2, 3, 4, 5};
  const auto first = [&](std::vector<int64_t> strides) {
    const int64_t shape[] = {1, 3};
    const InputTensor in{data, DType::kF32, shape, strides, true};
    OutputTensor out;
    session_->run(0, {&in, 1}, {&out, 1});
    const auto* y = static_cast<const float*>(out.data);
    return std::vector<float>(y, y + 3);
  };
  EXPECT_THAT(first({99, 1}), ElementsAre(1, 2, 3));
  EXPECT_THAT(first({3, 1}), ElementsAre(1, 2, 3));
  EXPECT_THAT(first({3, 2}), ElementsAre(1, 3, 5));
}

TEST_F(Checks, DefaultsHaveASizeThatIsKnownAndNotTooLarge) {
  load(R"(
function "main" 2 3 { AllocADT r2, 0, (r0, r1)  Ret r2 }
entry "main" f0 {
  input "x" f32 ["n", "m"] [-1, -1] default "zeros"
  input "mask" i64 ["n", "2"] [-1, 2] default "ones"
  output "x" f32 ["n", "m"] [-1, -1]
  output "mask" i64 ["n", "2"] [-1, 2]
}
)");
  const auto call = [&](bool given, int64_t n) -> std::string {
    const int64_t shape[] = {n, 0};
    InputTensor in[2];
    in[0] = {nullptr, DType::kF32, shape, {}, given};
    std::vector<OutputTensor> out(2);
    try {
      session_->run(0, in, out);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument);
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(call(true, 3), "");
  EXPECT_EQ(call(true, 0), "");
  EXPECT_THAT(call(false, 3), HasSubstr("no other input tells its dim 0 (n)"));
  EXPECT_THAT(call(true, int64_t{1} << 60), HasSubstr("its default is too large"));
}

TEST_F(Checks, ValuesOfTheHost) {
  const int64_t ones[kMaxRank + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[] = {-1}, none[] = {0};
  const float x = 1;
  const auto tensor = [](std::span<const int64_t> shape, const void* data) {
    HostValue::tensor(DType::kF32, shape, data);
  };
  EXPECT_NO_THROW(tensor(std::span(ones).first(kMaxRank), &x));
  EXPECT_THROW(tensor(ones, &x), Error);
  EXPECT_THROW(tensor(negative, &x), Error);
  EXPECT_NO_THROW(tensor(none, nullptr));
  EXPECT_THROW(tensor(std::span(ones).first(1), nullptr), Error);
  EXPECT_THROW(HostValue::tensor(DType::kU8, std::span(ones).first(1), nullptr), Error);
  EXPECT_NO_THROW(HostValue::data(0, {}));
  EXPECT_THROW(HostValue::data(-1, {}), Error);
  EXPECT_THROW(HostValue::data(0, {HostValueRef()}), Error);
}

// Of the first type, too.
TEST_F(Checks, ATensorIsNoValue) {
  load(R"(
type "One" tuple ()
function "main" 1 1 { Ret r0 }
entry "main" f0 { input "x" type 0  output "y" type 0 }
)");
  EXPECT_THAT(failure_of({kThree}, Status::kInvalidArgument),
              AllOf(HasSubstr("it is a tensor, not a value"), HasSubstr("give a One")));
}

// To the byte: the parts of a value and what holds them.
TEST_F(Checks, AReturnedValueTakesWhatItIs) {
  const int64_t n = 1 << 19;
  const uint64_t takes = 4 * n + sizeof(HostValueRef) + 2 * sizeof(HostValue);
  const std::vector<float> data(n);
  const auto status = [&](uint64_t limit) {
    SessionOptions options;
    options.memory_limit = limit;
    load(R"(
type "One" tuple (1)
type "Vector" tensor f32 ["n"] [-1]
function "main" 1 2 { AllocADT r1, 0, (r0)  Ret r1 }
entry "main" f0 { input "x" f32 ["n"] [-1]  output "y" type 0 }
)",
         options);
    const int64_t shape[] = {n};
    const InputTensor in{data.data(), DType::kF32, shape, {}, true};
    OutputTensor out;
    try {
      session_->run(0, {&in, 1}, {&out, 1});
    } catch (const Error& e) {
      return e.status();
    }
    return Status::kOk;
  };
  EXPECT_EQ(status(takes), Status::kOk);
  EXPECT_EQ(status(takes - 1), Status::kExhausted);
}

TEST_F(Checks, BuffersAreLargeEnough) {
  load(std::string(kAddKernel) + kAddModel);
  const int64_t shape[] = {3};
  const InputTensor in{kThree.values.data(), DType::kF32, shape, {}, true};
  for (const uint64_t capacity : {11, 12}) {
    std::vector<float> buffer(4);
    OutputTensor out;
    out.destination = buffer.data();
    out.capacity = capacity;
    try {
      session_->run(0, {&in, 1}, {&out, 1});
      EXPECT_EQ(capacity, 12u);
    } catch (const Error& e) {
      EXPECT_EQ(capacity, 11u);
      EXPECT_THAT(e.what(), HasSubstr("it takes 12 bytes, the buffer given has 11"));
    }
  }
}

TEST_F(Checks, GivenValuesAreOfTheirTypes) {
  load(R"(
type "any" tensor f32 ["?"] [-1]
type "Two" tuple (0, 2)
type "fixed" tensor f32 ["0"] [0]
function "main" 1 1 { Ret r0 }
entry "main" f0 { input "x" type 1  output "y" type 1 }
)");
  const float data[] = {1, 2, 3, 4};
  const auto vector = [&](std::vector<int64_t> shape, DType dtype = DType::kF32) {
    return HostValue::tensor(dtype, shape, data);
  };
  const auto call = [&](std::vector<HostValueRef> fields, int64_t tag = 0) -> std::string {
    const HostValueRef value = HostValue::data(tag, std::move(fields));
    InputTensor in;
    in.given = true;
    in.value = value.get();
    OutputTensor out;
    try {
      session_->run(0, {&in, 1}, {&out, 1});
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument) << e.what();
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(call({vector({3}), vector({0})}), "");
  EXPECT_THAT(call({vector({3}), vector({1})}), HasSubstr("dim 0 (0) of a tensor in it is 1"));
  EXPECT_THAT(call({vector({1, 3}), vector({0})}), HasSubstr("it holds f32 (1, 3)"));
  EXPECT_THAT(call({vector({3}, DType::kI32), vector({0})}), HasSubstr("it holds i32 (3)"));
  EXPECT_THAT(call({vector({3})}), HasSubstr("has 2 fields, not 1"));
  EXPECT_THAT(call({vector({3}), vector({0})}, 1), HasSubstr("none with tag 1"));
  EXPECT_THAT(call({HostValue::data(0, {}), vector({0})}), HasSubstr("it holds a constructor"));
  // A tensor in the place of the value.
  const int64_t shape[] = {4};
  const InputTensor in{data, DType::kF32, shape, {}, true};
  OutputTensor out;
  try {
    session_->run(0, {&in, 1}, {&out, 1});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("it is a tensor"), HasSubstr("give a Two")));
  }
}

}  // namespace
}  // namespace nimble::rt
