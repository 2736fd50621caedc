#include "gui/model/selection.h"

#include <QSignalBlocker>
#include <utility>

namespace nimble::gui {

void Selection::set(Choice next, FileOperator origin) {
  const Choice before = now_;
  {
    const QSignalBlocker quiet(this);
    set(std::move(next));
  }
  origin_ = std::make_shared<const FileOperator>(std::move(origin));
  emit changed(before);
}

void Selection::set(Choice next) {
  if (next.workload != now_.workload || next.hardware != now_.hardware) {
    // Whoever sets several parts at once has set these too.
    if (next.policy == now_.policy) next.policy.clear();
    if (next.shape == now_.shape) next.shape.clear();
    if (next.config == now_.config) next.config.clear();
    if (next.table == now_.table) next.table.clear();
  }
  const bool elsewhere = next.workload != now_.workload || next.hardware != now_.hardware ||
                         next.shape != now_.shape || next.config != now_.config ||
                         next.campaign != now_.campaign;
  if (elsewhere) {
    if (next.trial == now_.trial) next.trial.clear();
    if (next.measurement == now_.measurement) next.measurement.clear();
  }
  if (next == now_) return;
  if (next.workload != now_.workload || next.hardware != now_.hardware || next.shape != now_.shape)
    origin_.reset();
  const Choice before = std::exchange(now_, std::move(next));
  emit changed(before);
}

void Selection::set_workload(const std::string& hash) {
  Choice next = now_;
  next.workload = hash;
  set(std::move(next));
}
void Selection::set_campaign(const std::string& uuid) {
  Choice next = now_;
  next.campaign = uuid;
  set(std::move(next));
}
void Selection::set_shape(const std::string& dims) {
  Choice next = now_;
  next.shape = dims;
  set(std::move(next));
}
void Selection::set_config(const std::string& hash) {
  Choice next = now_;
  next.config = hash;
  set(std::move(next));
}
void Selection::set_table(const std::string& uuid) {
  Choice next = now_;
  next.table = uuid;
  set(std::move(next));
}

}  // namespace nimble::gui
