// Tests with QTest: a class of slots a file, NIMBLE_QTEST(Class) below it, and the program of the
// folder runs the class that its first argument names (all without one).
#pragma once

#include <QDir>
#include <QFileInfo>
#include <QTemporaryDir>
#include <QtTest>
#include <functional>
#include <map>
#include <string>

#include "db/store/store.h"

namespace nimble::gui {

using MakeTest = std::function<QObject*()>;
std::map<std::string, MakeTest>& all_tests();
struct RegisterTest {
  RegisterTest(const char* name, MakeTest make) { all_tests()[name] = std::move(make); }
};
#define NIMBLE_QTEST(Class) \
  static const ::nimble::gui::RegisterTest register_##Class(#Class, [] { return new Class; });

// A copy of a real campaign's database (gui/test), which a test may write to: by default that of
// two campaigns without code; "code.nimbledb", a shorter one, has generated code.
class CampaignCopy {
 public:
  explicit CampaignCopy(const char* file = nullptr) {
    const QString campaign = qEnvironmentVariable("NIMBLE_GUI_CAMPAIGN");
    const QString from = file ? QFileInfo(campaign).dir().filePath(QLatin1String(file)) : campaign;
    if (!QFile::copy(from, path()))
      qFatal("no campaign at \"%s\": run the test by ctest", qPrintable(from));
    QFile::setPermissions(path(), QFile::ReadOwner | QFile::WriteOwner);
    db::Store::open(place());  // at the latest schema
  }
  QString path() const { return folder_.filePath(QStringLiteral("tuning.db")); }
  std::string place() const { return path().toStdString(); }

 private:
  QTemporaryDir folder_;
};

}  // namespace nimble::gui
