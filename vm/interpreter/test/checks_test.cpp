// The checks of a run, one by one: what is just allowed works, what is not is an error that says
// so. scripts/mutate-verifier tells which are missing.
#include <gmock/gmock.h>

#include "vm/base/fault/failing_calls.h"
#include "vm/interpreter/fuzz/portable_programs.h"
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Checks : public Interpreter {
 protected:
  void SetUp() override {
    Interpreter::SetUp();
    static const bool once = [] {
      using Kind = exec::ImplementationKind;
      const auto nothing = [](const LibraryCall&, int32_t, int32_t, nimble_barrier*) {};
      for (const char* name : {"test.leaves_all", "test.data"})
        add_library_kernel({name, Kind::kHost, "", "Does nothing.", accept, nullptr, nothing});
      return true;
    }();
    (void)once;
  }
  // "" or the message.
  std::string failure_of(const std::vector<Input>& inputs, Status status = Status::kFatal) {
    std::vector<InputTensor> in;
    for (const Input& i : inputs) in.push_back({i.values.data(), DType::kF32, i.shape, {}, true});
    std::vector<OutputTensor> out(model_->executable().entries[0].outputs.size());
    try {
      session_->run(0, in, out);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      return e.what();
    }
    return "";
  }
  std::string load_failure(const std::string& text, Status status, bool trust = false) {
    try {
      load(text, {}, trust);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      return e.what();
    }
    return "";
  }
};

const Input kThree{{3}, {1, 2, 3}};

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

// --- Kernels ------------------------------------------------------------------------------------

constexpr char kUse[] = R"(
function "main" 1 4 {
  InvokePacked k"k", (r0)
  LoadConsti r1, 1
  Ret r1
}
)";

TEST_F(Checks, RanksOfAContract) {
  load(
      "kernel \"k\" { symbols n m  in f32 ([a0], [a1])  scratch [0]  dispatch { 0: 0 }  "
      "host \"test.leaves_all\" }" +
      std::string(kUse) + R"(
entry "main" f0 { input "x" f32 ["a", "b"] [-1, -1]  output "y" i64 [] [] }
entry "more" f0 { input "x" f32 ["a", "b", "c"] [-1, -1, -1]  output "y" i64 [] [] }
entry "fewer" f0 { input "x" f32 ["a"] [-1]  output "y" i64 [] [] }
)");
  EXPECT_NO_THROW(run({{{1, 3}, {1, 2, 3}}}));
  for (const auto& [entry, shape] :
       {std::pair("more", std::vector<int64_t>{1, 1, 3}), {"fewer", {3}}})
    try {
      run({{shape, {1, 2, 3}}}, 1, entry);
      ADD_FAILURE() << entry;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kFatal);
      EXPECT_THAT(e.what(), HasSubstr("argument 0 must be f32"));
    }
}

