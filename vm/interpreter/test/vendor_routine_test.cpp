// Vendors' routines in a session: ready for the exact entries of the table and the constants of the
// program, everything else served by what stands in.
#include "vm/library/vendor_routine.h"

#include <cstring>
#include <map>

#include "vm/interpreter/kernel.h"
#include "vm/interpreter/replay.h"
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// y = a + w + 1000: not what the stand-in computes, so that tests see which ran.
class Ready final : public ReadyCall {
 public:
  void run(const LibraryCall& call, int32_t thread, int32_t threads) const override {
    const auto* a = static_cast<const float*>(call.tensors[0].data);
    const auto* w = static_cast<const float*>(call.tensors[1].data);
    auto* y = static_cast<float*>(call.tensors[2].data);
    const int64_t n = call.tensors[2].shape[0];
    for (int64_t i = thread; i < n; i += threads) y[i] = a[i] + w[i] + 1000;
  }
};

class Fake final : public VendorRoutine {
 public:
  static inline int made = 0, prepared = 0;
  explicit Fake(bool refuses) : refuses_(refuses) {}
  std::optional<size_t> weights() const override { return 1; }
  uint64_t make_ready(std::span<const LibraryTensor> tensors, int32_t) override {
    const int64_t n = tensors[0].shape[0];
    if (refuses_) throw Error(Status::kUnsupported, "fake", "it has nothing for these sizes");
    ++made;
    ready_[{n, tensors[1].data}];
    return 100;
  }
  const ReadyCall* find(std::span<const LibraryTensor> tensors) const override {
    const auto it = ready_.find({tensors[0].shape[0], tensors[1].data});
    return it == ready_.end() ? nullptr : &it->second;
  }
  void forget() override { ready_.clear(); }

 private:
  const bool refuses_;
  std::map<std::pair<int64_t, const void*>, Ready> ready_;
};

class Vendors : public Interpreter {
 protected:
  void SetUp() override {
    Interpreter::SetUp();
    static const bool once = [] {
      LibraryKernel k;
      k.name = "test.fake";
      k.kind = exec::ImplementationKind::kVendor;
      k.signature = "a, w -> y";
      k.summary = "Made ready.";
      k.prepare = [](const std::string& configuration, const exec::KernelContract&) {
        ++Fake::prepared;
        if (configuration == "another version")
          throw Error(Status::kIncompatible, "fake", "measured with another version");
        return std::unique_ptr<VendorRoutine>(std::make_unique<Fake>(configuration == "refuses"));
      };
      add_library_kernel(std::move(k));
      return true;
    }();
    (void)once;
    Fake::made = 0;
  }

  // The model of the harness with a dispatch tree over n, whose leaf 0 is the routine and 1 ours.
  std::string model(const std::string& tree, const std::string& implementations) {
    std::string text = std::string(kAddKernel) + kAddModel;
    text.replace(text.find("dispatch { 0: 0 }"), 17, "dispatch { " + tree + " }");
    text.replace(text.find("host \"test.add\""), 15, implementations);
    return text;
  }
  static constexpr const char* kBoth = "vendor \"test.fake\" config \"right\"\n  host \"test.add\"";
};

TEST_F(Vendors, AreReadyForExactEntriesAndOursServesTheRest) {
  // All sizes go to the routine; one of them alone has an entry of its own.
  load(model("0: n == 3 ? 1 : 2  1: 0  2: 0", kBoth), {}, true);
  EXPECT_EQ(Fake::made, 1);
  EXPECT_EQ(model_->vendor_calls(), 1u);
  EXPECT_EQ(model_->vendor_bytes(), 100u);
  EXPECT_THAT(model_->info(), HasSubstr("\"vendor_bytes\":100"));
  EXPECT_THAT(model_->notes(), IsEmpty());
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(1011, 1022, 1033));
  // Nothing is made on the way of a request.
  EXPECT_EQ(Fake::made, 1);
}

TEST_F(Vendors, OtherSizesNeverMakeAnything) {
  load(model("0: n <= 8 ? 1 : 2  1: 0  2: 1", kBoth), {}, true);
  EXPECT_EQ(Fake::made, 0);
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
  EXPECT_EQ(Fake::made, 0);
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("ready for 0 calls")));
}

TEST_F(Vendors, SizesThatTheLibraryRefusesRunOursAndAreTold) {
  load(model("0: n == 3 ? 1 : 2  1: 0  2: 1",
             "vendor \"test.fake\" config \"refuses\"\n  host \"test.add\""),
       {}, true);
  EXPECT_EQ(model_->vendor_calls(), 0u);
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("nothing for these sizes")));
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
}

