#include "db/tools/show.h"

#include <algorithm>
#include <set>

#include "db/store/rank_correlations.h"
#include "db/tools/find.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

constexpr int64_t kMostShapes = 100'000;  // the most frequent: more than anybody reads

std::string short_of(const std::string& key) {
  return key.substr(0, 8);
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

std::string name_of_hardware(Store& store, const Hash& hash) {
  const std::optional<Hardware> found = store.hardware(hash);
  return found ? fmt::format("{} ({})", found->model_name, found->isa) : hash;
}

}  // namespace

Table show_summary(Store& store) {
  Table out({"what", "value"});
  out.add({"file", store.path()});
  out.add({"identity", store.identity()});
  out.add({"schema", store.schema_version()});
  out.add({"hardware", store.hardware().size()});
  out.add({"toolchains", store.toolchains().size()});
  int64_t workloads = 0, tables = 0, active = 0, campaigns = 0;
  each_workload(store, [&](const Workload& w) {
    ++workloads;
    for (const DispatchTable& t : store.tables(key_of(w))) {
      ++tables;
      active += t.status == TableStatus::kActive;
    }
  });
  out.add({"workloads", workloads});
  CampaignProgress total;
  each_campaign(store, [&](const Campaign& c) {
    ++campaigns;
    const CampaignProgress p = store.progress(c.uuid);
    total.trials += p.trials;
    total.ok += p.ok;
    total.failed += p.failed;
  });
  out.add({"campaigns", campaigns});
  out.add({"trials", total.trials});
  out.add({"trials ok", total.ok});
  out.add({"trials failed", total.failed});
  out.add({"dispatch tables", tables});
  out.add({"dispatch tables active", active});
  out.add({"overrides in force", store.overrides().size()});
  int64_t missed = 0;
  for (const Misses& m : store.misses()) missed += m.shapes;
  out.add({"shapes missed", missed});
  return out;
}

Table show_hardware(Store& store) {
  Table out({"hash", "model", "isa", "caches", "topology", "virtualised"});
  for (const Hardware& h : store.hardware())
    out.add({key_of(h), h.model_name, h.isa, h.caches, h.topology, h.virtualised});
  return out;
}

Table show_toolchains(Store& store) {
  Table out({"hash", "compiler", "version", "codegen", "flags", "revision", "dirty"});
  for (const Toolchain& t : store.toolchains())
    out.add({key_of(t), t.compiler, t.version, t.codegen_version, t.flags, t.revision, t.dirty});
  return out;
}

Table show_workloads(Store& store) {
  Table out({"hash", "op", "dtype", "symbols", "threads", "active", "workload"});
  each_workload(store, [&](const Workload& w) {
    int64_t active = 0;
    for (const DispatchTable& t : store.tables(key_of(w)))
      active += t.status == TableStatus::kActive;
    out.add({key_of(w), w.op, w.dtype, w.symbolic_dims, w.threads, active, w.canonical});
  });
  return out;
}

Table show_dispatch(Store& store) {
  Table out({"table", "version", "status", "class", "entry", "range", "config", "expected_ns",
             "regret", "override", "reason", "hardware", "workload"});
  each_table(store, [&](const DispatchTable& t) {
    int64_t ordinal = 0;
    for (const DispatchEntry& e : t.entries)
      out.add({t.uuid, t.version, name_of(t.status), t.policy_class, ordinal++, e.range,
               t.configs.at(e.config).json, or_null(e.expected_ns), or_null(e.regret),
               e.is_override, e.reason, name_of_hardware(store, t.hardware),
               name_of_workload(store, t.workload)});
  });
  return out;
}

Table show_misses(Store& store) {
  Table out({"count", "shape", "workload", "hardware"});
  for (const MetShape& m : store.met_shapes({}, true, kMostShapes))
    out.add({m.count, text_of(m.dims), name_of_workload(store, m.workload),
             name_of_hardware(store, m.hardware)});
  return out;
}

Table show_shapes(Store& store) {
  Table out({"count", "shape", "table", "measured", "workload", "hardware"});
  for (const MetShape& m : store.met_shapes({}, false, kMostShapes))
    out.add({m.count, text_of(m.dims), m.has_table, m.is_measured,
             name_of_workload(store, m.workload), name_of_hardware(store, m.hardware)});
  return out;
}

