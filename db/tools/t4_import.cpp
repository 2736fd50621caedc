// Results of other tuners. A T4 file becomes a database of its own, which is then imported as any
// is; so nothing of it is trusted more than that. Its kernels are not nimble's: workload, template
// and policy are of their own, no dispatch table rests on them, and the compiler never asks for
// them.
#include <algorithm>
#include <cmath>
#include <set>

#include "db/store/hash.h"
#include "db/tools/t4.h"
#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/json_text.h"
#include "vm/base/median.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

using Json = nlohmann::json;

constexpr const char* kForeign = "t4";  // template, policy class and isa of what is imported
constexpr int kMostDepth = 8;           // of a configuration
constexpr int kMostNesting = 32;        // of the file: what is deeper no reader needs
constexpr const char* kRemedy = "see the schema: docs/records.md names it";

struct Ending {
  std::string_view invalidity;
  TrialState state;
};
constexpr Ending kEndings[] = {{"correct", TrialState::kOk},
                               {"correctness", TrialState::kWrong},
                               {"timeout", TrialState::kTimeout},
                               {"compile", TrialState::kCompileFailed},
                               {"runtime", TrialState::kCrashed},
                               // Refused before it was compiled.
                               {"constraints", TrialState::kCompileFailed}};

struct Unit {
  std::string_view name;
  double ns;
};
constexpr Unit kUnits[] = {
    {"nanoseconds", 1}, {"microseconds", 1e3}, {"milliseconds", 1e6}, {"seconds", 1e9},
    {"ns", 1},          {"us", 1e3},           {"ms", 1e6},           {"s", 1e9}};

bool is_flat(const Json& value, int depth = kMostDepth) {
  if (!value.is_structured()) return true;
  if (depth == 0) return false;
  return std::all_of(value.begin(), value.end(),
                     [&](const Json& inner) { return is_flat(inner, depth - 1); });
}

// Reads one file; every error names the place in it.
class Reader {
 public:
  Reader(Store& store, const std::string& file, std::string workload)
      : store_(store), file_(file), workload_name_(std::move(workload)) {}

  void read() {
    const std::string text = read_text_file(file_);
    if (json_nesting(text) > kMostNesting)
      fail("", fmt::format("nests deeper than {} levels", kMostNesting));
    const Json all = parse_json(text, [&](const std::string& problem) { fail("", problem); });
    if (!all.is_object()) fail("", "is no JSON object");
    const Json& results = member(all, "results", "");
    if (!results.is_array() || results.empty()) fail("results", "is no list of results");
    const Json metadata = all.value("metadata", Json::object());
    if (!metadata.is_object()) fail("metadata", "is no object");
    unit_ = unit_of(metadata);
    const Json own = metadata.value("nimble", Json::object());
    if (workload_name_.empty() && own.is_object()) workload_name_ = text_of(own, "workload");
    if (workload_name_.empty())
      fail("metadata", "does not say what was tuned", "name it with --workload");
    put_records(metadata, text);
    std::vector<NewTrial> wanted;
    for (size_t i = 0; i < results.size(); ++i) wanted.push_back({key_of_result(results[i], i)});
    store_.enqueue(wanted);
    ClaimRequest request{campaign_, kForeign};
    request.limit = std::ssize(wanted);
    for (const Trial& t : store_.claim(request)) open_.insert(t.uuid);
    for (size_t i = 0; i < results.size(); ++i) finish(results[i], i, wanted[i].key);
    store_.set_campaign_state(campaign_, CampaignState::kFinished);
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& problem,
                         const char* remedy = kRemedy) const {
    throw Error(Status::kInvalidArgument, file_,
                where.empty() ? problem : fmt::format("{} {}", where, problem), remedy);
  }

  const Json& member(const Json& object, const char* name, const std::string& where) const {
    const auto it = object.is_object() ? object.find(name) : object.end();
    if (!object.is_object() || it == object.end()) fail(where, fmt::format("has no \"{}\"", name));
    return *it;
  }

