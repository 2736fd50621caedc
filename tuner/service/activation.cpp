// Which table becomes active is decided by evidence. A new one displaces what is active in its slot
// (another table, or the default schedules) only if both were timed in turn, in one session, at
// every size that it was chosen from, and it was not slower. Else it is stored as a draft: a
// campaign that was interrupted, or had no time to verify, never takes a better table's place. The
// cross-evaluation is no such evidence, though it has the default schedule's times, too: the least
// of a hundred noisy times is less than its configuration's due.
#include <algorithm>

#include "tuner/service/table_maker.h"
#include "vm/base/error.h"
#include "vm/executable/dispatch_json.h"

namespace nimble::tuner {
namespace {

std::string short_of(const db::Uuid& uuid) {
  return uuid.substr(0, 8);
}

}  // namespace

bool TableMaker::can_be_generated(const tuned::Candidate& c) const {
  if (!c.vendor.empty()) return true;
  const kernels::Template* t = kernels::find_template(c.template_name);
  return t && t->serves(records_.task().workload(), target_) &&
         t->valid(records_.task().workload(), c.config, target_);
}

std::set<db::Hash> TableMaker::active_configs(const db::NewDispatchTable& slot) const {
  std::set<db::Hash> out;
  const std::optional<db::Uuid> active = store_.active_in_slot(slot);
  if (!active) return out;
  const db::DispatchTable t = *store_.table(*active);
  for (const db::DispatchEntry& e : t.entries) {
    // One that this program cannot build any more competes no longer.
    try {
      const auto& info = t.configs.at(e.config);
      if (records_.space().contains(candidate_of(info.template_name, info.json)))
        out.insert(e.config);
    } catch (const Error&) {
      continue;
    }
  }
  return out;
}

TableMaker::Verdict TableMaker::judge(const db::NewDispatchTable& made,
                                      const TableOrder& order) const {
  const TableEvidence& e = order.evidence;
  Verdict out;
  out.rival = store_.active_in_slot(made);
  if (order.basis == TableBasis::kSearch) {
    out.reason = "only one size was measured";
    return out;
  }
  const std::vector<std::string>& symbols = e.cross.symbols;
  const auto threads = static_cast<int32_t>(records_.threads());
  const exec::DispatchTree tree = exec::tree_from_json(made.tree, symbols);
  std::optional<db::DispatchTable> rival;
  exec::DispatchTree rival_tree;
  if (out.rival) {
    rival = store_.table(*out.rival);
    // One that no compiler can use any more is no rival.
    try {
      rival_tree = exec::tree_from_json(rival->tree, symbols);
      const auto size = static_cast<uint32_t>(symbols.size());
      bool usable = rival_tree.verify(size, static_cast<uint32_t>(rival->entries.size())).empty();
      for (const db::DispatchEntry& entry : rival->entries) {
        const auto info = rival->configs.find(entry.config);
        usable = usable && info != rival->configs.end() &&
                 can_be_generated(candidate_of(info->second.template_name, info->second.json));
      }
      if (!usable) rival.reset();
    } catch (const Error&) {
      rival.reset();
    }
  }
  if (order.basis != TableBasis::kVerified) {
    out.reason = fmt::format("there was no time to verify it against {}",
                             rival ? "table " + short_of(*out.rival) : "the default schedule");
    return out;
  }
  if (e.cross.shapes.empty()) {
    out.reason = "the default schedule fails or is wrong beside it";
    return out;
  }
  const auto time_of = [&](const db::Hash& config, size_t column) -> std::optional<double> {
    const auto it = std::find(e.configs.begin(), e.configs.end(), config);
    if (it == e.configs.end()) return std::nullopt;
    return e.cross.times[static_cast<size_t>(it - e.configs.begin())][column];
  };
  double sum = 0, mass = 0, worst = 0;
  for (size_t s = 0; s < e.cross.shapes.size(); ++s) {
    const std::vector<int64_t>& shape = e.cross.shapes[s];
    const db::Hash& config = made.entries[tree.choose(shape, threads)].config;
    const std::optional<double> own = time_of(config, s);
    const db::Hash& other = rival ? rival->entries[rival_tree.choose(shape, threads)].config
                                  : records_.default_config();
    const std::optional<double> theirs = time_of(other, s);
    // Of a draft that somebody wrote; a table that was chosen from these times has them all.
    if (!own) {
      out.reason =
          fmt::format("its configuration {} fails, is wrong or had no time", short_of(config));
      return out;
    }
    if (!theirs && rival && !order.verified.contains(other)) {
      out.reason = fmt::format("a schedule of table {} was not measured", short_of(*out.rival));
      return out;
    }
    if (!theirs && rival) {
      // It was measured with the others, and failed or was wrong.
      out.activate = true;
      out.reason = fmt::format("table {} has a schedule that fails now", short_of(*out.rival));
      return out;
    }
    if (!theirs) {
      out.reason = "the default schedule has no time beside it";
      return out;
    }
    const double weight = std::max(e.cross.weights[s], 1e-9);
    sum += weight * *own / *theirs;
    mass += weight;
    worst = std::max(worst, *own / *theirs);
  }
  const double ratio = sum / mass;
  out.activate = ratio <= 1;
  out.comparison = db::Comparison{"",
                                  "",
                                  rival ? out.rival : std::nullopt,
                                  static_cast<int64_t>(e.cross.shapes.size()),
                                  ratio,
                                  std::max(worst, ratio)};
  out.reason = fmt::format("{:.3f} of the time of {}, side by side at {} sizes", ratio,
                           rival ? "table " + short_of(*out.rival) : "the default schedule",
                           e.cross.shapes.size());
  return out;
}

TriedDraft TableMaker::try_draft(const db::DispatchTable& draft, const TableOrder& order,
                                 bool activate) const {
  TriedDraft out;
  store_.transaction([&] {
    const Verdict verdict = judge(draft, order);
    out = {false, verdict.reason, verdict.comparison};
    if (out.comparison) {
      out.comparison->table = draft.uuid;
      out.comparison->uuid = store_.add(*out.comparison);
    }
    if (!verdict.activate || !activate) return;
    store_.activate(draft.uuid, verdict.reason);
    out.active = true;
  });
  return out;
}

}  // namespace nimble::tuner
