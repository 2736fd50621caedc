#include "tuner/search/cost_model.h"

#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr int kTrees = 120;

void check(int result) {
  if (result == 0) return;
  std::string text = XGBGetLastError();
  std::replace(text.begin(), text.end(), '\n', ' ');
  throw Error(Status::kInternal, "cost model", "XGBoost: " + text, "");
}

class Matrix {
 public:
  explicit Matrix(const std::vector<std::vector<float>>& rows) {
    std::vector<float> flat;
    for (const auto& r : rows) {
      NIMBLE_CHECK(r.size() == rows[0].size(), "features of {} and {} columns", r.size(),
                   rows[0].size());
      flat.insert(flat.end(), r.begin(), r.end());
    }
    check(XGDMatrixCreateFromMat(flat.data(), rows.size(), rows.empty() ? 0 : rows[0].size(),
                                 std::nanf(""), &handle));
  }
  ~Matrix() { XGDMatrixFree(handle); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  DMatrixHandle handle = nullptr;
};

class Booster {
 public:
  explicit Booster(const Matrix* matrix) {
    check(XGBoosterCreate(matrix ? &matrix->handle : nullptr, matrix ? 1 : 0, &handle));
  }
  ~Booster() { XGBoosterFree(handle); }
  Booster(const Booster&) = delete;
  Booster& operator=(const Booster&) = delete;
  void set(const char* name, const std::string& value) {
    check(XGBoosterSetParam(handle, name, value.c_str()));
  }
  BoosterHandle handle = nullptr;
};

}  // namespace

void CostModel::train(const std::vector<std::vector<float>>& features,
                      std::span<const double> times_ns) {
  NIMBLE_CHECK(features.size() == times_ns.size(), "{} rows, {} times", features.size(),
               times_ns.size());
  if (features.size() < 4) return;
  best_ns_ = *std::min_element(times_ns.begin(), times_ns.end());
  std::vector<float> labels, weights;
  for (double t : times_ns) {
    const double slower = std::log2(t / best_ns_);
    labels.push_back(static_cast<float>(slower));
    // How slow the slow ones are hardly matters; how the fast ones differ does.
    weights.push_back(static_cast<float>(1 / (1 + slower)));
  }
  const Matrix matrix(features);
  check(XGDMatrixSetFloatInfo(matrix.handle, "label", labels.data(), labels.size()));
  check(XGDMatrixSetFloatInfo(matrix.handle, "weight", weights.data(), weights.size()));
  Booster booster(&matrix);
  booster.set("objective", "reg:squarederror");
  booster.set("tree_method", "exact");
  booster.set("max_depth", "4");
  booster.set("eta", "0.15");
  booster.set("subsample", "0.85");
  booster.set("colsample_bytree", "0.6");
  booster.set("lambda", "1");
  booster.set("base_score", "0.5");
  booster.set("nthread", "1");
  booster.set("seed", std::to_string(seed_ % 1'000'000'007));
  booster.set("verbosity", "0");
  for (int i = 0; i < kTrees; ++i) check(XGBoosterUpdateOneIter(booster.handle, i, matrix.handle));
  bst_ulong size = 0;
  const char* bytes = nullptr;
  check(XGBoosterSaveModelToBuffer(booster.handle, R"({"format":"ubj"})", &size, &bytes));
  model_.assign(bytes, bytes + size);
}

std::vector<double> CostModel::predict(const std::vector<std::vector<float>>& features) const {
  NIMBLE_CHECK(trained(), "the cost model has not been trained");
  if (features.empty()) return {};
  const Matrix matrix(features);
  Booster booster(nullptr);
  booster.set("nthread", "1");
  check(XGBoosterLoadModelFromBuffer(booster.handle, model_.data(), model_.size()));
  bst_ulong size = 0;
  const float* values = nullptr;
  check(XGBoosterPredict(booster.handle, matrix.handle, 0, 0, 0, &size, &values));
  std::vector<double> out;
  for (bst_ulong i = 0; i < size; ++i) out.push_back(best_ns_ * std::exp2(values[i]));
  return out;
}

}  // namespace nimble::tuner
