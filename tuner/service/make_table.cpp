// The last step of a task: from the best evidence in the database to a dispatch table
// (table_maker.cpp). What the table loses is reported by table_report.cpp.
#include "tuner/service/task_run.h"

namespace nimble::tuner {

TableMaker TaskRun::table_maker() const {
  return {context_.store,    records_,          context_.target,
          context_.campaign, context_.hardware, context_.toolchain};
}

std::pair<TableBasis, TableEvidence> TaskRun::best_evidence() const {
  TableBasis basis = TableBasis::kVerified;
  TableEvidence e = compared(verified_);
  if (e.configs.empty()) {
    basis = TableBasis::kCross;
    e = evidence({db::Role::kCross});
  }
  if (e.configs.empty()) {
    basis = TableBasis::kSearch;
    e = evidence({db::Role::kSearch, db::Role::kBaseline});
  }
  put_first(e, records_.default_config());
  return {basis, std::move(e)};
}

void TaskRun::make_table(bool complete) {
  const Account::Span storing(context_.account, Activity::kStore);
  TableOrder order;
  std::tie(order.basis, order.evidence) = best_evidence();
  const TableEvidence& e = order.evidence;
  if (e.configs.empty()) {
    if (report_.note.empty()) report_.note = "nothing was measured";
    return;
  }
  for (const auto& [config, times] : verified_) order.verified.insert(config);
  order.best = best_known(e);
  order.noise = report_.noise;
  order.tried = report_.k;
  order.complete = complete;
  const MadeTable made = table_maker().make(order);
  report_.table = made.uuid;
  report_.inactive = made.inactive;
  if (!report_.inactive.empty())
    context_.meter.note(fmt::format("{}: {}", task_.label, report_.inactive));
  report_table(made.table, e, order.best);
  if (complete) keep_code(made.record);
}

}  // namespace nimble::tuner
