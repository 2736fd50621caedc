// What a program that nobody trusts may see of the process, and take of the machine.
#include <gmock/gmock.h>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Untrusted : public Interpreter {
 protected:
  void load(const std::string& text, bool trust, SessionOptions options = {}) {
    session_.reset();
    LoadOptions load;
    load.trust = trust;
    model_ = Model::load(exec::assemble(text), load, "test");
    options.threads = 1;
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

}  // namespace
}  // namespace nimble::rt
