// Windows on what lies behind the figures: requests to campaigns, machines, rooflines, generated
// code, model runs, failures; and what every list says without a database.
#include <QCheckBox>
#include <QClipboard>
#include <QComboBox>
#include <QDialog>
#include <QDialogButtonBox>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QTimer>

#include "db/store/test/all.h"
#include "gui/view/campaign_dialogs.h"
#include "gui/view/table_pane.h"
#include "gui/view/test/loop_program.h"
#include "gui/view/test/window_fixture.h"

using namespace nimble::gui;
namespace db = nimble::db;

class EvidenceWindowTest : public QObject {
  Q_OBJECT
  WindowFixture at_;

  std::unique_ptr<db::Store> store() const { return db::Store::open(at_.campaign->place()); }
  void refresh() const {
    at_.context().session.refresh();
    at_.wait();
  }
  template <typename T>
  static T* child(const QWidget* of, const char* name) {
    T* found = of->findChild<T*>(QLatin1String(name));
    if (!found) qFatal("no %s", name);
    return found;
  }
  // Clicks a button that opens a dialog, and does `then` in it.
  void click_into_dialog(QPushButton* button, const std::function<void(QDialog*)>& then) {
    bool seen = false;
    QTimer look;
    look.setInterval(5);
    connect(&look, &QTimer::timeout, this, [&] {
      auto* dialog = qobject_cast<QDialog*>(QApplication::activeModalWidget());
      if (!dialog || seen) return;
      seen = true;
      look.stop();
      then(dialog);
    });
    look.start();
    QTest::mouseClick(button, Qt::LeftButton);
    at_.wait();
    QVERIFY(seen);
  }

 private slots:
  void init() { at_.open(); }
  void cleanup() { at_.close(); }

  void without_a_database_every_list_says_so_and_tells_no_old_number() {
    std::vector<View*> lists;
    for (const char* name : {"workloads", "campaigns", "coverage", "machines"})
      lists.push_back(at_.show(name));
    QVERIFY(lists[1]->status().contains(QStringLiteral("2 campaigns")));
    at_.context().session.close();
    at_.wait();
    for (const View* list : lists) {
      QVERIFY(list->message().contains(QStringLiteral("No database is open")));
      QCOMPARE(list->status(), QString());
      QVERIFY(list->table().rows.empty());
    }
  }

  void a_campaign_is_paused_with_a_reason_once_it_is_confirmed() {
    const db::Uuid campaign = db::all_campaigns(*store()).front().uuid;
    store()->set_campaign_state(campaign, db::CampaignState::kRunning);
    refresh();
    View* view = at_.show("campaigns");
    {
      // Of one that runs the time that is left is told; one that ended has none.
      const TableData table = view->table();
      const auto left = static_cast<size_t>(
          std::find(table.columns.begin(), table.columns.end(), QStringLiteral("left_s")) -
          table.columns.begin());
      int told = 0;
      for (const auto& row : table.rows)
        if (!row[left].isNull() && !row[left].toString().isEmpty()) ++told;
      QCOMPARE(told, 1);
    }
    auto* rows = view->findChild<Rows*>();
    rows->setCurrentIndex(rows->model()->index(0, 0));
    auto* pause = child<QPushButton>(view, "pause");
    click_into_dialog(pause, [](QDialog* dialog) { dialog->reject(); });
    QVERIFY(store()->requests(campaign).empty());
    click_into_dialog(pause, [](QDialog* dialog) {
      QTest::keyClicks(child<QLineEdit>(dialog, "reason"), QStringLiteral("maintenance"));
      QTest::mouseClick(dialog->findChild<QDialogButtonBox*>()->button(QDialogButtonBox::Ok),
                        Qt::LeftButton);
    });
    const auto requests = store()->requests(campaign);
    QCOMPARE(requests.size(), size_t{1});
    QVERIFY(requests[0].request == db::ControlRequest::kPause);
    QCOMPARE(requests[0].reason, std::string("maintenance"));
    QVERIFY(!requests[0].requested_by.empty());
    bool told = false;
    for (const auto& row : view->table().rows)
      for (const QVariant& cell : row)
        told |= cell.toString().contains(QStringLiteral("not answered yet"));
    QVERIFY(told);
  }

