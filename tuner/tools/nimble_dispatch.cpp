// nimble dispatch: shows, compares and changes dispatch tables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "db/store/identifier.h"
#include "db/store/open_existing.h"
#include "db/store/pages.h"
#include "db/store/place.h"
#include "tuner/tools/dispatch_report.h"
#include "tuner/tools/dispatch_shapes.h"
#include "tuner/tools/dispatch_verify.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"
#include "vm/executable/dispatch_text.h"

namespace nimble {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kEpilogue[] =
    "A table, an override or a configuration is named by its identifier or the beginning of it, "
    "four\n"
    "characters or more.\n\n"
    "Examples:\n"
    "  nimble dispatch show --db tuning.db\n"
    "  nimble dispatch show 3f2a --db tuning.db --format json\n"
    "  nimble dispatch diff 3f2a 77c0 --db tuning.db\n"
    "  nimble dispatch override 3f2a --region s0=17..64 --config 90ab --reason \"tail latency\" "
    "--db tuning.db\n"
    "  nimble dispatch overrides --db tuning.db\n"
    "  nimble dispatch withdraw 5d21 --reason \"tuned since\" --db tuning.db\n"
    "  nimble dispatch verify 77c0 model.onnx --db tuning.db\n"
    "  nimble dispatch rollback 77c0 --reason \"slower in production\" --db tuning.db\n"
    "  nimble dispatch report model.onnx --db tuning.db --budget 20m\n"
    "  nimble dispatch shapes model.onnx --add shapes.tsv --db tuning.db\n\n"
    "The database can also be named by the environment variable NIMBLE_DB.";

struct Arguments {
  std::string database;
  Format format = Format::kTable;
  std::string table, other, workload, config, reason;
  std::vector<std::string> region;
  int64_t entry = -1;
  bool all = false;
};

db::DispatchTable find_table(db::Store& store, const std::string& prefix) {
  return *store.table(
      db::the_one(store, db::Kind::kTable, prefix, "list them: nimble dispatch show --all"));
}

// Configurations are found among those that were measured for the workload, or stand in a table.
db::Hash find_config(db::Store& store, const db::DispatchTable& table, const std::string& prefix) {
  std::set<db::Hash> known;
  for (const db::MeasurePolicy& policy : store.policies(table.workload, table.hardware)) {
    db::ResultQuery q{table.workload, table.hardware, db::key_of(policy)};
    for (const db::Toolchain& t : store.toolchains())
      if (db::key_of(t) == table.toolchain) q.codegen_version = t.codegen_version;
    for (const db::Result& r : store.results(q)) known.insert(r.config);
  }
  for (const auto& [hash, info] : table.configs) known.insert(hash);
  return db::find_by_prefix(
      known, prefix, [](const db::Hash& h) { return h; },
      "configuration measured for this workload", "list them: nimble db top");
}

std::string config_text(const db::DispatchTable& t, const db::Hash& config) {
  const auto it = t.configs.find(config);
  return it == t.configs.end() ? config
                               : fmt::format("{} {}", it->second.template_name, it->second.json);
}

// A region may come from a database that somebody else wrote: text where it is no JSON.
Json region_json(const std::string& region) {
  Json j = Json::parse(region, nullptr, false);
  return j.is_discarded() ? Json(region) : j;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

std::string workload_label(db::Store& store, const db::Hash& hash) {
  const auto w = store.workload(hash);
  return w ? fmt::format("{} {} ({}), {} threads", w->op, hash.substr(0, 8), w->symbolic_dims,
                         w->threads)
           : hash;
}

Json json_of(const db::DispatchTable& t) {
  Json entries = Json::array();
  for (const db::DispatchEntry& e : t.entries) {
    Json j = {{"range", Json::parse(e.range)}, {"config", e.config}};
    const auto it = t.configs.find(e.config);
    if (it != t.configs.end()) {
      j["template"] = it->second.template_name;
      j["knobs"] = Json::parse(it->second.json);
    }
    if (e.evidence) j["measurement"] = *e.evidence;
    if (e.expected_ns) j["expected_ns"] = *e.expected_ns;
    if (e.regret) j["regret"] = *e.regret;
    j["override"] = e.is_override;
    if (!e.reason.empty()) j["reason"] = e.reason;
    entries.push_back(std::move(j));
  }
  Json j = {{"table", t.uuid},
            {"version", t.version},
            {"status", name_of(t.status)},
            {"workload", t.workload},
            {"hardware", t.hardware},
            {"objective", t.objective},
            {"tree", Json::parse(t.tree)},
            {"entries", std::move(entries)}};
  if (!t.policy_class.empty()) j["class"] = t.policy_class;
  if (t.parent) j["parent"] = *t.parent;
  if (t.campaign) j["campaign"] = *t.campaign;
  return j;
}

Table entry_table(const db::DispatchTable& t) {
  const auto id = [](const Json& hash) { return cell::short_id(hash); };
  Table table({"entry",
               "range",
               {"expected_ns", "expected", cell::microseconds},
               {"regret", cell::percent},
               {"config", id},
               "schedule",
               {"override", ""},
               {"reason", ""},
               "note"});
  for (size_t i = 0; i < t.entries.size(); ++i) {
    const db::DispatchEntry& e = t.entries[i];
    table.add({i, e.range, or_null(e.expected_ns), or_null(e.regret), e.config,
               config_text(t, e.config), e.is_override, e.reason,
               e.is_override ? "override: " + e.reason : e.reason});
  }
  return table;
}

Json json_of(db::Store& store, const db::Override& o) {
  Json j = {{"override", o.uuid},
            {"region", region_json(o.region)},
            {"config", o.config},
            {"template", o.info.template_name},
            {"knobs", Json::parse(o.info.json)},
            {"workload", o.workload},
            {"label", workload_label(store, o.workload)},
            {"hardware", o.hardware},
            {"reason", o.reason},
            {"created_at", o.created_at}};
  j["schedule"] = fmt::format("{} {}", o.info.template_name, o.info.json);
  if (o.evidence) j["measurement"] = *o.evidence;
  if (o.withdrawn)
    j["withdrawn"] = {{"reason", o.withdrawn->reason}, {"at", o.withdrawn->created_at}};
  return j;
}

Table override_table(db::Store& store, const std::vector<db::Override>& overrides) {
  const auto day = [](const Json& ms) { return cell::time(ms).substr(0, 10); };
  const auto text = [](const Json& t) { return printable(t.get<std::string>()); };
  Table table({{"override", cell::short_id},
               {"created_at", "made", day},
               {"region", "shapes",
                [](const Json& r) { return r.empty() ? "all" : printable(json_text(r, -1)); }},
               {"config", cell::short_id},
               "schedule",
               {"label", "workload"},
               {"workload", ""},
               {"hardware", ""},
               {"reason", text},
               {"withdrawn", [&](const Json& w) {
                  return w.is_null() ? "" : fmt::format("{}: {}", day(w["at"]), text(w["reason"]));
                }}});
  for (const db::Override& o : overrides) table.add_object(json_of(store, o));
  return table;
}

// What became of a table and why, the latest first.
std::vector<db::DispatchChange> changes_of(db::Store& store, const db::DispatchTable& t) {
  std::vector<db::DispatchChange> all = store.history(t.workload, t.hardware);
  std::erase_if(all, [&](const db::DispatchChange& c) { return c.table != t.uuid; });
  return all;
}

int show_one(db::Store& store, const Arguments& a) {
  const db::DispatchTable t = find_table(store, a.table);
  print_report(
      std::cout, a.format,
      [&] {
        Json j = json_of(t);
        j["history"] = Json::array();
        for (const db::DispatchChange& c : changes_of(store, t))
          j["history"].push_back(
              {{"status", c.status}, {"reason", c.reason}, {"at", c.created_at}});
        return j;
      },
      [&] { return entry_table(t); },
      [&] {
        fmt::print("table {} version {} ({}), measured {}\nworkload {}\nobjective {}\n", t.uuid,
                   t.version, name_of(t.status),
                   t.policy_class.empty() ? "before classes had names" : t.policy_class,
                   workload_label(store, t.workload), t.objective);
        for (const db::Comparison& c : store.comparisons(t.uuid))
          fmt::print("compared with {} at {} shapes: {:.3f} of its time, at worst {:.3f}\n",
                     c.rival ? "table " + c.rival->substr(0, 8) : "the default schedules", c.shapes,
                     c.ratio, c.worst_ratio);
        for (const db::DispatchChange& c : changes_of(store, t))
          fmt::print("{} since {}{}\n", c.status, cell::time(c.created_at),
                     c.reason.empty() ? "" : ": " + printable(c.reason));
        fmt::print("\n{}", entry_table(t).text());
        const Table laid = override_table(store, store.overrides(false, t.workload, t.hardware));
        if (!laid.empty()) fmt::print("\nlaid over the active table:\n{}", laid.text());
      });
  return kExitOk;
}

int show(const Arguments& a) {
  auto store = db::open_to_read(a.database);
  if (!a.table.empty()) return show_one(*store, a);
  Table table({{"table", cell::short_id},
               "version",
               "status",
               {"class", [](const Json& c) { return c.is_null() ? "-" : c.get<std::string>(); }},
               {"label", "workload"},
               {"workload", ""},
               {"hardware", ""},
               {"entry_count", "entries"},
               {"worst_regret", "regret", cell::percent},
               "overrides",
               "objective"});
  size_t inactive = 0;
  db::each_table(*store, [&](const db::DispatchTable& t) {
    const bool shown = a.all || t.status == db::TableStatus::kActive;
    const auto w = store->workload(t.workload);
    if (!a.workload.empty() && !t.workload.starts_with(a.workload) &&
        !(w && w->canonical.find(a.workload) != std::string::npos))
      return;
    if (!shown) {
      ++inactive;
      return;
    }
    double worst = 0;
    for (const db::DispatchEntry& e : t.entries) worst = std::max(worst, e.regret.value_or(0));
    Json row = json_of(t);
    row["label"] = workload_label(*store, t.workload);
    row["entry_count"] = t.entries.size();
    row["worst_regret"] = worst;
    row["overrides"] = store->overrides(false, t.workload, t.hardware).size();
    table.add_object(std::move(row));
  });
  const std::string none = inactive == 0
                               ? "(no table; nimble tune makes them)"
                               : fmt::format("(no active table; --all lists {} other)", inactive);
  table.print(std::cout, a.format, none);
  return kExitOk;
}

// Entry by entry where the regions agree; else both lists.
int diff(const Arguments& a) {
  auto store = db::open_to_read(a.database);
  const db::DispatchTable left = find_table(*store, a.table), right = find_table(*store, a.other);
  if (left.workload != right.workload)
    throw Error(Status::kInvalidArgument, "dispatch diff", "the tables are of different workloads",
                "list a workload's versions: nimble dispatch show --all --workload HASH");
  std::map<std::string, std::pair<const db::DispatchEntry*, const db::DispatchEntry*>> by_range;
  for (const auto& e : left.entries) by_range[e.range].first = &e;
  for (const auto& e : right.entries) by_range[e.range].second = &e;
  Table table({"range",
               "change",
               {"expected_ns", "expected", cell::microseconds},
               {"expected_then_ns", "expected then", cell::microseconds},
               "schedule",
               {"schedule_then", "schedule then"}});
  const auto expected = [](const db::DispatchEntry* e) {
    return e ? or_null(e->expected_ns) : Json();
  };
  for (const auto& [range, pair] : by_range) {
    const auto [l, r] = pair;
    const std::string change = !l                       ? "added"
                               : !r                     ? "removed"
                               : l->config == r->config ? ""
                                                        : "changed";
    table.add({range, change, expected(l), expected(r), l ? config_text(left, l->config) : "",
               r ? config_text(right, r->config) : ""});
  }
  print_report(
      std::cout, a.format,
      [&] {
        return Json{{"left", json_of(left)}, {"right", json_of(right)}};
      },
      [&] { return table; }, [&] { std::cout << table.text(); });
  return kExitOk;
}

void say_active(db::Store& store, const db::Uuid& uuid) {
  const db::DispatchTable t = *store.table(uuid);
  fmt::print("active: table {} version {} of {}\n", t.uuid, t.version,
             workload_label(store, t.workload));
}

constexpr char kRegionForms[] = "write FEATURE=FIRST..LAST, FEATURE=FIRST.. or FEATURE=VALUE";

struct FeatureRange {
  std::string feature;
  int64_t first = 0;
  std::optional<int64_t> last;  // nothing: unbounded
};

// "s0=17..64", "s0=17..", "s0=17", "s0*s1=0..4096". Which features there are, a workload says.
FeatureRange range_of(const std::string& text) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(Status::kInvalidArgument, "--region " + text, problem, kRegionForms);
  };
  const size_t equals = text.find('=');
  if (equals == std::string::npos) refuse("has no =");
  const auto number = [&](std::string_view digits) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
      refuse(fmt::format("\"{}\" is not a size", digits));
    return value;
  };
  const std::string_view range = std::string_view(text).substr(equals + 1);
  const size_t dots = range.find("..");
  FeatureRange out{text.substr(0, equals), number(range.substr(0, dots)), std::nullopt};
  if (dots == std::string_view::npos)
    out.last = out.first;
  else if (dots + 2 < range.size())
    out.last = number(range.substr(dots + 2));
  if (out.last && *out.last < out.first) refuse("is empty");
  return out;
}

