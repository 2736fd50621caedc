// Texts side by side, rooflines, and what `nimble run --profile` prints.
#include "gui/model/roofline.h"
#include "gui/model/run_profile.h"
#include "gui/model/test/qtest.h"
#include "gui/model/text_diff.h"
#include "vm/base/error.h"

using namespace nimble::gui;
namespace db = nimble::db;

class DiffTest : public QObject {
  Q_OBJECT

  // "=a -b +c ~d|e": same, only left, only right, a row of both that differ.
  static QString shown(const std::string& a, const std::string& b, std::ptrdiff_t most = 4000) {
    const auto left = lines_of(a), right = lines_of(b);
    QStringList out;
    for (const DiffLine& row : diff_of(left, right, Cancel(), most)) {
      const auto text = [](const std::vector<std::string_view>& side, std::ptrdiff_t at) {
        const std::string_view line = side[static_cast<size_t>(at)];
        return QString::fromUtf8(line.data(), static_cast<qsizetype>(line.size()));
      };
      out << (row.same        ? "=" + text(left, row.left)
              : row.left < 0  ? "+" + text(right, row.right)
              : row.right < 0 ? "-" + text(left, row.left)
                              : "~" + text(left, row.left) + "|" + text(right, row.right));
    }
    return out.join(' ');
  }

 private slots:
  void what_is_equal_stands_side_by_side_and_the_rest_against_gaps() {
    QCOMPARE(shown("a\nb\nc\n", "a\nb\nc\n"), QStringLiteral("=a =b =c"));
    QCOMPARE(shown("a\nb\nc", "a\nc"), QStringLiteral("=a -b =c"));
    QCOMPARE(shown("a\nc", "a\nb\nc"), QStringLiteral("=a +b =c"));
    QCOMPARE(shown("a\nb\nc", "a\nx\nc"), QStringLiteral("=a ~b|x =c"));
    QCOMPARE(shown("", "a\nb"), QStringLiteral("+a +b"));
    QCOMPARE(shown("a\nb", ""), QStringLiteral("-a -b"));
    QCOMPARE(shown("", ""), QString());
    QCOMPARE(shown("a\nb\nc\na\nb\nb\na", "c\nb\na\nb\na\nc").count('='), 4);  // of Myers' paper
  }

  void every_line_of_both_is_there_once_and_in_order() {
    uint32_t state = 12345;
    for (int round = 0; round < 200; ++round) {
      std::string texts[2];
      for (std::string& text : texts)
        for (uint32_t n = (state = state * 1664525 + 1013904223) >> 28; n > 0; --n)
          text += std::string(
                      1, static_cast<char>('a' + ((state = state * 1664525 + 1013904223) >> 30))) +
                  "\n";
      const auto left = lines_of(texts[0]), right = lines_of(texts[1]);
      std::ptrdiff_t x = 0, y = 0;
      for (const DiffLine& row : diff_of(left, right, Cancel())) {
        QVERIFY(row.left >= 0 || row.right >= 0);
        if (row.left >= 0) QCOMPARE(row.left, x++);
        if (row.right >= 0) QCOMPARE(row.right, y++);
        if (row.same)
          QVERIFY(left[static_cast<size_t>(row.left)] == right[static_cast<size_t>(row.right)]);
      }
      QCOMPARE(x, std::ssize(left));
      QCOMPARE(y, std::ssize(right));
    }
  }

  void texts_that_differ_too_much_stand_side_by_side_between_what_they_share() {
    QCOMPARE(shown("a\nb\nc\nd\nz", "a\n1\nb\n2\nd\nz", 1),
             QStringLiteral("=a ~b|1 ~c|b +2 =d =z"));
  }

  void a_diff_that_nobody_waits_for_ends() {
    const Cancel cancel;
    cancel.ask();
    const auto left = lines_of("a"), right = lines_of("b");
    QVERIFY_EXCEPTION_THROWN(diff_of(left, right, cancel), nimble::Error);
  }

  void a_share_is_of_the_ceilings_of_its_type_and_threads() {
    RooflineFacts f;
    const auto add = [&](const char* kind, const char* dtype, int64_t threads, double value) {
      db::Ceiling c;
      c.kind = kind;
      c.dtype = dtype;
      c.threads = threads;
      c.value = value;
      f.ceilings.push_back(c);
    };
    add("compute", "f32", 1, 100e9);
    add("compute", "f32", 2, 200e9);
    add("compute", "i8", 1, 400e9);
    add("read_memory", "any", 1, 10e9);
    add("read_l1", "any", 1, 300e9);
    RooflinePoint p;
    p.dtype = "f32";
    p.flops = 1'000'000;
    p.bytes = 500'000;
    p.result.median_ns = 100'000;  // 10 Gop/s at 2 op/B, under a roof of 20
    const RooflineRate r = rate_of(f, p);
    QCOMPARE(r.intensity, 2.0);
    QCOMPARE(r.rate, 10e9);
    QCOMPARE(r.of_peak.value(), 0.1);
    QCOMPARE(r.of_roof.value(), 0.5);
    QCOMPARE(roofs_of(f, "f32", 1).bandwidths.front().kind, std::string("read_memory"));
    p.threads = 4;
    QVERIFY(!rate_of(f, p).of_peak);
    p.threads = 2;
    QCOMPARE(rate_of(f, p).of_peak.value(), 0.05);
    QVERIFY(!rate_of(f, p).of_roof);  // no bandwidth of two threads was measured
  }

  void a_profile_is_read_with_the_dearest_first() {
    const RunProfile p = profile_from_json(R"({"copies":[],"instructions":[
      {"count":1,"name":"Ret","total_ns":5},{"count":2,"name":"InvokePacked","total_ns":900}],
      "kernel_ns":800,"kernels":[
      {"config":"{}","count":1,"implementation":"a","name":"k0","shape":{"s0":4},"share":0.1,
       "source":"add","threads":1,"total_ns":100},
      {"config":"{}","count":3,"implementation":"b","name":"k1","shape":{"s0":4,"s1":9},
       "share":0.7,"source":"matmul","threads":2,"total_ns":700}],
      "memory":{"held_bytes":10,"peak_live_bytes":8,"requests":5,"reuses":1},
      "overhead_ns":200,"runs":1,"wall_ns":1000})");
    QCOMPARE(p.wall_ns, 1000);
    QCOMPARE(p.peak_live_bytes, 8);
    QCOMPARE(p.kernels.front().name, std::string("k1"));
    QCOMPARE(p.kernels.front().shape, std::string("s0=4,s1=9"));
    QCOMPARE(p.instructions.front().name, std::string("InvokePacked"));
  }

  void what_is_no_profile_is_refused() {
    for (const char* text :
         {"", "[]", "{}", R"({"wall_ns":"x"})", R"({"wall_ns":1,"kernel_ns":1,)"})
      QVERIFY_EXCEPTION_THROWN(profile_from_json(text), nimble::Error);
  }
};
NIMBLE_QTEST(DiffTest)
#include "diff_test.moc"
