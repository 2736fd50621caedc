#include "gui/model/session.h"

#include "db/store/test/all.h"
#include "gui/model/selection.h"
#include "gui/model/test/fake_reader.h"
#include "gui/model/test/qtest.h"

using namespace nimble::gui;
namespace db = nimble::db;

class SessionTest : public QObject {
  Q_OBJECT
  FakeDatabase fake_;
  Session::OpenReader opener() {
    return [this](const DatabasePlace&) { return std::make_unique<FakeReader>(fake_); };
  }
  static Question count(Session& s, QObject* to, std::function<void(Answer<int64_t>)> told) {
    return s.ask<int64_t>(
        to, [](Reader& r, const Cancel& c) { return r.trial_count({}, c); }, std::move(told));
  }

 private slots:
  void init() {
    fake_.trials = 7;
    fake_.delay_ms = 0;
    fake_.problem.clear();
    fake_.opened = fake_.pages = fake_.cancelled = 0;
  }

  void an_answer_comes_in_the_thread_that_asked() {
    Session s(nullptr, opener());
    s.open({"x"});
    int64_t got = 0;
    QThread* thread = nullptr;
    const Question q = count(s, this, [&](const Answer<int64_t>& a) {
      got = a.value.value();
      thread = QThread::currentThread();
    });
    QCOMPARE(s.busy(), 1);
    QTRY_COMPARE(got, 7);
    QCOMPARE(thread, this->thread());
    QTRY_COMPARE(s.busy(), 0);
  }

  void a_reader_is_kept_for_the_next_question() {
    Session s(nullptr, opener());
    s.open({"x"});
    for (int i = 0; i < 5; ++i) {
      bool told = false;
      const Question q = count(s, this, [&](const Answer<int64_t>&) { told = true; });
      QTRY_VERIFY(told);
    }
    QCOMPARE(fake_.opened.load(), 1);
  }

  void an_error_is_told_and_the_reader_is_not_trusted_again() {
    Session s(nullptr, opener());
    s.open({"x"});
    fake_.problem = "the disk is gone";
    QString error;
    const Question q = count(s, this, [&](const Answer<int64_t>& a) { error = a.error; });
    QTRY_VERIFY(error.contains(QStringLiteral("the disk is gone")));
    fake_.problem.clear();
    bool told = false;
    const Question next = count(s, this, [&](const Answer<int64_t>& a) { told = !!a.value; });
    QTRY_VERIFY(told);
    QCOMPARE(fake_.opened.load(), 2);
  }

  void what_is_dropped_ends_early_and_tells_nothing() {
    fake_.delay_ms = 60'000;
    Session s(nullptr, opener());
    s.open({"x"});
    bool told = false;
    Question q = count(s, this, [&](const Answer<int64_t>&) { told = true; });
    QTest::qWait(20);
    q.drop();
    QTRY_COMPARE(s.busy(), 0);
    QVERIFY(!told);
    // Asking anew into the same place drops the former.
    q = count(s, this, [&](const Answer<int64_t>&) { told = true; });
    q = count(s, this, [&](const Answer<int64_t>&) { told = true; });
    q.drop();
    QTRY_COMPARE(s.busy(), 0);
    QVERIFY(!told);
  }

  void another_database_drops_what_was_asked_of_the_former() {
    fake_.delay_ms = 60'000;
    Session s(nullptr, opener());
    s.open({"x"});
    bool told = false;
    const Question q = count(s, this, [&](const Answer<int64_t>&) { told = true; });
    QTest::qWait(20);
    s.open({"y"});
    QTRY_COMPARE(s.busy(), 0);
    QVERIFY(!told);
  }

  void a_receiver_that_is_gone_is_told_nothing() {
    fake_.delay_ms = 30;
    Session s(nullptr, opener());
    s.open({"x"});
    auto receiver = std::make_unique<QObject>();
    bool told = false;
    const Question q = count(s, receiver.get(), [&](const Answer<int64_t>&) { told = true; });
    receiver.reset();
    QTRY_COMPARE(s.busy(), 0);
    QVERIFY(!told);
  }

  void the_end_does_not_wait_for_long_questions() {
    fake_.delay_ms = 60'000;
    QElapsedTimer clock;
    clock.start();
    {
      Session s(nullptr, opener());
      s.open({"x"});
      const Question q = count(s, this, [](const Answer<int64_t>&) {});
      QTest::qWait(10);
    }
    QVERIFY(clock.elapsed() < 30'000);
  }

  void without_a_database_the_answer_says_so() {
    Session s(nullptr, opener());
    QString error;
    const Question q = count(s, this, [&](const Answer<int64_t>& a) { error = a.error; });
    QTRY_VERIFY(error.contains(QStringLiteral("none is open")));
  }

  void what_is_written_makes_windows_look_again() {
    const CampaignCopy campaign;
    Session s;
    s.open({campaign.place()});
    QSignalSpy changed(&s, &Session::changed);
    Answer<QString> got;
    s.write(
        this, [](db::Store& store) { return QString::number(db::all_tables(store).size()); },
        [&](const Answer<QString>& a) { got = a; });
    QTRY_COMPARE(changed.size(), 1);
    QCOMPARE(got.value.value(), QStringLiteral("7"));
  }

  void a_database_open_for_reading_is_not_written() {
    const CampaignCopy campaign;
    Session s;
    s.open({campaign.place(), true});
    QString error;
    bool ran = false;
    s.write(
        this,
        [&](db::Store&) {
          ran = true;
          return QString();
        },
        [&](const Answer<QString>& a) { error = a.error; });
    QTRY_VERIFY(error.contains(QStringLiteral("reading alone")));
    QVERIFY(!ran);
  }

  void it_sees_what_others_write() {
    const CampaignCopy campaign;
    Session s;
    s.open({campaign.place(), true});
    QSignalSpy changed(&s, &Session::changed);
    s.watch(10);
    QTest::qWait(100);
    QCOMPARE(changed.size(), 0);
    const auto store = db::Store::open(campaign.place());
    const db::DispatchTable t = db::all_tables(*store).front();
    store->add(db::NewOverride{t.workload, t.hardware, {}, t.entries[0].config, "a test"});
    QTRY_COMPARE(changed.size(), 1);
  }

  void another_workload_takes_what_hung_on_the_former_along() {
    Selection selection;
    Choice c;
    c.workload = "w";
    c.hardware = "h";
    c.shape = "m=1";
    c.config = "c";
    c.table = "t";
    c.campaign = "k";
    selection.set(c);
    QCOMPARE(selection.now().shape, c.shape);
    QSignalSpy changed(&selection, &Selection::changed);
    selection.set_workload("w");
    QCOMPARE(changed.size(), 0);
    selection.set_workload("other");
    QCOMPARE(changed.size(), 1);
    QVERIFY(selection.now().shape.empty() && selection.now().config.empty() &&
            selection.now().table.empty());
    QCOMPARE(selection.now().campaign, c.campaign);
    QCOMPARE(selection.now().hardware, c.hardware);
  }
};
NIMBLE_QTEST(SessionTest)
#include "session_test.moc"
