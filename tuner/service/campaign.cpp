#include "tuner/service/campaign.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "tuner/fleet/case_record.h"
#include "tuner/measure/statistics.h"
#include "tuner/service/campaign_lock.h"
#include "tuner/service/jobs.h"
#include "tuner/service/measuring.h"
#include "tuner/service/model_tasks.h"
#include "tuner/service/stored_report.h"
#include "tuner/service/task_state.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {

namespace {

// Each workload gets at least this much, the hottest first, while there is any.
constexpr double kLeastTaskSeconds = 1.5;
constexpr double kSearchShare = 0.6;
// Of the budget at most, for the default schedules' first times.
constexpr double kBaselineShare = 0.4;
// Kept for writing tables at the end.
constexpr double kReserveSeconds = 0.4, kReserveShare = 0.01;
// Further rounds of a workload take this much at least: its finalists are verified anew.
constexpr double kLeastSliceSeconds = 4;
constexpr char kTooLong[] = "what is left to try takes longer than the time that is left";
// Of a task in whose midst the campaign was interrupted for the last time.
constexpr char kSpent[] = "not finished: the budget is spent; a larger --budget goes on";
// Default schedules that are compiled, checked and measured in one go.
constexpr size_t kDefaultsAtOnce = 8;

std::string digest_of(const std::vector<TuningTask>& tasks, const kernels::TargetInfo& target) {
  std::vector<std::string> keys;
  for (const TuningTask& t : tasks) {
    keys.push_back(tuned::workload_record(t.workload(), target, 0).canonical);
    for (const WorkloadPoint& p : t.points)
      keys.back() += fmt::format("|{}:{:.6f}", fmt::join(p.symbols, ","), p.weight);
  }
  std::sort(keys.begin(), keys.end());
  return hex(hash128(fmt::format("{}", fmt::join(keys, "\n"))));
}

class Driver {
 public:
  Driver(const CampaignOptions& options, Backend& backend, const std::atomic<bool>& cancel)
      : options_(options), backend_(backend), cancel_(cancel) {}

  CampaignReport run() {
    // First of all: importing a model loads the machine, too.
    const MachineLock machine_lock = lock_machine(options_, "tuning into", cancel_);
    const auto start = std::chrono::steady_clock::now();
    Account account(start);
    {
      const Account::Span importing(account, Activity::kImport);
      prepare();
    }
    open_campaign();
    if (report_.nothing_to_do) return report_of_finished();
    const CampaignFiles files(options_.database, *store_, campaign_.uuid);
    const CampaignLock lock(*store_, files.lock, campaign_.uuid);
    take_campaign();
    WorkCache cache(files.work);
    release_dead(*store_, campaign_.uuid);
    const double end_s =
        report_.budget_s - std::min(kReserveSeconds, kReserveShare * report_.budget_s);
    // It was interrupted when its time was over: nothing more can come of it.
    if (report_.resumed && report_.consumed_s >= end_s) {
      cache.clear();
      store_->transaction([&] {
        tell_unfinished();
        store_->set_campaign_state(campaign_.uuid, db::CampaignState::kFinished);
      });
      report_.nothing_to_do = true;
      return report_of_finished();
    }
    ProgressMeter meter({options_.database, campaign_.uuid, report_.budget_s, campaign_.consumed_s,
                         !options_.quiet, start});
    Runner runner(runner_options(options_, on_.target, cancel_));
    CampaignContext context = measuring_context(options_, *store_, backend_, runner, meter, account,
                                                on_, policy_, cancel_);
    context.campaign = campaign_.uuid;
    context.owner = owner_name();
    context.cache = &cache;
    // They refer to the context, also where an error ends the campaign early.
    const auto end_runs = [](std::vector<std::unique_ptr<TaskRun>>* runs) { runs->clear(); };
    const std::unique_ptr<std::vector<std::unique_ptr<TaskRun>>, decltype(end_runs)> running(
        &runs_, end_runs);
    context.search_end = options_.search_end;
    context.end_s = end_s;
    for (const std::string& s : report_.skipped) meter.note("skipped " + s);
    try {
      baselines(context);
      tune(context);
    } catch (const Error& e) {
      if (e.status() != Status::kCancelled) throw;
      report_.interrupted = true;
    }
    if (report_.interrupted) keep_what_is_known();
    // The phase that was interrupted stays what it is.
    for (auto& r : runs_)
      if (!report_.interrupted) r->enter(plan::Phase::kDone);
    if (!report_.interrupted) cache.clear();
    // What there was no time for is anybody's.
    store_->give_back(campaign_.uuid, context.owner);
    db::Store::open(options_.database)
        ->set_campaign_state(campaign_.uuid, report_.interrupted ? db::CampaignState::kInterrupted
                                                                 : db::CampaignState::kFinished);
    for (auto& r : runs_) {
      r->report().candidates = r->compiled();
      report_.tasks.push_back(r->report());
      report_.spending.candidates += r->compiled();
    }
    // It need not forget one executable after the other.
    runner.stop();
    runs_.clear();
    report_.consumed_s = meter.consumed_s();
    report_.spending.told_errors = meter.told_errors();
    for (size_t a = 0; a < kActivities; ++a)
      report_.spending.seconds[name_of(static_cast<Activity>(a))] =
          account.seconds(static_cast<Activity>(a));
    report_.spending.wall_s = account.total();
    return report_;
  }

