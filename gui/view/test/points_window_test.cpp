// What an expert's instrument has (gui/README.md), where the models' tests end: replay, coordinates
// linked to a table, the chain's steps, commands to verify again.
#include <QClipboard>
#include <QComboBox>
#include <QPushButton>
#include <QSlider>
#include <map>
#include <set>

#include "gui/model/regret.h"
#include "gui/view/table_pane.h"
#include "gui/view/test/window_fixture.h"

using namespace nimble::gui;
namespace db = nimble::db;

class PointsWindowTest : public QObject {
  Q_OBJECT
  WindowFixture at_;

  template <typename T>
  static T* child(const QWidget* of, const char* name) {
    T* found = of->findChild<T*>(QLatin1String(name));
    if (!found) qFatal("no %s", name);
    return found;
  }

 private slots:
  void init() {
    at_.open();
    at_.select_workload("matmul", 1);
  }
  void cleanup() { at_.close(); }

  void a_campaign_is_replayed_up_to_where_the_slider_stands() {
    PlotView* view = at_.show_plot("progress");
    auto* slider = child<QSlider>(view, "replay");
    const int all = slider->maximum();
    QVERIFY(all > 4);
    QCOMPARE(slider->value(), all);
    QCOMPARE(view->table().rows.size(), static_cast<size_t>(all));
    const auto best_of = [&] { return view->table().rows.back().back().toDouble(); };
    const double last = best_of();
    slider->setFocus();
    QTest::keyClick(slider, Qt::Key_Home);
    QCOMPARE(view->table().rows.size(), size_t{0});
    QTest::keyClick(slider, Qt::Key_Right);
    QTest::keyClick(slider, Qt::Key_Right);
    QCOMPARE(view->table().rows.size(), size_t{2});
    QVERIFY(best_of() >= last);
    at_.context().session.refresh();
    at_.wait();
    QCOMPARE(slider->value(), 2);  // a look at the database does not move it
    QTest::keyClick(slider, Qt::Key_End);
    QCOMPARE(best_of(), last);
  }

  void coordinates_and_table_select_the_same_configuration() {
    PlotView* view = at_.show_plot("parallel");
    QVERIFY(view->marks().size() > 3);
    auto* rows = view->findChild<Rows*>();
    rows->setFocus();
    rows->setCurrentIndex(rows->model()->index(2, 0));
    QTest::keyClick(rows, Qt::Key_Return);
    at_.wait();
    const std::string config = at_.selection().now().config;
    QVERIFY(!config.empty());
    QVERIFY(view->cursor() >= 0);
    QCOMPARE(view->marks()[static_cast<size_t>(view->cursor())].choice.config, config);
    // And from a line to its row.
    view->plot().setFocus();
    QTest::keyClick(&view->plot(), Qt::Key_Home);
    QTest::keyClick(&view->plot(), Qt::Key_Return);
    at_.wait();
    const std::string other = at_.selection().now().config;
    QCOMPARE(other, view->marks()[0].choice.config);
    QCOMPARE(rows->currentIndex().siblingAtColumn(0).data().toString(), short_id(other));
  }

  void each_step_of_the_chain_is_one_key_away_and_can_be_copied() {
    PlotView* map = at_.show_plot("heatmap");
    Choice c = at_.selection().now();
    c.shape = map->marks().front().choice.shape;
    at_.selection().set(c);
    at_.wait();
    View* view = at_.show("why");
    auto* steps = child<Rows>(view, "steps");
    QVERIFY(steps->model()->rowCount() > 5);
    steps->setFocus();
    // Down to the samples of the measurement that the entry rests on.
    for (int row = 0; row < steps->model()->rowCount(); ++row) {
      if (!at_.selection().now().measurement.empty()) break;
      steps->setCurrentIndex(steps->model()->index(row, 0));
      QTest::keyClick(steps, Qt::Key_Return);
      at_.wait();
    }
    QVERIFY(!at_.selection().now().measurement.empty());
    QVERIFY(at_.show("samples")->message().isEmpty());
    steps->selectRow(1);
    steps->setFocus();
    QTest::keySequence(steps, QKeySequence::Copy);
    const QString one = QGuiApplication::clipboard()->text();
    QVERIFY(one.contains(steps->model()->index(1, 1).data().toString()));
    QTest::mouseClick(child<QPushButton>(view, "copy"), Qt::LeftButton);
    const QString all = QGuiApplication::clipboard()->text();
    QVERIFY(all.count(u'\n') + 1 >= steps->model()->rowCount());
  }

