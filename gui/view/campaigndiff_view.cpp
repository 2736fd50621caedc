// "Two campaigns": the selected one against a baseline that stays pinned, over the workloads and
// shapes that both measured; the drift between their hours is divided out where kernels of equal
// code were timed by both (db/store/compare.h).
#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>

#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

constexpr double kSmallest = 0.02;  // a difference that matters

struct Compared {
  std::vector<CampaignRow> campaigns;
  db::Uuid left, right;
  db::CampaignDiff diff;
};

class CampaignDiffView final : public PlotView {
 public:
  CampaignDiffView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    left_ = add_choice(tr("Baseline:"), "left", 24);
    right_ = add_choice(tr("against:"), "right", 24);
    for (QComboBox* box : {left_, right_})
      connect(box, &QComboBox::activated, this, &CampaignDiffView::ask);
    controls()->addStretch(1);
    plot().legend->setVisible(true);
    connect(&context.session, &Session::changed, this, &CampaignDiffView::ask);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const db::Uuid& campaign = this->context().selection.now().campaign;
      if (campaign == before.campaign || campaign.empty()) return;
      const int at = right_->findData(QString::fromStdString(campaign));
      if (at < 0 || at == right_->currentIndex()) return;
      right_->setCurrentIndex(at);
      ask();
    });
    ask();
  }

  bool loading() const override { return asked_; }

  TableData table() const override {
    TableData t{{"workload", "shape", "left_config", "right_config", "left_ns", "right_ns", "ratio",
                 "ratio_low", "ratio_high", "drift", "anchors", "side_by_side", "verdict"},
                {}};
    for (const db::Compared& c : compared_.diff.rows)
      t.rows.push_back({plain_text(c.a.workload), plain_text(db::text_of(c.a.dims)),
                        plain_text(c.a.config), plain_text(c.b.config), c.a.median_ns,
                        c.b.median_ns, c.ratio.value, c.ratio.low, c.ratio.high, c.drift,
                        QVariant::fromValue(c.anchors), c.side_by_side,
                        plain_text(db::name_of(c.verdict))});
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    const auto& rows = compared_.diff.rows;
    if (rows.empty()) return set_marks({});
    set_heading(tr("%1 against %2").arg(short_id(compared_.right), short_id(compared_.left)));
    plot().xAxis->setLabel(tr("workload and shape, the slowest first (number)"));
    plot().yAxis->setLabel(tr("difference (% of time)"));
    auto whole = QSharedPointer<QCPAxisTickerFixed>::create();
    whole->setTickStep(1);
    whole->setScaleStrategy(QCPAxisTickerFixed::ssMultiples);
    plot().xAxis->setTicker(whole);
    struct Part {
      db::Verdict verdict;
      QString name;
      Ink ink;
      QCPScatterStyle::ScatterShape mark;
    };
    const Part parts[] = {
        {db::Verdict::kSame, tr("no difference"), Ink::kOther, QCPScatterStyle::ssDisc},
        {db::Verdict::kFaster, tr("faster"), Ink::kBest, QCPScatterStyle::ssTriangleInverted},
        {db::Verdict::kSlower, tr("slower"), Ink::kDefault, QCPScatterStyle::ssTriangle}};
    std::vector<Mark> marks;
    ratios_ = {-2, 2};
    for (const Part& part : parts) {
      const QColor colour = ink(part.ink, palette());
      auto* graph = plot().addGraph();
      graph->setName(part.name);
      graph->setLineStyle(QCPGraph::lsNone);
      graph->setScatterStyle(QCPScatterStyle(part.mark, colour, colour, 8));
      auto* bars = new QCPErrorBars(plot().xAxis, plot().yAxis);
      bars->removeFromLegend();
      bars->setDataPlottable(graph);
      bars->setPen(QPen(colour, 1.2));
      for (size_t i = 0; i < rows.size(); ++i) {
        const db::Compared& c = rows[i];
        if (c.verdict != part.verdict) continue;
        const auto percent = [](double ratio) { return (ratio - 1) * 100; };
        const double x = static_cast<double>(i + 1), y = percent(c.ratio.value);
        graph->addData(x, y);
        bars->addData(y - percent(c.ratio.low), percent(c.ratio.high) - y);
        ratios_.expand(percent(c.ratio.low));
        ratios_.expand(percent(c.ratio.high));
        Mark m{
            x,
            y,
            tr("%1 %2 · %3 → %4 · %5 of the time (%6 to %7), %8")
                .arg(short_id(c.a.workload), plain_text(db::text_of(c.a.dims)),
                     time_text(c.a.median_ns), time_text(c.b.median_ns), factor_text(c.ratio.value),
                     factor_text(c.ratio.low), factor_text(c.ratio.high),
                     c.side_by_side ? tr("side by side")
                     : c.anchors    ? tr("drift %1 by %2 anchors divided out")
                                       .arg(factor_text(c.drift))
                                       .arg(c.anchors)
                                 : tr("no anchors: times as they are")),
            {}};
        m.choice.workload = c.a.workload;
        m.choice.shape = db::text_of(c.a.dims);
        m.choice.config = c.b.config;
        m.choice.measurement = c.b.measurement;
        marks.push_back(std::move(m));
      }
    }
    auto* level = plot().addGraph();
    level->removeFromLegend();
    level->setPen(QPen(ink(Ink::kOther, palette()), 1, Qt::DashLine));
    level->addData(0, 0);
    level->addData(static_cast<double>(rows.size() + 1), 0);
    show_all();
    set_marks(std::move(marks));
  }

  void show_all() override {
    plot().xAxis->setRange(0, static_cast<double>(compared_.diff.rows.size()) + 1);
    plot().yAxis->setRange(ratios_.lower - 0.08 * ratios_.size(),
                           ratios_.upper + 0.08 * ratios_.size());
  }

  bool is_selected(const Mark& mark) const override {
    const Choice& now = context().selection.now();
    return mark.choice.workload == now.workload && mark.choice.shape == now.shape;
  }

 private:
  void ask() {
    question_.drop();
    asked_ = context().session.is_open();
    if (!asked_) {
      compared_ = {};
      for (QComboBox* b : {left_, right_}) b->clear();
      set_status({});
      set_message(tr("No database is open: File, Open (Ctrl+O)."));
      return redraw();
    }
    const db::Uuid left = left_->currentData().toString().toStdString();
    db::Uuid right = right_->currentData().toString().toStdString();
    if (right.empty()) right = context().selection.now().campaign;
    question_ = context().session.ask<Compared>(
        this,
        [left, right](Reader& reader, const Cancel& cancel) {
          Compared c{reader.campaigns(cancel), left, right, {}};
          const auto has = [&](const db::Uuid& uuid) {
            return std::any_of(c.campaigns.begin(), c.campaigns.end(),
                               [&](const CampaignRow& row) { return row.campaign.uuid == uuid; });
          };
          if (c.campaigns.size() < 2) return c;
          // The newest against the one before it.
          if (!has(c.right)) c.right = c.campaigns.front().campaign.uuid;
          if (!has(c.left))
            c.left = c.campaigns[c.campaigns[0].campaign.uuid == c.right ? 1 : 0].campaign.uuid;
          c.diff = reader.diff(c.left, c.right, kSmallest, cancel);
          return c;
        },
        [this](Answer<Compared> answer) {
          asked_ = false;
          compared_ = answer.value ? std::move(*answer.value) : Compared{};
          fill();
          set_message(!answer.value                    ? answer.error
                      : compared_.campaigns.size() < 2 ? tr("There are fewer than two campaigns.")
                      : compared_.diff.rows.empty()
                          ? tr("The campaigns measured no workload at a shape in common.")
                          : QString());
          tell();
          redraw();
        });
  }

  void fill() {
    for (auto [box, uuid] : {std::pair(left_, compared_.left), {right_, compared_.right}}) {
      box->clear();
      for (const CampaignRow& c : compared_.campaigns)
        box->addItem(
            tr("%1 · %2").arg(short_id(c.campaign.uuid), moment_text(c.campaign.created_at)),
            QString::fromStdString(c.campaign.uuid));
      box->setCurrentIndex(box->findData(QString::fromStdString(uuid)));
    }
  }

  void tell() {
    const db::CampaignDiff& d = compared_.diff;
    if (d.rows.empty()) return set_status({});
    set_status(
        tr("%1 shapes: %2 faster, %3 slower; geometric mean %4 of the time (%5 to %6)")
            .arg(d.rows.size())
            .arg(d.faster)
            .arg(d.slower)
            .arg(factor_text(d.mean.value), factor_text(d.mean.low), factor_text(d.mean.high)));
  }

  QComboBox *left_, *right_;
  Compared compared_;
  QCPRange ratios_{-1, 1};
  Question question_;
  bool asked_ = false;
};

}  // namespace

View* make_campaigndiff(const ViewInfo& info, Context& context) {
  return new CampaignDiffView(info, context);
}

}  // namespace nimble::gui