 private:
  void prepare() {
    on_ = tuning_machine(options_.target);
    threads_ = threads_of(options_, on_.target);
    // Before the model is read: a database that cannot be opened is known at once.
    // What it writes is on the disk with the meter's next record, a second or two later; the end of
    // a campaign waits for it.
    db::OpenOptions open;
    open.durable = false;
    store_ = db::Store::open(options_.database, open);
    CampaignOptions options = options_;
    options.last_cache_bytes = last_cache_of(options, on_.hardware);
    ModelTasks model = tasks_of_model(options, on_.target, &report_.skipped);
    policy_ = std::move(model.policy);
    tasks_ = std::move(model.tasks);
    report_.cpu_kernels = model.cpu_kernels;
    hardware_ = store_->put(on_.hardware);
    toolchain_ = store_->put(on_.toolchain);
  }

  void open_campaign() {
    db::CampaignKey key;
    key.digest = digest_of(tasks_, on_.target);
    key.hardware = hardware_;
    key.seed = options_.seed;
    nlohmann::json key_options{{"top_k", options_.top_k},
                               {"only_hot", options_.only_hot},
                               {"threads", threads_},
                               {"target", on_.target.level},
                               {"codegen", on_.toolchain.codegen_version},
                               {"backend", on_.toolchain.version},
                               {"policy", policy_.text()}};
    // What the driver's compiler makes of assembly is another campaign's with another driver.
    if (on_.toolchain.flags != tuned::toolchain_record(on_.target).flags)
      key_options["flags"] = on_.toolchain.flags;
    // As usual, and as a --size of old, is as it was before there was a choice: such a campaign
    // goes on. When a search ends is no part of the key, as the budget is none.
    const CampaignOptions usual;
    const bool of_one_size =
        options_.search_shapes == 0 && options_.representative != usual.representative;
    if (options_.search_shapes != usual.search_shapes && !of_one_size)
      key_options["search_shapes"] = options_.search_shapes;
    if (options_.random_search) key_options["search"] = "random";
    key.options = key_options.dump();
    db::Store::OpenedCampaign opened =
        store_->open_campaign(key, options_.budget_s, options_.command);
    campaign_ = std::move(opened.campaign);
    report_.resumed = !opened.is_new;
    // The budget is not part of the key: a larger one lets a campaign go on.
    report_.nothing_to_do =
        report_.resumed && !campaign_.resumable() && options_.budget_s <= campaign_.budget_s;
    report_.campaign = campaign_.uuid;
    report_.budget_s = campaign_.budget_s;
    report_.consumed_s = campaign_.consumed_s;
  }

  // Behind its lock: one that another process has stays as it is, and what that did since the
  // campaign was found counts.
  void take_campaign() {
    if (!report_.resumed) return;
    store_->transaction([&] {
      campaign_ = *store_->campaign(campaign_.uuid);
      continued_ = !campaign_.resumable();
      if (options_.budget_s > campaign_.budget_s) {
        store_->set_budget(campaign_.uuid, options_.budget_s);
        campaign_.budget_s = options_.budget_s;
      }
      store_->set_campaign_state(campaign_.uuid, db::CampaignState::kRunning);
    });
    report_.budget_s = campaign_.budget_s;
    report_.consumed_s = campaign_.consumed_s;
  }

