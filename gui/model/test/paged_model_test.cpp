#include "gui/model/paged_model.h"

#include <QAbstractItemModelTester>
#include <QThread>

#include "gui/model/test/fake_reader.h"
#include "gui/model/test/qtest.h"
#include "gui/model/test/stall_watch.h"
#include "gui/model/trials_source.h"

using namespace nimble::gui;

class PagedModelTest : public QObject {
  Q_OBJECT
  FakeDatabase fake_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<PagedModel> model_;

  void open(int64_t trials) {
    fake_.trials = trials;
    session_->open({"x"});
    model_->set_source(trials_source({}));
    QTRY_COMPARE(model_->total(), trials);
  }

 private slots:
  void init() {
    fake_.delay_ms = 0;
    fake_.slice = std::numeric_limits<int64_t>::max() / 2;
    fake_.pages = 0;
    session_ = std::make_unique<Session>(
        nullptr, [this](const DatabasePlace&) { return std::make_unique<FakeReader>(fake_); });
    model_ = std::make_unique<PagedModel>(*session_, trial_columns());
  }
  void cleanup() {
    model_.reset();
    session_.reset();
  }

  void it_is_a_model_as_qt_wants_it() {
    const QAbstractItemModelTester tester(model_.get());
    open(1000);
    QTRY_VERIFY(model_->filled(999));
    model_->sort(0, Qt::DescendingOrder);
    QTRY_VERIFY(model_->filled(0) && model_->index(0, 0).data() == QStringLiteral("1\u00a0000"));
  }

  void a_row_is_a_placeholder_until_its_page_is_there() {
    open(10'000'000);
    QCOMPARE(model_->rowCount(), 10'000'000);
    const QModelIndex last = model_->index(9'999'999, 0);
    QSignalSpy changed(model_.get(), &PagedModel::dataChanged);
    QCOMPARE(last.data().toString(), QStringLiteral("…"));
    QCOMPARE(last.data(PagedModel::kFilledRole).toBool(), false);
    QTRY_COMPARE(last.data().toString(), QStringLiteral("10\u00a0000\u00a0000"));
    QVERIFY(!changed.isEmpty());
    QCOMPARE(last.data(PagedModel::kRawRole).toLongLong(), 10'000'000);
    // The page at the end alone was read.
    QCOMPARE(fake_.pages.load(), 1);
  }

  // Counting takes a while: the first rows are there before the last is known, and a look at the
  // same rows a moment later takes none away meanwhile.
  void rows_come_while_they_are_counted() {
    fake_.slice = 100;
    fake_.trials = 1050;
    session_->open({"x"});
    const QSignalSpy inserted(model_.get(), &PagedModel::rowsInserted);
    const QSignalSpy reset(model_.get(), &PagedModel::modelReset);
    // Told of each step: between two looks of a test all of them may pass.
    std::vector<int> counted;
    connect(model_.get(), &PagedModel::loaded, this, [&, model = model_.get()] {
      if (model->growing() && model->loading()) counted.push_back(model->rowCount());
    });
    model_->set_source(trials_source({}));
    QTRY_COMPARE(model_->rowCount(), 1050);
    QTRY_VERIFY(!model_->growing());
    QVERIFY(!counted.empty());
    QCOMPARE(counted.front(), 100);
    QCOMPARE(reset.count(), 1);
    QVERIFY(inserted.count() >= 9);
    // A page that was read when it was the last, and short, is read again.
    QTRY_VERIFY(model_->filled(127));

    model_->reload();
    while (model_->turning()) {
      QCOMPARE(model_->rowCount(), 1050);
      QTest::qWait(1);
    }
    QTRY_VERIFY(!model_->loading());
    QCOMPARE(reset.count(), 1);
    // Another order is shown at once.
    counted.clear();
    model_->sort(0, Qt::DescendingOrder);
    QTRY_VERIFY(!model_->turning() && !model_->growing());
    QCOMPARE(model_->rowCount(), 1050);
    QVERIFY(!counted.empty());
    QCOMPARE(counted.front(), 100);
    model_->disconnect(this);
  }

  void pages_that_were_scrolled_past_are_not_read() {
    open(10'000'000);
    fake_.delay_ms = 5;
    for (int row = 0; row < 10'000'000; row += 10'000) model_->index(row, 0).data();
    const QModelIndex last = model_->index(9'990'000, 0);
    QTRY_VERIFY(last.data(PagedModel::kFilledRole).toBool());
    QTRY_COMPARE(session_->busy(), 0);
    QVERIFY2(fake_.pages < 20, qPrintable(QString::number(fake_.pages)));
  }

  void it_holds_no_more_than_what_was_in_sight_last() {
    open(10'000'000);
    const int pages = static_cast<int>(PagedModel::kPagesKept) * 2;
    for (int page = 0; page < pages; ++page)
      QTRY_VERIFY(model_->filled(page * PagedModel::kPageRows));
    QVERIFY(!model_->filled(0));
    QVERIFY(model_->filled((pages - 1) * PagedModel::kPageRows));
  }

  void another_order_keeps_the_rows_and_drops_the_pages() {
    open(5000);
    QTRY_VERIFY(model_->filled(0));
    QSignalSpy reset(model_.get(), &PagedModel::modelReset);
    model_->sort(0, Qt::DescendingOrder);
    QTRY_COMPARE(model_->index(0, 0).data().toString(), QStringLiteral("5\u00a0000"));
    QVERIFY2(reset.isEmpty(), "the view would lose its place");
    model_->sort(4, Qt::AscendingOrder);  // not sortable
    QTest::qWait(20);
    QCOMPARE(model_->index(0, 0).data().toString(), QStringLiteral("5\u00a0000"));
  }

  void an_error_is_told() {
    open(10);
    fake_.problem = "gone";
    QSignalSpy loaded(model_.get(), &PagedModel::loaded);
    model_->reload();
    QTRY_VERIFY(model_->problem().contains(QStringLiteral("gone")));
    QCOMPARE(model_->rowCount(), 0);
    fake_.problem.clear();
  }

  void what_holds_the_thread_up_is_found() {
    StallWatch watch;
    QTest::qWait(50);
    QThread::msleep(static_cast<unsigned long>(kStallBarMs) + 100);
    QVERIFY(watch.stop() >= kStallBarMs);
  }

  void ten_million_rows_hold_nothing_up() {
    const double stall = least_stall_ms([&] {
      fake_.delay_ms = 0;
      open(10'000'000);
      fake_.delay_ms = 3;
      for (int i = 0; i < 50; ++i) {
        const int row = static_cast<int>((int64_t{i} * 7'919'113) % 10'000'000);
        const QModelIndex at = model_->index(row, 5);
        at.data();
        QTRY_VERIFY(at.data(PagedModel::kFilledRole).toBool());
        if (i == 25) model_->sort(0, Qt::DescendingOrder);
      }
      // A database that takes twice the bar to answer, on a thread of its own.
      fake_.delay_ms = 2 * static_cast<int>(kStallBarMs);
      const QModelIndex far = model_->index(5'000'003, 5);
      QVERIFY(!far.data(PagedModel::kFilledRole).toBool());
      far.data();
      QTRY_VERIFY(far.data(PagedModel::kFilledRole).toBool());
    });
    qInfo("longest stall: %.1f ms", stall);
    QVERIFY(stall < kStallBarMs);
  }
};
NIMBLE_QTEST(PagedModelTest)
#include "paged_model_test.moc"