Table show_measurement(Store& store, const std::string& prefix) {
  const Uuid uuid = the_one(store, Kind::kMeasurement, prefix, "list them: nimble db top");
  const std::optional<Measurement> m = store.measurement(uuid);
  NIMBLE_CHECK(m, "measurement {} is gone, though nothing removes one", uuid);
  if (m->samples_ns.empty())
    throw Error(Status::kNotFound, "measurement " + uuid,
                "its raw samples were removed (nimble db clean)",
                fmt::format("median {} ns, 95 %: {} to {} ns, stopped: {}; nimble db top has it",
                            m->median_ns, m->ci_low_ns, m->ci_high_ns, printable(m->stop_reason)));
  Table out({"sample", "ns", "outlier"});
  for (size_t i = 0; i < m->samples_ns.size(); ++i)
    out.add({i, m->samples_ns[i], i < m->outliers.size() && m->outliers[i]});
  return out;
}

Table show_trials(Store& store, const std::string& prefix) {
  const Uuid campaign = find_campaign(store, prefix);
  Table out({"trial",
             "role",
             "round",
             "shape",
             "state",
             "attempt",
             "median_ns",
             "predicted_ns",
             "error",
             "message",
             {"configuration", cell::short_id},
             "config"});
  each_outcome(store, campaign, {}, [&](const TrialOutcome& o) {
    out.add({o.trial.uuid, name_of(o.trial.key.role), o.trial.round, text_of(o.dims),
             name_of(o.trial.state), o.trial.attempt, or_null(o.median_ns),
             or_null(o.trial.predicted_ns), o.trial.error_class, o.trial.message,
             o.trial.key.config, o.config_json});
  });
  return out;
}

Table show_models(Store& store, const std::string& prefix) {
  const Uuid campaign = find_campaign(store, prefix);
  Table out({"workload", "round", "rank_correlation"});
  for (const Task& t : store.tasks(campaign))
    for (const auto& [round, rank] : rank_correlations_of(t.detail))
      out.add({name_of_workload(store, t.workload), round, rank});
  return out;
}

Table show_campaigns(Store& store) {
  Table out({"campaign", "state", "started", "consumed_s", "budget_s", "trials", "ok", "failed",
             "queued", "command"});
  each_campaign(store, [&](const Campaign& c) {
    const CampaignProgress p = store.progress(c.uuid);
    out.add({c.uuid, name_of(c.state), cell::time(c.created_at), c.consumed_s, c.budget_s, p.trials,
             p.ok, p.failed, p.queued + p.claimed, c.command});
  });
  return out;
}

Table show_top(Store& store, const TopOptions& options) {
  Table out({"workload", "hardware", "policy", "codegen", "shape", "role", "rank", "median_ns",
             "ci_low_ns", "ci_high_ns", "n", "template", "config", "measurement"});
  std::vector<Role> roles;
  if (!options.role.empty()) {
    const std::optional<Role> role = role_from_name(options.role);
    NIMBLE_CHECK(role.has_value(), "the arguments were checked");
    roles.push_back(*role);
  }
  const std::string shape =
      options.shape.empty() ? "" : text_of(dims_from_text(options.shape));  // in canonical order
  std::set<int64_t> codegen_versions;
  for (const Toolchain& t : store.toolchains()) codegen_versions.insert(t.codegen_version);

  bool matched = false;
  each_workload(store, [&](const Workload& w) {
    if (!is_named(w, options.workload)) return;
    const Hash hash = key_of(w);
    matched = true;
    for (const Hardware& h : store.hardware())
      for (const MeasurePolicy& policy : store.policies(hash, key_of(h)))
        for (int64_t version : codegen_versions) {
          // Fastest first, so a count per shape and role is the rank.
          std::map<std::pair<std::string, Role>, int64_t> ranks;
          for (const Result& r :
               store.results({hash, key_of(h), key_of(policy), version, roles, {}, -1})) {
            const std::string dims = text_of(r.dims);
            if (!shape.empty() && dims != shape) continue;
            const int64_t rank = ++ranks[{dims, r.role}];
            if (rank > options.limit) continue;
            out.add({w.canonical, h.model_name,
                     fmt::format(
                         "{} {}",
                         policy.policy_class.empty() ? name_of(policy.mode) : policy.policy_class,
                         short_of(r.policy)),
                     version, dims, name_of(r.role), rank, r.median_ns, r.ci_low_ns, r.ci_high_ns,
                     r.n, r.template_name, r.config_json, r.measurement});
          }
        }
  });
  if (!matched && !options.workload.empty())
    throw Error(Status::kNotFound, store.path(),
                fmt::format("has no workload that matches '{}'", options.workload),
                "list them: nimble db show workloads");
  return out;
}

}  // namespace nimble::db
