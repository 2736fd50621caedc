#include "tuner/service/task_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "vm/base/json_text.h"

namespace nimble::tuner {

std::string json_text(const TaskState& s) {
  nlohmann::json detail = {
      {"trials", s.trials}, {"failed", s.failed}, {"share", s.share}, {"spent_s", s.spent_s}};
  if (s.pruned > 0) detail["pruned"] = s.pruned;
  if (s.best_ratio > 0) detail["best_ratio"] = s.best_ratio;
  if (s.allotted_s) detail["allotted_s"] = *s.allotted_s;
  if (s.verified_on) detail["verified_on"] = *s.verified_on;
  if (s.noise) detail["noise"] = *s.noise;
  for (const auto& [shape, share] : s.searched_at)
    detail["searched_at"].push_back({{"shape", shape}, {"share", share}});
  for (const auto& [round, correlation] : s.rank_correlations) {
    nlohmann::json& row = detail["rank_correlations"].emplace_back();
    row["round"] = round;
    row["correlation"] = correlation;
  }
  if (s.vendor) detail["vendor"] = nlohmann::json::parse(db::json_text(*s.vendor));
  if (!s.no_vendor.empty()) detail["no_vendor"] = s.no_vendor;
  if (!s.note.empty()) detail["note"] = s.note;
  if (s.best_ns > 0)
    detail["table"] = {{"default_ns", s.default_ns},
                       {"best_ns", s.best_ns},
                       {"k", s.k},
                       {"regret", s.regret},
                       {"worst_regret", s.worst_regret},
                       {"single_regret", s.single_regret}};
  return nimble::json_text(detail, -1);
}

TaskState task_state_from_json(const std::string& detail) {
  TaskState out;
  const auto j = nlohmann::json::parse(detail, nullptr, false);
  if (!j.is_object()) return out;
  const auto number_of = [](const nlohmann::json& of, const char* name) -> std::optional<double> {
    const auto at = of.find(name);
    return at != of.end() && at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
  };
  const auto number = [&](const char* name) { return number_of(j, name); };
  const auto whole = [&](const char* name) -> int64_t {
    const auto at = j.find(name);
    return at != j.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
  };
  const auto text = [&](const char* name) -> std::optional<std::string> {
    const auto at = j.find(name);
    return at != j.end() && at->is_string() ? std::optional(at->get<std::string>()) : std::nullopt;
  };
  out.best_ratio = number("best_ratio").value_or(0);
  out.trials = whole("trials");
  out.failed = whole("failed");
  out.pruned = whole("pruned");
  out.share = number("share").value_or(0);
  out.spent_s = number("spent_s").value_or(0);
  out.allotted_s = number("allotted_s");
  out.verified_on = text("verified_on");
  out.noise = number("noise");
  if (const auto at = j.find("searched_at"); at != j.end() && at->is_array())
    for (const auto& row : *at) {
      const auto shape = row.is_object() ? row.find("shape") : row.end();
      const auto share = row.is_object() ? row.find("share") : row.end();
      if (shape == row.end() || share == row.end() || !shape->is_object() || !share->is_number())
        continue;
      if (std::ranges::all_of(*shape, [](const auto& size) { return size.is_number_integer(); }))
        out.searched_at.emplace_back(shape->template get<db::Dims>(),
                                     share->template get<double>());
    }
  out.rank_correlations = db::rank_correlations_of(detail);
  out.vendor = db::vendor_standing_of(detail);
  out.no_vendor = text("no_vendor").value_or("");
  out.note = text("note").value_or("");
  if (const auto table = j.find("table"); table != j.end() && table->is_object()) {
    out.default_ns = number_of(*table, "default_ns").value_or(0);
    out.best_ns = number_of(*table, "best_ns").value_or(0);
    out.regret = number_of(*table, "regret").value_or(0);
    out.worst_regret = number_of(*table, "worst_regret").value_or(0);
    out.single_regret = number_of(*table, "single_regret").value_or(0);
    if (const auto k = table->find("k"); k != table->end() && k->is_number_integer())
      out.k = k->get<int64_t>();
  }
  return out;
}

}  // namespace nimble::tuner
