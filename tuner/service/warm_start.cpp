#include "tuner/service/warm_start.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/kernels/targets.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// The workload's keys for every level: its records are kept apart by level.
std::set<db::Hash> keys_of(const Space& space, int64_t threads) {
  std::set<db::Hash> out;
  for (const kernels::TargetRow& row : kernels::all_targets())
    out.insert(db::key_of(tuned::workload_record(space.workload(), row.info, threads)));
  return out;
}

// Of a table that somebody else may have written: what is no point of the space is passed over.
void add_points(const db::DispatchTable& table, const Space& space, std::set<std::string>& seen,
                std::vector<tuned::Candidate>& out) {
  for (const db::DispatchEntry& entry : table.entries) {
    const auto info = table.configs.find(entry.config);
    if (info == table.configs.end()) continue;
    try {
      tuned::Candidate c = candidate_of(info->second.template_name, info->second.json);
      if (space.contains(c) && seen.insert(text_of(c)).second) out.push_back(std::move(c));
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace

int unlikeness(const db::Hardware& a, const db::Hardware& b) {
  int out = 0;
  const auto differ = [&](bool different, int weight) { out += different ? weight : 0; };
  differ(a.isa != b.isa, 16);
  differ(a.vendor != b.vendor, 8);
  differ(a.caches != b.caches, 4);
  differ(a.vendor != b.vendor || a.family != b.family || a.model != b.model, 2);
  differ(a.topology != b.topology, 1);
  return out;
}

std::vector<tuned::Candidate> warm_start(db::Store& store, const Space& space, int64_t threads,
                                         const db::Hash& hardware, size_t most) {
  const auto here = store.hardware(hardware);
  struct Source {
    int unlike = 0;
    db::DispatchTable table;
  };
  std::vector<Source> sources;
  std::map<db::Hash, int> unlike;
  for (const db::Hash& workload : keys_of(space, threads))
    for (db::DispatchTable& table : store.tables(workload)) {
      if (!unlike.contains(table.hardware)) {
        const auto there = store.hardware(table.hardware);
        unlike[table.hardware] = table.hardware == hardware ? -1
                                 : here && there            ? unlikeness(*here, *there)
                                                            : INT32_MAX;
      }
      const int far = unlike.at(table.hardware);
      sources.push_back({far, std::move(table)});
    }
  const auto rank = [](const Source& s) {
    return std::tuple(s.unlike, s.table.status != db::TableStatus::kActive, -s.table.created_at,
                      s.table.uuid);
  };
  std::sort(sources.begin(), sources.end(),
            [&](const Source& a, const Source& b) { return rank(a) < rank(b); });
  std::vector<tuned::Candidate> out;
  std::set<std::string> seen{text_of(space.default_candidate())};
  for (const Source& s : sources) {
    if (out.size() >= most) break;
    add_points(s.table, space, seen, out);
  }
  out.resize(std::min(out.size(), most));
  return out;
}

}  // namespace nimble::tuner
