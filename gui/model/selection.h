// What the user looks at. There is one for all windows: each filters by the parts that concern it
// and sets them when something in it is chosen.
#pragma once

#include <QObject>
#include <memory>
#include <string>

#include "gui/model/explained.h"

namespace nimble::gui {

// Keys of the database; an empty one: nothing is chosen.
struct Choice {
  std::string hardware;  // hash
  std::string workload;  // hash
  std::string policy;    // hash of a measuring policy
  std::string campaign;  // UUID
  std::string shape;     // "m=64,n=128" (db::text_of)
  std::string config;    // hash
  std::string table;     // UUID of a dispatch table
  std::string trial;     // UUID
  std::string measurement;
  bool operator==(const Choice&) const = default;
};

class Selection : public QObject {
  Q_OBJECT
 public:
  explicit Selection(QObject* parent = nullptr) : QObject(parent) {}

  const Choice& now() const { return now_; }
  // What hangs on another part goes with it: another workload has other shapes, policies, tables.
  void set(Choice next);
  void clear() { set(Choice{}); }
  // Selects what an operator of an executable file led to.
  void set(Choice next, FileOperator origin);
  // That operator; nothing once another workload, kind of hardware or shape was selected.
  const std::shared_ptr<const FileOperator>& origin() const { return origin_; }

  void set_workload(const std::string& hash);
  void set_campaign(const std::string& uuid);
  void set_shape(const std::string& dims);
  void set_config(const std::string& hash);
  void set_table(const std::string& uuid);

 signals:
  void changed(const nimble::gui::Choice& before);

 private:
  Choice now_;
  std::shared_ptr<const FileOperator> origin_;
};

}  // namespace nimble::gui
