// The Reader and what is made of its answers, on the database of a real campaign.
#include "gui/model/reader.h"

#include "db/store/store.h"
#include "db/store/test/all.h"
#include "gui/model/regret.h"
#include "gui/model/test/qtest.h"
#include "gui/model/why.h"
#include "vm/base/error.h"

using namespace nimble::gui;
namespace db = nimble::db;

class ReaderTest : public QObject {
  Q_OBJECT
  std::unique_ptr<CampaignCopy> campaign_;
  std::unique_ptr<Reader> reader_;
  Cancel never_;

  WorkloadFacts facts_of(const std::string& op, const std::string& symbols,
                         const db::Hash& policy = {}) {
    for (const WorkloadRow& w : reader_->overview(never_).workloads)
      if (w.record.op == op && w.record.symbolic_dims == symbols)
        return reader_->workload(w.workload, w.hardware, policy, never_).value();
    qFatal("no such workload");
    return {};
  }

 private slots:
  void init() {
    campaign_ = std::make_unique<CampaignCopy>();
    reader_ = Reader::open({campaign_->place()});
  }

  void the_overview_is_what_the_store_has() {
    const Overview o = reader_->overview(never_);
    QCOMPARE(o.hardware.size(), size_t{1});
    QCOMPARE(o.workloads.size(), size_t{3});
    const auto store = db::Store::open(campaign_->place());
    for (const WorkloadRow& w : o.workloads) {
      QVERIFY(w.table);
      const auto table = store->table(*w.table);
      QCOMPARE(table->status, db::TableStatus::kActive);
      QCOMPARE(w.staleness, Staleness::kCurrent);
      for (const db::Comparison& c : store->comparisons(*w.table))
        if (!c.rival) QCOMPARE(w.speed_up.value(), 1 / c.ratio);
    }
  }

  void a_workloads_share_of_the_models_time_is_that_of_the_newest_campaign() {
    for (const WorkloadRow& w : reader_->overview(never_).workloads) QVERIFY(!w.share);
    const WorkloadRow known = reader_->overview(never_).workloads.at(1);
    const auto store = db::Store::open(campaign_->place());
    // Of two campaigns, one after the other, the later counts.
    for (const char* detail : {R"({"share":0.5})", R"({"share":0.25})"}) {
      QTest::qWait(2);  // created in another millisecond
      db::CampaignKey key;
      key.digest = detail;
      key.hardware = known.hardware;
      key.options = "{}";
      const db::Uuid campaign = store->create_campaign(key, 60, "test");
      store->add_tasks({{"", campaign, known.workload, "dense", std::nullopt, 1, {}}});
      store->enter_phase(store->tasks(campaign).at(0).uuid, "search", detail);
    }
    for (const WorkloadRow& w : Reader::open({campaign_->place()})->overview(never_).workloads)
      QCOMPARE(w.share, w.workload == known.workload ? std::optional(0.25) : std::nullopt);
  }

  void an_older_code_generator_is_told() {
    {
      const auto store = db::Store::open(campaign_->place());
      db::Toolchain next = store->toolchains().front();
      next.version = next.version + "0";  // 19.1.7 → 19.1.70
      store->put(next);
    }
    for (const WorkloadRow& w : Reader::open({campaign_->place()})->overview(never_).workloads)
      QCOMPARE(w.staleness, Staleness::kCompiler);
    {
      const auto store = db::Store::open(campaign_->place());
      db::Toolchain next = store->toolchains().front();
      ++next.codegen_version;
      store->put(next);
    }
    for (const WorkloadRow& w : Reader::open({campaign_->place()})->overview(never_).workloads)
      QCOMPARE(w.staleness, Staleness::kCodegen);
  }

  void a_file_of_an_older_schema_is_brought_up_to_date_unless_it_is_read_only() {
    QTemporaryDir folder;  // the archive is of schema 6
    const QString old = folder.filePath(QStringLiteral("old.db"));
    QVERIFY(QFile::copy(qEnvironmentVariable("NIMBLE_GUI_CAMPAIGN"), old));
    QFile::setPermissions(old, QFile::ReadOwner | QFile::WriteOwner);
    QVERIFY_EXCEPTION_THROWN(Reader::open({old.toStdString(), true}), nimble::Error);
    QCOMPARE(Reader::open({old.toStdString()})->overview(never_).workloads.size(), size_t{3});
    QCOMPARE(Reader::open({old.toStdString(), true})->overview(never_).workloads.size(), size_t{3});
  }

