#include "compiler/frontend/test/support.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "compiler/reference/reference.h"

namespace nimble::frontend {

std::string data_path(const std::string& name) {
  return std::string(NIMBLE_SOURCE_DIR) + "/compiler/frontend/test/data/" + name;
}

Scratch::Scratch() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "nimble-frontend-XXXXXX").string();
  if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
  folder_ = pattern;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Scratch::path(const std::string& name) const {
  return name.empty() ? folder_.string() : (folder_ / name).string();
}

void Scratch::write(const std::string& name, const std::string& contents) const {
  const std::filesystem::path file = folder_ / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << contents;  // tests write thousands: no fsync
}

std::vector<Arrays> read_cases(const std::string& path) {
  std::map<int, Arrays> cases;
  for (auto& [name, array] : read_npz(path)) {
    const size_t dot = name.find('.');
    cases[std::stoi(name.substr(0, dot))][name.substr(dot + 1)] = array;
  }
  std::vector<Arrays> out;
  for (auto& [number, arrays] : cases) out.push_back(std::move(arrays));
  return out;
}

Arrays run_reference(const ir::Module& m, const Arrays& inputs) {
  const ir::Module::Signature& signature = m.signatures.at("main");
  std::vector<ir::TensorRef> args;
  std::vector<int64_t> shape;  // of the input before: what a default takes
  for (size_t i = 0; i < signature.input_names.size(); ++i) {
    uint8_t* data = nullptr;
    auto it = inputs.find(signature.input_names[i]);
    if (it != inputs.end()) {
      shape = it->second.shape;
      auto t = ir::Tensor::make(it->second.dtype, shape, &data);
      std::ranges::copy(it->second.bytes, data);
      args.push_back(std::move(t));
      continue;
    }
    EXPECT_FALSE(signature.input_defaults[i].empty()) << signature.input_names[i];
    auto t = ir::Tensor::make(DType::kI64, shape, &data);
    const int64_t value = signature.input_defaults[i] == "ones";
    for (int64_t k = 0; k < t->elements(); ++k) std::memcpy(data + k * 8, &value, 8);
    args.push_back(std::move(t));
  }
  reference::Interpreter interpreter(m);
  const std::vector<ir::TensorRef> results = interpreter.run_tensors("main", args);
  Arrays out;
  EXPECT_EQ(results.size(), signature.output_names.size());
  for (size_t i = 0; i < results.size(); ++i)
    out[signature.output_names[i]] = {
        results[i]->dtype, results[i]->shape, {results[i]->bytes.begin(), results[i]->bytes.end()}};
  return out;
}

void expect_close(const Array& actual, const Array& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.dtype, expected.dtype) << what;
  ASSERT_EQ(actual.shape, expected.shape) << what;
  if (actual.dtype != DType::kF32) {
    EXPECT_EQ(actual.bytes, expected.bytes) << what;
    return;
  }
  for (size_t i = 0; i < actual.bytes.size() / 4; ++i) {
    float a, e;
    std::memcpy(&a, actual.bytes.data() + i * 4, 4);
    std::memcpy(&e, expected.bytes.data() + i * 4, 4);
    const double limit = tolerance * std::max(1.0, std::fabs(static_cast<double>(e)));
    ASSERT_LE(std::fabs(static_cast<double>(a) - e), limit)
        << what << ", element " << i << ": " << a << " where " << e << " was recorded";
  }
}

namespace {
template <class T>
Array make_array(DType type, std::vector<int64_t> shape, const std::vector<T>& values) {
  Array a{type, std::move(shape), std::vector<uint8_t>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
  return a;
}
}  // namespace

Array array_of(std::vector<int64_t> shape, const std::vector<float>& values) {
  return make_array(DType::kF32, std::move(shape), values);
}
Array array_of(std::vector<int64_t> shape, const std::vector<int64_t>& values) {
  return make_array(DType::kI64, std::move(shape), values);
}

}  // namespace nimble::frontend
