#include "gui/view/headless.h"

#include <QCoreApplication>
#include <QEventLoop>
#include <QTimer>

#include "gui/view/view.h"
#include "vm/base/error.h"

namespace nimble::gui {
namespace {

// What begins with `prefix`; `rows` as pairs of key and further text that may hold it.
std::string find(const std::vector<std::pair<std::string, std::string>>& rows,
                 const std::string& prefix, const std::string& what, const std::string& remedy) {
  std::string found;
  for (const auto& [key, text] : rows) {
    const bool fits = key.starts_with(prefix) || (!text.empty() && text.find(prefix) != text.npos);
    if (!fits || key == found) continue;
    if (!found.empty())
      throw Error(Status::kInvalidArgument, prefix, "names several " + what + "s",
                  "give more of the identifier");
    found = key;
  }
  if (found.empty()) throw Error(Status::kNotFound, prefix, "no " + what + " begins so", remedy);
  return found;
}

void choose_workload(Choice& choice, const Overview& overview) {
  std::vector<std::pair<std::string, std::string>> hardware, workloads;
  for (const HardwareRow& h : overview.hardware)
    hardware.emplace_back(h.hash, h.hardware.model_name);
  if (!choice.hardware.empty())
    choice.hardware =
        find(hardware, choice.hardware, "kind of hardware", "list it: nimble db show hardware");
  const WorkloadRow* first = nullptr;
  for (const WorkloadRow& w : overview.workloads) {
    if (!choice.hardware.empty() && w.hardware != choice.hardware) continue;
    workloads.emplace_back(w.workload, w.record.canonical);
    if (!first || (!first->table && w.table)) first = &w;
  }
  if (!choice.workload.empty())
    choice.workload =
        find(workloads, choice.workload, "workload", "list them: nimble db show workloads");
  else if (first)
    choice.workload = first->workload;
  for (const WorkloadRow& w : overview.workloads)
    if (choice.hardware.empty() && w.workload == choice.workload) choice.hardware = w.hardware;
}

// Turns beginnings into whole identifiers.
Choice resolve(Choice choice, Reader& reader) {
  const Cancel never;
  choose_workload(choice, reader.overview(never));
  if (!choice.campaign.empty()) {
    std::vector<std::pair<std::string, std::string>> campaigns;
    for (const CampaignRow& c : reader.campaigns(never))
      campaigns.emplace_back(c.campaign.uuid, "");
    choice.campaign =
        find(campaigns, choice.campaign, "campaign", "list them: nimble db campaigns");
  }
  if (choice.config.empty() && choice.table.empty() && choice.shape.empty()) return choice;
  const auto facts = reader.workload(choice.workload, choice.hardware, choice.policy, never);
  std::vector<std::pair<std::string, std::string>> configs, tables, shapes;
  if (facts) {
    for (const ConfigFacts& c : facts->configs) configs.emplace_back(c.hash, "");
    for (const db::DispatchTable& t : facts->tables) tables.emplace_back(t.uuid, "");
    for (const ShapeFacts& s : facts->shapes)
      if (s.key == choice.shape) shapes.emplace_back(s.key, "");
  }
  if (!choice.config.empty())
    choice.config = find(configs, choice.config, "configuration", "list them: nimble db top");
  if (!choice.table.empty())
    choice.table = find(tables, choice.table, "table", "list them: nimble dispatch show --all");
  if (!choice.shape.empty())
    choice.shape = find(shapes, choice.shape, "measured shape", "list them: nimble db top");
  return choice;
}

}  // namespace

void settle(const Session& session, const std::function<bool()>& waiting) {
  // An answer may lead to the next question: what is quiet twice in a row stays so.
  for (int quiet = 0; quiet < 3;) {
    QCoreApplication::processEvents(QEventLoop::AllEvents, 50);
    QCoreApplication::sendPostedEvents();
    quiet = session.busy() > 0 || waiting() ? 0 : quiet + 1;
    if (quiet == 0) {
      QEventLoop loop;
      QTimer::singleShot(5, &loop, &QEventLoop::quit);
      loop.exec();
    }
  }
}

const ViewInfo& view_named(const std::string& name) {
  if (const ViewInfo* info = find_view(name)) return *info;
  std::string names;
  for (const ViewInfo& v : views()) names += (names.empty() ? "" : ", ") + std::string(v.name);
  throw Error(Status::kInvalidArgument, name, "there is no such window", "one of " + names);
}

void run_export(const ExportRequest& request) {
  const ViewInfo& info = view_named(request.view);
  const std::unique_ptr<Reader> reader = Reader::open(request.place);
  const Choice choice = resolve(request.choice, *reader);
  Session session;
  Selection selection;
  WorkloadModel workload(session, selection);
  Context context{session, selection, workload};
  const std::unique_ptr<View> view(info.make(info, context));
  view->setAttribute(Qt::WA_DontShowOnScreen);
  view->resize(request.picture.size);
  view->show();
  session.open({request.place.place, true});
  selection.set(choice);
  settle(session, [&] { return view->loading(); });
  if (!view->message().isEmpty())
    throw Error(Status::kNotFound, request.view, "has nothing to show",
                view->message().toStdString());
  export_view(*view, QString::fromStdString(request.output), request.picture);
}

}  // namespace nimble::gui
