// Runs an executable file in a process of its own (nimble run --profile --trace), or has one of its
// kernels explained (nimble explain), so that nothing that the file does reaches this program.
//
// The file is copied into a private folder first and its digest taken of the copy, which is what
// runs: nobody can exchange it in between. Its native code runs only if the user trusts that
// digest; else kernels run in their checked form, within limits of memory and instructions.
#pragma once

#include <QObject>
#include <QProcess>
#include <QSet>
#include <QTemporaryDir>
#include <memory>
#include <optional>

#include "gui/model/cancel.h"
#include "gui/model/explained.h"
#include "gui/model/run_profile.h"
#include "gui/model/run_trace.h"

namespace nimble::gui {

struct RunRequest {
  QString file;
  QStringList inputs;     // NAME=random:2x16, as of nimble run
  QSet<QString> trusted;  // digests
  int threads = 0;        // 0: all
  QString explain = {};   // a kernel: tells what decided it instead of a profile
};

struct RunResult {
  std::optional<RunProfile> profile;
  std::shared_ptr<const RunTrace> trace;   // also of a run that failed, if it left one
  std::vector<ExplainedKernel> explained;  // a row for each shape at which the kernel ran
  QString digest;       // BLAKE2b-256 of what ran, in hex; empty: it could not be read
  bool native = false;  // whether its native code ran
  QString error;        // where there is neither
  QString trace_error;  // where there is no trace
};

class ModelRun : public QObject {
  Q_OBJECT
 public:
  // `program`: nimble-run, by default the one beside this program; nimble-explain is beside it.
  explicit ModelRun(QObject* parent = nullptr, QString program = default_program());
  ~ModelRun() override;  // ends what runs

  static QString default_program();
  static constexpr qint64 kMostOutput = 64 << 20;  // bytes that the process may print

  // Instructions of a run that are kept in their order: as many as a time line is drawn of at ease.
  static constexpr int kTraceLimit = 50'000;

  // Ends a run that is under way, without a word from it, and begins this one.
  void start(const RunRequest& request);
  // Only takes the digest: finished() tells it without profile or error.
  void look(const QString& file);
  void cancel();
  bool busy() const { return busy_; }

 signals:
  void finished(const nimble::gui::RunResult& result);

 private:
  void copy(const QString& file, bool then_run);
  void copied(int64_t generation, const QString& digest, const QString& error, bool then_run);
  void run();
  void ended();
  QString trace_file() const;
  void read_trace(const QString& error);
  void finish(const QString& error);
  void end_process();

  QString program_;
  RunRequest request_;
  RunResult result_;
  std::shared_ptr<QTemporaryDir> folder_;
  std::optional<Cancel> reading_;  // a file, in a worker
  QProcess* process_ = nullptr;
  int64_t generation_ = 0;  // counts beginnings and ends, so that an old copy is told apart
  bool busy_ = false;
};

}  // namespace nimble::gui
