// The Reader and what is made of its answers, on the database of a real campaign.
#include "gui/model/reader.h"

#include "db/store/store.h"
#include "db/store/test/all.h"
#include "gui/model/regret.h"
#include "gui/model/serving.h"
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

  // A second slot of the same workload: a table of another class of policy, active beside the
  // first.
  db::Uuid add_slot(db::Store& store, const WorkloadFacts& f) {
    db::Measurement m = store.measurement(f.results.front().measurement).value();
    m.uuid.clear();
    db::MeasurePolicy policy = f.policies.front().policy;
    policy.policy_class = policy.policy_class == "cached" ? "warm" : "cached";
    m.policy = store.put(policy);
    store.add(m);
    QTest::qWait(2);  // created in another millisecond
    db::NewDispatchTable t = *f.table({});
    t.policy = m.policy;
    t.parent.reset();
    const db::Uuid made = store.create_table(t);
    store.activate(made, "another class");
    return made;
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
      QCOMPARE(w.standing, Standing::kNewest);
      for (const db::Comparison& c : store->comparisons(*w.table))
        if (!c.rival) QCOMPARE(w.speed_up.value(), 1 / c.ratio);
    }
  }

  void the_list_and_the_windows_choose_the_same_table() {
    const WorkloadFacts before = facts_of("softmax", "s0");
    const db::Uuid first = before.table({})->uuid;
    const auto store = db::Store::open(campaign_->place());
    const db::Uuid second = add_slot(*store, before);
    reader_ = Reader::open({campaign_->place()});
    for (const WorkloadRow& w : reader_->overview(never_).workloads) {
      const WorkloadFacts f = reader_->workload(w.workload, w.hardware, {}, never_).value();
      QCOMPARE(f.table({})->uuid, *w.table);
      QCOMPARE(f.table({})->policy_class, w.policy_class);
      QCOMPARE(f.policy, f.table({})->policy);
    }
    QCOMPARE(facts_of("softmax", "s0").table({})->uuid, second);
    // With the other policy its own slot's table decides, though a newer one is active elsewhere.
    QCOMPARE(facts_of("softmax", "s0", before.policy).table({})->uuid, first);
  }

  void an_ended_campaign_is_counted_again_when_something_happens_to_it() {
    const auto store = db::Store::open(campaign_->place());
    const auto queued = [&] { return reader_->campaigns(never_).front().progress.queued; };
    const db::Campaign c = reader_->campaigns(never_).front().campaign;
    const int64_t was = queued();
    db::TrialKey key = store->outcomes(c.uuid).front().trial.key;
    key.config = store->put(db::Config{store->put(db::Template{"other", 1, ""}), "{}"});
    store->enqueue({{key}});
    store->set_budget(c.uuid, 999);
    QCOMPARE(queued(), was + 1);
  }

  void a_workloads_share_of_the_models_time_is_that_of_the_newest_campaign() {
    for (const WorkloadRow& w : reader_->overview(never_).workloads) QVERIFY(!w.share);
    const WorkloadRow known = reader_->overview(never_).workloads.at(1);
    const auto store = db::Store::open(campaign_->place());
    // Of two campaigns, one after the other, the later counts.
    for (const double share : {0.5, 0.25}) {
      QTest::qWait(2);  // created in another millisecond
      db::CampaignKey key;
      key.digest = std::to_string(share);
      key.hardware = known.hardware;
      key.options = "{}";
      const db::Uuid campaign = store->create_campaign(key, 60, "test");
      store->add_tasks({{"", campaign, known.workload, "dense", std::nullopt, 1, {}}});
      store->enter_phase(store->tasks(campaign).at(0).uuid, "search", "", share);
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
      QCOMPARE(w.standing, Standing::kOlderCompiler);
    {
      const auto store = db::Store::open(campaign_->place());
      db::Toolchain next = store->toolchains().front();
      ++next.codegen_version;
      store->put(next);
    }
    for (const WorkloadRow& w : Reader::open({campaign_->place()})->overview(never_).workloads)
      QCOMPARE(w.standing, Standing::kOlderCodegen);
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
      const db::Hash elsewhere = db::key_of(other);
      store->tell_shapes(db::new_uuid(), {{t.workload, elsewhere, {{"s0", 9}, {"s1", 9}}, 40},
                                          {t.workload, elsewhere, {{"s0", 8}, {"s1", 9}}, 2},
                                          {t.workload, t.hardware, {{"s0", 8}, {"s1", 9}}, 3}});
    }
    const auto rows = Reader::open({campaign_->place()})->coverage(never_);
    QCOMPARE(rows.size(), size_t{6});
    int measured = 0, missed = 0;
    for (const CoverageRow& c : rows) {
      measured += c.measured;
      QCOMPARE(c.measured, c.row.hardware_name != "another");
      QCOMPARE(c.row.command.starts_with("nimble tune"), c.measured);
      if (c.missed_shapes == 0) continue;
      ++missed;
      QVERIFY2(!c.measured, "a table serves it where it was tuned");
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
    const auto points = regret_of(f, &table, Serving::Overrides::kLaid);
    QCOMPARE(points.size(), f.shapes.size());
    size_t known = 0;
    const DispatchTree tree = DispatchTree::of(f.record, table);
    for (const RegretPoint& p : points) {
      QCOMPARE(p.served.entry, tree.entry_at(f.shapes[p.shape].dims, 1));
      QVERIFY(!p.served.by);
      if (!p.regret()) continue;
      ++known;
      // By the results themselves: of those that count as much, none was faster.
      double best = p.chosen->result.median_ns;
      for (size_t c = 0; c < f.configs.size(); ++c) {
        const Cell* other = f.cell(c, p.shape);
        if (other && (!p.side_by_side || other->result.role == db::Role::kVerify))
          best = std::min(best, other->result.median_ns);
      }
      QCOMPARE(*p.regret(), p.chosen->result.median_ns / best - 1);
      QCOMPARE(p.chosen->result.config, table.entries[static_cast<size_t>(p.served.entry)].config);
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

  // Of the overrides in force the latest whose region has the shape serves, else the table.
  void what_serves_a_shape_is_an_override_of_it_before_the_table() {
    const WorkloadFacts before = facts_of("softmax", "s0");
    const auto served_before = [&](int64_t s0) {
      return Serving(before, before.table({}), Serving::Overrides::kLaid).at({{"s0", s0}}).config;
    };
    // Configurations that the table does not give these shapes, measured at 64.
    std::vector<db::Hash> others;
    const size_t at_64 = before.shape_index("s0=64").value();
    for (size_t c = 0; c < before.configs.size(); ++c)
      if (before.cell(c, at_64) && before.configs[c].hash != served_before(64))
        others.push_back(before.configs[c].hash);
    QVERIFY(others.size() >= 2);
    const auto store = db::Store::open(campaign_->place());
    const auto add = [&](const db::Region& region, const db::Hash& config, const char* reason) {
      QTest::qWait(2);  // made in another millisecond
      return store->add(db::NewOverride{before.workload, before.hardware, region, config, reason});
    };
    const db::Uuid wide = add({{"s0", {33, 100}}}, others[0], "wide");
    const db::Uuid narrow = add({{"s0", {60, 64}}, {"mod(s0,8)", {0, 0}}}, others[1], "narrow");
    add({{"s9", {0, 100}}}, others[1], "of another workload");
    const WorkloadFacts f = facts_of("softmax", "s0");
    const Serving laid(f, f.table({}), Serving::Overrides::kLaid);
    const auto by = [&](int64_t s0) {
      const Served s = laid.at({{"s0", s0}});
      return s.by ? s.by->uuid : db::Uuid();
    };
    QCOMPARE(by(32), db::Uuid());
    QCOMPARE(by(33), wide);
    QCOMPARE(by(60), wide);  // no multiple of 8
    QCOMPARE(by(64), narrow);
    QCOMPARE(by(65), wide);
    QCOMPARE(by(101), db::Uuid());
    QCOMPARE(laid.at({{"s0", 64}}).config, others[1]);
    QCOMPARE(laid.at({{"s0", 32}}).config, served_before(32));
    QCOMPARE(laid.refused().size(), size_t{1});
    QCOMPARE(laid.refused()[0].first->reason, std::string("of another workload"));
    const Serving alone(f, f.table({}), Serving::Overrides::kLeftOut);
    QCOMPARE(alone.at({{"s0", 64}}).config, served_before(64));
    for (const int64_t border : {32, 59, 64, 100}) {
      const auto borders = laid.borders_of("s0");
      QVERIFY(std::find(borders.begin(), borders.end(), border) != borders.end());
    }

    // Regret and the chain tell the same.
    for (const RegretPoint& p : regret_of(f, f.table({}), Serving::Overrides::kLaid)) {
      const Served s = laid.at(f.shapes[p.shape].dims);
      QCOMPARE(p.served.config, s.config);
      if (p.chosen) QCOMPARE(p.chosen->result.config, s.config);
      if (p.shape == at_64) QVERIFY(p.chosen && p.served.by);
    }
    Choice choice;
    choice.shape = "s0=64";
    const db::Uuid behind = measurement_behind(f, choice);
    const auto m = reader_->measurement(behind, never_);
    QVERIFY(m && m->trial->key.config == others[1]);
    QStringList what;
    QString configuration;
    for (const WhyStep& s : why(f, choice, &*m)) {
      what << s.what;
      if (s.what == QStringLiteral("Configuration")) configuration = s.text;
    }
    const QString all = what.join(QStringLiteral(", "));
    QVERIFY2(what.indexOf(QStringLiteral("Override serves")) <
                 what.indexOf(QStringLiteral("Dispatch table")),
             qPrintable(all));
    QCOMPARE(what.count(QStringLiteral("Override serves")), 1);
    QCOMPARE(what.count(QStringLiteral("Override elsewhere")), 1);
    QCOMPARE(what.count(QStringLiteral("Override left out")), 1);
    QVERIFY2(what.contains(QStringLiteral("Entry hidden")), qPrintable(all));
    QVERIFY2(configuration.contains(QString::fromStdString(others[1])), qPrintable(configuration));
    choice.shape = "s0=8";
    QVERIFY(!text_of(why(f, choice, nullptr)).contains(QStringLiteral("Override serves")));
  }

  void a_shape_that_nobody_measured_has_a_chain_to_its_evidence() {
    const WorkloadFacts f = facts_of("softmax", "s0");
    Choice choice;
    choice.shape = "s0=1000003";
    QVERIFY(!f.shape_index(choice.shape));
    const auto m = reader_->measurement(measurement_behind(f, choice), never_);
    QVERIFY(m);
    const QString text = text_of(why(f, choice, &*m));
    QVERIFY2(text.contains(QStringLiteral("Shape: s0=1000003")), qPrintable(text));
    QVERIFY2(text.contains(QStringLiteral("Evidence: ")), qPrintable(text));
    QVERIFY(text.contains(QStringLiteral("Raw samples: ")));
  }

  void what_an_executable_tells_leads_to_the_records_that_decided() {
    const WorkloadFacts f = facts_of("softmax", "s0");
    const db::DispatchTable& t = *f.table({});
    ExplainedKernel k;
    k.table = t.uuid;
    k.measurement = f.results.front().measurement;
    auto place = reader_->place_of(k, never_);
    QVERIFY(place);
    QCOMPARE(place->workload, f.workload);
    QCOMPARE(place->hardware, f.hardware);
    QCOMPARE(place->policy, t.policy);
    QCOMPARE(place->table, t.uuid);
    k.table = "another database's";
    place = reader_->place_of(k, never_);
    QVERIFY(place && place->workload == f.workload && place->table.empty());
    k.measurement.clear();
    QVERIFY(!reader_->place_of(k, never_));
    const auto store = db::Store::open(campaign_->place());
    k.override_uuid =
        store->add(db::NewOverride{f.workload, f.hardware, {}, f.configs[0].hash, "a person's"});
    place = reader_->place_of(k, never_);
    QVERIFY(place && place->workload == f.workload && place->policy.empty());
  }

  // A service's cases hold the default schedule beside what is tried.
  void a_search_is_told_over_the_default_of_its_session() {
    const auto store = db::Store::open(campaign_->place());
    const WorkloadFacts f = facts_of("softmax", "s0");
    const db::Uuid campaign = f.results.front().campaign;
    const SearchFacts before = reader_->search(f.workload, f.hardware, campaign, 1000, never_);
    QVERIFY(before.trials.size() > 4 && !before.more);
    const SearchedTrial* standard = nullptr;
    const SearchedTrial* tried = nullptr;
    for (const SearchedTrial& s : before.trials) {
      if (s.outcome.trial.key.role == db::Role::kBaseline) standard = &s;
      if (s.outcome.trial.key.role == db::Role::kSearch && s.outcome.median_ns) tried = &s;
      QVERIFY(!s.over_default || s.outcome.trial.key.role == db::Role::kBaseline);
    }
    QVERIFY(standard && tried);
    const db::Uuid session = store->put(db::HostState{"", "performance", {}, {}, "0", 0, 0});
    const auto time = [&](const SearchedTrial& s, double ns) {
      db::Measurement m =
          store->measurement(store->measurements(s.outcome.trial.uuid).at(0).measurement.uuid)
              .value();
      m.uuid.clear();
      m.host_state = session;
      m.median_ns = m.ci_low_ns = m.ci_high_ns = ns;
      m.samples_ns = {ns, ns, ns};
      m.outliers.clear();
      m.twin_ns.clear();
      store->add(m);
    };
    time(*standard, 400);  // a slow hour: what it took alone tells nothing
    time(*tried, 300);
    const SearchFacts now = reader_->search(f.workload, f.hardware, campaign, 1000, never_);
    for (const SearchedTrial& s : now.trials)
      if (s.outcome.trial.uuid == tried->outcome.trial.uuid)
        QCOMPARE(s.over_default, std::optional(0.75));
    // Without a campaign, that which measured the workload last; and what is cut is told.
    QVERIFY(!reader_->search(f.workload, f.hardware, {}, 1000, never_).campaign.empty());
    QVERIFY(reader_->search(f.workload, f.hardware, campaign, 3, never_).more);
    QVERIFY(reader_->search("none", f.hardware, {}, 3, never_).trials.empty());
  }

  void raw_samples_that_were_removed_are_told() {
    const WorkloadFacts f = facts_of("softmax", "s0");
    db::Store::open(campaign_->place())->remove_old({1, "disk"});
    const MeasurementFacts* gone = nullptr;
    std::optional<MeasurementFacts> m;
    for (const db::Result& r : f.results) {
      m = reader_->measurement(r.measurement, never_);
      if (m->measurement.samples_ns.empty()) gone = &*m;
      if (gone) break;
    }
    QVERIFY(gone);
    QVERIFY(gone->samples_removed);
    QVERIFY(gone->samples >= 3);
    const QString text = text_of(why(f, {}, gone));
    QVERIFY2(text.contains(QStringLiteral("raw samples were removed (nimble db clean)")),
             qPrintable(text));
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
