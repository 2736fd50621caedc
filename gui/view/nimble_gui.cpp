// nimble gui: looks at a tuning database on the desktop, or writes one of its windows to a file.
#include <QApplication>
#include <QSettings>
#include <charconv>
#include <cstdlib>

#include "db/store/place.h"
#include "gui/view/headless.h"
#include "gui/view/main_window.h"
#include "gui/view/theme.h"
#include "vm/arguments/command_line.h"

namespace nimble::gui {
namespace {

constexpr char kEpilogue[] =
    "Examples:\n"
    "  nimble gui --db tuning.db\n"
    "  nimble gui --db postgresql://me@server/tuning --read-only\n"
    "  nimble gui --export heatmap --db tuning.db --workload 6441 --output heatmap.svg\n"
    "  nimble gui --export workloads --db tuning.db --output workloads.csv\n\n"
    "Windows by keys: F1 in the program lists them. --export needs no display.\n"
    "The database can also be named by the environment variable NIMBLE_DB.";

// "1200x800", each side from 200 to 10,000.
QSize size_from(const std::string& text) {
  const auto bad = [&](const std::string& problem) {
    throw Error(Status::kInvalidArgument, "--size", fmt::format("\"{}\" {}", text, problem),
                "write WIDTHxHEIGHT, for example 1200x800");
  };
  const size_t x = text.find('x');
  if (x == std::string::npos) bad("has no x");
  const auto side = [&](std::string_view digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 200 ||
        value > 10'000)
      bad(fmt::format("has a side of \"{}\", not of 200 to 10000 pixels", digits));
    return value;
  };
  return {side(std::string_view(text).substr(0, x)), side(std::string_view(text).substr(x + 1))};
}

// Without a display Qt's remarks (of a plugin that places no windows, of folders that a desktop
// would have) are about nothing that concerns the user.
void only_grave(QtMsgType type, const QMessageLogContext&, const QString& text) {
  if (type == QtCriticalMsg || type == QtFatalMsg)
    std::fprintf(stderr, "nimble gui: %s\n", qPrintable(text));
}

std::string list_of_views() {
  std::string text;
  for (const ViewInfo& v : views()) text += fmt::format("\n  {:<12} {}", v.name, v.sentence);
  return text;
}

int run(int argc, char** argv) {
  CLI::App app{"Looks at tuning databases on the desktop: campaigns, kernels, dispatch tables.",
               "nimble gui"};
  app.footer(kEpilogue);
  ExportRequest request;
  std::string size = "1200x800", theme;
  bool list = false;
  CLI::Option* db = app.add_option("--db", request.place.place, "The database, a file or a URL")
                        ->check(read_by(db::require_place))
                        ->envname("NIMBLE_DB")
                        ->type_name("FILE|URL");
  app.add_flag("--read-only", request.place.read_only, "Change nothing in it");
  app.add_option("--theme", theme, "Colours: system, light or dark (default: as kept)")
      ->check(CLI::IsMember({"system", "light", "dark"}).description(""))
      ->type_name("THEME");
  app.add_flag("--list", list, "List the windows and end");
  CLI::Option* to_export =
      app.add_option("--export", request.view, "Write this window to --output and end")
          ->check(read_by(view_named))
          ->type_name("VIEW")
          ->needs(db);
  CLI::Option* output = app.add_option("--output", request.output,
                                       "The file; its ending .csv, .json, .png or .svg decides")
                            ->check(read_by([](const std::string& file) {
                              require_export_format(QString::fromStdString(file));
                            }))
                            ->type_name("FILE")
                            ->needs(to_export);
  to_export->needs(output);
  app.add_option("--workload", request.choice.workload,
                 "Of this workload: beginning of its hash, or a part of its text");
  app.add_option("--hardware", request.choice.hardware,
                 "On this hardware: beginning of its hash, or a part of its name");
  app.add_option("--campaign", request.choice.campaign, "Of this campaign (beginning of its UUID)");
  app.add_option("--shape", request.choice.shape, "With this shape selected: m=64,n=128");
  app.add_option("--config", request.choice.config,
                 "With this configuration selected (beginning of its hash)");
  app.add_option("--table", request.choice.table,
                 "With this dispatch table (beginning of its UUID)");
  app.add_option("--size", size, "Size of a picture in pixels")
      ->capture_default_str()
      ->check(read_by(&size_from))
      ->type_name("WIDTHxHEIGHT");
  app.add_option("--scale", request.picture.scale, "Pixels of a PNG per pixel of --size")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 4.0).description(""));
  if (const auto code = parse_arguments(app, argc, argv, {kExitStale})) return *code;
  if (list) {
    fmt::print("windows:{}\n", list_of_views());
    return kExitOk;
  }
  const bool headless = !request.view.empty();
  if (headless) {
    if (!std::getenv("QT_QPA_PLATFORM")) ::setenv("QT_QPA_PLATFORM", "offscreen", 1);
    qInstallMessageHandler(&only_grave);
  }
  if (!headless && !std::getenv("DISPLAY") && !std::getenv("WAYLAND_DISPLAY") &&
      !std::getenv("QT_QPA_PLATFORM"))
    throw Error(Status::kUnsupported, "nimble gui", "there is no display",
                "run it on a desktop, or write a window to a file: --export VIEW --output FILE");
  QCoreApplication::setOrganizationName(QStringLiteral("nimble"));
  QCoreApplication::setApplicationName(QStringLiteral("gui"));
  QCoreApplication::setApplicationVersion(QStringLiteral(NIMBLE_VERSION));
  int one = 1;  // Qt's own options are the environment's (QT_QPA_PLATFORM, QT_SCALE_FACTOR, …)
  QApplication qt(one, argv);
  QApplication::setStyle(QStringLiteral("Fusion"));
  request.picture.size = size_from(size);
  if (headless) {
    set_theme(theme.empty() ? Theme::kLight : theme_from_name(QString::fromStdString(theme)));
    run_export(request);
    return kExitOk;
  }
  if (!theme.empty()) QSettings().setValue(QStringLiteral("theme"), QString::fromStdString(theme));
  MainWindow window;
  window.show();
  if (!request.place.place.empty()) window.open(request.place);
  return QApplication::exec();
}

}  // namespace
}  // namespace nimble::gui

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble gui", [&] { return nimble::gui::run(argc, argv); });
}
