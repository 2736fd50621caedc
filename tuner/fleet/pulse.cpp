#include "tuner/fleet/pulse.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::milliseconds(50);

}  // namespace

Pulse::Pulse(const FleetWorkerOptions& options, const db::Uuid& worker,
             const std::atomic<bool>& cancel)
    : options_(options), cancel_(cancel), worker_(worker), thread_([this] { run(); }) {}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Pulse::become(const db::Uuid& worker) {
  std::unique_lock lock(mutex_);
  // One that is under way would bring the worker of before back to life after its last.
  told_.wait(lock, [this] { return !telling_; });
  worker_ = worker;
  due_ = Clock::now();
}

void Pulse::hold(const db::Job& job) {
  const std::lock_guard lock(mutex_);
  job_ = job.uuid;
  attempt_ = job.attempt;
  lost_ = false;
  halt = cancel_.load();
  due_ = Clock::now();
}

bool Pulse::let_go() {
  const std::lock_guard lock(mutex_);
  job_.reset();
  due_ = Clock::now();
  return !lost_;
}

void Pulse::run() {
  std::unique_ptr<db::Store> store;
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (cancel_) halt = true;
    if (Clock::now() >= due_) {
      due_ = Clock::now() + std::chrono::milliseconds(std::max<int64_t>(options_.lease_ms / 4, 1));
      db::Heartbeat beat;
      beat.worker = worker_;
      beat.job = job_;
      beat.state = cancel_ ? db::WorkerState::kStopping
                   : job_  ? db::WorkerState::kMeasuring
                           : db::WorkerState::kIdle;
      const int64_t attempt = attempt_;
      telling_ = true;
      lock.unlock();
      bool held = true;
      try {
        if (!store) store = db::Store::open(options_.database, options_.open);
        held = store->heartbeat(beat, attempt, options_.lease_ms);
      } catch (const Error&) {
        store.reset();
      }
      lock.lock();
      telling_ = false;
      told_.notify_all();
      if (!held && job_ == beat.job && attempt_ == attempt) lost_ = halt = true;
    }
    wake_.wait_for(lock, kTick, [this] { return end_; });
  }
}

}  // namespace nimble::tuner
