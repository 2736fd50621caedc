#include "gui/model/dispatch_tree.h"
#include "gui/model/test/qtest.h"
#include "vm/base/error.h"

using namespace nimble::gui;

class TreeTest : public QObject {
  Q_OBJECT
  static constexpr char kTree[] =
      R"({"nodes":[{"feature":"symbol","a":"s0","op":"<=","value":34,"yes":1,"no":2},)"
      R"({"feature":"mod","a":"s1","t":8,"op":"==","value":0,"yes":3,"no":4},)"
      R"({"feature":"ceildiv","a":"s0","t":16,"op":"<=","value":4,"yes":3,"no":5},)"
      R"({"leaf":0},{"leaf":1},)"
      R"({"feature":"product","a":"s0","b":"s1","op":"<=","value":1000,"yes":6,"no":7},)"
      R"({"leaf":1},{"leaf":2}]})";
 private slots:
  void every_feature_decides() {
    const DispatchTree t = DispatchTree::from_json(kTree, 3);
    QCOMPARE(t.entry_at({{"s0", 34}, {"s1", 16}}, 1), 0);
    QCOMPARE(t.entry_at({{"s0", 34}, {"s1", 17}}, 1), 1);
    QCOMPARE(t.entry_at({{"s0", 64}, {"s1", 17}}, 1), 0);
    QCOMPARE(t.entry_at({{"s0", 65}, {"s1", 15}}, 1), 1);
    QCOMPARE(t.entry_at({{"s0", 65}, {"s1", 16}}, 1), 2);
    // A product beyond 64 bits is large, not small.
    QCOMPARE(t.entry_at({{"s0", INT64_MAX}, {"s1", INT64_MAX}}, 1), 2);
  }
  void the_way_down_is_told() {
    const DispatchTree t = DispatchTree::from_json(kTree, 3);
    const auto path = t.path_at({{"s0", 34}, {"s1", 17}}, 1);
    QCOMPARE(path.size(), size_t{3});
    QCOMPARE(QString::fromStdString(text_of(t.nodes()[path[0].node])), QStringLiteral("s0 <= 34"));
    QVERIFY(path[0].holds);
    QCOMPARE(QString::fromStdString(text_of(t.nodes()[path[1].node])),
             QStringLiteral("mod(s1,8) == 0"));
    QCOMPARE(path[1].value, 1);
    QVERIFY(!path[1].holds);
  }
  void borders_are_where_an_answer_changes() {
    const DispatchTree t = DispatchTree::from_json(kTree, 3);
    QCOMPARE(t.borders_of("s0"), (std::vector<int64_t>{34, 64}));
    QVERIFY(t.borders_of("s1").empty());
  }
  void it_is_written_as_it_was_read() {
    const DispatchTree t = DispatchTree::from_json(kTree, 3);
    QCOMPARE(DispatchTree::from_json(t.json(), 3).json(), t.json());
    QCOMPARE(QJsonDocument::fromJson(QByteArray::fromStdString(t.json())),
             QJsonDocument::fromJson(kTree));
  }
  void what_is_no_tree_is_refused_data() {
    QTest::addColumn<QString>("json");
    QTest::newRow("no JSON") << "{";
    QTest::newRow("no nodes") << "{}";
    QTest::newRow("empty") << R"({"nodes":[]})";
    QTest::newRow("entry") << R"({"nodes":[{"leaf":3}]})";
    QTest::newRow("negative entry") << R"({"nodes":[{"leaf":-1}]})";
    QTest::newRow("cycle")
        << R"({"nodes":[{"feature":"symbol","a":"s","op":"<=","value":1,"yes":0,"no":1},{"leaf":0}]})";
    QTest::newRow("outside")
        << R"({"nodes":[{"feature":"symbol","a":"s","op":"<=","value":1,"yes":1,"no":2},{"leaf":0}]})";
    QTest::newRow("divisor")
        << R"({"nodes":[{"feature":"mod","a":"s","t":0,"op":"<=","value":1,"yes":1,"no":1},{"leaf":0}]})";
    QTest::newRow("feature")
        << R"({"nodes":[{"feature":"moon","op":"<=","value":1,"yes":1,"no":1},{"leaf":0}]})";
  }
  void what_is_no_tree_is_refused() {
    QFETCH(QString, json);
    QVERIFY_EXCEPTION_THROWN(DispatchTree::from_json(json.toStdString(), 3), nimble::Error);
  }
};
NIMBLE_QTEST(TreeTest)
#include "tree_test.moc"
