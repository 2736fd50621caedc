#include "gui/model/trials_source.h"

#include "gui/model/units.h"

namespace nimble::gui {
namespace {

enum Column { kPosition, kRole, kState, kShape, kConfig, kTime, kPredicted, kRound, kError };

class TrialsSource final : public PagedSource {
 public:
  explicit TrialsSource(TrialQuery query) : query_(std::move(query)) {}

  TrialCount count(Reader& reader, const Cancel& cancel) const override {
    return reader.number_trials(query_, numbers_, cancel);
  }
  std::vector<PagedRow> rows(Reader& reader, int64_t first, int64_t count,
                             const Cancel& cancel) const override {
    std::vector<PagedRow> rows;
    for (const db::TrialOutcome& o : reader.trials(query_, numbers_, first, count, cancel))
      rows.push_back(row_of(o));
    return rows;
  }

 private:
  static PagedRow row_of(const db::TrialOutcome& o) {
    const db::Trial& t = o.trial;
    const std::string shape = db::text_of(o.dims);
    const auto time = [](const std::optional<double>& ns) {
      return ns ? QVariant(time_text(*ns)) : QVariant(QStringLiteral("–"));
    };
    const auto raw = [](const std::optional<double>& ns) {
      return ns ? QVariant(*ns) : QVariant();
    };
    const QString role = plain_text(db::name_of(t.key.role));
    const QString state = plain_text(db::name_of(t.state));
    const QString config = plain_text(o.config_json);
    const QString error =
        t.error_class.empty() ? QString() : plain_text(t.error_class + ": " + t.message);
    PagedRow row;
    row.cells = {count_text(t.position),
                 role,
                 state,
                 plain_text(shape),
                 config,
                 time(o.median_ns),
                 time(t.predicted_ns),
                 count_text(t.round),
                 error};
    row.raw = {QVariant::fromValue(t.position),
               role,
               state,
               plain_text(shape),
               config,
               raw(o.median_ns),
               raw(t.predicted_ns),
               QVariant::fromValue(t.round),
               error};
    row.choice.workload = t.key.workload;
    row.choice.config = t.key.config;
    row.choice.shape = shape;
    row.choice.trial = t.uuid;
    return row;
  }

  TrialQuery query_;
  mutable TrialNumbers numbers_;  // guards itself
};

}  // namespace

std::vector<PagedColumn> trial_columns() {
  return {
      {"#", "position", "Place in the campaign's queue.", true, true},
      {"Role", "role", "Search, cross-evaluation, verification or baseline.", false, false},
      {"State", "state", "How the trial ended.", true, false},
      {"Shape", "shape", "Extents of the workload's symbols.", false, false},
      {"Configuration", "config", "The knobs of the kernel's template.", false, false},
      {"Measured", "median_ns", "Median of the samples.", true, true},
      {"Predicted", "predicted_ns", "What the cost model expected.", true, true},
      {"Round", "round", "Round of the search.", false, true},
      {"Error", "error", "Why it failed.", false, false},
  };
}

PagedModel::MakeSource trials_source(TrialQuery query) {
  return [query](int column, Qt::SortOrder order) -> std::shared_ptr<const PagedSource> {
    TrialQuery sorted = query;
    sorted.order = column == kTime        ? TrialOrder::kTime
                   : column == kPredicted ? TrialOrder::kPredicted
                   : column == kState     ? TrialOrder::kState
                                          : TrialOrder::kQueue;
    sorted.descending = column >= 0 && order == Qt::DescendingOrder;
    return std::make_shared<TrialsSource>(std::move(sorted));
  };
}

}  // namespace nimble::gui
