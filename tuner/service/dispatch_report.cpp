#include "tuner/service/dispatch_report.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "db/store/open_existing.h"
#include "tuner/service/dispatch_subject.h"
#include "tuner/service/measuring.h"
#include "tuner/service/model_tasks.h"
#include "vm/base/file.h"
#include "vm/base/hash.h"
#include "vm/base/median.h"

namespace nimble::tuner {
namespace {

std::string text_of_file(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// What a report is about: one that was kept goes on if it is about the same.
std::string question_of(const DispatchReportOptions& o, const std::vector<TuningTask>& tasks,
                        const TuningMachine& on, const std::vector<int64_t>& threads,
                        const std::string& policy, db::Store& store) {
  // Times of another machine, or of other code, are not to be told beside these.
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {}", store.identity(), policy, o.campaign.top_k,
                  o.shapes.seed, fmt::join(threads, ","), on.target.level, db::key_of(on.hardware),
                  on.toolchain.codegen_version);
  // Without these the question is the one that it was before they could be asked.
  if (o.look_s != DispatchReportOptions{}.look_s) text += fmt::format(" looks of {}", o.look_s);
  if (o.searches > 0) text += fmt::format(" {} searches of {}", o.searches, o.search_trials);
  for (const TuningTask& t : tasks) {
    text += "\n" + t.workload().key;
    for (const WorkloadPoint& p : t.points) text += fmt::format("|{}", fmt::join(p.symbols, ","));
  }
  return hex(hash128(text));
}

}  // namespace

RegretSummary summary_of(std::vector<double> values) {
  RegretSummary out;
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  out.median = median_of(values);
  // The least value that 95 % do not exceed.
  out.p95 = values[(values.size() * 95 + 99) / 100 - 1];
  out.worst = values.back();
  return out;
}

RegretSummary summary_of(const std::vector<ShapeRegret>& shapes,
                         double (ShapeRegret::*of)() const) {
  std::vector<double> values;
  for (const ShapeRegret& s : shapes) values.push_back((s.*of)());
  return summary_of(std::move(values));
}

DispatchReport report_dispatch(const DispatchReportOptions& options, Backend& backend,
                               const std::atomic<bool>& cancel) {
  CampaignOptions o = options.campaign;
  const MachineLock machine_lock = lock_machine(o, "trying dispatch of", cancel);
  const auto start = std::chrono::steady_clock::now();
  Account account(start);
  const TuningMachine on = tuning_machine(o.target);
  o.last_cache_bytes = last_cache_of(o, on.hardware);
  const std::vector<int64_t> threads = threads_of(o, on.target);
  const std::unique_ptr<db::Store> store = db::open_to_write(o.database);
  DispatchReport report;
  const ModelTasks model = tasks_of_model(
      o, on.target, [&](const ir::Module& m) { return drawn_points(m, options.shapes); },
      &report.skipped);
  const std::string question =
      question_of(options, model.tasks, on, threads, model.policy.text(), *store);
  std::optional<DispatchReport> before;
  if (!options.file.empty() && std::filesystem::exists(options.file))
    before = report_from_text(text_of_file(options.file), question, options.file);
  if (before) {
    report.resumed = true;
    report.consumed_s = before->consumed_s;
    report.searched_s = before->searched_s;
  }

  ProgressMeter meter({o.database, "", o.budget_s, report.consumed_s, !o.quiet, start});
  Runner runner(runner_options(o, on.target, cancel));
  CampaignContext context =
      measuring_context(o, *store, backend, runner, meter, account, on, model.policy, cancel);
  context.seed = options.shapes.seed;
  for (const std::string& s : report.skipped) meter.note("skipped " + s);

  report.workloads.reserve(model.tasks.size() * threads.size());  // subjects refer to them
  std::vector<std::unique_ptr<DispatchSubject>> subjects;
  const auto keep = [&] {
    report.consumed_s = meter.consumed_s();
    if (!options.file.empty()) write_file_atomically(options.file, text_of(report, question));
  };
  // What is wrong with one workload is told, and the others go on.
  const auto tolerate = [&](const Error& e) {
    if (e.status() == Status::kCancelled || e.place() == store->path()) throw;
  };
  try {
    for (const TuningTask& task : model.tasks)
      for (const int64_t n : threads) {
        WorkloadRegret& out = report.workloads.emplace_back();
        try {
          subjects.push_back(
              std::make_unique<DispatchSubject>(context, task, n, model.policy.name, out));
        } catch (const Error& e) {
          tolerate(e);
          out.note = e.what();
          continue;
        }
        if (before)
          for (WorkloadRegret& known : before->workloads)
            if (known.workload == out.workload && known.table == out.table &&
                known.overrides == out.overrides) {
              out.shapes = std::move(known.shapes);
              out.candidates = known.candidates;
            }
        subjects.back()->begin(options);
      }
    size_t all = 0, left = 0;
    for (const auto& s : subjects) all += s->left();
    for (left = all; left > 0 && report.complete; keep()) {
      const bool shapes =
          std::any_of(subjects.begin(), subjects.end(), [](auto& s) { return s->has_shapes(); });
      for (const auto& s : subjects) {
        if (shapes ? !s->has_shapes() : s->done()) continue;
        if (cancel) throw Error(Status::kCancelled, "report", "interrupted");
        if (meter.left_s() <= 0) {
          report.complete = false;
          break;
        }
        meter.task(s->label(), static_cast<double>(all - left) / static_cast<double>(all));
        meter.phase(fmt::format("{} of {} {} left", left, all, shapes ? "shapes" : "searches"));
        const double begin_s = meter.consumed_s();
        try {
          s->measure();
        } catch (const Error& e) {
          tolerate(e);
          meter.note(fmt::format("{}: {}", s->label(), e.what()));
          s->abandon(e.what());
        }
        if (!shapes) report.searched_s += meter.consumed_s() - begin_s;
        meter.count(1, 0);
        left = 0;
        for (const auto& other : subjects) left += other->left();
      }
    }
  } catch (const Error& e) {
    if (e.status() != Status::kCancelled) throw;
    report.interrupted = true;
    report.complete = false;
  }
  keep();
  subjects.clear();  // the runner forgets their executables
  return report;
}

}  // namespace nimble::tuner
