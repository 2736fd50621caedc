// The trace of a run as the time line draws it, and what is refused.
#include "gui/model/run_trace.h"
#include "gui/model/test/qtest.h"

using namespace nimble::gui;
using nimble::Error;
using nimble::Status;

class TraceTest : public QObject {
  Q_OBJECT

  static std::string event(const std::string& rest) { return "{" + rest + "}"; }
  static std::string whole(const std::string& events, const std::string& dropped = "0") {
    return R"({"displayTimeUnit":"ns","otherData":{"dropped_instructions":)" + dropped +
           R"(,"instructions":3},"traceEvents":[)" + events + "]}";
  }
  static RunTrace read(const std::string& json) { return trace_from_json(json, Cancel()); }
  static Status failure(const std::string& json) {
    try {
      read(json);
    } catch (const Error& e) {
      return e.status();
    }
    return Status::kOk;
  }
  static constexpr char kRun[] =
      R"J({"name":"process_name","ph":"M","pid":1,"tid":1,"args":{"name":"nimble"}},
{"name":"memory","ph":"C","ts":0,"pid":1,"args":{"cpu":64}},
{"name":"main","cat":"function","ph":"X","ts":0,"dur":10,"pid":1,"tid":1,"args":{"depth":1}},
{"name":"Invoke","cat":"instruction","ph":"X","ts":0,"dur":1,"pid":1,"tid":1,"args":{"depth":1}},
{"name":"turn","cat":"function","ph":"X","ts":1,"dur":5.5,"pid":1,"tid":1,"args":{"depth":2}},
{"name":"InvokePacked","cat":"instruction","ph":"X","ts":2,"dur":3,"pid":1,"tid":1,
 "args":{"depth":2,"arguments":"f32 (3), f32 (3)"
}
},
{"name":"add","cat":"kernel","ph":"X","ts":2.25,"dur":2.5,"pid":1,"tid":1,
 "args":{"source":"add at /Add","shape":{"n":3,"m":1},"threads":2}},
{"name":"memory","ph":"C","ts":6,"pid":1,"args":{"cuda":32}},
{"name":"memory","ph":"C","ts":8,"pid":1,"args":{"cpu":0}})J";

 private slots:
  void spans_stand_on_lanes_by_depth_and_kind() {
    const RunTrace t = read(whole(kRun, "7"));
    QCOMPARE(t.spans.size(), size_t{5});
    QCOMPARE(t.depth, 2);
    QCOMPARE(t.lanes(), 4);
    QCOMPARE(t.ns, int64_t{10'000});
    QCOMPARE(t.dropped, int64_t{7});
    const int lanes[] = {0, 2, 1, 2, 3};
    for (size_t i = 0; i < 5; ++i) QCOMPARE(t.spans[i].lane, lanes[i]);
    const TraceSpan& kernel = t.spans[4];
    QVERIFY(kernel.kind == SpanKind::kKernel);
    QCOMPARE(kernel.start_ns, int64_t{2250});
    QCOMPARE(kernel.ns, int64_t{2500});
    QVERIFY2(kernel.text.contains(QStringLiteral("m=1,n=3")), qPrintable(kernel.text));
    QVERIFY(kernel.text.contains(QStringLiteral("source: add at /Add")));
    const TraceGroup& group = t.groups[kernel.group];
    QCOMPARE(group.shape, std::string("m=1,n=3"));
    QCOMPARE(group.operands, QStringLiteral("f32 (3), f32 (3)"));
    QVERIFY(!group.operands_differ);
  }

  void memory_adds_up_over_devices() {
    const RunTrace t = read(whole(kRun));
    QCOMPARE(t.bytes_at(-1), int64_t{0});
    QCOMPARE(t.bytes_at(0), int64_t{64});
    QCOMPARE(t.bytes_at(5'999), int64_t{64});
    QCOMPARE(t.bytes_at(6'000), int64_t{96});
    QCOMPARE(t.bytes_at(100'000), int64_t{32});
  }

  void deep_calls_share_the_last_lane() {
    std::string events;
    for (int depth = 1; depth <= 40; ++depth)
      events += std::string(depth > 1 ? "," : "") +
                R"({"name":"f","cat":"function","ph":"X","ts":0,"dur":1,"args":{"depth":)" +
                std::to_string(depth) + "}}";
    const RunTrace t = read(whole(events));
    QCOMPARE(t.depth, RunTrace::kMostDepth);
    QCOMPARE(t.spans.back().lane, RunTrace::kMostDepth - 1);
  }

  void text_of_a_model_is_one_plain_line() {
    const RunTrace t = read(whole(
        R"({"name":"a\nb\u202e","cat":"function","ph":"X","ts":0,"dur":1,"args":{"depth":1}})"));
    QVERIFY(!t.spans[0].name.contains(u'\n'));
    QVERIFY(!t.spans[0].text.contains(QChar(0x202e)));
  }

  void what_is_no_trace_is_refused_data() {
    QTest::addColumn<QString>("events");
    const auto row = [](const char* name, const char* events) {
      QTest::newRow(name) << QString::fromLatin1(events);
    };
    row("no object", "1");
    row("no phase", "{}");
    row("another phase", R"({"ph":"B"})");
    row("time below 0",
        R"({"name":"f","cat":"function","ph":"X","ts":-1,"dur":1,"args":{"depth":1}})");
    row("endless",
        R"({"name":"f","cat":"function","ph":"X","ts":0,"dur":1e300,"args":{"depth":1}})");
    row("no depth", R"({"name":"f","cat":"function","ph":"X","ts":0,"dur":1,"args":{"depth":0}})");
    row("large depth",
        R"({"name":"f","cat":"function","ph":"X","ts":0,"dur":1,"args":{"depth":1e30}})");
    row("name", R"({"name":3,"cat":"function","ph":"X","ts":0,"dur":1,"args":{"depth":1}})");
    row("category", R"({"name":"f","cat":"other","ph":"X","ts":0,"dur":1,"args":{}})");
    row("memory below 0", R"({"name":"memory","ph":"C","ts":0,"args":{"cpu":-1}})");
    row("memory of 2^64 - 1",
        R"({"name":"memory","ph":"C","ts":0,"args":{"cpu":18446744073709551615}})");
    row("memory of text", R"({"name":"memory","ph":"C","ts":0,"args":{"cpu":"x"}})");
    row("nested", R"({"name":"f","ph":"X","args":[[[[[[[[[[1]]]]]]]]]]})");
    row("shape",
        R"({"name":"k","cat":"kernel","ph":"X","ts":0,"dur":1,"args":{"shape":{"n":"x"}}})");
  }
  void what_is_no_trace_is_refused() {
    QFETCH(QString, events);
    const std::string text = events.toStdString();
    // What is no object among the events is left over, and says nothing.
    if (text == "1") {
      QCOMPARE(read(whole(text)).spans.size(), size_t{0});
      return;
    }
    QVERIFY(failure(whole(text)) == Status::kCorrupt);
  }

  void other_files_are_refused() {
    for (const char* text : {"", "{", "[]", "{}", "7", R"({"otherData":{}})", "\xff\xfe"})
      QVERIFY2(failure(text) == Status::kCorrupt, text);
  }

  void a_trace_beyond_the_limits_is_refused() {
    QVERIFY(failure(std::string(kMostTraceBytes + 1, ' ')) == Status::kUnsupported);
    std::string events = R"({"ph":"M"})";
    const std::string more = "," + events;
    for (size_t i = 0; i < kMostSpans; ++i) events += more;
    QVERIFY(failure(whole(events)) == Status::kUnsupported);
  }

  void reading_ends_when_nobody_waits() {
    const Cancel cancel;
    cancel.ask();
    std::string events = R"({"ph":"M"})";
    for (int i = 0; i < 2000; ++i) events += R"(,{"ph":"M"})";
    try {
      trace_from_json(whole(events), cancel);
      QFAIL("it went on");
    } catch (const Error& e) {
      QVERIFY(e.status() == Status::kCancelled);
    }
  }
};
NIMBLE_QTEST(TraceTest)
#include "trace_test.moc"
