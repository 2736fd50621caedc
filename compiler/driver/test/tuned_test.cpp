// What the compiler takes from a tuning database: tables of several thread counts joined, ones of
// other code or another class of policy, ones that do not fit, damaged ones; overrides.
#include <algorithm>
#include <filesystem>

#include "compiler/driver/kernel_set.h"
#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/reference/reference.h"
#include "db/store/host_records.h"
#include "db/store/sqlite.h"
#include "vm/executable/dispatch_json.h"
#include "vm/executable/vendor_call.h"
#include "vm/library/registry.h"

namespace nimble::driver::testing {
namespace {

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

// The first workload of a program with this anchor, or with any.
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
    if (anchor.empty() || u.workload.anchor == anchor) return u;
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

// Changes a database behind its guards: without triggers, checks and foreign keys.
void damage(const std::string& path, const std::string& sql) {
  db::SqliteConnection db(path, SQLITE_OPEN_READWRITE, "", path);
  std::string drops;
  {
    db::Statement row = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'");
    while (row.step()) drops += "DROP TRIGGER " + row.text(0) + ";";
  }
  db.script(drops + "PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;" + sql);
}

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
    db::Hardware hardware = db::host_hardware();
    if (!change.isa.empty()) hardware.isa = change.isa;
    if (!change.model_name.empty()) hardware.model_name = change.model_name;
    db::Toolchain toolchain = tuned::toolchain_record();
    if (!change.toolchain_version.empty()) toolchain.version = change.toolchain_version;
    store_->transaction([&] {
      t.workload = store_->put(tuned::workload_record(use_.workload, target_, threads));
      t.hardware = store_->put(hardware);
      t.toolchain = store_->put(toolchain);
      t.policy = store_->put(
          db::MeasurePolicy{db::CacheMode::kWarm, 3, 2, "rdtsc", "ci<1%", change.policy_class});
      t.objective = "mean";
      for (size_t c : chosen) {
        db::Hash h = store_->put(db::Template{
            change.template_name.empty() ? candidates_[c].template_name : change.template_name,
            change.template_version ? change.template_version : tuned::kTemplateVersion, "knobs"});
        db::DispatchEntry e;
        e.config = store_->put(
            db::Config{h, !change.config.empty() ? change.config
                          : candidates_[c].vendor.empty()
                              ? kernels::to_json(candidates_[c].config)
                              : fmt::format(R"({{"routine":"{}"}})", candidates_[c].vendor)});
        e.expected_ns = 100;
        if (change.evidence)
          e.evidence = measured(t, e.config, change.changed ? "other code" : code_of(c));
        t.entries.push_back(e);
      }
      t.tree = change.tree.empty()
                   ? exec::tree_to_json(by_rows(chosen.size()), use_.workload.contract.symbols)
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
  tuned::Lookup find(const std::string& policy_class = "warm") {
    return tuned::database_source(store_)->find(use_.workload, target_, policy_class);
  }

  // The hash of a candidate's code, generated as the programs of these tests are.
  std::string code_of(size_t candidate) {
    std::string& known = codes_[candidate];
    if (!known.empty()) return known;
    KernelSet kernels(target_, {});
    kernels.add_fixed(use_.workload.group, use_.workload.constant_parameter, candidates_[candidate],
                      "alone");
    CompileOptions options = options_of({"default"});
    options.portable = false;
    exec::Executable e;
    kernels.finish(options, e, nullptr);
    return known = kernels.code_hash(0, 0);
  }
  // A measurement of a configuration, at 64 rows and 100 ns.
  db::Uuid measured(const db::NewDispatchTable& t, const db::Hash& config,
                    const std::string& code_hash) {
    const db::CampaignKey key{code_hash, t.hardware, ++campaigns_};
    db::TrialKey trial{store_->create_campaign(key, 10, "test"), t.workload, config,
                       store_->put(db::Shape{t.workload, {{"s0", 64}}, 1, 1})};
    store_->enqueue({{trial}});
    store_->claim({trial.campaign, "me"});
    db::Measurement m;
    m.trial = db::uuid_of(trial);
    m.artifact = store_->put(db::Artifact{code_hash, t.workload, config, t.toolchain, 1, 1});
    m.policy = t.policy;
    m.machine = store_->put(db::Machine{"", "box", t.hardware});
    m.host_state = store_->put(db::HostState{});
    m.median_ns = m.ci_low_ns = m.ci_high_ns = 100;
    m.stop_reason = "ci";
    m.samples_ns = {100};
    store_->finish({m.trial, "me", db::TrialState::kOk, "", "", m});
    return store_->measurements(m.trial).at(0).measurement.uuid;
  }
  KernelReport compiled(const std::string& policy_class = "warm") {
    auto source = tuned::database_source(store_);
    CompileOptions options = options_of({"default"});
    options.tuned = source.get();
    options.policy_class = policy_class;
    CompileReport report;
    driver::compile(ir::infer_types(ir::parse_module(kDense)), options, &report);
    for (const KernelReport& k : report.kernels)
      if (k.workload == use_.workload.key) return k;
    ADD_FAILURE() << "no such kernel";
    return {};
  }
  db::Uuid lay(db::Region region, const db::Hash& config, const db::DispatchTable& t) {
    return store_->add(db::NewOverride{t.workload, t.hardware, std::move(region), config, "word"});
  }

  kernels::TargetInfo target_ = kernels::detect_host();
  std::string folder_;
  std::shared_ptr<db::Store> store_;
  WorkloadUse use_;
  std::vector<tuned::Candidate> candidates_;
  std::map<size_t, std::string> codes_;
  int64_t campaigns_ = 0;
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

// Instructions that a kernel has no use for change neither its code nor what was measured of it.
TEST_F(Tuned, LevelsOfTheSameCodeShareARecord) {
  const auto record = [](const WorkloadUse& use, const char* level) {
    return tuned::workload_record(use.workload, kernels::target_by_name(level), 1).canonical;
  };
  for (const char* level :
       {"x86-64-v4-vnni", "x86-64-v4-bf16", "x86-64-v4-amx", "x86-64-v4-amx-fp16"})
    EXPECT_EQ(record(use_, level), record(use_, "x86-64-v4"));
  EXPECT_NE(record(use_, "x86-64-v4"), record(use_, "x86-64-v3")) << "vectors are wider";
  const auto widened = [&](const std::string& type) {
    return workload_of("fn @main(%x: Tensor[(n, 24), " + type + R"(]) {
  let %y = cast(%x) {dtype = f32};
  let %z = relu(%y);
  %z
})",
                       "");
  };
  const WorkloadUse bf16 = widened("bf16"), f16 = widened("f16");
  EXPECT_EQ(record(bf16, "x86-64-v4-vnni"), record(bf16, "x86-64-v4"));
  EXPECT_NE(record(bf16, "x86-64-v4-bf16"), record(bf16, "x86-64-v4"));
  EXPECT_NE(record(bf16, "x86-64-v4-amx"), record(bf16, "x86-64-v4-bf16"));
  EXPECT_EQ(record(bf16, "x86-64-v4-amx-fp16"), record(bf16, "x86-64-v4-amx"));
  EXPECT_EQ(record(f16, "x86-64-v4-amx"), record(f16, "x86-64-v4"));
  EXPECT_NE(record(f16, "x86-64-v4-amx-fp16"), record(f16, "x86-64-v4-amx"));
  EXPECT_EQ(record(f16, "aarch64-bf16"), record(f16, "aarch64"));
  EXPECT_NE(record(f16, "aarch64-fp16fml"), record(f16, "aarch64-bf16"));
}

// The target of this machine is that of its hardware's record, wherever it is asked for.
TEST_F(Tuned, HardwareRecordsTellTheTarget) {
  EXPECT_EQ(kernels::target_of_isa(db::host_hardware().isa).level, kernels::detect_host().level);
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
  // One of them has a kernel for each residue.
  candidates_[1].config = candidates_[0].config;
  candidates_[1].config["rows"] = int64_t{4};
  candidates_[1].config["tails"] = std::string("residue");
  lay({{"s0", {31, 32}}}, store_->table(table(1, {1, 2, 0}))->entries[0].config,
      *store_->table(table(2, {2, 1})));
  auto source = tuned::database_source(store_);
  for (int threads : {1, 2}) {
    CompileOptions options = options_of({"default"});
    options.tuned = source.get();
    options.policy_class = "warm";
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

// A table's entry for one exact size is a test of the executable's own tree, and what it computes
// is right there and beside it.
TEST_F(Tuned, AnEntryForOneSizeIsATestInTheExecutable) {
  Change exact;
  exact.tree = exec::tree_to_json({{{DispatchNode::Test::kEqual, {}, 37, 1, 2},
                                    {DispatchNode::Test::kLeaf, {}, 0, 0, 0},
                                    {DispatchNode::Test::kLeaf, {}, 0, 1, 0}}},
                                  use_.workload.contract.symbols);
  table(1, {0, 1}, exact);
  const tuned::Lookup found = find();
  ASSERT_TRUE(found.choice);
  const auto chosen = [&](int64_t rows) {
    const uint32_t leaf = found.choice->tree.choose(std::vector<int64_t>{rows}, 1);
    return found.choice->candidates.at(leaf).config;
  };
  EXPECT_EQ(chosen(37), candidates_[0].config);
  for (const int64_t rows : {0, 1, 36, 38, 64}) EXPECT_EQ(chosen(rows), candidates_[1].config);

  auto source = tuned::database_source(store_);
  CompileOptions options = options_of({"default"});
  options.tuned = source.get();
  options.policy_class = "warm";
  ir::Module m = ir::infer_types(ir::parse_module(kDense));
  const exec::Executable e = driver::compile(m, options, nullptr);
  EXPECT_TRUE(std::ranges::any_of(e.kernels, [](const exec::Kernel& k) {
    return std::ranges::any_of(k.dispatch.nodes, [](const DispatchNode& n) {
      return n.test == DispatchNode::Test::kEqual && n.threshold == 37 &&
             n.feature.kind == exec::DispatchFeature::Kind::kSymbol;
    });
  }));
  rt::SessionOptions session_options;
  session_options.threads = 1;
  rt::Session session(load(e), session_options);
  Program p{"dense", kDense};
  for (int64_t n : {0, 1, 36, 37, 38, 64}) {
    std::vector<ir::TensorRef> in = random_inputs(p, *m.find("main"), {{"n", n}}, 3);
    expect_close(run_session(session, "main", in),
                 reference::Interpreter(m).run_tensors("main", in), 1e-4);
  }
}

TEST_F(Tuned, OneConfigurationForSeveralRegionsIsOneKernel) {
  const auto kernel_of = [&] {
    auto source = tuned::database_source(store_);
    CompileOptions options = options_of({"default"});
    options.tuned = source.get();
    options.policy_class = "warm";
    CompileReport report;
    driver::compile(ir::infer_types(ir::parse_module(kDense)), options, &report);
    const auto tuned =
        std::find_if(report.kernels.begin(), report.kernels.end(),
                     [](const auto& k) { return k.outcome == tuned::Lookup::Outcome::kTuned; });
    EXPECT_NE(tuned, report.kernels.end());
    return *tuned;
  };
  table(1, {0, 1});
  const KernelReport two = kernel_of();
  table(1, {0, 1, 0});
  const KernelReport three = kernel_of();
  EXPECT_EQ(three.implementations, two.implementations);
  EXPECT_EQ(three.code_bytes, two.code_bytes);
}

// Any number of threads that somebody tuned for is found; others use the nearest below.
TEST_F(Tuned, TablesOfAnyNumberOfThreadsAreFound) {
  for (int64_t threads : {12, 3, 6}) table(threads, {threads == 3 ? 0u : threads == 6 ? 1u : 2u});
  tuned::Lookup found = find();
  ASSERT_EQ(found.outcome, tuned::Lookup::Outcome::kTuned) << found.reason;
  EXPECT_EQ(found.threads, (std::vector<int64_t>{3, 6, 12}));
  for (auto [threads, expected] : std::vector<std::pair<int, size_t>>{
           {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 1}, {11, 1}, {12, 2}, {64, 2}}) {
    const uint32_t leaf = found.choice->tree.choose(std::vector<int64_t>{8}, threads);
    EXPECT_EQ(found.choice->candidates.at(leaf).config, candidates_[expected].config) << threads;
  }
  EXPECT_EQ(compiled().threads, (std::vector<int64_t>{3, 6, 12}));
}

// Nobody has to remember to raise a version: a record is exact while its code is what was measured.
TEST_F(Tuned, ARecordIsExactWhileItsCodeIsTheSame) {
  const std::string version = tuned::toolchain_record().version;
  Change same, changed, unknown, other_release, other_release_changed;
  changed.changed = true;
  unknown.evidence = false;
  other_release.toolchain_version = version.substr(0, version.rfind('.')) + ".99";
  other_release_changed = other_release;
  other_release_changed.changed = true;
  using Outcome = tuned::Lookup::Outcome;
  for (const auto& [change, outcome, word] :
       {std::tuple(same, Outcome::kTuned, std::string()),
        std::tuple(changed, Outcome::kStale,
                   std::string("the code of 2 of 2 schedules has changed")),
        std::tuple(unknown, Outcome::kStale, std::string("2 of 2 schedules the code that")),
        std::tuple(other_release, Outcome::kTuned, std::string()),
        std::tuple(other_release_changed, Outcome::kStale, other_release.toolchain_version)}) {
    std::filesystem::remove_all(folder_ + "/tuning.db");
    store_ = db::Store::open(folder_ + "/tuning.db");
    table(1, {0, 1}, change);
    const KernelReport k = compiled();
    EXPECT_EQ(k.outcome, outcome) << word;
    EXPECT_NE(k.reason.find(word), std::string::npos) << k.reason;
    EXPECT_EQ(k.reason.empty(), word.empty()) << k.reason;
    EXPECT_GE(k.implementations, 2u) << "it is used in any case";
    EXPECT_EQ(k.evidence.find("\"stale\":true") != std::string::npos, outcome == Outcome::kStale);
  }
}

TEST_F(Tuned, AVendorsRoutineIsItsNameAndItsLibrarysVersion) {
  const rt::LibraryKernel* routine =
      rt::find_library_kernel(exec::ImplementationKind::kVendor, "onednn.matmul");
  ASSERT_TRUE(routine && routine->version);
  candidates_.push_back({tuned::kVendorTemplate, {}, "onednn.matmul"});
  const std::string code = code_of(candidates_.size() - 1);
  EXPECT_EQ(code, "onednn.matmul " + routine->version());
  EXPECT_TRUE(code.find("oneDNN ") != std::string::npos || !routine->unavailable().empty()) << code;
}

// One size has an entry of its own, for the vendor's routine; the rest is ours, and so is that size
// where the library is another or none.
TEST_F(Tuned, AVendorsRoutineServesItsExactSizeAndOursTheRest) {
  const rt::LibraryKernel* routine =
      rt::find_library_kernel(exec::ImplementationKind::kVendor, "onednn.matmul");
  candidates_.push_back({tuned::kVendorTemplate, {}, "onednn.matmul"});
  Change change;
  const DispatchTree tree = {{{DispatchNode::Test::kEqual, {}, 37, 1, 2},
                              {DispatchNode::Test::kLeaf, {}, 0, 1, 0},
                              {DispatchNode::Test::kLeaf, {}, 0, 0, 0}}};
  change.tree = exec::tree_to_json(tree, use_.workload.contract.symbols);
  table(1, {0, candidates_.size() - 1}, change);
  auto source = tuned::database_source(store_);
  CompileOptions options = options_of({"default"});
  options.tuned = source.get();
  options.policy_class = "warm";
  const ir::Module m = ir::infer_types(ir::parse_module(kDense));
  exec::Executable e = driver::compile(m, options, nullptr);
  size_t told = 0;
  for (const exec::Kernel& k : e.kernels)
    for (const exec::Implementation& i : k.implementations)
      if (i.kind == exec::ImplementationKind::kVendor) {
        ++told;
        const exec::VendorCall call = exec::vendor_call_of(i.config);
        EXPECT_EQ(call.library, routine->version());
        EXPECT_EQ(call.k, 24);
        EXPECT_EQ(call.n, 40);
        EXPECT_EQ(call.then.size(), 2u) << i.config;
      }
  EXPECT_EQ(told, 1u);
  const bool there = routine->unavailable().empty();
  for (const bool other_version : {false, true}) {
    exec::Executable copy = e;
    if (other_version)
      for (exec::Kernel& k : copy.kernels)
        for (exec::Implementation& i : k.implementations)
          if (i.kind == exec::ImplementationKind::kVendor) {
            exec::VendorCall call = exec::vendor_call_of(i.config);
            call.library = "oneDNN 1.0.0";
            i.config = exec::to_json(call);
          }
    auto model = load(std::move(copy));
    EXPECT_EQ(model->vendor_calls(), there && !other_version ? 1u : 0u);
    EXPECT_EQ(model->vendor_bytes() >= 24 * 40 * 4, there && !other_version);
    rt::Session session(model, {});
    Program p{"dense", kDense};
    for (int64_t n : {0, 1, 36, 37, 38, 130}) {
      const std::vector<ir::TensorRef> in = random_inputs(p, *m.find("main"), {{"n", n}}, 3);
      expect_close(run_session(session, "main", in),
                   reference::Interpreter(m).run_tensors("main", in), 1e-4);
    }
  }
}

// A table that knows nothing but the vendor's: ours is there all the same.
TEST_F(Tuned, OursStandsInWhereATableHasTheVendorsRoutineAlone) {
  candidates_.push_back({tuned::kVendorTemplate, {}, "onednn.matmul"});
  table(1, {candidates_.size() - 1});
  auto source = tuned::database_source(store_);
  CompileOptions options = options_of({"default"});
  options.tuned = source.get();
  options.policy_class = "warm";
  options.portable = false;
  const ir::Module m = ir::infer_types(ir::parse_module(kDense));
  auto model = load(driver::compile(m, options, nullptr));
  EXPECT_EQ(model->vendor_calls(), 0u) << "no size has an entry of its own";
  rt::Session session(model, {});
  Program p{"dense", kDense};
  for (int64_t n : {1, 37}) {
    const std::vector<ir::TensorRef> in = random_inputs(p, *m.find("main"), {{"n", n}}, 3);
    expect_close(run_session(session, "main", in),
                 reference::Interpreter(m).run_tensors("main", in), 1e-4);
  }
}

TEST_F(Tuned, AnotherClassOfPolicyStandsInAndSaysSo) {
  Change cold;
  cold.policy_class = "cold";
  table(1, {1}, cold);
  EXPECT_EQ(find("cold").outcome, tuned::Lookup::Outcome::kTuned);
  KernelReport k = compiled("warm");
  EXPECT_EQ(k.outcome, tuned::Lookup::Outcome::kFallback);
  EXPECT_EQ(k.reason, "measured cold, not warm");
  table(1, {0});
  EXPECT_EQ(compiled("warm").outcome, tuned::Lookup::Outcome::kTuned);
  EXPECT_EQ(find("warm").choice->candidates[0].config, candidates_[0].config);
  EXPECT_EQ(find("cold").choice->candidates[0].config, candidates_[1].config);
  EXPECT_EQ(find("cached").choice->candidates[0].config, candidates_[0].config) << "the nearer";
}

TEST_F(Tuned, AnOverrideIsLaidOverWhicheverTableIsActive) {
  const db::DispatchTable first = *store_->table(table(1, {0, 1}));
  const db::Hash config = store_->table(table(2, {2}))->entries[0].config;
  const db::Uuid word = lay({{"s0", {20, 40}}}, config, first);
  const auto chosen = [&](int64_t rows) {
    const tuned::Lookup found = find();
    const uint32_t leaf = found.choice->tree.choose(std::vector<int64_t>{rows}, 1);
    const auto it = std::find_if(candidates_.begin(), candidates_.end(), [&](const auto& c) {
      return c.config == found.choice->candidates.at(leaf).config;
    });
    return it - candidates_.begin();
  };
  for (int pass = 0; pass < 2; ++pass) {
    const long below = pass, above = 1 - pass;
    EXPECT_EQ(chosen(8), below);
    EXPECT_EQ(chosen(19), above);
    EXPECT_EQ(chosen(20), 2);
    EXPECT_EQ(chosen(40), 2);
    EXPECT_EQ(chosen(41), above);
    if (pass == 0) table(1, {1, 0});  // another one becomes active
  }
  // The later of two that overlap counts.
  const db::Uuid later = lay({{"s0", {30, std::nullopt}}}, first.entries[0].config, first);
  EXPECT_EQ(chosen(29), 2);
  EXPECT_EQ(chosen(30), 0);
  const KernelReport k = compiled();
  EXPECT_NE(k.reason.find("2 overrides in force"), std::string::npos) << k.reason;
  EXPECT_NE(k.evidence.find(word), std::string::npos);
  store_->withdraw(later, "no");
  store_->withdraw(word, "no");
  EXPECT_EQ(chosen(30), 0);
  EXPECT_EQ(chosen(8), 1);
  EXPECT_EQ(compiled().reason, "");
}

TEST_F(Tuned, AnOverrideOfAnUntunedWorkloadIsLaidOverTheDefault) {
  const db::DispatchTable t = *store_->table(table(1, {1}));
  lay({{"s0", {20, 40}}}, t.entries[0].config, t);
  store_->roll_back(t.uuid, "none is left");
  const tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kUntuned);
  ASSERT_TRUE(found.choice);
  const auto chosen = [&](int64_t rows) {
    return found.choice->candidates.at(found.choice->tree.choose(std::vector<int64_t>{rows}, 1));
  };
  EXPECT_EQ(chosen(30).config, candidates_[1].config);
  EXPECT_EQ(chosen(41).config, candidates_[0].config);
  EXPECT_EQ(compiled().outcome, tuned::Lookup::Outcome::kUntuned);
}

TEST_F(Tuned, AnOverrideThatCannotBeUsedIsReportedAndLeftOut) {
  const db::DispatchTable t = *store_->table(table(1, {0}));
  lay({{"moon", {1, 2}}}, t.entries[0].config, t);
  lay({{"threads", {1, 2}}}, t.entries[0].config, t);
  const db::Hash odd = store_->put(db::Config{store_->put(db::Template{"hexagonal", 1, ""}), "{}"});
  lay({}, odd, t);
  const db::Hash vendor =
      store_->put(db::Config{store_->put(db::Template{tuned::kVendorTemplate, 1, ""}), "{}"});
  lay({}, vendor, t);
  const tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kTuned);
  EXPECT_EQ(found.choice->candidates.size(), 1u);
  for (const char* word : {"moon is not a feature", "threads is not a feature",
                           "hexagonal does not", "names no routine", "override "})
    EXPECT_NE(found.reason.find(word), std::string::npos) << found.reason;
  // Very many are cut, and the tree stays sound.
  for (int i = 0; i < 100; ++i) lay({{"s0", {i, i}}}, t.entries[0].config, t);
  const tuned::Lookup many = find();
  EXPECT_LE(many.choice->candidates.size(), 65u);
  EXPECT_EQ(many.choice->tree.verify(1, static_cast<uint32_t>(many.choice->candidates.size())), "");
  EXPECT_NE(many.reason.find("withdraw some"), std::string::npos) << many.reason;
}

// Tables whose configuration of the vendor's routine is none for the workload: each is reported so.
class VendorConfigurations : public Tuned {
 protected:
  void expect_reported(const char* config, const char* why) {
    std::filesystem::remove_all(folder_ + "/tuning.db");
    store_ = db::Store::open(folder_ + "/tuning.db");
    Change change;
    change.template_name = tuned::kVendorTemplate;
    change.template_version = 1;
    change.config = config;
    table(1, {0}, change);
    const KernelReport k = compiled();
    EXPECT_EQ(k.outcome, tuned::Lookup::Outcome::kMismatch) << config;
    EXPECT_NE(k.reason.find(why), std::string::npos) << k.reason;
  }
};

// It once ended the compilation with an exception of the JSON library.
TEST_F(VendorConfigurations, WithoutARoutineAreReported) {
  for (const char* config : {"{}", R"({"routine":7})", "[]", "null", R"({"routine":""})"})
    expect_reported(config, "names no routine");
}

// A routine that the runtime would pass over, whatever its name is.
TEST_F(VendorConfigurations, OfAnotherWorkloadAreReported) {
  for (const char* config : {R"({"routine":"onednn.conv2d"})", R"({"routine":"host.copy"})",
                             R"({"routine":"no such\u0001"})"})
    expect_reported(config, "does not compute it");
}

TEST_F(Tuned, RecordsOfOtherHardwareAreUsedWhereTheyAreAskedFor) {
  Change other;
  other.model_name = "Epoch 9000";
  table(1, {1}, other);
  EXPECT_EQ(find().outcome, tuned::Lookup::Outcome::kMismatch);
  const auto of = [&](const std::string& name) {
    return tuned::database_source(store_, db::find_hardware(*store_, name))
        ->find(use_.workload, target_, "warm");
  };
  const std::string key = [&] {
    db::Hardware h = db::host_hardware();
    h.model_name = other.model_name;
    return db::key_of(h);
  }();
  for (const std::string& name :
       {std::string("Epoch 9000"), std::string("epoch"), key, key.substr(0, 10)})
    EXPECT_EQ(of(name).outcome, tuned::Lookup::Outcome::kTuned) << name;
  for (const char* name : {"Pentium", "", "ffff"}) {
    try {
      of(name);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kNotFound);
      EXPECT_NE(std::string(e.what()).find(key.substr(0, 12) + " Epoch 9000"), std::string::npos)
          << e.what();
    }
  }
  other.model_name = "Epoch 9001";
  table(1, {1}, other);
  EXPECT_THROW(of("Epoch"), Error) << "two of them";
  EXPECT_EQ(of("Epoch 9001").outcome, tuned::Lookup::Outcome::kTuned);
}

// What a database holds that somebody else wrote, past every check of nimble's own.
TEST_F(Tuned, RowsThatNimbleNeverWritesEndNoCompilation) {
  const std::string deep(200'000, '['), huge(2'000'000, 'x');
  for (const std::string& sql :
       {std::string("UPDATE dispatch_entry SET range = '") + deep + "'",
        std::string("UPDATE dispatch_table SET tree = '") + deep + "'",
        std::string("UPDATE config SET json = '") + deep + "'",
        std::string("UPDATE config SET json = 'null'"),
        std::string("UPDATE dispatch_override SET region = '") + deep + "'",
        std::string("UPDATE dispatch_override SET region = '{\"s0\":[-9223372036854775808,null]}'"),
        std::string("UPDATE dispatch_override SET region = '{\"s0\":[1e30,null]}'"),
        std::string("UPDATE dispatch_override SET region = '{\"s0\":[0,9223372036854775807]}'"),
        std::string("UPDATE dispatch_override SET reason = '") + huge + "'",
        std::string("UPDATE dispatch_override SET created_at = 9223372036854775807"),
        std::string("UPDATE workload SET threads = 9223372036854775807"),
        std::string("DELETE FROM config"), std::string("DELETE FROM dispatch_entry"),
        std::string("DELETE FROM measurement"),
        std::string("UPDATE dispatch_table SET parent = uuid, version = 2")}) {
    SCOPED_TRACE(sql.substr(0, 80));
    store_.reset();
    std::filesystem::remove_all(folder_ + "/tuning.db");
    store_ = db::Store::open(folder_ + "/tuning.db");
    const db::DispatchTable t = *store_->table(table(1, {0, 1}));
    lay({{"s0", {20, 40}}}, t.entries[0].config, t);
    store_.reset();
    damage(folder_ + "/tuning.db", sql);
    store_ = db::Store::open(folder_ + "/tuning.db");
    const KernelReport k = compiled();
    EXPECT_GE(k.implementations, 1u);
    EXPECT_LT(k.evidence.size() + k.reason.size(), 20'000u);
  }
}

TEST_F(Tuned, OtherHardwareOrTemplateIsAMismatch) {
  Change other_isa, other_template, other_version;
  other_isa.isa = "x86-64-v1";
  other_template.template_name = "hexagonal";
  other_version.template_version = 999;
  for (const Change& change : {other_isa, other_template, other_version}) {
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

}  // namespace
}  // namespace nimble::driver::testing
