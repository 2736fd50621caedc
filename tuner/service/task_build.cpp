// What a task needs before it can measure: compiled candidates and expected results.
#include <algorithm>
#include <atomic>
#include <utility>

#include "tuner/service/jobs.h"
#include "tuner/service/task_run.h"
#include "vm/base/error.h"

namespace nimble::tuner {

void TaskRun::compile(std::vector<db::Trial>& trials) {
  std::vector<db::Hash> missing;
  for (const db::Trial& t : trials)
    if (!built_.contains(t.key.config) &&
        std::find(missing.begin(), missing.end(), t.key.config) == missing.end() &&
        !restore(t.key.config))
      missing.push_back(t.key.config);
  const auto workers = static_cast<size_t>(context_.compile_threads);
  const size_t share =
      std::max<size_t>(1, std::min(per_executable(), (missing.size() + workers - 1) / workers));
  std::vector<std::vector<db::Hash>> batches;
  for (size_t i = 0; i < missing.size(); i += share)
    batches.emplace_back(missing.begin() + static_cast<long>(i),
                         missing.begin() + static_cast<long>(std::min(missing.size(), i + share)));

  std::vector<Built> results(batches.size());
  std::vector<std::vector<tuned::Candidate>> candidates;
  for (const auto& b : batches) {
    candidates.emplace_back();
    for (const db::Hash& h : b) candidates.back().push_back(candidate(h));
  }
  if (!batches.empty()) {
    const Account::Span compiling(context_.account, Activity::kCompile);
    std::atomic<size_t> unfinished{batches.size()};
    std::vector<std::function<void()>> jobs;
    for (size_t i = 0; i < batches.size(); ++i)
      jobs.push_back([&, i] {
        if (!context_.cancelled())
          results[i] = context_.backend.build(task_.workload(), candidates[i], context_.target);
        --unfinished;
      });
    // A thread that finds nothing left to compile computes what the cross-evaluation will compare
    // with, as long as the other ones compile.
    if (built_.contains(default_config_))
      for (size_t p : order_)
        if (!at_hand(p))
          jobs.push_back([&unfinished, ahead = expectation_job(p)] {
            if (unfinished > 0) ahead();
          });
    run_jobs(jobs, workers);
  }
  std::map<db::Hash, std::string> failed;
  double ms = 0, cpu_ms = 0;
  const Account::Span storing(context_.account, Activity::kStore);
  for (size_t i = 0; i < batches.size(); ++i) {
    // Interrupted before it was begun. What was compiled by then is kept.
    if (results[i].error.empty() && results[i].executable.empty()) continue;
    ms += results[i].compile_ms;
    cpu_ms += results[i].cpu_ms > 0 ? results[i].cpu_ms : results[i].compile_ms;
    if (results[i].error.empty()) {
      report_.candidates += static_cast<int64_t>(batches[i].size());
      keep(batches[i], std::move(results[i]));
      continue;
    }
    // One of them spoilt it: each alone.
    const Account::Span compiling(context_.account, Activity::kCompile);
    for (size_t k = 0; k < batches[i].size(); ++k) {
      Built alone =
          batches[i].size() == 1
              ? std::move(results[i])
              : context_.backend.build(task_.workload(), {candidates[i][k]}, context_.target);
      if (alone.error.empty())
        keep({batches[i][k]}, std::move(alone));
      else
        failed[batches[i][k]] = alone.error;
      ++report_.candidates;
    }
  }
  take_expectations();
  if (context_.cancelled()) throw Error(Status::kCancelled, "tuning", "interrupted");
  if (!missing.empty()) {
    const auto count = static_cast<double>(missing.size());
    ms_per_candidate_ = 0.5 * (ms_per_candidate_ + ms / count);
    cpu_ms_per_candidate_ = 0.5 * (cpu_ms_per_candidate_ + cpu_ms / count);
  }
  std::erase_if(trials, [&](const db::Trial& t) {
    const auto it = failed.find(t.key.config);
    if (it == failed.end()) return false;
    finish_failed(t, db::TrialState::kCompileFailed, "compiler", it->second);
    return true;
  });
}

void TaskRun::keep(const std::vector<db::Hash>& configs, Built built) {
  const auto count = static_cast<int64_t>(configs.size());
  const std::string file = cache_key("executable", configs[0]);
  remember(file, {{"bytes", nlohmann::json::binary(built.executable)}});
  const uint32_t id = context_.runner.add(std::move(built.executable));
  executables_.insert(id);
  for (uint32_t k = 0; k < configs.size(); ++k) {
    const db::Artifact artifact{built.code_hashes[k],
                                workload_,
                                configs[k],
                                context_.toolchain,
                                built.compile_ms / static_cast<double>(count),
                                built.image_bytes / count};
    built_[configs[k]] = {id, k, db::key_of(artifact)};
    unsaved_artifacts_.push_back(artifact);
    // After the executable: what is found here can be loaded.
    remember(cache_key("candidate", configs[k]), {{"executable", file},
                                                  {"kernel", k},
                                                  {"code_hash", artifact.code_hash},
                                                  {"compile_ms", artifact.compile_ms},
                                                  {"bytes", artifact.size}});
  }
}

bool TaskRun::restore(const db::Hash& config) {
  const std::optional<nlohmann::json> entry = recall(cache_key("candidate", config));
  if (!entry) return false;
  const auto file = entry->at("executable").get<std::string>();
  auto it = restored_.find(file);
  if (it == restored_.end()) {
    const std::optional<nlohmann::json> executable = recall(file);
    if (!executable) return false;
    it = restored_.emplace(file, context_.runner.add(executable->at("bytes").get_binary())).first;
    executables_.insert(it->second);
  }
  // The artifact's row may not have been written before the kill.
  const db::Artifact artifact{entry->at("code_hash").get<std::string>(),
                              workload_,
                              config,
                              context_.toolchain,
                              entry->at("compile_ms").get<double>(),
                              entry->at("bytes").get<int64_t>()};
  unsaved_artifacts_.push_back(artifact);
  built_[config] = {it->second, entry->at("kernel").get<uint32_t>(), db::key_of(artifact)};
  return true;
}

// What an entry depends on, beyond the campaign, whose folder it is in.
std::string TaskRun::cache_key(const std::string& kind, const std::string& name) const {
  return fmt::format("{} {} {} {} {}", kind, workload_, context_.toolchain, context_.target.level,
                     name);
}

std::string TaskRun::expectation_key(size_t point) const {
  return cache_key(fmt::format("expected {}", kDataVersion), shapes_[point]);
}

void TaskRun::remember(const std::string& key, const nlohmann::json& value) const {
  if (context_.cache) context_.cache->put(key, nlohmann::json::to_cbor(value));
}

std::optional<nlohmann::json> TaskRun::recall(const std::string& key) const {
  if (!context_.cache) return std::nullopt;
  const std::optional<std::vector<uint8_t>> bytes = context_.cache->get(key);
  if (!bytes) return std::nullopt;
  return nlohmann::json::from_cbor(*bytes);
}

std::optional<Expectation> TaskRun::recall_expectation(size_t point) const {
  const std::string key = expectation_key(point);
  const std::optional<nlohmann::json> record = recall(key);
  if (!record || !record->contains("results")) return std::nullopt;
  Expectation e;
  e.tolerance = record->at("tolerance").get<double>();
  e.sampled = record->at("sampled").get<bool>();
  for (size_t i = 0; i < record->at("results").get<size_t>(); ++i) {
    auto bytes = context_.cache->get(fmt::format("{} {}", key, i));
    if (!bytes) return std::nullopt;
    e.outputs.push_back(std::move(*bytes));
  }
  return e;
}

bool TaskRun::at_hand(size_t point) {
  if (expectations_.contains(point) || impossible_.contains(point)) return true;
  std::optional<Expectation> found = recall_expectation(point);
  if (!found) return false;
  expectations_.emplace(point, std::move(*found));
  return true;
}

bool TaskRun::possible(size_t point) {
  if (!at_hand(point)) {
    ensure_default();
    const Account::Span checking(context_.account, Activity::kCheck);
    expectation_job(point)();
    take_expectations();
  }
  return expectations_.contains(point);
}

void TaskRun::expect_ahead(size_t from) {
  std::vector<std::function<void()>> jobs;
  for (size_t i = from; i < order_.size(); ++i) {
    if (jobs.size() == static_cast<size_t>(context_.compile_threads)) break;
    if (!at_hand(order_[i])) jobs.push_back(expectation_job(order_[i]));
  }
  if (jobs.empty()) return;
  ensure_default();
  const Account::Span checking(context_.account, Activity::kCheck);
  run_jobs(jobs, static_cast<size_t>(context_.compile_threads));
  take_expectations();
}

std::function<void()> TaskRun::expectation_job(size_t point) {
  return [this, point] {
    const DefaultResult run = [&] {
      const std::lock_guard turn(context_.runner_turn);
      return default_result(point);
    };
    Pending found;
    try {
      found.value =
          context_.backend.expect(task_, task_.points[point], candidates_.at(default_config_), run);
    } catch (...) {
      found.fault = std::current_exception();
    }
    const std::lock_guard lock(pending_mutex_);
    pending_[point] = std::move(found);
  };
}

void TaskRun::take_expectations() {
  std::map<size_t, Pending> pending;
  {
    const std::lock_guard lock(pending_mutex_);
    pending.swap(pending_);
  }
  for (auto& [point, found] : pending) {
    if (found.value) {
      expect(point, std::move(*found.value));
      continue;
    }
    try {
      std::rethrow_exception(found.fault);
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

void TaskRun::expect(size_t point, Expectation e) {
  const Account::Span storing(context_.account, Activity::kStore);
  const std::string key = expectation_key(point);
  // As they are: results of an image model are megabytes.
  for (size_t i = 0; i < e.outputs.size() && context_.cache; ++i)
    context_.cache->put(fmt::format("{} {}", key, i), e.outputs[i]);
  remember(key,
           {{"tolerance", e.tolerance}, {"sampled", e.sampled}, {"results", e.outputs.size()}});
  expectations_.insert_or_assign(point, std::move(e));
}

std::vector<std::function<void()>> TaskRun::default_jobs() {
  if (default_tried_ || built_.contains(default_config_) || restore(default_config_)) return {};
  return {[this] {
    built_default_ = context_.backend.build(task_.workload(), {candidates_.at(default_config_)},
                                            context_.target);
  }};
}

void TaskRun::take_default() {
  if (!built_default_) return;
  default_tried_ = true;
  const Account::Span storing(context_.account, Activity::kStore);
  ++report_.candidates;
  // Alone it costs more than in company, but the first round will tell.
  ms_per_candidate_ = built_default_->compile_ms;
  if (built_default_->error.empty()) keep({default_config_}, std::move(*built_default_));
  built_default_.reset();
}

void TaskRun::ensure_default() {
  const Account::Span compiling(context_.account, Activity::kCompile);
  for (const auto& job : default_jobs()) job();
  take_default();
}

std::vector<std::function<void()>> TaskRun::expectation_jobs() {
  const size_t point = task_.representative();
  if (at_hand(point)) return {};
  return {expectation_job(point)};
}

std::optional<std::vector<std::vector<uint8_t>>> TaskRun::default_result(size_t point) {
  const auto it = built_.find(default_config_);
  if (it == built_.end()) return std::nullopt;
  Case c = case_of(point);
  c.entries = {{it->second.executable, it->second.kernel}};
  std::string why;
  auto out = context_.runner.run(c, &why);
  if (!out)
    context_.meter.note(fmt::format("{}: the default schedule failed at {}: {}", task_.label,
                                    fmt::join(task_.points[point].symbols, ", "), why));
  return out;
}

}  // namespace nimble::tuner
