#include "gui/model/session.h"

#include <QTimer>
#include <algorithm>

#include "db/store/open_existing.h"
#include "db/store/place.h"
#include "gui/model/units.h"

namespace nimble::gui {
namespace {

// A connection each; two, so that a long question does not hold up a short one.
constexpr int kWorkers = 2;

QString problem_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& e) {
    return e.status() == Status::kCancelled ? QStringLiteral("cancelled")
                                            : plain_text(e.what(), 1000);
  } catch (const std::bad_alloc&) {
    return QStringLiteral("not enough memory; close other windows or programs");
  } catch (const std::exception& e) {
    return plain_text(e.what(), 1000);
  }
}

}  // namespace

Session::Session(QObject* parent, OpenReader open) : QObject(parent), open_(std::move(open)) {
  workers_.setMaxThreadCount(kWorkers);
  writer_.setMaxThreadCount(1);
}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    for (const Cancel& c : running_) c.ask();
  }
  workers_.clear();
  workers_.waitForDone();
  writer_.waitForDone();
}

void Session::open(const DatabasePlace& place) {
  {
    const std::lock_guard lock(mutex_);
    for (const Cancel& c : running_) c.ask();
    idle_.clear();
    readers_generation_ = ++generation_;
  }
  place_ = place;
  look_.drop();
  seen_version_.clear();
  emit opened();
  emit changed();
}

std::unique_ptr<Reader> Session::take_reader(const DatabasePlace& place) {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Reader> reader = std::move(idle_.back());
      idle_.pop_back();
      return reader;
    }
  }
  return open_(place);
}

void Session::start(const Cancel& cancel, QObject* receiver, std::function<void(Reader&)> work,
                    std::function<void(QString)> told) {
  ++busy_;
  emit busy_changed(busy_);
  {
    const std::lock_guard lock(mutex_);
    running_.push_back(cancel);
  }
  const QPointer<QObject> to(receiver);
  workers_.start([this, cancel, to, had = receiver != nullptr, place = place_,
                  generation = generation_, work = std::move(work), told = std::move(told)] {
    QString error = problem_of([&] {
      cancel.check();
      if (place.place.empty())
        throw Error(Status::kInvalidArgument, "database", "none is open", "open one");
      std::unique_ptr<Reader> reader = take_reader(place);
      cancel.set_stop(reader->stopper());
      cancel.check();  // asked before there was anything to stop
      try {
        work(*reader);
      } catch (...) {
        cancel.set_stop({});
        throw;
      }
      cancel.set_stop({});
      // After an error it may be in any state: the next question opens another.
      const std::lock_guard lock(mutex_);
      if (generation == readers_generation_ && idle_.size() < kWorkers)
        idle_.push_back(std::move(reader));
    });
    QMetaObject::invokeMethod(
        this, [=, this] { finish(cancel, to, had, told, error); }, Qt::QueuedConnection);
  });
}

void Session::finish(const Cancel& cancel, const QPointer<QObject>& receiver, bool had_receiver,
                     const std::function<void(QString)>& told, const QString& error) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(running_, [&](const Cancel& c) { return c.same_as(cancel); });
  }
  --busy_;
  if (!cancel.asked() && (receiver || !had_receiver)) told(error);
  emit busy_changed(busy_);
}

void Session::write(QObject* receiver, std::function<QString(db::Store&)> work,
                    std::function<void(Answer<QString>)> told) {
  ++busy_;
  emit busy_changed(busy_);
  const QPointer<QObject> to(receiver);
  writer_.start([this, to, place = place_, work = std::move(work), told = std::move(told)] {
    Answer<QString> answer;
    answer.error = problem_of([&] {
      if (place.place.empty())
        throw Error(Status::kInvalidArgument, "database", "none is open", "open one");
      if (place.read_only)
        throw Error(Status::kInvalidArgument, db::printable_place(place.place),
                    "is open for reading alone", "open it without \"read only\"");
      answer.value.emplace(work(*db::open_to_write(place.place)));
    });
    QMetaObject::invokeMethod(
        this,
        [=, this] {
          --busy_;
          if (to) told(answer);
          if (answer.value) emit changed();
          emit busy_changed(busy_);
        },
        Qt::QueuedConnection);
  });
}

void Session::watch(int ms) {
  if (!timer_) {
    timer_ = new QTimer(this);
    connect(timer_, &QTimer::timeout, this, &Session::look);
  }
  if (ms > 0)
    timer_->start(ms);
  else
    timer_->stop();
}

void Session::look() {
  if (!is_open() || busy_ > 0) return;
  look_ = ask<std::string>(
      this, [](Reader& reader, const Cancel& cancel) { return reader.version(cancel); },
      [this](const Answer<std::string>& answer) {
        if (!answer.value) return;  // windows tell errors when they ask
        const bool first = seen_version_.empty();
        if (std::exchange(seen_version_, *answer.value) != *answer.value && !first) emit changed();
      });
}

}  // namespace nimble::gui