  void the_command_to_verify_again_is_copied() {
    View* view = at_.show("coverage");
    auto* rows = view->findChild<Rows*>();
    const TableData table = view->table();
    const auto column = static_cast<size_t>(
        std::find(table.columns.begin(), table.columns.end(), QStringLiteral("command")) -
        table.columns.begin());
    int row = 0;
    while (table.rows[static_cast<size_t>(row)][column].toString().isEmpty()) ++row;
    rows->setCurrentIndex(rows->model()->index(row, 0));
    QTest::mouseClick(child<QPushButton>(view, "copy"), Qt::LeftButton);
    const QString copied = QGuiApplication::clipboard()->text();
    QVERIFY2(copied.startsWith(QStringLiteral("nimble tune ")), qPrintable(copied));
    QCOMPARE(copied, table.rows[static_cast<size_t>(row)][column].toString());
    QVERIFY(view->status().contains(QStringLiteral("nothing was run")));
  }

  void latency_stands_beside_that_of_a_campaign() {
    PlotView* view = at_.show_plot("latency");
    auto* beside = child<QComboBox>(view, "beside");
    QCOMPARE(beside->count(), 3);  // none, and both that measured it
    const size_t without = view->table().rows.size();
    beside->setFocus();
    QTest::keyClick(beside, Qt::Key_Down);
    const std::string campaign = beside->currentData().toString().toStdString();
    QVERIFY(!campaign.empty());
    const auto facts = at_.context().workload.facts();
    const TableData table = view->table();
    QVERIFY(table.rows.size() > without);
    for (size_t i = without; i < table.rows.size(); ++i) {
      QCOMPARE(table.rows[i][1].toString(),
               QStringLiteral("campaign ") + QString::fromStdString(campaign));
      const auto result =
          std::find_if(facts->results.begin(), facts->results.end(), [&](const db::Result& r) {
            return r.measurement == table.rows[i][8].toString().toStdString();
          });
      QVERIFY(result != facts->results.end());
      QCOMPARE(result->campaign, campaign);
      // Nothing of the campaign that counts as much was faster there.
      for (const db::Result& r : facts->results)
        if (r.campaign == campaign && r.dims == result->dims)
          QVERIFY(weight_of(r.role) < weight_of(result->role) ||
                  (r.role == result->role && r.median_ns >= result->median_ns));
    }
    // It stays when the database is read again.
    at_.context().session.refresh();
    at_.wait();
    QCOMPARE(beside->currentData().toString().toStdString(), campaign);
    QTest::keyClick(beside, Qt::Key_Home);
    QCOMPARE(view->table().rows.size(), without);
  }

  void an_interval_over_decades_does_not_press_the_times_together() {
    PlotView* view = at_.show_plot("latency");
    double most = 0, highest = 0;
    for (const auto& row : view->table().rows) {
      most = std::max(most, row[4].toDouble());
      highest = std::max(highest, row[6].toDouble());
    }
    QVERIFY2(highest > 10 * most, "the campaign has none any more");
    QVERIFY(view->plot().yAxis->range().upper * 1000 < 4 * most);  // the axis is in µs
    QVERIFY2(view->status().contains(QStringLiteral("run out of the plot")),
             qPrintable(view->status()));
  }

