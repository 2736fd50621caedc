#include <random>

#include "gui/model/dispatch_tree.h"
#include "gui/model/test/qtest.h"
#include "vm/base/error.h"
#include "vm/executable/dispatch_json.h"

using namespace nimble::gui;
namespace exec = nimble::exec;

// A tree of every kind of feature and test over two symbols, of inner nodes and then leaves.
exec::DispatchTree random_tree(std::mt19937& random) {
  const auto up_to = [&](uint32_t most) {
    return std::uniform_int_distribution<uint32_t>(0, most)(random);
  };
  exec::DispatchTree tree;
  const uint32_t inner = 1 + up_to(7), all = inner + 4;
  for (uint32_t i = 0; i < inner; ++i) {
    exec::DispatchNode n;
    n.test = up_to(1) ? exec::DispatchNode::Test::kEqual : exec::DispatchNode::Test::kLessEqual;
    n.feature.kind = static_cast<exec::DispatchFeature::Kind>(up_to(4));
    using Kind = exec::DispatchFeature::Kind;
    if (n.feature.kind != Kind::kThreads) n.feature.a = up_to(1);
    if (n.feature.kind == Kind::kProduct) n.feature.b = up_to(1);
    if (n.feature.kind == Kind::kCeilDiv || n.feature.kind == Kind::kMod)
      n.feature.t = 1 + up_to(7);
    n.threshold = up_to(n.feature.kind == Kind::kProduct ? 400 : 12);
    n.yes = i + 1 + up_to(all - i - 2);
    n.no = i + 1 + up_to(all - i - 2);
    tree.nodes.push_back(n);
  }
  for (uint32_t i = inner; i < all; ++i)
    tree.nodes.push_back({exec::DispatchNode::Test::kLeaf, {}, 0, i - inner, 0});
  return tree;
}

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
    const DispatchTree t = DispatchTree::from_json(kTree, 3, {"s0", "s1"});
    QCOMPARE(t.entry_at({{"s0", 34}, {"s1", 16}}, 1), 0);
    QCOMPARE(t.entry_at({{"s0", 34}, {"s1", 17}}, 1), 1);
    QCOMPARE(t.entry_at({{"s0", 64}, {"s1", 17}}, 1), 0);
    QCOMPARE(t.entry_at({{"s0", 65}, {"s1", 15}}, 1), 1);
    QCOMPARE(t.entry_at({{"s0", 65}, {"s1", 16}}, 1), 2);
    // A product beyond 64 bits is large, not small.
    QCOMPARE(t.entry_at({{"s0", INT64_MAX}, {"s1", INT64_MAX}}, 1), 2);
  }
  // What windows draw is read by this code, what runs by the machine's: they are one format.
  void it_decides_as_the_machine_does() {
    const std::vector<std::string> symbols{"s0", "s1"};
    std::mt19937 random(14);
    for (int i = 0; i < 300; ++i) {
      const exec::DispatchTree there = random_tree(random);
      QCOMPARE(there.verify(2, 4), std::string());
      const DispatchTree here =
          DispatchTree::from_json(exec::tree_to_json(there, symbols), 4, symbols);
      QVERIFY(exec::tree_from_json(here.json(), symbols) == there);
      for (int64_t s0 = 0; s0 < 25; s0 += 3)
        for (int64_t s1 = 0; s1 < 25; s1 += 2)
          for (int32_t threads : {1, 2, 8})
            QCOMPARE(here.entry_at({{"s0", s0}, {"s1", s1}}, threads),
                     int64_t{there.choose(std::vector<int64_t>{s0, s1}, threads)});
    }
  }
  void the_way_down_is_told() {
    const DispatchTree t = DispatchTree::from_json(kTree, 3, {"s0", "s1"});
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
    const DispatchTree t = DispatchTree::from_json(kTree, 3, {"s0", "s1"});
    QCOMPARE(t.borders_of("s0"), (std::vector<int64_t>{34, 64}));
    QVERIFY(t.borders_of("s1").empty());
  }
  void it_is_written_as_it_was_read() {
    const DispatchTree t = DispatchTree::from_json(kTree, 3, {"s0", "s1"});
    QCOMPARE(DispatchTree::from_json(t.json(), 3, {"s0", "s1"}).json(), t.json());
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
    QTest::newRow("fraction") << R"({"nodes":[{"leaf":1.5}]})";
    QTest::newRow("beyond integers") << R"({"nodes":[{"leaf":1e99}]})";
    QTest::newRow("cycle")
        << R"({"nodes":[{"feature":"symbol","a":"s","op":"<=","value":1,"yes":0,"no":1},{"leaf":0}]})";
    QTest::newRow("outside")
        << R"({"nodes":[{"feature":"symbol","a":"s","op":"<=","value":1,"yes":1,"no":2},{"leaf":0}]})";
    QTest::newRow("divisor")
        << R"({"nodes":[{"feature":"mod","a":"s","t":0,"op":"<=","value":1,"yes":1,"no":1},{"leaf":0}]})";
    QTest::newRow("feature")
        << R"({"nodes":[{"feature":"moon","op":"<=","value":1,"yes":1,"no":1},{"leaf":0}]})";
    // What the machine refuses is not drawn as something else.
    QTest::newRow("test")
        << R"({"nodes":[{"feature":"symbol","a":"s","op":"<","value":1,"yes":1,"no":1},{"leaf":0}]})";
    QTest::newRow("symbol")
        << R"({"nodes":[{"feature":"symbol","a":"z","op":"<=","value":1,"yes":1,"no":1},{"leaf":0}]})";
  }
  void what_is_no_tree_is_refused() {
    QFETCH(QString, json);
    QVERIFY_EXCEPTION_THROWN(DispatchTree::from_json(json.toStdString(), 3, {"s"}), nimble::Error);
  }
};
NIMBLE_QTEST(TreeTest)
#include "tree_test.moc"
