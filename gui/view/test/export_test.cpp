// The program nimble-gui without a display: --export of every window in every format, and how it
// answers what cannot be.
#include <QImage>
#include <QJsonDocument>
#include <QProcess>
#include <QXmlStreamReader>

#include "gui/model/test/qtest.h"
#include "gui/view/view.h"

using namespace nimble::gui;

class ExportTest : public QObject {
  Q_OBJECT
  std::unique_ptr<CampaignCopy> campaign_;
  QTemporaryDir out_;

  struct Result {
    int code = -1;
    QString out;
  };
  static Result run(const QStringList& arguments) {
    QProcess process;
    process.setProcessChannelMode(QProcess::MergedChannels);
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    environment.remove(QStringLiteral("QT_QPA_PLATFORM"));
    environment.remove(QStringLiteral("DISPLAY"));
    environment.remove(QStringLiteral("WAYLAND_DISPLAY"));
    environment.remove(QStringLiteral("NIMBLE_DB"));
    process.setProcessEnvironment(environment);
    process.start(QStringLiteral(NIMBLE_GUI_PROGRAM), arguments);
    process.waitForFinished(120'000);
    return {process.exitStatus() == QProcess::NormalExit ? process.exitCode() : -1,
            QString::fromUtf8(process.readAll())};
  }
  Result export_to(const QString& view, const QString& file, const QStringList& more = {}) {
    return run(QStringList{"--export", view, "--db", campaign_->path(), "--output", file} + more);
  }

 private slots:
  void initTestCase() { campaign_ = std::make_unique<CampaignCopy>(); }

  void every_window_in_every_format_data() {
    QTest::addColumn<QString>("view");
    for (const ViewInfo& info : views()) QTest::newRow(info.name) << QString(info.name);
  }
  void every_window_in_every_format() {
    QFETCH(QString, view);
    const QString base = out_.filePath(view);
    const QStringList choice = {"--workload", "softmax", "--shape", "s0=8", "--size", "900x600"};
    const Result csv = export_to(view, base + ".csv", choice);
    // Of these the campaign's database has nothing.
    if (QStringList{"failures", "machines", "code", "run"}.contains(view)) {
      QCOMPARE(csv.code, 1);
      QVERIFY2(csv.out.contains(QStringLiteral("nothing to show")), qPrintable(csv.out));
      return;
    }
    QStringList more = choice;
    if (view == QLatin1String("samples")) {
      QVERIFY2(csv.out.contains(QStringLiteral("Choose a measurement")), qPrintable(csv.out));
      more << "--config" << default_config();
      QCOMPARE(export_to(view, base + ".csv", more).code, 0);
    } else {
      QVERIFY2(csv.code == 0, qPrintable(csv.out));
    }
    QFile file(base + ".csv");
    QVERIFY(file.open(QIODevice::ReadOnly));
    const QByteArrayList lines = file.readAll().split('\n');
    QVERIFY(lines.size() > 3);
    QVERIFY(!lines[0].isEmpty());

    QCOMPARE(export_to(view, base + ".json", more).code, 0);
    QFile json(base + ".json");
    QVERIFY(json.open(QIODevice::ReadOnly));
    const auto rows = QJsonDocument::fromJson(json.readAll()).array();
    QVERIFY(!rows.isEmpty());
    QCOMPARE(rows[0].toObject().contains(QString::fromUtf8(lines[0].split(',')[0])), true);

    QCOMPARE(export_to(view, base + ".png", more + QStringList{"--scale", "2"}).code, 0);
    const QImage image(base + ".png");
    QCOMPARE(image.size(), QSize(1800, 1200));
    QVERIFY(colours_of(image) > 8);

    QCOMPARE(export_to(view, base + ".svg", more).code, 0);
    QFile svg(base + ".svg");
    QVERIFY(svg.open(QIODevice::ReadOnly));
    QXmlStreamReader xml(&svg);
    int shapes = 0;
    while (!xml.atEnd())
      if (xml.readNext() == QXmlStreamReader::StartElement)
        shapes += xml.name() == QLatin1String("path") || xml.name() == QLatin1String("text") ||
                  xml.name() == QLatin1String("polyline") || xml.name() == QLatin1String("image");
    QVERIFY2(!xml.hasError(), qPrintable(xml.errorString()));
    QVERIFY2(shapes > 5, qPrintable(QString::number(shapes)));
  }

  void dark_is_dark() {
    const QString file = out_.filePath(QStringLiteral("dark.png"));
    QCOMPARE(export_to("latency", file, {"--theme", "dark"}).code, 0);
    QVERIFY(QImage(file).pixelColor(2, 2).lightness() < 90);
    QCOMPARE(export_to("latency", file, {"--theme", "light"}).code, 0);
    QVERIFY(QImage(file).pixelColor(2, 2).lightness() > 200);
  }

  void what_cannot_be_is_named_with_a_remedy_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::addColumn<int>("code");
    QTest::addColumn<QString>("said");
    const QStringList to = {"--output", "x.csv"};
    QTest::newRow("window") << QStringList{"--export", "heat", "--db", "@"} + to << 2
                            << "one of workloads, campaigns";
    QTest::newRow("workload") << QStringList{"--export", "heatmap",    "--db",
                                             "@",        "--workload", "conv"} +
                                     to
                              << 1 << "no workload begins so";
    QTest::newRow("several") << QStringList{"--export", "heatmap",    "--db",
                                            "@",        "--workload", "matmul"} +
                                    to
                             << 1 << "names several workloads";
    QTest::newRow("database") << QStringList{"--export", "heatmap", "--db", "/no/such.db"} + to << 1
                              << "/no/such.db";
    QTest::newRow("format") << QStringList{"--export", "heatmap", "--db",       "@",
                                           "--output", "x.gif",   "--workload", "softmax"}
                            << 2 << "end it with .csv";
    QTest::newRow("no output") << QStringList{"--export", "heatmap", "--db", "@"} << 2
                               << "--output";
    QTest::newRow("size") << QStringList{"--export", "heatmap", "--db", "@", "--size", "9"} + to
                          << 2 << "1200x800";
    QTest::newRow("option") << QStringList{"--exprt", "heatmap"} << 2 << "did you mean --export?";
    QTest::newRow("display") << QStringList{"--db", "@"} << 1 << "there is no display";
  }
  void what_cannot_be_is_named_with_a_remedy() {
    QFETCH(QStringList, arguments);
    QFETCH(int, code);
    QFETCH(QString, said);
    for (QString& a : arguments)
      if (a == QLatin1String("@")) a = campaign_->path();
    const Result r = run(arguments);
    QVERIFY2(r.out.contains(said), qPrintable(r.out));
    QCOMPARE(r.code, code);
    QCOMPARE(r.out.count('\n'), 1);
  }