  void nothing_can_be_asked_of_a_campaign_that_ended() {
    View* view = at_.show("campaigns");
    auto* rows = view->findChild<Rows*>();
    rows->setCurrentIndex(rows->model()->index(0, 0));
    click_into_dialog(child<QPushButton>(view, "stop"), [](QDialog* d) { d->accept(); });
    QTRY_VERIFY2(view->status().contains(QStringLiteral("has ended")), qPrintable(view->status()));
    QVERIFY(store()->requests(db::all_campaigns(*store()).front().uuid).empty());
  }

  void a_start_command_is_shown_and_copied_and_quoted() {
    View* view = at_.show("campaigns");
    click_into_dialog(child<QPushButton>(view, "start"), [](QDialog* dialog) {
      auto* model = child<QLineEdit>(dialog, "model");
      model->clear();
      QTest::keyClicks(model, QStringLiteral("my model.onnx"));
      QTest::mouseClick(child<QPushButton>(dialog, "copy"), Qt::LeftButton);
      dialog->reject();
    });
    const QString copied = QGuiApplication::clipboard()->text();
    QVERIFY2(copied.startsWith(QStringLiteral("nimble tune 'my model.onnx' --db ")),
             qPrintable(copied));
    QVERIFY(copied.contains(QStringLiteral("--budget 1800s")));
    QCOMPARE(shell_command({"a", "it's", ""}), QStringLiteral("a 'it'\\''s' ''"));
  }

  void a_campaign_for_a_fleet_is_a_command_of_its_own() {
    View* view = at_.show("campaigns");
    QString shown;
    click_into_dialog(child<QPushButton>(view, "start"), [&](QDialog* dialog) {
      auto* hardware = child<QLineEdit>(dialog, "hardware");
      QVERIFY2(!hardware->isEnabled(), "one machine measures for its own kind");
      child<QComboBox>(dialog, "where")->setCurrentIndex(1);
      QTest::keyClicks(hardware, QStringLiteral("Xeon Gold"));
      shown = child<QPlainTextEdit>(dialog, "command")->toPlainText();
      QTest::keyClicks(child<QLineEdit>(dialog, "key"), QStringLiteral("planner"));
      QTest::mouseClick(child<QPushButton>(dialog, "copy"), Qt::LeftButton);
      dialog->reject();
    });
    QVERIFY2(shown.startsWith(QStringLiteral("nimble campaigns submit model.onnx --db ")),
             qPrintable(shown));
    QVERIFY(shown.endsWith(QStringLiteral("--budget 1800s --hardware 'Xeon Gold'")));
    const QStringList copied = QGuiApplication::clipboard()->text().split(u'\n');
    QCOMPARE(copied.size(), 2);
    QCOMPARE(copied[0], shown);
    QVERIFY(copied[1].startsWith(QStringLiteral("nimble serve --db ")));
    QVERIFY(copied[1].endsWith(QStringLiteral(" --key planner")));

    StartRequest r;
    r.model = QStringLiteral("m.nir");
    r.budget_s = 90;
    r.hardware = QStringLiteral("Xeon");
    r.trace = QStringLiteral("lengths.tsv:n");
    QCOMPARE(start_command(r, {"postgresql://me:secret@server/t", false}),
             QStringLiteral("nimble tune m.nir --db postgresql://me@server/t --budget 90s --trace "
                            "lengths.tsv:n"));
  }

