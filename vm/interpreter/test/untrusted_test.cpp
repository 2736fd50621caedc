// What a program that nobody trusts may see of the process, and take of the machine.
#include <gmock/gmock.h>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Untrusted : public Interpreter {
 protected:
  // The fuel that a run takes.
  uint64_t fuel_of(const std::string& text, const std::vector<Input>& inputs, bool trust = false) {
    uint64_t low = 0, high = uint64_t{1} << 40;
    while (high - low > 1) {
      const uint64_t middle = (low + high) / 2;
      SessionOptions options;
      options.fuel = middle;
      load(text, trust, options);
      try {
        run(inputs);
        high = middle;
      } catch (const Error& e) {
        EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
        low = middle;
      }
    }
    return high;
  }

  void load(const std::string& text, bool trust, SessionOptions options = {}, int threads = 1) {
    session_.reset();
    LoadOptions load;
    load.trust = trust;
    model_ = Model::load(exec::assemble(text), load, "test");
    options.threads = threads;
    session_ = std::make_unique<Session>(model_, options);
  }
};

// Writes its input into a storage, frees it and returns a tensor of a storage of the same size that
// nothing was written to.
std::string leftovers(int device) {
  return fmt::format(R"(
scalar "bytes" [a0 4 *]
kernel "copy" {{ source "copy" symbols n device d{0} in f32 ([a0]) out f32 ([a0])
                dispatch {{ 0: 0 }} host "host.copy" }}
function "main" 1 8 {{
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  LoadConsti r3, 0
  DeviceCopy r4, r0, d{0}
  AllocStorage r5, r2, 64, d{0}
  AllocTensorReg r6, r5, r3, f32, (r1)
  InvokePacked k"copy", (r4, r6)
  FreeTensor r4
  FreeTensor r6
  FreeStorage r5
  AllocStorage r5, r2, 64, d{0}
  AllocTensorReg r6, r5, r3, f32, (r1)
  DeviceCopy r7, r6, d0
  Ret r7
}}
entry "main" f0 {{
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}}
)",
                     device);
}

TEST_F(Untrusted, FindsZerosInItsStorages) {
  for (const int device : {0, 1})
    for (const int64_t n : {10, 1000, 100'000}) {
      const Input x{{n}, std::vector<float>(static_cast<size_t>(n), 1.5f)};
      load(leftovers(device), false);
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(run({x})[0].floats, std::vector<float>(x.values.size(), 0.0f))
            << "device " << device << ", " << n << " elements, run " << i;
    }
  // With trust nobody pays for that: what is reused is found as it was left.
  const Input x{{1000}, std::vector<float>(1000, 1.5f)};
  load(leftovers(0), true);
  EXPECT_EQ(run({x})[0].floats, x.values);
}

// --- Fuel: an instruction that does the work of many takes as much -------------------------------

const Input kOne{{1}, {0}};

TEST_F(Untrusted, PaysForTheRegistersOfACall) {
  const auto text = [](int registers) {
    return fmt::format(R"(
function "main" 1 2 {{
  Invoke r1, f"wide", (r0)
  Invoke r1, f"wide", (r0)
  Ret r1
}}
function "wide" 1 {} {{
  LoadConsti r1, 0
  Ret r1
}}
)",
                       registers) +
           kScalarEntry;
  };
  EXPECT_EQ(fuel_of(text(8), {kOne}), 6u) << "a small frame is part of the call";
  EXPECT_EQ(fuel_of(text(1 << 20), {kOne}), 6u + 2 * (1 << 16));
  EXPECT_EQ(fuel_of(text(1 << 20), {kOne}, true), 6u + 2 * (1 << 16));
}

TEST_F(Untrusted, PaysForFieldsAndCaptures) {
  const auto text = [](int count) {
    std::string list;
    for (int i = 0; i < count; ++i) list += i ? ", r0" : "r0";
    return fmt::format(R"(
function "main" 1 2 {{
  AllocADT r1, 0, ({0})
  AllocClosure r1, f"many", ({0})
  InvokeClosure r1, r1, ()
  Ret r1
}}
function "many" {1} {2} {{
  LoadConsti r{1}, 0
  Ret r{1}
}}
)",
                       list, count, count + 1) +
           kScalarEntry;
  };
  EXPECT_EQ(fuel_of(text(3), {kOne}), 5u);
  EXPECT_EQ(fuel_of(text(1600), {kOne}), 5u + 100 + 100 + 200);
}

