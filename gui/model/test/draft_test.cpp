#include "db/store/store.h"
#include "gui/model/reader.h"
#include "gui/model/table_draft.h"
#include "gui/model/test/qtest.h"
#include "vm/base/error.h"

using namespace nimble::gui;
namespace db = nimble::db;

class DraftTest : public QObject {
  Q_OBJECT
  std::unique_ptr<CampaignCopy> campaign_;
  std::shared_ptr<const WorkloadFacts> facts_;

 private slots:
  void init() {
    campaign_ = std::make_unique<CampaignCopy>();
    const auto reader = Reader::open({campaign_->place()});
    const Cancel never;
    for (const WorkloadRow& w : reader->overview(never).workloads)
      if (w.record.op == "softmax")
        facts_ = std::make_shared<const WorkloadFacts>(
            reader->workload(w.workload, w.hardware, {}, never).value());
  }

  void a_border_moves_and_what_it_costs_is_told() {
    TableDraft draft(facts_, *facts_->table({}));
    QVERIFY(!draft.changed());
    // 0: s0 <= 12 (1: s0 <= 8 (entries 0 and 1), entry 2)
    QCOMPARE(draft.tree().nodes()[0].value, 12);
    QVERIFY(!draft.move_border(0, 100));
    QCOMPARE(draft.tree().entry_at({{"s0", 100}}, 1), 1);
    QCOMPARE(draft.tree().entry_at({{"s0", 101}}, 1), 2);
    QCOMPARE(draft.now().entries[1].range, std::string(R"({"s0":[9,100]})"));
    QCOMPARE(draft.now().entries[2].range, std::string(R"({"s0":[101,null]})"));
    QCOMPARE(draft.now().entries[0].range, draft.original().entries[0].range);
    QCOMPARE(draft.last_change(), std::string("s0 <= 12 → 100"));
    const RegretSummary before = summary_of(draft.before()), after = summary_of(draft.after());
    QVERIFY(before.mean != after.mean);
    // The entry's expectation is that of the shapes that it serves now.
    double sum = 0;
    int n = 0;
    for (const RegretPoint& p : draft.after())
      if (p.served.entry == 1 && p.regret()) {
        sum += *p.regret();
        ++n;
      }
    QVERIFY(n > 0);
    QCOMPARE(draft.now().entries[1].regret.value(), sum / n);
  }

  void a_border_that_leaves_an_entry_without_shapes_is_refused() {
    TableDraft draft(facts_, *facts_->table({}));
    QVERIFY(draft.move_border(0, 8));
    QVERIFY(draft.move_border(1, 12));
    QVERIFY(draft.move_border(0, -1));
    QVERIFY(!draft.changed());
    QVERIFY(!draft.move_border(0, 9));
  }

  void configurations_are_those_that_were_measured() {
    TableDraft draft(facts_, *facts_->table({}));
    QVERIFY(draft.set_config(0, std::string(32, 'f')));
    QVERIFY(draft.set_config(99, facts_->configs[0].hash));
    const db::Hash other = facts_->configs[0].hash != draft.now().entries[0].config
                               ? facts_->configs[0].hash
                               : facts_->configs[1].hash;
    QVERIFY(!draft.set_config(0, other));
    QCOMPARE(draft.now().entries[0].config, other);
    QVERIFY(draft.now().configs.contains(other));
  }

  void everything_can_be_undone() {
    TableDraft draft(facts_, *facts_->table({}));
    QVERIFY(!draft.move_border(0, 20) && !draft.move_border(0, 30));
    draft.undo();
    QCOMPARE(draft.tree().nodes()[0].value, 20);
    draft.undo();
    QVERIFY(!draft.changed() && !draft.can_undo());
    QCOMPARE(draft.now().tree, draft.original().tree);
    draft.redo();
    QCOMPARE(draft.tree().nodes()[0].value, 20);
    // Another way from here forgets the former.
    QVERIFY(!draft.move_border(0, 50));
    QVERIFY(!draft.can_redo());
  }

  void it_is_saved_as_a_child_with_its_reason() {
    TableDraft draft(facts_, *facts_->table({}));
    QVERIFY_EXCEPTION_THROWN(draft.to_store("why"), nimble::Error);
    QVERIFY(!draft.move_border(0, 100));
    QVERIFY_EXCEPTION_THROWN(draft.to_store("  "), nimble::Error);
    const auto store = db::Store::open(campaign_->place());
    const db::Uuid made = store->create_table(draft.to_store("tail latency"));
    const db::DispatchTable table = *store->table(made);
    QCOMPARE(table.status, db::TableStatus::kDraft);
    QCOMPARE(table.version, draft.original().version + 1);
    QCOMPARE(table.parent.value(), draft.original().uuid);
    QCOMPARE(table.entries[0].reason, draft.original().entries[0].reason);
    QCOMPARE(table.entries[1].reason, std::string("tail latency"));
    QCOMPARE(DispatchTree::of(facts_->record, table).entry_at({{"s0", 100}}, 1), 1);
    QVERIFY(store->check().sound());
  }

  void regions_follow_the_tests() {
    const DispatchTree t = DispatchTree::from_json(
        R"({"nodes":[{"feature":"mod","a":"s0","t":8,"op":"==","value":0,"yes":1,"no":2},)"
        R"({"leaf":0},{"feature":"mod","a":"s0","t":8,"op":"<=","value":3,"yes":3,"no":4},)"
        R"({"leaf":1},{"leaf":2}]})",
        3, {"s0"});
    const auto regions = regions_of(t);
    QCOMPARE(db::json_of(*regions[1]), std::string("{\"mod(s0,8)\":[0,0]}"));
    QCOMPARE(db::json_of(*regions[3]), std::string("{\"mod(s0,8)\":[0,3]}"));
    QCOMPARE(db::json_of(*regions[4]), std::string("{\"mod(s0,8)\":[4,7]}"));
  }
};
NIMBLE_QTEST(DraftTest)
#include "draft_test.moc"