// Surplus leading axes are collapsed, one or several; none is none.
TEST_F(Checks, RowsOfAContract) {
  exec::Executable e = exec::assemble(R"(
kernel "k" { symbols n m  in rows f32 ([a0], [a1])  scratch [0]  dispatch { 0: 0 }  portable "k" }
)" + std::string(kUse) + R"(
entry "two" f0 { input "x" f32 ["a", "b"] [-1, -1]  output "y" i64 [] [] }
entry "three" f0 { input "x" f32 ["a", "b", "c"] [-1, -1, -1]  output "y" i64 [] [] }
entry "four" f0 { input "x" f32 ["a", "b", "c", "d"] [-1, -1, -1, -1]  output "y" i64 [] [] }
entry "one" f0 { input "x" f32 ["a"] [-1]  output "y" i64 [] [] }
)");
  using Op = exec::PortableOp;
  exec::PortableKernel k;
  k.indices = 4;
  k.values = {{DType::kF32, 1}};
  // Only what has six rows of one passes.
  k.code = {{Op::kIndexConst, {2, 6}}, {Op::kIndexEq, {3, 0, 2}}, {Op::kCheck, {3, 77}}};
  e.kernels[0].portable = k;
  model_ = Model::load(std::move(e), LoadOptions{}, "test");
  session_ = std::make_unique<Session>(model_, SessionOptions{1});
  const std::vector<float> six(6, 1);
  EXPECT_NO_THROW(run({{{6, 1}, six}}, 1, "two"));
  EXPECT_NO_THROW(run({{{2, 3, 1}, six}}, 1, "three"));
  EXPECT_NO_THROW(run({{{3, 1, 2, 1}, six}}, 1, "four"));
  const auto failure = [&](std::vector<int64_t> shape, const char* entry) -> std::string {
    try {
      run({{std::move(shape), six}}, 1, entry);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kFatal);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(failure({6}, "one"), HasSubstr("argument 0 must be f32"));
  // Only the product of an empty tensor's other extents may not fit.
  const int64_t much = int64_t{1} << 31;
  EXPECT_THAT(failure({2 * much, 2 * much, 1, 0}, "four"), HasSubstr("argument 0 must be f32"));
  EXPECT_THAT(failure({much, much, 1, 0}, "four"), HasSubstr("code 77"));
  // A check of the kernel itself.
  EXPECT_THAT(failure({5, 1}, "two"), AllOf(HasSubstr("code 77"), HasSubstr("n = 5")));
}

TEST_F(Checks, ScalarsAndDataOfAContract) {
  const auto call = [&](const std::string& contract, const std::string& code) {
    load("kernel \"k\" { " + contract +
         "  scratch [0]  dispatch { 0: 0 }  host \"test.data\" }\n"
         "function \"main\" 1 4 { " +
         code + "  LoadConsti r1, 1  Ret r1 }\n" + kScalarEntry);
    return failure_of({kThree});
  };
  const std::string n = "symbols n  in f32 ([a0])  scalar n";
  EXPECT_EQ(call(n, "LoadConsti r1, 3  InvokePacked k\"k\", (r0, r1)"), "");
  EXPECT_THAT(call(n, "LoadConsti r1, 4  InvokePacked k\"k\", (r0, r1)"),
              HasSubstr("must be n = 3, it is 4"));
  EXPECT_EQ(call("data", "AllocADT r1, 0, ()  InvokePacked k\"k\", (r1)"), "");
  EXPECT_THAT(call("data", "InvokePacked k\"k\", (r0)"),
              HasSubstr("must be a data-type value, it is a tensor"));
  EXPECT_THAT(call("data",
                   "LoadConsti r1, 5  AllocADT r1, 0, (r1)  GetField r1, r1, 0  "
                   "InvokePacked k\"k\", (r1)"),
              HasSubstr("must be a data-type value, it is a scalar"));
  EXPECT_THAT(call("symbols n  in f32 ([a0])  require [a0 3 !=]", "InvokePacked k\"k\", (r0)"),
              HasSubstr("break"));
}

TEST_F(Checks, ScratchIsNotNegative) {
  const auto call = [&](const std::string& scratch) {
    load("kernel \"k\" { symbols n  in f32 ([a0])  scratch " + scratch +
         "  dispatch { 0: 0 }  host \"test.leaves_all\" }" + std::string(kUse) + kScalarEntry);
    return failure_of({kThree});
  };
  EXPECT_EQ(call("[a0 3 -]"), "");
  EXPECT_EQ(call("[a0]"), "");
  EXPECT_THAT(call("[a0 4 -]"), HasSubstr("-1 bytes of scratch"));
}

TEST_F(Checks, RoutinesThatThisRuntimeDoesNotKnow) {
  const auto text = [](const std::string& implementations) {
    return "kernel \"k\" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  " +
           implementations + " }" + std::string(kUse) + kScalarEntry;
  };
  EXPECT_THAT(load_failure(text("vendor \"nobody.knows\""), Status::kIncompatible, true),
              HasSubstr("does not know it"));
  EXPECT_THAT(load_failure(text("host \"nobody.knows\""), Status::kUnsupported),
              HasSubstr("which this runtime lacks"));
  EXPECT_EQ(
      load_failure(text("vendor \"nobody.knows\" host \"test.leaves_all\""), Status::kOk, true),
      "");
  EXPECT_EQ(failure_of({kThree}), "");
  EXPECT_THAT(load_failure(text("native \"k\""), Status::kCorrupt, true),
              HasSubstr("native code is missing"));
}

// A kernel that needs no native code has none, in a file that another one needs it in.
TEST_F(Checks, HostKernelsBesideNativeOnes) {
  std::string text = fuzz::kPortableText;
  text.replace(text.find("portable \"portable\""), 19, "native \"portable\"");
  exec::Executable e = exec::assemble(
      text + "kernel \"h\" { out f32 ([1])  dispatch { 0: 0 }  host \"host.zero\" }");
  e.kernels[0].portable = fuzz::portable_program({}).kernels[0].portable;
  EXPECT_NO_THROW(Model::load(std::move(e), LoadOptions{}, "test"));
}

// Of one byte, too, among few arguments and among many.
TEST_F(Checks, OverlapsOfOneByte) {
  const auto call = [&](int64_t second, bool many) {
    std::string others, more;
    for (int i = 0; many && i < 16; ++i) others += "in u8 ([4])  ", more += "r3, ";
    load(fmt::format(R"(
kernel "k" {{ {}in u8 ([4])  out u8 ([4])  scratch [0] dispatch {{ 0: 0 }} host "test.leaves_all" }}
function "main" 1 6 {{
  LoadConsti r1, 64
  AllocStorage r1, r1, 64, d0
  LoadConsti r2, 0
  AllocTensor r3, r1, r2, u8, [4]
  LoadConsti r2, {}
  AllocTensor r4, r1, r2, u8, [4]
  InvokePacked k"k", ({}r3, r4)
  LoadConsti r5, 1
  Ret r5
}}
)",
                     others, second, more) +
         kScalarEntry);
    return failure_of({kThree});
  };
  for (const bool many : {false, true}) {
    EXPECT_THAT(call(3, many), HasSubstr("share memory"));
    EXPECT_EQ(call(4, many), "");
  }
}