  static std::string text_of(const Json& object, const char* name) {
    const auto it = object.find(name);
    return it != object.end() && it->is_string() ? it->get<std::string>() : "";
  }

  double ns_of(std::string_view unit, const std::string& where) const {
    for (const Unit& u : kUnits)
      if (u.name == unit) return u.ns;
    fail(where, fmt::format("has the unknown unit \"{}\"", printable(unit)),
         "times are in nanoseconds, microseconds, milliseconds or seconds");
  }
  double unit_of(const Json& metadata) const {
    const std::string unit = text_of(metadata, "timeunit");
    // Kernel Tuner's; its files don't say.
    return unit.empty() ? 1e6 : ns_of(unit, "metadata.timeunit");
  }

  void put_records(const Json& metadata, const std::string& text) {
    Hardware hardware;
    hardware.vendor = text_of(metadata, "platform");
    hardware.model_name = text_of(metadata, "device");
    if (hardware.model_name.empty()) hardware.model_name = "unknown device";
    hardware.isa = kForeign;
    const Hash hardware_hash = store_.put(hardware);
    machine_ = store_.put(Machine{"", hardware.model_name, hardware_hash});
    host_ = store_.put(HostState{"", "unknown", std::nullopt, std::nullopt, "", 0, 0});
    const std::string name = fmt::format("{}: {}", kForeign, workload_name_);
    workload_ = store_.put(Workload{name, name, kForeign, "unknown", "", "", 1});
    template_ = store_.put(Template{kForeign, 1, ""});
    Toolchain toolchain;
    toolchain.compiler = text_of(metadata, "autotuner");
    if (toolchain.compiler.empty()) toolchain.compiler = "unknown";
    toolchain.version = text_of(metadata, "autotuner_version");
    toolchain.codegen_version = 1;
    toolchain_ = store_.put(toolchain);
    MeasurePolicy policy;
    policy.timer = policy.stop_rule = "unknown";
    policy.policy_class = kForeign;
    policy_ = store_.put(policy);
    CampaignKey key;
    key.digest = hash_of_fields(kForeign, {text, workload_name_});
    key.hardware = hardware_hash;
    campaign_ = store_.create_campaign(key, 1, "nimble db import --t4");
  }

  TrialKey key_of_result(const Json& result, size_t i) {
    const std::string where = fmt::format("results[{}]", i);
    const Json& configuration = member(result, "configuration", where);
    if (!configuration.is_object() || !is_flat(configuration))
      fail(where + ".configuration", "is no object of values");
    const Json more = result.value("nimble", Json::object());
    Dims dims;
    Role role = Role::kSearch;
    int64_t threads = 1;
    if (more.is_object()) {
      dims = dims_from_text(text_of(more, "shape"));
      role = role_from_name(text_of(more, "role")).value_or(role);
      if (const auto it = more.find("threads"); it != more.end() && it->is_number_integer())
        threads = std::clamp<int64_t>(it->get<int64_t>(), 1, 1 << 20);
    }
    TrialKey key;
    key.campaign = campaign_;
    key.workload = workload_;
    key.config = store_.put(Config{template_, configuration.dump()});
    key.shape = store_.put(Shape{workload_, dims, 0, 0});
    key.role = role;
    key.threads = threads;
    return key;
  }

  void finish(const Json& result, size_t i, const TrialKey& key) {
    const std::string where = fmt::format("results[{}]", i);
    const std::string invalidity = text_of(result, "invalidity");
    const auto ending = std::find_if(std::begin(kEndings), std::end(kEndings),
                                     [&](const Ending& e) { return e.invalidity == invalidity; });
    if (ending == std::end(kEndings))
      fail(where, fmt::format("ended in an unknown way: \"{}\"", printable(invalidity)));
    TrialResult out;
    out.trial = uuid_of(key);
    out.owner = kForeign;
    out.state = ending->state;
    if (out.state == TrialState::kOk)
      out.measurement = measurement_of(result, where, key, out.trial);
    else
      out.error_class = invalidity;
    // The same configuration again: another measurement of the trial.
    if (open_.erase(out.trial) > 0)
      store_.finish(out);
    else if (out.measurement)
      store_.add(*out.measurement);
  }