  void machines_show_who_measures_and_who_is_silent() {
    {
      const auto s = store();
      db::Machine machine;
      machine.hostname = "node1";
      machine.hardware = db::key_of(s->hardware().front());
      db::Worker worker;
      worker.machine = s->put(machine);
      worker.name = "busy";
      db::Heartbeat beat;
      beat.worker = s->add(worker);
      beat.state = db::WorkerState::kMeasuring;
      beat.load = 0.25;
      s->heartbeat(beat);
      worker.name = "mute";
      s->add(worker);
    }
    View* view = at_.show("machines");
    QCOMPARE(view->table().rows.size(), size_t{2});
    QVERIFY2(view->status().contains(QStringLiteral("2 workers, 1 measuring, 1 silent")),
             qPrintable(view->status()));
    // Who gave no sign of life was not silent for "0.0 s" since the last one.
    for (const auto& row : view->table().rows)
      QCOMPARE(row[3].isValid(), row[0].toString() == QStringLiteral("busy"));
    const auto* model = view->findChild<Rows*>()->model();
    for (int row = 0; row < 2; ++row) {
      const bool mute = model->index(row, 0).data().toString() == QStringLiteral("mute");
      QCOMPARE(model->index(row, 3).data().toString() == QStringLiteral("–"), mute);
    }
  }

  void a_roofline_tells_how_to_get_ceilings_then_shares_of_them() {
    at_.select_workload("softmax", 1);
    PlotView* view = at_.show_plot("roofline");
    QVERIFY2(view->message().isEmpty(), qPrintable(view->message()));
    QVERIFY(view->status().contains(QStringLiteral("nimble db ceilings --add")));
    {
      const auto s = store();
      db::Ceiling c;
      c.machine =
          s->measurement(at_.context().workload.facts()->results.front().measurement)->machine;
      c.dtype = "f32";
      c.kind = "compute";
      c.value = 1e11;
      s->add(c);
      c.dtype = "any";
      c.kind = "read_memory";
      c.value = 1e10;
      s->add(c);
    }
    refresh();
    QVERIFY2(view->status().contains(QStringLiteral("nearest to its peak")),
             qPrintable(view->status()));
    const TableData t = view->table();
    QVERIFY(!t.rows.empty());
    for (const auto& row : t.rows) QVERIFY(row[11].toDouble() > 0);
    QVERIFY(!view->marks().empty());
    view->plot().setFocus();
    QTest::keyClick(&view->plot(), Qt::Key_Home);
    QTest::keyClick(&view->plot(), Qt::Key_Return);
    at_.wait();
    QCOMPARE(at_.selection().now().workload, view->marks().front().choice.workload);
    QCOMPARE(at_.selection().now().shape, view->marks().front().choice.shape);
  }

  void generated_code_stands_side_by_side_as_plain_text() {
    at_.select_workload("softmax", 1);
    const auto facts = at_.context().workload.facts();
    std::string left, right;
    for (const Cell& c : facts->cells)
      (facts->configs[c.config].is_default ? left : right) = c.result.code_hash;
    View* view = at_.show("code");
    QVERIFY(view->message().contains(QStringLiteral("no generated code")));
    {
      const auto s = store();
      const auto put = [&](const std::string& hash, const std::string& text) {
        db::GeneratedCode code;
        code.code_hash = hash;
        code.kind = "llvm-ir";
        code.digest = s->put_blob(std::vector<uint8_t>(text.begin(), text.end()));
        s->put(code);
      };
      put(left, "<b>entry</b>\n  fadd\n  ret\n");
      put(right, "<b>entry</b>\n  fmul\n  fmul\n  ret\n");
    }
    Choice choice = at_.selection().now();
    for (const Cell& c : facts->cells)
      if (c.result.code_hash == right) choice.config = c.result.config;
    at_.selection().set(choice);
    refresh();
    QVERIFY2(view->message().isEmpty(), qPrintable(view->message()));
    QVERIFY(child<QPlainTextEdit>(view, "left_text")
                ->toPlainText()
                .contains(QStringLiteral("<b>entry</b>")));
    QVERIFY2(view->status().contains(QStringLiteral("1 lines only left, 2 only right")),
             qPrintable(view->status()));
  }

