#include "tuner/service/submission.h"

#include <nlohmann/json.hpp>
#include <set>

#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/tuned/tuned.h"
#include "db/store/gpu_records.h"
#include "tuner/fleet/case_record.h"
#include "tuner/service/submission_group.h"
#include "tuner/service/tuning_machine.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/stage.h"

namespace nimble::tuner {
namespace {

using nlohmann::json;

constexpr int kFormat = 2;
constexpr char kFunction[] = "group", kPlace[] = "submission";
// Far beyond any model, and small enough that a hostile record is refused in seconds.
constexpr size_t kMostTasks = 10'000, kMostPoints = 1'000, kMostThreads = 64;
constexpr int64_t kMostThreadsEach = 4096;
constexpr double kMostElements = 0x1p34;  // of one tensor
constexpr double kMostWeight = 1e15;      // of a size, or calls: sums and products are numbers
constexpr size_t kMostText = size_t{1} << 26;
constexpr int kDeepest = 16;

json json_of(const TuningTask& t) {
  json points = json::array();
  for (const WorkloadPoint& p : t.points) {
    points.push_back({{"symbols", p.symbols},
                      {"weight", p.weight},
                      {"power_of_two", p.power_of_two},
                      {"representative", p.representative},
                      {"held_out", p.held_out}});
    if (p.exact > 0) points.back()["exact"] = p.exact;
  }
  ir::PrintOptions whole;
  whole.inline_constant_elements = INT64_MAX;
  std::vector<int> constant(t.workload().constant_parameter.begin(),
                            t.workload().constant_parameter.end());
  return {{"group", ir::print(*t.use.primitive, kFunction, whole)},
          {"passed", passed_symbols(t.workload())},
          {"constant", constant},
          {"source", t.use.source},
          {"calls", t.calls},
          {"identity", t.workload().identity()},
          {"points", points}};
}

void check_sizes(const kernels::Workload& w, const WorkloadPoint& p, const std::string& place) {
  for (const exec::KernelArgument& a : w.contract.arguments) {
    double elements = 1;
    for (const exec::DimProgram& d : a.dims) {
      const int64_t extent = d.evaluate1(p.symbols);
      if (extent < 0) corrupt_submission(place, fmt::format("makes an extent of {}", extent));
      elements *= static_cast<double>(extent);
    }
    if (elements > kMostElements) corrupt_submission(place, "makes a tensor of too many elements");
  }
}

double weight_of(const json& j, const std::string& place) {
  const double out = j.get<double>();
  if (!(out >= 0 && out <= kMostWeight)) corrupt_submission(place, "is no weight");
  return out;
}

WorkloadPoint point_of(const json& j, size_t symbols, const std::string& place) {
  WorkloadPoint p;
  p.symbols = integers_at<int64_t>(j, "symbols", "submission: " + place);
  if (p.symbols.size() != symbols)
    corrupt_submission(place,
                       fmt::format("gives {} extents for {} symbols", p.symbols.size(), symbols));
  for (const int64_t extent : p.symbols)
    if (extent < 0 || extent > kLargestSize)
      corrupt_submission(place, fmt::format("{} is no extent", extent));
  p.weight = weight_of(j.at("weight"), place + ".weight");
  if (j.contains("exact")) p.exact = weight_of(j.at("exact"), place + ".exact");
  if (p.exact > p.weight) corrupt_submission(place, "more is met exactly than in all");
  p.power_of_two = j.at("power_of_two").get<bool>();
  p.representative = j.at("representative").get<bool>();
  p.held_out = j.at("held_out").get<bool>();
  return p;
}

TuningTask task_of(const json& j, const std::string& place) {
  TuningTask t;
  const std::vector<int> constant = integers_at<int>(j, "constant", "submission: " + place);
  try {
    t.use.primitive = group_of(j.at("group").get<std::string>(),
                               j.at("passed").get<std::vector<std::string>>(), place);
    if (constant.size() != t.use.primitive->parameters.size())
      corrupt_submission(place, "does not say which of its parameters are constant");
    t.use.workload = kernels::make_workload(*t.use.primitive,
                                            std::vector<bool>(constant.begin(), constant.end()));
  } catch (const json::exception&) {
    throw;
  } catch (const Error& e) {
    if (e.status() == Status::kCorrupt) throw;
    corrupt_submission(place, e.what());
  } catch (const std::exception& e) {
    corrupt_submission(place, e.what());  // such as an attribute that an operator lacks
  }
  if (t.workload().identity() != j.at("identity").get<std::string>())
    throw Error(Status::kUnsupported, "submission: " + place,
                "its workload has another key here: it was submitted by another version of nimble",
                "submit the model again");
  t.use.source = j.at("source").get<std::string>();
  t.calls = weight_of(j.at("calls"), place + ".calls");
  const json& points = j.at("points");
  if (points.empty() || points.size() > kMostPoints)
    corrupt_submission(place, "has no points, or too many");
  const size_t symbols = t.workload().contract.symbols.size();
  const PossibleSizes possible(t.workload());
  std::set<std::vector<int64_t>> seen;
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string at = fmt::format("{}.points[{}]", place, i);
    t.points.push_back(point_of(points[i], symbols, at));
    check_sizes(t.workload(), t.points.back(), at);
    if (!possible.contains(t.points.back().symbols))
      corrupt_submission(at, "cannot occur: the group asks for other extents");
    if (!seen.insert(t.points.back().symbols).second) corrupt_submission(at, "stands there twice");
  }
  try {
    complete(t);
  } catch (const Error& e) {
    corrupt_submission(place, e.what());
  }
  return t;
}

}  // namespace

