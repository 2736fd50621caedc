// The compiler's reading of the tuning database.
//
// A workload is tuned for a number of threads, which is part of its key. All thread counts that
// have a table are joined under a test of the region's threads; a count without a table of its own
// uses the largest smaller one, and counts below all of them the smallest.
//
// Overrides are laid over each table, and over the default schedule where there is no table. What
// cannot be used, a damaged table or an override of a configuration that the template refuses, must
// not stop a compilation: it is left out and reported.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/cuda.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/vendor.h"
#include "compiler/tuned/overlay.h"
#include "compiler/tuned/policy_class.h"
#include "compiler/tuned/tuned.h"
#include "db/store/host_records.h"
#include "vm/base/printable.h"
#include "vm/base/text_table.h"
#include "vm/executable/dispatch_json.h"

namespace nimble::tuned {
namespace {

using Json = nlohmann::json;
constexpr int64_t kMaxThreads = 1024;
constexpr size_t kMostThreadCounts = 64;
constexpr size_t kMostOverrides = 64;  // of one workload and thread count
constexpr size_t kMostEntries = 256;   // of one table
constexpr size_t kMostTimes = 256;     // of one entry that go into the executable

struct ThreadTable {
  int64_t threads;
  exec::DispatchTree tree;
  uint32_t base;  // of its candidates
};

// A tree over kThreads whose leaves are the tables' trees.
exec::DispatchTree join_threads(const std::vector<ThreadTable>& tables) {
  using exec::DispatchNode;
  exec::DispatchTree by_threads;
  for (size_t i = 0; i + 1 < tables.size(); ++i) {
    auto here = static_cast<uint32_t>(by_threads.nodes.size());
    DispatchNode node;
    node.test = DispatchNode::Test::kLessEqual;
    node.feature.kind = exec::DispatchFeature::Kind::kThreads;
    node.threshold = tables[i + 1].threads - 1;
    node.yes = here + 1;
    node.no = here + 2;
    by_threads.nodes.push_back(node);
    by_threads.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, static_cast<uint32_t>(i), 0});
  }
  by_threads.nodes.push_back(
      {DispatchNode::Test::kLeaf, {}, 0, static_cast<uint32_t>(tables.size() - 1), 0});
  std::vector<exec::DispatchTree> trees;
  std::vector<uint32_t> base;
  for (const ThreadTable& t : tables) {
    trees.push_back(t.tree);
    base.push_back(t.base);
  }
  return by_threads.graft(trees, base);
}

[[noreturn]] void refuse(const std::string& place, const std::string& problem) {
  throw Error(Status::kIncompatible, place, problem, "tune the workload again");
}

// A configuration of the database as this compiler's candidate.
Candidate candidate_of(const db::ConfigInfo& config, const kernels::Workload& w,
                       const kernels::TargetInfo& target, const std::string& place) {
  Candidate c;
  c.template_name = config.template_name;
  if (config.template_name == kVendorTemplate) {
    const Json json = Json::parse(config.json, nullptr, false);
    if (!json.is_object() || !json.contains("routine") || !json["routine"].is_string() ||
        json["routine"].get<std::string>().empty())
      refuse(place,
             fmt::format("the vendor configuration {} names no routine", printable(config.json)));
    c.vendor = json["routine"].get<std::string>();
    std::string why;
    const auto call = kernels::vendor_call_of(w, target, &why);
    if (!call || call->routine != c.vendor)
      refuse(place, fmt::format("the vendor's routine {} does not compute it{}{}",
                                printable(c.vendor), why.empty() ? "" : ": ", why));
    return c;
  }
  c.config = kernels::config_from_json(config.json);
  const kernels::Template* t = kernels::find_template(config.template_name);
  if (!t || !t->serves(w, target) || !t->valid(w, c.config, target))
    refuse(place, fmt::format("template {} does not accept {}", config.template_name,
                              printable(config.json)));
  return c;
}