  void two_campaigns_are_compared_with_the_left_one_pinned() {
    PlotView* view = at_.show_plot("campaigndiff");
    QVERIFY2(view->message().isEmpty(), qPrintable(view->message()));
    QVERIFY(!view->marks().empty());
    QCOMPARE(view->marks().size(), view->table().rows.size());
    QVERIFY(view->status().contains(QStringLiteral("geometric mean")));
  }

  void a_model_runs_in_its_own_process_and_trust_is_given_by_digest() {
    QTemporaryDir folder;
    QFile file(folder.filePath(QStringLiteral("broken.nimble")));
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write("no executable file");
    file.close();
    View* view = at_.show("run");
    auto* name = child<QLineEdit>(view, "file");
    name->setText(file.fileName());
    name->setFocus();
    QTest::keyClick(name, Qt::Key_Return);
    at_.wait();
    auto* trust = child<QCheckBox>(view, "trust");
    QVERIFY(trust->isEnabled());
    QVERIFY(!trust->isChecked());
    QVERIFY2(view->status().contains(QStringLiteral("not trusted")), qPrintable(view->status()));
    QTest::mouseClick(child<QPushButton>(view, "run"), Qt::LeftButton);
    at_.wait();
    QVERIFY2(!view->message().isEmpty(), "a file that is none is refused, by the other process");
    QVERIFY(child<QPushButton>(view, "run")->isEnabled());
    trust->click();
    QCOMPARE(QSettings().value(QStringLiteral("trusted_files")).toStringList().size(), 1);
    trust->click();
    QCOMPARE(QSettings().value(QStringLiteral("trusted_files")).toStringList().size(), 0);
  }

  // From an operator of an executable file down to raw samples: each step is one click.
  void an_operator_of_a_file_leads_to_the_samples_that_decided() {
    at_.select_workload("softmax", 1);
    const db::DispatchTable table = *at_.context().workload.facts()->table({});
    const db::Hash workload = table.workload;
    at_.select_workload("matmul", 2);  // somewhere else
    QTemporaryDir folder;
    const QString file = folder.filePath(QStringLiteral("loop.nimble"));
    // Without raw literals: Qt's moc takes the quotes in them for its own.
    write_loop_program(file.toStdString(),
                       "[{\"threads\":1,\"version\":" + std::to_string(table.version) +
                           ",\"class\":\"warm\",\"entries\":[],\"table\":\"" + table.uuid + "\"}]");
    PlotView* view = at_.show_plot("run");
    auto* why = child<QPushButton>(view, "why");
    QVERIFY(!why->isEnabled());
    child<QLineEdit>(view, "file")->setText(file);
    auto* inputs = child<QLineEdit>(view, "inputs");
    inputs->setText(QStringLiteral("x=random:8"));
    inputs->setFocus();
    QTest::keyClick(inputs, Qt::Key_Return);
    at_.wait();
    auto* rows = view->findChild<Rows*>();
    for (int row = 0; row < rows->model()->rowCount(); ++row) {
      QTest::mouseClick(rows->viewport(), Qt::LeftButton, {},
                        rows->visualRect(rows->model()->index(row, 0)).center());
      QCOMPARE(why->isEnabled(),
               rows->model()->index(row, 0).data().toString() == QStringLiteral("kernel"));
    }
    QTest::mouseClick(rows->viewport(), Qt::LeftButton, {},
                      rows->visualRect(rows->model()->index(0, 0)).center());
    QTest::mouseClick(why, Qt::LeftButton);
    at_.wait();
    QVERIFY2(view->status().isEmpty(), qPrintable(view->status()));
    QCOMPARE(at_.selection().now().workload, workload);
    QCOMPARE(at_.selection().now().table, table.uuid);
    QCOMPARE(at_.selection().now().shape, std::string("s0=8"));

    View* chain = at_.show("why");
    const auto step = [&](const char* what) {
      const auto steps = chain->findChild<Rows*>();
      for (int row = 0; row < steps->model()->rowCount(); ++row)
        if (steps->model()->index(row, 0).data().toString() == QLatin1String(what)) return row;
      return -1;
    };
    int before = -1;
    for (const char* due :
         {"Executable file", "Operator", "In the file", "Workload", "Shape", "Dispatch table",
          "Test", "Entry", "Configuration", "Measured here", "Raw samples", "Host state"}) {
      QVERIFY2(step(due) > before, due);
      before = step(due);
    }
    auto* steps = chain->findChild<Rows*>();
    QVERIFY(steps->model()
                ->index(step("Operator"), 1)
                .data()
                .toString()
                .startsWith(QStringLiteral("add at s0=8: kernel double, 6 calls")));
    steps->setCurrentIndex(steps->model()->index(step("Raw samples"), 0));
    QTest::keyClick(steps, Qt::Key_Return);
    at_.wait();
    QVERIFY(!at_.selection().now().measurement.empty());
    QVERIFY(at_.show("samples")->message().isEmpty());
    // Of another shape the file told nothing.
    at_.selection().set_shape("s0=64");
    at_.wait();
    QCOMPARE(step("Operator"), -1);
    QVERIFY(step("Raw samples") > 0);

    // Records that the open database has not are told with what the file says.
    write_loop_program(file.toStdString(),
                       "[{\"table\":\"0123456789abcdef\",\"version\":3,\"threads\":1,"
                       "\"entries\":[]}]");
    at_.show("run");
    QTest::mouseClick(child<QPushButton>(view, "run"), Qt::LeftButton);
    at_.wait();
    QTest::mouseClick(rows->viewport(), Qt::LeftButton, {},
                      rows->visualRect(rows->model()->index(0, 0)).center());
    QTest::mouseClick(why, Qt::LeftButton);
    at_.wait();
    QVERIFY(step("In the database") > step("In the file"));
    QCOMPARE(step("Workload"), -1);
    // What was exchanged meanwhile was not run.
    write_loop_program(file.toStdString());
    at_.show("run");
    QTest::mouseClick(why, Qt::LeftButton);
    at_.wait();
    QVERIFY2(view->status().contains(QStringLiteral("run it again")), qPrintable(view->status()));
  }

