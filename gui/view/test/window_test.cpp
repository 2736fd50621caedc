// The whole program's window on the database of a real campaign: clicks, drags and keys, stalls,
// screenshots. With NIMBLE_GUI_SCREENS=FOLDER it writes a picture of each window there (those of
// gui/test/screens are made so and looked at).
#include <QAbstractButton>
#include <QAction>
#include <QComboBox>
#include <QDir>
#include <QDockWidget>
#include <QLabel>
#include <QLineEdit>
#include <QScrollBar>
#include <QTabBar>
#include <QTableView>

#include "gui/model/test/stall_watch.h"
#include "gui/view/table_pane.h"
#include "gui/view/test/window_fixture.h"
#include "gui/view/view_frame.h"

using namespace nimble::gui;
namespace db = nimble::db;

class WindowTest : public QObject {
  Q_OBJECT
  WindowFixture at_;

  static void save(QWidget* widget, const QString& file) {
    const QImage image = widget->grab().toImage().convertToFormat(QImage::Format_RGB888);
    QVERIFY(image.save(file, "PNG", 0));
  }

 private slots:
  void init() { at_.open(); }
  void cleanup() { at_.close(); }

  void every_row_is_a_window_with_name_and_key() {
    QSet<QString> keys;
    for (const ViewInfo& info : views()) {
      View* view = at_.show(info.name);
      QVERIFY2(view, info.name);
      QCOMPARE(view->accessibleName(), QLatin1String(info.title));
      QVERIFY(!view->accessibleDescription().isEmpty());
      QVERIFY2(!QKeySequence(info.shortcut).isEmpty(), info.name);
      QVERIFY2(!keys.contains(info.shortcut), info.shortcut);
      keys.insert(info.shortcut);
    }
  }

  void every_control_has_an_accessible_name() {
    for (const ViewInfo& info : views()) at_.show(info.name);
    for (QWidget* w : at_.window->findChildren<QWidget*>()) {
      if (w->focusPolicy() == Qt::NoFocus || !w->isVisible()) continue;
      if (!qobject_cast<QLineEdit*>(w) && !qobject_cast<QTableView*>(w) &&
          !qobject_cast<QComboBox*>(w) && !qobject_cast<QCustomPlot*>(w))
        continue;
      if (w->objectName().startsWith(QLatin1String("qt_"))) continue;
      QVERIFY2(!w->accessibleName().isEmpty(), qPrintable(w->objectName()));
    }
  }

  void a_shortcut_goes_to_each_window() {
    for (const ViewInfo& info : views()) {
      QTest::keySequence(at_.window.get(), QKeySequence(info.shortcut));
      at_.wait();
      const QWidget* focus = at_.window->focusWidget();
      const View* view = at_.window->findChild<View*>(QLatin1String(info.name));
      QVERIFY2(
          view && focus && (view == focus || view->isAncestorOf(focus)),
          qPrintable(QStringLiteral("%1: the focus is in %2")
                         .arg(info.name, focus ? focus->metaObject()->className() : "nothing")));
    }
  }

  void choosing_a_workload_with_keys_fills_every_window() {
    View* workloads = at_.show("workloads");
    auto* rows = workloads->findChild<Rows*>();
    QTRY_COMPARE(rows->model()->rowCount(), 3);
    rows->setFocus();
    rows->setCurrentIndex(rows->model()->index(0, 0));
    QTest::keyClick(rows, Qt::Key_Down);
    QTest::keyClick(rows, Qt::Key_Return);
    at_.wait();
    QVERIFY(!at_.context().selection.now().workload.empty());
    PlotView* map = at_.show_plot("heatmap");
    QVERIFY2(map->message().isEmpty(), qPrintable(map->message()));
    QVERIFY(map->marks().size() > 50);
  }

  void a_filter_leaves_the_rows_that_have_the_text() {
    View* workloads = at_.show("workloads");
    auto* rows = workloads->findChild<Rows*>();
    auto* filter = workloads->findChild<QLineEdit*>(QStringLiteral("filter"));
    filter->setFocus();
    QTest::keyClicks(filter, QStringLiteral("softmax"));
    QCOMPARE(rows->model()->rowCount(), 1);
    QCOMPARE(rows->model()->index(0, 0).data().toString(), QStringLiteral("softmax"));
    QCOMPARE(workloads->status(), QStringLiteral("1 of 3 · 3 workloads"));
    filter->clear();
    QCOMPARE(rows->model()->rowCount(), 3);
  }