void add_range(db::Region& region, const std::string& text,
               const std::vector<std::string>& symbols) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(Status::kInvalidArgument, "--region " + text, problem,
                fmt::format("{}; a feature is one of {}, A*B or ceildiv(A,8) of them", kRegionForms,
                            fmt::join(symbols, ", ")));
  };
  const FeatureRange range = range_of(text);
  const auto known = exec::feature_from_text(range.feature, symbols);
  if (!known || known->kind == exec::DispatchFeature::Kind::kThreads)
    refuse(fmt::format("{} is not a feature of the workload's shapes", range.feature));
  if (!region.emplace(range.feature, std::pair(range.first, range.last)).second)
    refuse("is given twice");
}

db::Region region_of(db::Store& store, const Arguments& a, const db::DispatchTable& t) {
  if ((a.entry >= 0) == !a.region.empty())
    throw Error(Status::kInvalidArgument, "dispatch override",
                a.entry >= 0 ? "names an entry and a region" : "names no shapes",
                "give the number of an entry, --region FEATURE=FIRST..LAST, or --region all");
  if (a.entry >= 0) {
    if (a.entry >= static_cast<int64_t>(t.entries.size()))
      throw Error(Status::kInvalidArgument, fmt::format("dispatch table {}", t.uuid),
                  fmt::format("has no entry {} (it has {})", a.entry, t.entries.size()),
                  "list them: nimble dispatch show");
    return db::region_from_json(t.entries[static_cast<size_t>(a.entry)].range,
                                fmt::format("entry {} of table {}", a.entry, t.uuid));
  }
  if (a.region == std::vector<std::string>{"all"}) return {};
  std::vector<std::string> symbols;
  if (const auto w = store.workload(t.workload)) {
    std::istringstream names(w->symbolic_dims);
    for (std::string name; std::getline(names, name, ',');) symbols.push_back(name);
  }
  db::Region region;
  for (const std::string& text : a.region) add_range(region, text, symbols);
  return region;
}

