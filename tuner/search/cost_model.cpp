#include "tuner/search/cost_model.h"

#include <xgboost/c_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "tuner/search/features.h"
#include "vm/base/bytes.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr int kTrees = 120;
constexpr char kPlace[] = "cost model";
constexpr uint32_t kModelMagic = 0x314d434e;  // "NCM1"

void check(int result) {
  if (result == 0) return;
  std::string text = XGBGetLastError();
  std::replace(text.begin(), text.end(), '\n', ' ');
  throw Error(Status::kInternal, kPlace, "XGBoost: " + text, "");
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
  columns_ = features[0].size();
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
  NIMBLE_CHECK(features[0].size() == columns_, "{} features, the model knows {}",
               features[0].size(), columns_);
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

std::vector<uint8_t> CostModel::serialised() const {
  if (!trained()) return {};
  ByteWriter w;
  w.u32(kModelMagic);
  w.u32(kFeatureVersion);
  w.varint(columns_);
  w.u64(seed_);
  w.u64(std::bit_cast<uint64_t>(best_ns_));
  w.bytes(model_);
  return w.take();
}

CostModel CostModel::load(std::span<const uint8_t> bytes, const Vouch& vouch) {
  vouch(bytes);
  ByteReader r(bytes, kPlace);
  if (r.u32() != kModelMagic) r.fail("this is not a cost model");
  if (const uint32_t version = r.u32(); version != kFeatureVersion)
    throw Error(Status::kIncompatible, kPlace,
                fmt::format("its features are of version {}, this program computes version {}",
                            version, kFeatureVersion),
                "tune again, or read it with the release that stored it");
  const uint64_t columns = r.varint();
  CostModel m(r.u64());
  m.columns_ = columns;
  m.best_ns_ = std::bit_cast<double>(r.u64());
  if (!(m.best_ns_ > 0) || !std::isfinite(m.best_ns_)) r.fail("the scale is not a time");
  const auto model = r.bytes(r.left());
  if (model.empty()) r.fail("it has no trees");
  m.model_.assign(model.begin(), model.end());
  return m;
}

}  // namespace nimble::tuner
