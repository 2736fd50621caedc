// The onnx package's own tests, a few per operator, by the reference interpreter, at the package's
// tolerance (record_backend_tests.py). experiments/run onnx-conformance runs all of them, compiled.
#include <cmath>

#include "compiler/frontend/test/support.h"

namespace nimble::frontend {
namespace {

struct Case {
  std::string model;
  Arrays in, out;
  std::vector<double> tolerance;  // relative, absolute
};

std::vector<double> numbers_of(const Array& a) {
  uint8_t* data = nullptr;
  const auto t = ir::Tensor::make(a.dtype, a.shape, &data);
  std::copy(a.bytes.begin(), a.bytes.end(), data);
  std::vector<double> out;
  for (int64_t i = 0; i < t->elements(); ++i)
    out.push_back(is_float(a.dtype) ? t->value(i) : static_cast<double>(t->integer(i)));
  return out;
}

const std::map<std::string, Case>& cases() {
  static const auto* kAll = [] {
    auto* all = new std::map<std::string, Case>;
    for (const auto& [name, array] : read_npz(data_path("backend_tests.npz"))) {
      const size_t slash = name.find('/');
      Case& c = (*all)[name.substr(0, slash)];
      const std::string rest = name.substr(slash + 1);
      if (rest == "tolerance")
        c.tolerance = numbers_of(array);
      else if (rest == "model")
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
  for (const auto& [name, array] : c.out) {
    SCOPED_TRACE(name);
    EXPECT_EQ(results.at(name).dtype, array.dtype);
    ASSERT_EQ(results.at(name).shape, array.shape);
    const std::vector<double> got = numbers_of(results.at(name)), want = numbers_of(array);
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i]) || std::isinf(want[i]))
        EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) << "at " << i;
      else
        EXPECT_NEAR(got[i], want[i], c.tolerance[1] + c.tolerance[0] * std::abs(want[i]))
            << "at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Package, OnnxBackend, testing::ValuesIn(names()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace nimble::frontend