  void a_measurement_whose_samples_were_removed_has_its_median_and_interval() {
    at_.select_workload("softmax", 1);
    const auto s = db::Store::open(at_.campaign->place());
    QVERIFY(s->remove_old({1, "disk"}).samples > 0);
    Choice choice = at_.selection().now();
    for (const db::Result& r : at_.context().workload.facts()->results)
      if (s->measurement(r.measurement)->samples_ns.empty()) {
        choice.measurement = r.measurement;
        choice.config = r.config;
        choice.shape = db::text_of(r.dims);
      }
    QVERIFY(!choice.measurement.empty());
    at_.context().session.refresh();
    at_.selection().set(choice);
    at_.wait();
    PlotView* view = at_.show_plot("samples");
    QVERIFY2(view->message().isEmpty(), qPrintable(view->message()));
    QVERIFY2(view->status().contains(QStringLiteral("raw samples were removed")),
             qPrintable(view->status()));
    QVERIFY(view->status().contains(QStringLiteral("median")));
    QVERIFY(view->table().rows.empty());
    QCOMPARE(view->marks().size(), size_t{1});
    const db::Measurement m = s->measurement(choice.measurement).value();
    QVERIFY(view->marks()[0].text.contains(time_text(m.median_ns)));
    QVERIFY(view->plot().yAxis->range().contains(view->marks()[0].y));
  }

  void a_search_beside_the_default_is_shown_over_it() {
    PlotView* view = at_.show_plot("progress");
    QVERIFY2(view->status().contains(QStringLiteral("times of different sessions")),
             qPrintable(view->status()));
    const auto s = db::Store::open(at_.campaign->place());
    const db::Uuid session = s->put(db::HostState{"", "performance", {}, {}, "0", 0, 0});
    const auto facts = at_.context().workload.facts();
    const db::Uuid campaign = db::all_campaigns(*s).front().uuid;
    at_.selection().set_campaign(campaign);
    double ns = 4000;
    for (const db::Role role : {db::Role::kBaseline, db::Role::kSearch})
      for (const db::TrialOutcome& o : s->outcomes(campaign, facts->workload)) {
        if (o.trial.key.role != role || !o.median_ns) continue;
        db::Measurement m =
            s->measurement(s->measurements(o.trial.uuid).at(0).measurement.uuid).value();
        m.uuid.clear();
        m.host_state = session;
        m.samples_ns = {ns};
        m.median_ns = m.ci_low_ns = m.ci_high_ns = ns;
        m.outliers.clear();
        s->add(m);
        ns = 3000;
        break;
      }
    at_.context().session.refresh();
    at_.wait();
    QVERIFY(view->plot().yAxis->label().contains(QStringLiteral("over the default")));
    QVERIFY2(view->status().contains(QStringLiteral("best 1.33× the default's speed")),
             qPrintable(view->status()));
    const TableData t = view->table();
    const auto column = static_cast<size_t>(
        std::find(t.columns.begin(), t.columns.end(), QStringLiteral("best_so_far_over_default")) -
        t.columns.begin());
    QCOMPARE(t.rows.back()[column].toDouble(), 0.75);
  }

