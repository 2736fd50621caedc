// What the VM hands to operators of the library: shapes that the contract has accepted, memory that
// nobody else writes, and nothing of a vendor's to a file that is not trusted.
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file that the verifier accepted: the contract says one byte, the tensors may have any shape,
// and the operator copied as many bytes as the input has.
TEST_F(Interpreter, AHostOperatorSeesNoShapeButItsContracts) {
  EXPECT_THROW(load(R"(
kernel "k" {
  in rows u8 ()
  out rows u8 ()
  scratch [0]
  dispatch { 0: 0 }
  host "host.copy"
}
function "main" 1 5 {
  LoadConsti r1, 1
  AllocStorage r2, r1, 64, d0
  LoadConsti r3, 0
  AllocTensor r4, r2, r3, u8, [1]
  InvokePacked k"k", (r0, r4)
  Ret r4
}
entry "main" f0 {
  input "x" u8 ["n"] [-1]
  output "y" u8 ["1"] [1]
}
)"),
               Error);
}

// The same hole in operators that index by what the contract says of their ranks.
TEST_F(Interpreter, NoOperatorOfTheLibraryTakesRows) {
  const char* const contracts[] = {
      "symbols m n in f32 ([a0]) out rows i64 ([1], [1000]) host \"host.nonzero\"",
      "symbols m n a scalar a in f32 ([a0]) in rows bool ([a1]) out f32 ([1]) host "
      "\"host.compress\"",
      "symbols m n a scalar a in f32 ([a0]) in rows i64 ([a1]) out f32 ([1]) host \"host.repeat\"",
      "symbols b c n l s scalar l scalar s in rows f32 ([a0], [a2], [4]) in f32 ([a0], [a1], [a2]) "
      "in f32 ([1]) in f32 ([1]) out i64 ([1], [3]) out i64 ([1]) host \"host.nms\"",
  };
  for (const std::string contract : contracts) {
    const size_t host = contract.find("host ");
    const std::string text = "kernel \"k\" { " + contract.substr(0, host) +
                             "scratch [0] dispatch { 0: 0 } " + contract.substr(host) + " }\n";
    try {
      load(text + kAddKernel + kAddModel);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kCorrupt);
      EXPECT_THAT(e.what(), HasSubstr("rule R12"));
    }
  }
}

class Routine : public Interpreter {
 protected:
  static inline std::vector<std::vector<int64_t>> shapes;

  void SetUp() override {
    Interpreter::SetUp();
    static const bool once = [] {
      add_library_kernel({"test.tell_shapes", exec::ImplementationKind::kVendor, "x -> y",
                          "Notes shapes.", accept, nullptr,
                          [](const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
                            if (thread != 0) return;
                            shapes.clear();
                            for (const LibraryTensor& t : call.tensors)
                              shapes.emplace_back(t.shape.begin(), t.shape.end());
                          }});
      return true;
    }();
    (void)once;
  }

  // Calls it on two tensors of `shape`, of which it may see two dims, the last one `columns`.
  void call(const std::string& shape, int64_t columns) {
    load(fmt::format(R"(
kernel "k" {{
  symbols m
  in rows f32 ([a0], [{0}])
  out rows f32 ([a0], [{0}])
  scratch [0]
  dispatch {{ 0: 0 }}
  vendor "test.tell_shapes"
}}
function "main" 1 6 {{
  LoadConsti r1, 4096
  AllocStorage r1, r1, 64, d0
  LoadConsti r2, 0
  AllocTensor r3, r1, r2, f32, [{1}]
  LoadConsti r2, 2048
  AllocTensor r4, r1, r2, f32, [{1}]
  InvokePacked k"k", (r3, r4)
  LoadConsti r5, 1
  Ret r5
}}
)",
                     columns, shape) +
             kScalarEntry,
         {}, /*trust=*/true);
    run({{{1}, {0}}});
  }
};

TEST_F(Routine, SeesTheShapeThatTheContractHasAccepted) {
  call("2, 5, 3", 3);
  EXPECT_THAT(shapes, ElementsAre(ElementsAre(10, 3), ElementsAre(10, 3)));
  call("7, 3", 3);
  EXPECT_THAT(shapes, ElementsAre(ElementsAre(7, 3), ElementsAre(7, 3)));
  call("2, 0, 2, 3", 3);
  EXPECT_THAT(shapes, ElementsAre(ElementsAre(0, 3), ElementsAre(0, 3)));
}

TEST_F(Routine, NoProductOfExtentsWraps) {
  shapes.clear();
  for (const char* shape : {"4294967296, 4294967296, 0", "3037000500, 3037000500, 0"}) try {
      call(shape, 0);
      ADD_FAILURE() << shape;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("argument 0 must be f32 (m, 0), it is f32"));
    }
  EXPECT_TRUE(shapes.empty());
}

