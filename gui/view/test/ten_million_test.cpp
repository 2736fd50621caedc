// The Trials window over ten million rows: jumps, keys, the wheel and sorting hold the window up no
// longer than 100 ms, and what is in sight is filled. A reader that makes up rows stands for the
// database: what is measured here is the window, not the disk.
#include <QElapsedTimer>
#include <QHeaderView>
#include <QScrollBar>

#include "gui/model/test/fake_reader.h"
#include "gui/model/test/qtest.h"
#include "gui/model/test/stall_watch.h"
#include "gui/view/headless.h"
#include "gui/view/table_pane.h"
#include "gui/view/view.h"

using namespace nimble::gui;

class TenMillionTest : public QObject {
  Q_OBJECT
 private slots:
  void ten_million_trials_scroll() {
    constexpr int kRows = 10'000'000;
    FakeDatabase fake;
    fake.trials = kRows;
    fake.delay_ms = 2;
    Session session(nullptr,
                    [&](const DatabasePlace&) { return std::make_unique<FakeReader>(fake); });
    Selection selection;
    WorkloadModel workload(session, selection);
    Context context{session, selection, workload};
    const ViewInfo* info = find_view("trials");
    const std::unique_ptr<View> view(info->make(*info, context));
    view->resize(1000, 700);
    view->show();
    QVERIFY(QTest::qWaitForWindowExposed(view.get()));
    auto* rows = view->findChild<Rows*>();
    const auto in_sight_is_filled = [&] {
      const int first = rows->rowAt(0), last = std::min(rows->rowAt(rows->viewport()->height() - 1),
                                                        rows->model()->rowCount() - 1);
      for (int row = first; row >= 0 && row <= last; ++row)
        if (!rows->model()->index(row, 0).data(PagedModel::kFilledRole).toBool()) return false;
      return first >= 0;
    };
    std::vector<qint64> waits;
    const double stall = least_stall_ms(100, [&] {
      waits.clear();
      session.open({"x"});
      selection.set_campaign("x");
      QTRY_COMPARE(rows->model()->rowCount(), kRows);
      QTRY_VERIFY(in_sight_is_filled());
      for (int i = 1; i <= 60; ++i) {
        QElapsedTimer clock;
        clock.start();
        if (i % 20 == 0)
          QTest::mouseClick(rows->horizontalHeader()->viewport(), Qt::LeftButton, {},
                            QPoint(rows->horizontalHeader()->sectionViewportPosition(0) + 8, 8));
        else if (i % 3 == 0)
          QTest::keyClick(rows, Qt::Key_PageDown);
        else
          rows->verticalScrollBar()->setValue(static_cast<int>(
              (int64_t{i} * 7'919'113'711) % (rows->verticalScrollBar()->maximum() + 1)));
        QTRY_VERIFY(in_sight_is_filled());
        waits.push_back(clock.elapsed());
      }
    });
    QVERIFY(!waits.empty());
    std::sort(waits.begin(), waits.end());
    qInfo("longest stall %.1f ms; rows in sight filled after %lld ms at the 95th percentile", stall,
          static_cast<long long>(waits[waits.size() * 95 / 100]));
    QVERIFY2(stall < 100, qPrintable(QString::number(stall)));
    // The last row of all can be reached and read.
    rows->scrollToBottom();
    QTRY_VERIFY(in_sight_is_filled());
    QCOMPARE(rows->rowAt(rows->viewport()->height() - 4), kRows - 1);
  }
};
NIMBLE_QTEST(TenMillionTest)
#include "ten_million_test.moc"
