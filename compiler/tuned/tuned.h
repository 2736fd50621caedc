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
};

struct TunedChoice {
  std::vector<Candidate> candidates;
  exec::DispatchTree tree;  // over the workload's contract symbols and the threads
  std::string evidence;     // JSON: table, version, entries with their measurements
  bool stale = false;       // only a patch release of the toolchain differs
};

// What was found out while asking, for `nimble check` and the compile report.
struct Lookup {
  enum class Outcome {
    kTuned,
    kStale,     // used, made with another patch release of the toolchain
    kMismatch,  // there is a table that cannot be used
    kUntuned,
    kFixed,  // a host operator: it has no schedule
  };
  Outcome outcome = Outcome::kUntuned;
  std::string reason;
  std::optional<TunedChoice> choice;
};

class TunedSource {
 public:
  virtual ~TunedSource() = default;
  virtual Lookup find(const kernels::Workload& w, const kernels::TargetInfo& target) = 0;
  virtual std::string identity() const = 0;  // for provenance
};

// Reads a tuning database. Tables for several thread counts are joined: the largest count not
// above the region's decides.
std::unique_ptr<TunedSource> database_source(std::shared_ptr<db::Store> store);

// ---- how compiler and tuner name things in the database

// The record of a workload tuned for `threads` threads on a target.
db::Workload workload_record(const kernels::Workload& w, const kernels::TargetInfo& target,
                             int64_t threads);
db::Hardware host_hardware();
db::Machine host_machine();
db::Toolchain toolchain_record();
std::vector<db::TemplateVersion> template_versions();
inline constexpr const char* kVendorTemplate = "vendor";
inline constexpr const char* kHostTemplate = "host";  // no schedule to choose

// The JSON of a dispatch tree; the inverse throws nimble::Error.
std::string tree_to_json(const exec::DispatchTree& tree, const std::vector<std::string>& symbols);
exec::DispatchTree tree_from_json(const std::string& json, const std::vector<std::string>& symbols);

}  // namespace nimble::tuned
