// A database with tables for one workload of a product, and what the compiler makes of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/test/harness.h"
#include "compiler/kernels/targets.h"
#include "db/store/store.h"

namespace nimble::driver::testing {

inline constexpr const char* kDense = R"(fn @main(%x: Tensor[(n, 24), f32], %c: Tensor[(40), f32]) {
  let %i = range() {count = 960, start = 0, step = 1, dtype = f32};
  let %s = sin(%i);
  let %w = reshape(%s) {shape = (24, 40)};
  let %y = matmul(%x, %w);
  let %z = add(%y, %c);
  let %g = relu(%z);
  %g
})";

// The first workload of a program with this anchor, or with any.
WorkloadUse workload_of(const std::string& text, const std::string& anchor);

// How a table differs from one that this compiler would write.
struct Change {
  std::string tree;  // instead of one leaf for each candidate, by rows
  std::string toolchain_version, isa, template_name;
  int64_t template_version = 0;
  std::string policy_class = "warm";
  std::string model_name;  // of the hardware
  std::string config;      // instead of each candidate's
  bool evidence = true;    // the code that was measured is known …
  bool changed = false;    // … and is other code than is generated now
};

class Tuned : public ::testing::Test {
 protected:
  Tuned();
  ~Tuned() override;

  // An active table of these candidates, in ranges of the first symbol: <= 8, <= 32, above.
  db::Uuid table(int64_t threads, std::vector<size_t> chosen, const Change& change = {});
  tuned::Lookup find(const std::string& policy_class = "warm") {
    return tuned::database_source(store_)->find(use_.workload, target_, policy_class);
  }
  // The hash of a candidate's code, generated as the programs of these tests are.
  std::string code_of(size_t candidate);
  // A measurement of a configuration, at 64 rows and 100 ns.
  db::Uuid measured(const db::NewDispatchTable& t, const db::Hash& config,
                    const std::string& code_hash);
  KernelReport compiled(const std::string& policy_class = "warm");
  db::Uuid lay(db::Region region, const db::Hash& config, const db::DispatchTable& t) {
    return store_->add(db::NewOverride{t.workload, t.hardware, std::move(region), config, "word"});
  }

  kernels::TargetInfo target_ = kernels::detect_host();
  std::string folder_;
  std::shared_ptr<db::Store> store_;
  WorkloadUse use_;
  // Of the workload, no two alike; the default one first.
  std::vector<tuned::Candidate> candidates_;
  std::map<size_t, std::string> codes_;
  int64_t campaigns_ = 0;
};

}  // namespace nimble::driver::testing
