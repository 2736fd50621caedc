// The dispatch editor by hand: a table of two symbols and a remainder is dragged, changed, undone,
// saved with a reason, activated, compared and rolled back.
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QDialogButtonBox>
#include <QInputDialog>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSlider>
#include <QSpinBox>
#include <QTableWidget>
#include <QTimer>
#include <cmath>

#include "db/store/test/all.h"
#include "gui/view/cut_pane.h"
#include "gui/view/test/window_fixture.h"

using namespace nimble::gui;
namespace db = nimble::db;

class DispatchWindowTest : public QObject {
  Q_OBJECT
  WindowFixture at_;
  db::Uuid table_, former_;

  // 0: mod(s0,8) == 0 ? entry 0 : 2: s0 <= 32 ? entry 1 : 4: s1 <= 64 ? entry 2 : entry 3
  static constexpr char kTree[] =
      R"({"nodes":[{"feature":"mod","a":"s0","t":8,"op":"==","value":0,"yes":1,"no":2},)"
      R"({"leaf":0},{"feature":"symbol","a":"s0","op":"<=","value":32,"yes":3,"no":4},)"
      R"({"leaf":1},{"feature":"symbol","a":"s1","op":"<=","value":64,"yes":5,"no":6},)"
      R"({"leaf":2},{"leaf":3}]})";

  void make_table() {
    const auto store = db::Store::open(at_.campaign->place());
    const db::Hash workload = at_.workload("matmul", 2);
    db::NewDispatchTable t;
    for (const db::DispatchTable& active : store->tables(workload))
      if (active.status == db::TableStatus::kActive) {
        t = active;
        former_ = active.uuid;
      }
    t.parent = former_;
    t.tree = kTree;
    const db::DispatchEntry one = t.entries[0], other = t.entries[1];
    t.entries = {one, other, one, other};
    const char* ranges[] = {"{\"mod(s0,8)\":[0,0]}", R"({"s0":[0,32]})",
                            R"({"s0":[33,null],"s1":[0,64]})",
                            R"({"s0":[33,null],"s1":[65,null]})"};
    for (size_t i = 0; i < 4; ++i) t.entries[i].range = ranges[i];
    table_ = store->create_table(t);
    store->activate(table_, "for the test");
  }
  template <typename T>
  T* child(const char* name) const {
    T* found = at_.window->findChild<View*>(QStringLiteral("dispatch"))
                   ->findChild<T*>(QLatin1String(name));
    if (!found) qFatal("no %s", name);
    return found;
  }
  int value_of(const char* test) const { return child<QSpinBox>(test)->value(); }
  void click(const char* button) {
    QTest::mouseClick(child<QPushButton>(button), Qt::LeftButton);
    at_.wait();
    QTest::qWait(1);
  }
  void give_reason(const QString& text) {
    auto* reason = child<QLineEdit>("reason");
    reason->setFocus();
    reason->clear();
    QTest::keyClicks(reason, text);
  }
  void drag(const PlotView& view, const QPoint& from, const QPoint& to) {
    QTest::mouseMove(&view.plot(), from);
    QTest::mousePress(&view.plot(), Qt::LeftButton, {}, from);
    QTest::mouseMove(&view.plot(), (from + to) / 2);
    QTest::mouseMove(&view.plot(), to);
    QTest::mouseRelease(&view.plot(), Qt::LeftButton, {}, to);
    at_.wait();
  }
  db::TableStatus status_of(const db::Uuid& uuid) const {
    return db::Store::open(at_.campaign->place())->table(uuid)->status;
  }

 private slots:
  void init() {
    at_.open();
    make_table();
    at_.context().session.refresh();
    at_.select_workload("matmul", 2);
    at_.show("dispatch");
    QVERIFY(child<QComboBox>("version")->currentText().contains(QStringLiteral("active")));
  }
  void cleanup() { at_.close(); }