  // As a service does where it ends tasks early: the phase in which one was left stays, for it
  // tells how far the task came, and a note says why nothing follows.
  void tell_unfinished() {
    for (const db::Task& t : store_->tasks(campaign_.uuid)) {
      if (t.phase == plan::name_of(plan::Phase::kDone)) continue;
      TaskState state = task_state_from_json(t.detail);
      state.note = kSpent;
      // Of the table by then: the process that was interrupted may have made another one.
      state.best_ns = 0;
      store_->enter_phase(t.uuid, t.phase.empty() ? plan::name_of(plan::Phase::kBaseline) : t.phase,
                          json_text(state), t.share);
    }
  }

  // What the campaign left, the hottest first.
  CampaignReport report_of_finished() {
    std::map<db::Hash, db::Task> rows;
    for (db::Task& row : store_->tasks(campaign_.uuid)) rows.emplace(row.workload, std::move(row));
    for (const TuningTask& t : tasks_)
      for (int64_t threads : threads_) {
        // Of this toolchain: another's may be active beside it.
        db::NewDispatchTable slot;
        slot.workload = db::key_of(tuned::workload_record(t.workload(), on_.target, threads));
        slot.hardware = hardware_;
        slot.toolchain = toolchain_;
        slot.policy = db::key_of(policy_record(policy_, threads));
        const auto row = rows.find(slot.workload);
        TaskReport r = stored_report(*store_, campaign_.uuid, slot,
                                     row == rows.end() ? nullptr : &row->second);
        r.label = t.label;
        r.threads = threads;
        r.calls = t.calls;
        report_.tasks.push_back(std::move(r));
      }
    std::ranges::stable_sort(report_.tasks, std::ranges::greater{}, &TaskReport::share);
    return std::move(report_);
  }

  // Measures the defaults and sorts the tasks by their share of the model's time.
  void baselines(CampaignContext& context) {
    // What is likely to be hot comes first, in case that the budget ends here.
    std::vector<const TuningTask*> order;
    for (const TuningTask& t : tasks_) order.push_back(&t);
    const auto work = [](const TuningTask* t) { return t->calls * mean_work(*t); };
    std::stable_sort(order.begin(), order.end(),
                     [&](const auto* a, const auto* b) { return work(a) > work(b); });
    const double until =
        context.meter.consumed_s() + kBaselineShare * std::max(0.0, context.meter.left_s());
    // (task, threads), in pieces: default schedules are compiled and their results checked side by
    // side, then measured alone.
    std::vector<std::unique_ptr<TaskRun>> piece;
    const auto finish = [&] {
      measure_defaults(context, piece);
      piece.clear();
    };
    const double begin = context.meter.consumed_s();
    const size_t all = order.size() * threads_.size();
    // As if those that are not measured yet were like those that are.
    const auto tell = [&] {
      double sum = 0;
      for (const auto& r : runs_) sum += r->work_left_s(options_.top_k);
      const auto done = static_cast<double>(runs_.size());
      if (done == 0) return;
      const double rest = static_cast<double>(all) - done;
      context.meter.outlook(sum * static_cast<double>(all) / done +
                            (context.meter.consumed_s() - begin) * rest / done);
    };
    for (const TuningTask* task : order)
      for (int64_t threads : threads_) {
        context.meter.task(fmt::format("{}, {} threads", task->label, threads), 0);
        const bool late = context.meter.consumed_s() > until && !runs_.empty();
        try {
          piece.push_back(std::make_unique<TaskRun>(context, *task, threads));
        } catch (const Error& e) {
          if (ends_campaign(e)) throw;
          skip(context, *task, e.what());
          continue;
        }
        if (late) {
          piece.back()->report().estimated = true;
          runs_.push_back(std::move(piece.back()));
          piece.pop_back();
        } else if (piece.size() >= (context.meter.left_s() > 0 ? kDefaultsAtOnce : 1)) {
          finish();
          tell();
        }
      }
    finish();
    estimate();
    std::map<int64_t, double> total;
    for (const auto& r : runs_) total[r->report().threads] += r->default_cost();
    for (auto& r : runs_)
      if (total[r->report().threads] > 0)
        r->report().share = r->default_cost() / total[r->report().threads];
    std::stable_sort(runs_.begin(), runs_.end(), [](const auto& a, const auto& b) {
      return a->report().share > b->report().share;
    });
  }

  // Whether an error is no workload's but that of the database: a full disk, say. Such a campaign
  // stays as it is; the same command goes on with it.
  bool ends_campaign(const Error& e) const {
    return e.status() == Status::kCancelled || e.place() == store_->path();
  }

