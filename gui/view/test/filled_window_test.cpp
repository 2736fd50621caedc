// Windows on what a short campaign leaves that keeps code: generated code, machines, failures. With
// NIMBLE_GUI_SCREENS=FOLDER it writes their pictures there.
#include <QComboBox>
#include <QPlainTextEdit>

#include "db/store/test/all.h"
#include "gui/view/table_pane.h"
#include "gui/view/test/window_fixture.h"

using namespace nimble::gui;
namespace db = nimble::db;

class FilledWindowTest : public QObject {
  Q_OBJECT
  WindowFixture at_;

  std::unique_ptr<db::Store> store() const { return db::Store::open(at_.campaign->place()); }
  template <typename T>
  static T* child(const QWidget* of, const char* name) {
    T* found = of->findChild<T*>(QLatin1String(name));
    if (!found) qFatal("no %s", name);
    return found;
  }
  static void save(View* view) {
    const QString folder = qEnvironmentVariable("NIMBLE_GUI_SCREENS");
    if (folder.isEmpty()) return;
    QVERIFY(view->grab()
                .toImage()
                .convertToFormat(QImage::Format_RGB888)
                .save(folder + u'/' + view->objectName() + QStringLiteral(".png"), "PNG", 0));
  }

 private slots:
  void init() { at_.open("code.nimbledb"); }
  void cleanup() { at_.close(); }

  void the_code_of_what_was_chosen_stands_beside_that_of_the_default() {
    at_.select_workload("softmax", 1);
    View* view = at_.show("code");
    if (!view->message().isEmpty()) {
      at_.select_workload("matmul", 1);
      view = at_.show("code");
    }
    QVERIFY2(view->message().isEmpty(), qPrintable(view->message()));
    auto* kind = child<QComboBox>(view, "kind");
    QStringList kinds;
    for (int i = 0; i < kind->count(); ++i) kinds << kind->itemText(i);
    kinds.sort();
    QCOMPARE(kinds, (QStringList{"assembly", "kernel-ir", "llvm-ir"}));
    for (int i = 0; i < kind->count(); ++i) {
      kind->setFocus();
      kind->setCurrentIndex(i);
      emit kind->activated(i);
      at_.wait();
      QVERIFY(child<QPlainTextEdit>(view, "left_text")->toPlainText().size() > 100);
      QVERIFY(child<QPlainTextEdit>(view, "right_text")->toPlainText().size() > 100);
      QVERIFY(!view->table().rows.empty());
    }
    kind->setCurrentText(QStringLiteral("kernel-ir"));
    emit kind->activated(kind->currentIndex());
    at_.wait();
    save(view);
  }

  void machines_that_measure_wait_or_are_silent_are_told_apart() {
    const auto s = store();
    const auto hardware = db::key_of(s->hardware().front());
    const auto worker = [&](const char* host, const char* name) {
      db::Machine machine;
      machine.hostname = host;
      machine.hardware = hardware;
      db::Worker w;
      w.machine = s->put(machine);
      w.name = name;
      w.version = "0.9.0";
      w.pid = 4711;
      return s->add(w);
    };
    const auto beat = [&](const db::Uuid& uuid, db::WorkerState state, double load,
                          const char* says) {
      db::Heartbeat b;
      b.worker = uuid;
      b.state = state;
      b.load = load;
      b.message = says;
      s->heartbeat(b);
    };
    beat(worker("node1", "node1"), db::WorkerState::kMeasuring, 0.04, "softmax at s0=64");
    beat(worker("node2", "node2"), db::WorkerState::kIdle, 1.87, "waiting for the machine's lock");
    worker("node3", "node3");
    at_.context().session.refresh();
    at_.wait();
    View* view = at_.show("machines");
    QCOMPARE(view->table().rows.size(), size_t{3});
    QVERIFY2(view->status().contains(QStringLiteral("3 workers, 1 measuring, 1 silent")),
             qPrintable(view->status()));
    save(view);
  }

  void failures_have_class_message_output_and_a_command() {
    const auto s = store();
    const db::Uuid campaign = db::all_campaigns(*s).front().uuid;
    db::ClaimRequest claim;
    claim.campaign = campaign;
    claim.owner = "node1";
    claim.limit = 3;
    for (const db::Trial& trial : s->claim(claim)) {
      db::TrialResult result;
      result.trial = trial.uuid;
      result.owner = "node1";
      result.state = db::TrialState::kCrashed;
      result.error_class = "segfault";
      QVERIFY(s->finish(result));
      db::FailureLog log;
      log.trial = trial.uuid;
      log.attempt = 1;
      log.error_class = "segfault";
      log.message = "the measuring process ended with signal 11 (SIGSEGV)";
      log.output = "softmax_k7 at s0=64\nsignal 11 at 0x7f31c0a01018\n";
      log.command = "nimble worker --db tuning.db --rerun " + trial.uuid;
      s->add(log);
    }
    at_.context().session.refresh();
    at_.wait();
    at_.selection().set_campaign(campaign);
    View* view = at_.show("failures");
    auto* rows = view->findChild<Rows*>();
    QTRY_VERIFY(rows->model()->rowCount() > 0);
    QTRY_VERIFY(rows->model()->index(0, 0).data(PagedModel::kFilledRole).toBool());
    rows->setFocus();
    rows->setCurrentIndex(rows->model()->index(0, 0));
    QTest::keyClick(rows, Qt::Key_Return);
    at_.wait();
    QVERIFY(
        child<QPlainTextEdit>(view, "log")->toPlainText().contains(QStringLiteral("signal 11")));
    save(view);
  }
};
NIMBLE_QTEST(FilledWindowTest)
#include "filled_window_test.moc"
