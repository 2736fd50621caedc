// Lookup: which stored dispatch table a compiler may use.
//
// A table is found by its workload's hash and then compared in full; hardware, templates and code
// generator must agree with what the asker has. Every active table of the workload and hardware
// gets one of four grades:
//   exact          all agree;
//   soft-stale     the compiler's version or flags differ: usable, and whoever generates its
//   kernels
//                  finds out by their code hashes whether anything changed;
//   fallback       another class of measuring policy, in the asker's order of preference;
//   hard mismatch  something differs that changes the kernels or their times: refused.
// The best grade wins, then the table activated last. Tables that never became active don't count.
// Other hardware stands in only where the asker asks for that hardware, never by itself.
#include <algorithm>
#include <tuple>

#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

// How well a table fits; the fields in order of weight, 0 best.
struct Grade {
  bool refused = false;
  size_t class_rank = 0;  // in the asker's order of preference
  bool other_toolchain = false;
  std::string reason;

  LookupOutcome outcome() const {
    return refused           ? LookupOutcome::kHardMismatch
           : class_rank > 0  ? LookupOutcome::kFallback
           : other_toolchain ? LookupOutcome::kSoftStale
                             : LookupOutcome::kExact;
  }
  bool better_than(const Grade& other) const {
    return std::tuple(refused, class_rank, other_toolchain) <
           std::tuple(other.refused, other.class_rank, other.other_toolchain);
  }
  void refuse(std::string why) {
    refused = true;
    reason = std::move(why);
  }
  void add(const std::string& why) { reason += (reason.empty() ? "" : "; ") + why; }
};

void grade_toolchain(const Toolchain& stored, const Toolchain& asked, Grade& grade) {
  if (stored.codegen_version != asked.codegen_version)
    return grade.refuse(fmt::format("tuned with code generator {}, this compiler has {}",
                                    stored.codegen_version, asked.codegen_version));
  if (stored.compiler != asked.compiler)
    return grade.refuse(fmt::format("tuned with {} {}, this compiler uses {} {}", stored.compiler,
                                    stored.version, asked.compiler, asked.version));
  grade.other_toolchain = stored.version != asked.version || stored.flags != asked.flags;
  if (stored.version != asked.version)
    grade.add(fmt::format("tuned with {} {}, this compiler uses {}", stored.compiler,
                          stored.version, asked.version));
  if (stored.flags != asked.flags)
    grade.add(
        fmt::format("tuned with flags '{}', this compiler uses '{}'", stored.flags, asked.flags));
}

void grade_templates(const DispatchTable& table, const std::vector<TemplateVersion>& asked,
                     Grade& grade) {
  for (const auto& [hash, config] : table.configs) {
    const auto found = std::find_if(
        asked.begin(), asked.end(),
        [&name = config.template_name](const TemplateVersion& t) { return t.name == name; });
    if (found == asked.end())
      return grade.refuse(
          fmt::format("uses template '{}', which this compiler lacks", config.template_name));
    if (found->version != config.template_version)
      return grade.refuse(
          fmt::format("tuned with version {} of template '{}', this compiler has {}",
                      config.template_version, config.template_name, found->version));
  }
}

void grade_class(const std::string& stored, const std::vector<std::string>& asked, Grade& grade) {
  if (asked.empty()) return;
  const auto found = std::find(asked.begin(), asked.end(), stored);
  grade.class_rank = static_cast<size_t>(found - asked.begin());
  if (grade.class_rank > 0)
    grade.add(stored.empty()
                  ? fmt::format("measured before classes of policy had names, not {}", asked[0])
                  : fmt::format("measured {}, not {}", stored, asked[0]));
}

}  // namespace

// Candidates come in order of preference among equals.
LookupResult SqlStore::best_match(const LookupKey& key, const std::vector<Uuid>& candidates) {
  LookupResult best;
  std::optional<Grade> best_grade;
  for (const Uuid& uuid : candidates) {
    DispatchTable table = require_table(uuid);
    Statement row = db_->prepare(
        "SELECT compiler, version, flags, codegen_version FROM toolchain WHERE hash = ?");
    row.bind(table.toolchain).step();
    const Toolchain stored{row.text(0), row.text(1), row.text(2), row.integer(3), "", false};

    Grade grade;
    grade_class(table.policy_class, key.policy_classes, grade);
    grade_toolchain(stored, key.toolchain, grade);
    if (!grade.refused) grade_templates(table, key.templates, grade);
    if (best_grade && !grade.better_than(*best_grade)) continue;
    best.outcome = grade.outcome();
    best.reason = grade.reason;
    best.matched_workload = key.workload.canonical;
    best.table.reset();
    if (!grade.refused) best.table = std::move(table);
    best_grade = std::move(grade);
  }
  return best;
}

LookupResult SqlStore::lookup(const LookupKey& key) {
  const Hash workload_hash = key_of(key.workload);
  const std::optional<Workload> stored = workload(workload_hash);
  if (!stored || stored->canonical != key.workload.canonical) return {};

  const Hash hardware_hash = key_of(key.hardware);
  std::vector<Uuid> here;
  std::string elsewhere, other_isa;
  {
    Statement row = db_->prepare(
        "SELECT s.uuid, s.hardware, h.model_name, h.isa FROM dispatch_active s "
        "JOIN hardware h ON h.hash = s.hardware "
        "WHERE s.workload = ? ORDER BY s.since DESC, s.uuid");
    row.bind(workload_hash);
    while (row.step()) {
      if (row.text(1) == hardware_hash)
        here.push_back(row.text(0));
      else if (row.text(3) != key.hardware.isa)
        other_isa = row.text(3);
      else
        elsewhere = row.text(2);
    }
  }
  LookupResult result;
  if (!here.empty()) {
    result = best_match(key, here);
  } else if (!elsewhere.empty()) {
    result.outcome = LookupOutcome::kHardMismatch;
    result.reason =
        fmt::format("tuned on other hardware ({}), this is {}", elsewhere, key.hardware.model_name);
  } else if (!other_isa.empty()) {
    result.outcome = LookupOutcome::kHardMismatch;
    result.reason = fmt::format("tuned for ISA {}, this target is {}", other_isa, key.hardware.isa);
  }
  result.matched_workload = stored->canonical;
  result.overrides = overrides(false, workload_hash, hardware_hash);
  return result;
}

}  // namespace nimble::db
