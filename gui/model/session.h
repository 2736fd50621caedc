// A database that is open, and the worker threads that ask it. Windows never wait: they ask, and
// are told in their own thread; a question that nobody waits for is dropped or ended.
#pragma once

#include <QObject>
#include <QPointer>
#include <QThreadPool>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "db/store/store.h"
#include "gui/model/reader.h"

class QTimer;

namespace nimble::gui {

// A question in flight. Whoever asked keeps it; letting go of it (or asking anew into the same
// place) cancels it, and its answer is then never delivered.
class Question {
 public:
  Question() = default;
  explicit Question(const Cancel& cancel) : cancel_(std::make_unique<Cancel>(cancel)) {}
  Question(Question&&) noexcept = default;
  Question& operator=(Question&& other) noexcept {
    if (this == &other) return *this;
    drop();
    cancel_ = std::move(other.cancel_);
    return *this;
  }
  ~Question() { drop(); }
  void drop() {
    if (cancel_) cancel_->ask();
    cancel_.reset();
  }

 private:
  std::unique_ptr<Cancel> cancel_;  // a pointer, not an optional: GCC 12 warns of what is in one
};

template <typename T>
struct Answer {
  std::optional<T> value;
  QString error;  // where there is no value
};

class Session : public QObject {
  Q_OBJECT
 public:
  using OpenReader = std::function<std::unique_ptr<Reader>(const DatabasePlace&)>;
  // `open` is Reader::open but for tests.
  explicit Session(QObject* parent = nullptr, OpenReader open = &Reader::open);
  ~Session() override;  // waits for what runs

  // Drops all questions and turns to another database. Whether it can be opened, the first question
  // tells.
  void open(const DatabasePlace& place);
  void close() { open({}); }
  bool is_open() const { return !place_.place.empty(); }
  const DatabasePlace& place() const { return place_; }

  // Runs `work` in a worker and `told` in this object's thread, unless `receiver` is gone or the
  // Question was dropped by then.
  template <typename T>
  [[nodiscard]] Question ask(QObject* receiver, std::function<T(Reader&, const Cancel&)> work,
                             std::function<void(Answer<T>)> told) {
    auto answer = std::make_shared<Answer<T>>();
    Cancel cancel;
    start(
        cancel, receiver,
        [answer, work = std::move(work), cancel](Reader& reader) {
          answer->value.emplace(work(reader, cancel));
        },
        [answer, told = std::move(told)](const QString& error) {
          if (!error.isEmpty()) *answer = {std::nullopt, error};
          told(std::move(*answer));
        });
    return Question(cancel);
  }

  // Writes: runs `work` on a store open for writing, one at a time and in the order asked, and
  // never cancels it. Success makes every window look again.
  void write(QObject* receiver, std::function<QString(db::Store&)> work,
             std::function<void(Answer<QString>)> told);

  // How many questions and writes are under way.
  int busy() const { return busy_; }

  // Makes every window ask again.
  void refresh() { emit changed(); }
  // Looks every `ms` whether the database changed, 0: never.
  void watch(int ms);

 signals:
  void opened();   // another database, or none
  void changed();  // its content may have
  void busy_changed(int busy);

 private:
  void start(const Cancel& cancel, QObject* receiver, std::function<void(Reader&)> work,
             std::function<void(QString error)> told);
  void finish(const Cancel& cancel, const QPointer<QObject>& receiver, bool had_receiver,
              const std::function<void(QString)>& told, const QString& error);
  void look();
  std::unique_ptr<Reader> take_reader(const DatabasePlace& place);

  OpenReader open_;
  DatabasePlace place_;
  int64_t generation_ = 0;  // counts calls of open()
  int busy_ = 0;
  QThreadPool workers_, writer_;
  std::mutex mutex_;  // guards what follows
  int64_t readers_generation_ = 0;
  std::vector<std::unique_ptr<Reader>> idle_;
  std::vector<Cancel> running_;

  QTimer* timer_ = nullptr;
  Question look_;
  std::string seen_version_;
};

}  // namespace nimble::gui
