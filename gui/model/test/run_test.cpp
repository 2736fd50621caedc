// Executable files in a process of their own: trust, limits, environment, ends.
#include "gui/model/model_run.h"
#include "gui/model/test/qtest.h"

using namespace nimble::gui;
namespace db = nimble::db;

class RunTest : public QObject {
  Q_OBJECT
  std::unique_ptr<QTemporaryDir> folder_;

  QString write(const QString& name, const QByteArray& bytes, bool program = false) const {
    QFile file(folder_->filePath(name));
    if (!file.open(QIODevice::WriteOnly)) qFatal("cannot write");
    file.write(bytes);
    if (program) file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    return file.fileName();
  }
  // A nimble-run that writes its arguments and environment, does `more`, and prints a profile.
  QString program(const QByteArray& more = {}) const {
    return write("nimble-run",
                 "#!/bin/sh\necho \"$@\" > '" + folder_->filePath("arguments").toUtf8() +
                     "'\nenv > '" + folder_->filePath("environment").toUtf8() +
                     "'\ncat \"$1\" > '" + folder_->filePath("ran").toUtf8() + "'\n" + more +
                     "\necho '{\"instructions\":[],\"kernels\":[],\"kernel_ns\":1,"
                     "\"overhead_ns\":1,\"wall_ns\":2}'\n",
                 true);
  }
  QByteArray read(const QString& name) const {
    QFile file(folder_->filePath(name));
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
  }
  static RunResult wait(ModelRun& run) {
    std::optional<RunResult> result;
    const auto at = connect(&run, &ModelRun::finished, [&](const RunResult& r) { result = r; });
    [&] { QTRY_VERIFY_WITH_TIMEOUT(result.has_value(), 60'000); }();
    disconnect(at);
    return result.value_or(RunResult{});
  }

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void native_code_runs_only_of_a_digest_that_is_trusted() {
    ModelRun run(nullptr, program());
    const QString file = write("a.nimble", "one");
    run.start({file, {"x=random:2x3"}, {}, 0});
    const RunResult first = wait(run);
    QVERIFY2(first.profile, qPrintable(first.error));
    QVERIFY(!first.native);
    QVERIFY(read("arguments").contains("--no-native"));
    QVERIFY(read("arguments").contains("--fuel"));
    QVERIFY(read("arguments").contains("--memory-limit"));
    QVERIFY(read("arguments").contains("-i x=random:2x3"));
    QCOMPARE(first.digest.size(), 64);

    run.start({file, {}, {first.digest}, 0});
    const RunResult second = wait(run);
    QVERIFY(second.native);
    QVERIFY(!read("arguments").contains("--no-native"));

    write("a.nimble", "two");  // another file of the same name is not trusted
    run.start({file, {}, {first.digest}, 0});
    const RunResult third = wait(run);
    QVERIFY(!third.native);
    QVERIFY(third.digest != first.digest);
    QCOMPARE(read("ran"), QByteArray("two"));
  }

  void what_runs_is_a_copy_that_nobody_can_exchange() {
    ModelRun run(nullptr, program());
    const QString file = write("a.nimble", "bytes");
    run.start({file, {}, {}, 0});
    QVERIFY(wait(run).profile);
    QVERIFY(!read("arguments").startsWith(file.toUtf8()));
    QCOMPARE(read("ran"), QByteArray("bytes"));
  }

  void the_process_gets_no_secret_of_the_environment() {
    qputenv("NIMBLE_DB", "postgresql://me:secret@server/tuning");
    qputenv("PGPASSWORD", "secret");
    ModelRun run(nullptr, program());
    run.start({write("a.nimble", "x"), {}, {}, 0});
    QVERIFY(wait(run).profile);
    qunsetenv("NIMBLE_DB");
    qunsetenv("PGPASSWORD");
    QVERIFY(read("environment").contains("PATH="));
    QVERIFY(!read("environment").contains("secret"));
  }

  void what_goes_wrong_is_told() {
    const QString file = write("a.nimble", "x");
    {
      ModelRun run(nullptr, program("echo 'x: input missing' >&2; exit 1"));
      run.start({file, {}, {}, 0});
      QCOMPARE(wait(run).error, QStringLiteral("x: input missing"));
    }
    {
      ModelRun run(nullptr, program("kill -9 $$"));
      run.start({file, {}, {}, 0});
      QVERIFY(wait(run).error.contains(QStringLiteral("crashed")));
    }
    {
      ModelRun run(nullptr, program("echo junk; exit 0"));
      run.start({file, {}, {}, 0});
      QVERIFY(wait(run).error.contains(QStringLiteral("no profile")));
    }
    {
      ModelRun run(nullptr, folder_->filePath("none"));
      run.start({file, {}, {}, 0});
      QVERIFY(wait(run).error.contains(QStringLiteral("cannot be started")));
    }
    {
      ModelRun run(nullptr, program());
      run.start({folder_->filePath("missing.nimble"), {}, {}, 0});
      QVERIFY(wait(run).error.contains(QStringLiteral("cannot be read")));
    }
  }

  void a_run_ends_when_it_is_told_to() {
    ModelRun run(nullptr, program("while :; do sleep 1; done"));
    run.start({write("a.nimble", "x"), {}, {}, 0});
    QTRY_VERIFY_WITH_TIMEOUT(!read("environment").isEmpty(), 60'000);
    QVERIFY(run.busy());
    QSignalSpy spy(&run, &ModelRun::finished);
    run.cancel();
    QVERIFY(!run.busy());
    QCOMPARE(spy.count(), 1);
    QVERIFY(spy[0][0].value<RunResult>().error.contains(QStringLiteral("ended")));
  }

  void a_kernel_is_explained_by_the_program_beside_it() {
    const QByteArray answer =
        R"([{"shape":"n=4","operators":"add","kernel":"k0","implementation":"k0_c1","config":"{}",)"
        R"("count":2,"path":["s0 <= 8"],"summary":"table 01234567 v3",)"
        R"("call":{"shape":{"s0":4,"b":2}},)"
        R"("evidence":{"table":"0123","version":3,"entries":[]},)"
        R"("entry":{"override":true,"id":"77","measurement":"m1","range":{"s0":[0,8]}}},)"
        R"({"shape":"n=9","operators":"add","kernel":"k0","implementation":"p","config":"",)"
        R"("count":1,"path":[],"summary":"","call":{"shape":{}},"evidence":null,"entry":7}])";
    write("nimble-explain",
          "#!/bin/sh\necho \"$@\" > '" + folder_->filePath("arguments").toUtf8() +
              "'\ncat <<'END'\n" + answer + "\nEND\n",
          true);
    ModelRun run(nullptr, program());
    const QString file = write("a.nimble", "x");
    run.start({file, {"x=random:2x3"}, {}, 0, QStringLiteral("k0")});
    const RunResult r = wait(run);
    QVERIFY2(r.error.isEmpty(), qPrintable(r.error));
    QCOMPARE(r.explained.size(), size_t{2});
    const ExplainedKernel& k = r.explained[0];
    QCOMPARE(db::text_of(k.symbols), std::string("b=2,s0=4"));
    QCOMPARE(k.table, std::string("0123"));
    QCOMPARE(k.version, 3);
    QCOMPARE(k.override_uuid, std::string("77"));
    QCOMPARE(k.measurement, std::string("m1"));
    QCOMPARE(k.range, std::string(R"({"s0":[0,8]})"));
    QVERIFY(r.explained[1].table.empty() && r.explained[1].symbols.empty());
    // As careful as with a run.
    const QByteArray arguments = read("arguments");
    for (const char* due : {"--kernel k0", "--no-native", "--fuel", "--memory-limit", "-i x="})
      QVERIFY2(arguments.contains(due), due);
    run.start({file, {}, {r.digest}, 0, QStringLiteral("k0")});
    wait(run);
    QVERIFY(!read("arguments").contains("--no-native"));
    write("nimble-explain", "#!/bin/sh\necho '[{}]'\n", true);
    run.start({file, {}, {}, 0, QStringLiteral("k0")});
    QVERIFY(wait(run).error.contains(QStringLiteral("no explanation")));
    write("nimble-explain", "#!/bin/sh\necho 'no such kernel' >&2; exit 1\n", true);
    run.start({file, {}, {}, 0, QStringLiteral("k0")});
    QCOMPARE(wait(run).error, QStringLiteral("no such kernel"));
  }

  void a_look_tells_the_digest_and_runs_nothing() {
    ModelRun run(nullptr, program());
    run.look(write("a.nimble", "x"));
    const RunResult r = wait(run);
    QCOMPARE(r.digest.size(), 64);
    QVERIFY(r.error.isEmpty());
    QVERIFY(read("arguments").isEmpty());
  }
};
NIMBLE_QTEST(RunTest)
#include "run_test.moc"
