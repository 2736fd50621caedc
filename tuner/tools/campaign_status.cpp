#include "tuner/tools/campaign_status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <string>

#include "db/store/vendor_standing.h"
#include "tuner/service/progress.h"
#include "tuner/service/task_state.h"
#include "tuner/tools/vendor_column.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"

namespace nimble::tools {
namespace {

using Json = Table::Json;

const db::MachineVerdict* verdict_of(const tuner::CampaignStatus& s, const db::Uuid& machine) {
  for (const db::MachineVerdict& v : s.verdicts)
    if (v.machine == machine) return &v;
  return nullptr;
}

// What a service told of a task. One of another version, or whoever else may write there, may tell
// anything: what is no JSON, or deeper than any service's, stays text.
Json detail_of(const db::Task& task) {
  constexpr int kDeepest = 8;
  Json out = json_nesting(task.detail) > kDeepest ? Json(Json::value_t::discarded)
                                                  : Json::parse(task.detail, nullptr, false);
  return out.is_discarded() ? Json(task.detail) : out;
}

// What people should know of a machine's times; empty: nothing.
std::string verdict_text(const db::MachineVerdict* v) {
  if (!v) return "";
  if (v->set_aside)
    return fmt::format("; set aside: {:.0f}% apart from others of its kind", 100 * v->apart);
  return v->slowness > 1.05 ? fmt::format("; {:.2f} x as slow as others", v->slowness) : "";
}

// The vendor's routines beside ours, in all tasks together: nothing while none was compared.
std::optional<db::VendorStanding> vendor_of(const tuner::CampaignStatus& s) {
  std::vector<db::VendorStanding> all;
  for (const db::Task& t : s.tasks)
    if (std::optional<db::VendorStanding> known = db::vendor_standing_of(t.detail))
      all.push_back(std::move(*known));
  if (all.empty()) return std::nullopt;
  return db::sum_of(all);
}

std::string seconds(const Json& s) {
  return s.is_null() ? "-" : tuner::duration_text(s.get<double>());
}

Table task_table(const tuner::CampaignStatus& s) {
  Table table({{"task", ""},
               {"label", "workload", [](const Json& l) { return printable(l.get<std::string>()); }},
               {"share", cell::percent},
               "phase",
               {"since", cell::time},
               {"best", "over default",
                [](const Json& ratio) {
                  return ratio.is_null() ? "-" : fmt::format("{:.2f} ×", 1 / ratio.get<double>());
                }},
               "trials",
               "failed",
               "pruned",
               vendor_column(),
               {"spent_s", "used", seconds}});
  const Json all = json_of(s);
  for (size_t i = 0; i < s.tasks.size(); ++i) {
    const tuner::TaskState state = tuner::task_state_from_json(s.tasks[i].detail);
    Json t = all["tasks"][i];
    t["best"] = state.best_ratio > 0 ? Json(state.best_ratio) : Json();
    t["trials"] = state.trials;
    t["failed"] = state.failed;
    t["pruned"] = state.pruned;
    t["spent_s"] = state.spent_s;
    if (state.vendor) t["vendor"] = Json::parse(db::json_text(*state.vendor));
    table.add_object(std::move(t));
  }
  return table;
}

// Why a task has no faster schedule, or no verified one; empty: there is nothing to say.
std::string note_of(const db::Task& task) {
  return tuner::task_state_from_json(task.detail).note;
}

constexpr size_t kMostReasons = 8;

// What people should know of it: how much it says, and where to look.
void print_vendor(std::ostream& out, const tuner::CampaignStatus& s) {
  if (const std::optional<db::VendorStanding> all = vendor_of(s)) {
    std::string text =
        fmt::format("the vendor's routines took part in {} of {} cases", all->sizes, all->of);
    if (all->failed > 0) text += fmt::format(", and were wrong or broke off in {}", all->failed);
    if (all->sizes > 0) text += fmt::format("; wins: {}", db::text_of(*all));
    out << "  " << text << '\n';
  }
  std::map<std::string, int> missing;  // tasks, by the reason
  for (const db::Task& t : s.tasks) {
    const tuner::TaskState state = tuner::task_state_from_json(t.detail);
    if (state.vendor && !state.vendor->ours_behind.empty()) {
      std::vector<std::string> sizes;
      for (const db::Dims& size : state.vendor->ours_behind) sizes.push_back(db::text_of(size));
      out << fmt::format("  {}: ours takes over 5% more at {}\n", printable(t.label),
                         printable(fmt::format("{}", fmt::join(sizes, "; "))));
    }
    const bool everywhere = state.vendor && state.vendor->sizes == state.vendor->of;
    if (!state.no_vendor.empty() && !everywhere) ++missing[state.no_vendor];
  }
  size_t told = 0;
  for (const auto& [why, tasks] : missing)
    if (told++ < kMostReasons)
      out << fmt::format("  no vendor's routine for {} of {} workloads: {}\n", tasks,
                         s.tasks.size(), printable(why));
}

}  // namespace

Table::Json json_of(const tuner::CampaignStatus& s) {
  Json tasks = Json::array(), machines = Json::array(), requests = Json::array();
  const std::optional<db::VendorStanding> vendor = vendor_of(s);
  for (const db::Task& t : s.tasks)
    tasks.push_back({{"task", t.uuid},
                     {"workload", t.workload},
                     {"label", t.label},
                     {"share", t.share ? Json(*t.share) : Json()},
                     {"calls", t.calls},
                     {"phase", t.phase},
                     {"since", t.phase_since},
                     {"detail", detail_of(t)}});
  for (const db::Consumption& c : s.machines) {
    machines.push_back(
        {{"machine", c.machine}, {"host", c.hostname}, {"consumed_s", c.consumed_s}});
    if (const db::MachineVerdict* v = verdict_of(s, c.machine))
      machines.back().update({{"set_aside", v->set_aside},
                              {"apart", v->apart},
                              {"noise", v->noise},
                              {"slowness", v->slowness}});
  }
  for (const db::Control& c : s.requests)
    requests.push_back({{"request", std::string(name_of(c.request))},
                        {"by", c.requested_by},
                        {"reason", c.reason},
                        {"at", c.created_at}});
  return {{"campaign", s.campaign.uuid},
          {"state", std::string(name_of(s.campaign.state))},
          {"served", s.served},
          {"budget_s", s.campaign.budget_s},
          {"consumed_s", s.campaign.consumed_s},
          {"trials", s.trials.trials},
          {"queued", s.trials.queued},
          {"claimed", s.trials.claimed},
          {"ok", s.trials.ok},
          {"failed", s.trials.failed},
          {"jobs_queued", s.jobs.queued},
          {"jobs_claimed", s.jobs.claimed},
          {"created_at", s.campaign.created_at},
          {"updated_at", s.campaign.updated_at},
          {"command", s.campaign.command},
          {"tasks", tasks},
          {"machines", machines},
          {"requests", requests},
          {"vendor", vendor ? Json::parse(db::json_text(*vendor)) : Json()}};
}

Table campaign_table(const std::vector<tuner::CampaignStatus>& campaigns) {
  Table table(
      {{"campaign", cell::short_id},
       "state",
       {"consumed_s", "used", seconds},
       {"budget_s", "budget", seconds},
       "trials",
       "ok",
       "failed",
       {"jobs_queued", "waiting"},
       {"jobs_claimed", "measured"},
       {"created_at", "created", cell::time},
       {"command", "command", [](const Json& c) { return printable(c.get<std::string>()); }}});
  for (const tuner::CampaignStatus& s : campaigns) table.add_object(json_of(s));
  return table;
}

Table worker_table(const tuner::FleetStatus& fleet) {
  Table table({{"worker", cell::short_id},
               "name",
               "host",
               "state",
               {"job", cell::short_id},
               {"load", "others' load"},
               {"heard_s", "heard of", [](const Json& s) { return seconds(s) + " ago"; }},
               "message"});
  for (const db::LiveWorker& w : fleet.workers) {
    Json row = {{"worker", w.worker.uuid},
                {"name", printable(w.worker.name)},
                {"host", printable(w.hostname)},
                {"hardware", w.hardware},
                {"version", w.worker.version},
                {"state", "registered"},
                {"heard_s", static_cast<double>(fleet.at_ms - w.worker.started_at) / 1e3},
                {"message", ""}};
    if (w.heartbeat) {
      row["state"] = std::string(name_of(w.heartbeat->state));
      row["load"] = w.heartbeat->load;
      row["heard_s"] = static_cast<double>(fleet.at_ms - w.heartbeat->at) / 1e3;
      row["message"] = printable(w.heartbeat->message);
      if (w.heartbeat->job) row["job"] = *w.heartbeat->job;
    }
    table.add_object(std::move(row));
  }
  return table;
}

void print_campaign(std::ostream& out, const tuner::CampaignStatus& s) {
  if (!s.tasks.empty())
    out << fmt::format("\n{}:\n", s.campaign.uuid.substr(0, 8)) << task_table(s).text("", "  ");
  for (const db::Task& t : s.tasks)
    if (const std::string note = note_of(t); !note.empty())
      out << fmt::format("  {}: {}\n", printable(t.label), printable(note));
  print_vendor(out, s);
  for (const db::Consumption& c : s.machines)
    out << fmt::format("  {} used {}{}\n", printable(c.hostname),
                       tuner::duration_text(c.consumed_s), verdict_text(verdict_of(s, c.machine)));
  for (const db::Control& c : s.requests)
    out << fmt::format("  {} was asked for by {}{}{}; no service has answered yet\n",
                       name_of(c.request), printable(c.requested_by), c.reason.empty() ? "" : ": ",
                       printable(c.reason));
}

}  // namespace nimble::tools