TEST_F(Vendors, AnotherVersionOfTheLibraryIsNoFailedLoad) {
  load(model("0: n == 3 ? 1 : 2  1: 0  2: 1",
             "vendor \"test.fake\" config \"another version\"\n  host \"test.add\""),
       {}, true);
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("another version")));
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
}

TEST_F(Vendors, WithoutTrustNothingIsMade) {
  load(model("0: n == 3 ? 1 : 2  1: 0  2: 1", kBoth), {}, false);
  EXPECT_EQ(Fake::made, 0);
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
}

// A file may have very many, each with a configuration that is compared with the whole contract.
TEST_F(Vendors, VeryManyConfigurationsAreNotAllLookedAt) {
  std::string all;
  for (int i = 0; i < 1000; ++i) all += fmt::format("vendor \"test.fake\" config \"{}\"\n  ", i);
  Fake::prepared = 0;
  load(model("0: n == 3 ? 1 : 2  1: 999  2: 1000", all + "host \"test.add\""), {}, true);
  EXPECT_EQ(Fake::prepared, 16);
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
  EXPECT_THAT(model_->notes(), ::testing::Contains(HasSubstr("more than 16 routines")));
}

// A table of very many sizes would make each load take minutes.
TEST_F(Vendors, SizesBeyondAFewHundredRunOurs) {
  for (const size_t others : {255u, 256u}) {
    std::string tree;
    for (size_t i = 0; i <= others; ++i)
      tree += fmt::format("{}: n == {} ? {} : {}  {}: 0  ", 2 * i, i == others ? 3 : 1000 + i,
                          2 * i + 1, 2 * i + 2, 2 * i + 1);
    tree += fmt::format("{}: 1", 2 * others + 2);
    Fake::made = 0;
    load(model(tree, kBoth), {}, true);
    const bool ready = others < 256;
    EXPECT_EQ(Fake::made, ready ? 1 : 0);
    if (ready)
      EXPECT_THAT(model_->notes(), IsEmpty());
    else
      EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("a kernel has at most 256")));
    EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats,
                ready ? ElementsAre(1011, 1022, 1033) : ElementsAre(11, 22, 33));
  }
}

// Several leaves of a table with one configuration have one routine, and weights are copied once.
TEST_F(Vendors, OneConfigurationIsOneRoutine) {
  Fake::prepared = 0;
  load(model("0: n == 3 ? 1 : 2  1: 0  2: n == 4 ? 3 : 4  3: 1  4: 2",
             "vendor \"test.fake\" config \"right\"\n  " + std::string(kBoth)),
       {}, true);
  EXPECT_EQ(Fake::prepared, 1);
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(1011, 1022, 1033));
}

// Of a candidate for measuring nothing stands in, or its time might be another's.
TEST_F(Vendors, WhatIsNotReadyAndHasNoStandInSaysSo) {
  load(model("0: n == 3 ? 1 : 2  1: 0  2: 0", "vendor \"test.fake\" config \"right\""), {}, true);
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(1011, 1022, 1033));
  std::string text = model("0: 0", "vendor \"test.fake\" config \"right\"");
  load(text, {}, true);
  EXPECT_THAT(failure({{{3}, {1, 2, 3}}}, Status::kUnsupported), HasSubstr("not ready"));
}

TEST_F(Vendors, AReplayRunsWhatTheRunDid) {
  load(model("0: n == 3 ? 1 : 2  1: 0  2: 1", kBoth), {}, true);
  const std::vector<float> x = {1, 2, 3};
  const std::vector<int64_t> shape = {3};
  const InputTensor in{x.data(), DType::kF32, shape, {}, true};
  OutputTensor out;
  KernelLog log;
  session_->set_profiling(true);
  session_->record_kernels(&log);
  session_->run(0, {&in, 1}, {&out, 1});
  session_->record_kernels(nullptr);
  KernelReplay replay(log, session_->pool());
  replay.run();
  std::vector<float> y(3);
  std::memcpy(y.data(), replay.at(out.data), sizeof(float) * 3);
  EXPECT_THAT(y, ElementsAre(1011, 1022, 1033));
}

TEST_F(Vendors, LoadingCountsWhatTheyKeep) {
  LoadOptions options;
  options.trust = true;
  const std::string text = model("0: n == 3 ? 1 : 2  1: 0  2: 1", kBoth);
  uint64_t enough = 1;
  for (;; enough *= 2) {
    options.limits.memory = enough;
    try {
      Model::load(exec::assemble(text), options, "test");
      break;
    } catch (const Error& e) {
      ASSERT_EQ(e.status(), Status::kExhausted) << e.what();
      ASSERT_LT(enough, uint64_t{1} << 40);
    }
  }
  EXPECT_GT(enough, 100u);
}

}  // namespace
}  // namespace nimble::rt
