#include "tuner/measure/bench.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "tuner/measure/case_arguments.h"
#include "tuner/measure/clock.h"
#include "tuner/measure/runnable.h"
#include "tuner/measure/statistics.h"
#include "vm/base/device_number.h"
#include "vm/executable/reader.h"
#include "vm/interpreter/kernel.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::tuner {
namespace {

using exec::Access;
using exec::KernelArgument;

struct Live {
  EntryResult result;
  std::unique_ptr<Runnable> runnable;
};

// Runs an entry and compares what it wrote with what is expected.
void check(Runnable& r, Rotation& rotation, Arguments& a, const Case& c, EntryResult* out) {
  if (a.outputs() != c.expected.size())
    throw Error(Status::kInvalidArgument, "measurement",
                fmt::format("{} expected results for {} outputs", c.expected.size(), a.outputs()));
  a.poison();
  rotation.rewind();  // the first copy's outputs are looked at
  r.run();
  for (uint32_t i = 0; i < c.expected.size(); ++i) {
    int64_t at = -1;
    const double e = compare_tensors(a.output_type(i), a.output(i), c.expected[i], &at);
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

Bench::Bench(Progress* progress, bool gpu) : progress_(progress), gpu_(gpu) {}
Bench::~Bench() = default;

void Bench::be_on(rt::Device& device) {
  if (blocks_ && &blocks_->device() == &device) return;
  kept_.reset();
  weights_.reset();
  blocks_ = std::make_shared<Blocks>(device);
}

Arguments& Bench::arguments_for(const rt::PreparedKernel& kernel, const Case& c) {
  const exec::KernelContract& contract = kernel.kernel->contract;
  be_on(*kernel.device);
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
  // Who sees the phase sees a beat: how long it may take counts from its begin.
  progress_->beat.fetch_add(1, std::memory_order_relaxed);
  progress_->phase.store(phase, std::memory_order_release);
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
  exec::Executable executable = exec::deserialize(bytes, {}, "candidates");
  for (const exec::NativeImage& image : executable.images)
    if (gpu_ && !is_gpu(image.device))
      throw Error(Status::kInvalidArgument, "candidates",
                  fmt::format("they have code for {}, and run on a GPU", image.target),
                  "measure them with a worker of the CPU");
  auto model = rt::Model::load(std::move(executable), options, "candidates");
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
  const rt::PreparedKernel& kernel = model->kernels()[e.kernel];
  be_on(*kernel.device);
  Arguments arguments(kernel.kernel->contract, once, weights_, blocks_, [&] { at(kPreparing, 0); });
  at(kReadying, 0);
  Rotation rotation(arguments.variants());
  forget_ready();
  const std::unique_ptr<Runnable> r =
      make_runnable(model, e.kernel, arguments, rotation, pool(c.threads), c.threads);
  at(kChecking, 0);
  arguments.poison();
  r->run();
  forget_ready();
  at(kIdle, 0);
  std::vector<std::vector<uint8_t>> out;
  for (size_t i = 0; i < arguments.outputs(); ++i) {
    const std::span<const uint8_t> bytes = arguments.output(i);
    out.emplace_back(bytes.begin(), bytes.end());
  }
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
  Arguments* arguments = nullptr;
  std::optional<Rotation> rotation;
  std::vector<Live> live;
  for (uint32_t i = 0; i < c.entries.size(); ++i) {
    const EntryRef& e = c.entries[i];
    const std::shared_ptr<const rt::Model>& model = model_of(e);
    if (!arguments) {
      arguments = &arguments_for(model->kernels()[e.kernel], c);
      rotation.emplace(arguments->variants());
      lap(&cost.prepare_ns);
    }
    at(kReadying, i);
    Live l;
    l.result.index = i;
    if (over()) {
      give_up(l.result);
      continue;
    }
    try {
      l.runnable =
          make_runnable(model, e.kernel, *arguments, *rotation, pool(c.threads), c.threads);
      at(kChecking, i);
      check(*l.runnable, *rotation, *arguments, c, &l.result);
    } catch (const Error& error) {
      if (model->gpu() && model->gpu()->lost()) throw;  // nothing runs in this process any more
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
    const double once = l.runnable->sample(1);
    l.result.runs_per_sample = l.runnable->runs_for(static_cast<double>(policy.batch_ns), once);
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
      l.result.samples_ns.push_back(l.runnable->sample(l.result.runs_per_sample));
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
