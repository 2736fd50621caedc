// The Trials window over ten million rows: jumps, keys, the wheel and sorting hold the window up no
// longer than 100 ms, and what is in sight is filled. A reader that makes up rows stands for the
// database: what is measured here is the window, not the disk. With NIMBLE_GUI_LARGE=PLACE the same
// is measured on a real database, in its largest campaign, and told; nothing is asked of the times.
#include <QElapsedTimer>
#include <QHeaderView>
#include <QLineEdit>
#include <QScrollBar>

#include "db/store/test/all.h"
#include "gui/model/test/fake_reader.h"
#include "gui/model/test/qtest.h"
#include "gui/model/test/stall_watch.h"
#include "gui/view/headless.h"
#include "gui/view/table_pane.h"
#include "gui/view/view.h"

using namespace nimble::gui;
namespace db = nimble::db;

class TenMillionTest : public QObject {
  Q_OBJECT

  // The window on a session, and what is asked of it.
  struct Trials {
    explicit Trials(Session& in) : session(in) {
      const ViewInfo* info = find_view("trials");
      view.reset(info->make(*info, context));
      view->resize(1000, 700);
      view->show();
      rows = view->findChild<Rows*>();
    }
    // Rows that are still being counted below those in sight are waited for if asked.
    bool in_sight_is_filled(bool all = true) const {
      const auto* model = qobject_cast<const PagedModel*>(rows->model());
      if (all ? view->loading() : model->turning()) return false;
      const int first = rows->rowAt(0), last = std::min(rows->rowAt(rows->viewport()->height() - 1),
                                                        rows->model()->rowCount() - 1);
      for (int row = first; row >= 0 && row <= last; ++row)
        if (!rows->model()->index(row, 0).data(PagedModel::kFilledRole).toBool()) return false;
      return first >= 0;
    }
    void sort(int column) const {
      const QHeaderView& header = *rows->horizontalHeader();
      QTest::mouseClick(header.viewport(), Qt::LeftButton, {},
                        QPoint(header.sectionViewportPosition(column) + 8, 8));
    }
    void jump(int64_t to) const {
      rows->verticalScrollBar()->setValue(
          static_cast<int>(to % (rows->verticalScrollBar()->maximum() + 1)));
    }

    Session& session;
    Selection selection;
    WorkloadModel workload{session, selection};
    Context context{session, selection, workload};
    std::unique_ptr<View> view;
    Rows* rows = nullptr;
  };

  static void tell(const char* what, std::vector<qint64> waits) {
    std::sort(waits.begin(), waits.end());
    qInfo("%s: rows in sight filled after %lld ms at the 95th percentile, %lld at most (%zu)", what,
          static_cast<long long>(waits[waits.size() * 95 / 100]),
          static_cast<long long>(waits.back()), waits.size());
  }

 private slots:
  void ten_million_trials_scroll() {
    constexpr int kRows = 10'000'000;
    FakeDatabase fake;
    fake.trials = kRows;
    fake.delay_ms = 2;
    Session session(nullptr,
                    [&](const DatabasePlace&) { return std::make_unique<FakeReader>(fake); });
    Trials at(session);
    QVERIFY(QTest::qWaitForWindowExposed(at.view.get()));
    std::vector<qint64> waits;
    const double stall = least_stall_ms([&] {
      waits.clear();
      session.open({"x"});
      at.selection.set_campaign("x");
      QTRY_COMPARE(at.rows->model()->rowCount(), kRows);
      QTRY_VERIFY(at.in_sight_is_filled());
      for (int i = 1; i <= 60; ++i) {
        QElapsedTimer clock;
        clock.start();
        if (i % 20 == 0)
          at.sort(0);
        else if (i % 3 == 0)
          QTest::keyClick(at.rows, Qt::Key_PageDown);
        else
          at.jump(int64_t{i} * 7'919'113'711);
        QTRY_VERIFY(at.in_sight_is_filled());
        waits.push_back(clock.elapsed());
      }
    });
    QVERIFY(!waits.empty());
    qInfo("longest stall %.1f ms", stall);
    tell("all", waits);
    QVERIFY2(stall < kStallBarMs, qPrintable(QString::number(stall)));
    // The last row of all can be reached and read.
    at.rows->scrollToBottom();
    QTRY_VERIFY(at.in_sight_is_filled());
    QCOMPARE(at.rows->rowAt(at.rows->viewport()->height() - 4), kRows - 1);
  }

  void a_large_database_scrolls() {
    const std::string place = qEnvironmentVariable("NIMBLE_GUI_LARGE").toStdString();
    if (place.empty()) QSKIP("no NIMBLE_GUI_LARGE");
    db::Uuid campaign;
    {
      const auto store = db::Store::open(place);
      int64_t most = -1;
      for (const db::Campaign& c : db::all_campaigns(*store))
        if (const int64_t n = store->progress(c.uuid).trials; n > most) {
          most = n;
          campaign = c.uuid;
        }
    }
    Session session;
    Trials at(session);
    QVERIFY(QTest::qWaitForWindowExposed(at.view.get()));
    session.open({place, true});
    at.selection.set_campaign(campaign);
    constexpr int kPatience = 120'000;
    QTRY_VERIFY_WITH_TIMEOUT(at.in_sight_is_filled(), kPatience);
    qInfo("%d trials", at.rows->model()->rowCount());
    StallWatch watch;
    const auto measure = [&](const char* what, int times, const std::function<void(int)>& act) {
      std::vector<qint64> waits;
      for (int i = 1; i <= times; ++i) {
        QElapsedTimer clock;
        clock.start();
        act(i);
        QTRY_VERIFY_WITH_TIMEOUT(at.in_sight_is_filled(false), kPatience);
        waits.push_back(clock.elapsed());
      }
      tell(what, waits);
    };
    measure("jumps", 100, [&](int i) { at.jump(int64_t{i} * 7'919'113'711); });
    measure("pages", 40, [&](int) { QTest::keyClick(at.rows, Qt::Key_PageDown); });
    constexpr int kSortable[] = {5, 2, 6, 0};  // time, state, prediction, queue
    measure("sorts", 24, [&](int i) { at.sort(kSortable[i % 4]); });
    auto* filter = at.view->findChild<QLineEdit*>(QStringLiteral("filter"));
    measure("filters", 6, [&](int i) { filter->setText(i % 2 == 0 ? QString() : QString("1")); });
    qInfo("longest stall %.1f ms", watch.stop());
  }
};
NIMBLE_QTEST(TenMillionTest)
#include "ten_million_test.moc"
