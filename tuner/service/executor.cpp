#include "tuner/service/executor.h"

#include <algorithm>

namespace nimble::tuner {
namespace {

// The least limit of a case, in s: less would not see one entry through.
constexpr double kLeastCase = 0.05;

}  // namespace

std::vector<EntryResult> Executor::run(const Case& c) {
  const Account::Span timing(context_.account, Activity::kTime);
  const double begin = context_.account.seconds(Activity::kTime);
  const CaseCost before = context_.runner.cost();
  std::vector<EntryResult> results = context_.runner.measure(c);
  const CaseCost& after = context_.runner.cost();
  const double wall = context_.account.seconds(Activity::kTime) - begin;
  const double used =
      static_cast<double>(after.check_ns - before.check_ns + after.time_ns - before.time_ns) / 1e9;
  // A worker that was lost tells nothing; its candidate took the time.
  if (used > 0) context_.account.move(Activity::kTime, Activity::kPrepare, wall - used);
  return results;
}

Executor::Outcome Executor::measure(size_t point, const std::vector<db::Trial>& trials, bool paired,
                                    double limit_s) {
  Case c = records_.case_at(point, context_.policy);
  const auto expect = [&] {
    c.expected = expectations_.at(point).outputs;
    c.tolerance = expectations_.at(point).tolerance;
  };
  expect();
  limit_s = std::max(kLeastCase, limit_s);
  if (limit_s < 1e6) c.limit_ns = static_cast<int64_t>(limit_s * 1e9);
  const auto add = [&](const db::Hash& config) {
    const Builder::Kept& k = builder_.at(config);
    c.entries.push_back({k.executable, k.kernel});
  };
  for (const db::Trial& t : trials) add(t.key.config);
  if (paired) add(records_.default_config());

  Outcome out;
  out.results = run(c);
  const TuningTask& task = records_.task();
  const auto unjust = std::find_if(out.results.begin(), out.results.end(), [&](const auto& r) {
    return r.state == EntryState::kWrong &&
           !context_.backend.is_right(task, task.points[point], expectations_.at(point),
                                      r.worst_output, r.worst_element);
  });
  if (unjust != out.results.end()) {
    expectations_.correct(point, *unjust);
    expect();
    out.results = run(c);
  }

  const HostReading host = context_.host.read();
  const Account::Span storing(context_.account, Activity::kStore);
  const CaseKeys keys{records_.policy(), records_.shape(point), c.tolerance,
                      StopRule(context_.policy.min_samples, context_.policy.max_samples)};
  const std::optional<double> drift = drift_of(out.results);
  context_.store.transaction([&] {
    for (const db::Artifact& a : builder_.unsaved()) context_.store.put(a);
    const db::Uuid host_state = context_.store.put(host_record(host));
    for (size_t i = 0; i < trials.size(); ++i) {
      std::optional<Finding> found =
          finding_of(out.results[i], builder_.at(trials[i].key.config).artifact, keys);
      if (!found) continue;
      if (found->measurement) {
        found->measurement->trial = trials[i].uuid;
        found->measurement->machine = context_.machine;
        found->measurement->host_state = host_state;
        found->measurement->drift = drift;
        if (paired && trials[i].key.config == records_.default_config() &&
            out.results.back().state == EntryState::kOk)
          found->measurement->twin_ns = out.results.back().samples_ns;
      }
      if (std::optional<db::FailureLog> log = log_of(out.results[i], *found, "")) {
        log->trial = trials[i].uuid;
        log->attempt = trials[i].attempt;
        context_.store.add(*log);
      }
      if (db::is_final(trials[i].state)) {
        if (found->measurement) context_.store.add(*found->measurement);
        continue;
      }
      ++out.finished;
      out.failed += found->state != db::TrialState::kOk && found->error_class != db::kNotAvailable;
      if (context_.store.finish({trials[i].uuid, context_.owner, found->state, found->error_class,
                                 found->message, found->measurement}) &&
          found->correctness)
        context_.store.add(*found->correctness);
    }
  });
  builder_.saved();
  context_.meter.count(out.finished, out.failed);
  return out;
}

}  // namespace nimble::tuner
