// What is wrong or means harm: places that hold no database, a database that goes or breaks while
// it is open, servers that say nothing, texts that are not what they seem. Each is told, and
// nothing waits for it.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <atomic>
#include <thread>

#include "db/store/test/all.h"
#include "gui/view/table_pane.h"
#include "gui/view/test/loop_program.h"
#include "gui/view/test/window_fixture.h"

using namespace nimble::gui;
namespace db = nimble::db;

namespace {

// Takes connections on this machine and answers none; `hangs_up`: ends them at once.
class MuteServer {
 public:
  explicit MuteServer(bool hangs_up) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (socket_ < 0 || ::bind(socket_, reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        ::listen(socket_, 8) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size) != 0)
      qFatal("no socket");
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this, hangs_up] {
      std::vector<int> open;
      for (;;) {
        const int client = ::accept(socket_, nullptr, nullptr);
        if (client < 0 || ending_) {
          if (client >= 0) ::close(client);
          break;
        }
        ++calls_;
        if (hangs_up)
          ::close(client);
        else
          open.push_back(client);
      }
      for (const int client : open) ::close(client);
    });
  }
  ~MuteServer() {
    ending_ = true;
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  std::string url() const {
    return "postgresql://me@127.0.0.1:" + std::to_string(port_) +
           "/tuning?connect_timeout=2&sslmode=disable";
  }
  int calls() const { return calls_; }

 private:
  int socket_, port_ = 0;
  std::atomic<bool> ending_{false};
  std::atomic<int> calls_{0};
  std::thread thread_;
};

}  // namespace

class HostileWindowTest : public QObject {
  Q_OBJECT
  WindowFixture at_;

  static constexpr const char* kLists[] = {"workloads", "campaigns", "coverage", "machines"};

  QString write(const char* name, const QByteArray& bytes) const {
    QFile file(folder_->filePath(QLatin1String(name)));
    if (!file.open(QIODevice::WriteOnly)) qFatal("cannot write");
    file.write(bytes);
    return file.fileName();
  }
  std::unique_ptr<QTemporaryDir> folder_;

