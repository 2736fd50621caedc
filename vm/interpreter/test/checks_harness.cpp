#include "vm/interpreter/test/checks_harness.h"

namespace nimble::rt {

void Checks::SetUp() {
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

std::string Checks::failure_of(const std::vector<Input>& inputs, Status status) {
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

std::string Checks::load_failure(const std::string& text, Status status, bool trust) {
  try {
    load(text, {}, trust);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), status) << e.what();
    return e.what();
  }
  return "";
}

}  // namespace nimble::rt
