// oneDNN's routines beside plain loops: tensors with their numbers, and calls that are checked.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "vm/executable/vendor_call.h"
#include "vm/library/onednn.h"
#include "vm/library/onednn_binding.h"

namespace nimble::rt {

using Ints = std::vector<int64_t>;

// A tensor and its values as numbers.
struct Data {
  DType dtype = DType::kF32;
  Ints shape;
  std::vector<double> values;
  std::vector<uint8_t> bytes;

  void store();
  double at(size_t i) const;
};

int64_t elements(const Ints& shape);
Data random_data(DType dtype, Ints shape, std::mt19937& random);
// The matrix (k, n) of `w`, in panels, with rubbish where panels are filled up.
Data packed(const Data& w, int64_t k, int64_t n, int64_t groups, exec::VendorCall::Panel panel);
exec::KernelContract contract_of(const std::vector<Data>& tensors, size_t result);
std::vector<LibraryTensor> views(std::vector<Data>& tensors);

// By each version of the library that is installed.
class OneDnn : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override;

  std::unique_ptr<VendorRoutine> routine(exec::VendorCall call, const std::vector<Data>& tensors);

  // Runs the call on threads of which there are fewer and more than shares.
  void check(const exec::VendorCall& call, std::vector<Data> tensors,
             const std::function<double(const Ints&)>& sum, int32_t shares, double tolerance);

  void check_product(DType x, DType w, DType y, exec::VendorCall::Panel panel, Ints rows, int64_t k,
                     int64_t n, std::vector<std::pair<exec::VendorStep, Data>> steps,
                     int32_t shares, double tolerance);

  const onednn::Library* library_ = nullptr;
  std::mt19937 random_{1};
};

}  // namespace nimble::rt