  void skip(CampaignContext& context, const TuningTask& t, const std::string& why) {
    context.meter.note(fmt::format("skipped {}: {}", t.label, why));
    report_.skipped.push_back(fmt::format("{}: {}", t.label, why));
  }

  void measure_defaults(CampaignContext& context, std::vector<std::unique_ptr<TaskRun>>& piece) {
    const auto threads = static_cast<size_t>(options_.compile_threads);
    std::vector<std::function<void()>> jobs;
    const auto all_of = [&](auto jobs_of) {
      jobs.clear();
      for (auto& r : piece)
        for (auto& job : (r.get()->*jobs_of)()) jobs.push_back(std::move(job));
    };
    {
      const Account::Span compiling(context.account, Activity::kCompile);
      all_of(&TaskRun::default_jobs);
      run_jobs(jobs, threads);
    }
    for (auto& r : piece) r->take_default();
    {
      const Account::Span checking(context.account, Activity::kCheck);
      all_of(&TaskRun::expectation_jobs);
      run_jobs(jobs, threads);
    }
    for (auto& r : piece) {
      context.meter.task(fmt::format("{}, {} threads", r->report().label, r->report().threads), 0);
      measure_default(context, *r);
      runs_.push_back(std::move(r));
    }
  }

  bool measure_default(CampaignContext& context, TaskRun& task) {
    try {
      return task.baseline() > 0;
    } catch (const Error& e) {
      if (ends_campaign(e)) throw;
      // Such as an operator that the reference lacks: nothing could be checked.
      skip(context, task.task(), e.what());
      task.report().note = e.what();
      return false;
    }
  }

  // Where there was no time to measure a default schedule, its work tells what it may take: as much
  // as the median workload takes for so much work.
  void estimate() {
    const auto work = [](const TaskRun& r) { return work_of(r.task().points[r.first_point()]); };
    std::vector<double> rates;
    for (const auto& r : runs_)
      if (r->report().default_ns > 0) rates.push_back(r->report().default_ns / work(*r));
    if (rates.empty()) return;
    for (auto& r : runs_)
      if (r->report().estimated) r->report().default_ns = median_of(rates) * work(*r);
  }

  void tune(CampaignContext& context) {
    // What is not hot keeps its default.
    std::map<int64_t, double> covered;
    std::vector<TaskRun*> hot;
    double weight_left = 0;
    for (auto& r : runs_) {
      TaskReport& report = r->report();
      double& sum = covered[report.threads];
      if (!report.note.empty()) continue;
      if (report.default_ns <= 0) {
        report.note = "nothing was measured";
      } else if (sum >= options_.only_hot) {
        report.note = "default schedule kept: not hot";
      } else if (!continued_ && r->finished_before()) {
        report.note = "tuned before";
      } else {
        hot.push_back(r.get());
        weight_left += std::sqrt(report.share);
      }
      sum += report.share;
    }
    context.progressed = [&] { tell_outlook(context, hot); };
    bool too_late = false;  // for some
    for (size_t i = 0; i < hot.size(); ++i) {
      TaskReport& report = hot[i]->report();
      const double weight = std::sqrt(report.share);
      const double left = context.end_s - context.meter.consumed_s();
      const double part =
          std::min(left, std::max(kLeastTaskSeconds, left * weight / std::max(1e-9, weight_left)));
      weight_left -= weight;
      if (left < kLeastTaskSeconds) {
        report.note = "default schedule kept: the budget ended";
        too_late = true;
        continue;
      }
      if (report.estimated && !measure_default(context, *hot[i])) continue;
      tell_outlook(context, hot);
      tune_one(context, *hot[i], part, fmt::format("{}/{}", i + 1, hot.size()),
               static_cast<double>(i) / static_cast<double>(hot.size()));
    }
    // What is left goes to the hottest again, as long as there is something to try.
    std::map<TaskRun*, int> dry;  // slices without a gain
    std::set<TaskRun*> stuck;     // a slice was too short to try anything
    for (;;) {
      TaskRun* next = nullptr;
      double most = 0;
      for (TaskRun* r : hot) {
        const TaskReport& report = r->report();
        if (r->exhausted() || stuck.contains(r) || !report.note.empty()) continue;
        const double weight = std::sqrt(report.share) / (1 + dry[r]);
        if (weight > most) most = weight, next = r;
      }
      const double left = context.end_s - context.meter.consumed_s();
      if (!next) {
        const bool whole = std::all_of(hot.begin(), hot.end(), [](const TaskRun* r) {
          return r->exhausted() || !r->report().note.empty();
        });
        const bool tried = std::all_of(hot.begin(), hot.end(), [](const TaskRun* r) {
          return r->report().search_ended == kAllTried || !r->report().note.empty();
        });
        report_.ended = hot.empty() ? "no workload was left to tune"
                        : too_late  ? kTooLong
                        : tried     ? "every schedule of every workload was tried"
                        : whole     ? "further trials gain nothing (--patience, --max-trials)"
                                    : kTooLong;
        break;
      }
      if (left < kLeastTaskSeconds) {
        // Too little for a table. A larger budget goes on from what is found.
        const int64_t tried = next->report().trials;
        for (int64_t before = -1; !next->exhausted() && next->report().trials != before;) {
          before = next->report().trials;
          next->search(context.end_s);
        }
        if (next->report().trials == tried) report_.ended = kTooLong;
        break;
      }
      tell_outlook(context, hot);
      // A rest that is too small for another slice is part of this one.
      double part = std::max(kLeastSliceSeconds, left / static_cast<double>(hot.size()));
      if (left - part < kLeastSliceSeconds) part = left;
      const double before = next->report().best_ns;
      const int64_t trials = next->report().trials;
      tune_one(context, *next, part, "again", 1);
      if (next->report().trials == trials) stuck.insert(next);
      dry[next] = next->report().best_ns < before ? 0 : dry[next] + 1;
    }
    context.progressed = nullptr;
    context.meter.outlook(0);
  }

