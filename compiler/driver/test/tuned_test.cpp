// What the compiler takes from a tuning database: tables of several thread counts joined, stale
// ones, ones that do not fit, damaged ones; dispatch trees as JSON; candidate executables.
#include <algorithm>
#include <filesystem>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"

namespace nimble::driver::testing {
namespace {

using exec::DispatchFeature;
using exec::DispatchNode;
using exec::DispatchTree;

constexpr const char* kDense = R"(fn @main(%x: Tensor[(n, 24), f32], %c: Tensor[(40), f32]) {
  let %i = range() {count = 960, start = 0, step = 1, dtype = f32};
  let %s = sin(%i);
  let %w = reshape(%s) {shape = (24, 40)};
  let %y = matmul(%x, %w);
  let %z = add(%y, %c);
  let %g = relu(%z);
  %g
})";

// The one workload of a program that is a product.
WorkloadUse workload_of(const std::string& text, const std::string& anchor) {
  passes::PassContext context;
  context.target = kernels::detect_host();
  ir::Module lowered = passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context);
  // lower-memory has replaced the calls: ask before it.
  passes::PipelineOptions until_fused;
  std::vector<std::string>& names = until_fused.passes;
  names.erase(std::find(names.begin(), names.end(), "lower-memory"), names.end());
  lowered = passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context, until_fused);
  for (WorkloadUse& u : workloads_of(lowered))
    if (u.workload.anchor == anchor) return u;
  ADD_FAILURE() << "no workload " << anchor;
  return {};
}

// Configurations that the template calls valid, no two alike; the default one first.
std::vector<tuned::Candidate> candidates_of(const kernels::Workload& w,
                                            const kernels::TargetInfo& target, size_t count) {
  const kernels::Template* t = kernels::template_for(w, target);
  std::vector<tuned::Candidate> out = {{std::string(t->name()), t->default_config(w, target), {}}};
  unsigned state = 1;
  for (int attempt = 0; attempt < 2000 && out.size() < count; ++attempt) {
    kernels::Config c;
    for (const kernels::Knob& k : t->knobs(w, target)) {
      state = state * 1664525 + 1013904223;
      c[k.name] = k.choices[(state >> 16) % k.choices.size()];
    }
    bool known = std::any_of(out.begin(), out.end(),
                             [&](const tuned::Candidate& o) { return o.config == c; });
    if (!known && t->valid(w, c, target)) out.push_back({std::string(t->name()), c, {}});
  }
  return out;
}

// How a table differs from one that this compiler would write.
struct Change {
  std::string tree;  // instead of one leaf for each candidate, by rows
  std::string toolchain_version, isa, template_name;
  int64_t template_version = 0;
};

class Tuned : public ::testing::Test {
 protected:
  Tuned() {
    std::string pattern = ::testing::TempDir() + "nimble-tuned-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    store_ = db::Store::open(folder_ + "/tuning.db");
    use_ = workload_of(kDense, "packed_matmul");
    candidates_ = candidates_of(use_.workload, target_, 3);
  }
  ~Tuned() override { std::filesystem::remove_all(folder_); }

  // An active table of these candidates, in ranges of the first symbol: <= 8, <= 32, above.
  db::Uuid table(int64_t threads, std::vector<size_t> chosen, const Change& change = {}) {
    db::NewDispatchTable t;
    db::Hardware hardware = tuned::host_hardware();
    if (!change.isa.empty()) hardware.isa = change.isa;
    db::Toolchain toolchain = tuned::toolchain_record();
    if (!change.toolchain_version.empty()) toolchain.version = change.toolchain_version;
    store_->transaction([&] {
      t.workload = store_->put(tuned::workload_record(use_.workload, target_, threads));
      t.hardware = store_->put(hardware);
      t.toolchain = store_->put(toolchain);
      t.policy = store_->put(db::MeasurePolicy{db::CacheMode::kWarm, 3, 2, "rdtsc", "ci<1%"});
      t.objective = "mean";
      for (size_t c : chosen) {
        const kernels::Template* known = kernels::find_template(candidates_[c].template_name);
        db::Hash h = store_->put(db::Template{
            change.template_name.empty() ? candidates_[c].template_name : change.template_name,
            change.template_version ? change.template_version : known->version(), "knobs"});
        db::DispatchEntry e;
        e.config = store_->put(db::Config{h, kernels::to_json(candidates_[c].config)});
        e.expected_ns = 100;
        t.entries.push_back(e);
      }
      t.tree = change.tree.empty()
                   ? tuned::tree_to_json(by_rows(chosen.size()), use_.workload.contract.symbols)
                   : change.tree;
    });
    db::Uuid uuid = store_->create_table(t);
    store_->activate(uuid, "test");
    return uuid;
  }
  static DispatchTree by_rows(size_t leaves) {
    DispatchTree tree;
    const int64_t limits[] = {8, 32};
    for (uint32_t i = 0; i + 1 < leaves; ++i) {
      auto here = static_cast<uint32_t>(tree.nodes.size());
      tree.nodes.push_back({DispatchNode::Test::kLessEqual, {}, limits[i], here + 1, here + 2});
      tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, i, 0});
    }
    tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, static_cast<uint32_t>(leaves - 1), 0});
    return tree;
  }
  tuned::Lookup find() { return tuned::database_source(store_)->find(use_.workload, target_); }

  kernels::TargetInfo target_ = kernels::detect_host();
  std::string folder_;
  std::shared_ptr<db::Store> store_;
  WorkloadUse use_;
  std::vector<tuned::Candidate> candidates_;
};