std::string to_json(const Submission& s) {
  json tasks = json::array();
  for (const TuningTask& t : s.tasks) tasks.push_back(json_of(t));
  json out{
      {"format", kFormat},    {"target", s.target}, {"policy", json::parse(json_text(s.policy))},
      {"threads", s.threads}, {"top_k", s.top_k},   {"only_hot", s.only_hot},
      {"seed", s.seed},       {"tasks", tasks}};
  // As usual is as it was before there was a choice: the same submission is the same campaign.
  const SearchEnd usual;
  if (s.search_end.patience != usual.patience) out["patience"] = s.search_end.patience;
  if (s.search_end.max_trials != usual.max_trials) out["max_trials"] = s.search_end.max_trials;
  return nimble::json_text(out, -1);  // names of operators may be any bytes
}

Submission submission_of(const std::string& text) {
  if (text.size() > kMostText) corrupt_submission("record", "is too large");
  if (json_nesting(text) > kDeepest) corrupt_submission("record", "nests too deep");
  Submission s;
  try {
    const json j = json::parse(text);
    if (const int64_t format = integer_at<int64_t>(j, "format", kPlace); format != kFormat)
      throw Error(Status::kUnsupported, "submission",
                  fmt::format("is of format {}; this program knows {}", format, kFormat),
                  "use the version of nimble that submitted it");
    s.target = j.at("target").get<std::string>();
    try {
      kernels::target_by_name(s.target);
    } catch (const Error& e) {
      corrupt_submission("target", e.what());
    }
    s.policy = policy_from_json(j.at("policy").dump(), "submission: policy");
    s.threads = integers_at<int64_t>(j, "threads", kPlace);
    if (s.threads.empty() || s.threads.size() > kMostThreads)
      corrupt_submission("threads", "are none");
    for (const int64_t t : s.threads)
      if (t < 1 || t > kMostThreadsEach)
        corrupt_submission("threads", fmt::format("{} is no number of threads", t));
    if (std::set(s.threads.begin(), s.threads.end()).size() != s.threads.size())
      corrupt_submission("threads", "name a number twice");
    const int64_t top_k = integer_at<int64_t>(j, "top_k", kPlace);
    if (top_k < 1 || top_k > 1'000'000) corrupt_submission("top_k", "is out of range");
    s.top_k = static_cast<size_t>(top_k);
    s.only_hot = weight_of(j.at("only_hot"), "only_hot");
    if (s.only_hot > 1) corrupt_submission("only_hot", "is above 1");
    s.seed = integer_at<int64_t>(j, "seed", kPlace);
    if (j.contains("patience")) s.search_end.patience = integer_at<int64_t>(j, "patience", kPlace);
    if (j.contains("max_trials"))
      s.search_end.max_trials = integer_at<int64_t>(j, "max_trials", kPlace);
    if (s.search_end.patience < 1 || s.search_end.max_trials < 1)
      corrupt_submission("patience, max_trials", "must be above 0");
    const json& tasks = j.at("tasks");
    if (!tasks.is_array() || tasks.empty() || tasks.size() > kMostTasks)
      corrupt_submission("tasks", "are none, or too many");
    std::set<std::string> seen;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const std::string place = fmt::format("tasks[{}]", i);
      s.tasks.push_back(task_of(tasks[i], place));
      if (!seen.insert(s.tasks.back().workload().identity()).second)
        corrupt_submission(place, "stands there twice");
    }
  } catch (const json::exception& e) {
    corrupt_submission("record", e.what());
  }
  return s;
}

