// What the compiler takes from a tuning database: tables of several thread counts joined, ones of
// other code or another class of policy, ones that do not fit, damaged ones.
#include <algorithm>
#include <filesystem>

#include "compiler/driver/test/tuned_fixture.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/reference/reference.h"
#include "db/store/host_records.h"
#include "db/store/sqlite.h"
#include "vm/executable/dispatch_json.h"

namespace nimble::driver::testing {
namespace {

using exec::DispatchNode;

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

// A campaign that could not verify its table leaves a draft; a person may take a table back.
TEST_F(Tuned, ATableThatIsNotActiveIsNamed) {
  const db::Uuid uuid = table(1, {0, 1});
  ASSERT_EQ(find().outcome, tuned::Lookup::Outcome::kTuned);
  store_->roll_back(uuid, "slower in use");
  const tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kUntuned);
  EXPECT_NE(found.reason.find("table " + uuid.substr(0, 8) + " is stored, not active"),
            std::string::npos)
      << found.reason;
  EXPECT_NE(found.reason.find("nimble dispatch activate " + uuid.substr(0, 8) + " --db " +
                              store_->path()),
            std::string::npos)
      << found.reason;
  EXPECT_EQ(found.reason.find("budget"), std::string::npos) << found.reason;
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