  void the_value_is_under_the_pointer_and_a_click_selects_it() {
    at_.select_workload("softmax", 1);
    PlotView* map = at_.show_plot("heatmap");
    const Mark mark = map->marks()[map->marks().size() / 2];
    const QPoint at = at_.pixel_of(*map, mark.x, mark.y);
    QTest::mouseMove(&map->plot(), at);
    QTRY_COMPARE(map->status(), mark.text);
    QVERIFY(mark.text.contains(QStringLiteral("samples")));
    QTest::mouseClick(&map->plot(), Qt::LeftButton, {}, at);
    at_.wait();
    QCOMPARE(at_.context().selection.now().shape, mark.choice.shape);
    QCOMPARE(at_.context().selection.now().config, mark.choice.config);
    // The other windows follow.
    View* samples = at_.show("samples");
    QVERIFY(samples->message().isEmpty());
    const auto store = db::Store::open(at_.campaign->place());
    const auto m = store->measurement(mark.choice.measurement);
    QCOMPARE(samples->table().rows.size(), m->samples_ns.size());
    QCOMPARE(samples->table().rows.front()[1].toDouble(), m->samples_ns.front());
  }

  void a_plot_is_walked_with_keys() {
    at_.select_workload("softmax", 1);
    PlotView* latency = at_.show_plot("latency");
    latency->plot().setFocus();
    QTest::keyClick(&latency->plot(), Qt::Key_Home);
    QCOMPARE(latency->cursor(), 0);
    QTest::keyClick(&latency->plot(), Qt::Key_Right);
    QVERIFY(latency->cursor() > 0);
    const Mark mark = latency->marks()[static_cast<size_t>(latency->cursor())];
    QCOMPARE(latency->status(), mark.text);
    QCOMPARE(latency->plot().accessibleDescription(), mark.text);
    QTest::keyClick(&latency->plot(), Qt::Key_Return);
    QCOMPARE(at_.context().selection.now().shape, mark.choice.shape);
  }

  void a_drag_moves_the_plot_and_0_brings_it_back() {
    at_.select_workload("softmax", 1);
    PlotView* map = at_.show_plot("heatmap");
    const QCPRange before = map->plot().xAxis->range();
    const QString shape = QString::fromStdString(at_.context().selection.now().shape);
    const QPoint centre = map->plot().axisRect()->center();
    QTest::mousePress(&map->plot(), Qt::LeftButton, {}, centre);
    QTest::mouseMove(&map->plot(), centre + QPoint(20, 0));
    QTest::mouseMove(&map->plot(), centre + QPoint(60, 0));
    QTest::mouseRelease(&map->plot(), Qt::LeftButton, {}, centre + QPoint(60, 0));
    QVERIFY(map->plot().xAxis->range().lower < before.lower);
    QCOMPARE(QString::fromStdString(at_.context().selection.now().shape), shape);
    map->plot().setFocus();
    QTest::keyClick(&map->plot(), Qt::Key_0);
    QCOMPARE(map->plot().xAxis->range().lower, before.lower);
  }

  void a_gap_shows_nothing() {
    at_.select_workload("matmul", 2);
    PlotView* map = at_.show_plot("heatmap");
    const auto facts = at_.context().workload.facts();
    std::optional<QPoint> gap;
    for (size_t c = 0; c < facts->configs.size(); ++c)
      for (size_t s = 0; s < facts->shapes.size(); ++s)
        if (!facts->cell(c, s))
          gap = at_.pixel_of(*map, static_cast<double>(s), static_cast<double>(c));
    QVERIFY(gap);
    const Choice before = at_.context().selection.now();
    QTest::mouseClick(&map->plot(), Qt::LeftButton, {}, *gap);
    QVERIFY(at_.context().selection.now() == before);
  }

  // Every window has been opened, with all that it asks for.
  void the_whole_fits_a_small_screen() {
    at_.select_workload("matmul", 1);
    for (const ViewInfo& info : views()) at_.show(info.name);
    QStringList least;
    for (const View* view : at_.window->findChildren<View*>())
      least << QStringLiteral("%1 %2x%3")
                   .arg(view->objectName())
                   .arg(view->minimumSizeHint().width())
                   .arg(view->minimumSizeHint().height());
    at_.window->resize(1024, 700);
    at_.wait();
    QVERIFY2(at_.window->size() == QSize(1024, 700), qPrintable(least.join(QStringLiteral(", "))));
    for (const ViewInfo& info : views()) {
      const View* view = at_.show(info.name);
      std::vector<QWidget*> controls;
      for (QWidget* w : view->findChildren<QWidget*>(Qt::FindDirectChildrenOnly))
        if (w->isVisible() && (qobject_cast<QAbstractButton*>(w) || qobject_cast<QComboBox*>(w) ||
                               qobject_cast<QLineEdit*>(w)))
          controls.push_back(w);
      for (const QWidget* w : controls) {
        const QString what = view->objectName() + u' ' + w->objectName();
        QVERIFY2(view->rect().contains(w->geometry()), qPrintable(what + " is cut off"));
        QVERIFY2(w->width() >= w->minimumSizeHint().width(), qPrintable(what + " is too narrow"));
        for (const QWidget* other : controls)
          QVERIFY2(w == other || !w->geometry().intersects(other->geometry()),
                   qPrintable(what + " lies over " + other->objectName()));
      }
    }
    for (const QTabBar* tabs : at_.window->findChildren<QTabBar*>())
      QVERIFY(tabs->elideMode() == Qt::ElideNone);
  }

