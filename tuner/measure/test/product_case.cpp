#include "tuner/measure/test/product_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace nimble::tuner {

std::vector<uint8_t> product_executable(exec::VendorCall call,
                                        const std::function<std::string(size_t kernel)>& text) {
  call.w = 1;
  call.y = 3;
  call.k = kDepth;
  call.n = kColumns;
  call.then = {{exec::VendorOp::kAdd, 2}, {exec::VendorOp::kRelu}};
  exec::VendorCall wrong = call;
  wrong.then.pop_back();
  exec::VendorCall other = call;
  other.k = kDepth + 1;
  exec::Executable e;
  for (const exec::VendorCall& c : {call, wrong, other}) {
    exec::Kernel k = exec::assemble(text(e.kernels.size())).kernels[0];
    k.implementations[0].config = exec::to_json(c);
    e.kernels.push_back(std::move(k));
  }
  return exec::serialize(e);
}

void expect_product(Case& c, int64_t m, int64_t weights,
                    const std::function<int64_t(int64_t k, int64_t column)>& place) {
  c.symbols = {m};
  c.entries = {{1, 0}, {1, 1}, {1, 2}};
  std::vector<float> x(m * kDepth), w(weights), b(kColumns), y(m * kColumns);
  const auto fill = [&](uint32_t i, std::vector<float>& to) {
    fill_tensor(c.inputs[i], DType::kF32, c.seed, i,
                {reinterpret_cast<uint8_t*>(to.data()), to.size() * 4});
  };
  fill(0, x);
  fill(1, w);
  fill(2, b);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = b[j];
      for (int64_t k = 0; k < kDepth; ++k) sum += double{x[i * kDepth + k]} * w[place(k, j)];
      y[i * kColumns + j] = static_cast<float>(std::max(sum, 0.0));
    }
  c.expected.emplace_back(y.size() * 4);
  std::memcpy(c.expected[0].data(), y.data(), y.size() * 4);
}

void expect_outcomes(Bench& bench, Case& c) {
  std::vector<EntryResult> results(3);
  bench.measure(c, [&](const EntryResult& r) { results.at(r.index) = r; });
  EXPECT_EQ(results[0].state, EntryState::kOk) << results[0].message;
  EXPECT_FALSE(results[0].samples_ns.empty());
  EXPECT_EQ(results[1].state, EntryState::kWrong) << "it leaves the ReLU out";
  EXPECT_EQ(results[2].state, EntryState::kUnavailable) << results[2].message;
}

}  // namespace nimble::tuner