  std::vector<double> samples_of(const Json& result, const std::string& where) const {
    std::vector<double> samples;
    const auto add = [&](const Json& value, double unit, const std::string& at) {
      const double ns = value.is_number() ? value.get<double>() * unit : NAN;
      if (!(ns > 0 && ns < 1e18)) fail(at, fmt::format("is no time: {}", printable(value.dump())));
      samples.push_back(ns);
    };
    const Json& times = member(result, "times", where);
    if (const auto it = times.find("runtimes"); it != times.end() && it->is_array())
      for (size_t s = 0; s < it->size(); ++s)
        add((*it)[s], unit_, fmt::format("{}.times.runtimes[{}]", where, s));
    if (!samples.empty()) return samples;
    // Without samples the objective itself, if that is a time.
    if (const auto it = result.find("measurements"); it != result.end() && it->is_array())
      for (const Json& m : *it)
        if (m.is_object() && text_of(m, "name") == "time") {
          const std::string unit = text_of(m, "unit");
          add(m.value("value", Json()), unit.empty() ? unit_ : ns_of(unit, where + ".measurements"),
              where + ".measurements");
          return samples;
        }
    fail(where, "is correct and has no times");
  }

  Measurement measurement_of(const Json& result, const std::string& where, const TrialKey& key,
                             const Uuid& trial) {
    Measurement m;
    m.trial = trial;
    m.samples_ns = samples_of(result, where);
    std::vector<double> sorted = m.samples_ns;
    std::sort(sorted.begin(), sorted.end());
    m.median_ns = median_of(sorted);
    std::vector<double> apart;
    for (double x : sorted) apart.push_back(std::fabs(x - m.median_ns));
    m.mad_ns = median_of(std::move(apart));
    // The interval of the median by order statistics, 95 %.
    const auto n = static_cast<double>(sorted.size());
    const auto low = static_cast<size_t>(std::max(0.0, std::floor(n / 2 - 0.98 * std::sqrt(n))));
    m.ci_low_ns = sorted[std::min(low, (sorted.size() - 1) / 2)];
    m.ci_high_ns = sorted[sorted.size() - 1 - std::min(low, (sorted.size() - 1) / 2)];
    m.stop_reason = "unknown";
    const Json more = result.value("nimble", Json::object());
    std::string code = more.is_object() ? text_of(more, "code_hash") : "";
    if (code.empty()) code = hash_of_fields(kForeign, {key.workload, key.config});
    Artifact artifact;
    artifact.code_hash = code;
    artifact.workload = key.workload;
    artifact.config = key.config;
    artifact.toolchain = toolchain_;
    const Json& times = result.at("times");
    if (const auto it = times.find("compilation_time"); it != times.end() && it->is_number()) {
      const double ms = it->get<double>() * unit_ / 1e6;
      if (ms > 0 && ms < 1e12) artifact.compile_ms = ms;
    }
    m.artifact = store_.put(artifact);
    m.policy = policy_;
    m.machine = machine_;
    m.host_state = host_;
    return m;
  }

  Store& store_;
  const std::string file_;
  std::string workload_name_;
  double unit_ = 1;
  Hash workload_, template_, toolchain_, policy_;
  Uuid machine_, host_, campaign_;
  std::set<Uuid> open_;
};

}  // namespace

void import_t4(const std::string& file, const std::string& workload, Store& into) {
  into.transaction([&] { Reader(into, file, workload).read(); });
}

}  // namespace nimble::db
