#include "db/store/records.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "db/store/hash.h"
#include "db/store/named.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

constexpr Named<CacheMode> kCacheModes[] = {{CacheMode::kWarm, "warm"}, {CacheMode::kCold, "cold"}};
constexpr Named<CampaignState> kCampaignStates[] = {{CampaignState::kRunning, "running"},
                                                    {CampaignState::kPaused, "paused"},
                                                    {CampaignState::kInterrupted, "interrupted"},
                                                    {CampaignState::kFinished, "finished"},
                                                    {CampaignState::kFailed, "failed"}};
constexpr Named<Role> kRoles[] = {{Role::kSearch, "search"},
                                  {Role::kCross, "cross"},
                                  {Role::kVerify, "verify"},
                                  {Role::kBaseline, "baseline"}};
constexpr Named<TrialState> kTrialStates[] = {{TrialState::kQueued, "queued"},
                                              {TrialState::kClaimed, "claimed"},
                                              {TrialState::kOk, "ok"},
                                              {TrialState::kWrong, "wrong"},
                                              {TrialState::kCrashed, "crashed"},
                                              {TrialState::kTimeout, "timeout"},
                                              {TrialState::kCompileFailed, "compile_failed"}};
constexpr Named<TableStatus> kTableStatuses[] = {{TableStatus::kDraft, "draft"},
                                                 {TableStatus::kActive, "active"},
                                                 {TableStatus::kRetired, "retired"}};
constexpr Named<LookupOutcome> kOutcomes[] = {{LookupOutcome::kNone, "none"},
                                              {LookupOutcome::kExact, "exact"},
                                              {LookupOutcome::kSoftStale, "soft-stale"},
                                              {LookupOutcome::kFallback, "fallback"},
                                              {LookupOutcome::kHardMismatch, "hard mismatch"}};

std::string number(int64_t value) {
  return std::to_string(value);
}

constexpr int kDeepestJson = 500;

// Of a region that a person means.
constexpr size_t kLongestRegion = 4096, kMostFeatures = 16;

}  // namespace

std::string_view name_of(CacheMode v) {
  return name_in(kCacheModes, v);
}
std::string_view name_of(CampaignState v) {
  return name_in(kCampaignStates, v);
}
std::string_view name_of(Role v) {
  return name_in(kRoles, v);
}
std::string_view name_of(TrialState v) {
  return name_in(kTrialStates, v);
}
std::string_view name_of(TableStatus v) {
  return name_in(kTableStatuses, v);
}
std::string_view name_of(LookupOutcome v) {
  return name_in(kOutcomes, v);
}
std::optional<CacheMode> cache_mode_from_name(std::string_view n) {
  return value_in(kCacheModes, n);
}
std::optional<CampaignState> campaign_state_from_name(std::string_view n) {
  return value_in(kCampaignStates, n);
}
std::optional<Role> role_from_name(std::string_view n) {
  return value_in(kRoles, n);
}
std::optional<TrialState> trial_state_from_name(std::string_view n) {
  return value_in(kTrialStates, n);
}
std::optional<TableStatus> table_status_from_name(std::string_view n) {
  return value_in(kTableStatuses, n);
}
std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const Named<Role>& row : kRoles) names.emplace_back(row.name);
  return names;
}

std::string text_of(const Dims& dims) {
  std::string text;
  for (const auto& [name, extent] : dims) {
    if (!text.empty()) text += ',';
    text += name + '=' + number(extent);
  }
  return text;
}

Dims dims_from_text(std::string_view text) {
  Dims dims;
  const std::string whole(text);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    const size_t equals = item.find('=');
    int64_t extent = 0;
    bool ok = equals != std::string_view::npos && equals > 0;
    if (ok) {
      const char* last = item.data() + item.size();
      auto [end, error] = std::from_chars(item.data() + equals + 1, last, extent);
      ok = error == std::errc() && end == last && extent >= 0 &&
           dims.emplace(item.substr(0, equals), extent).second;
    }
    const bool trailing = comma + 1 == text.size();
    if (!ok || trailing)
      throw Error(Status::kInvalidArgument, fmt::format("shape '{}'", printable(whole)),
                  "is not of the form name=extent,name=extent", "write for example m=64,n=128");
    text.remove_prefix(comma == text.size() ? comma : comma + 1);
  }
  return dims;
}

namespace {

// Writes what the parser reads with sorted keys and no white space; of equal keys the last counts.
// Not by way of nlohmann's tree: its destructor needs memory, and ends the process without any.
class CanonicalJson final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string take() { return std::move(levels_.front().text); }

