// "Latency by shape": median times with their 95 % intervals of what serves (the dispatch table's
// choice, or that of an override over it), the best measured, the default schedule, the vendor's
// routine, the configuration that is selected and, beside them, the best of one campaign.
#include <QComboBox>
#include <QHBoxLayout>
#include <cmath>
#include <map>
#include <set>

#include "gui/model/regret.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

// How far beyond the medians intervals are shown, as a factor.
constexpr double kReach = 3;

struct Line {
  QString name, column;  // as shown and as exported
  Ink ink = Ink::kOther;
  QCPScatterStyle::ScatterShape mark = QCPScatterStyle::ssDisc;
  std::vector<const db::Result*> results = {};  // a shape each; nothing: not measured
  Qt::PenStyle pen = Qt::SolidLine;
};

const db::Result* result_of(const Cell* c) {
  return c ? &c->result : nullptr;
}

// A campaign's best at each shape: those timed side by side before those of the cross-evaluation,
// these before the search's, as everywhere.
std::vector<const db::Result*> best_of_campaign(const WorkloadFacts& f, const db::Uuid& campaign) {
  std::map<std::string, size_t> shape_at;
  for (size_t s = 0; s < f.shapes.size(); ++s) shape_at[f.shapes[s].key] = s;
  std::vector<const db::Result*> best(f.shapes.size(), nullptr);
  for (const db::Result& r : f.results) {
    if (r.campaign != campaign) continue;
    const db::Result*& at = best[shape_at.at(db::text_of(r.dims))];
    const int more = at ? weight_of(r.role) - weight_of(at->role) : 1;
    if (more > 0 || (more == 0 && r.median_ns < at->median_ns)) at = &r;
  }
  return best;
}

// What is not there at all is left out. A broken table only costs its own line.
std::vector<Line> lines_of(const WorkloadFacts& f, const Choice& now, const db::Uuid& beside) {
  std::vector<Line> lines;
  const auto add = [&](Line line) {
    for (const db::Result* r : line.results)
      if (r) return lines.push_back(std::move(line));
  };
  const auto of_config = [&](size_t config) {
    std::vector<const db::Result*> results;
    for (size_t s = 0; s < f.shapes.size(); ++s) results.push_back(result_of(f.cell(config, s)));
    return results;
  };
  const db::DispatchTable* table = f.table(now.table);
  if (table || !f.overrides.empty()) {
    Line chosen{f.overrides.empty() ? QObject::tr("dispatch table")
                : table             ? QObject::tr("dispatch table and overrides")
                                    : QObject::tr("overrides"),
                "table", Ink::kChosen, QCPScatterStyle::ssDisc};
    for (const RegretPoint& p : regret_of(f, table, Serving::Overrides::kLaid))
      chosen.results.push_back(result_of(p.chosen));
    add(std::move(chosen));
  }
  Line best{QObject::tr("best measured"), "best", Ink::kBest, QCPScatterStyle::ssTriangle};
  for (size_t s = 0; s < f.shapes.size(); ++s) best.results.push_back(result_of(f.best_at(s)));
  add(std::move(best));
  for (size_t c = 0; c < f.configs.size(); ++c) {
    if (f.configs[c].is_default)
      add({QObject::tr("default schedule"), "default", Ink::kDefault, QCPScatterStyle::ssSquare,
           of_config(c)});
    if (f.configs[c].is_vendor)
      add({QObject::tr("vendor"), "vendor", Ink::kVendor, QCPScatterStyle::ssDiamond,
           of_config(c)});
    if (f.configs[c].hash == now.config)
      add({QObject::tr("selected ") + short_id(now.config), "selected", Ink::kOther,
           QCPScatterStyle::ssCross, of_config(c)});
  }
  if (!beside.empty())
    add({QObject::tr("best of campaign ") + short_id(beside), "campaign " + plain_text(beside),
         Ink::kOther, QCPScatterStyle::ssTriangleInverted, best_of_campaign(f, beside),
         Qt::DashLine});
  return lines;
}