// What one entry's configuration took, by the values of the contract's symbols.
Json times_of(const std::vector<db::EntryTime>& times, const db::Hash& config,
              const std::vector<std::string>& symbols) {
  Json out = Json::array();
  for (const db::EntryTime& t : times) {
    if (t.config != config || out.size() >= kMostTimes) continue;
    Json values = Json::array();
    for (const std::string& s : symbols)
      if (const auto it = t.dims.find(s); it != t.dims.end()) values.push_back(it->second);
    if (values.size() == symbols.size()) out.push_back({values, t.median_ns});
  }
  return out;
}

// JSON of the database, whoever wrote it: Error for text that is none or that nests without end.
Json json_of(const std::string& text, const std::string& place) {
  return Json::parse(db::canonical_json(text, place));
}

// Text of the database that goes into the executable.
std::string shortened(const std::string& text) {
  constexpr size_t kMost = 500;
  return text.size() > kMost ? text.substr(0, kMost) + "…" : text;
}

class DatabaseSource : public TunedSource {
 public:
  DatabaseSource(std::shared_ptr<db::Store> store, db::Hardware hardware,
                 std::optional<db::Hardware> gpu)
      : store_(std::move(store)), hardware_(std::move(hardware)), gpu_(std::move(gpu)) {
    for (const int64_t n : store_->thread_counts())
      if (n >= 1 && n <= kMaxThreads) thread_counts_.push_back(n);
  }

  std::string identity() const override { return store_->identity(); }
  int64_t last_cache_bytes(const kernels::TargetInfo& target) const override {
    const db::Hardware* hardware = hardware_of(target);
    return hardware ? db::last_cache_bytes(*hardware) : 0;
  }

  Lookup find(const kernels::Workload& w, const kernels::TargetInfo& target,
              const std::string& policy_class) override {
    Lookup out;
    const db::Hardware* hardware = hardware_of(target);
    if (!hardware) return out;
    const db::Toolchain toolchain = toolchain_record(target);
    Search s{w, target, {}, {}, Json::array(), {}};
    std::vector<std::string> classes = policy_fallbacks(policy_class);
    classes.insert(classes.begin(), policy_class);
    std::map<int64_t, db::Workload> known;  // to some campaign, by threads
    for (const int64_t threads : thread_counts_)
      if (db::Workload record = workload_record(w, target, threads);
          store_->workload(db::key_of(record)))
        known.emplace(threads, std::move(record));
    bool mismatch = false, fallback = false, tuned = false;
    for (const auto& [threads, record] : known) {
      if (s.tables.size() >= kMostThreadCounts) {
        s.notes.push_back(
            fmt::format("tables for more than {} numbers of threads: those beyond {} "
                        "are left out",
                        kMostThreadCounts, s.tables.back().threads));
        break;
      }
      const db::LookupResult found =
          store_->lookup({record, *hardware, toolchain, template_versions(), classes});
      const auto note = [&, threads = threads](const std::string& text) {
        s.notes.push_back(known.size() > 1 ? fmt::format("{} thread{}: {}", threads,
                                                         threads == 1 ? "" : "s", text)
                                           : text);
      };
      if (found.outcome == db::LookupOutcome::kHardMismatch) {
        mismatch = true;
        note(found.reason);
      }
      try {
        if (add(s, found, threads, note)) tuned |= found.table.has_value();
      } catch (const Error& e) {
        mismatch = true;
        note(e.what());
        continue;
      }
      if (found.outcome == db::LookupOutcome::kFallback) {
        fallback = true;
        note(found.reason);
      } else if (found.outcome == db::LookupOutcome::kSoftStale) {
        out.other_toolchain = found.reason;
      }
    }
    out.reason = fmt::format("{}", fmt::join(s.notes, "; "));
    if (mismatch && !tuned) out.outcome = Lookup::Outcome::kMismatch;
    if (s.tables.empty()) {
      if (!known.empty() && !mismatch) out.reason = why_no_table(known, *hardware);
      return out;
    }
    for (const ThreadTable& t : s.tables) out.threads.push_back(t.threads);
    s.choice.tree = join_threads(s.tables);
    s.choice.evidence = s.evidence.dump(-1, ' ', false, Json::error_handler_t::replace);
    out.choice = std::move(s.choice);
    if (tuned) out.outcome = fallback ? Lookup::Outcome::kFallback : Lookup::Outcome::kTuned;
    return out;
  }

