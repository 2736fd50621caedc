#include "tuner/service/status.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tuner/service/submission.h"

namespace nimble::tuner {
namespace {

// A label's value: a backslash, a quote and the end of a line are escaped.
std::string label(const std::string& value) {
  std::string out = "\"";
  for (const char c : value)
    out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  return out + '"';
}

// The metric families, each with its head once and its samples together, as the format demands.
class Metrics {
 public:
  // `unit`: empty, or the end of the name.
  void family(const std::string& name, const char* type, const std::string& unit,
              const std::string& help) {
    name_ = name;
    suffix_ = std::string_view(type) == "counter" ? "_total" : "";
    text_ += fmt::format("# TYPE {} {}\n", name, type);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name, unit);
    text_ += fmt::format("# HELP {} {}\n", name, help);
  }
  void sample(const std::vector<std::pair<const char*, std::string>>& labels, double value) {
    std::string text;
    for (const auto& [key, of] : labels)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, label(of));
    text_ += fmt::format("{}{}{{{}}} {}\n", name_, suffix_, text, value);
  }
  std::string text() const { return text_ + "# EOF\n"; }

 private:
  std::string name_, suffix_, text_;
};

}  // namespace

bool is_submitted(const db::Campaign& campaign) {
  const auto options = nlohmann::json::parse(campaign.key.options, nullptr, false);
  return options.is_object() && options.contains(kSubmissionOption);
}

CampaignStatus status_of(db::Store& store, const db::Campaign& campaign) {
  return {campaign,
          is_submitted(campaign),
          store.progress(campaign.uuid),
          store.open_jobs(campaign.uuid),
          store.tasks(campaign.uuid),
          store.consumption(campaign.uuid),
          store.verdicts(campaign.uuid),
          store.open_requests(campaign.uuid)};
}

FleetStatus fleet_status(db::Store& store, int64_t most) {
  FleetStatus out;
  out.at_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count();
  constexpr int64_t kPage = 100;
  std::optional<db::Campaign> after;
  do {
    const std::vector<db::Campaign> page = store.campaigns(kPage, after);
    after.reset();
    if (static_cast<int64_t>(page.size()) == kPage) after = page.back();
    for (const db::Campaign& c : page)
      if (c.resumable() && static_cast<int64_t>(out.campaigns.size()) < most)
        out.campaigns.push_back(status_of(store, c));
  } while (after && static_cast<int64_t>(out.campaigns.size()) < most);
  out.workers = store.live_workers();
  return out;
}

std::string open_metrics(const FleetStatus& fleet) {
  Metrics m;
  const auto each = [&](const auto& sample) {
    for (const CampaignStatus& c : fleet.campaigns) sample(c, c.campaign.uuid);
  };
  m.family("nimble_campaign_budget_seconds", "gauge", "seconds",
           "Machine-seconds that a campaign may use.");
  each([&](const auto& c, const auto& id) { m.sample({{"campaign", id}}, c.campaign.budget_s); });
  m.family("nimble_campaign_consumed_seconds", "counter", "seconds",
           "Machine-seconds that a campaign has used.");
  each([&](const auto& c, const auto& id) {
    double machines = 0;
    for (const db::Consumption& used : c.machines) {
      m.sample({{"campaign", id}, {"host", used.hostname}, {"machine", used.machine}},
               used.consumed_s);
      machines += used.consumed_s;
    }
    // One of nimble tune is of one machine, which is not told apart.
    if (c.machines.empty()) m.sample({{"campaign", id}}, c.campaign.consumed_s - machines);
  });
  m.family("nimble_campaign_machine_set_aside", "gauge", "",
           "1 where a machine's times disagree with those of its kind, else 0.");
  each([&](const auto& c, const auto& id) {
    for (const db::MachineVerdict& v : c.verdicts)
      m.sample({{"campaign", id}, {"machine", v.machine}}, v.set_aside);
  });
  m.family("nimble_campaign_state", "stateset", "", "Whether a campaign runs or waits.");
  each([&](const auto& c, const auto& id) {
    for (const db::CampaignState s :
         {db::CampaignState::kRunning, db::CampaignState::kPaused, db::CampaignState::kInterrupted})
      m.sample({{"campaign", id}, {"nimble_campaign_state", std::string(name_of(s))}},
               c.campaign.state == s);
  });
  m.family("nimble_campaign_trials", "gauge", "", "Trials of a campaign by their state.");
  each([&](const auto& c, const auto& id) {
    m.sample({{"campaign", id}, {"state", "queued"}}, static_cast<double>(c.trials.queued));
    m.sample({{"campaign", id}, {"state", "claimed"}}, static_cast<double>(c.trials.claimed));
    m.sample({{"campaign", id}, {"state", "ok"}}, static_cast<double>(c.trials.ok));
    m.sample({{"campaign", id}, {"state", "failed"}}, static_cast<double>(c.trials.failed));
  });
  m.family("nimble_campaign_jobs", "gauge", "", "Jobs of a campaign that wait or are measured.");
  each([&](const auto& c, const auto& id) {
    m.sample({{"campaign", id}, {"state", "queued"}}, static_cast<double>(c.jobs.queued));
    m.sample({{"campaign", id}, {"state", "claimed"}}, static_cast<double>(c.jobs.claimed));
  });
  m.family("nimble_worker_heartbeat_age_seconds", "gauge", "seconds",
           "Time since a worker was last heard of.");
  const auto of = [](const db::LiveWorker& w) {
    return std::vector<std::pair<const char*, std::string>>{
        {"host", w.hostname}, {"name", w.worker.name}, {"worker", w.worker.uuid}};
  };
  for (const db::LiveWorker& w : fleet.workers)
    m.sample(of(w), static_cast<double>(fleet.at_ms -
                                        (w.heartbeat ? w.heartbeat->at : w.worker.started_at)) /
                        1e3);
  m.family("nimble_worker_load", "gauge", "", "Runnable threads of others on a worker's machine.");
  for (const db::LiveWorker& w : fleet.workers)
    if (w.heartbeat) m.sample(of(w), w.heartbeat->load);
  m.family("nimble_worker_measuring", "gauge", "", "1 while a worker measures, else 0.");
  for (const db::LiveWorker& w : fleet.workers)
    m.sample(of(w), w.heartbeat && w.heartbeat->state == db::WorkerState::kMeasuring);
  return m.text();
}

}  // namespace nimble::tuner
