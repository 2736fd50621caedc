// Which of several databases serves a workload.
#include "compiler/tuned/layered.h"

#include <gtest/gtest.h>

namespace nimble::tuned {
namespace {

using Outcome = Lookup::Outcome;

// Answers everything alike.
class Fixed : public TunedSource {
 public:
  Fixed(std::string name, Lookup answer) : name_(std::move(name)), answer_(std::move(answer)) {}
  Lookup find(const kernels::Workload&, const kernels::TargetInfo&, const std::string&) override {
    return answer_;
  }
  std::string identity() const override { return name_; }

 private:
  std::string name_;
  Lookup answer_;
};

// A choice that says where it is from.
Lookup choice(const std::string& from, Outcome outcome, const std::string& other_toolchain = "",
              bool is_override = false) {
  Lookup l;
  l.outcome = outcome;
  l.other_toolchain = other_toolchain;
  l.choice.emplace();
  l.choice->evidence =
      R"([{"from":")" + from + R"(","override":)" + (is_override ? "true" : "false") + "}]";
  return l;
}

Lookup nothing(const std::string& reason = "") {
  Lookup l;
  l.reason = reason;
  return l;
}

std::string served(const std::vector<Lookup>& answers) {
  std::vector<std::unique_ptr<TunedSource>> sources;
  for (size_t i = 0; i < answers.size(); ++i)
    sources.push_back(std::make_unique<Fixed>("db" + std::to_string(i), answers[i]));
  const Lookup found = layered_source(std::move(sources))->find({}, {}, "warm");
  return found.choice ? found.choice->evidence : found.reason;
}

std::string evidence(const std::string& from, bool is_override = false) {
  return choice(from, Outcome::kTuned, "", is_override).choice->evidence;
}

TEST(Layered, TheFirstThatHasExactRecordsServes) {
  const Lookup own = choice("own", Outcome::kTuned), shipped = choice("shipped", Outcome::kTuned);
  EXPECT_EQ(served({own, shipped}), evidence("own"));
  EXPECT_EQ(served({nothing(), shipped}), evidence("shipped"));
  EXPECT_EQ(served({own, nothing()}), evidence("own"));
  EXPECT_EQ(served({shipped}), evidence("shipped"));
}

TEST(Layered, ExactRecordsBelowCountMoreThanDoubtfulOnesAbove) {
  const Lookup shipped = choice("shipped", Outcome::kTuned);
  EXPECT_EQ(served({choice("own", Outcome::kFallback), shipped}), evidence("shipped"));
  EXPECT_EQ(served({choice("own", Outcome::kTuned, "an older LLVM"), shipped}),
            evidence("shipped"));
  // Where all are doubtful, the first.
  EXPECT_EQ(served({choice("own", Outcome::kFallback), choice("shipped", Outcome::kFallback)}),
            evidence("own"));
}

TEST(Layered, AnOverrideCountsMostWhereverItIsLaid) {
  const Lookup shipped = choice("shipped", Outcome::kTuned);
  EXPECT_EQ(served({choice("own", Outcome::kFallback, "", true), shipped}), evidence("own", true));
  EXPECT_EQ(served({choice("own", Outcome::kUntuned, "", true), shipped}), evidence("own", true));
}

TEST(Layered, WithoutRecordsTheFirstReasonIsTold) {
  EXPECT_EQ(served({nothing(), nothing("the budget ended"), nothing("another")}),
            "the budget ended");
  EXPECT_EQ(served({nothing(), nothing()}), "");
}

TEST(Layered, ProvenanceNamesAllOfThem) {
  std::vector<std::unique_ptr<TunedSource>> sources;
  for (const char* name : {"own", "shipped"})
    sources.push_back(std::make_unique<Fixed>(name, Lookup()));
  EXPECT_EQ(layered_source(std::move(sources))->identity(), "own, shipped");
}

}  // namespace
}  // namespace nimble::tuned
