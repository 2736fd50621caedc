#include "db/tools/peers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "db/store/identifier.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostFigures = 100'000, kMostSamples = 100'000;
constexpr int64_t kMostRuns = 10'000;
constexpr int kDeepest = 32;
constexpr double kNsPerUs = 1000;
constexpr char kRemedy[] = "give a file that experiments/run writes: experiments/results/NAME.json";

// Milliseconds since 1970 of "2026-11-23T01:12:30+00:00"; nothing if it is not of that form.
std::optional<int64_t> time_of(const std::string& text) {
  std::tm at{};
  int hours = 0, minutes = 0, end = 0;
  char sign = '+';
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%c%2d:%2d%n", &at.tm_year, &at.tm_mon,
                  &at.tm_mday, &at.tm_hour, &at.tm_min, &at.tm_sec, &sign, &hours, &minutes,
                  &end) != 9 ||
      end != static_cast<int>(text.size()) || (sign != '+' && sign != '-'))
    return std::nullopt;
  at.tm_year -= 1900;
  at.tm_mon -= 1;
  const int64_t seconds = ::timegm(&at), ahead = hours * 3600 + minutes * 60;
  return 1000 * (seconds - (sign == '+' ? ahead : -ahead));
}

class ResultFile {
 public:
  ResultFile(const std::string& text, const std::string& place) : place_(place) {
    if (json_nesting(text) > kDeepest) refuse("is nested too deep");
    json_ = parse_json(text, [&](const std::string& problem) { refuse(problem); });
    if (at(json_, "format") != 1) refuse("is of another format");
    if (at(json_, "unit") != "µs per run") refuse("does not tell µs per run");
    subject_ = string(json_, "experiment");
    const std::optional<int64_t> when = time_of(string(json_, "date"));
    if (!when || *when <= 0) refuse("tells no date");
    measured_at_ = *when;
    cpu_ = string(at(json_, "machine"), "cpu");
    run_ =
        uuid_from_hash(hash_of_fields("peer run", {subject_, string(json_, "date"),
                                                   string(json_, "commit"), json_text(json_, -1)}));
  }

  const std::string& cpu() const { return cpu_; }

  std::vector<PeerFigure> figures(const Uuid& machine) const {
    std::vector<PeerFigure> all;
    const Json& cases = array(json_, "cases");
    std::map<int64_t, int> of_threads;
    for (const Json& c : cases) ++of_threads[whole(c, "threads")];
    for (const Json& c : cases) {
      const int64_t threads = whole(c, "threads");
      // One model with several numbers of threads needs no further name.
      const std::string name = of_threads[threads] == 1 ? "" : string(c, "name");
      for (const Json& entry : array(c, "lengths")) {
        const int64_t length = whole(entry, "length");
        for (const auto& [system, times] : object(entry, "systems").items()) {
          all.push_back(figure(system, times, machine, name, threads, length));
          if (all.size() > kMostFigures) refuse("tells too many figures");
        }
      }
    }
    if (all.empty()) refuse("compares no systems");
    return all;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(Status::kInvalidArgument, place_, problem, kRemedy);
  }
  const Json& at(const Json& j, const char* name) const {
    if (!j.is_object() || !j.contains(name)) refuse(fmt::format("lacks \"{}\"", name));
    return j.at(name);
  }
  std::string string(const Json& j, const char* name) const {
    const Json& v = at(j, name);
    if (!v.is_string() || v.get<std::string>().empty())
      refuse(fmt::format("its \"{}\" is no text", name));
    return v.get<std::string>();
  }
  int64_t whole(const Json& j, const char* name) const {
    const Json& v = at(j, name);
    if (!v.is_number_unsigned() || v.get<uint64_t>() < 1 || v.get<uint64_t>() > (1ULL << 40))
      refuse(fmt::format("its \"{}\" is no number above zero", name));
    return v.get<int64_t>();
  }
  double us(const Json& v) const {
    if (!v.is_number() || !(v.get<double>() > 0) || !std::isfinite(v.get<double>()))
      refuse("a time of it is none");
    return v.get<double>() * kNsPerUs;
  }
  const Json& array(const Json& j, const char* name) const {
    if (!at(j, name).is_array()) refuse(fmt::format("its \"{}\" is no list", name));
    return at(j, name);
  }
  const Json& object(const Json& j, const char* name) const {
    if (!at(j, name).is_object()) refuse(fmt::format("its \"{}\" has no names", name));
    return at(j, name);
  }

