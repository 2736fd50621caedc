#include "tuner/fleet/case_record.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble::tuner {
namespace {

using nlohmann::json;

constexpr char kPlace[] = "measure case";

json json_of(const Policy& p) {
  return {{"warm_up", p.warm_up},
          {"batch_ns", p.batch_ns},
          {"min_samples", p.min_samples},
          {"max_samples", p.max_samples},
          {"ci_target", p.ci_target},
          {"race_factor", p.race_factor},
          {"race_samples", p.race_samples},
          {"case_ns", p.case_ns},
          {"rotate_bytes", p.rotate_bytes},
          {"cold", p.cold},
          {"name", p.name}};
}

Policy policy_of(const json& j) {
  Policy p;
  p.warm_up = integer_at<int32_t>(j, "warm_up", kPlace);
  p.batch_ns = integer_at<int64_t>(j, "batch_ns", kPlace);
  p.min_samples = integer_at<int32_t>(j, "min_samples", kPlace);
  p.max_samples = integer_at<int32_t>(j, "max_samples", kPlace);
  p.ci_target = j.at("ci_target").get<double>();
  p.race_factor = j.at("race_factor").get<double>();
  p.race_samples = integer_at<int32_t>(j, "race_samples", kPlace);
  p.case_ns = integer_at<int64_t>(j, "case_ns", kPlace);
  p.rotate_bytes = integer_at<int64_t>(j, "rotate_bytes", kPlace);
  p.cold = j.at("cold").get<bool>();
  p.name = j.at("name").get<std::string>();
  return p;
}

[[noreturn]] void corrupt(const std::string& problem) {
  throw Error(Status::kCorrupt, kPlace, problem, "publish it again");
}

}  // namespace

std::string json_text(const Policy& policy) {
  return json_of(policy).dump();
}

Policy policy_from_json(const std::string& text, const std::string& place) {
  Case c;
  try {
    c.policy = policy_of(json::parse(text));
  } catch (const json::exception& e) {
    throw Error(Status::kCorrupt, place, std::string("no measuring policy: ") + e.what());
  }
  return decode_case(encode(c)).policy;
}

db::MeasurePolicy policy_record(const Policy& policy, int64_t threads) {
  db::MeasurePolicy out;
  out.policy_class = policy.name;
  out.mode = policy.cold ? db::CacheMode::kCold : db::CacheMode::kWarm;
  out.warm_up = policy.warm_up;
  out.threads = threads;
  out.timer = kTimer;
  out.stop_rule = policy.text();
  return out;
}

db::MeasureCase case_record(const Case& c, const db::Hash& workload, const db::Hash& shape,
                            const db::Digest& expected) {
  json fills = json::array();
  for (const Fill& f : c.inputs)
    fills.push_back({{"low", f.low}, {"high", f.high}, {"constant", f.constant}});
  db::MeasureCase out;
  out.workload = workload;
  out.shape = shape;
  out.policy = db::key_of(policy_record(c.policy, c.threads));
  out.seed = std::bit_cast<int64_t>(c.seed);
  out.fills = json{{"data", kDataVersion}, {"symbols", c.symbols},   {"threads", c.threads},
                   {"fills", fills},       {"stepping", c.stepping}, {"policy", json_of(c.policy)}}
                  .dump();
  out.tolerance = c.tolerance;
  out.expected = expected;
  return out;
}

std::vector<uint8_t> expected_bytes(const Case& c) {
  return encode(c.expected);
}

Case case_of(const db::MeasureCase& record, std::span<const uint8_t> expected) {
  Case c;
  try {
    const json j = json::parse(record.fills);
    if (integer_at<int>(j, "data", kPlace) != kDataVersion)
      corrupt("its test data is of another version of nimble");
    c.symbols = integers_at<int64_t>(j, "symbols", kPlace);
    c.threads = integer_at<int32_t>(j, "threads", kPlace);
    for (const json& f : j.at("fills"))
      c.inputs.push_back(
          {f.at("low").get<double>(), f.at("high").get<double>(), f.at("constant").get<bool>()});
    c.stepping = integers_at<uint8_t>(j, "stepping", kPlace);
    c.policy = policy_of(j.at("policy"));
  } catch (const json::exception& e) {
    corrupt(e.what());
  }
  c.seed = std::bit_cast<uint64_t>(record.seed);
  c.tolerance = record.tolerance;
  c.expected = decode_outputs(expected);
  if (db::key_of(policy_record(c.policy, c.threads)) != record.policy)
    corrupt("it is measured otherwise than its policy says");
  // What the measuring process would refuse is refused here.
  return decode_case(encode(c));
}

}  // namespace nimble::tuner
