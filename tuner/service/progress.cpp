#include "tuner/service/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr auto kDraw = std::chrono::milliseconds(250);
constexpr double kRecordEvery = 1.5, kLineEvery = 5;

size_t terminal_width() {
  winsize size{};
  if (::ioctl(2, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 100;
  return size.ws_col;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} m {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} m", s / 3600, s % 3600 / 60);
}

ProgressMeter::ProgressMeter(Options options)
    : options_(std::move(options)), terminal_(::isatty(2) == 1) {
  thread_ = std::thread([this] { run(); });
}

ProgressMeter::~ProgressMeter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (terminal_ && options_.show) std::fputs("\r\x1b[K", stderr);
}

double ProgressMeter::consumed_s() const {
  return options_.consumed_s +
         std::chrono::duration<double>(std::chrono::steady_clock::now() - options_.start).count();
}

void ProgressMeter::task(const std::string& text, double done) {
  const std::lock_guard lock(mutex_);
  now_.task = text;
  now_.done = done;
  now_.best_us = now_.default_us = 0;
}
void ProgressMeter::phase(const std::string& text) {
  const std::lock_guard lock(mutex_);
  now_.phase = text;
}
void ProgressMeter::count(int64_t trials, int64_t failed, int64_t pruned) {
  const std::lock_guard lock(mutex_);
  now_.trials += trials;
  now_.failed += failed;
  now_.pruned += pruned;
}
void ProgressMeter::times(double best_ns, double default_ns) {
  const std::lock_guard lock(mutex_);
  now_.best_us = best_ns / 1000;
  now_.default_us = default_ns / 1000;
}

void ProgressMeter::outlook(double seconds) {
  const std::lock_guard lock(mutex_);
  ends_s_ = consumed_s() + seconds;
}

double ProgressMeter::told_left_s() const {
  return std::max(0.0, std::min(options_.budget_s, ends_s_) - consumed_s());
}

std::vector<double> ProgressMeter::told_errors() const {
  const std::lock_guard lock(mutex_);
  const double wall = consumed_s() - options_.consumed_s;
  std::vector<double> out;
  for (double third : {wall / 3, 2 * wall / 3}) {
    std::optional<double> told;
    for (const auto& [when, left] : told_)
      if (when <= third) told = left - (third - when);
    if (told) out.push_back(*told / (wall - third) - 1);
  }
  return out;
}

void ProgressMeter::note(const std::string& text) {
  if (!options_.show) return;
  const std::lock_guard lock(mutex_);
  std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\x1b[K" : "", text.c_str());
}

std::string ProgressMeter::line() const {
  std::string out = fmt::format("[{:3.0f}%] {} · {} · {} trials", now_.done * 100, now_.task,
                                now_.phase, now_.trials);
  if (now_.failed > 0)
    out += fmt::format(" ({} failed{})", now_.failed,
                       now_.pruned > 0 ? fmt::format(", {} of them pruned", now_.pruned) : "");
  if (now_.best_us > 0)
    out += fmt::format(" · best {:.1f} us, default {:.1f} us", now_.best_us, now_.default_us);
  return out + fmt::format(" · {}{} left", std::isfinite(ends_s_) ? "" : "at most ",
                           duration_text(told_left_s()));
}

void ProgressMeter::run() {
  std::unique_ptr<db::Store> store;
  double recorded = 0, drawn = consumed_s();
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool last = stop_;
    const double now = consumed_s();
    if (std::isfinite(ends_s_)) told_.emplace_back(now - options_.consumed_s, told_left_s());
    if (!options_.campaign.empty() && (last || now - recorded >= kRecordEvery)) {
      recorded = now;
      lock.unlock();
      try {
        if (!store) store = db::Store::open(options_.database);
        store->record_consumed(options_.campaign, now);
      } catch (const Error& e) {
        // The campaign's own thread meets the same trouble at its next write and reports it.
        store.reset();
      }
      lock.lock();
    }
    if (options_.show && !now_.task.empty()) {
      if (terminal_) {
        std::string text = line();
        const size_t width = terminal_width();
        if (text.size() > width) text.resize(width - 1);
        std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
        std::fflush(stderr);
      } else if (now - drawn >= kLineEvery) {
        drawn = now;
        std::fprintf(stderr, "%s\n", line().c_str());
      }
    }
    if (last) return;
    wake_.wait_for(lock, kDraw, [this] { return stop_; });
  }
}

}  // namespace nimble::tuner