  // A window that has too little room for what it holds is scrolled, by keys as well.
  void a_window_without_room_is_scrolled() {
    View* run = at_.show("run");
    auto* frame = new ViewFrame(find_view("run")->make(*find_view("run"), at_.context()));
    frame->resize(300, 120);
    frame->show();
    at_.wait();
    QVERIFY(frame->widget()->height() > 120);
    QVERIFY(frame->verticalScrollBar()->isVisible());
    frame->resize(1400, 1000);
    at_.wait();
    QCOMPARE(frame->widget()->size(), frame->viewport()->size());
    QVERIFY(!frame->verticalScrollBar()->isVisible());
    delete frame;
    QVERIFY(run->isVisible());
  }

  void what_the_window_was_like_is_kept() {
    at_.show("heatmap");
    at_.window->findChild<QDockWidget*>(QStringLiteral("dock.regret"))->hide();
    at_.window->resize(1111, 777);
    at_.window->close();
    at_.window = std::make_unique<MainWindow>();
    at_.window->show();
    QVERIFY(at_.window->findChild<QDockWidget*>(QStringLiteral("dock.regret"))->isHidden());
    QVERIFY(!at_.window->findChild<QDockWidget*>(QStringLiteral("dock.latency"))->isHidden());
    QCOMPARE(at_.window->size(), QSize(1111, 777));
    QCOMPARE(QSettings().value(QStringLiteral("recent")).toStringList().value(0),
             at_.campaign->path());
  }

  void a_database_that_cannot_be_opened_is_told_in_the_window() {
    at_.window->open({"/no/such/place.db"});
    at_.wait();
    View* workloads = at_.show("workloads");
    QVERIFY2(workloads->message().contains(QStringLiteral("/no/such/place.db")),
             qPrintable(workloads->message()));
    at_.window->open({at_.campaign->place()});
    at_.wait();
    QVERIFY(workloads->message().isEmpty());
  }

  void text_of_the_database_is_never_rich() {
    for (const ViewInfo& info : views()) at_.show(info.name);
    for (const QLabel* label : at_.window->findChildren<QLabel*>())
      if (!label->objectName().startsWith(QLatin1String("qt_")))
        QVERIFY2(label->textFormat() == Qt::PlainText, qPrintable(label->text()));
    QVERIFY(!plain_tool_tip(QStringLiteral("<img src=x>")).contains(QLatin1String("<img")));
  }

  void nothing_holds_up_the_window() {
    // A server that paints on the same cores holds up whoever waits for it.
    if (QGuiApplication::platformName() != QLatin1String("offscreen")) QSKIP("an X server");
    for (const ViewInfo& info : views()) at_.show(info.name);
    const double stall = least_stall_ms([&] {
      for (int round = 0; round < 3; ++round) {
        at_.select_workload("softmax", 1);
        at_.select_workload("matmul", 1);
        at_.select_workload("matmul", 2);
        at_.window->resize(1440 + round * 10, 900);
        at_.wait();
      }
    });
    qInfo("longest stall: %.1f ms", stall);
    QVERIFY2(stall < kStallBarMs, qPrintable(QString::number(stall)));
  }

  void screenshots() {
    const QString folder = qEnvironmentVariable("NIMBLE_GUI_SCREENS");
    if (folder.isEmpty()) QSKIP("no NIMBLE_GUI_SCREENS");
    QDir().mkpath(folder);
    at_.select_workload("matmul", 1);
    PlotView* map = at_.show_plot("heatmap");
    const Mark mark = map->marks()[map->marks().size() / 3];
    Choice c = at_.context().selection.now();
    c.shape = mark.choice.shape;
    c.config = mark.choice.config;
    at_.context().selection.set(c);
    at_.wait();
    for (const ViewInfo& info : views()) {
      View* view = at_.show(info.name);
      QTest::qWait(50);
      save(view, folder + '/' + QLatin1String(info.name) + ".png");
    }
    at_.show("heatmap");
    at_.show("why");
    at_.show("workloads");
    // The copy's folder is of no interest.
    for (QLabel* label : at_.window->findChildren<QLabel*>())
      if (label->text() == at_.campaign->path()) label->setText(QStringLiteral("tuning.db"));
    QTest::qWait(50);
    save(at_.window.get(), folder + "/window.png");
    for (QAction* a : at_.window->findChildren<QAction*>())
      if (a->data() == QStringLiteral("dark")) a->trigger();
    QTest::qWait(100);
    save(at_.window.get(), folder + "/window-dark.png");
    // The least that a screen has: each window once in a whole one. They are looked at, not kept.
    QDir().mkpath(folder + "/small");
    at_.window->resize(1024, 700);
    for (const ViewInfo& info : views()) {
      at_.show(info.name);
      QTest::qWait(50);
      save(at_.window.get(), folder + "/small/" + QLatin1String(info.name) + ".png");
    }
  }
};
NIMBLE_QTEST(WindowTest)
#include "window_test.moc"