// --- Memory -------------------------------------------------------------------------------------

// Of a view in the middle of a storage: what the tensor does not hold, the storage may.
// A tensor of `extent` floats at `offset` of what `code` leaves in r1, which is given a storage of
// so many bytes.
std::string placed(const std::string& code, int64_t bytes, int64_t offset, int64_t extent,
                   const char* dtype = "f32") {
  return fmt::format(R"(
function "main" 1 8 {{
  LoadConsti r1, {}
  AllocStorage r1, r1, 64, d0
{}  LoadConsti r2, {}
  LoadConsti r4, {}
  AllocTensorReg r5, r1, r2, {}, (r4)
  LoadConsti r5, 1
  Ret r5
}}
)",
                     bytes, code, offset, extent, dtype) +
         kScalarEntry;
}

TEST_F(Checks, PartsOfATensor) {
  const auto part = [&](int64_t offset, int64_t extent, const char* dtype = "f32") {
    load(placed("  LoadConsti r2, 64\n  AllocTensor r1, r1, r2, f32, [16]\n", 256, offset, extent,
                dtype));
    return failure_of({kThree});
  };
  EXPECT_EQ(part(63, 1, "u8"), "");
  EXPECT_THAT(part(63, 2, "u8"), HasSubstr("lies outside of a tensor"));
  EXPECT_THAT(part(65, 0, "u8"), HasSubstr("lies outside of a tensor"));
  EXPECT_EQ(part(0, 16), "");
  EXPECT_EQ(part(60, 1), "");
  EXPECT_EQ(part(64, 0), "");
  for (const auto& [offset, extent] : {std::pair<int64_t, int64_t>(0, 17),
                                       {4, 16},
                                       {64, 1},
                                       {68, 0},
                                       {-4, 1},
                                       {-4, 0},
                                       {0, -1},
                                       {0, INT64_MAX},
                                       {INT64_MAX - 3, 0},
                                       {INT64_MIN, 0}})
    EXPECT_THAT(part(offset, extent), HasSubstr("lies outside of a tensor")) << offset;
}

TEST_F(Checks, TensorsLieInTheirStorage) {
  const auto place = [&](int64_t offset, int64_t extent) {
    load(placed("", 64, offset, extent));
    return failure_of({kThree});
  };
  EXPECT_EQ(place(0, 16), "");
  EXPECT_EQ(place(64, 0), "");
  EXPECT_EQ(place(60, 1), "");
  for (const auto& [offset, extent] : {std::pair<int64_t, int64_t>(0, 17),
                                       {64, 1},
                                       {68, 0},
                                       {-4, 1},
                                       {-4, 0},
                                       {2, 1},
                                       {0, -1},
                                       {INT64_MAX - 3, 0}})
    EXPECT_NE(place(offset, extent), "") << offset << " " << extent;
}

TEST_F(Checks, OnlyAStorageOfItsOwnIsExtended) {
  const auto storage_of = [&](const std::string& code) {
    load("constant \"c\" f32 [4] { 1, 2, 3, 4 }\nfunction \"main\" 1 6 { " + code +
         "  GetStorage r4, r1  LoadConsti r5, 1  Ret r5 }\n" + kScalarEntry);
    return failure_of({kThree});
  };
  EXPECT_EQ(storage_of("DeviceCopy r1, r0, d0"), "");
  EXPECT_THAT(storage_of("Move r1, r0"), HasSubstr("no storage of its own"));
  EXPECT_THAT(storage_of("LoadConst r1, c0"), HasSubstr("no storage of its own"));
  EXPECT_THAT(storage_of("DeviceCopy r1, r0, d0  LoadConsti r2, 4  "
                         "AllocTensor r1, r1, r2, f32, [1]"),
              HasSubstr("no storage of its own"));
}

// --- Cancelling ---------------------------------------------------------------------------------

