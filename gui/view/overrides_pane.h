// The overrides in force for a workload: shapes that a person gave another configuration, whichever
// table is active. One is made by a dialog that tells beforehand what it would cost, and withdrawn
// with a reason.
#pragma once

#include <QWidget>
#include <functional>
#include <memory>
#include <vector>

#include "db/store/store.h"
#include "gui/model/regret.h"

class QPushButton;
class QTableWidget;

namespace nimble::gui {

struct Context;

class OverridesPane final : public QWidget {
  Q_OBJECT
 public:
  // `say` shows a line about what was done, or why not.
  OverridesPane(Context& context, std::function<void(const QString&)> say);
  // `points`: of the table that is shown, into `facts`. Without facts there is nothing to override.
  void show_facts(std::shared_ptr<const WorkloadFacts> facts, std::vector<RegretPoint> points,
                  const db::Uuid& table);

 private:
  void make();      // asks for shapes, configuration and reason
  void withdraw();  // the chosen one
  void write(std::function<QString(db::Store&)> work, const QString& done);
  void enable();

  Context& context_;
  std::function<void(const QString&)> say_;
  std::shared_ptr<const WorkloadFacts> facts_;
  std::vector<RegretPoint> points_;
  db::Uuid table_;
  QTableWidget* list_;
  QPushButton *make_, *withdraw_;
};

// What a configuration takes over what the table chose, at the shapes of a region that were
// measured with both.
struct OverrideEffect {
  size_t shapes = 0, measured = 0;  // in the region; of these with both times
  double ratio = 1, worst = 0;      // geometric mean and largest; below 1: the override is faster
};
OverrideEffect effect_of(const WorkloadFacts& facts, const std::vector<RegretPoint>& points,
                         const db::Region& region, const db::Hash& config);

}  // namespace nimble::gui