  void a_search_at_several_shapes_is_seen_one_at_a_time() {
    const auto s = db::Store::open(at_.campaign->place());
    const auto facts = at_.context().workload.facts();
    const db::Uuid campaign = db::all_campaigns(*s).front().uuid;
    at_.selection().set_campaign(campaign);
    at_.wait();
    PlotView* view = at_.show_plot("progress");
    auto* shapes = child<QComboBox>(view, "shape");
    QCOMPARE(shapes->count(), 1);
    QVERIFY(!shapes->isEnabled() && !view->plot().yAxis2->visible());
    const size_t all = view->table().rows.size();
    // The search goes on at another shape, and tells how well its model ranked.
    std::optional<db::TrialKey> elsewhere;
    std::string first;
    int64_t round = 0;
    const std::vector<db::TrialOutcome> outcomes = s->outcomes(campaign, facts->workload);
    for (const db::TrialOutcome& o : outcomes)
      if (o.trial.key.role == db::Role::kSearch) {
        first = db::text_of(o.dims);
        round = std::max(round, o.trial.round);
      }
    for (const db::TrialOutcome& o : outcomes)
      if (o.trial.key.role == db::Role::kCross && db::text_of(o.dims) != first)
        elsewhere = o.trial.key;
    QVERIFY(elsewhere && round > 0);
    elsewhere->role = db::Role::kSearch;
    s->enqueue({{*elsewhere, round, 0, std::nullopt}});
    db::Task task;
    task.campaign = campaign;
    task.workload = facts->workload;
    task.uuid = db::uuid_of_task(campaign, facts->workload);
    s->add_tasks({task});
    s->enter_phase(task.uuid, "search",
                   QStringLiteral(R"({"rank_correlations":[{"round":%1,"correlation":0.5}],
                       "vendor":{"sizes":3,"of":4,"failed":0,"wins":1,"faster":1.25,"slower":2,
                       "worst":0.25}})")
                       .arg(round)
                       .toStdString());
    at_.context().session.refresh();
    at_.wait();
    QCOMPARE(shapes->count(), 2);
    QVERIFY(shapes->isEnabled());
    QVERIFY2(view->status().contains(QStringLiteral("vendor's routine: faster at 1/3 of 4")),
             qPrintable(view->status()));
    QCOMPARE(shapes->currentText().toStdString(), first);
    QCOMPARE(view->table().rows.size(), all);
    QVERIFY(view->plot().yAxis2->visible());
    const QCPGraph* ranks = nullptr;
    for (int i = 0; i < view->plot().graphCount(); ++i)
      if (view->plot().graph(i)->valueAxis() == view->plot().yAxis2) ranks = view->plot().graph(i);
    QVERIFY(ranks);
    QCOMPARE(ranks->dataMainValue(0), 0.5);
    QVERIFY(ranks->dataMainKey(0) > 1 && ranks->dataMainKey(0) <= static_cast<double>(all));
    shapes->setCurrentIndex(1);
    QCOMPARE(view->table().rows.size(), size_t{1});
    at_.context().session.refresh();
    at_.wait();
    QCOMPARE(shapes->currentIndex(), 1);  // a look at the database does not change it
  }

  void regret_and_latency_follow_an_override() {
    const auto facts = at_.context().workload.facts();
    const size_t last = facts->shapes.size() - 1;
    const db::Hash served =
        regret_of(*facts, facts->table({}), Serving::Overrides::kLaid)[last].served.config;
    db::Hash other;
    for (size_t c = 0; c < facts->configs.size(); ++c)
      if (facts->cell(c, last) && facts->configs[c].hash != served) other = facts->configs[c].hash;
    QVERIFY(!other.empty());
    const db::Uuid made =
        db::Store::open(at_.campaign->place())
            ->add(db::NewOverride{facts->workload, facts->hardware, {}, other, "everywhere"});
    at_.context().session.refresh();
    at_.wait();
    const TableData regret = at_.show("regret")->table();
    QCOMPARE(regret.rows[last][2].toString().toStdString(), made);
    QCOMPARE(regret.rows[last][3].toString().toStdString(), other);
    bool told = false;
    for (const auto& row : at_.show("latency")->table().rows)
      if (row[1].toString() == QStringLiteral("table") &&
          row[0].toString().toStdString() == facts->shapes[last].key) {
        told = true;
        QCOMPARE(row[2].toString().toStdString(), other);
      }
    QVERIFY(told);
  }

  // As every search looks before the first other size is measured.
  void a_heat_map_of_one_shape_is_painted() {
    const auto s = db::Store::open(at_.campaign->place());
    const auto known = at_.context().workload.facts();
    db::Workload other = known->record;
    other.canonical += " of one shape";
    const db::Hash workload = s->put(other);
    const db::Uuid campaign = db::all_campaigns(*s).front().uuid;
    std::vector<db::NewTrial> trials;
    for (const db::Result& r : known->results)
      if (db::text_of(r.dims) == known->shapes.back().key)
        trials.push_back({{campaign, workload, r.config, r.shape, db::Role::kSearch, 1}, 0, 0, {}});
    QVERIFY(trials.size() > 1);
    s->enqueue(trials);
    s->claim({campaign, "box", 60'000, 1 << 20});
    for (const db::Result& r : known->results) {
      if (db::text_of(r.dims) != known->shapes.back().key) continue;
      db::Measurement m = s->measurement(r.measurement).value();
      db::Artifact artifact = s->artifact(m.artifact).value();
      artifact.workload = workload;
      m.artifact = s->put(artifact);
      m.trial =
          db::uuid_of(db::TrialKey{campaign, workload, r.config, r.shape, db::Role::kSearch, 1});
      m.uuid.clear();
      s->finish({m.trial, "box", db::TrialState::kOk, "", "", m});
    }
    at_.context().session.refresh();
    at_.wait();
    Choice choice;
    choice.workload = workload;
    choice.hardware = known->hardware;
    at_.selection().set(choice);
    at_.wait();
    PlotView* map = at_.show_plot("heatmap");
    QVERIFY2(at_.context().workload.facts(), qPrintable(map->message()));
    QCOMPARE(at_.context().workload.facts()->shapes.size(), size_t{1});
    QVERIFY(map->marks().size() > 1);
    // What most of a cell shows: its colour; the ground, were it not painted, for all of them
    // alike.
    const QImage image = map->plot().toPixmap().toImage();
    std::set<QRgb> colours;
    for (const Mark& mark : map->marks()) {
      const QPoint at = at_.pixel_of(*map, mark.x, mark.y);
      std::map<QRgb, int> seen;
      for (int x = -40; x <= 40; ++x) ++seen[image.pixel(at + QPoint(x, 0))];
      colours.insert(
          std::ranges::max_element(seen, {}, [](const auto& c) { return c.second; })->first);
    }
    QVERIFY(colours.size() > 1);
  }

  void latency_stands_beside_what_others_took() {
    const auto facts = at_.context().workload.facts();
    {
      const auto s = db::Store::open(at_.campaign->place());
      db::PeerFigure p;
      p.subject = facts->record.canonical;
      p.machine = s->measurement(facts->results.front().measurement)->machine;
      p.run = "01890000-0000-7000-8000-000000000001";
      p.peer = "<b>peer</b>";
      p.version = "1.2";
      p.dims = facts->shapes.front().dims;
      p.dtype = "f32";
      p.threads = facts->record.threads;
      p.median_ns = 4321;
      p.samples_ns = {4321, 4322, 4320};
      s->add(p);
    }
    at_.context().session.refresh();
    at_.wait();
    PlotView* view = at_.show_plot("latency");
    QCOMPARE(view->table().rows.back()[3].toString(), QStringLiteral("peer"));
    QCOMPARE(view->table().rows.back()[4].toDouble(), 4321.0);
    bool told = false;
    for (const Mark& m : view->marks())
      told |=
          m.text.contains(QStringLiteral("<b>peer</b> 1.2")) && m.text.contains(time_text(4321));
    QVERIFY2(told, qPrintable(view->marks().back().text));
  }

  void regret_shows_chosen_best_and_default_and_where_the_table_parts() {
    PlotView* view = at_.show_plot("regret");
    QVERIFY2(view->message().isEmpty(), qPrintable(view->message()));
    QVERIFY(!view->marks().empty());
    QStringList names;
    for (int i = 0; i < view->plot().legend->itemCount(); ++i)
      if (auto* item = qobject_cast<QCPPlottableLegendItem*>(view->plot().legend->item(i)))
        names << item->plottable()->name();
    const QString all = names.join(QStringLiteral(", "));
    QVERIFY2(names.size() >= 2, qPrintable(all));
    for (const char* column : {"chosen_ns", "best_ns", "default_ns"}) {
      const auto columns = view->table().columns;
      QVERIFY2(std::find(columns.begin(), columns.end(), QLatin1String(column)) != columns.end(),
               column);
    }
  }
};
NIMBLE_QTEST(PointsWindowTest)
#include "points_window_test.moc"
