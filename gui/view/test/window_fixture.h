// The whole program's window on a copy of the real campaign's database.
#pragma once

#include <QSettings>

#include "db/store/test/all.h"
#include "gui/model/test/qtest.h"
#include "gui/view/headless.h"
#include "gui/view/main_window.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {

class WindowFixture {
 public:
  // Call it from init(), close() from cleanup().
  void open(const char* file = nullptr) {
    QSettings().clear();
    campaign = std::make_unique<CampaignCopy>(file);
    window = std::make_unique<MainWindow>();
    window->show();
    activate();
    window->open({campaign->place()});
    wait();
  }
  void close() { window.reset(); }

  Context& context() const { return window->context(); }
  Selection& selection() const { return context().selection; }
  void wait() const {
    settle(context().session, [&] {
      for (const View* v : window->findChildren<View*>())
        if (v->loading()) return true;
      return false;
    });
    // What was put away is gone: no search finds it.
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
    activate();
  }
  // No shortcut is heard by a window that is not active, and nothing in it has the focus.
  void activate() const {
    if (window->isActiveWindow()) return;
    window->activateWindow();
    QVERIFY(QTest::qWaitForWindowActive(window.get()));
  }
  View* show(const char* name) const {
    View* view = window->show_view(name);
    wait();
    return view;
  }
  PlotView* show_plot(const char* name) const { return qobject_cast<PlotView*>(show(name)); }
  // The workload of that operator with so many symbols.
  db::Hash workload(const std::string& op, std::ptrdiff_t symbols) const {
    const auto store = db::Store::open(campaign->place());
    for (const db::Workload& w : db::all_workloads(*store))
      if (w.op == op &&
          1 + std::count(w.symbolic_dims.begin(), w.symbolic_dims.end(), ',') == symbols)
        return db::key_of(w);
    qFatal("the campaign has no such workload");
    return {};
  }
  void select_workload(const std::string& op, std::ptrdiff_t symbols) const {
    Choice c;
    c.workload = workload(op, symbols);
    c.hardware = db::key_of(db::Store::open(campaign->place())->hardware().front());
    selection().set(c);
    wait();
  }
  static QPoint pixel_of(const PlotView& view, double x, double y) {
    return {static_cast<int>(view.plot().xAxis->coordToPixel(x)),
            static_cast<int>(view.plot().yAxis->coordToPixel(y))};
  }

  std::unique_ptr<CampaignCopy> campaign;
  std::unique_ptr<MainWindow> window;
};

}  // namespace nimble::gui
