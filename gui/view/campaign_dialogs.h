// What is asked before a campaign is steered, and the command that starts one.
#pragma once

#include <QString>
#include <optional>

#include "gui/model/reader.h"

class QWidget;

namespace nimble::gui {

// "Stop campaign 3f2a…?" with what that does and a field for the reason. Nothing: the user does not
// want it; else the reason, maybe empty.
std::optional<QString> confirm_request(QWidget* parent, const QString& request,
                                       const QString& campaign, const QString& what);

struct StartRequest {
  bool fleet = false;  // submitted to a service, or tuned here
  QString model, threads, trace;
  int budget_s = 1800;
  // Of the fleet: the kind of machine, and the key that the service signs with; both may be empty.
  QString hardware, key;
};
// As a line for a POSIX shell; with a key, a second one starts the service.
QString start_command(const StartRequest& request, const DatabasePlace& place);

// Puts together the command that starts a campaign on the database; it can be copied and is never
// run.
void show_start_command(QWidget* parent, const DatabasePlace& place);

// Of parts for a POSIX shell: each quoted where it has to be.
QString shell_command(const QStringList& parts);

// The user's name, as requests tell who made them.
QString requester();

}  // namespace nimble::gui