  void tune_one(CampaignContext& context, TaskRun& task, double part, const std::string& which,
                double done) {
    TaskReport& report = task.report();
    const double begin = context.meter.consumed_s();
    current_ = &task;
    context.meter.task(fmt::format("{} {}, {} threads", which, report.label, report.threads), done);
    const double end = std::min(context.end_s, begin + part);
    task.enter(plan::Phase::kSearch);
    if (task.search(begin + kSearchShare * part)) {
      task.enter(plan::Phase::kCross);
      task.cross(options_.top_k, end);
      task.enter(plan::Phase::kVerify);
      task.verify(end);
      task.make_table(true);
      context.meter.note(fmt::format(
          "tuned {}, {} threads: {:.1f} us -> {:.1f} us ({:.2f}x), {} entries", report.label,
          report.threads, report.default_ns / 1000, report.best_ns / 1000,
          report.best_ns > 0 ? report.default_ns / report.best_ns : 0.0, report.entries));
    }
    report.spent_s += context.meter.consumed_s() - begin;
    task.enter(plan::Phase::kDone);  // until there is time for another slice
    task.release_memory();
    current_ = nullptr;
  }

  // The campaign may come to the end of what there is to try before its budget ends.
  void tell_outlook(CampaignContext& context, const std::vector<TaskRun*>& hot) {
    double sum = 0;
    for (const TaskRun* r : hot)
      if (r->report().note.empty()) sum += r->work_left_s(options_.top_k);
    context.meter.outlook(sum);
  }

  void keep_what_is_known() {
    for (auto& r : runs_)
      if (r.get() == current_) r->make_table(false);
    for (auto& r : runs_)
      if (!r->report().table && r->report().note.empty())
        r->report().note = "default schedule kept: interrupted";
  }

  const CampaignOptions& options_;
  Policy policy_;
  Backend& backend_;
  const std::atomic<bool>& cancel_;
  TuningMachine on_;
  std::vector<int64_t> threads_;
  std::unique_ptr<db::Store> store_;
  std::vector<TuningTask> tasks_;
  db::Hash hardware_, toolchain_;
  db::Campaign campaign_;
  bool continued_ = false;  // finished before, goes on with a larger budget
  std::vector<std::unique_ptr<TaskRun>> runs_;
  TaskRun* current_ = nullptr;
  CampaignReport report_;
};

}  // namespace

CampaignReport run_campaign(const CampaignOptions& options, Backend& backend,
                            const std::atomic<bool>& cancel) {
  return Driver(options, backend, cancel).run();
}

double Spending::working_share() const {
  double sum = 0;
  for (Activity a : {Activity::kCompile, Activity::kTime})
    if (const auto it = seconds.find(name_of(a)); it != seconds.end()) sum += it->second;
  return wall_s > 0 ? sum / wall_s : 0;
}

double Spending::candidates_per_minute() const {
  return wall_s > 0 ? 60 * static_cast<double>(candidates) / wall_s : 0;
}

}  // namespace nimble::tuner
