// What lies behind figures, read from the store: code, ceilings, failures, workers, requests, A/A
// pairs, peers, two campaigns; and trials page by page.
#include "db/store/test/all.h"
#include "gui/model/reader.h"
#include "gui/model/session.h"
#include "gui/model/test/qtest.h"
#include "gui/model/why.h"

using namespace nimble::gui;
namespace db = nimble::db;

class EvidenceTest : public QObject {
  Q_OBJECT
  std::unique_ptr<CampaignCopy> campaign_;
  std::unique_ptr<db::Store> store_;
  std::unique_ptr<Reader> reader_;
  Cancel never_;

  WorkloadRow workload(const std::string& op) {
    for (const WorkloadRow& w : reader_->overview(never_).workloads)
      if (w.record.op == op) return w;
    qFatal("no such workload");
    return {};
  }
  WorkloadFacts facts_of(const std::string& op) {
    const WorkloadRow w = workload(op);
    return reader_->workload(w.workload, w.hardware, {}, never_).value();
  }

 private slots:
  void init() {
    campaign_ = std::make_unique<CampaignCopy>();
    store_ = db::Store::open(campaign_->place());
    reader_ = Reader::open({campaign_->place()});
  }
  void cleanup() {
    reader_.reset();
    store_.reset();
  }

  void generated_code_is_read_by_its_hash() {
    const std::string text = "define void @k()\n";
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    db::GeneratedCode code;
    code.code_hash = "c0de";
    code.kind = "llvm-ir";
    code.digest = store_->put_blob(bytes);
    store_->put(code);
    const auto texts = reader_->code("c0de", never_);
    QCOMPARE(texts.size(), size_t{1});
    QCOMPARE(texts[0].kind, std::string("llvm-ir"));
    QCOMPARE(texts[0].text, text);
    QVERIFY(reader_->code("none", never_).empty());
  }

  void a_roofline_has_the_best_of_each_shape_under_its_machines_ceilings() {
    const WorkloadFacts f = facts_of("softmax");
    QVERIFY(reader_->roofline(f.hardware, never_).ceilings.empty());
    db::Ceiling c;
    c.machine = store_->measurement(f.results.front().measurement)->machine;
    c.dtype = "f32";
    c.kind = "compute";
    c.value = 1e11;
    store_->add(c);
    const RooflineFacts r = reader_->roofline(f.hardware, never_);
    QCOMPARE(r.ceilings.size(), size_t{1});
    QCOMPARE(r.machine, store_->machine(c.machine)->hostname);
    size_t own = 0;
    for (const RooflinePoint& p : r.points) {
      QVERIFY(p.flops > 0 && p.bytes > 0);
      if (p.workload != f.workload) continue;
      ++own;
      double least = 1e300;
      for (const db::Result& x : f.results)
        if (db::text_of(x.dims) == p.shape) least = std::min(least, x.median_ns);
      QCOMPARE(p.result.median_ns, least);
    }
    QVERIFY(own > 3);
  }

  void a_failure_has_what_its_process_said_and_how_to_repeat_it() {
    const db::Uuid trial = facts_of("softmax").results.front().trial;
    db::FailureLog log;
    log.trial = trial;
    log.attempt = 1;
    log.error_class = "segfault";
    log.output = "boom";
    log.command = "nimble bench k.nimble";
    store_->add(log);
    const auto logs = reader_->failures(trial, never_);
    QCOMPARE(logs.size(), size_t{1});
    QCOMPARE(logs[0].output, std::string("boom"));
    QCOMPARE(logs[0].command, log.command);
  }

  void workers_are_told_with_their_load_and_silence() {
    QVERIFY(reader_->machines(never_).empty());
    db::Machine machine;
    machine.hostname = "node1";
    machine.hardware = db::key_of(store_->hardware().front());
    db::Worker worker;
    worker.machine = store_->put(machine);
    worker.name = "w1";
    worker.version = "1";
    worker.uuid = store_->add(worker);
    db::Heartbeat beat;
    beat.worker = worker.uuid;
    beat.state = db::WorkerState::kMeasuring;
    beat.load = 1.5;
    store_->heartbeat(beat);
    const auto rows = reader_->machines(never_);
    QCOMPARE(rows.size(), size_t{1});
    QCOMPARE(rows[0].worker.hostname, std::string("node1"));
    QCOMPARE(rows[0].worker.heartbeat->load, 1.5);
    QCOMPARE(rows[0].silent_ms, 0);
    QVERIFY(!rows[0].hardware_name.empty());
  }