  void coverage_has_every_pair_and_what_runs_missed() {
    {
      const auto store = db::Store::open(campaign_->place());
      db::Hardware other = store->hardware().front();
      other.model_name = "another";
      store->put(other);
      const db::DispatchTable t = db::all_tables(*store).front();
      store->record_miss(t.workload, t.hardware, {{"s0", 9}, {"s1", 9}}, 40);
      store->record_miss(t.workload, t.hardware, {{"s0", 8}, {"s1", 9}}, 2);
    }
    const auto rows = Reader::open({campaign_->place()})->coverage(never_);
    QCOMPARE(rows.size(), size_t{6});
    int measured = 0, missed = 0;
    for (const CoverageRow& c : rows) {
      measured += c.measured;
      QCOMPARE(c.measured, c.row.hardware_name != "another");
      QCOMPARE(c.command.starts_with("nimble tune"), c.measured);
      if (c.missed_shapes == 0) continue;
      ++missed;
      QCOMPARE(c.missed_shapes, 2);
      QCOMPARE(c.misses, 42);
    }
    QCOMPARE(measured, 3);
    QCOMPARE(missed, 1);
  }

  void campaigns_have_their_progress() {
    const auto rows = reader_->campaigns(never_);
    QCOMPARE(rows.size(), size_t{2});
    for (const CampaignRow& c : rows) {
      QVERIFY(c.progress.ok > 400);
      QCOMPARE(c.progress.trials, c.progress.ok + c.progress.failed + c.progress.queued);
    }
  }

  void a_workload_has_a_cell_for_what_was_measured() {
    const WorkloadFacts f = facts_of("softmax", "s0");
    QVERIFY(f.configs.size() >= 3 && f.shapes.size() > 20);
    size_t cells = 0, defaults = 0;
    for (size_t c = 0; c < f.configs.size(); ++c) {
      defaults += f.configs[c].is_default;
      for (size_t s = 0; s < f.shapes.size(); ++s)
        if (const Cell* cell = f.cell(c, s)) {
          ++cells;
          QCOMPARE(cell->config, c);
          QCOMPARE(cell->shape, s);
          QCOMPARE(cell->result.config, f.configs[c].hash);
          QCOMPARE(db::text_of(cell->result.dims), f.shapes[s].key);
          // Nothing that was timed side by side gives way to a time of another session.
          for (const db::Result& r : f.results)
            if (r.config == cell->result.config && r.dims == cell->result.dims &&
                r.role == db::Role::kVerify)
              QCOMPARE(cell->result.role, db::Role::kVerify);
        }
    }
    QCOMPARE(cells, f.cells.size());
    QCOMPARE(defaults, size_t{1});
    QVERIFY(std::is_sorted(f.shapes.begin(), f.shapes.end(), [](const auto& x, const auto& y) {
      return x.dims.begin()->second < y.dims.begin()->second;
    }));
    for (const ShapeFacts& s : f.shapes) QVERIFY(s.bytes > 0);
  }

  void the_table_is_the_one_asked_for_or_the_active_one() {
    const WorkloadFacts f = facts_of("softmax", "s0");
    QCOMPARE(f.tables.size(), size_t{2});
    QCOMPARE(f.table({})->status, db::TableStatus::kActive);
    for (const db::DispatchTable& t : f.tables) QCOMPARE(f.table(t.uuid), &t);
  }

