// Axes over ranges short and long, and labels longer than their axes.
#include "gui/view/axes.h"

#include <set>

#include "gui/model/test/qtest.h"

using namespace nimble::gui;

class AxesTest : public QObject {
  Q_OBJECT

  static QVector<QString> labels_of(QCPAxis* axis, double lower, double upper) {
    axis->setRange(lower, upper);
    QVector<double> ticks, between;
    QVector<QString> labels;
    const QByteArray format = axis->numberFormat().toLatin1();
    axis->ticker()->generate(axis->range(), QLocale::c(), QLatin1Char(format[0]),
                             axis->numberPrecision(), ticks, &between, &labels);
    // Ticks just beyond the range are there for what lies between.
    QVector<QString> seen;
    for (qsizetype i = 0; i < ticks.size(); ++i)
      if (ticks[i] >= lower && ticks[i] <= upper) seen << labels[i];
    return seen;
  }
  static void check(const QVector<QString>& labels) {
    QVERIFY2(labels.size() >= 2, qPrintable(labels.join(QLatin1Char(' '))));
    QVERIFY2(std::set<QString>(labels.begin(), labels.end()).size() ==
                 static_cast<size_t>(labels.size()),
             qPrintable(labels.join(QLatin1Char(' '))));
  }

 private slots:
  void no_two_labels_of_a_time_axis_are_alike() {
    QCustomPlot plot;
    for (const double ratio : {1.00002, 1.001, 1.01, 1.3, 2.0, 9.0, 29.0, 31.0, 1000.0, 1e6}) {
      const TimeUnit unit = set_time_axis(plot.yAxis, QStringLiteral("time"), 1234, 1234 * ratio);
      check(labels_of(plot.yAxis, 1234 / unit.ns, 1234 * ratio / unit.ns));
    }
  }

  void extents_are_whole_over_any_range() {
    QCustomPlot plot;
    set_extent_axis(plot.xAxis, "s0");
    check(labels_of(plot.xAxis, 0.8, 300));
    check(labels_of(plot.xAxis, 33, 47));
    QCOMPARE(labels_of(plot.xAxis, 0.7, 3.3).join(QLatin1Char(' ')), QStringLiteral("1 2 3"));
  }

  // The axis of the dispatch editor was one of extents: its labels read "1 1 1".
  void an_axis_of_extents_counts_with_digits_again_as_a_linear_one() {
    QCustomPlot plot;
    set_extent_axis(plot.yAxis, "s0");
    set_linear_axis(plot.yAxis, QStringLiteral("regret (%)"));
    QCOMPARE(plot.yAxis->scaleType(), QCPAxis::stLinear);
    check(labels_of(plot.yAxis, 1, 1.4));
  }

  void a_label_longer_than_its_axis_is_broken_and_joined_again() {
    QCustomPlot plot;
    const QString label = QStringLiteral("time over the best measured, less 1 (%)");
    plot.yAxis->setLabel(label);
    plot.setViewport(QRect(0, 0, 400, 180));
    plot.replot();
    QVERIFY(fit_labels(plot));
    const QStringList lines = plot.yAxis->label().split(QLatin1Char('\n'));
    QVERIFY(lines.size() > 1);
    QCOMPARE(lines.join(QLatin1Char(' ')), label);
    for (const QString& line : lines)
      QVERIFY(QFontMetrics(plot.yAxis->labelFont()).horizontalAdvance(line) <=
              plot.axisRect()->height());
    QVERIFY(!fit_labels(plot));
    plot.setViewport(QRect(0, 0, 400, 900));
    plot.replot();
    QVERIFY(fit_labels(plot));
    QCOMPARE(plot.yAxis->label(), label);
  }
};
NIMBLE_QTEST(AxesTest)
#include "axes_test.moc"
