// A dispatch table under the editor's hand: borders and configurations change, every change can be
// undone, and what it costs is told before anything is saved. Saving makes a new version, a draft
// in the database; the table itself never changes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/regret.h"

namespace nimble::gui {

class TableDraft {
 public:
  // Throws Error(kCorrupt) for a table whose tree cannot be read.
  TableDraft(std::shared_ptr<const WorkloadFacts> facts, const db::DispatchTable& table);

  const db::DispatchTable& original() const { return original_; }
  // As it stands now, with the ranges and expectations of its entries.
  const db::DispatchTable& now() const { return states_[at_].table; }
  const DispatchTree& tree() const { return states_[at_].tree; }

  // Sets the value that a test compares with; the node must be a test. Refused, with the reason and
  // nothing changed: a value below 0, an == of a remainder beyond the divisor, and a value that
  // would leave an entry without any shape at all.
  [[nodiscard]] std::optional<std::string> move_border(size_t node, int64_t value);
  // Gives an entry another configuration, one that was measured for the workload.
  [[nodiscard]] std::optional<std::string> set_config(size_t entry, const db::Hash& config);

  bool changed() const { return at_ > 0; }
  bool can_undo() const { return at_ > 0; }
  bool can_redo() const { return at_ + 1 < states_.size(); }
  void undo();
  void redo();
  std::string last_change() const { return states_[at_].change; }  // "s0 <= 34 → 40"

  // At each measured shape, before and after; of the table alone, whatever overrides lie over it.
  std::vector<RegretPoint> before() const {
    return regret_of(*facts_, &original_, Serving::Overrides::kLeftOut);
  }
  std::vector<RegretPoint> after() const {
    return regret_of(*facts_, &now(), Serving::Overrides::kLeftOut);
  }

  // What is to be stored: a child of the original. `reason` must say why, for it is kept in the
  // entries that changed; throws Error(kInvalidArgument) if it is empty or nothing changed.
  db::NewDispatchTable to_store(const std::string& reason) const;

 private:
  struct State {
    db::DispatchTable table;
    DispatchTree tree;
    std::string change;
  };
  void push(DispatchTree tree, std::vector<db::DispatchEntry> entries, std::string change);

  std::shared_ptr<const WorkloadFacts> facts_;
  db::DispatchTable original_;
  std::vector<State> states_;
  size_t at_ = 0;
};

// The shapes that each node of the tree is reached by, as far as intervals of features tell it (a
// remainder that is not equal is no interval); nothing where no shape reaches it.
std::vector<std::optional<db::Region>> regions_of(const DispatchTree& tree);

}  // namespace nimble::gui
