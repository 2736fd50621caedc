// Where the compiler learns which configuration serves which shape.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/template.h"
#include "db/store/store.h"
#include "vm/executable/dispatch.h"

namespace nimble::tuned {

// One leaf of a choice: a template's configuration, or a vendor library's routine.
struct Candidate {
  std::string template_name;  // "vendor": `vendor` names the routine
  kernels::Config config;
  std::string vendor;  // "onednn.matmul"
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

struct TunedChoice {
  std::vector<Candidate> candidates;
  // Of each candidate, the hash of the code that was measured; empty where none is known. A record
  // is exact only while generating the candidate gives that code: whoever generates it compares.
  std::vector<std::string> code_hashes;
  exec::DispatchTree tree;  // over the workload's contract symbols and the threads
  // JSON, one object for each thread count that has a table: table, version, class, its entries
  // with their measurements, and the overrides laid over it. Each entry names its candidate.
  std::string evidence;
};

// What was found out while asking, for `nimble check` and the compile report.
struct Lookup {
  enum class Outcome {
    kTuned,
    kStale,     // used; the code has changed since it was measured, or nobody can tell
    kFallback,  // used; measured under another class of policy than the one asked for
    kMismatch,  // there is a table that cannot be used
    kUntuned,
    kFixed,  // a host operator: it has no schedule
  };
  Outcome outcome = Outcome::kUntuned;
  std::string reason;
  // Set where the compiler's version or flags are not those of the record: counts unless the code
  // proves to be the same.
  std::string other_toolchain;
  std::vector<int64_t> threads;  // counts that have a table or an override
  std::optional<TunedChoice> choice;
};

class TunedSource {
 public:
  virtual ~TunedSource() = default;
  // `policy_class`: see policy_class.h.
  virtual Lookup find(const kernels::Workload& w, const kernels::TargetInfo& target,
                      const std::string& policy_class) = 0;
  virtual std::string identity() const = 0;  // for provenance
  // What the last cache of the hardware whose records it has for the target holds (policy_class.h);
  // 0: unknown.
  virtual int64_t last_cache_bytes(const kernels::TargetInfo& /*target*/) const { return 0; }
};

// The evidence with what comparing code found: the candidates whose code is no longer, or cannot be
// shown to be, the code that was measured.
std::string with_stale(const std::string& evidence, const std::vector<bool>& stale);

// Reads a tuning database: the records of `hardware`, and for targets of GPUs those of `gpu`;
// without one there are none. Tables for several thread counts are joined: the largest count not
// above the region's decides.
std::unique_ptr<TunedSource> database_source(std::shared_ptr<db::Store> store,
                                             const db::Hardware& hardware,
                                             std::optional<db::Hardware> gpu = {});
// Of this machine.
std::unique_ptr<TunedSource> database_source(std::shared_ptr<db::Store> store);

// ---- how compiler and tuner name things in the database

// The record of a workload tuned for `threads` threads on a target. Levels that make the same code
// of it share a record, under the name of the lowest.
db::Workload workload_record(const kernels::Workload& w, const kernels::TargetInfo& target,
                             int64_t threads);
db::Toolchain toolchain_record();
// Of what makes code for the target: a GPU's is NVRTC's, without a version where that is missing.
db::Toolchain toolchain_record(const kernels::TargetInfo& target);
// Error(kUnsupported) if nothing here makes code for the target.
void require_toolchain(const kernels::TargetInfo& target);
// The version in a template's record. Nobody raises it: code hashes tell whether a template still
// generates what was measured.
inline constexpr int64_t kTemplateVersion = 1;
std::vector<db::TemplateVersion> template_versions();
inline constexpr const char* kVendorTemplate = db::kVendorTemplate;
inline constexpr const char* kHostTemplate = "host";  // no schedule to choose

}  // namespace nimble::tuned