 private:
  // Whose records serve the target: a GPU's only that GPU's own.
  const db::Hardware* hardware_of(const kernels::TargetInfo& target) const {
    if (!target.is_gpu()) return &hardware_;
    return gpu_ ? &*gpu_ : nullptr;
  }

  // Why no table serves a workload that some campaign has met, by threads.
  std::string why_no_table(const std::map<int64_t, db::Workload>& known,
                           const db::Hardware& hardware) {
    for (const auto& [threads, record] : known)
      for (const db::DispatchTable& t : store_->tables(db::key_of(record), db::key_of(hardware))) {
        if (t.status == db::TableStatus::kActive) continue;
        const std::string name = t.uuid.substr(0, 8);
        return fmt::format(
            "table {0} is stored, not active: nimble dispatch show {0} --db {1} tells what it was "
            "compared with, nimble dispatch activate {0} --db {1} uses it",
            name, shell_word(store_->path()));
      }
    return "no table: tuning kept the default schedule, or its budget ended first; a larger one "
           "goes on";
  }

  // What has been found for a workload so far.
  struct Search {
    const kernels::Workload& workload;
    const kernels::TargetInfo& target;
    TunedChoice choice;
    std::vector<ThreadTable> tables;
    Json evidence;
    std::vector<std::string> notes;
  };

