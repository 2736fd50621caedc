// What windows compute from the facts of a workload: comparisons, noise, knobs. On facts that are
// made up where the answer must be known, on the real campaign's where it must hold.
#include "gui/model/comparison.h"
#include "gui/model/knobs.h"
#include "gui/model/noise.h"
#include "gui/model/reader.h"
#include "gui/model/test/qtest.h"

using namespace nimble::gui;
namespace db = nimble::db;

class AnalysisTest : public QObject {
  Q_OBJECT

  static db::Result result(const std::string& config, int64_t extent, db::Role role, double ns,
                           double spread = 0.01) {
    db::Result r;
    r.config = config;
    r.config_json = R"({"rows":)" + std::to_string(config.size()) + R"(,"split":"columns"})";
    r.template_name = "dense";
    r.dims = {{"m", extent}};
    r.role = role;
    r.median_ns = ns;
    r.ci_low_ns = ns * (1 - spread);
    r.ci_high_ns = ns * (1 + spread);
    r.n = 5;
    return r;
  }
  static db::DispatchTable table(const std::string& uuid, const std::string& config) {
    db::DispatchTable t;
    t.uuid = uuid;
    t.tree = R"({"nodes":[{"leaf":0}]})";
    t.entries.resize(1);
    t.entries[0].config = config;
    return t;
  }

 private slots:
  void a_difference_within_the_intervals_is_none() {
    WorkloadFacts f;
    arrange(f,
            {result("a", 1, db::Role::kVerify, 100), result("bb", 1, db::Role::kVerify, 101),
             result("a", 2, db::Role::kVerify, 100), result("bb", 2, db::Role::kVerify, 150),
             result("a", 4, db::Role::kVerify, 100), result("bb", 4, db::Role::kVerify, 50),
             result("a", 8, db::Role::kVerify, 100)},
            {});
    const auto shapes = compare(f, table("1", "a"), table("2", "bb"));
    QCOMPARE(shapes.size(), size_t{4});
    QVERIFY(!shapes[0].differs());
    QVERIFY(shapes[1].differs() && *shapes[1].ratio == 1.5);
    QVERIFY(shapes[2].differs() && *shapes[2].ratio == 0.5);
    QVERIFY(!shapes[3].ratio);
    const ComparisonSummary sum = summary_of(shapes);
    QCOMPARE(sum.shapes, size_t{3});
    QCOMPARE(sum.faster, size_t{1});
    QCOMPARE(sum.slower, size_t{1});
    QCOMPARE(sum.ratio, std::cbrt(1.01 * 1.5 * 0.5));
    for (const ComparedShape& c : compare(f, table("1", "a"), table("2", "a")))
      QVERIFY(!c.differs());
  }

  // A template's default may change from one campaign to the next.
  void there_is_one_default_the_latest_that_was_measured() {
    WorkloadFacts f;
    db::Result old = result("a", 1, db::Role::kBaseline, 90);
    db::Result now = result("bb", 1, db::Role::kBaseline, 100);
    old.created_at = 1;
    now.created_at = 2;
    db::Result vendor = result("ccc", 1, db::Role::kVerify, 110);
    vendor.template_name = db::kVendorTemplate;
    arrange(f, {old, now, vendor}, {});
    for (const ConfigFacts& c : f.configs) {
      QCOMPARE(c.is_default, c.hash == "bb");
      QCOMPARE(c.is_vendor, c.hash == "ccc");
    }
  }

  // Of an even number of values the median is between the two in the middle.
  void half_the_interval_of_two_measurements_is_their_mean() {
    WorkloadFacts f;
    arrange(f,
            {result("a", 1, db::Role::kVerify, 100, 0.01),
             result("bb", 1, db::Role::kVerify, 100, 0.03)},
            {});
    QVERIFY(std::abs(noise_of(f)[0].half_interval - 0.02) < 1e-12);
  }

  void a_winner_that_flips_costs_what_the_second_look_says() {
    WorkloadFacts f;
    arrange(f,
            {result("a", 1, db::Role::kCross, 90), result("bb", 1, db::Role::kCross, 100),
             result("a", 1, db::Role::kVerify, 110), result("bb", 1, db::Role::kVerify, 100),
             result("a", 2, db::Role::kCross, 100), result("bb", 2, db::Role::kCross, 200),
             result("a", 2, db::Role::kVerify, 100.5), result("bb", 2, db::Role::kVerify, 200)},
            {});
    const auto noise = noise_of(f);
    QCOMPARE(noise.size(), size_t{2});
    QCOMPARE(noise[0].pairs, 2);
    QCOMPARE(noise[0].false_positives, 1);
    QVERIFY(std::abs(*noise[0].flip_cost - 0.1) < 1e-12);
    QCOMPARE(noise[1].false_positives, 0);
    QCOMPARE(*noise[1].flip_cost, 0);
    QVERIFY(std::abs(noise[0].half_interval - 0.01) < 1e-12);
    const NoiseSummary sum = summary_of(noise);
    QCOMPARE(sum.judged, 2);
    QCOMPARE(sum.flips, 1);
    QCOMPARE(sum.pairs, 4);
  }

  void knobs_that_all_share_have_no_axis() {
    WorkloadFacts f;
    arrange(f,
            {result("a", 1, db::Role::kCross, 1), result("bb", 1, db::Role::kCross, 2),
             result("cccccccccc", 1, db::Role::kCross, 3)},
            {});
    const auto axes = knob_axes(f.configs);
    QCOMPARE(axes.size(), size_t{1});
    QCOMPARE(axes[0].name, std::string("rows"));
    // Numbers ascend as numbers: 10 comes after 2.
    QCOMPARE(axes[0].values, (std::vector<std::string>{"1", "2", "10"}));
    for (size_t c = 0; c < f.configs.size(); ++c)
      QCOMPARE(axes[0].values[static_cast<size_t>(axes[0].place[c])],
               std::to_string(f.configs[c].hash.size()));
  }

  void a_configuration_measured_at_few_shapes_comes_last() {
    WorkloadFacts f;
    std::vector<db::Result> all;
    for (int64_t m : {1, 2, 4, 8}) all.push_back(result("slow", m, db::Role::kCross, 200));
    for (int64_t m : {1, 2, 4, 8}) all.push_back(result("good", m, db::Role::kCross, 120));
    all.push_back(result("lucky", 4, db::Role::kSearch, 100));
    arrange(f, all, {});
    QCOMPARE(f.configs[0].hash, std::string("good"));
    QCOMPARE(f.configs[1].hash, std::string("slow"));
    QCOMPARE(f.configs[2].hash, std::string("lucky"));
    QVERIFY(!f.cell(2, 0));
    QCOMPARE(f.best_at(2)->result.config, std::string("lucky"));
  }

  void the_real_campaign_has_pairs_and_winners() {
    const CampaignCopy campaign;
    const auto reader = Reader::open({campaign.place()});
    const Cancel never;
    for (const WorkloadRow& w : reader->overview(never).workloads) {
      const auto f = reader->workload(w.workload, w.hardware, {}, never);
      const NoiseSummary sum = summary_of(noise_of(*f));
      QVERIFY(sum.pairs > 20 && sum.false_positives <= sum.pairs && sum.flips <= sum.judged);
      QVERIFY(sum.half_interval > 0 && sum.half_interval < 0.5);
    }
  }
};
NIMBLE_QTEST(AnalysisTest)
#include "analysis_test.moc"