  void a_campaign_tells_what_was_asked_of_it_last() {
    const db::Uuid campaign = db::all_campaigns(*store_).front().uuid;
    db::Control c;
    c.campaign = campaign;
    c.request = db::ControlRequest::kPause;
    const db::Uuid asked = store_->request(c);
    const auto latest = [&] { return reader_->campaigns(never_).front().request; };
    QVERIFY(latest());
    QVERIFY(!latest()->accepted);
    store_->answer(asked, false, "it has ended");
    QCOMPARE(latest()->accepted.value(), false);
    QCOMPARE(latest()->answer, std::string("it has ended"));
  }

  void the_version_follows_every_event() {
    const std::string before = reader_->version(never_);
    QCOMPARE(reader_->version(never_), before);
    db::Control c;
    c.campaign = db::all_campaigns(*store_).front().uuid;
    store_->request(c);
    QVERIFY(reader_->version(never_) != before);
  }

  void a_pair_timed_in_turn_is_told_with_its_workload() {
    const db::Result r = facts_of("softmax").results.front();
    db::Measurement m = store_->measurement(r.measurement).value();
    m.uuid.clear();
    m.twin_ns = m.samples_ns;
    for (double& ns : m.twin_ns) ns *= 2;
    const db::Uuid added = store_->add(m);
    const WorkloadFacts f = facts_of("softmax");
    QCOMPARE(f.twins.size(), size_t{1});
    QCOMPARE(f.twins[0].measurement, added);
    QVERIFY(f.twins[0].twin_median_ns > f.twins[0].ci_high_ns);
    QVERIFY(facts_of("matmul").twins.empty());
  }

