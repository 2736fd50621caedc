// What serves a shape, as the compiler lays it out (compiler/tuned/overlay.h): of the overrides in
// force whose region has the shape the latest, else the entry that the dispatch table's tree leads
// to, else, without a table, the template's default schedule.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gui/model/facts.h"

namespace nimble::gui {

struct Served {
  const db::Override* by = nullptr;  // the override that serves; nothing: the table
  int64_t entry = -1;                // of the table, which serves unless `by` does; -1: no table
  db::Hash config;                   // that serves; empty: the default schedule
};

class Serving {
 public:
  enum class Overrides {
    kLaid,     // over the table, as the next compilation does
    kLeftOut,  // the table alone: what an edit of it changes
  };
  // `table`: nothing for a workload without one. Pointers into `facts`, which must outlive it.
  // Throws Error(kCorrupt) for a tree that cannot be read.
  Serving(const WorkloadFacts& facts, const db::DispatchTable* table, Overrides overrides);

  Served at(const db::Dims& dims) const;
  // The way down the table's tree; empty without a table.
  std::vector<TreeStep> path_at(const db::Dims& dims) const;
  const DispatchTree& tree() const { return tree_; }
  // Values of `symbol` after which another entry or override may serve, ascending.
  std::vector<int64_t> borders_of(const std::string& symbol) const;
  // Overrides in force that the compiler passes over, with what is wrong with their regions.
  const std::vector<std::pair<const db::Override*, std::string>>& refused() const {
    return refused_;
  }

 private:
  struct Range {
    exec::DispatchFeature feature;
    int64_t first = 0;
    std::optional<int64_t> last;
  };
  struct Layer {
    const db::Override* of = nullptr;
    std::vector<Range> ranges;  // all must hold
  };

  const db::DispatchTable* table_;
  int64_t threads_;
  std::vector<std::string> symbols_;
  DispatchTree tree_;
  std::vector<Layer> layers_;  // the latest first
  std::vector<std::pair<const db::Override*, std::string>> refused_;
};

// Of what serves at shape `shape`; nothing: it was never measured there.
const Cell* cell_of(const WorkloadFacts& facts, const Served& served, size_t shape);

}  // namespace nimble::gui
