#include "tuner/service/expectations.h"

#include <utility>

#include "tuner/service/jobs.h"
#include "vm/base/error.h"

namespace nimble::tuner {

std::string Expectations::key(size_t point) const {
  return cache_.key(fmt::format("expected {} {}", kDataVersion, kFillsVersion),
                    records_.shape(point));
}

std::optional<Expectation> Expectations::recall(size_t point) const {
  const std::optional<nlohmann::json> record = cache_.get(key(point));
  if (!record || !record->contains("results")) return std::nullopt;
  Expectation e;
  e.tolerance = record->at("tolerance").get<double>();
  e.sampled = record->at("sampled").get<bool>();
  for (size_t i = 0; i < record->at("results").get<size_t>(); ++i) {
    auto bytes = cache_.get_bytes(fmt::format("{} {}", key(point), i));
    if (!bytes) return std::nullopt;
    e.outputs.push_back(std::move(*bytes));
  }
  return e;
}

void Expectations::keep(size_t point, Expectation e) {
  const Account::Span storing(context_.account, Activity::kStore);
  const std::string place = key(point);
  for (size_t i = 0; i < e.outputs.size(); ++i)
    cache_.put_bytes(fmt::format("{} {}", place, i), e.outputs[i]);
  cache_.put(place,
             {{"tolerance", e.tolerance}, {"sampled", e.sampled}, {"results", e.outputs.size()}});
  found_.insert_or_assign(point, std::move(e));
}

bool Expectations::at_hand(size_t point) {
  if (found_.contains(point) || impossible_.contains(point)) return true;
  std::optional<Expectation> before = recall(point);
  if (!before) return false;
  found_.emplace(point, std::move(*before));
  return true;
}

bool Expectations::possible(size_t point) {
  if (!at_hand(point)) {
    builder_.ensure_default();
    const Account::Span checking(context_.account, Activity::kCheck);
    job(point)();
    take();
  }
  return found_.contains(point);
}

void Expectations::prepare(const std::vector<size_t>& points) {
  const auto threads = static_cast<size_t>(context_.compile_threads);
  std::vector<std::function<void()>> jobs;
  for (size_t point : points) {
    if (jobs.size() == threads) break;
    if (!at_hand(point)) jobs.push_back(job(point));
  }
  if (jobs.empty()) return;
  builder_.ensure_default();
  const Account::Span checking(context_.account, Activity::kCheck);
  run_jobs(jobs, threads);
  take();
}

std::function<void()> Expectations::job(size_t point) {
  return [this, point] {
    const DefaultResult run = [&] {
      const std::lock_guard turn(context_.runner_turn);
      return default_result(point);
    };
    Pending result;
    try {
      const TuningTask& task = records_.task();
      result.value =
          context_.backend.expect(task, task.points[point], records_.default_candidate(), run);
    } catch (...) {
      result.fault = std::current_exception();
    }
    const std::lock_guard lock(pending_mutex_);
    pending_[point] = std::move(result);
  };
}

void Expectations::take() {
  std::map<size_t, Pending> pending;
  {
    const std::lock_guard lock(pending_mutex_);
    pending.swap(pending_);
  }
  for (auto& [point, result] : pending) {
    if (result.value) {
      keep(point, std::move(*result.value));
      continue;
    }
    try {
      std::rethrow_exception(result.fault);
    } catch (const Error& error) {
      // What its types tell there is an invalid argument, what its values tell is fatal; internal
      // is a default schedule that is wrong.
      if (error.status() == Status::kInternal)
        context_.meter.note(error.what());
      else if (error.status() != Status::kFatal && error.status() != Status::kInvalidArgument)
        throw;
      impossible_.emplace(point, error.what());
    }
  }
  if (context_.cancelled()) throw Error(Status::kCancelled, "tuning", "interrupted");
}

void Expectations::correct(size_t point, const EntryResult& disagreement) {
  const TuningTask& task = records_.task();
  context_.meter.note(fmt::format(
      "{}: the default schedule is wrong{}: element {} of result {}; please report this",
      task.label, at_text(task.points[point]), disagreement.worst_element,
      disagreement.worst_output));
  const Account::Span checking(context_.account, Activity::kCheck);
  keep(point, context_.backend.expect(task, task.points[point], records_.default_candidate(),
                                      [] { return std::nullopt; }));
}

std::optional<std::vector<std::vector<uint8_t>>> Expectations::default_result(size_t point) {
  if (!builder_.has(records_.default_config())) return std::nullopt;
  const Builder::Kept& kept = builder_.at(records_.default_config());
  Case c = records_.case_at(point, context_.policy);
  c.entries = {{kept.executable, kept.kernel}};
  std::string why;
  auto out = context_.runner.run(c, &why);
  if (!out)
    context_.meter.note(fmt::format("{}: the default schedule failed{}: {}", records_.task().label,
                                    at_text(records_.task().points[point]), why));
  return out;
}

}  // namespace nimble::tuner
