// "Workloads and kernels": where one begins. Choosing a row makes every other window show it.
#include "gui/model/units.h"
#include "gui/view/list_view.h"

namespace nimble::gui {
namespace {

std::vector<PagedColumn> workload_columns() {
  return {
      {"Kernel", "op", "The operator that the fused group is named after.", true, false},
      {"Symbols", "symbols", "Extents that vary.", true, false},
      {"Threads", "threads", "How many threads the kernel runs on.", true, true},
      {"Share", "share",
       "Of its model's time with default schedules, as the newest campaign of a service knows it.",
       true, true},
      {"Speed-up", "speed_up",
       "Over the default schedule: times taken side by side, weighted mean over the shapes.", true,
       true},
      {"Worst", "worst_speed_up", "The same at the shape that gained least.", true, true},
      {"Regret", "worst_regret",
       "The worst entry's expected time over the best known one's, less 1.", true, true},
      {"State", "state",
       "Whether the newest toolchain that the database knows made the table, or an older one.",
       true, false},
      {"Version", "version", "Of the dispatch table.", true, true},
      {"Entries", "entries", "Of the dispatch table.", true, true},
      {"Overrides", "overrides", "In force for this workload.", true, true},
      {"Class", "policy_class", "Of measuring policy: where the operands lay.", true, false},
      {"Made", "created_at_ms", "When the table was made.", true, false},
      {"Hardware", "hardware", "What it was measured on.", true, false},
      {"Workload", "workload", "Its hash.", true, false},
      {"Type", "dtype", "Data types.", true, false},
      {"Text", "canonical", "The workload's whole key.", false, false},
  };
}

PagedRow row_of(const WorkloadRow& w) {
  const auto real = [](const std::optional<double>& v) { return v ? QVariant(*v) : QVariant(); };
  const auto shown = [](const std::optional<double>& v, QString (*text)(double)) {
    return v ? text(*v) : QStringLiteral("–");
  };
  const QString op = plain_text(w.record.op), symbols = plain_text(w.record.symbolic_dims);
  const QString state = plain_text(name_of(w.standing)), type = plain_text(w.record.dtype);
  const QString hardware = plain_text(w.hardware_name), of_class = plain_text(w.policy_class);
  const QString text = plain_text(w.record.canonical, 4000);
  const QString version = w.table ? count_text(w.version) : QStringLiteral("–");
  PagedRow row;
  row.cells = {op,
               symbols,
               count_text(w.record.threads),
               shown(w.share, &percent_text),
               shown(w.speed_up, &factor_text),
               shown(w.worst_speed_up, &factor_text),
               shown(w.worst_regret, &percent_text),
               state,
               version,
               count_text(w.entries),
               count_text(w.overrides),
               of_class,
               moment_text(w.created_at),
               hardware,
               short_id(w.workload),
               type,
               text};
  row.raw = {op,
             symbols,
             QVariant::fromValue(w.record.threads),
             real(w.share),
             real(w.speed_up),
             real(w.worst_speed_up),
             real(w.worst_regret),
             state,
             w.table ? QVariant::fromValue(w.version) : QVariant(),
             QVariant::fromValue(w.entries),
             QVariant::fromValue(w.overrides),
             of_class,
             QVariant::fromValue(w.created_at),
             hardware,
             QString::fromStdString(w.workload),
             type,
             text};
  row.choice.workload = w.workload;
  row.choice.hardware = w.hardware;
  return row;
}

Listed read_workloads(Reader& reader, const Cancel& cancel) {
  Listed all;
  for (const WorkloadRow& w : reader.overview(cancel).workloads) all.rows.push_back(row_of(w));
  all.status = QObject::tr("%1 workloads").arg(count_text(static_cast<int64_t>(all.rows.size())));
  return all;
}

class WorkloadsView final : public ListView {
 public:
  WorkloadsView(const ViewInfo& info, Context& context)
      : ListView(info, context,
                 {tr("Workloads"), workload_columns(),
                  tr("Nothing was measured yet: nimble tune MODEL --db …"), &read_workloads}) {}
};

}  // namespace

View* make_workloads(const ViewInfo& info, Context& context) {
  return new WorkloadsView(info, context);
}

}  // namespace nimble::gui
