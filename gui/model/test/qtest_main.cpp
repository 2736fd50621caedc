#include "gui/model/test/qtest.h"

#ifdef QT_WIDGETS_LIB
#include <QApplication>
using Application = QApplication;
#else
#include <QGuiApplication>
using Application = QGuiApplication;
#endif

namespace nimble::gui {
std::map<std::string, MakeTest>& all_tests() {
  static std::map<std::string, MakeTest> all;
  return all;
}
}  // namespace nimble::gui

// The first argument may be a class; the rest is QTest's.
int main(int argc, char** argv) {
  QTemporaryDir settings;  // nobody's own
  qputenv("XDG_CONFIG_HOME", settings.path().toUtf8());
  qputenv("QT_SCALE_FACTOR_ROUNDING_POLICY", "PassThrough");
  QCoreApplication::setOrganizationName(QStringLiteral("nimble-test"));
  QCoreApplication::setApplicationName(QStringLiteral("gui"));
  Application app(argc, argv);
  const std::string only = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
  if (!only.empty()) {
    ++argv;
    --argc;
  }
  int failures = 0, run = 0;
  for (const auto& [name, make] : nimble::gui::all_tests()) {
    if (!only.empty() && name != only) continue;
    const std::unique_ptr<QObject> test(make());
    failures += QTest::qExec(test.get(), argc, argv);
    ++run;
  }
  if (run == 0) qFatal("there is no test \"%s\"", only.c_str());
  return failures != 0;
}
