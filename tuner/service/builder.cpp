#include "tuner/service/builder.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tuner/service/gpu_code_record.h"
#include "tuner/service/jobs.h"

namespace nimble::tuner {
namespace {

constexpr double kExecutableMs = 500;  // of compiling one executable, by its size
constexpr double kMostPerExecutable = 4;

}  // namespace

Builder::~Builder() {
  for (uint32_t id : executables_) context_.runner.remove(id);
}

size_t Builder::per_executable() const {
  return static_cast<size_t>(
      std::clamp(kExecutableMs / cpu_ms_per_candidate_, 1.0, kMostPerExecutable));
}

std::map<db::Hash, std::string> Builder::build(const std::vector<db::Hash>& configs,
                                               const std::vector<std::function<void()>>& beside) {
  std::vector<db::Hash> missing;
  for (const db::Hash& config : configs)
    if (std::find(missing.begin(), missing.end(), config) == missing.end() && !available(config))
      missing.push_back(config);
  const auto workers = static_cast<size_t>(context_.compile_threads);
  const size_t share =
      std::max<size_t>(1, std::min(per_executable(), (missing.size() + workers - 1) / workers));
  // A vendor's routine alone: where it is not available its whole executable is not.
  const auto theirs = std::stable_partition(missing.begin(), missing.end(),
                                            [&](const db::Hash& c) { return !is_vendors(c); });
  std::vector<std::vector<db::Hash>> batches;
  for (auto at = missing.begin(); at != theirs;) {
    const auto end = at + std::min<long>(theirs - at, static_cast<long>(share));
    batches.emplace_back(at, end);
    at = end;
  }
  for (auto at = theirs; at != missing.end(); ++at) batches.push_back({*at});

  const kernels::Workload& workload = records_.task().workload();
  std::vector<Built> results(batches.size());
  std::vector<std::vector<tuned::Candidate>> candidates;
  for (const auto& b : batches) {
    candidates.emplace_back();
    for (const db::Hash& h : b) candidates.back().push_back(records_.candidate(h));
  }
  if (!batches.empty()) {
    const Account::Span compiling(context_.account, Activity::kCompile);
    std::atomic<size_t> unfinished{batches.size()};
    std::vector<std::function<void()>> jobs;
    for (size_t i = 0; i < batches.size(); ++i)
      jobs.push_back([&, i] {
        if (!context_.cancelled())
          results[i] = context_.backend.build(workload, candidates[i], context_.target);
        --unfinished;
      });
    for (const std::function<void()>& job : beside)
      jobs.push_back([&unfinished, &job] {
        if (unfinished > 0) job();
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
    compiled_ += static_cast<int64_t>(batches[i].size());
    if (results[i].error.empty()) {
      keep(batches[i], std::move(results[i]));
      continue;
    }
    // One of them spoilt it: each alone.
    const Account::Span compiling(context_.account, Activity::kCompile);
    for (size_t k = 0; k < batches[i].size(); ++k) {
      Built alone = batches[i].size() == 1
                        ? std::move(results[i])
                        : context_.backend.build(workload, {candidates[i][k]}, context_.target);
      if (alone.error.empty())
        keep({batches[i][k]}, std::move(alone));
      else
        failed[batches[i][k]] = alone.error;
    }
  }
  if (!missing.empty() && !context_.cancelled()) {
    const auto count = static_cast<double>(missing.size());
    ms_per_candidate_ = 0.5 * (ms_per_candidate_ + ms / count);
    cpu_ms_per_candidate_ = 0.5 * (cpu_ms_per_candidate_ + cpu_ms / count);
  }
  return failed;
}

bool Builder::is_vendors(const db::Hash& config) const {
  return !records_.candidate(config).vendor.empty();
}

std::optional<std::string> Builder::why_not_measured(const db::Hash& config) const {
  const auto own = built_.find(config), usual = built_.find(records_.default_config());
  if (own == built_.end() || usual == built_.end() || own == usual) return std::nullopt;
  return tuner::why_not_measured(own->second.gpu_code, usual->second.gpu_code, context_.target);
}

void Builder::keep(const std::vector<db::Hash>& configs, Built built) {
  const auto count = static_cast<int64_t>(configs.size());
  // One of a vendor's is of the library's version of today, and made in no time.
  const bool cached = !is_vendors(configs[0]);
  const std::string file = cache_.key("executable", configs[0]);
  if (cached) cache_.put(file, {{"bytes", nlohmann::json::binary(built.executable)}});
  const uint32_t id = context_.runner.add(std::move(built.executable));
  executables_.insert(id);
  for (uint32_t k = 0; k < configs.size(); ++k) {
    const db::Artifact artifact{built.code_hashes[k],
                                records_.workload(),
                                configs[k],
                                context_.toolchain,
                                built.compile_ms / static_cast<double>(count),
                                built.image_bytes / count};
    const GpuCode code = built.gpu_code.empty() ? GpuCode{} : built.gpu_code.at(k);
    built_[configs[k]] = {id, k, db::key_of(artifact), code};
    unsaved_.push_back(artifact);
    if (!cached) continue;
    // After the executable: what is found here can be loaded.
    cache_.put(cache_.key("candidate", configs[k]), {{"executable", file},
                                                     {"kernel", k},
                                                     {"code_hash", artifact.code_hash},
                                                     {"compile_ms", artifact.compile_ms},
                                                     {"bytes", artifact.size},
                                                     {"gpu_code", gpu_code_json(code)}});
  }
}

bool Builder::restore(const db::Hash& config) {
  if (is_vendors(config)) return false;
  const std::optional<nlohmann::json> entry = cache_.get(cache_.key("candidate", config));
  if (!entry) return false;
  const auto file = entry->at("executable").get<std::string>();
  auto it = restored_.find(file);
  if (it == restored_.end()) {
    const std::optional<nlohmann::json> executable = cache_.get(file);
    if (!executable) return false;
    it = restored_.emplace(file, context_.runner.add(executable->at("bytes").get_binary())).first;
    executables_.insert(it->second);
  }
  // The artifact's row may not have been written before the kill.
  const db::Artifact artifact{entry->at("code_hash").get<std::string>(),
                              records_.workload(),
                              config,
                              context_.toolchain,
                              entry->at("compile_ms").get<double>(),
                              entry->at("bytes").get<int64_t>()};
  unsaved_.push_back(artifact);
  built_[config] = {it->second, entry->at("kernel").get<uint32_t>(), db::key_of(artifact),
                    gpu_code_from_json(*entry)};
  return true;
}

std::vector<std::function<void()>> Builder::default_jobs() {
  if (default_tried_ || available(records_.default_config())) return {};
  return {[this] {
    built_default_ = context_.backend.build(records_.task().workload(),
                                            {records_.default_candidate()}, context_.target);
  }};
}

void Builder::take_default() {
  if (!built_default_) return;
  default_tried_ = true;
  const Account::Span storing(context_.account, Activity::kStore);
  ++compiled_;
  // Alone it costs more than in company, but the first round will tell.
  ms_per_candidate_ = built_default_->compile_ms;
  if (built_default_->error.empty()) keep({records_.default_config()}, std::move(*built_default_));
  built_default_.reset();
}

void Builder::ensure_default() {
  const Account::Span compiling(context_.account, Activity::kCompile);
  for (const auto& job : default_jobs()) job();
  take_default();
}

}  // namespace nimble::tuner