void extend(db::Store& store, const db::Campaign& campaign, double budget_s) {
  if (budget_s <= campaign.budget_s) return;
  store.transaction([&] {
    store.set_budget(campaign.uuid, budget_s);
    if (!campaign.resumable()) store.set_campaign_state(campaign.uuid, db::CampaignState::kRunning);
  });
}

db::Uuid submit(db::Store& store, const Submission& submission, const db::Hash& hardware,
                double budget_s, const std::string& command) {
  const std::string text = to_json(submission);
  submission_of(text);  // what nobody could read is not stored
  const kernels::TargetInfo target = kernels::target_by_name(submission.target);
  tuned::require_toolchain(target);  // a campaign is of its version
  const int64_t driver = driver_of_fleet(store, target, hardware);
  db::Uuid campaign;
  const Stage stage("submit");
  store.transaction([&] {
    const db::Digest digest =
        store.put_blob(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
    db::CampaignKey key;
    key.digest = digest;
    key.hardware = hardware;
    key.seed = submission.seed;
    const db::Toolchain toolchain = toolchain_on(target, driver);
    json options{{kSubmissionOption, digest},
                 {"target", target.level},
                 {"codegen", toolchain.codegen_version},
                 {"backend", toolchain.version}};
    if (driver != 0) options[db::kDriverOption] = driver;
    key.options = options.dump();
    const db::Store::OpenedCampaign opened = store.open_campaign(key, budget_s, command);
    campaign = opened.campaign.uuid;
    if (!opened.is_new) {
      extend(store, opened.campaign, budget_s);
      // Of one that was merged nothing is done before somebody here wants it.
      if (opened.campaign.resumable() && !store.is_at_home(campaign))
        store.set_campaign_state(campaign, db::CampaignState::kRunning);
      return;
    }
    store.put(toolchain);
    std::vector<db::Task> tasks;
    for (const TuningTask& t : submission.tasks)
      for (const int64_t threads : submission.threads) {
        const db::Hash workload = store.put(tuned::workload_record(t.workload(), target, threads));
        db::Task task;
        task.campaign = campaign;
        task.workload = workload;
        task.label = t.label;
        task.calls = static_cast<int64_t>(std::llround(t.calls));
        for (const WorkloadPoint& p : t.points) {
          db::Dims dims;
          for (size_t i = 0; i < p.symbols.size(); ++i)
            dims[t.workload().contract.symbols[i]] = p.symbols[i];
          task.weights[store.put(db::Shape{workload, dims, p.flops, p.bytes})] = p.weight;
        }
        tasks.push_back(std::move(task));
      }
    store.add_tasks(tasks);
  });
  return campaign;
}

Submission load_submission(db::Store& store, const db::Uuid& campaign) {
  const auto found = store.campaign(campaign);
  if (!found)
    throw Error(Status::kNotFound, store.path(), fmt::format("has no campaign {}", campaign),
                "nimble campaigns list shows those that it has");
  std::string digest;
  try {
    digest = json::parse(found->key.options).value(kSubmissionOption, "");
  } catch (const json::exception& e) {
    throw Error(Status::kCorrupt, "campaign " + campaign, e.what());
  }
  if (digest.empty())
    throw Error(Status::kUnsupported, "campaign " + campaign,
                "was begun by nimble tune, which keeps what it tunes to itself",
                "submit the model: nimble campaigns submit");
  const auto bytes = store.blob(digest);
  if (!bytes)
    throw Error(Status::kNotFound, "campaign " + campaign,
                "the record of what it consists of is not in the database",
                "submit the model again");
  return submission_of(std::string(bytes->begin(), bytes->end()));
}

}  // namespace nimble::tuner
