// Lookup: which stored dispatch table a compiler may use.
//
// A table is found by its workload's hash and then compared in full; hardware, templates and code
// generator must agree with what the asker has. Every candidate gets one of three grades:
//   exact          all agree;
//   soft-stale     all agree but the patch release of the toolchain: usable, to be verified again;
//   hard mismatch  something differs that changes the kernels or their times: refused.
// The best grade wins, then the table activated last. Tables that never became active don't count.
// A fallback (other epilogue, other hardware) never happens here by itself: it is another call.
#include <algorithm>

#include "db/store/sqlite_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

// "19.1.7" → "19.1"; a version without a patch part is returned whole.
std::string_view without_patch(std::string_view version) {
  const size_t first = version.find('.');
  if (first == std::string_view::npos) return version;
  return version.substr(0, version.find('.', first + 1));
}

struct Grade {
  LookupOutcome outcome = LookupOutcome::kExact;
  std::string reason;
};

Grade hard(std::string reason) {
  return {LookupOutcome::kHardMismatch, std::move(reason)};
}

Grade grade_toolchain(const Toolchain& stored, const Toolchain& asked) {
  if (stored.codegen_version != asked.codegen_version)
    return hard(fmt::format("tuned with code generator {}, this compiler has {}",
                            stored.codegen_version, asked.codegen_version));
  if (stored.compiler != asked.compiler ||
      without_patch(stored.version) != without_patch(asked.version))
    return hard(fmt::format("tuned with {} {}, this compiler uses {} {}", stored.compiler,
                            stored.version, asked.compiler, asked.version));
  if (stored.flags != asked.flags)
    return hard(
        fmt::format("tuned with flags '{}', this compiler uses '{}'", stored.flags, asked.flags));
  if (stored.version != asked.version)
    return {LookupOutcome::kSoftStale, fmt::format("tuned with {} {}, this compiler uses {}",
                                                   stored.compiler, stored.version, asked.version)};
  return {};
}

Grade grade_templates(const DispatchTable& table, const std::vector<TemplateVersion>& asked) {
  for (const auto& [hash, config] : table.configs) {
    const auto found = std::find_if(
        asked.begin(), asked.end(),
        [&name = config.template_name](const TemplateVersion& t) { return t.name == name; });
    if (found == asked.end())
      return hard(
          fmt::format("uses template '{}', which this compiler lacks", config.template_name));
    if (found->version != config.template_version)
      return hard(fmt::format("tuned with version {} of template '{}', this compiler has {}",
                              config.template_version, config.template_name, found->version));
  }
  return {};
}

}  // namespace

// Candidates come in order of preference. `key.hardware` is compared by ISA here; the callers
// decide how much more of it must agree.
LookupResult SqliteStore::best_match(const LookupKey& key, std::vector<Uuid> candidates) {
  LookupResult best;
  for (const Uuid& uuid : candidates) {
    DispatchTable table = require_table(uuid);
    const Hardware tuned_on = hardware(table.hardware).value();
    Statement row = db_->prepare(
        "SELECT compiler, version, flags, codegen_version FROM toolchain WHERE hash = ?");
    row.bind(table.toolchain).step();
    const Toolchain stored{row.text(0), row.text(1), row.text(2), row.integer(3), "", false};

    Grade grade;
    if (tuned_on.isa != key.hardware.isa)
      grade =
          hard(fmt::format("tuned for ISA {}, this target is {}", tuned_on.isa, key.hardware.isa));
    if (grade.outcome == LookupOutcome::kExact) grade = grade_toolchain(stored, key.toolchain);
    if (grade.outcome != LookupOutcome::kHardMismatch) {
      const Grade templates = grade_templates(table, key.templates);
      if (templates.outcome == LookupOutcome::kHardMismatch) grade = templates;
    }
    // The enumerators rank by preference, but kNone is the least.
    if (best.outcome != LookupOutcome::kNone && best.outcome <= grade.outcome) continue;
    best.outcome = grade.outcome;
    best.reason = grade.reason;
    best.matched_workload = workload(table.workload).value().canonical;
    best.table.reset();
    if (grade.outcome != LookupOutcome::kHardMismatch) best.table = std::move(table);
  }
  return best;
}

LookupResult SqliteStore::lookup(const LookupKey& key) {
  const Hash workload_hash = key_of(key.workload);
  const std::optional<Workload> stored = workload(workload_hash);
  if (!stored || stored->canonical != key.workload.canonical) return {};

  const Hash hardware_hash = key_of(key.hardware);
  std::vector<Uuid> here;
  std::string elsewhere, other_isa;
  Statement row = db_->prepare(
      "SELECT s.uuid, s.hardware, h.model_name, h.isa FROM dispatch_status s "
      "JOIN hardware h ON h.hash = s.hardware "
      "WHERE s.workload = ? AND s.status = 'active' ORDER BY s.since DESC, s.uuid");
  row.bind(workload_hash);
  while (row.step()) {
    if (row.text(1) == hardware_hash)
      here.push_back(row.text(0));
    else if (row.text(3) != key.hardware.isa)
      other_isa = row.text(3);
    else
      elsewhere = row.text(2);
  }
  if (!here.empty()) return best_match(key, std::move(here));
  LookupResult result;
  result.matched_workload = stored->canonical;
  if (!elsewhere.empty()) {
    result.outcome = LookupOutcome::kHardMismatch;
    result.reason =
        fmt::format("tuned on other hardware ({}), this is {}", elsewhere, key.hardware.model_name);
  } else if (!other_isa.empty()) {
    result.outcome = LookupOutcome::kHardMismatch;
    result.reason = fmt::format("tuned for ISA {}, this target is {}", other_isa, key.hardware.isa);
  }
  return result;
}

LookupResult SqliteStore::lookup_by_anchor(const LookupKey& key) {
  std::vector<Uuid> candidates;
  Statement row = db_->prepare(
      "SELECT s.uuid FROM workload w JOIN dispatch_status s ON s.workload = w.hash "
      "WHERE w.anchor = ? AND w.threads = ? AND w.canonical <> ? AND s.hardware = ? "
      "AND s.status = 'active' ORDER BY s.since DESC, s.uuid");
  row.bind(key.workload.anchor, key.workload.threads, key.workload.canonical, key_of(key.hardware));
  while (row.step()) candidates.push_back(row.text(0));
  return best_match(key, std::move(candidates));
}

LookupResult SqliteStore::lookup_same_isa(const LookupKey& key) {
  std::vector<Uuid> candidates;
  Statement row = db_->prepare(
      "SELECT s.uuid FROM workload w JOIN dispatch_status s ON s.workload = w.hash "
      "JOIN hardware h ON h.hash = s.hardware WHERE w.hash = ? AND w.canonical = ? AND h.isa = ? "
      "AND s.hardware <> ? AND s.status = 'active' ORDER BY s.since DESC, s.uuid");
  row.bind(key_of(key.workload), key.workload.canonical, key.hardware.isa, key_of(key.hardware));
  while (row.step()) candidates.push_back(row.text(0));
  return best_match(key, std::move(candidates));
}

}  // namespace nimble::db