int add_override(const Arguments& a) {
  auto store = db::open_to_write(a.database);
  const db::DispatchTable t = find_table(*store, a.table);
  const db::Uuid made = store->add(db::NewOverride{t.workload, t.hardware, region_of(*store, a, t),
                                                   find_config(*store, t, a.config), a.reason});
  fmt::print("override {} of {}; it stands until: nimble dispatch withdraw {} --reason …\n", made,
             workload_label(*store, t.workload), made.substr(0, 8));
  return kExitOk;
}

int list_overrides(const Arguments& a) {
  auto store = db::open_to_read(a.database);
  override_table(*store, store->overrides(a.all))
      .print(std::cout, a.format, a.all ? "(no override)" : "(no override is in force)");
  return kExitOk;
}

int withdraw(const Arguments& a) {
  auto store = db::open_to_write(a.database);
  const db::Override o = db::find_by_prefix(
      store->overrides(), a.table, [](const db::Override& x) { return x.uuid; }, "override",
      "list those in force: nimble dispatch overrides");
  store->withdraw(o.uuid, a.reason);
  fmt::print("withdrawn: override {} of {}\n", o.uuid, workload_label(*store, o.workload));
  return kExitOk;
}

int activate(const Arguments& a) {
  auto store = db::open_to_write(a.database);
  const db::DispatchTable t = find_table(*store, a.table);
  store->activate(t.uuid, a.reason);
  say_active(*store, t.uuid);
  return kExitOk;
}

