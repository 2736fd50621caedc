#include "gui/model/units.h"

#include "gui/model/table_data.h"
#include "gui/model/test/qtest.h"
#include "vm/base/error.h"

using namespace nimble::gui;

class UnitsTest : public QObject {
  Q_OBJECT
 private slots:
  void times_have_the_unit_that_suits() {
    QCOMPARE(time_text(812), QStringLiteral("812\u00a0ns"));
    QCOMPARE(time_text(999.96), QStringLiteral("1000\u00a0ns"));
    QCOMPARE(time_text(12'345), QStringLiteral("12.35\u00a0µs"));
    QCOMPARE(time_text(1'204'000), QStringLiteral("1.204\u00a0ms"));
    QCOMPARE(time_text(3.5e9), QStringLiteral("3.5\u00a0s"));
  }
  void numbers_are_read_at_a_glance() {
    QCOMPARE(count_text(0), QStringLiteral("0"));
    QCOMPARE(count_text(-1234), QStringLiteral("-1\u00a0234"));
    QCOMPARE(count_text(10'000'000), QStringLiteral("10\u00a0000\u00a0000"));
    QCOMPARE(number_text(123'456.0), QStringLiteral("123456"));
    QCOMPARE(percent_text(0.0213), QStringLiteral("2.1\u00a0%"));
    QCOMPARE(percent_text(std::nan("")), QStringLiteral("–"));
    QCOMPARE(factor_text(1.234), QStringLiteral("1.23×"));
    QCOMPARE(duration_text(88.61), QStringLiteral("88.6 s"));
    QCOMPARE(duration_text(4320), QStringLiteral("72 min 0 s"));
    QCOMPARE(duration_text(90'000), QStringLiteral("25 h 0 min"));
    QCOMPARE(moment_text(0), QString());
  }
  void text_of_a_database_is_one_plain_line() {
    QCOMPARE(plain_text("a\nb\tc\x1b[31m"), QStringLiteral("a b c [31m"));
    QCOMPARE(plain_text("x\u202eevil"), QStringLiteral("x evil"));
    QCOMPARE(plain_text("x\u200fe\u061cv\u2029il"), QStringLiteral("x e v il"));
    QCOMPARE(plain_text("abcdef", 3), QStringLiteral("abc…"));
    QCOMPARE(plain_text(std::string(10'000'000, 'x'), 3), QStringLiteral("xxx…"));
    QCOMPARE(plain_text("äöüßé", 4), QStringLiteral("äöüß…"));
    QCOMPARE(plain_text("😀😀", 4), QStringLiteral("😀😀"));
    QVERIFY(!plain_text("\xff\xfe").isNull());
  }
  void tables_are_written_as_csv_and_json() {
    const TableData t{{"shape", "median_ns", "ok"},
                      {{"m=1,n=2", 12.5, true}, {"say \"x\"", QVariant(), false}}};
    QCOMPARE(
        QString::fromStdString(csv_of(t)),
        QStringLiteral("shape,median_ns,ok\n\"m=1,n=2\",12.5,true\n\"say \"\"x\"\"\",,false\n"));
    const auto json = QJsonDocument::fromJson(QByteArray::fromStdString(json_of(t))).array();
    QCOMPARE(json.size(), 2);
    QCOMPARE(json[0]["median_ns"].toDouble(), 12.5);
    QCOMPARE(json[1]["shape"].toString(), QStringLiteral("say \"x\""));
    QVERIFY(json[1]["median_ns"].isUndefined());
    QCOMPARE(json[1]["ok"].toBool(true), false);
  }
  void a_file_that_cannot_be_written_is_named() {
    QVERIFY_EXCEPTION_THROWN(write_file(QStringLiteral("/no/such/folder/x.csv"), "x"),
                             nimble::Error);
  }
};
NIMBLE_QTEST(UnitsTest)
#include "units_test.moc"