class LatencyView final : public PlotView {
 public:
  LatencyView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    plot().legend->setVisible(true);
    beside_ = new QComboBox;
    beside_->setObjectName(QStringLiteral("beside"));
    beside_->setAccessibleName(tr("Beside it the best of a campaign"));
    beside_->setSizeAdjustPolicy(QComboBox::AdjustToContents);
    controls()->addWidget(plain_label(tr("Beside:")));
    controls()->addWidget(beside_);
    controls()->addStretch(1);
    connect(beside_, &QComboBox::activated, this, &LatencyView::redraw);
    connect(&context.workload, &WorkloadModel::changed, this, &LatencyView::fill);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Choice& now = this->context().selection.now();
      if (now.config != before.config || now.table != before.table) redraw();
    });
    fill();
  }

  bool loading() const override { return context().workload.loading(); }

  TableData table() const override {
    TableData t{{"shape", "line", "config", "role", "median_ns", "ci_low_ns", "ci_high_ns",
                 "samples", "measurement"},
                {}};
    const auto facts = context().workload.facts();
    if (!facts || !message().isEmpty()) return t;
    for (const Line& line : lines_of(*facts, context().selection.now(), beside()))
      for (const db::Result* r : line.results)
        if (r)
          t.rows.push_back({plain_text(db::text_of(r->dims)), line.column, plain_text(r->config),
                            plain_text(db::name_of(r->role)), r->median_ns, r->ci_low_ns,
                            r->ci_high_ns, QVariant::fromValue(r->n), plain_text(r->measurement)});
    for (const db::PeerFigure& p : facts->peers)
      t.rows.push_back({plain_text(db::text_of(p.dims)), plain_text(p.peer + " " + p.version),
                        QString(), QStringLiteral("peer"), p.median_ns, QVariant(), QVariant(),
                        QVariant::fromValue(static_cast<qlonglong>(p.samples_ns.size())),
                        QString()});
    return t;
  }

 protected:
  void redraw() override {
    const auto facts = context().workload.facts();
    plot().clearPlottables();
    set_message(facts ? QString() : context().workload.problem());
    if (!facts) return set_marks({});
    set_heading(plain_text(title_of(*facts)));
    try {
      draw_lines(*facts, lines_of(*facts, context().selection.now(), beside()));
    } catch (const Error& e) {
      set_message(plain_text(e.what(), 1000));
      set_marks({});
    }
  }

  void show_all() override {
    plot().xAxis->setRange(shapes_.range());
    plot().yAxis->setRange(times_);
  }

 private:
  // The campaigns that measured the workload; the one that was chosen stays.
  void fill() {
    const QVariant before = beside_->currentData();
    beside_->clear();
    beside_->addItem(tr("no campaign"), QString());
    if (const auto facts = context().workload.facts()) {
      std::set<std::string> campaigns;
      for (const db::Result& r : facts->results) campaigns.insert(r.campaign);
      for (const std::string& uuid : campaigns)
        beside_->addItem(tr("best of campaign ") + short_id(uuid), QString::fromStdString(uuid));
    }
    beside_->setEnabled(beside_->count() > 1);
    beside_->setCurrentIndex(std::max(0, beside_->findData(before)));
    redraw();
  }

  db::Uuid beside() const { return beside_->currentData().toString().toStdString(); }

  void draw_lines(const WorkloadFacts& f, const std::vector<Line>& lines) {
    double lowest = INFINITY, highest = 0, least = INFINITY, most = 0;
    for (const Line& line : lines)
      for (const db::Result* r : line.results) {
        if (!r) continue;
        lowest = std::min(lowest, r->ci_low_ns);
        highest = std::max(highest, r->ci_high_ns);
        least = std::min(least, r->median_ns);
        most = std::max(most, r->median_ns);
      }
    // One interval that a stall stretched over decades would press all else together: it runs out
    // of the plot instead.
    lowest = std::max(lowest, least / kReach);
    highest = std::min(highest, most * kReach);
    std::set<const db::Result*> beyond;
    for (const Line& line : lines)
      for (const db::Result* r : line.results)
        if (r && (r->ci_low_ns < lowest || r->ci_high_ns > highest)) beyond.insert(r);
    for (const db::PeerFigure& p : f.peers) {
      if (!f.shape_index(db::text_of(p.dims)) || p.threads != f.record.threads) continue;
      lowest = std::min(lowest, p.median_ns);
      highest = std::max(highest, p.median_ns);
    }
    shapes_ = ShapeAxis(f.shapes, plot().xAxis);
    const TimeUnit unit =
        set_time_axis(plot().yAxis, tr("median time, 95 % interval"), lowest, highest);
    times_ = plot().yAxis->range();
    std::vector<Mark> marks;
    for (const Line& line : lines) draw_line(f, line, unit, marks);
    draw_peers(f, unit, marks);
    QString status = tr("%1 shapes; times side by side where there are any").arg(f.shapes.size());
    if (!beyond.empty())
      status += tr("; intervals that run out of the plot: %1").arg(beyond.size());
    set_status(status);
    set_marks(std::move(marks));
  }

  // Other programs' figures, of one recorded run: dashed, for they were not timed beside ours.
  void draw_peers(const WorkloadFacts& f, const TimeUnit& unit, std::vector<Mark>& marks) {
    std::map<std::string, QCPGraph*> lines;
    const QCPScatterStyle::ScatterShape shapes[] = {
        QCPScatterStyle::ssStar, QCPScatterStyle::ssPlus, QCPScatterStyle::ssCrossSquare,
        QCPScatterStyle::ssPlusCircle};
    for (const db::PeerFigure& p : f.peers) {
      const auto shape = f.shape_index(db::text_of(p.dims));
      if (!shape || p.threads != f.record.threads) continue;
      const std::string name = p.peer + " " + p.version;
      QCPGraph*& graph = lines[name];
      if (!graph) {
        graph = plot().addGraph();
        const QColor color = ink(Ink::kVendor, palette());
        graph->setName(plain_text(name, 40));
        graph->setPen(QPen(color, 1, Qt::DashLine));
        graph->setScatterStyle(QCPScatterStyle(shapes[(lines.size() - 1) % 4], color, 7));
      }
      const double x = shapes_.at(*shape), y = p.median_ns / unit.ns;
      graph->addData(x, y);
      Mark m{x,
             y,
             tr("%1 · %2 · %3, recorded %4 with %5")
                 .arg(plain_text(f.shapes[*shape].key), plain_text(name), time_text(p.median_ns),
                      moment_text(p.created_at), plain_text(p.settings, 120)),
             {}};
      m.choice.shape = f.shapes[*shape].key;
      marks.push_back(std::move(m));
    }
  }

  void draw_line(const WorkloadFacts& f, const Line& line, const TimeUnit& unit,
                 std::vector<Mark>& marks) {
    const QColor color = ink(line.ink, palette());
    auto* graph = plot().addGraph();
    graph->setName(line.name);
    graph->setPen(QPen(color, line.ink == Ink::kChosen ? 2 : 1.2, line.pen));
    graph->setScatterStyle(QCPScatterStyle(line.mark, color, 6));
    auto* bars = new QCPErrorBars(plot().xAxis, plot().yAxis);
    bars->removeFromLegend();
    bars->setDataPlottable(graph);
    bars->setPen(QPen(color, 1));
    bars->setWhiskerWidth(5);
    for (size_t s = 0; s < line.results.size(); ++s) {
      if (!line.results[s]) continue;
      const db::Result& r = *line.results[s];
      const auto config = f.config_index(r.config);
      const double x = shapes_.at(s), y = r.median_ns / unit.ns;
      graph->addData(x, y);
      bars->addData(y - r.ci_low_ns / unit.ns, r.ci_high_ns / unit.ns - y);
      Mark m{x,
             y,
             QStringLiteral("%1 · %2 · %3 (95 %: %4 to %5, %6 samples, %7) · %8")
                 .arg(plain_text(f.shapes[s].key), line.name, time_text(r.median_ns),
                      time_text(r.ci_low_ns), time_text(r.ci_high_ns), count_text(r.n),
                      plain_text(db::name_of(r.role)),
                      config ? plain_text(knobs_text(f.configs[*config])) : short_id(r.config)),
             {}};
      m.choice.shape = f.shapes[s].key;
      m.choice.config = r.config;
      m.choice.measurement = r.measurement;
      marks.push_back(std::move(m));
    }
  }

  QComboBox* beside_ = nullptr;
  ShapeAxis shapes_;
  QCPRange times_;
};

}  // namespace

View* make_latency(const ViewInfo& info, Context& context) {
  return new LatencyView(info, context);
}

}  // namespace nimble::gui
