// The facts of the workload that is selected: read once for all windows that draw them.
#pragma once

#include <QObject>
#include <memory>

#include "gui/model/selection.h"
#include "gui/model/session.h"

namespace nimble::gui {

class WorkloadModel : public QObject {
  Q_OBJECT
 public:
  WorkloadModel(Session& session, Selection& selection, QObject* parent = nullptr);

  // Nothing while none is selected, the facts are on their way, or `problem` tells why not.
  const std::shared_ptr<const WorkloadFacts>& facts() const { return facts_; }
  const QString& problem() const { return problem_; }
  bool loading() const { return loading_; }

 signals:
  void changed();

 private:
  void ask();

  Session& session_;
  Selection& selection_;
  Question question_;
  std::shared_ptr<const WorkloadFacts> facts_;
  QString problem_;
  bool loading_ = false;
};

}  // namespace nimble::gui