TEST_F(Untrusted, PaysForDimPrograms) {
  const auto text = [](int operations) {
    std::string program = "a0";
    for (int i = 0; i < operations; ++i) program += " 1 +";
    return fmt::format(R"(
scalar "long" [{}]
function "main" 1 6 {{
  ShapeOf r1, 1, r0
  Invoke r1, f"long", (r1)
  Ret r1
}}
)",
                       program) +
           kScalarEntry;
  };
  EXPECT_EQ(fuel_of(text(3), {kOne}), 3u);
  EXPECT_EQ(fuel_of(text(8000), {kOne}), 3u + 1000);
}

TEST_F(Untrusted, PaysForContractsAndDispatch) {
  const auto text = [](int operations, int nodes) {
    std::string program = "a0", tree;
    for (int i = 0; i < operations; ++i) program += " 1 +";
    for (int i = 0; i < nodes; ++i) tree += fmt::format("{}: n <= -1 ? {} : {} ", i, nodes, i + 1);
    tree += fmt::format("{}: 0", nodes);
    return fmt::format(R"(
kernel "copy" {{ source "copy" symbols n in f32 ([a0]) out f32 ([a0]) {}
                dispatch {{ {} }} host "host.copy" }}
function "main" 1 6 {{
  LoadConsti r1, 4
  AllocStorage r2, r1, 64, d0
  LoadConsti r3, 0
  AllocTensor r3, r2, r3, f32, [1]
  InvokePacked k"copy", (r0, r3)
  Ret r3
}}
entry "main" f0 {{
  input "x" f32 ["n"] [-1]
  output "y" f32 ["1"] [1]
}}
)",
                       operations > 0 ? "require [" + program + "]" : "", tree);
  };
  const uint64_t small = fuel_of(text(0, 0), {kOne});
  EXPECT_EQ(fuel_of(text(8000, 0), {kOne}), small + 1000);
  EXPECT_EQ(fuel_of(text(0, 1600), {kOne}), small + 100);
}

TEST_F(Untrusted, PaysForEachRequirement) {
  const auto text = [](int requirements) {
    std::string list;
    for (int i = 0; i < requirements; ++i) list += "require [1]\n";
    return fmt::format(R"(
kernel "zero" {{ source "zero" out f32 ([1]) {} dispatch {{ 0: 0 }} host "host.zero" }}
function "main" 1 4 {{
  LoadConsti r1, 4
  AllocStorage r2, r1, 64, d0
  LoadConsti r3, 0
  AllocTensor r3, r2, r3, f32, [1]
  InvokePacked k"zero", (r3)
  Ret r3
}}
entry "main" f0 {{
  input "x" f32 ["n"] [-1]
  output "y" f32 ["1"] [1]
}}
)",
                       list);
  };
  EXPECT_EQ(fuel_of(text(1600), {kOne}), fuel_of(text(0), {kOne}) + 100);
}

TEST_F(Untrusted, PaysForWhatIsClearedAndCopied) {
  const auto text = [](const std::string& body) {
    return "function \"main\" 1 6 {\nLoadConsti r1, 64000000\n" + body +
           "LoadConsti r1, 0\nRet r1\n}\n" + kScalarEntry;
  };
  const std::string storage = text("AllocStorage r2, r1, 64, d0\n");
  EXPECT_EQ(fuel_of(storage, {kOne}), 4u + 1'000'000);
  EXPECT_EQ(fuel_of(storage, {kOne}, true), 4u) << "nobody clears it";
  const Input x{{16000}, std::vector<float>(16000)};
  EXPECT_EQ(fuel_of(text("DeviceCopy r2, r0, d0\n"), {x}), 4u + 1000);
  EXPECT_GE(fuel_of(text("DeviceCopy r2, r0, d1\n"), {x}), 4u + 1000);
}

// Each clearing, copy and kernel on a device that the host does not see opens all of its memory.
TEST_F(Untrusted, PaysForOpeningADevice) {
  const auto text = [](const std::string& body) {
    return R"(
kernel "there" { source "zero" device d1 out f32 ([1]) dispatch { 0: 0 } host "host.zero" threads 1 }
function "main" 1 8 {
  LoadConsti r1, 4
  LoadConsti r2, 64000000
  LoadConsti r3, 0
  AllocStorage r4, r1, 64, d1
  AllocTensor r5, r4, r3, f32, [1]
)" + body + "LoadConsti r1, 0\nRet r1\n}\n" +
           kScalarEntry;
  };
  const std::string large = "AllocStorage r6, r2, 64, d1\n";
  const uint64_t little = fuel_of(text(""), {kOne}), much = fuel_of(text(large), {kOne});
  EXPECT_GT(little, 4000u);
  for (const char* one : {"AllocStorage r7, r1, 64, d1\n", "DeviceCopy r7, r5, d0\n",
                          "DeviceCopy r7, r0, d1\n", "InvokePacked k\"there\", (r5)\n"}) {
    EXPECT_GT(fuel_of(text(one), {kOne}), little + 4000) << one;
    EXPECT_GT(fuel_of(text(large + one), {kOne}), much + 100'000) << one;
  }
}