  void a_border_is_dragged_and_what_it_costs_is_shown_before_it_is_saved() {
    PlotView* view = at_.show_plot("dispatch");
    QCOMPARE(value_of("test2"), 32);
    const QString before = child<QLabel>("preview")->text();
    QVERIFY(before.contains(QStringLiteral("mean regret")));
    const double border = std::sqrt(32.0 * 33);
    drag(*view, at_.pixel_of(*view, border, 20), at_.pixel_of(*view, 120, 20));
    QVERIFY2(std::abs(value_of("test2") - 120) <= 4,
             qPrintable(QString::number(value_of("test2"))));
    QVERIFY(child<QLabel>("preview")->text().contains(QStringLiteral("→")));
    QVERIFY(view->heading().contains(QStringLiteral("edited, not saved")));
    // The other symbol's border lies across.
    const double up = std::sqrt(64.0 * 65);
    drag(*view, at_.pixel_of(*view, 60, up), at_.pixel_of(*view, 60, 20));
    QVERIFY2(std::abs(value_of("test4") - 20) <= 2, qPrintable(QString::number(value_of("test4"))));
    // Nothing was written.
    QCOMPARE(db::all_tables(*db::Store::open(at_.campaign->place())).size(), size_t{8});
  }

  // Which remainders lead where is seen in a strip; a click there moves the place that is cut.
  void remainders_lie_in_a_strip() {
    auto* strip = child<RemainderStrip>("strip_mod(s0,8)");
    QCOMPARE(strip->entries().size(), size_t{8});
    QCOMPARE(strip->entries()[0], int64_t{0});
    const int64_t others = strip->entries()[1];
    QVERIFY(others != 0);
    for (size_t r = 2; r < 8; ++r) QCOMPARE(strip->entries()[r], others);
    const int cell = strip->width() / 8;
    QTest::mouseClick(strip, Qt::LeftButton, {}, {cell * 3 + cell / 2, strip->height() / 2});
    QVERIFY2(strip->accessibleDescription().contains(QStringLiteral("remainder 3, served by")),
             qPrintable(strip->accessibleDescription()));
    strip->setFocus();
    QTest::keyClick(strip, Qt::Key_Left);
    QVERIFY(strip->accessibleDescription().contains(QStringLiteral("remainder 2, served by")));
    // An edited test is seen there at once.
    child<QSpinBox>("test0")->setValue(5);
    QTRY_COMPARE(strip->entries()[5], int64_t{0});
    QCOMPARE(strip->entries()[0], others);
  }

  // A symbol without an axis has a slider, and the plot shows where it stands.
  void a_symbol_without_an_axis_lies_on_a_slider() {
    PlotView* view = at_.show_plot("dispatch");
    QVERIFY(!view->findChild<QSlider*>());
    auto* up = child<QComboBox>("up");
    up->setFocus();
    QTest::keyClick(up, Qt::Key_Home);  // the symbol that lies across, too: no plane
    at_.wait();
    auto* slider = child<QSlider>("slider_s1");
    auto* strip = child<RemainderStrip>("strip_mod(s0,8)");
    child<QSpinBox>("extent_s1")->setValue(200);
    // Beyond s0 = 32 the other symbol decides: entry 3 above 64, entry 2 below.
    Choice c = at_.selection().now();
    for (const Mark& m : view->marks())
      if (m.text.contains(QStringLiteral("s0=64"))) c.shape = m.choice.shape;
    at_.selection().set(c);
    at_.wait();
    child<QSpinBox>("extent_s1")->setValue(200);
    QCOMPARE(strip->entries()[1], int64_t{3});
    if (const QString folder = qEnvironmentVariable("NIMBLE_GUI_SCREENS"); !folder.isEmpty()) {
      QTest::qWait(50);
      QVERIFY(view->grab().save(folder + QStringLiteral("/cut.png")));
    }
    slider->setFocus();
    QTest::keyClick(slider, Qt::Key_Home);
    QCOMPARE(strip->entries()[1], int64_t{2});
    QVERIFY(child<QSpinBox>("extent_s1")->value() < 64);
  }