  // Appends what was found for one thread count: the table's candidates or the default schedule,
  // and the overrides. False if there is nothing; Error for a table that this compiler cannot read,
  // and then nothing was appended.
  template <typename Note>
  bool add(Search& s, const db::LookupResult& found, int64_t threads, const Note& note) {
    if (!found.table && found.overrides.empty()) return false;
    const std::vector<std::string>& symbols = s.workload.contract.symbols;
    std::vector<Candidate> candidates;
    std::vector<std::string> hashes;
    Json entries = Json::array();
    exec::DispatchTree tree = exec::DispatchTree::single(0);
    const auto base = static_cast<uint32_t>(s.choice.candidates.size());
    const auto entry_of = [&](const db::ConfigInfo& config, const std::string& range,
                              const std::string& reason, bool is_override,
                              const std::string& place) {
      return Json{{"candidate", base + candidates.size()},
                  {"range", json_of(range, place)},
                  {"config", json_of(config.json, place)},
                  {"template", config.template_name},
                  {"override", is_override},
                  {"reason", shortened(reason)}};
    };
    Json row = {{"threads", threads}};
    std::vector<db::EntryTime> times;
    if (found.table) {
      const db::DispatchTable& table = *found.table;
      const std::string place = "dispatch table " + table.uuid;
      tree = exec::tree_from_json(table.tree, symbols);
      if (table.entries.size() > kMostEntries)
        refuse(place, fmt::format("it has {} entries, at most {} are possible",
                                  table.entries.size(), kMostEntries));
      times = store_->times(table.uuid);
      for (const db::DispatchEntry& entry : table.entries) {
        const auto config = table.configs.find(entry.config);
        if (config == table.configs.end()) refuse(place, "an entry's configuration is not there");
        Candidate c = candidate_of(config->second, s.workload, s.target, place);
        Json j = entry_of(config->second, entry.range, entry.reason, entry.is_override, place);
        if (entry.evidence) j["measurement"] = *entry.evidence;
        if (entry.expected_ns) j["expected_ns"] = *entry.expected_ns;
        if (entry.regret) j["regret"] = *entry.regret;
        j["measured"] = times_of(times, entry.config, symbols);
        entries.push_back(std::move(j));
        candidates.push_back(std::move(c));
        hashes.push_back(entry.code_hash);
      }
      const std::string fault = tree.verify(static_cast<uint32_t>(symbols.size()),
                                            static_cast<uint32_t>(candidates.size()));
      if (!fault.empty()) throw Error(Status::kCorrupt, place, fault, "tune the workload again");
      row["table"] = table.uuid;
      row["version"] = table.version;
      row["class"] = table.policy_class;
      row["objective"] = shortened(table.objective);
    } else {
      const kernels::Template* t = kernels::template_for(s.workload, s.target);
      if (!t) return false;
      candidates.push_back({std::string(t->name()), t->default_config(s.workload, s.target), {}});
      hashes.emplace_back();
      entries.push_back({{"candidate", base},
                         {"range", Json::object()},
                         {"config", Json::parse(kernels::to_json(candidates[0].config))},
                         {"template", candidates[0].template_name},
                         {"override", false},
                         {"reason", "default schedule"}});
    }

    std::vector<Layer> layers;
    for (const db::Override& o : found.overrides) {
      const std::string place = "override " + o.uuid;
      if (layers.size() >= kMostOverrides) {
        note(fmt::format("more than {} overrides: the earliest are left out; withdraw some",
                         kMostOverrides));
        break;
      }
      try {
        Layer layer = layer_of(o, symbols);
        Candidate c = candidate_of(o.info, s.workload, s.target, place);
        layer.leaf = static_cast<uint32_t>(candidates.size());
        Json j = entry_of(o.info, o.region, o.reason, true, place);
        j["id"] = o.uuid;
        if (o.evidence) j["measurement"] = *o.evidence;
        j["measured"] = times_of(times, o.config, symbols);
        entries.push_back(std::move(j));
        candidates.push_back(std::move(c));
        hashes.push_back(o.code_hash);
        layers.push_back(std::move(layer));
      } catch (const Error& e) {
        note(e.what());
      }
    }
    if (!found.table && layers.empty()) return false;
    if (!layers.empty())
      note(fmt::format("{} override{} in force", layers.size(), layers.size() > 1 ? "s" : ""));
    row["entries"] = std::move(entries);
    s.evidence.push_back(std::move(row));
    s.tables.push_back({threads, lay_over(layers, tree), base});
    std::move(candidates.begin(), candidates.end(), std::back_inserter(s.choice.candidates));
    std::move(hashes.begin(), hashes.end(), std::back_inserter(s.choice.code_hashes));
    return true;
  }

  std::shared_ptr<db::Store> store_;
  const db::Hardware hardware_;
  const std::optional<db::Hardware> gpu_;
  std::vector<int64_t> thread_counts_;  // that any workload is tuned for
};

}  // namespace

