#include "tuner/measure/bench.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "tuner/measure/case_arguments.h"
#include "tuner/measure/statistics.h"
#include "vm/executable/reader.h"
#include "vm/interpreter/kernel.h"
#include "vm/runtime/storage_pool.h"

namespace nimble::tuner {
namespace {

using exec::Access;
using exec::KernelArgument;

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Which copy of the arguments is next. The entries of a case share one: if each went through the
// copies by itself, an entry would find in the cache what the one before it had just read, and only
// the first of a round would be timed as its policy says.
class Rotation {
 public:
  explicit Rotation(size_t copies) : copies_(copies) {}
  size_t next() {
    const size_t now = next_;
    if (++next_ == copies_) next_ = 0;
    return now;
  }
  void rewind() { next_ = 0; }

 private:
  size_t copies_, next_ = 0;
};

// One entry, bound to the arguments and ready to run.
class Runnable {
 public:
  Runnable(std::shared_ptr<const rt::Model> model, uint32_t kernel, const Arguments& arguments,
           Rotation& rotation, rt::ThreadPool& pool, int32_t threads)
      : model_(std::move(model)),
        kernel_(model_->kernels()[kernel]),
        arguments_(arguments),
        rotation_(rotation),
        pool_(pool),
        threads_(threads),
        storage_(rt::device(0)),
        scratch_(storage_),
        frames_(arguments.variants()) {
    for (size_t v = 0; v < frames_.size(); ++v) {
      frames_[v].reserve(model_->kernels());
      rt::bind_arguments(kernel_, arguments_.values(v), &frames_[v]);
      // As loading a model does for its constants: no part of a run.
      rt::make_ready(kernel_, arguments_.values(v), threads, &frames_[v]);
    }
  }

  void run() {
    const size_t copy = rotation_.next();
    rt::run_kernel(kernel_, arguments_.values(copy), threads_, pool_, scratch_, &frames_[copy]);
  }

 private:
  std::shared_ptr<const rt::Model> model_;
  const rt::PreparedKernel& kernel_;
  const Arguments& arguments_;
  Rotation& rotation_;
  rt::ThreadPool& pool_;
  int32_t threads_;
  rt::StoragePool storage_;
  rt::Scratch scratch_;
  std::vector<rt::KernelFrame> frames_;  // of each copy
};

struct Live {
  EntryResult result;
  std::unique_ptr<Runnable> runnable;
};

// Empties the results, so that those of the entry before cannot pass for this one's.
void poison(const Arguments& a) {
  for (const auto& out : a.outputs()) std::memset(out.data(), 0xff, out.size());
}

// Runs an entry and compares what it wrote with what is expected.
void check(Runnable& r, Rotation& rotation, const Arguments& a, const Case& c, EntryResult* out) {
  if (a.outputs().size() != c.expected.size())
    throw Error(
        Status::kInvalidArgument, "measurement",
        fmt::format("{} expected results for {} outputs", c.expected.size(), a.outputs().size()));
  poison(a);
  rotation.rewind();  // the first copy's outputs are looked at
  r.run();
  for (uint32_t i = 0; i < c.expected.size(); ++i) {
    int64_t at = -1;
    const double e = compare_tensors(a.output_types()[i], a.outputs()[i], c.expected[i], &at);
    if (!std::isnan(e) && e <= out->max_error) continue;
    out->max_error = e;
    out->worst_output = i;
    out->worst_element = at;
    if (std::isnan(e)) break;
  }
  if (out->max_error <= c.tolerance) return;
  out->state = EntryState::kWrong;
  out->message = fmt::format("result is off by {:g} at element {} of output {}, {:g} is allowed",
                             out->max_error, out->worst_element, out->worst_output, c.tolerance);
}

double sample(Runnable& r, int64_t runs) {
  const int64_t start = now_ns();
  for (int64_t i = 0; i < runs; ++i) r.run();
  // A clock that does not move would make a time of zero, which is no time.
  return static_cast<double>(std::max<int64_t>(1, now_ns() - start)) / static_cast<double>(runs);
}

}  // namespace

// What decides over the bytes of test data.
struct Bench::Kept {
  exec::KernelContract contract;
  Case c;  // the fields below alone count
  std::unique_ptr<Arguments> arguments;