TEST_F(Tuned, NothingIsKnownOfAnEmptyDatabase) {
  tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kUntuned);
  EXPECT_FALSE(found.choice);
}

TEST_F(Tuned, AWorkloadThatTheBudgetDidNotReachIsNamedSo) {
  store_->put(tuned::workload_record(use_.workload, target_, 1));
  tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kUntuned);
  EXPECT_NE(found.reason.find("budget ended"), std::string::npos) << found.reason;
}

// What sorts has no schedule that a record could tell.
TEST_F(Tuned, AHostOperatorLacksNoRecord) {
  CompileReport report;
  auto source = tuned::database_source(store_);
  CompileOptions options = options_of({"default"});
  options.tuned = source.get();
  driver::compile(ir::infer_types(ir::parse_module(R"(
fn @main(%x: Tensor[(n, 8), f32]) {
  let %best = topk(%x) {axis = 1, k = 3, largest = true};
  %best
})")),
                  options, &report);
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0].outcome, tuned::Lookup::Outcome::kFixed);
}

// The record of one is none of the other: constants may be laid out and prefetched otherwise.
TEST_F(Tuned, WithAConstantItIsAnotherWorkload) {
  passes::PassContext context;
  context.target = target_;
  const ir::Module lowered = passes::run_pipeline(ir::infer_types(ir::parse_module(R"(
fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4), f32]) {
  let %a = softmax(%x) {axis = 1};
  let %b = add(%a, %w);
  let %c = softmax(%b) {axis = 1};
  let %d = add(%c, f32[4]{1, 2, 3, 4});
  %d
})")),
                                                  context);
  std::set<std::pair<std::string, std::vector<bool>>> uses;
  std::set<std::string> keys;
  for (const WorkloadUse& use : workloads_of(lowered)) {
    EXPECT_TRUE(uses.insert({use.workload.key, use.workload.constant_parameter}).second);
    keys.insert(use.workload.key);
  }
  EXPECT_GT(uses.size(), keys.size());
}

TEST_F(Tuned, TablesOfOneAndTwoThreadsAreJoined) {
  table(1, {0, 1});
  table(2, {2, 0, 1});
  tuned::Lookup found = find();
  ASSERT_EQ(found.outcome, tuned::Lookup::Outcome::kTuned) << found.reason;
  ASSERT_EQ(found.choice->candidates.size(), 5u);
  auto chosen = [&](int64_t rows, int threads) {
    return found.choice->tree.choose(std::vector<int64_t>{rows}, threads);
  };
  EXPECT_EQ(chosen(8, 1), 0u);
  EXPECT_EQ(chosen(9, 1), 1u);
  EXPECT_EQ(chosen(8, 2), 2u);
  EXPECT_EQ(chosen(32, 2), 3u);
  EXPECT_EQ(chosen(33, 2), 4u);
  EXPECT_EQ(chosen(33, 7), 4u) << "a count without a table uses the largest smaller one";
  for (size_t i : {0, 1, 2, 3, 4}) {
    const size_t expected[] = {0, 1, 2, 0, 1};
    EXPECT_EQ(found.choice->candidates[i].config, candidates_[expected[i]].config);
  }
  EXPECT_NE(found.choice->evidence.find("\"threads\":2"), std::string::npos);
}