int roll_back(const Arguments& a) {
  auto store = db::open_to_write(a.database);
  const auto now = store->roll_back(find_table(*store, a.table).uuid, a.reason);
  if (now)
    say_active(*store, *now);
  else
    fmt::print("no table is active now: the default schedule is used\n");
  return kExitOk;
}

int run(int argc, char** argv) {
  CLI::App app{"Shows, compares, changes and tries dispatch tables.", "nimble dispatch"};
  app.require_subcommand(1);
  app.footer(kEpilogue);
  Arguments a;
  const auto command = [&](const char* name, const char* description) {
    CLI::App* sub = app.add_subcommand(name, description);
    sub->add_option("--db", a.database, "The database, a file or a URL")
        ->check(read_by(db::require_place))
        ->envname("NIMBLE_DB")
        ->required();
    return sub;
  };
  CLI::App* show_command = command("show", "List the active tables, or the entries of one");
  show_command->add_option("table", a.table, "The table");
  show_command->add_option("--workload", a.workload, "Hash, or part of the workload's text");
  show_command->add_flag("--all", a.all, "Drafts and retired versions too");
  add_format(*show_command, &a.format);
  CLI::App* diff_command = command("diff", "Compare two versions of a workload's table");
  diff_command->add_option("table", a.table, "The one")->required();
  diff_command->add_option("other", a.other, "The other")->required();
  add_format(*diff_command, &a.format);
  CLI::App* override_command = command(
      "override",
      "Give some shapes of a table's workload another configuration, whichever table is active");
  override_command->add_option("table", a.table, "A table of the workload")->required();
  override_command->add_option("entry", a.entry, "The shapes of this entry of the table")
      ->check(number_from_zero());
  override_command
      ->add_option("--region", a.region,
                   "The shapes: FEATURE=FIRST..LAST, FEATURE=FIRST.., FEATURE=VALUE, once per "
                   "feature, or all")
      ->check(read_by([](const std::string& text) {
        if (text != "all") range_of(text);
      }));
  override_command->add_option("--config", a.config, "The configuration (beginning of its hash)")
      ->required();
  override_command->add_option("--reason", a.reason, "Why; is kept")->required();
  CLI::App* overrides_command = command("overrides", "List the overrides in force");
  overrides_command->add_flag("--all", a.all, "Withdrawn ones too");
  add_format(*overrides_command, &a.format);
  CLI::App* withdraw_command =
      command("withdraw", "End an override; the active table decides again");
  withdraw_command->add_option("override", a.table, "The override")->required();
  withdraw_command->add_option("--reason", a.reason, "Why; is kept")->required();
  CLI::App* activate_command = command("activate", "Make a version the one that compilers use");
  activate_command->add_option("table", a.table, "The table")->required();
  activate_command->add_option("--reason", a.reason, "Why; is kept");
  CLI::App* rollback_command =
      command("rollback", "Retire an active table; what was active before it is active again");
  rollback_command->add_option("table", a.table, "The table")->required();
  rollback_command->add_option("--reason", a.reason, "Why; is kept");
  CLI::App* report_command =
      command("report", "Measure what tables lose at shapes that nobody measured before");
  tools::DispatchReportCommand report;
  report.add(*report_command, a.database);
  CLI::App* verify_command = command(
      "verify", "Time a draft beside what it would displace, and activate it if it is not slower");
  verify_command->add_option("table", a.table, "The draft, or a retired version")->required();
  tools::DispatchVerifyCommand verify;
  verify.add(*verify_command, a.database);
  CLI::App* shapes_command =
      command("shapes", "Count the shapes that a model met in production for its workloads");
  tools::DispatchShapesCommand shapes;
  shapes.add(*shapes_command, a.database);
  if (const auto code =
          parse_arguments(app, argc, argv, {kExitRegression, kExitStale, kExitInterrupted}))
    return *code;
  if (*report_command) return report.run();
  if (*shapes_command) return shapes.run();
  if (*verify_command)
    return verify.run(find_table(*db::open_to_read(a.database), a.table).uuid,
                      tools::command_of("nimble dispatch", argc, argv));
  if (*show_command) return show(a);
  if (*diff_command) return diff(a);
  if (*override_command) return add_override(a);
  if (*overrides_command) return list_overrides(a);
  if (*withdraw_command) return withdraw(a);
  if (*activate_command) return activate(a);
  return roll_back(a);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble dispatch", [&] { return nimble::run(argc, argv); });
}
