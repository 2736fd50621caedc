// The onnx package's own tests, a few per operator, by the reference interpreter, at the package's
// tolerance (record_backend_tests.py). experiments/run onnx-conformance runs all of them, compiled.
#include "compiler/frontend/test/support.h"
#include "compiler/ir/infer.h"

namespace nimble::frontend {
namespace {

struct Case {
  std::string model;
  Arrays in, out;
};

const std::map<std::string, Case>& cases() {
  static const auto* kAll = [] {
    auto* all = new std::map<std::string, Case>;
    for (const auto& [name, array] : read_npz(data_path("backend_tests.npz"))) {
      const size_t slash = name.find('/');
      Case& c = (*all)[name.substr(0, slash)];
      const std::string rest = name.substr(slash + 1);
      if (rest == "model")
        c.model.assign(array.bytes.begin(), array.bytes.end());
      else
        (rest.starts_with("in/") ? c.in : c.out)[rest.substr(rest.find('/') + 1)] = array;
    }
    return all;
  }();
  return *kAll;
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& [name, c] : cases()) out.push_back(name);
  return out;
}

class OnnxBackend : public testing::TestWithParam<std::string> {};

TEST_P(OnnxBackend, Agrees) {
  const Case& c = cases().at(GetParam());
  const Scratch folder;
  folder.write("model.onnx", c.model);
  const ir::Module m = import_model(folder.path("model.onnx"));
  EXPECT_THAT(ir::verify(m), testing::IsEmpty());
  const Arrays results = run_reference(m, c.in);
  ASSERT_EQ(results.size(), c.out.size());
  for (const auto& [name, array] : c.out) expect_close(results.at(name), array, 1e-3, name);
}

INSTANTIATE_TEST_SUITE_P(Package, OnnxBackend, testing::ValuesIn(names()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace nimble::frontend
