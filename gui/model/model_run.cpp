#include "gui/model/model_run.h"

#include <QCoreApplication>
#include <QCryptographicHash>
#include <QFile>
#include <QFileInfo>
#include <QPointer>
#include <QThreadPool>

#include "gui/model/units.h"

namespace nimble::gui {
namespace {

constexpr qint64 kChunk = 4 << 20;
// Of a file that nobody trusts: far more than a model's checked run needs, and an end.
constexpr const char* kFuel = "20000000000";
constexpr const char* kMemory = "4GiB";

// Copies and returns the digest. Throws Error: kIo, kCancelled.
QString copy_file(const QString& from, const QString& to, const Cancel& cancel) {
  QFile in(from), out(to);
  const auto fail = [&](const QFile& file, const char* what) {
    throw Error(Status::kIo, file.fileName().toStdString(),
                std::string(what) + ": " + file.errorString().toStdString(),
                "choose a file that can be read, and see that the disk has room");
  };
  if (!in.open(QIODevice::ReadOnly)) fail(in, "cannot be read");
  if (!to.isEmpty() && !out.open(QIODevice::WriteOnly)) fail(out, "cannot be written");
  QCryptographicHash hash(QCryptographicHash::Blake2b_256);
  for (QByteArray chunk = in.read(kChunk); !chunk.isEmpty(); chunk = in.read(kChunk)) {
    cancel.check();
    hash.addData(chunk);
    if (!to.isEmpty() && out.write(chunk) != chunk.size()) fail(out, "cannot be written");
  }
  if (in.error() != QFileDevice::NoError) fail(in, "cannot be read");
  if (!to.isEmpty() && !out.flush()) fail(out, "cannot be written");
  return QString::fromLatin1(hash.result().toHex());
}

}  // namespace

ModelRun::ModelRun(QObject* parent, QString program)
    : QObject(parent), program_(std::move(program)) {}

ModelRun::~ModelRun() {
  if (reading_) reading_->ask();
  end_process();
}

QString ModelRun::default_program() {
  return QCoreApplication::applicationDirPath() + QStringLiteral("/nimble-run");
}

void ModelRun::end_process() {
  if (!process_) return;
  process_->disconnect(this);
  process_->kill();
  process_->waitForFinished(5000);
  process_->deleteLater();
  process_ = nullptr;
}

void ModelRun::cancel() {
  if (!busy_) return;
  ++generation_;
  if (reading_) reading_->ask();
  end_process();
  finish(tr("The run was ended."));
}

void ModelRun::start(const RunRequest& request) {
  request_ = request;
  copy(request.file, true);
}

void ModelRun::look(const QString& file) {
  request_ = {};
  copy(file, false);
}

void ModelRun::copy(const QString& file, bool then_run) {
  if (reading_) reading_->ask();
  end_process();
  result_ = {};
  busy_ = true;
  const Cancel cancel;
  reading_ = cancel;
  auto folder = then_run ? std::make_shared<QTemporaryDir>() : nullptr;
  folder_ = folder;
  const QString to = folder ? folder->filePath(QStringLiteral("model.nimble")) : QString();
  const QPointer<ModelRun> self(this);
  QThreadPool::globalInstance()->start(
      [self, file, to, cancel, folder, then_run, generation = ++generation_] {
        QString digest, error;
        try {
          digest = copy_file(file, to, cancel);
        } catch (const std::exception& e) {
          error = plain_text(e.what(), 1000);
        }
        // In the thread of the application, which alone knows whether we are still there.
        QMetaObject::invokeMethod(
            QCoreApplication::instance(),
            [=] {
              if (self) self->copied(generation, digest, error, then_run);
            },
            Qt::QueuedConnection);
      });
}

void ModelRun::copied(int64_t generation, const QString& digest, const QString& error,
                      bool then_run) {
  if (generation != generation_) return;
  reading_.reset();
  result_.digest = digest;
  if (!error.isEmpty() || !then_run) return finish(error);
  result_.native = request_.trusted.contains(digest);
  run();
}

QString ModelRun::trace_file() const {
  return folder_->filePath(QStringLiteral("trace.json"));
}

void ModelRun::run() {
  const bool explain = !request_.explain.isEmpty();
  const QString program =
      explain ? QFileInfo(program_).dir().filePath(QStringLiteral("nimble-explain")) : program_;
  QStringList arguments{folder_->filePath(QStringLiteral("model.nimble")),
                        QStringLiteral("--format"), QStringLiteral("json")};
  if (explain)
    arguments << QStringLiteral("--kernel") << request_.explain;
  else
    arguments << QStringLiteral("--profile") << QStringLiteral("--trace") << trace_file()
              << QStringLiteral("--trace-limit") << QString::number(kTraceLimit);
  for (const QString& input : request_.inputs) arguments << QStringLiteral("-i") << input;
  if (request_.threads > 0)
    arguments << QStringLiteral("--threads") << QString::number(request_.threads);
  if (!result_.native)
    arguments << QStringLiteral("--no-native") << QStringLiteral("--fuel") << QLatin1String(kFuel)
              << QStringLiteral("--memory-limit") << QLatin1String(kMemory);
  process_ = new QProcess(this);
  // The process is given nothing of ours: no name of a database, no password.
  QProcessEnvironment bare;
  for (const char* name : {"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH"})
    if (qEnvironmentVariableIsSet(name))
      bare.insert(QLatin1String(name), qEnvironmentVariable(name));
  process_->setProcessEnvironment(bare);
  process_->setStandardInputFile(QProcess::nullDevice());
  connect(process_, &QProcess::finished, this, &ModelRun::ended);
  connect(process_, &QProcess::errorOccurred, this, [this, program](QProcess::ProcessError error) {
    if (error != QProcess::FailedToStart) return;  // finished() follows
    finish(
        tr("%1 cannot be started: %2; install nimble whole").arg(program, process_->errorString()));
  });
  connect(process_, &QProcess::readyReadStandardOutput, this, [this] {
    if (process_->bytesAvailable() <= kMostOutput) return;
    end_process();
    finish(tr("The run printed more than 64 MiB, which is no profile."));
  });
  process_->start(program, arguments);
}

void ModelRun::ended() {
  const QByteArray out = process_->readAllStandardOutput();
  const QString said = plain_text(process_->readAllStandardError().toStdString(), 2000).trimmed();
  const bool crashed = process_->exitStatus() != QProcess::NormalExit;
  const int code = process_->exitCode();
  if (crashed) return finish(tr("The run crashed. %1").arg(said));
  const QString failed = said.isEmpty() ? tr("The run ended with code %1.").arg(code) : said;
  if (!request_.explain.isEmpty()) {
    if (code != 0) return finish(failed);
    try {
      result_.explained = explained_from_json(out.toStdString());
      return finish({});
    } catch (const Error& e) {
      return finish(plain_text(e.what(), 1000));
    }
  }
  if (code != 0) return read_trace(failed);
  try {
    result_.profile = profile_from_json(out.toStdString());
    read_trace({});
  } catch (const Error& e) {
    finish(plain_text(e.what(), 1000));
  }
}

// Reads what the run wrote and finishes with `error`.
void ModelRun::read_trace(const QString& error) {
  process_->deleteLater();
  process_ = nullptr;
  const Cancel cancel;
  reading_ = cancel;
  const QPointer<ModelRun> self(this);
  QThreadPool::globalInstance()->start(
      [self, error, cancel, folder = folder_, path = trace_file(), generation = ++generation_] {
        std::shared_ptr<const RunTrace> trace;
        QString trace_error;
        QFile file(path);
        if (!file.open(QIODevice::ReadOnly)) {
          trace_error = tr("the run left no trace");
        } else {
          try {
            // A byte more than may be there, so that the reader sees that it is too much.
            const QByteArray text = file.read(static_cast<qint64>(kMostTraceBytes) + 1);
            trace = std::make_shared<const RunTrace>(trace_from_json(text.toStdString(), cancel));
          } catch (const std::exception& e) {
            trace_error = plain_text(e.what(), 1000);
          }
        }
        QMetaObject::invokeMethod(
            QCoreApplication::instance(),
            [=] {
              if (!self || generation != self->generation_) return;
              self->reading_.reset();
              self->result_.trace = trace;
              self->result_.trace_error = trace_error;
              self->finish(error);
            },
            Qt::QueuedConnection);
      });
}

void ModelRun::finish(const QString& error) {
  if (process_) process_->deleteLater();
  process_ = nullptr;
  folder_.reset();
  busy_ = false;
  result_.error = error;
  emit finished(result_);
}

}  // namespace nimble::gui
