#include "db/tools/t4.h"

#include <ctime>
#include <map>

#include "db/store/gpu_records.h"
#include "db/tools/find.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "1.1.0";

// ISO 8601, in UTC.
std::string timestamp(int64_t ms) {
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  char text[32];
  if (!gmtime_r(&seconds, &parts) || !std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts))
    return "";
  return fmt::format("{}.{:03}Z", text, ms % 1000);
}

// The schema's word for how a trial ended.
const char* invalidity_of(const Trial& trial) {
  // It compiled; a rule kept it from being measured.
  if (trial.state == TrialState::kCompileFailed && trial.error_class == kPruned)
    return "constraints";
  switch (trial.state) {
    case TrialState::kOk:
      return "correct";
    case TrialState::kWrong:
      return "correctness";
    case TrialState::kTimeout:
      return "timeout";
    case TrialState::kCompileFailed:
      return "compile";
    case TrialState::kCrashed:
      return "runtime";
    case TrialState::kQueued:
    case TrialState::kClaimed:
      break;
  }
  NIMBLE_UNREACHABLE("a trial that is not finished");
}

Json result_of(Store& store, const TrialOutcome& outcome, const Measured* measured) {
  const Trial& trial = outcome.trial;
  Json result = Json::object();
  if (measured) result["timestamp"] = timestamp(measured->created_at);
  result["configuration"] = Json::parse(outcome.config_json);
  result["objectives"] = Json::array({"time"});
  // What the search and the framework took is not kept for each trial.
  Json times = {{"runtimes", Json::array()}};
  Json measurements = Json::array();
  Json more = {{"shape", text_of(outcome.dims)}, {"role", name_of(trial.key.role)},
               {"threads", trial.key.threads},   {"round", trial.round},
               {"state", name_of(trial.state)},  {"trial", trial.uuid}};
  if (!trial.error_class.empty()) more["error"] = trial.error_class;
  if (measured) {
    times["compilation_time"] = measured->compile_ms * 1e6;
    if (const std::optional<Measurement> m = store.measurement(measured->measurement))
      times["runtimes"] = m->samples_ns;
    measurements.push_back({{"name", "time"}, {"value", measured->median_ns}, {"unit", "ns"}});
    if (measured->flops > 0)
      measurements.push_back({{"name", "GFLOP/s"},
                              {"value", static_cast<double>(measured->flops) / measured->median_ns},
                              {"unit", ""}});
    more["measurement"] = measured->measurement;
    more["template"] = measured->template_name;
    more["template_version"] = measured->template_version;
    more["code_hash"] = measured->code_hash;
    more["ci_low_ns"] = measured->ci_low_ns;
    more["ci_high_ns"] = measured->ci_high_ns;
    more["stop_reason"] = measured->stop_reason;
  }
  result["times"] = std::move(times);
  result["invalidity"] = invalidity_of(trial);
  result["correctness"] = trial.state == TrialState::kOk ? 1 : 0;
  result["measurements"] = std::move(measurements);
  result["nimble"] = std::move(more);
  return result;
}

}  // namespace

nlohmann::ordered_json t4_of(Store& store, const T4Options& options) {
  const Uuid uuid = find_campaign(store, options.campaign);
  const Campaign campaign = store.campaign(uuid).value();
  const Workload workload = find_workload(store, options.workload);
  const Hash workload_hash = key_of(workload);
  const std::optional<Dims> dims =
      options.shape.empty() ? std::nullopt : std::optional(dims_from_text(options.shape));

  // The newest measurement of each trial.
  std::map<Uuid, Measured> newest;
  MeasuredQuery query;
  query.campaign = uuid;
  query.workload = workload_hash;
  store.measured(query, [&](const Measured& m) {
    auto [at, is_new] = newest.try_emplace(m.trial, m);
    if (!is_new && at->second.created_at < m.created_at) at->second = m;
    return true;
  });

  Json results = Json::array();
  each_outcome(store, uuid, workload_hash, [&](const TrialOutcome& outcome) {
    if (!is_final(outcome.trial.state) || (dims && outcome.dims != *dims)) return;
    const auto measured = newest.find(outcome.trial.uuid);
    results.push_back(
        result_of(store, outcome, measured == newest.end() ? nullptr : &measured->second));
  });
  if (results.empty())
    throw Error(Status::kNotFound, store.path(),
                "the campaign has no finished trial of this workload and shape",
                "see what it has: nimble db show trials CAMPAIGN");
  const std::optional<Hardware> hardware = store.hardware(campaign.key.hardware);
  const bool of_gpu = hardware && (gpu_capability(*hardware) || hardware->isa == kAnyGpu);
  return {{"schema_version", kSchema},
          {"metadata",
           {{"platform", of_gpu ? "GPU" : "CPU"},
            {"device", hardware ? hardware->model_name : campaign.key.hardware},
            {"autotuner", "nimble"},
            {"timestamp", timestamp(campaign.created_at)},
            {"timeunit", "nanoseconds"},
            {"nimble",
             {{"campaign", uuid},
              {"workload", workload.canonical},
              {"isa", hardware ? hardware->isa : ""}}}}},
          {"results", std::move(results)}};
}

}  // namespace nimble::db