  void the_help_and_the_list_tell_every_window() {
    const Result help = run({"--help"});
    QCOMPARE(help.code, 0);
    QVERIFY(help.out.contains(QStringLiteral("nimble gui --export heatmap")));
    const Result list = run({"--list"});
    QCOMPARE(list.code, 0);
    for (const ViewInfo& info : views())
      QVERIFY(list.out.contains(QStringLiteral("\n  ") + info.name + ' '));
  }

 private:
  QString default_config() const {
    QFile file(out_.filePath(QStringLiteral("latency.csv")));
    if (!file.exists()) export_latency();
    if (!file.open(QIODevice::ReadOnly)) return {};
    for (const QByteArray& line : file.readAll().split('\n'))
      if (line.startsWith("s0=8,default,")) return QString::fromUtf8(line.split(',')[2]);
    return {};
  }
  void export_latency() const {
    run({"--export", "latency", "--db", campaign_->path(), "--workload", "softmax", "--output",
         out_.filePath(QStringLiteral("latency.csv"))});
  }
  static int colours_of(const QImage& image) {
    QSet<QRgb> colours;
    for (int y = 0; y < image.height(); y += 3)
      for (int x = 0; x < image.width(); x += 3) colours.insert(image.pixel(x, y));
    return static_cast<int>(colours.size());
  }
};
NIMBLE_QTEST(ExportTest)
#include "export_test.moc"
