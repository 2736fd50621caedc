// The compiler's reading of the tuning database.
//
// A workload is tuned for a number of threads, which is part of its key. All thread counts that
// have a table are joined under a test of the region's threads; a count without a table of its own
// uses the largest smaller one, and counts below all of them the smallest.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/codegen/codegen.h"
#include "compiler/tuned/tuned.h"
#include "vm/base/cpu.h"

namespace nimble::tuned {
namespace {

using Json = nlohmann::json;
constexpr int64_t kMaxThreads = 64;

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

class DatabaseSource : public TunedSource {
 public:
  explicit DatabaseSource(std::shared_ptr<db::Store> store) : store_(std::move(store)) {
    for (const db::Workload& w : store_->workloads()) {
      threads_.insert({w.anchor, w.threads});
      known_.insert(w.canonical);
    }
  }

  std::string identity() const override { return store_->identity(); }

  Lookup find(const kernels::Workload& w, const kernels::TargetInfo& target) override {
    Lookup out;
    std::vector<ThreadTable> tables;
    TunedChoice choice;
    Json evidence = Json::array();
    bool begun = false;  // some campaign knows the workload
    for (int64_t threads = 1; threads <= kMaxThreads; threads *= 2) {
      db::LookupKey key{workload_record(w, target, threads), host_hardware(), toolchain_record(),
                        template_versions()};
      if (!threads_.count({key.workload.anchor, threads})) continue;
      db::LookupResult found = store_->lookup(key);
      if (found.outcome == db::LookupOutcome::kHardMismatch) {
        out.outcome = Lookup::Outcome::kMismatch;
        out.reason = found.reason;
      }
      begun |= known_.contains(key.workload.canonical);
      if (!found.table) continue;
      // A table that cannot be used must not stop a compilation: it is reported instead.
      const size_t candidates = choice.candidates.size();
      try {
        add_table(w, target, *found.table, threads, choice, tables, evidence);
      } catch (const Error& e) {
        choice.candidates.resize(candidates);
        out.outcome = Lookup::Outcome::kMismatch;
        out.reason = e.what();
        continue;
      }
      choice.stale |= found.outcome == db::LookupOutcome::kSoftStale;
      if (!found.reason.empty()) out.reason = found.reason;
    }
    if (tables.empty()) {
      if (begun && out.outcome == Lookup::Outcome::kUntuned)
        out.reason = "no table: the tuning budget ended before it, a larger one goes on";
      return out;
    }
    choice.tree = join_threads(tables);
    choice.evidence = evidence.dump();
    out.outcome = choice.stale ? Lookup::Outcome::kStale : Lookup::Outcome::kTuned;
    out.choice = std::move(choice);
    return out;
  }

 private:
  // Appends one table's candidates; a table that this compiler cannot read is a mismatch.
  static void add_table(const kernels::Workload& w, const kernels::TargetInfo& target,
                        const db::DispatchTable& table, int64_t threads, TunedChoice& choice,
                        std::vector<ThreadTable>& tables, Json& evidence) {
    exec::DispatchTree tree = tree_from_json(table.tree, w.contract.symbols);
    Json entries = Json::array();
    auto base = static_cast<uint32_t>(choice.candidates.size());
    for (const db::DispatchEntry& entry : table.entries) {
      const db::ConfigInfo& config = table.configs.at(entry.config);
      Candidate c;
      c.template_name = config.template_name;
      if (config.template_name == kVendorTemplate) {
        c.vendor = Json::parse(config.json).at("routine").get<std::string>();
      } else {
        c.config = kernels::config_from_json(config.json);
        const kernels::Template* t = kernels::find_template(config.template_name);
        if (!t || !t->accepts(w, target) || !t->valid(w, c.config, target))
          throw Error(
              Status::kIncompatible, "dispatch table " + table.uuid,
              fmt::format("template {} does not accept {}", config.template_name, config.json),
              "tune the workload again");
      }
      choice.candidates.push_back(std::move(c));
      Json j = {{"range", Json::parse(entry.range)},
                {"config", Json::parse(config.json)},
                {"template", config.template_name},
                {"override", entry.is_override}};
      if (entry.evidence) j["measurement"] = *entry.evidence;
      if (entry.expected_ns) j["expected_ns"] = *entry.expected_ns;
      if (entry.regret) j["regret"] = *entry.regret;
      if (!entry.reason.empty()) j["reason"] = entry.reason;
      entries.push_back(std::move(j));
    }
    std::string fault = tree.verify(static_cast<uint32_t>(w.contract.symbols.size()),
                                    static_cast<uint32_t>(table.entries.size()));
    if (!fault.empty())
      throw Error(Status::kCorrupt, "dispatch table " + table.uuid, fault,
                  "tune the workload again");
    tables.push_back({threads, std::move(tree), base});
    evidence.push_back({{"table", table.uuid},
                        {"version", table.version},
                        {"threads", threads},
                        {"objective", table.objective},
                        {"entries", entries}});
  }

  std::shared_ptr<db::Store> store_;
  std::set<std::pair<std::string, int64_t>> threads_;  // anchors tuned, by thread count
  std::set<std::string> known_;                        // workloads that tuning began with
};

}  // namespace

std::unique_ptr<TunedSource> database_source(std::shared_ptr<db::Store> store) {
  return std::make_unique<DatabaseSource>(std::move(store));
}

db::Workload workload_record(const kernels::Workload& w, const kernels::TargetInfo& target,
                             int64_t threads) {
  db::Workload out;
  std::string suffix = fmt::format(" threads={} target={}", threads, target.level);
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

std::vector<db::TemplateVersion> template_versions() {
  std::vector<db::TemplateVersion> out = {{kVendorTemplate, 1}};
  for (const kernels::Template* t : kernels::all_templates())
    out.push_back({std::string(t->name()), t->version()});
  return out;
}

}  // namespace nimble::tuned