  // Labels of borders stayed white when the theme became dark.
  void borders_follow_the_theme() {
    PlotView* view = at_.show_plot("dispatch");
    for (const Theme theme : {Theme::kDark, Theme::kLight}) {
      set_theme(theme);
      at_.wait();
      int labels = 0;
      for (int i = 0; i < view->plot().itemCount(); ++i)
        if (const auto* label = qobject_cast<QCPItemText*>(view->plot().item(i))) {
          ++labels;
          QCOMPARE(label->brush().color(), view->palette().color(QPalette::Base));
          QCOMPARE(label->color(), view->palette().color(QPalette::Text));
        }
      QVERIFY(labels > 0);
    }
    set_theme(Theme::kSystem);
  }

  void a_remainder_is_typed() {
    auto* box = child<QSpinBox>("test0");
    box->setFocus();
    box->selectAll();
    QTest::keyClicks(box, QStringLiteral("4"));
    QTest::keyClick(box, Qt::Key_Return);
    QTRY_VERIFY(child<QLabel>("preview")->text().contains(QStringLiteral("mod(s0,8) == 0 → 4")));
    child<QSpinBox>("test0")->setValue(8);
    QTRY_VERIFY(at_.show("dispatch")->status().contains(QStringLiteral("a remainder of 8")));
    QCOMPARE(value_of("test0"), 4);
  }

  void changes_are_undone_and_made_again() {
    auto* box = child<QComboBox>("config1");
    const int chosen = box->currentIndex();
    box->setFocus();
    QTest::keyClick(box, chosen == 0 ? Qt::Key_Down : Qt::Key_Up);
    at_.wait();
    QVERIFY(child<QComboBox>("config1")->currentIndex() != chosen);
    QVERIFY(child<QPushButton>("undo")->isEnabled());
    // The focus is where it was, in the field that was made anew.
    QCOMPARE(at_.window->focusWidget(), child<QComboBox>("config1"));
    QTest::keyClick(at_.window->focusWidget(), Qt::Key_Z, Qt::ControlModifier);
    at_.wait();
    QCOMPARE(child<QComboBox>("config1")->currentIndex(), chosen);
    QTest::keyClick(at_.window->focusWidget(), Qt::Key_Z, Qt::ControlModifier | Qt::ShiftModifier);
    at_.wait();
    QVERIFY(child<QComboBox>("config1")->currentIndex() != chosen);
    click("undo");
    QCOMPARE(child<QComboBox>("config1")->currentIndex(), chosen);
    QVERIFY(!child<QPushButton>("save")->isEnabled());
  }

  void saving_activating_and_rolling_back_want_a_reason() {
    child<QSpinBox>("test2")->setValue(100);
    QTRY_VERIFY(child<QPushButton>("save")->isEnabled());
    click("save");
    QVERIFY(at_.show("dispatch")->status().contains(QStringLiteral("reason")));
    QCOMPARE(db::all_tables(*db::Store::open(at_.campaign->place())).size(), size_t{8});

    give_reason(QStringLiteral("tail latency"));
    click("save");
    const db::Uuid made = at_.selection().now().table;
    QVERIFY(!made.empty() && made != table_);
    const db::DispatchTable stored = *db::Store::open(at_.campaign->place())->table(made);
    QCOMPARE(stored.status, db::TableStatus::kDraft);
    QCOMPARE(stored.parent.value(), table_);
    QCOMPARE(stored.entries[1].reason, std::string("tail latency"));
    QCOMPARE(status_of(table_), db::TableStatus::kActive);
    QVERIFY(child<QComboBox>("version")->currentText().contains(QStringLiteral("draft")));

    click("verify");
    QVERIFY(QApplication::clipboard()->text().startsWith(
        QStringLiteral("nimble dispatch verify %1 MODEL --db ").arg(QString::fromStdString(made))));
    click("activate");
    QCOMPARE(status_of(made), db::TableStatus::kDraft);
    give_reason(QStringLiteral("checked by hand"));
    click("activate");
    QCOMPARE(status_of(made), db::TableStatus::kActive);
    QCOMPARE(status_of(table_), db::TableStatus::kRetired);

    // Versions side by side.
    View* compare = at_.show("compare");
    QVERIFY2(compare->message().isEmpty(), qPrintable(compare->message()));
    QVERIFY(compare->table().rows.size() > 20);

    at_.show("dispatch");
    give_reason(QStringLiteral("slower in production"));
    click("rollback");
    QCOMPARE(status_of(made), db::TableStatus::kRetired);
    QCOMPARE(status_of(table_), db::TableStatus::kActive);
    QCOMPARE(at_.selection().now().table, table_);
  }

