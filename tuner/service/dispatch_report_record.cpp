// A report on dispatch as a file keeps it.
#include <nlohmann/json.hpp>

#include "tuner/service/dispatch_report.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble::tuner {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFormat = 1;
constexpr double kMostNs = 1e18;  // 30 years, as in the database

Json json_of(const RegretSummary& s) {
  return {{"median", s.median}, {"p95", s.p95}, {"worst", s.worst}};
}

Json json_of(const ShapeRegret& s) {
  Json out = {{"symbols", s.symbols},
              {"chosen_ns", s.chosen_ns},
              {"pool_ns", s.pool_ns},
              {"oracle_ns", s.oracle_ns},
              {"default_ns", s.default_ns},
              {"chosen", s.chosen},
              {"pool", s.pool},
              {"oracle", s.oracle},
              {"candidates", s.candidates},
              {"noise", s.noise},
              {"tree_regret", s.tree_regret()},
              {"pool_regret", s.pool_regret()},
              {"regret", s.regret()}};
  if (s.foretold) out["foretold"] = *s.foretold;
  if (s.unsearched) out["unsearched"] = *s.unsearched;
  return out;
}

ShapeRegret shape_of(const Json& json, const std::string& place) {
  ShapeRegret s;
  s.symbols = integers_at<int64_t>(json, "symbols", place);
  s.chosen_ns = json.at("chosen_ns").get<double>();
  s.pool_ns = json.at("pool_ns").get<double>();
  s.oracle_ns = json.at("oracle_ns").get<double>();
  s.default_ns = json.at("default_ns").get<double>();
  s.chosen = json.at("chosen").get<std::string>();
  s.pool = json.at("pool").get<std::string>();
  s.oracle = json.at("oracle").get<std::string>();
  s.noise = json.at("noise").get<double>();
  if (json.contains("candidates")) s.candidates = integer_at<size_t>(json, "candidates", place);
  if (json.contains("foretold")) s.foretold = json["foretold"].get<double>();
  if (json.contains("unsearched")) s.unsearched = json["unsearched"].get<double>();
  for (const double ns : {s.chosen_ns, s.pool_ns, s.oracle_ns, s.default_ns})
    if (!(ns > 0 && ns < kMostNs))
      throw Error(Status::kCorrupt, place, "a time in it is not above zero, or longer than any");
  return s;
}

Json json_of(const WorkloadRegret& w) {
  Json out = {{"workload", w.workload}, {"label", w.label},
              {"threads", w.threads},   {"symbols", w.symbols},
              {"table", w.table},       {"pool", w.pool},
              {"drawn", w.drawn},       {"candidates", w.candidates},
              {"known", w.known},       {"failed", w.failed},
              {"note", w.note},         {"shapes", Json::array()}};
  if (!w.overrides.empty()) out["overrides"] = w.overrides;
  for (const ShapeRegret& s : w.shapes) out["shapes"].push_back(json_of(s));
  if (!w.shapes.empty()) {
    out["tree_regret"] = json_of(summary_of(w.shapes, &ShapeRegret::tree_regret));
    out["pool_regret"] = json_of(summary_of(w.shapes, &ShapeRegret::pool_regret));
    out["regret"] = json_of(summary_of(w.shapes, &ShapeRegret::regret));
  }
  return out;
}

WorkloadRegret workload_of(const Json& json, const std::string& place) {
  WorkloadRegret w;
  w.workload = json.at("workload").get<std::string>();
  w.table = json.at("table").get<std::string>();
  if (json.contains("overrides")) w.overrides = json["overrides"].get<std::vector<std::string>>();
  if (json.contains("candidates")) w.candidates = integer_at<size_t>(json, "candidates", place);
  for (const Json& s : json.at("shapes")) w.shapes.push_back(shape_of(s, place));
  return w;
}

}  // namespace

std::string text_of(const DispatchReport& report, const std::string& question) {
  Json out = {{"format", kFormat},
              {"question", question},
              {"consumed_s", report.consumed_s},
              {"searched_s", report.searched_s},
              {"complete", report.complete},
              {"skipped", report.skipped},
              {"workloads", Json::array()}};
  for (const WorkloadRegret& w : report.workloads) out["workloads"].push_back(json_of(w));
  return nimble::json_text(out) + "\n";
}

DispatchReport report_from_text(const std::string& text, const std::string& question,
                                const std::string& place) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Status::kCorrupt, place, "is no report on dispatch: " + what,
                "name another file, or remove this one");
  };
  const Json json = parse_json(text, [&](const std::string& what) { refuse(what); });
  try {
    if (integer_at<int64_t>(json, "format", place) != kFormat) refuse("it has another format");
    if (json.at("question").get<std::string>() != question)
      throw Error(Status::kInvalidArgument, place,
                  "is a report on other shapes, candidates or machines, or another database",
                  "name another file; this one stays as it is");
    DispatchReport report;
    report.consumed_s = json.at("consumed_s").get<double>();
    report.searched_s = json.value("searched_s", 0.0);
    if (!(report.consumed_s >= 0 && report.searched_s >= 0))
      refuse("the time it took is below zero");
    for (const Json& w : json.at("workloads")) report.workloads.push_back(workload_of(w, place));
    return report;
  } catch (const Json::exception& e) {
    refuse(e.what());
  }
  NIMBLE_UNREACHABLE("refuse() throws");
}

}  // namespace nimble::tuner
