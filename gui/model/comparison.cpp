#include "gui/model/comparison.h"

#include <cmath>

namespace nimble::gui {

std::vector<ComparedShape> compare(const WorkloadFacts& f, const db::DispatchTable& left,
                                   const db::DispatchTable& right) {
  const DispatchTree left_tree = DispatchTree::of(f.record, left);
  const DispatchTree right_tree = DispatchTree::of(f.record, right);
  const auto cell_of = [&](const db::DispatchTable& t, int64_t entry, size_t shape) {
    const auto c = f.config_index(t.entries[static_cast<size_t>(entry)].config);
    return c ? f.cell(*c, shape) : nullptr;
  };
  std::vector<ComparedShape> all;
  for (size_t s = 0; s < f.shapes.size(); ++s) {
    ComparedShape c;
    c.shape = s;
    c.left_entry = left_tree.entry_at(f.shapes[s].dims, f.record.threads);
    c.right_entry = right_tree.entry_at(f.shapes[s].dims, f.record.threads);
    c.left = cell_of(left, c.left_entry, s);
    c.right = cell_of(right, c.right_entry, s);
    c.same_config = left.entries[static_cast<size_t>(c.left_entry)].config ==
                    right.entries[static_cast<size_t>(c.right_entry)].config;
    if (c.left && c.right) {
      const db::Result &l = c.left->result, &r = c.right->result;
      c.ratio = r.median_ns / l.median_ns;
      // One configuration is itself: its own spread is no difference.
      c.low = c.same_config ? 1 : r.ci_low_ns / l.ci_high_ns;
      c.high = c.same_config ? 1 : r.ci_high_ns / l.ci_low_ns;
    }
    all.push_back(c);
  }
  return all;
}

ComparisonSummary summary_of(const std::vector<ComparedShape>& shapes) {
  ComparisonSummary sum;
  double logs = 0;
  for (const ComparedShape& c : shapes) {
    sum.changed += !c.same_config;
    if (!c.ratio) continue;
    ++sum.shapes;
    logs += std::log(*c.ratio);
    if (c.differs()) ++(*c.ratio < 1 ? sum.faster : sum.slower);
  }
  if (sum.shapes) sum.ratio = std::exp(logs / static_cast<double>(sum.shapes));
  return sum;
}

}  // namespace nimble::gui