TEST_F(Untrusted, PaysForThreads) {
  const auto text = [](const char* threads) {
    return fmt::format(R"(
kernel "zero" {{ source "zero" out f32 ([1]) dispatch {{ 0: 0 }} host "host.zero" {} }}
function "main" 1 4 {{
  LoadConsti r1, 4
  AllocStorage r2, r1, 64, d0
  LoadConsti r3, 0
  AllocTensor r3, r2, r3, f32, [1]
  InvokePacked k"zero", (r3)
  LoadConsti r1, 0
  Ret r1
}}
)",
                       threads) +
           kScalarEntry;
  };
  const auto takes = [&](const char* limit, int threads, uint64_t fuel = 1000) {
    SessionOptions options;
    options.fuel = fuel;
    load(text(limit), false, options, threads);
    try {
      run({kOne});
    } catch (const Error& e) {
      return e.status() != Status::kExhausted ? 0 : 2;
    }
    return 1;
  };
  EXPECT_EQ(takes("", 1), 1);
  EXPECT_EQ(takes("threads 1", 4), 1);
  EXPECT_EQ(takes("", 1, 100), 1);
  EXPECT_EQ(takes("", 2, 100), 2) << "the second is the first that costs";
  EXPECT_EQ(takes("", 2), 1);
  EXPECT_EQ(takes("", 4), 2) << "three more threads for four bytes";
}

TEST_F(Untrusted, PaysForDefaults) {
  const std::string text = R"(
function "main" 2 3 {
  LoadConsti r2, 0
  Ret r2
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  input "mask" f32 ["n", "16000"] [-1, 16000] default "ones"
  output "y" i64 [] []
}
)";
  // Left out as the last one.
  const auto run_once = [&](uint64_t fuel) {
    SessionOptions options;
    options.fuel = fuel;
    load(text, false, options);
    const std::vector<float> x(10);
    const int64_t shape[] = {10};
    std::vector<InputTensor> in(2);
    in[0] = {x.data(), DType::kF32, shape, {}, true};
    std::vector<OutputTensor> out(1);
    session_->run(0, in, out);
  };
  EXPECT_NO_THROW(run_once(10'002));
  try {
    run_once(10'001);
    ADD_FAILURE() << "not exhausted";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
  }
  try {
    run_once(9'999);
    ADD_FAILURE() << "not exhausted";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kExhausted);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("input mask"), HasSubstr("default")));
  }
}

// --- Memory --------------------------------------------------------------------------------------

// A storage of a MiB as two hundred tensors in one value: as the user's copy, two hundred MiB.
TEST_F(Untrusted, ReturnsNoMoreThanTheMemoryLimit) {
  const auto text = [](int views) {
    std::string body, fields, types;
    for (int i = 0; i < views; ++i) {
      body += fmt::format("AllocTensor r{}, r2, r3, u8, [1000000]\n", 4 + i);
      fields += fmt::format("{}r{}", i ? ", " : "", 4 + i);
      types += i ? ", 1" : "1";
    }
    return fmt::format(R"(
function "main" 1 {} {{
  LoadConsti r1, 1000000
  AllocStorage r2, r1, 64, d0
  LoadConsti r3, 0
{}  AllocADT r1, 0, ({})
  Ret r1
}}
type "Views" tuple ({})
type "Tensor[(1000000), u8]" tensor u8 ["1000000"] [1000000]
entry "main" f0 {{ input "x" f32 ["n"] [-1]  output "y" type 0 }}
)",
                       4 + views, body, fields, types);
  };
  const auto run_with = [&](int views, SessionOptions options) {
    load(text(views), false, options);
    const float x = 0;
    const int64_t shape[] = {1};
    const InputTensor in{&x, DType::kF32, shape, {}, true};
    std::vector<OutputTensor> out(1);
    try {
      session_->run(0, {&in, 1}, out);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("output y"));
      return e.status();
    }
    EXPECT_EQ(out[0].value->fields().size(), static_cast<size_t>(views));
    return Status::kOk;
  };
  SessionOptions options;
  options.memory_limit = 4 << 20;
  EXPECT_EQ(run_with(3, options), Status::kOk);
  EXPECT_EQ(run_with(200, options), Status::kExhausted);
  options.memory_limit = 0;
  options.fuel = 100'000;  // a copy takes 15,625
  EXPECT_EQ(run_with(3, options), Status::kOk);
  EXPECT_EQ(run_with(8, options), Status::kExhausted);
}

