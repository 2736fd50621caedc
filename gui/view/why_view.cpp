// "Why this kernel?": the chain from an operator of an executable file (Model run leads here), or
// from a workload at a shape, to raw samples. Enter or a click on a step selects what it is about;
// Ctrl+C copies the chosen steps, the button all of them.
#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QPushButton>

#include "gui/model/why.h"
#include "gui/view/table_pane.h"
#include "gui/view/view.h"

namespace nimble::gui {
namespace {

class WhyView final : public View {
 public:
  WhyView(const ViewInfo& info, Context& context) : View(info, context) {
    model_ = new RowsModel({{"Step", "step", "A step down the chain.", false, false},
                            {"What it says", "text", "From the database.", false, false}},
                           this);
    rows_ = new Rows;
    rows_->setObjectName(QStringLiteral("steps"));
    rows_->setAccessibleName(tr("Steps"));
    rows_->setModel(model_);
    rows_->setWordWrap(true);
    rows_->verticalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
    rows_->setColumnWidth(0, 160);
    set_content(rows_);
    auto* copy = new QPushButton(tr("&Copy all"));
    copy->setObjectName(QStringLiteral("copy"));
    controls()->addWidget(copy);
    controls()->addStretch(1);
    connect(copy, &QPushButton::clicked, this,
            [this] { QGuiApplication::clipboard()->setText(text_of(steps_)); });
    connect(rows_, &Rows::row_chosen, this, [this](const QModelIndex& index) {
      take(steps_[static_cast<size_t>(index.row())].choice);
    });
    connect(&context.workload, &WorkloadModel::changed, this, &WhyView::tell);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Selection& selection = this->context().selection;
      if (selection.now().shape != before.shape || selection.now().table != before.table ||
          selection.origin() != origin_)
        tell();
    });
    tell();
  }

  bool loading() const override { return context().workload.loading() || asked_; }
  TableData table() const override { return table_of(*model_, model_->columns()); }

 private:
  void take(const Choice& wanted) {
    Choice next = context().selection.now();
    if (!wanted.shape.empty()) next.shape = wanted.shape;
    if (!wanted.config.empty()) next.config = wanted.config;
    if (!wanted.table.empty()) next.table = wanted.table;
    if (!wanted.campaign.empty()) next.campaign = wanted.campaign;
    if (!wanted.measurement.empty()) next.measurement = wanted.measurement;
    context().selection.set(next);
  }

  void tell() {
    question_.drop();
    asked_ = false;
    const auto facts = context().workload.facts();
    origin_ = context().selection.origin();
    const bool alone = origin_ && !origin_->problem.empty();  // the database knows nothing of it
    set_message(facts || alone ? QString() : context().workload.problem());
    if (alone) return show_steps(why(*origin_), tr("an operator of an executable file"));
    if (!facts) return;
    const Choice now = context().selection.now();
    show_chain(*facts, now, nullptr);
    const db::Uuid behind = measurement_behind(*facts, now);
    if (behind.empty()) return;
    asked_ = true;
    question_ = context().session.ask<std::optional<MeasurementFacts>>(
        this,
        [behind](Reader& reader, const Cancel& cancel) {
          return reader.measurement(behind, cancel);
        },
        [this, facts, now](const Answer<std::optional<MeasurementFacts>>& answer) {
          asked_ = false;
          if (answer.value && *answer.value) show_chain(*facts, now, &**answer.value);
          set_status(answer.error);
        });
  }

  void show_chain(const WorkloadFacts& facts, const Choice& choice,
                  const MeasurementFacts* measurement) {
    std::vector<WhyStep> steps = origin_ ? why(*origin_) : std::vector<WhyStep>();
    for (WhyStep& step : why(facts, choice, measurement)) steps.push_back(std::move(step));
    show_steps(std::move(steps), plain_text(title_of(facts)));
  }

  void show_steps(std::vector<WhyStep> steps, const QString& heading) {
    if (steps == steps_) return;
    steps_ = std::move(steps);
    set_heading(heading);
    std::vector<PagedRow> rows;
    for (const WhyStep& s : steps_) rows.push_back({{s.what, s.text}, {s.what, s.text}, s.choice});
    model_->set_rows(std::move(rows));
  }

  RowsModel* model_;
  Rows* rows_;
  std::vector<WhyStep> steps_;
  std::shared_ptr<const FileOperator> origin_;
  Question question_;
  bool asked_ = false;
};

}  // namespace

View* make_why(const ViewInfo& info, Context& context) {
  return new WhyView(info, context);
}

}  // namespace nimble::gui