TEST_F(Tuned, ATunedProgramComputesTheSame) {
  table(1, {1, 2, 0});
  table(2, {2, 1});
  auto source = tuned::database_source(store_);
  for (int threads : {1, 2}) {
    CompileOptions options = options_of({"default"});
    options.tuned = source.get();
    ir::Module m = ir::infer_types(ir::parse_module(kDense));
    CompileReport report;
    auto model = load(driver::compile(m, options, &report));
    EXPECT_TRUE(std::any_of(report.kernels.begin(), report.kernels.end(), [](const auto& k) {
      return k.outcome == tuned::Lookup::Outcome::kTuned && k.implementations >= 5;
    }));
    rt::SessionOptions session_options;
    session_options.threads = threads;
    rt::Session session(model, session_options);
    Program p{"dense", kDense};
    for (int64_t n : {0, 1, 7, 8, 9, 31, 32, 33, 65, 130}) {
      std::vector<ir::TensorRef> in = random_inputs(p, *m.find("main"), {{"n", n}}, 3);
      expect_close(run_session(session, "main", in),
                   reference::Interpreter(m).run_tensors("main", in), 1e-4);
    }
  }
}

TEST_F(Tuned, AnotherPatchReleaseIsStaleAndUsed) {
  std::string version = tuned::toolchain_record().version;
  Change change;
  change.toolchain_version = version.substr(0, version.rfind('.')) + ".99";
  table(1, {0}, change);
  tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kStale);
  EXPECT_TRUE(found.choice && found.choice->stale);
  EXPECT_NE(found.reason.find(change.toolchain_version), std::string::npos) << found.reason;
}

TEST_F(Tuned, OtherHardwareToolchainOrTemplateIsAMismatch) {
  Change other_isa, other_llvm, other_template, other_version;
  other_isa.isa = "x86-64-v1";
  other_llvm.toolchain_version = "3.0.0";
  other_template.template_name = "hexagonal";
  other_version.template_version = 999;
  for (const Change& change : {other_isa, other_llvm, other_template, other_version}) {
    std::filesystem::remove_all(folder_ + "/tuning.db");
    store_ = db::Store::open(folder_ + "/tuning.db");
    table(1, {0}, change);
    tuned::Lookup found = find();
    EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kMismatch);
    EXPECT_FALSE(found.choice);
    EXPECT_FALSE(found.reason.empty());
  }
}

TEST_F(Tuned, ADamagedTreeIsReportedAndNotUsed) {
  for (
      const char* tree :
      {R"({"nodes":[]})", R"({"nodes":[{"leaf":3}]})", R"({"leaf":0})",
       R"({"nodes":[{"feature":"symbol","a":"q","op":"<=","value":1,"yes":1,"no":2},{"leaf":0},{"leaf":0}]})",
       R"({"nodes":[{"feature":"symbol","a":"s0","op":"<=","value":1,"yes":0,"no":1},{"leaf":0}]})"}) {
    std::filesystem::remove_all(folder_ + "/tuning.db");
    store_ = db::Store::open(folder_ + "/tuning.db");
    Change change;
    change.tree = tree;
    table(1, {0}, change);
    tuned::Lookup found = find();
    EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kMismatch) << tree;
    EXPECT_FALSE(found.choice) << tree;
    EXPECT_NE(found.reason.find("dispatch table"), std::string::npos) << found.reason;
    EXPECT_NE(found.reason.find("tune the workload again"), std::string::npos) << found.reason;
  }
}

TEST(TreeJson, EveryFeatureRoundTrips) {
  using Kind = DispatchFeature::Kind;
  DispatchTree tree;
  auto node = [&](Kind kind, uint32_t a, uint32_t b, int64_t t, DispatchNode::Test test) {
    auto here = static_cast<uint32_t>(tree.nodes.size());
    tree.nodes.push_back({test, {kind, a, b, t}, 5, here + 1, here + 2});
    tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, here, 0});
  };
  node(Kind::kSymbol, 1, 0, 1, DispatchNode::Test::kLessEqual);
  node(Kind::kCeilDiv, 0, 0, 8, DispatchNode::Test::kLessEqual);
  node(Kind::kMod, 1, 0, 16, DispatchNode::Test::kEqual);
  node(Kind::kProduct, 0, 1, 1, DispatchNode::Test::kLessEqual);
  node(Kind::kThreads, 0, 0, 1, DispatchNode::Test::kEqual);
  tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, 3, 0});
  const std::vector<std::string> symbols = {"s0", "s1"};
  std::string text = tuned::tree_to_json(tree, symbols);
  EXPECT_EQ(tuned::tree_from_json(text, symbols), tree) << text;
  EXPECT_THROW(tuned::tree_from_json(text, {"s0"}), Error);
  for (const char* bad : {"", "{", "[]", R"({"nodes":[{}]})", R"({"nodes":[{"leaf":"x"}]})",
                          R"({"nodes":[{"feature":"moon","op":"<=","value":1,"yes":1,"no":2}]})"})
    EXPECT_THROW(tuned::tree_from_json(bad, symbols), Error) << bad;
}

}  // namespace
}  // namespace nimble::driver::testing
