// What the importer's tests share: recorded cases, runs by the reference interpreter, files.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/ir/infer.h"
#include "vm/base/npy.h"

namespace nimble::frontend {

std::string data_path(const std::string& name);  // in test/data

// A folder that is removed with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::string path(const std::string& name = {}) const;
  void write(const std::string& name, const std::string& contents) const;

 private:
  std::filesystem::path folder_;
};

using Arrays = std::map<std::string, Array>;
// Recorded cases of an .npz with members CASE.VALUE, in order of CASE.
std::vector<Arrays> read_cases(const std::string& path);

// Runs @main by the reference interpreter. Inputs by the names of the signature; those that have
// a default may be absent. Results by their names.
Arrays run_reference(const ir::Module& m, const Arrays& inputs);

// Expects equal shapes and dtypes and |actual - expected| <= tolerance * max(1, |expected|).
void expect_close(const Array& actual, const Array& expected, double tolerance,
                  const std::string& what);

Array array_of(std::vector<int64_t> shape, const std::vector<float>& values);
Array array_of(std::vector<int64_t> shape, const std::vector<int64_t>& values);

// Runs f, which must throw nimble::Error; returns it. Its text must be one line.
template <class F>
Error error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    EXPECT_FALSE(e.place().empty()) << e.what();
    EXPECT_FALSE(e.remedy().empty()) << e.what();
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Status::kOk, "", "");
}

}  // namespace nimble::frontend