  PeerFigure figure(const std::string& system, const Json& times, const Uuid& machine,
                    const std::string& name, int64_t threads, int64_t length) const {
    const Json& about = at(object(json_, "systems"), system.c_str());
    PeerFigure f;
    f.run = run_;
    f.peer = system;
    f.version = string(about, "version");
    Json settings = {{"settings", string(about, "settings")}};
    for (const char* key : {"title", "command", "commit", "effort"})
      if (json_.contains(key)) settings[key] = json_.at(key);
    if (!name.empty()) settings["case"] = name;
    f.settings = json_text(settings, -1);
    f.machine = machine;
    f.subject = subject_;
    f.dims = {{"length", length}};
    if (json_.contains("dtype")) f.dtype = string(json_, "dtype");
    f.threads = threads;
    f.median_ns = us(at(times, "median"));
    f.ci_low_ns = us(at(times, "low"));
    f.ci_high_ns = us(at(times, "high"));
    if (times.contains("samples")) {
      const Json& samples = array(times, "samples");
      if (samples.size() > kMostSamples) refuse("tells too many samples");
      for (const Json& s : samples) f.samples_ns.push_back(us(s));
    }
    f.created_at = measured_at_;
    // Of one result, whoever adds it.
    const std::string with = std::to_string(threads), tokens = std::to_string(length);
    f.uuid = uuid_from_hash(
        name.empty() ? hash_of_fields("peer figure", {run_, machine, system, with, tokens})
                     : hash_of_fields("peer figure", {run_, machine, system, with, tokens, name}));
    return f;
  }

  const std::string place_;
  Json json_;
  std::string subject_, cpu_;
  Uuid run_;
  int64_t measured_at_ = 0;
};

// The name of a figure's case in its result, where the run has several with so many threads.
std::string case_of(const PeerFigure& f) {
  const Json settings = Json::parse(f.settings, nullptr, false);
  return settings.is_object() && settings.contains("case") && settings["case"].is_string()
             ? settings["case"].get<std::string>()
             : "";
}

}  // namespace

int64_t add_peers(Store& store, const std::string& text, const std::string& place,
                  const std::string& machine) {
  const ResultFile result(text, place);
  int64_t added = 0;
  store.transaction([&] {
    Uuid uuid;
    if (machine.empty()) {
      store.put(host_hardware());
      uuid = store.put(host_machine());
    } else {
      uuid = the_one(store, Kind::kMachine, machine, "list them: nimble db ceilings");
    }
    const std::optional<Machine> owner = store.machine(uuid);
    NIMBLE_CHECK(owner, "machine {} was there", uuid);
    const std::optional<Hardware> hardware = store.hardware(owner->hardware);
    if (hardware && hardware->model_name != result.cpu())
      throw Error(Status::kInvalidArgument, place,
                  fmt::format("was measured on {}, but machine {} is {}", printable(result.cpu()),
                              printable(owner->hostname), printable(hardware->model_name)),
                  "name the machine: --machine UUID");
    for (const PeerFigure& f : result.figures(uuid)) {
      store.add(f);
      ++added;
    }
  });
  return added;
}

Table show_peer_runs(Store& store) {
  Table out({"run", "model", "host", "measured", "figures"});
  for (const PeerRun& r : store.peer_runs(kMostRuns)) {
    const std::optional<Machine> machine = store.machine(r.machine);
    out.add(
        {r.run, r.subject, machine ? machine->hostname : "", cell::time(r.created_at), r.figures});
  }
  return out;
}

Table show_peers(Store& store, const std::string& prefix) {
  const PeerRun run = find_by_prefix(
      store.peer_runs(kMostRuns), prefix, [](const PeerRun& r) { return r.run; }, "run",
      "list them: nimble db peers");
  Table out({"model", "case", "shape", "threads", "system", "version", "median_ns", "ci_low_ns",
             "ci_high_ns", "samples", "settings"});
  const auto or_null = [](const std::optional<double>& v) {
    return v ? nlohmann::ordered_json(*v) : nlohmann::ordered_json();
  };
  std::vector<PeerFigure> all = store.peer_run(run.run);
  std::ranges::sort(all, {}, [](const PeerFigure& f) {
    return std::tuple(f.threads, case_of(f), f.dims, f.peer);
  });
  for (const PeerFigure& f : all)
    out.add({f.subject, case_of(f), text_of(f.dims), f.threads, f.peer, f.version, f.median_ns,
             or_null(f.ci_low_ns), or_null(f.ci_high_ns), f.samples_ns.size(), f.settings});
  return out;
}

}  // namespace nimble::db