  void peers_are_those_of_the_last_run_alone() {
    const WorkloadFacts f = facts_of("softmax");
    db::PeerFigure p;
    p.subject = f.record.canonical;
    p.machine = store_->measurement(f.results.front().measurement)->machine;
    p.dims = f.shapes.front().dims;
    p.dtype = "f32";
    p.samples_ns = {5, 6, 7};
    p.median_ns = 6;
    for (const char* run :
         {"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}) {
      p.run = run;
      for (const char* peer : {"onnxruntime", "tvm"}) {
        p.peer = peer;
        p.version = "1";
        store_->add(p);
      }
    }
    const WorkloadFacts now = facts_of("softmax");
    QCOMPARE(now.peers.size(), size_t{2});
    QCOMPARE(now.peers[0].run, now.peers[1].run);
  }

  void a_measurement_comes_with_the_state_of_its_host() {
    const WorkloadFacts f = facts_of("softmax");
    const auto m = reader_->measurement(f.results.front().measurement, never_).value();
    QVERIFY(m.host);
    QCOMPARE(m.host->uuid, m.measurement.host_state);
    QVERIFY(!m.hostname.empty());
    QVERIFY(text_of(*m.host).find("steal") != std::string::npos);
    Choice choice;
    bool told = false;
    for (const WhyStep& step : why(f, choice, &m))
      told |= step.text.contains(QStringLiteral("load of others"));
    QVERIFY(told);
  }

  void two_campaigns_are_compared_where_both_measured() {
    const auto all = db::all_campaigns(*store_);
    const db::CampaignDiff same = reader_->diff(all[0].uuid, all[0].uuid, 0.02, never_);
    QVERIFY(!same.rows.empty());
    QCOMPARE(same.faster + same.slower, 0);
    const db::CampaignDiff two = reader_->diff(all[1].uuid, all[0].uuid, 0.02, never_);
    QVERIFY(!two.rows.empty());
  }

  void every_page_has_the_rows_that_one_reading_of_all_has() {
    for (const db::Campaign& c : db::all_campaigns(*store_)) {
      TrialQuery query;
      query.campaign = c.uuid;
      for (const bool descending : {false, true}) {
        query.descending = descending;
        const auto all = store_->outcomes(c.uuid);
        const auto count = static_cast<int64_t>(all.size());
        QCOMPARE(reader_->trial_count(query, never_), count);
        for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{127}, int64_t{128},
                                    int64_t{129}, int64_t{300}, count - 1, count, count + 5}) {
          const auto page = reader_->trials(query, first, 130, never_);
          QCOMPARE(static_cast<int64_t>(page.size()), std::clamp<int64_t>(count - first, 0, 130));
          for (size_t i = 0; i < page.size(); ++i) {
            const auto at = first + static_cast<int64_t>(i);
            const auto& expected = all[static_cast<size_t>(descending ? count - 1 - at : at)];
            QCOMPARE(page[i].trial.uuid, expected.trial.uuid);
            QCOMPARE(page[i].config_json, expected.config_json);
            QCOMPARE(page[i].median_ns, expected.median_ns);
          }
        }
      }
    }
  }

  // Beyond what is read and sorted here an index serves the orders: one by prediction leaves out
  // that of which nothing was foretold, unless it is all.
  void a_large_campaign_is_served_by_indexes() {
    constexpr int kTrials = 21'000;
    const db::Campaign c = db::all_campaigns(*store_).front();
    const db::TrialOutcome known = store_->outcomes(c.uuid).front();
    const db::Hash template_hash = store_->put(db::Template{"many", 1, ""});
    const auto fill = [&](const char* digest, bool predict) {
      db::CampaignKey key = c.key;
      key.digest = digest;
      const db::Uuid campaign = store_->create_campaign(key, 1, "");
      store_->transaction([&] {
        std::vector<db::NewTrial> trials;
        for (int i = 0; i < kTrials; ++i) {
          db::TrialKey k = known.trial.key;
          k.campaign = campaign;
          k.config = store_->put(db::Config{template_hash, "{\"n\":" + std::to_string(i) + "}"});
          trials.push_back({k, 0, 0, std::nullopt});
          if (predict && i % 3 == 0) trials.back().predicted_ns = kTrials - i;
        }
        store_->enqueue(trials);
      });
      return campaign;
    };
    TrialQuery query;
    query.order = TrialOrder::kPredicted;
    query.campaign = fill("some", true);
    QCOMPARE(reader_->trial_count(query, never_), int64_t{kTrials / 3});
    const auto page = reader_->trials(query, 1000, 300, never_);
    QCOMPARE(page.size(), size_t{300});
    for (size_t i = 0; i < page.size(); ++i)
      QCOMPARE(page[i].trial.predicted_ns.value(), 3.0 * static_cast<double>(1001 + i));
    query.text = "\"n\":2099";  // of them 20991, 20994 and 20997 were foretold
    const auto found = reader_->trials(query, 0, 100, never_);
    QCOMPARE(found.size(), size_t{3});
    QCOMPARE(found.front().trial.predicted_ns.value(), 3.0);
    query.text.clear();
    query.order = TrialOrder::kState;
    QCOMPARE(reader_->trial_count(query, never_), int64_t{kTrials});
    query.campaign = fill("none", false);
    query.order = TrialOrder::kPredicted;
    QCOMPARE(reader_->trial_count(query, never_), int64_t{kTrials});
    QCOMPARE(reader_->trials(query, 5, 1, never_).at(0).trial.position, int64_t{6});
  }

  void a_question_that_is_dropped_stops_the_store() {
    Cancel cancel;
    int stopped = 0;
    cancel.set_stop([&] { ++stopped; });
    cancel.ask();
    QCOMPARE(stopped, 1);
    cancel.set_stop({});
    cancel.ask();
    QCOMPARE(stopped, 1);
    reader_->stopper()();  // nothing runs: nothing happens
    QCOMPARE(reader_->campaigns(never_).size(), size_t{2});
  }
};
NIMBLE_QTEST(EvidenceTest)
#include "evidence_test.moc"