  // By the dialog as a person fills it in, who sees what it costs; then withdrawn.
  void shapes_are_overridden_with_a_reason_and_the_override_withdrawn() {
    QString effect;
    bool without_reason = true;
    QTimer::singleShot(0, at_.window.get(), [&] {
      auto* dialog = qobject_cast<QDialog*>(QApplication::activeModalWidget());
      if (!dialog) qFatal("no dialog");
      auto* ok = dialog->findChild<QDialogButtonBox*>()->button(QDialogButtonBox::Ok);
      dialog->findChild<QSpinBox*>(QStringLiteral("first_s0"))->setValue(17);
      dialog->findChild<QSpinBox*>(QStringLiteral("last_s0"))->setValue(64);
      without_reason = ok->isEnabled();
      auto* reason = dialog->findChild<QLineEdit*>(QStringLiteral("reason"));
      reason->setFocus();
      QTest::keyClicks(reason, QStringLiteral("tail latency"));
      effect = dialog->findChild<QLabel*>(QStringLiteral("effect"))->text();
      QTest::mouseClick(dialog->findChild<QPushButton*>(QStringLiteral("copy")), Qt::LeftButton);
      QTest::mouseClick(ok, Qt::LeftButton);
    });
    click("override");
    QVERIFY(!without_reason);
    QVERIFY2(effect.contains(QStringLiteral("measured shapes lie there")), qPrintable(effect));
    QVERIFY(QApplication::clipboard()->text().contains(QStringLiteral("--region s0=17..64")));
    const auto overrides = [&](bool all) {
      return db::Store::open(at_.campaign->place())->overrides(all);
    };
    const auto made = overrides(false);
    QCOMPARE(made.size(), size_t{1});
    QCOMPARE(made[0].reason, std::string("tail latency"));
    QCOMPARE(made[0].region, std::string("{\"s0\":[17,64]}"));
    auto* list = child<QTableWidget>("overrides");
    QTRY_COMPARE(list->rowCount(), 1);
    QCOMPARE(list->item(0, 0)->text(), QStringLiteral("s0 17–64"));
    QVERIFY(!child<QPushButton>("withdraw")->isEnabled());

    list->selectRow(0);
    QTimer::singleShot(0, at_.window.get(), [] {
      auto* dialog = qobject_cast<QInputDialog*>(QApplication::activeModalWidget());
      if (!dialog) qFatal("no dialog");
      dialog->setTextValue(QStringLiteral("tuned since"));
      dialog->accept();
    });
    click("withdraw");
    QTRY_COMPARE(list->rowCount(), 0);
    QCOMPARE(overrides(false).size(), size_t{0});
    QCOMPARE(overrides(true)[0].withdrawn->reason, std::string("tuned since"));
  }

  void a_database_open_for_reading_is_not_changed() {
    at_.window->open({at_.campaign->place(), true});
    at_.select_workload("matmul", 2);
    child<QSpinBox>("test2")->setValue(100);
    QTRY_VERIFY(child<QLabel>("preview")->text().contains(QStringLiteral("→")));
    QVERIFY(!child<QPushButton>("save")->isEnabled());
    QVERIFY(!child<QPushButton>("activate")->isEnabled());
    QVERIFY(!child<QPushButton>("rollback")->isEnabled());
    QVERIFY(!child<QPushButton>("withdraw")->isEnabled());
  }

  void an_edit_outlives_a_look_at_the_database() {
    child<QSpinBox>("test2")->setValue(100);
    QTRY_VERIFY(child<QPushButton>("undo")->isEnabled());
    at_.context().session.refresh();
    at_.wait();
    QCOMPARE(value_of("test2"), 100);
    QVERIFY(child<QPushButton>("undo")->isEnabled());
  }
};
NIMBLE_QTEST(DispatchWindowTest)
#include "dispatch_window_test.moc"
