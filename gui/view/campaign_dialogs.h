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

// Puts together the command that starts a campaign on the database; it can be copied and is never
// run.
void show_start_command(QWidget* parent, const DatabasePlace& place);

// Of parts for a POSIX shell: each quoted where it has to be.
QString shell_command(const QStringList& parts);

// The user's name, as requests tell who made them.
QString requester();

}  // namespace nimble::gui
