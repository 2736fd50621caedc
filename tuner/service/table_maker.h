// From times of configurations at sizes to a dispatch table in the database, judged against what is
// active there. The same for `nimble tune` and for the service; what a table rests on is the
// caller's to find out.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tuner/dispatch/choose.h"
#include "tuner/service/task_records.h"

namespace nimble::tuner {

// Times at some sizes: the configurations that were right at each of them.
struct TableEvidence {
  std::vector<db::Hash> configs;
  std::vector<size_t> points;  // of the task; the columns of `cross`
  CrossTable cross;
};
// Says of each configuration whether it serves exact sizes alone: a vendor's routine does.
void mark_exact_only(db::Store& store, TableEvidence& e);
// Among equals the first configuration is the one: the default, where it has times.
void put_first(TableEvidence& e, const db::Hash& config);

// The configurations that a table chosen from these times would use, and the paper's single one
// first. Needs one configuration at least.
std::vector<db::Hash> finalists_of(const TableEvidence& e);

// What a new table's times rest on: finalists side by side, the cross-evaluation, or the search
// at its one size.
enum class TableBasis { kVerified, kCross, kSearch };

struct TableOrder {
  TableEvidence evidence;  // of one configuration at least
  TableBasis basis = TableBasis::kVerified;
  std::set<db::Hash> verified;  // timed side by side, those that failed among them
  std::vector<double> best;     // the least time known at each column
  std::optional<double> noise;  // of A/A pairs: gains below it are none
  size_t tried = 0;             // configurations that entered the choice
  bool complete = true;         // all phases ran
};

struct MadeTable {
  Table table;
  db::Uuid uuid;
  db::NewDispatchTable record;  // as it was stored
  std::string inactive;         // its name and why it is a draft; empty: it is active
};

// What follows the word that a table is not active: the command that makes it so, in this database
// (as messages may name it), wherever it is copied to.
std::string how_to_activate(const db::Uuid& table, const std::string& database);

// What became of a draft that was timed beside what it would displace.
struct TriedDraft {
  bool active = false;
  std::string reason;  // why, or why not
  std::optional<db::Comparison> comparison;
};

class TableMaker {
 public:
  // The store and the records stay the caller's. `hardware`: that was measured on.
  TableMaker(db::Store& store, const TaskRecords& records, const kernels::TargetInfo& target,
             db::Uuid campaign, db::Hash hardware, db::Hash toolchain);

  // Where a table of these records stands.
  db::NewDispatchTable slot() const;
  // Configurations of the table that is active in a slot and that this program can build: what a
  // new one has to be measured with.
  std::set<db::Hash> active_configs(const db::NewDispatchTable& slot) const;
  // Chooses, stores, and activates it if it is not slower than what it displaces.
  MadeTable make(const TableOrder& order);
  // Of a table that is stored already: keeps how it compares with what it would displace, and
  // activates it if it is not slower and `activate` says so.
  TriedDraft try_draft(const db::DispatchTable& draft, const TableOrder& order,
                       bool activate) const;

 private:
  struct Verdict {
    bool activate = false;
    std::string reason;                        // for the event, or for the report
    std::optional<db::Uuid> rival;             // what is active now
    std::optional<db::Comparison> comparison;  // without its table
  };
  Verdict judge(const db::NewDispatchTable& made, const TableOrder& order) const;
  bool can_be_generated(const tuned::Candidate& c) const;
  // The tiles into which these cut an extent.
  std::vector<int64_t> tiles_of(const std::vector<db::Hash>& configs) const;
  db::NewDispatchTable record_of(const Table& table, const TableOrder& order) const;
  // The campaign's, by configuration and shape: a later phase's before an earlier one's.
  std::map<std::pair<db::Hash, db::Hash>, db::Uuid> own_measurements() const;

  db::Store& store_;
  const TaskRecords& records_;
  const kernels::TargetInfo& target_;
  db::Uuid campaign_;
  db::Hash hardware_, toolchain_;
};

}  // namespace nimble::tuner
