// Runs kernels in their portable form in tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compiler/codegen/portable/portable.h"
#include "vm/base/half.h"
#include "vm/interpreter/portable_kernel.h"

namespace nimble::codegen::testing {

class Portable {
 public:
  explicit Portable(const kir::Function& f)
      : code_(through_bytes(to_portable(f))), program_(code_, f.contract, f.name) {
    EXPECT_FALSE(exec::verify_portable(code_, f.contract).has_value());
  }

  int32_t run(const std::vector<std::span<std::byte>>& buffers,
              const std::vector<int64_t>& symbols) const {
    std::vector<rt::PortableBuffer> b;
    for (const auto& s : buffers) b.push_back({reinterpret_cast<uint8_t*>(s.data()), s.size()});
    std::vector<uint8_t> scratch(program_.scratch_bytes(symbols) + 64);
    auto* base =
        reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~63ul);
    rt::PortableFrame frame;
    rt::WorkMeter meter;
    return program_.run(b, symbols, base, &frame, &meter);
  }

  const exec::PortableKernel& code() const { return code_; }

 private:
  // As from a file.
  static exec::PortableKernel through_bytes(const exec::PortableKernel& k) {
    ByteWriter out;
    exec::encode(k, &out);
    ByteReader in(out.view(), "portable kernel");
    exec::PortableKernel back = exec::decode_portable(&in);
    in.expect_end();
    EXPECT_EQ(back, k);
    return back;
  }

  exec::PortableKernel code_;
  rt::PortableProgram program_;
};

// Elements that two ways to run a kernel gave: integers alike, floating point within rounding.
inline void expect_alike(DType t, std::span<const std::byte> a, std::span<const std::byte> b,
                         double tolerance) {
  const auto number = [t](const std::byte* p) -> double {
    uint16_t half;
    std::memcpy(&half, p, 2);
    if (t == DType::kF16) return f32_from_f16(half);
    if (t == DType::kBF16) return f32_from_bf16(half);
    if (t == DType::kF32) {
      float v;
      std::memcpy(&v, p, 4);
      return v;
    }
    double v;
    std::memcpy(&v, p, 8);
    return v;
  };
  ASSERT_EQ(a.size(), b.size());
  if (!is_float(t)) {
    ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
    return;
  }
  for (size_t i = 0; i + size_of(t) <= a.size(); i += size_of(t)) {
    const double x = number(&a[i]), y = number(&b[i]);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ASSERT_NEAR(x, y, tolerance * std::max(1.0, std::fabs(y))) << "element " << i / size_of(t);
  }
}

// Runs `native` on the buffers and the portable form on copies; both must agree.
template <class Run>
int32_t run_both(const kir::Function& f, const Portable& portable, const Run& native,
                 const std::vector<std::span<std::byte>>& buffers,
                 const std::vector<int64_t>& symbols) {
  std::vector<std::vector<std::byte>> copies;
  for (const auto& b : buffers) copies.emplace_back(b.begin(), b.end());
  const int32_t status = portable.run({copies.begin(), copies.end()}, symbols);
  const int32_t expected = native();
  EXPECT_EQ(status, expected);
  if (status != 0 || expected != 0) return expected;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const DType t = f.arguments[i]->dtype;
    const double rounding = t == DType::kF16 ? 2e-3 : t == DType::kBF16 ? 2e-2 : 5e-5;
    expect_alike(t, copies[i], buffers[i], rounding);
  }
  return expected;
}

}  // namespace nimble::codegen::testing
