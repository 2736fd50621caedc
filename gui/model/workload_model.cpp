#include "gui/model/workload_model.h"

namespace nimble::gui {

WorkloadModel::WorkloadModel(Session& session, Selection& selection, QObject* parent)
    : QObject(parent), session_(session), selection_(selection) {
  connect(&session_, &Session::changed, this, &WorkloadModel::ask);
  connect(&selection_, &Selection::changed, this, [this](const Choice& before) {
    const Choice& now = selection_.now();
    if (now.workload != before.workload || now.hardware != before.hardware ||
        now.policy != before.policy)
      ask();
  });
}

void WorkloadModel::ask() {
  const Choice now = selection_.now();
  question_.drop();
  const bool same = facts_ && facts_->workload == now.workload && facts_->hardware == now.hardware;
  if (!same || !session_.is_open())
    facts_.reset();  // else the old ones stay in sight until the new ones are there
  problem_.clear();
  if (!facts_) problem_ = tr("Reading…");
  loading_ = session_.is_open() && !now.workload.empty() && !now.hardware.empty();
  if (loading_)
    question_ = session_.ask<std::optional<WorkloadFacts>>(
        this,
        [now](Reader& reader, const Cancel& cancel) {
          return reader.workload(now.workload, now.hardware, now.policy, cancel);
        },
        [this](Answer<std::optional<WorkloadFacts>> answer) {
          loading_ = false;
          facts_.reset();
          problem_.clear();
          if (!answer.value)
            problem_ = answer.error;
          else if (!*answer.value)
            problem_ = tr("No measurement of this workload on this hardware.");
          else
            facts_ = std::make_shared<const WorkloadFacts>(std::move(**answer.value));
          emit changed();
        });
  else
    problem_ = tr("Choose a workload in “Workloads and kernels”.");
  emit changed();
}

}  // namespace nimble::gui
