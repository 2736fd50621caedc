#include "compiler/ir/winograd.h"

#include <array>
#include <cmath>

namespace nimble::ir {

namespace {

// Of the points 0, 1, -1 and infinity.
constexpr double kImage2[] = {1, 0,  -1, 0,  //
                              0, 1,  1,  0,  //
                              0, -1, 1,  0,  //
                              0, 1,  0,  -1};
constexpr double kWeights2[] = {1,   0,    0,    //
                                0.5, 0.5,  0.5,  //
                                0.5, -0.5, 0.5,  //
                                0,   0,    1};
constexpr double kResult2[] = {1, 1, 1,  0,  //
                               0, 1, -1, -1};

// Of the points 0, 1, -1, 2, -2 and infinity.
constexpr double kImage4[] = {4, 0,  -5, 0,  1, 0,  //
                              0, -4, -4, 1,  1, 0,  //
                              0, 4,  -4, -1, 1, 0,  //
                              0, -2, -1, 2,  1, 0,  //
                              0, 2,  -1, -2, 1, 0,  //
                              0, 4,  0,  -5, 0, 1};
constexpr double kWeights4[] = {1.0 / 4,  0,         0,         //
                                -1.0 / 6, -1.0 / 6,  -1.0 / 6,  //
                                -1.0 / 6, 1.0 / 6,   -1.0 / 6,  //
                                1.0 / 24, 1.0 / 12,  1.0 / 6,   //
                                1.0 / 24, -1.0 / 12, 1.0 / 6,   //
                                0,        0,         1};
constexpr double kResult4[] = {1, 1, 1,  1, 1,  0,  //
                               0, 1, -1, 2, -2, 0,  //
                               0, 1, 1,  4, 4,  0,  //
                               0, 1, -1, 8, -8, 1};

}  // namespace

const Winograd* find_winograd(int64_t tile) {
  static const Winograd kForms[] = {{2, kImage2, kWeights2, kResult2},
                                    {4, kImage4, kWeights4, kResult4}};
  for (const Winograd& form : kForms)
    if (form.tile == tile) return &form;
  return nullptr;
}

const Winograd& winograd_of(const Attrs& attrs) {
  return *find_winograd(attr<int64_t>(attrs, "tile"));
}

TensorRef winograd_weights(const Tensor& weights, const Winograd& form, const Layout& layout) {
  constexpr int64_t kTaps = Winograd::kTaps;
  const int64_t channels = weights.shape[2], filters = weights.shape[3];
  const int64_t points = form.points(), products = form.products(), width = layout.width;
  const int64_t panels = (filters + width - 1) / width;
  const std::span<const float> from = weights.as<float>();
  std::vector<float> to(static_cast<size_t>(panels * products * channels * width), 0.0F);
  const auto g = [&](int64_t point, int64_t tap) {
    return form.weights[static_cast<size_t>(point * kTaps + tap)];
  };
  for (int64_t i = 0; i < points; ++i)
    for (int64_t j = 0; j < points; ++j) {
      std::array<double, kTaps * kTaps> factor{};
      for (int64_t r = 0; r < kTaps; ++r)
        for (int64_t q = 0; q < kTaps; ++q)
          factor[static_cast<size_t>(r * kTaps + q)] = g(i, r) * g(j, q);
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t n = 0; n < filters; ++n) {
          double sum = 0;
          for (int64_t tap = 0; tap < kTaps * kTaps; ++tap)
            sum +=
                factor[static_cast<size_t>(tap)] *
                static_cast<double>(from[static_cast<size_t>((tap * channels + c) * filters + n)]);
          const auto element = static_cast<float>(sum);
          if (!std::isfinite(element)) return nullptr;
          const int64_t at =
              ((n / width * products + i * points + j) * channels + c) * width + n % width;
          to[static_cast<size_t>(at)] = element;
        }
    }
  return Tensor::of<float>(DType::kF32, {panels, products, channels, width}, to);
}

}  // namespace nimble::ir