 private slots:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    at_.open();
  }
  void cleanup() { at_.close(); }

  void a_place_that_is_no_database_is_named_in_every_list_data() {
    QTest::addColumn<QString>("kind");
    for (const char* kind : {"folder", "text", "empty", "cut", "zeros", "newer"})
      QTest::newRow(kind) << kind;
  }
  void a_place_that_is_no_database_is_named_in_every_list() {
    QFETCH(QString, kind);
    QString place = folder_->path();
    if (kind == QLatin1String("text")) place = write("notes.txt", "no database, and no secret\n");
    if (kind == QLatin1String("empty")) place = write("empty.db", "");
    if (kind == QLatin1String("zeros")) place = write("zeros.db", QByteArray(100'000, '\0'));
    QFile from(at_.campaign->path());
    QVERIFY(from.open(QIODevice::ReadOnly));
    QByteArray bytes = from.readAll();
    if (kind == QLatin1String("cut")) place = write("cut.db", bytes.left(bytes.size() / 3));
    if (kind == QLatin1String("newer")) {
      bytes[63] = 99;  // user_version, in the file's head: the schema
      place = write("newer.db", bytes);
    }
    const bool newer = kind == QLatin1String("newer");
    at_.window->open({place.toStdString(), true});
    at_.wait();
    for (const char* name : kLists) {
      const View* list = at_.show(name);
      // A file of which a part is there may have a list that is whole.
      if (kind == QLatin1String("cut") && list->message().isEmpty()) continue;
      QVERIFY2(list->message().contains(place), qPrintable(kind + ": " + list->message()));
      if (newer)
        QVERIFY2(list->message().contains(QStringLiteral("newer")), qPrintable(list->message()));
    }
    at_.window->open({at_.campaign->place()});
    at_.wait();
    QVERIFY(at_.show("workloads")->message().isEmpty());
  }

  void a_database_that_breaks_while_it_is_open_is_told_and_read_again_once_it_is_whole() {
    at_.select_workload("softmax", 1);
    View* list = at_.show("workloads");
    QVERIFY(list->message().isEmpty());
    const QString away = at_.campaign->path() + QStringLiteral(".away");
    for (const char* end : {"", "-wal", "-shm"}) QFile::remove(away + QLatin1String(end));
    QVERIFY(QFile::rename(at_.campaign->path(), away));
    at_.window->open({at_.campaign->place(), true});
    at_.wait();
    QVERIFY2(list->message().contains(at_.campaign->path()), qPrintable(list->message()));
    QVERIFY(QFile::rename(away, at_.campaign->path()));
    at_.context().session.refresh();
    at_.wait();
    QVERIFY2(list->message().isEmpty(), qPrintable(list->message()));
    QCOMPARE(list->table().rows.size(), size_t{3});
  }

  void a_server_that_hangs_up_is_told() {
    MuteServer server(true);
    at_.window->open({server.url()});
    at_.wait();
    QVERIFY(server.calls() > 0);
    for (const char* name : kLists) {
      const QString message = at_.show(name)->message();
      QVERIFY2(message.contains(QStringLiteral("127.0.0.1")), qPrintable(message));
      QVERIFY2(message.contains(QStringLiteral("check the server")), qPrintable(message));
    }
  }

  void a_server_that_says_nothing_holds_up_nobody() {
    auto server = std::make_unique<MuteServer>(false);
    at_.window->open({server->url()});
    QTRY_VERIFY(server->calls() > 0);
    // Another database is there at once, whatever the server does.
    at_.window->open({at_.campaign->place()});
    const View* list = at_.window->findChild<View*>(QStringLiteral("workloads"));
    QVERIFY(list);
    server.reset();
    at_.wait();
    QVERIFY2(list->message().isEmpty(), qPrintable(list->message()));
    QCOMPARE(list->table().rows.size(), size_t{3});
  }

  void a_model_file_that_is_damaged_is_refused() {
    const QString whole = folder_->filePath(QStringLiteral("loop.nimble"));
    write_loop_program(whole.toStdString());
    QFile file(whole);
    QVERIFY(file.open(QIODevice::ReadOnly));
    const QByteArray bytes = file.readAll();
    QByteArray flipped = bytes;
    flipped[bytes.size() / 2] = static_cast<char>(~flipped[bytes.size() / 2]);
    View* view = at_.show("run");
    auto* name = view->findChild<QLineEdit*>(QStringLiteral("file"));
    for (const QString& damaged :
         {write("cut.nimble", bytes.left(bytes.size() - 7)), write("flipped.nimble", flipped),
          write("none.nimble", ""), folder_->path()}) {
      name->setText(damaged);
      name->setFocus();
      QTest::keyClick(name, Qt::Key_Return);
      at_.wait();
      auto* run = view->findChild<QPushButton*>(QStringLiteral("run"));
      QTRY_VERIFY(run->isEnabled());
      QTest::mouseClick(run, Qt::LeftButton);
      at_.wait();
      QVERIFY2(!view->message().isEmpty(), qPrintable(damaged));
      QVERIFY(view->table().rows.empty());
    }
  }

  void texts_that_are_not_what_they_seem_are_shown_as_plain_short_text() {
    const std::string evil = "<img src='file:///etc/passwd'><b>\u202ekcab\u2066\x1b[2J\n\u200f";
    const std::string large = evil + std::string(10'000'000, 'W');
    {
      const auto s = db::Store::open(at_.campaign->place());
      const auto campaign = db::all_campaigns(*s).front().uuid;
      db::Machine machine;
      machine.hostname = large;
      machine.hardware = db::key_of(s->hardware().front());
      db::Worker worker;
      worker.machine = s->put(machine);
      worker.name = large;
      worker.version = evil;
      db::Heartbeat beat;
      beat.worker = s->add(worker);
      beat.message = large;
      s->heartbeat(beat);
      const db::DispatchTable t = db::all_tables(*s).front();
      s->add(db::NewOverride{t.workload, t.hardware, {}, t.entries[0].config, large});
      db::ClaimRequest claim;
      claim.campaign = campaign;
      claim.owner = "test";
      claim.limit = 1;
      for (const db::Trial& trial : s->claim(claim)) {
        db::TrialResult result;
        result.trial = trial.uuid;
        result.owner = "test";
        result.state = db::TrialState::kCrashed;
        result.error_class = evil;
        QVERIFY(s->finish(result));
        db::FailureLog log;
        log.trial = trial.uuid;
        log.attempt = 1;
        log.error_class = evil;
        log.message = log.output = log.command = large;
        s->add(log);
      }
    }
    at_.context().session.refresh();
    at_.select_workload("matmul", 2);
    bool seen = false;
    for (const ViewInfo& info : views()) {
      View* view = at_.show(info.name);
      for (const QAbstractItemView* rows : view->findChildren<QAbstractItemView*>()) {
        if (!rows->model()) continue;
        for (int r = 0; r < std::min(rows->model()->rowCount(), 50); ++r)
          for (int c = 0; c < rows->model()->columnCount(); ++c) {
            const QModelIndex index = rows->model()->index(r, c);
            const QString text = index.data().toString();
            seen |= text.contains(QStringLiteral("<img"));
            QVERIFY2(text.size() < 20'000, info.name);
            for (const QChar ch : text)
              QVERIFY2(ch != QChar(0x202E) && ch != QChar(0x2066) && ch != QChar(0x1b), info.name);
            // A tool tip that looks like HTML would be taken for it.
            QVERIFY2(!index.data(Qt::ToolTipRole).toString().contains(QStringLiteral("<img")),
                     info.name);
          }
      }
      for (const QLabel* label : view->findChildren<QLabel*>())
        QVERIFY2(label->text().size() < 20'000, info.name);
    }
    QVERIFY(seen);
  }
};
NIMBLE_QTEST(HostileWindowTest)
#include "hostile_window_test.moc"