// Every instruction that other code may run behind, and every charge of much work, looks for a
// cancel: what comes next would fail otherwise.
TEST_F(Checks, WhatMayTakeLongIsCancelled) {
  const auto cancelled = [&](const std::string& code) {
    load(
        "text \"too late\"\nscalar \"twice\" [a0 2 *]\n"
        "kernel \"k\" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  "
        "host \"test.leaves_all\" }\n"
        "function \"main\" 1 4 { " +
        code + "  late: Fatal t0, () }\nfunction \"late\" 0 1 { Fatal t0, () }\n" + kScalarEntry);
    session_->cancel(session_->next_run());
    try {
      run({kThree});
      return false;
    } catch (const Error& e) {
      return e.status() == Status::kCancelled;
    }
  };
  for (const char* code :
       {"LoadConsti r1, 1  Ret r1", "LoadConsti r1, 1  If r1, @late, @late", "Goto @late",
        "LoadConsti r1, 1  Invoke r1, f\"twice\", (r1)",
        "AllocClosure r1, f\"late\", ()  InvokeClosure r1, r1, ()", "InvokePacked k\"k\", (r0)"})
    EXPECT_TRUE(cancelled(code)) << code;
  const auto clear = [&](uint64_t steps) {
    return cancelled(fmt::format("LoadConsti r1, {}  AllocStorage r1, r1, 64, d0",
                                 steps * WorkMeter::kBytesPerStep));
  };
  EXPECT_FALSE(clear(WorkMeter::kPollSteps - 1));
  EXPECT_TRUE(clear(WorkMeter::kPollSteps));
}

// As soon as it is asked to: before the next kernel.
TEST_F(Checks, ARunIsSuspendedBetweenTwoKernels) {
  using Kind = exec::ImplementationKind;
  static Session* asked = nullptr;
  static int calls = 0;
  static const bool once = [] {
    add_library_kernel({"test.suspends", Kind::kHost, "", "Suspends its own run.", accept, nullptr,
                        [](const LibraryCall&, int32_t thread, int32_t, nimble_barrier*) {
                          if (thread != 0) return;
                          ++calls;
                          asked->suspend();
                        }});
    return true;
  }();
  (void)once;
  load(
      "kernel \"k\" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  "
      "host \"test.suspends\" }\n"
      "function \"main\" 1 4 { InvokePacked k\"k\", (r0)  InvokePacked k\"k\", (r0)  "
      "LoadConsti r1, 1  Ret r1 }\n" +
      std::string(kScalarEntry));
  asked = session_.get();
  calls = 0;
  const InputTensor in{kThree.values.data(), DType::kF32, kThree.shape, {}, true};
  session_->start(0, {&in, 1});
  OutputTensor out;
  EXPECT_FALSE(session_->resume(0, {&out, 1}));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(session_->resume(0, {&out, 1}));
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(session_->resume(0, {&out, 1}));
}

// --- Portable code ------------------------------------------------------------------------------

TEST_F(Checks, PortableAccessesEndAtTheFirstAndTheLastElement) {
  using Op = exec::PortableOp;
  const auto access = [&](Op op, int64_t first, int64_t stride) {
    exec::Executable e = exec::assemble(fuzz::kPortableText);
    exec::PortableKernel k;
    k.indices = 4;
    k.values = {{DType::kF32, 4}};
    k.code = {
        {Op::kIndexConst, {1, first}}, {Op::kIndexConst, {2, 0}}, {Op::kIndexConst, {3, stride}}};
    if (op == Op::kLoad) k.code.push_back({op, {0, 0, 1, 2, 0}});
    if (op == Op::kLoadStrided) k.code.push_back({op, {0, 0, 1, 2, 0, 3}});
    e.kernels[0].portable = k;
    model_ = Model::load(std::move(e), LoadOptions{}, "test");
    session_ = std::make_unique<Session>(model_, SessionOptions{1});
    return failure_of({{{10}, std::vector<float>(10, 1)}});
  };
  for (const int64_t first : {0, 3, 6}) EXPECT_EQ(access(Op::kLoad, first, 1), "") << first;
  for (const int64_t first : {int64_t{-1}, int64_t{7}, int64_t{10}, INT64_MIN, INT64_MAX})
    EXPECT_THAT(access(Op::kLoad, first, 1), HasSubstr("accesses element")) << first;
  for (const auto& [first, stride] :
       {std::pair<int64_t, int64_t>(0, 3), {9, -3}, {9, 0}, {0, 0}, {6, 1}})
    EXPECT_EQ(access(Op::kLoadStrided, first, stride), "") << first;
  for (const auto& [first, stride] :
       {std::pair<int64_t, int64_t>(1, 3), {8, -3}, {10, 0}, {-1, 0}, {7, 1}, {0, INT64_MIN}})
    EXPECT_THAT(access(Op::kLoadStrided, first, stride), HasSubstr("accesses element")) << first;
}

}  // namespace
}  // namespace nimble::rt