std::string with_stale(const std::string& evidence, const std::vector<bool>& stale) {
  Json tables = Json::parse(evidence, nullptr, false);
  if (!tables.is_array()) return evidence;
  for (Json& table : tables)
    for (Json& entry : table["entries"])
      if (const auto c = entry.value("candidate", stale.size()); c < stale.size() && stale[c])
        entry["stale"] = true;
  return tables.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::unique_ptr<TunedSource> database_source(std::shared_ptr<db::Store> store,
                                             const db::Hardware& hardware,
                                             std::optional<db::Hardware> gpu) {
  return std::make_unique<DatabaseSource>(std::move(store), hardware, std::move(gpu));
}

std::unique_ptr<TunedSource> database_source(std::shared_ptr<db::Store> store) {
  return database_source(std::move(store), db::host_hardware());
}

namespace {

// The lowest level that makes of a workload the code that `target` makes: those that only add
// instructions of fragments differ for workloads of their types alone, and what is tuned for one
// serves the others.
std::string level_of_record(const kernels::Workload& w, const kernels::TargetInfo& target) {
  const auto may_serve = [&](const std::string& feature) {
    bool known = false, serves = false;
    const auto look = [&](const auto& rows) {
      for (const auto& row : rows) {
        if (row.feature != feature) continue;
        known = true;
        for (const exec::KernelArgument& a : w.contract.arguments)
          serves |= a.kind == exec::KernelArgument::Kind::kTensor &&
                    (a.dtype == row.a || a.dtype == row.b);
      }
    };
    look(kir::all_fragments());
    for (const kir::FragmentOtherwise& o : kir::all_fragments_otherwise())
      if (o.feature == feature) {
        kir::FragmentRow row = kir::row_of(o.id);
        row.feature = feature;
        look(std::span(&row, 1));
      }
    look(kir::all_tile_fragments());
    return serves || !known;
  };
  const kernels::TargetInfo* level = &target;
  const std::vector<kernels::TargetRow>& rows = kernels::all_targets();
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    const kernels::TargetInfo& lower = row->info;
    if (!kernels::is_lower_level(lower, *level)) continue;
    if (lower.vector_bits != level->vector_bits ||
        lower.vector_registers != level->vector_registers ||
        std::any_of(level->features.begin(), level->features.end(),
                    [&](const std::string& f) { return !lower.has(f) && may_serve(f); }))
      break;
    level = &lower;
  }
  return level->level;
}

}  // namespace

db::Workload workload_record(const kernels::Workload& w, const kernels::TargetInfo& target,
                             int64_t threads) {
  db::Workload out;
  std::string suffix = fmt::format(" threads={} target={}", threads, level_of_record(w, target));
  std::string constants;
  for (bool c : w.constant_parameter) constants += c ? 'c' : 'v';
  out.canonical = w.key + " args=" + constants + suffix;
  out.anchor = w.anchor_key + suffix;
  out.op = w.anchor;
  const ir::Type& result = w.group->result_type;
  const ir::Type& first = result->kind == ir::TypeKind::kTuple ? result->elements[0] : result;
  out.dtype = std::string(name_of(first->dtype));
  out.layout = "row-major";
  for (const ir::Binding& b : w.group->body->bindings)
    if (auto it = b.value->attrs.find("layout"); it != b.value->attrs.end())
      out.layout = std::get<std::string>(it->second);
  for (const std::string& s : w.contract.symbols)
    out.symbolic_dims += (out.symbolic_dims.empty() ? "" : ",") + s;
  out.threads = threads;
  return out;
}

db::Toolchain toolchain_record() {
  std::string backend = codegen::backend_version();  // "LLVM 19.1.7"
  size_t space = backend.find(' ');
  db::Toolchain t;
  t.compiler = "llvm";
  t.version = space == std::string::npos ? backend : backend.substr(space + 1);
  // As candidates are generated for measuring and for shipping (codegen::Options).
  t.flags = fmt::format("-O{}", codegen::Options().optimize);
  t.codegen_version = codegen::kCodegenVersion;
  t.revision = NIMBLE_VERSION;
  return t;
}

db::Toolchain toolchain_record(const kernels::TargetInfo& target) {
  if (!target.is_gpu()) return toolchain_record();
  const std::string backend = codegen::cuda_backend_version();  // "NVRTC 13.0"
  db::Toolchain t;
  t.compiler = "nvrtc";
  if (!backend.empty()) t.version = backend.substr(backend.find(' ') + 1);
  t.flags = codegen::cuda_flags();
  t.codegen_version = codegen::kCodegenVersion;
  t.revision = NIMBLE_VERSION;
  return t;
}

void require_toolchain(const kernels::TargetInfo& target) {
  if (target.is_gpu()) codegen::require_cuda(target);
}

std::vector<db::TemplateVersion> template_versions() {
  std::vector<db::TemplateVersion> out = {{kVendorTemplate, kTemplateVersion}};
  for (const kernels::Template* t : kernels::all_templates())
    out.push_back({std::string(t->name()), kTemplateVersion});
  return out;
}

}  // namespace nimble::tuned
