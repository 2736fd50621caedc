// "Latency by shape": median times with their 95 % intervals of what the dispatch table chooses,
// the best measured, the default schedule, the vendor's routine and the configuration that is
// selected.
#include <cmath>
#include <map>

#include "gui/model/regret.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

struct Line {
  QString name, column;  // as shown and as exported
  Ink ink = Ink::kOther;
  QCPScatterStyle::ScatterShape mark = QCPScatterStyle::ssDisc;
  std::vector<const Cell*> cells;  // a shape each; nothing: not measured
};

// What is not there at all is left out. A broken table only costs its own line.
std::vector<Line> lines_of(const WorkloadFacts& f, const Choice& now) {
  std::vector<Line> lines;
  const auto add = [&](Line line) {
    for (const Cell* c : line.cells)
      if (c) return lines.push_back(std::move(line));
  };
  const auto of_config = [&](size_t config) {
    std::vector<const Cell*> cells;
    for (size_t s = 0; s < f.shapes.size(); ++s) cells.push_back(f.cell(config, s));
    return cells;
  };
  if (const db::DispatchTable* table = f.table(now.table)) {
    Line chosen{QObject::tr("dispatch table"), "table", Ink::kChosen, QCPScatterStyle::ssDisc, {}};
    for (const RegretPoint& p : regret_of(f, *table)) chosen.cells.push_back(p.chosen);
    add(std::move(chosen));
  }
  Line best{QObject::tr("best measured"), "best", Ink::kBest, QCPScatterStyle::ssTriangle, {}};
  for (size_t s = 0; s < f.shapes.size(); ++s) best.cells.push_back(f.best_at(s));
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
  return lines;
}

class LatencyView final : public PlotView {
 public:
  LatencyView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    plot().legend->setVisible(true);
    connect(&context.workload, &WorkloadModel::changed, this, &LatencyView::redraw);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Choice& now = this->context().selection.now();
      if (now.config != before.config || now.table != before.table) redraw();
    });
    redraw();
  }

  bool loading() const override { return context().workload.loading(); }

  TableData table() const override {
    TableData t{{"shape", "line", "config", "role", "median_ns", "ci_low_ns", "ci_high_ns",
                 "samples", "measurement"},
                {}};
    const auto facts = context().workload.facts();
    if (!facts || !message().isEmpty()) return t;
    for (const Line& line : lines_of(*facts, context().selection.now()))
      for (const Cell* c : line.cells) {
        if (!c) continue;
        const db::Result& r = c->result;
        t.rows.push_back({plain_text(facts->shapes[c->shape].key), line.column,
                          plain_text(r.config), plain_text(db::name_of(r.role)), r.median_ns,
                          r.ci_low_ns, r.ci_high_ns, QVariant::fromValue(r.n),
                          plain_text(r.measurement)});
      }
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
      draw_lines(*facts, lines_of(*facts, context().selection.now()));
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
  void draw_lines(const WorkloadFacts& f, const std::vector<Line>& lines) {
    double lowest = INFINITY, highest = 0;
    for (const Line& line : lines)
      for (const Cell* c : line.cells) {
        if (!c) continue;
        lowest = std::min(lowest, c->result.ci_low_ns);
        highest = std::max(highest, c->result.ci_high_ns);
      }
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
    set_status(tr("%1 shapes; times side by side where there are any").arg(f.shapes.size()));
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
    graph->setPen(QPen(color, line.ink == Ink::kChosen ? 2 : 1.2));
    graph->setScatterStyle(QCPScatterStyle(line.mark, color, 6));
    auto* bars = new QCPErrorBars(plot().xAxis, plot().yAxis);
    bars->removeFromLegend();
    bars->setDataPlottable(graph);
    bars->setPen(QPen(color, 1));
    bars->setWhiskerWidth(5);
    for (size_t s = 0; s < line.cells.size(); ++s) {
      const Cell* c = line.cells[s];
      if (!c) continue;
      const db::Result& r = c->result;
      const double x = shapes_.at(s), y = r.median_ns / unit.ns;
      graph->addData(x, y);
      bars->addData(y - r.ci_low_ns / unit.ns, r.ci_high_ns / unit.ns - y);
      Mark m{
          x,
          y,
          QStringLiteral("%1 · %2 · %3 (95 %: %4 to %5, %6 samples, %7) · %8")
              .arg(plain_text(f.shapes[s].key), line.name, time_text(r.median_ns),
                   time_text(r.ci_low_ns), time_text(r.ci_high_ns), count_text(r.n),
                   plain_text(db::name_of(r.role)), plain_text(knobs_text(f.configs[c->config]))),
          {}};
      m.choice.shape = f.shapes[s].key;
      m.choice.config = r.config;
      m.choice.measurement = r.measurement;
      marks.push_back(std::move(m));
    }
  }

  ShapeAxis shapes_;
  QCPRange times_;
};

}  // namespace

View* make_latency(const ViewInfo& info, Context& context) {
  return new LatencyView(info, context);
}

}  // namespace nimble::gui