  void a_run_is_a_time_line_whose_bars_and_rows_are_linked() {
    QTemporaryDir folder;
    const QString file = folder.filePath(QStringLiteral("loop.nimble"));
    write_loop_program(file.toStdString());
    PlotView* view = at_.show_plot("run");
    child<QLineEdit>(view, "file")->setText(file);
    auto* inputs = child<QLineEdit>(view, "inputs");
    inputs->setText(QStringLiteral("x=random:1024"));
    inputs->setFocus();
    QTest::keyClick(inputs, Qt::Key_Return);
    at_.wait();
    QVERIFY2(view->message().isEmpty(), qPrintable(view->message()));
    int kernels = 0, turns = 0, kernel = -1;
    for (const Mark& m : view->marks()) {
      kernels += m.text.startsWith(QStringLiteral("kernel double · "));
      turns += m.text.startsWith(QStringLiteral("function turn · "));
      if (kernels == 1 && kernel < 0) kernel = static_cast<int>(&m - view->marks().data());
    }
    QCOMPARE(kernels, 6);
    QCOMPARE(turns, 7);
    QVERIFY2(view->marks()[static_cast<size_t>(kernel)].text.contains(QStringLiteral("s0=1024")),
             qPrintable(view->marks()[static_cast<size_t>(kernel)].text));
    // Two plots over one axis of time, each axis with its unit.
    QCOMPARE(view->plot().axisRectCount(), 2);
    QVERIFY(view->plot().axisRect(1)->axis(QCPAxis::atBottom)->label().contains(u'('));
    QVERIFY(view->plot().axisRect(1)->axis(QCPAxis::atLeft)->label().contains(u'('));
    view->plot().xAxis->setRange(0, 1);
    QCOMPARE(view->plot().axisRect(1)->axis(QCPAxis::atBottom)->range().upper, 1.0);
    QTest::keyClick(&view->plot(), Qt::Key_0);

    // The rows have shapes; one that is chosen leads to its first bar, a bar to its row.
    const TableData table = view->table();
    const auto column = [&](const char* name) {
      return static_cast<size_t>(
          std::find(table.columns.begin(), table.columns.end(), QLatin1String(name)) -
          table.columns.begin());
    };
    QCOMPARE(table.rows[0][column("shape")].toString(), QStringLiteral("s0=1024"));
    QCOMPARE(table.rows[0][column("operands")].toString(),
             QStringLiteral("f32 (1024), f32 (1024)"));
    auto* rows = view->findChild<Rows*>();
    rows->setFocus();
    rows->setCurrentIndex(rows->model()->index(0, 0));
    QTest::keyClick(rows, Qt::Key_Return);
    QCOMPARE(view->cursor(), kernel);
    rows->setCurrentIndex(rows->model()->index(1, 0));
    view->plot().setFocus();
    QTest::keyClick(&view->plot(), Qt::Key_Return);
    QCOMPARE(rows->currentIndex().row(), 0);

    // Under the pointer: a bar, and the bytes that were live.
    view->plot().replot();
    const Mark bar = view->marks()[static_cast<size_t>(kernel)];
    QTest::mouseMove(&view->plot(), WindowFixture::pixel_of(*view, bar.x, bar.y));
    QTRY_VERIFY2(view->status().startsWith(QStringLiteral("kernel double")),
                 qPrintable(view->status()));
    QTest::mouseMove(&view->plot(), view->plot().axisRect(1)->rect().center());
    QTRY_VERIFY2(view->status().contains(QStringLiteral("KiB live at")),
                 qPrintable(view->status()));

    child<QComboBox>(view, "shown")->setCurrentIndex(1);
    QCOMPARE(view->plot().axisRectCount(), 1);
    QCOMPARE(view->marks().size(), size_t{1});
    child<QComboBox>(view, "shown")->setCurrentIndex(0);
    QCOMPARE(view->plot().axisRectCount(), 2);
    if (const QString screens = qEnvironmentVariable("NIMBLE_GUI_SCREENS"); !screens.isEmpty()) {
      child<QLineEdit>(view, "file")->setText(QStringLiteral("loop.nimble"));
      QVERIFY(view->grab().save(screens + QStringLiteral("/run.png")));
    }
  }