TEST_F(Untrusted, CallsOfManyValuesCountAgainstTheMemoryLimit) {
  const std::string text = R"(
function "main" 1 2 {
  LoadConsti r1, 0
  Ret r1
}
function "many" 1000000 1000000 { Ret r0 }
)" + std::string(kScalarEntry);
  SessionOptions options;
  options.memory_limit = 8 << 20;
  EXPECT_THROW(load(text, false, options), Error);
  options.memory_limit = 32 << 20;
  EXPECT_NO_THROW(load(text, false, options));
}

// --- Loading -------------------------------------------------------------------------------------

Status status_of_load(const std::string& text, const LoadOptions& options) {
  try {
    Model::load(exec::assemble(text), options, "test");
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--load-memory"));
    return e.status();
  }
  return Status::kOk;
}

// Each hot constant is copied to a page of its own, each of another device to that.
TEST_F(Untrusted, CopiesOfConstantsAreLimited) {
  std::string hot, there;
  for (int i = 0; i < 1000; ++i) {
    hot += fmt::format("constant \"c{}\" u8 [1] hot {{ 1 }}\n", i);
    there += fmt::format("constant \"c{}\" u8 [1] device d1 {{ 1 }}\n", i);
  }
  const std::string main = "function \"main\" 1 1 { Ret r0 }\n" + std::string(kScalarEntry);
  LoadOptions options;
  EXPECT_EQ(status_of_load(hot + main, options), Status::kOk);
  options.limits.memory = 1 << 20;
  EXPECT_EQ(status_of_load(main, options), Status::kOk);
  EXPECT_EQ(status_of_load(hot + main, options), Status::kExhausted);
  options.trust = true;
  EXPECT_EQ(status_of_load(hot + main, options), Status::kExhausted);
  options.limits.memory = 900;
  EXPECT_EQ(status_of_load(main, options), Status::kOk);
  EXPECT_EQ(status_of_load(there + main, options), Status::kExhausted);
}

// A kernel of a long name with implementations that cannot run, each for a reason of its own.
TEST_F(Untrusted, ImplementationsThatCannotRunAreToldOfInFewNotes) {
  const auto text = [](int missing) {
    std::string list;
    for (int i = 0; i < missing; ++i) list += fmt::format(" vendor \"none.{}\"", i);
    return fmt::format(
               "kernel \"{}\" {{ out f32 ([1]) dispatch {{ 0: 0 }} host \"host.zero\"{} }}\n",
               std::string(10'000, 'k'), list) +
           "function \"main\" 1 1 { Ret r0 }\n" + kScalarEntry;
  };
  EXPECT_EQ(Model::load(exec::assemble(text(2)), {}, "test")->notes().size(), 2u);
  const auto model = Model::load(exec::assemble(text(1000)), {}, "test");
  EXPECT_LT(model->notes().size(), 20u);
  LoadOptions options;
  options.limits.memory = 300'000;
  EXPECT_EQ(status_of_load(text(2), options), Status::kOk);
  options.limits.memory = 30'000;
  EXPECT_EQ(status_of_load(text(2), options), Status::kExhausted);
}

// What an operator asks of a contract is asked once for a kernel, not for each implementation.
TEST_F(Untrusted, AnOperatorLooksAtAContractOnce) {
  static int looks = 0;
  add_library_kernel({"test.looks", exec::ImplementationKind::kHost, "-> y", "Counts its checks.",
                      [](const exec::KernelContract&) {
                        ++looks;
                        return std::string();
                      },
                      nullptr, run_add});
  std::string list;
  for (int i = 0; i < 100; ++i) list += " host \"test.looks\"";
  load("kernel \"k\" { out f32 ([1]) dispatch { 0: 0 }" + list +
           " }\nfunction \"main\" 1 1 { Ret r0 }\n" + kScalarEntry,
       false);
  EXPECT_EQ(looks, 1);
}

TEST_F(Untrusted, StepsOfTheVerifierAreLimited) {
  // What is known of r1 and r2 goes round the loop until nothing changes.
  const exec::Executable e = exec::assemble(R"(
function "main" 1 3 {
  ShapeOf r1, 1, r0
  Move r2, r1
loop:
  Move r1, r2
  Move r2, r1
  If r1, @loop, @done
done:
  Ret r2
}
)" + std::string(kScalarEntry));
  for (const bool trust : {false, true}) {
    LoadOptions options;
    options.trust = trust;
    options.limits.verification_steps = exec::LoadLimits::kNone;
    EXPECT_NO_THROW(Model::load(e, options, "test"));
    options.limits.verification_steps = 1;
    try {
      Model::load(e, options, "test");
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kExhausted) << error.what();
    }
  }
}

}  // namespace
}  // namespace nimble::rt
