// "Coverage and staleness": every workload on every kind of hardware that the database knows, with
// what is missing or old, the shapes that runs saw without a table, and the command that measures
// it again, to be copied.
#include <QHBoxLayout>

#include "gui/model/units.h"
#include "gui/view/list_view.h"

namespace nimble::gui {
namespace {

std::vector<PagedColumn> coverage_columns() {
  return {
      {"Kernel", "op", "The operator that the fused group is named after.", true, false},
      {"Symbols", "symbols", "Extents that vary.", true, false},
      {"Threads", "threads", "How many threads the kernel runs on.", true, true},
      {"Hardware", "hardware", "A kind of hardware that the database knows.", true, false},
      {"State", "state",
       "Whether the newest toolchain that the database knows made the table. Whether its code is "
       "stale a compiler tells: nimble check --require-tuned.",
       true, false},
      {"Made", "created_at_ms", "When the table was made.", true, false},
      {"Missed shapes", "missed_shapes", "That runs saw without a table.", true, true},
      {"Misses", "misses", "How often they did.", true, true},
      {"Workload", "workload", "Its hash.", true, false},
      {"Verify again", "command", "The command of the campaign that made the table.", false, false},
  };
}

PagedRow coverage_row(const CoverageRow& c) {
  const WorkloadRow& w = c.row;
  const auto integer = [](int64_t n) { return QVariant::fromValue(n); };
  const QString op = plain_text(w.record.op), symbols = plain_text(w.record.symbolic_dims);
  const QString hardware = plain_text(w.hardware_name), command = plain_text(w.command, 4000);
  const QString state =
      c.measured ? plain_text(name_of(w.standing)) : QObject::tr("never measured");
  PagedRow row;
  row.cells = {op,
               symbols,
               count_text(w.record.threads),
               hardware,
               state,
               moment_text(w.created_at),
               count_text(c.missed_shapes),
               count_text(c.misses),
               short_id(w.workload),
               command};
  row.raw = {op,
             symbols,
             integer(w.record.threads),
             hardware,
             state,
             w.created_at ? integer(w.created_at) : QVariant(),
             integer(c.missed_shapes),
             integer(c.misses),
             QString::fromStdString(w.workload),
             command};
  row.choice.workload = w.workload;
  row.choice.hardware = w.hardware;
  return row;
}

Listed read_coverage(Reader& reader, const Cancel& cancel) {
  Listed all;
  int64_t current = 0;
  for (const CoverageRow& c : reader.coverage(cancel)) {
    all.rows.push_back(coverage_row(c));
    current += c.measured && c.row.standing == Standing::kNewest;
  }
  all.status = QObject::tr(
                   "%1 of %2 pairs of workload and hardware have a table of the newest "
                   "toolchain")
                   .arg(count_text(current), count_text(static_cast<int64_t>(all.rows.size())));
  return all;
}

class CoverageView final : public ListView {
 public:
  CoverageView(const ViewInfo& info, Context& context)
      : ListView(info, context,
                 {tr("Coverage"), coverage_columns(),
                  tr("Nothing was measured yet: nimble tune MODEL --db …"), &read_coverage}) {
    add_copy_button(tr("&Copy command to verify again"),
                    tr("Copies the command of the campaign that made the chosen table."),
                    QStringLiteral("command"), tr("No campaign made a table for it."));
    controls()->addStretch(1);
  }
};

}  // namespace

View* make_coverage(const ViewInfo& info, Context& context) {
  return new CoverageView(info, context);
}

}  // namespace nimble::gui