  void regret_is_chosen_over_best() {
    const WorkloadFacts f = facts_of("matmul", "s0");
    const db::DispatchTable& table = *f.table({});
    const auto points = regret_of(f, table);
    QCOMPARE(points.size(), f.shapes.size());
    size_t known = 0;
    for (const RegretPoint& p : points) {
      const DispatchTree tree = DispatchTree::from_json(table.tree, table.entries.size());
      QCOMPARE(p.entry, tree.entry_at(f.shapes[p.shape].dims, 1));
      if (!p.regret()) continue;
      ++known;
      QVERIFY(*p.regret() >= 0);
      QCOMPARE(p.chosen->result.config, table.entries[static_cast<size_t>(p.entry)].config);
      if (p.side_by_side) QCOMPARE(p.best->result.role, db::Role::kVerify);
      QVERIFY(p.best->result.median_ns <= p.chosen->result.median_ns);
    }
    QVERIFY(known > 20);
    const RegretSummary sum = summary_of(points);
    QCOMPARE(sum.shapes, known);
    QVERIFY(sum.worst >= sum.mean && sum.mean > 0);
  }

  void a_page_of_trials_is_the_part_of_the_whole() {
    TrialQuery q;
    q.campaign = reader_->campaigns(never_).front().campaign.uuid;
    const int64_t all = reader_->trial_count(q, never_);
    const auto whole = reader_->trials(q, 0, all, never_);
    QCOMPARE(static_cast<int64_t>(whole.size()), all);
    const auto page = reader_->trials(q, 100, 20, never_);
    QCOMPARE(page.size(), size_t{20});
    QCOMPARE(page[0].trial.uuid, whole[100].trial.uuid);
    QVERIFY(reader_->trials(q, all, 20, never_).empty());

    q.order = TrialOrder::kTime;
    const auto fast = reader_->trials(q, 0, all, never_);
    std::optional<double> last;
    bool ended = false;
    for (const db::TrialOutcome& o : fast) {
      QVERIFY2(!ended || !o.median_ns, "what has no time comes last");
      ended |= !o.median_ns;
      if (o.median_ns && last) QVERIFY(*o.median_ns >= *last);
      if (o.median_ns) last = o.median_ns;
    }
    q.shape = db::text_of(whole[100].dims);
    q.workload = whole[100].trial.key.workload;
    for (const db::TrialOutcome& o : reader_->trials(q, 0, all, never_)) {
      QCOMPARE(db::text_of(o.dims), q.shape);
      QCOMPARE(o.trial.key.workload, q.workload);
    }
    q.failed_only = true;
    QCOMPARE(reader_->trial_count(q, never_), 0);
  }

  void a_question_that_is_cancelled_ends() {
    Cancel cancel;
    cancel.ask();
    QVERIFY_EXCEPTION_THROWN(reader_->overview(cancel), nimble::Error);
    QVERIFY_EXCEPTION_THROWN(reader_->campaigns(cancel), nimble::Error);
  }

  void the_chain_goes_from_the_workload_to_the_samples() {
    const WorkloadFacts f = facts_of("softmax", "s0");
    Choice choice;
    choice.shape = "s0=8";
    const db::Uuid behind = measurement_behind(f, choice);
    QVERIFY(!behind.empty());
    const auto m = reader_->measurement(behind, never_);
    const auto steps = why(f, choice, &*m);
    QStringList what;
    for (const WhyStep& s : steps) what << s.what;
    QStringList rest = what;
    for (const char* due :
         {"Workload", "Hardware", "Shape", "Dispatch table", "Test", "Entry", "Configuration",
          "Measured here", "Best known here", "Default schedule here", "Policy", "Raw samples",
          "Taken", "Campaign"}) {
      while (!rest.isEmpty() && rest.front() != QLatin1String(due)) rest.removeFirst();
      QVERIFY2(!rest.isEmpty(), due);
    }
    const QString text = text_of(steps);
    QVERIFY(text.contains(QStringLiteral("s0 <= 12? It is 8: yes")));
    QVERIFY(text.contains(QString::number(m->measurement.samples_ns.front(), 'g', 6)));
  }

  void overrides_are_part_of_the_chain() {
    const WorkloadFacts before = facts_of("softmax", "s0");
    {
      const auto store = db::Store::open(campaign_->place());
      store->add(db::NewOverride{
          before.workload, before.hardware, {}, before.configs[0].hash, "tail <b>latency</b>"});
    }
    const QString text = text_of(why(facts_of("softmax", "s0"), {}, nullptr));
    QVERIFY(text.contains(QStringLiteral("“tail <b>latency</b>”")));
  }
};
NIMBLE_QTEST(ReaderTest)
#include "reader_test.moc"