// Two tensors of i64 in one storage, at bytes 0 and `second`, as operands of a kernel.
std::string two_tensors(const std::string& kernel, int64_t second, const std::string& shape) {
  return fmt::format(R"({}
function "main" 1 6 {{
  LoadConsti r1, 256
  AllocStorage r1, r1, 64, d0
  LoadConsti r2, 0
  AllocTensor r3, r1, r2, i64, [{}]
  LoadConsti r2, {}
  AllocTensor r4, r1, r2, i64, [{}]
  InvokePacked k"k", (r3, r4)
  LoadConsti r5, 1
  Ret r5
}}
)",
                     kernel, shape, second, shape) +
         kScalarEntry;
}

class Overlap : public Interpreter {
 protected:
  void SetUp() override {
    Interpreter::SetUp();
    static const bool once = [] {
      add_library_kernel({"test.untouched", exec::ImplementationKind::kHost, "", "Does nothing.",
                          accept, nullptr,
                          [](const LibraryCall&, int32_t, int32_t, nimble_barrier*) {}});
      return true;
    }();
    (void)once;
  }
};

TEST_F(Overlap, WhatAHostOperatorWritesIsItsOwn) {
  const auto kernel = [](const std::string& first, const std::string& second) {
    return "kernel \"k\" { " + first + " i64 ([4])  " + second +
           " i64 ([4])  scratch [0] dispatch { 0: 0 }  host \"test.untouched\" }";
  };
  const Input x{{1}, {0}};
  for (const auto& [first, second] :
       {std::pair("in", "out"), std::pair("out", "in"), std::pair("out", "out"),
        std::pair("in", "inout"), std::pair("inout", "out"), std::pair("inout", "inout")}) {
    for (const int64_t at : {0, 8, 24}) {
      load(two_tensors(kernel(first, second), at, "4"));
      EXPECT_THAT(failure({x}), AllOf(HasSubstr("kernel k: arguments 0 and 1 share memory"),
                                      HasSubstr("\"main\", instruction 6: ")))
          << first << " " << second << " " << at;
    }
    load(two_tensors(kernel(first, second), 32, "4"));
    EXPECT_THAT(run({x})[0].integers, ElementsAre(1)) << first << " " << second;
  }
  load(two_tensors(kernel("in", "in"), 8, "4"));
  EXPECT_THAT(run({x})[0].integers, ElementsAre(1));
}

// However many there are: few are compared in pairs, many in their order in memory.
TEST_F(Overlap, IsFoundAmongManyArguments) {
  for (const int count : {3, 16, 17}) {
    for (const int moved : {1, count / 2, count - 1}) {
      for (const bool overlaps : {false, true}) {
        std::string text = "kernel \"k\" {";
        for (int i = 0; i < count; ++i) text += " out i64 ([2])";
        text +=
            " scratch [0] dispatch { 0: 0 } host \"test.untouched\" }\nfunction \"main\" 1 24 {\n"
            "LoadConsti r1, 512\nAllocStorage r1, r1, 64, d0\n";
        std::string all;
        for (int i = 0; i < count; ++i) {
          // Backwards in memory; one a little too near to the one before it.
          const int at = 16 * (count - i) + (overlaps && i == moved ? 8 : 0);
          text += fmt::format("LoadConsti r2, {}\nAllocTensor r{}, r1, r2, i64, [2]\n", at, 3 + i);
          all += fmt::format("{}r{}", i ? ", " : "", 3 + i);
        }
        load(text + "InvokePacked k\"k\", (" + all + ")\nLoadConsti r3, 1\nRet r3\n}\n" +
             std::string(kScalarEntry));
        if (overlaps)
          EXPECT_THAT(failure({{{1}, {0}}}),
                      HasSubstr(fmt::format("arguments {} and {} share memory", moved - 1, moved)));
        else
          EXPECT_THAT(run({{{1}, {0}}})[0].integers, ElementsAre(1));
      }
    }
  }
}

// Neither of two ranges that touch, but the one around both.
TEST_F(Overlap, IsFoundAcrossOtherRanges) {
  const std::string text = R"(
kernel "k" { in i64 ([8])  in i64 ([1])  out i64 ([1])  scratch [0] dispatch { 0: 0 }
             host "test.untouched" }
function "main" 1 6 {
  LoadConsti r1, 256
  AllocStorage r1, r1, 64, d0
  LoadConsti r2, 0
  AllocTensor r3, r1, r2, i64, [8]
  LoadConsti r2, 8
  AllocTensor r4, r1, r2, i64, [1]
  LoadConsti r2, 32
  AllocTensor r5, r1, r2, i64, [1]
  InvokePacked k"k", (r3, r4, r5)
  LoadConsti r5, 1
  Ret r5
}
)" + std::string(kScalarEntry);
  load(text);
  EXPECT_THAT(failure({{{1}, {0}}}), HasSubstr("arguments 0 and 2 share memory"));
}

TEST_F(Overlap, EmptyTensorsShareNothing) {
  const std::string kernel =
      "kernel \"k\" { symbols n  in i64 ([0], [a0])  out i64 ([0], [a0])  scratch [0] dispatch { "
      "0: 0 }  host \"host.copy\" }";
  load(two_tensors(kernel, 0, "0, 9"));
  EXPECT_THAT(run({{{1}, {0}}})[0].integers, ElementsAre(1));
}

}  // namespace
}  // namespace nimble::rt