  void a_failure_shows_what_its_process_said() {
    const auto s = store();
    const db::Uuid campaign = db::all_campaigns(*s).front().uuid;
    db::ClaimRequest claim;
    claim.campaign = campaign;
    claim.owner = "test";
    claim.limit = 1;
    const auto trials = s->claim(claim);
    QCOMPARE(trials.size(), size_t{1});
    db::TrialResult result;
    result.trial = trials[0].uuid;
    result.owner = "test";
    result.state = db::TrialState::kCrashed;
    result.error_class = "segfault";
    QVERIFY(s->finish(result));
    db::FailureLog log;
    log.trial = trials[0].uuid;
    log.attempt = 1;
    log.error_class = "segfault";
    log.output = "it broke here";
    log.command = "nimble bench kernel.nimble";
    s->add(log);
    refresh();
    at_.selection().set_campaign(campaign);
    View* view = at_.show("failures");
    auto* rows = view->findChild<Rows*>();
    QTRY_COMPARE(rows->model()->rowCount(), 1);
    QTRY_VERIFY(rows->model()->index(0, 0).data(PagedModel::kFilledRole).toBool());
    rows->setFocus();
    rows->setCurrentIndex(rows->model()->index(0, 0));
    QTest::keyClick(rows, Qt::Key_Return);
    at_.wait();
    QVERIFY(child<QPlainTextEdit>(view, "log")
                ->toPlainText()
                .contains(QStringLiteral("it broke here")));
    QTest::mouseClick(child<QPushButton>(view, "copy"), Qt::LeftButton);
    QCOMPARE(QGuiApplication::clipboard()->text(), QStringLiteral("nimble bench kernel.nimble"));
  }
};
NIMBLE_QTEST(EvidenceWindowTest)
#include "evidence_window_test.moc"