  bool null() override { return put("null"); }
  bool boolean(bool value) override { return put(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return put(std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return put(std::to_string(value)); }
  bool number_float(double value, const std::string&) override { return put(dumped(value)); }
  bool string(std::string& value) override { return put(dumped(value)); }
  bool binary(binary_t&) override { return false; }
  bool key(std::string& value) override {
    levels_.back().key = std::move(value);
    return true;
  }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  // What is open; the lowest holds the whole.
  struct Level {
    bool is_object = false;
    std::string key;                             // of the member that comes next
    std::map<std::string, std::string> members;  // of an object
    std::string text;                            // elements of an array
  };

  template <class T>
  static std::string dumped(const T& value) {
    return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  bool put(std::string text) {
    Level& level = levels_.back();
    if (level.is_object)
      level.members[level.key] = std::move(text);
    else
      level.text += (level.text.empty() ? "" : ",") + text;
    return true;
  }
  bool open(bool is_object) {
    levels_.emplace_back().is_object = is_object;
    return true;
  }
  bool close() {
    const Level level = std::move(levels_.back());
    levels_.pop_back();
    if (!level.is_object) return put("[" + level.text + "]");
    std::string text;
    for (const auto& [key, value] : level.members)
      text += (text.empty() ? "" : ",") + dumped(key) + ":" + value;
    return put("{" + text + "}");
  }

  std::vector<Level> levels_ = std::vector<Level>(1);
};

}  // namespace

std::string canonical_json(std::string_view json, const std::string& place) {
  if (json_nesting(json) > kDeepestJson)
    throw Error(Status::kInvalidArgument, place,
                fmt::format("nests deeper than {} levels", kDeepestJson), "flatten it");
  CanonicalJson canonical;
  if (!nlohmann::json::sax_parse(json, &canonical))
    throw Error(Status::kInvalidArgument, place, "is not valid JSON", "mend it where it is made");
  return canonical.take();
}

std::string json_of(const Region& region) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [feature, ends] : region) {
    nlohmann::json last;  // null
    if (ends.second) last = *ends.second;
    out[feature] = {ends.first, last};
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Region region_from_json(std::string_view json, const std::string& place) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(Status::kInvalidArgument, place, problem, "write for example {\"s0\":[17,64]}");
  };
  if (json.size() > kLongestRegion) refuse(fmt::format("has {} characters", json.size()));
  const auto value = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) refuse("is not an object of ranges");
  if (value.size() > kMostFeatures)
    refuse(fmt::format("names {} features, at most {} are possible", value.size(), kMostFeatures));
  Region out;
  for (const auto& [feature, ends] : value.items()) {
    const std::string name = printable(feature);
    // What does not fit 64 bits signed is unsigned or a fraction to the parser.
    const auto whole = [](const nlohmann::json& v) {
      return v.is_number_integer() &&
             (!v.is_number_unsigned() || v.get<uint64_t>() <= uint64_t{INT64_MAX});
    };
    if (!ends.is_array() || ends.size() != 2 || !whole(ends[0]) ||
        !(ends[1].is_null() || whole(ends[1])))
      refuse(fmt::format("{} has no first and last value", name));
    const auto first = ends[0].get<int64_t>();
    std::optional<int64_t> last;
    if (!ends[1].is_null()) last = ends[1].get<int64_t>();
    if (first < 0 || (last && *last < first))
      refuse(fmt::format("{} reaches from {} to {}: nothing", name, first, last.value_or(0)));
    out.emplace(feature, std::pair(first, last));
  }
  return out;
}

Hash key_of(const Hardware& h) {
  return hash_of_fields(
      "hardware", {h.vendor, number(h.family), number(h.model), number(h.stepping), h.model_name,
                   h.isa, h.caches, h.topology, number(h.virtualised)});
}
Hash key_of(const Toolchain& t) {
  return hash_of_fields("toolchain", {t.compiler, t.version, t.flags, number(t.codegen_version),
                                      t.revision, number(t.dirty)});
}
Hash key_of(const Template& t) {
  return hash_of_fields("template", {t.name, number(t.version), t.parameters});
}
Hash key_of(const Workload& w) {
  return hash_of_fields("workload", {w.canonical});
}
Hash key_of(const Shape& s) {
  return hash_of_fields("shape", {s.workload, text_of(s.dims)});
}
Hash key_of(const Config& c) {
  return hash_of_fields("config", {c.template_hash, canonical_json(c.json, "configuration")});
}
Hash key_of(const Artifact& a) {
  return hash_of_fields("artifact", {a.code_hash, a.workload, a.config, a.toolchain});
}
Hash key_of(const MeasurePolicy& p) {
  // Policies from before classes had names keep their keys.
  if (p.policy_class.empty())
    return hash_of_fields("measure_policy", {name_of(p.mode), number(p.warm_up), number(p.threads),
                                             p.timer, p.stop_rule});
  return hash_of_fields("measure_policy", {name_of(p.mode), number(p.warm_up), number(p.threads),
                                           p.timer, p.stop_rule, p.policy_class});
}

Uuid uuid_of(const TrialKey& k) {
  // Trials from before keys had hardware and policy keep their UUIDs.
  if (!k.hardware && !k.policy)
    return uuid_from_hash(hash_of_fields(
        "trial", {k.campaign, k.workload, k.config, k.shape, name_of(k.role), number(k.threads)}));
  return uuid_from_hash(
      hash_of_fields("trial", {k.campaign, k.workload, k.config, k.shape, name_of(k.role),
                               number(k.threads), k.hardware.value_or(""), k.policy.value_or("")}));
}

}  // namespace nimble::db