  bool serves(const exec::KernelContract& other, const Case& o) const {
    return c.symbols == o.symbols && c.seed == o.seed && c.inputs == o.inputs &&
           c.stepping == o.stepping && c.policy.rotate_bytes == o.policy.rotate_bytes &&
           c.policy.cold == o.policy.cold && contract == other;
  }
};

Bench::Bench(Progress* progress) : progress_(progress), blocks_(std::make_shared<Blocks>()) {}
Bench::~Bench() = default;

const Arguments& Bench::arguments_for(const exec::KernelContract& contract, const Case& c) {
  if (kept_ && kept_->serves(contract, c)) {
    if (kept_->c.threads != c.threads) forget_ready();  // it is cut into shares of another number
    kept_->c.threads = c.threads;
    return *kept_->arguments;
  }
  kept_.reset();  // before there is a second one
  forget_ready();
  auto made =
      std::make_unique<Arguments>(contract, c, weights_, blocks_, [&] { at(kPreparing, 0); });
  // What a kernel changes in place is not what it was.
  const bool changes = std::any_of(
      contract.arguments.begin(), contract.arguments.end(), [](const KernelArgument& a) {
        return a.kind == KernelArgument::Kind::kTensor && a.access == Access::kInOut;
      });
  kept_ = std::make_unique<Kept>();
  kept_->contract = contract;
  kept_->c = c;
  kept_->c.expected.clear();
  if (changes) kept_->c.symbols = {-1};  // serves nobody else
  kept_->arguments = std::move(made);
  return *kept_->arguments;
}

// What vendors' routines have made of weights whose memory is about to hold others.
void Bench::forget_ready() {
  for (const auto& [id, model] : models_)
    for (const rt::PreparedKernel& kernel : model->kernels()) rt::forget_ready(kernel);
}

void Bench::at(Phase phase, uint32_t entry) {
  progress_->phase.store(phase, std::memory_order_relaxed);
  progress_->entry.store(entry, std::memory_order_relaxed);
  progress_->beat.fetch_add(1, std::memory_order_release);
}

rt::ThreadPool& Bench::pool(int32_t threads) {
  auto& p = pools_[threads];
  if (!p) p = std::make_unique<rt::ThreadPool>(threads, true);
  return *p;
}

uint32_t Bench::load(uint32_t id, std::span<const uint8_t> bytes) {
  at(kLoading, 0);
  rt::LoadOptions options;
  options.trust = true;  // the parent made it
  auto model = rt::Model::load(exec::deserialize(bytes, {}, "candidates"), options, "candidates");
  const auto kernels = static_cast<uint32_t>(model->kernels().size());
  models_[id] = std::move(model);
  at(kIdle, 0);
  return kernels;
}

const std::shared_ptr<const rt::Model>& Bench::model_of(const EntryRef& e) const {
  const auto it = models_.find(e.executable);
  if (it == models_.end() || e.kernel >= it->second->kernels().size())
    throw Error(Status::kNotFound, "measurement",
                fmt::format("kernel {} of executable {} is not loaded", e.kernel, e.executable));
  return it->second;
}

std::vector<std::vector<uint8_t>> Bench::run(const Case& c) {
  at(kPreparing, 0);
  const EntryRef& e = c.entries.at(0);
  const std::shared_ptr<const rt::Model>& model = model_of(e);
  Case once = c;
  once.policy.rotate_bytes = 0;  // one copy of everything serves
  const Arguments arguments(model->kernels()[e.kernel].kernel->contract, once, weights_, blocks_,
                            [&] { at(kPreparing, 0); });
  at(kChecking, 0);
  Rotation rotation(arguments.variants());
  forget_ready();
  Runnable r(model, e.kernel, arguments, rotation, pool(c.threads), c.threads);
  poison(arguments);
  r.run();
  forget_ready();
  at(kIdle, 0);
  std::vector<std::vector<uint8_t>> out;
  for (const auto& bytes : arguments.outputs()) out.emplace_back(bytes.begin(), bytes.end());
  return out;
}

CaseCost Bench::measure(const Case& c, const std::function<void(const EntryResult&)>& done) {
  const Policy& policy = c.policy;
  const int64_t begin = now_ns();
  const auto over = [&] { return c.limit_ns > 0 && now_ns() - begin > c.limit_ns; };
  const auto give_up = [&](EntryResult& r) {
    r.state = EntryState::kLate;
    r.message = "the time of its case was over";
    done(r);
  };
  CaseCost cost;
  int64_t mark = begin;
  const auto lap = [&](int64_t* sum) {
    const int64_t now = now_ns();
    *sum += now - mark;
    mark = now;
  };
  at(kPreparing, 0);
  const Arguments* arguments = nullptr;
  std::optional<Rotation> rotation;
  std::vector<Live> live;
  for (uint32_t i = 0; i < c.entries.size(); ++i) {
    const EntryRef& e = c.entries[i];
    const std::shared_ptr<const rt::Model>& model = model_of(e);
    if (!arguments) {
      arguments = &arguments_for(model->kernels()[e.kernel].kernel->contract, c);
      rotation.emplace(arguments->variants());
      lap(&cost.prepare_ns);
    }
    at(kChecking, i);
    Live l;
    l.result.index = i;
    if (over()) {
      give_up(l.result);
      continue;
    }
    try {
      l.runnable = std::make_unique<Runnable>(model, e.kernel, *arguments, *rotation,
                                              pool(c.threads), c.threads);
      check(*l.runnable, *rotation, *arguments, c, &l.result);
    } catch (const Error& error) {
      // Said before it runs: a vendor's routine cannot be made ready for this size.
      l.result.state = !l.runnable && error.status() == Status::kUnsupported
                           ? EntryState::kUnavailable
                           : EntryState::kFailed;
      l.result.message = error.what();
    }
    if (l.result.state == EntryState::kOk)
      live.push_back(std::move(l));
    else
      done(l.result);
  }
  lap(&cost.check_ns);

  std::vector<Live> warm;
  for (Live& l : live) {
    at(kTiming, l.result.index);
    if (over()) {
      give_up(l.result);
      continue;
    }
    // The last of them tells how long a run takes.
    for (int32_t i = 1; i < policy.warm_up; ++i) l.runnable->run();
    const double once = sample(*l.runnable, 1);
    l.result.runs_per_sample = std::clamp<int64_t>(
        static_cast<int64_t>(std::ceil(static_cast<double>(policy.batch_ns) / once)), 1, 1 << 20);
    warm.push_back(std::move(l));
  }
  live = std::move(warm);
  std::mt19937_64 random(c.seed);
  const StopRule rule(policy.min_samples, policy.max_samples);
  const int64_t start = now_ns();
  double best = HUGE_VAL;  // of all entries, those that have ended included
  while (!live.empty()) {
    std::shuffle(live.begin(), live.end(), random);
    for (Live& l : live) {
      at(kTiming, l.result.index);
      l.result.samples_ns.push_back(sample(*l.runnable, l.result.runs_per_sample));
    }
    const bool late = now_ns() - start > policy.case_ns || over();
    std::vector<double> medians;
    for (Live& l : live) {
      medians.push_back(median_of(l.result.samples_ns));
      best = std::min(best, medians.back());
    }
    std::vector<Live> still;
    for (size_t i = 0; i < live.size(); ++i) {
      EntryResult& r = live[i].result;
      const auto n = static_cast<int32_t>(r.samples_ns.size());
      if (n >= policy.race_samples && medians[i] > policy.race_factor * best)
        r.stop_reason = "raced";
      else if (rule.is_look(n) && rule.rank(n) > 0 &&
               summarise(r.samples_ns, rule).relative_error() <= policy.ci_target)
        r.stop_reason = "ci";
      else if (n >= policy.max_samples)
        r.stop_reason = "samples";
      else if (late)
        r.stop_reason = "time";
      if (r.stop_reason.empty())
        still.push_back(std::move(live[i]));
      else
        done(r);
    }
    live = std::move(still);
  }
  lap(&cost.time_ns);
  at(kIdle, 0);
  return cost;
}

}  // namespace nimble::tuner
