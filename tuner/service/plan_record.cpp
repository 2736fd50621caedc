#include "tuner/service/plan_record.h"

#include <nlohmann/json.hpp>

#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble::tuner {
namespace {

using nlohmann::json;
constexpr char kPlace[] = "plan of a job";
constexpr size_t kMostConfigs = 100'000;

plan::Phase phase_of(const std::string& name) {
  for (const plan::Phase p :
       {plan::Phase::kBaseline, plan::Phase::kSearch, plan::Phase::kCross, plan::Phase::kVerify})
    if (name == plan::name_of(p)) return p;
  throw Error(Status::kCorrupt, kPlace, "names no phase");
}

}  // namespace

std::string limits_of(const PlanRecord& r, double case_s) {
  const plan::WantedCase& w = r.wanted;
  json plan = {{"key", w.key},         {"task", w.task},
               {"point", w.point},     {"phase", plan::name_of(w.phase)},
               {"turn", w.slice},      {"configs", w.configs},
               {"anchors", w.anchors}, {"priority", w.priority},
               {"seen", r.seen},       {"budget_s", r.budget_s}};
  if (w.machine) plan["machine"] = *w.machine;
  if (w.avoid) plan["avoid"] = *w.avoid;
  if (!w.first.empty()) plan["first"] = w.first;
  json limits = {{"case_s", case_s}, {"plan", plan}};
  // Finalists are compared with each other: by how much does the default differ from itself?
  if (w.phase == plan::Phase::kVerify) limits["paired"] = true;
  return db::canonical_json(limits.dump(), "limits of a job");
}

std::optional<PlanRecord> plan_record_of(const std::string& limits) {
  try {
    const json all = json::parse(limits);
    if (!all.is_object() || !all.contains("plan")) return std::nullopt;
    const json& j = all.at("plan");
    PlanRecord r;
    plan::WantedCase& w = r.wanted;
    w.key = j.at("key").get<std::string>();
    w.task = integer_at<size_t>(j, "task", kPlace);
    w.point = integer_at<size_t>(j, "point", kPlace);
    w.phase = phase_of(j.at("phase").get<std::string>());
    w.slice = integer_at<int>(j, "turn", kPlace);
    w.configs = j.at("configs").get<std::vector<db::Hash>>();
    w.anchors = j.at("anchors").get<std::vector<db::Hash>>();
    w.priority = j.at("priority").get<double>();
    if (j.contains("machine")) w.machine = j.at("machine").get<db::Uuid>();
    if (j.contains("avoid")) w.avoid = j.at("avoid").get<db::Uuid>();
    w.first = j.value("first", "");
    r.seen = integer_at<int64_t>(j, "seen", kPlace);
    r.budget_s = j.at("budget_s").get<double>();
    if (w.key.empty() || w.anchors.empty() || w.slice < 0 || w.slice > 1000 ||
        w.configs.size() + w.anchors.size() > kMostConfigs || !(r.budget_s >= 0))
      throw Error(Status::kCorrupt, kPlace, "is out of range");
    return r;
  } catch (const json::exception& e) {
    throw Error(Status::kCorrupt, kPlace, e.what(), "cancel the campaign");
  }
}

}  // namespace nimble::tuner
