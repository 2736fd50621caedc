// The records of the tuning database: plain structs of keys, shapes, configurations and text.
// No compiler types: a record outlives the code that wrote it.
//
// Dimension rows (Hardware … MeasurePolicy) are keyed by key_of(), xxHash128 of their content in
// 32 hex digits; equal content has an equal key in every database. Events (campaigns, trials,
// measurements, tables) are keyed by a UUID. An empty `uuid` in a record to be written means
// "give it a new one". Times of day are milliseconds since 1970.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::db {

using Hash = std::string;  // 32 lower-case hex digits
using Uuid = std::string;  // 36 characters, lower case

// ---- dimensions -----------------------------------------------------------------------------

struct Hardware {
  std::string vendor;  // "GenuineIntel"
  int64_t family = 0;
  int64_t model = 0;
  int64_t stepping = 0;
  std::string model_name;  // the brand string
  std::string isa;         // what code may use, e.g. "x86-64-v4+avx512_vnni"; compared as a whole
  std::string caches;      // e.g. "L1d 48K/1, L2 2M/1, L3 105M/2"
  std::string topology;    // e.g. "1 socket, 2 cores, 2 threads"
  bool virtualised = false;
};

struct Machine {
  Uuid uuid;  // empty: derived from hostname and hardware, so that it is the same next time
  std::string hostname;
  Hash hardware;
};

struct HostState {
  Uuid uuid;
  std::string governor;
  std::optional<bool> turbo, smt;  // nothing: unknown
  std::string affinity;
  double load = 0;   // runnable threads other than ours
  double steal = 0;  // share of time taken by the hypervisor, 0…1
};

// The key covers every field. For lookups, `revision` and `dirty` do not matter (they say where a
// row came from), `version` may differ in its patch part, the rest must be equal.
struct Toolchain {
  std::string compiler;  // "llvm"
  std::string version;   // "19.1.7"
  std::string flags;
  int64_t codegen_version = 0;  // of nimble's own code generator; >= 1
  std::string revision;
  bool dirty = false;
};

// The name of the template that stands for a vendor's library, whose routines have no schedule.
inline constexpr const char* kVendorTemplate = "vendor";

struct Template {
  std::string name;
  int64_t version = 0;  // >= 1
  std::string parameters;
};

// The key covers `canonical` alone; the other fields are what it says, taken apart for queries.
struct Workload {
  std::string canonical;  // anchor operator, epilogue, dtypes, dims, layouts, threads
  std::string anchor;     // the same without the epilogue
  std::string op, dtype, layout;
  std::string symbolic_dims;  // "m,n"
  int64_t threads = 1;
};

using Dims = std::map<std::string, int64_t>;  // symbol → extent, e.g. {{"m", 64}}
std::string text_of(const Dims& dims);        // "m=64,n=128"
// The inverse; throws Error(kInvalidArgument) if `text` is not of that form.
Dims dims_from_text(std::string_view text);

// The key covers `workload` and `dims`; the amounts of work follow from them.
struct Shape {
  Hash workload;
  Dims dims;
  int64_t flops = 0, bytes = 0;
};

struct Config {
  Hash template_hash;
  std::string json;  // any valid JSON; stored with sorted keys and no white space
};

// The key covers code_hash, workload, config and toolchain.
struct Artifact {
  std::string code_hash;  // of the machine code
  Hash workload, config, toolchain;
  double compile_ms = 0;
  int64_t size = 0;  // bytes of machine code
};

enum class CacheMode { kWarm, kCold };
struct MeasurePolicy {
  CacheMode mode = CacheMode::kWarm;
  int64_t warm_up = 0;  // runs before the first sample
  int64_t threads = 1;
  std::string timer;
  std::string stop_rule;
  // The named class of policies that this is one of; part of a dispatch table's slot. Empty:
  // measured before classes had names.
  std::string policy_class = {};
};

Hash key_of(const Hardware&);
Hash key_of(const Toolchain&);
Hash key_of(const Template&);
Hash key_of(const Workload&);
Hash key_of(const Shape&);
Hash key_of(const Config&);  // throws Error(kInvalidArgument) if `json` is not JSON
Hash key_of(const Artifact&);
Hash key_of(const MeasurePolicy&);

// JSON with sorted keys and no white space; throws Error(kInvalidArgument) naming `place`.
std::string canonical_json(std::string_view json, const std::string& place);

// ---- campaigns and trials -------------------------------------------------------------------

enum class CampaignState { kRunning, kPaused, kInterrupted, kFinished, kFailed };

// What makes a later invocation the same campaign.
struct CampaignKey {
  std::string digest;  // of the models or workloads to be tuned
  Hash hardware;
  int64_t seed = 0;
  std::string options = "{}";  // JSON; canonicalised. The budget is not part of it.
};

struct Campaign {
  Uuid uuid;
  CampaignKey key;
  std::string command;  // the command line that reproduces it
  double budget_s = 0;
  double consumed_s = 0;
  CampaignState state = CampaignState::kRunning;
  int64_t created_at = 0, updated_at = 0;
  bool resumable() const {
    return state != CampaignState::kFinished && state != CampaignState::kFailed;
  }
};

struct CampaignProgress {
  int64_t trials = 0, queued = 0, claimed = 0, ok = 0, failed = 0;
};

enum class Role { kSearch, kCross, kVerify, kBaseline };
enum class TrialState { kQueued, kClaimed, kOk, kWrong, kCrashed, kTimeout, kCompileFailed };
constexpr bool is_final(TrialState s) {
  return s != TrialState::kQueued && s != TrialState::kClaimed;
}

// At most one trial exists per key; its UUID follows from the key.
struct TrialKey {
  Uuid campaign;
  Hash workload, config, shape;
  Role role = Role::kSearch;
  int64_t threads = 1;
  // Nothing: the campaign's. A campaign on several kinds of machines, or under several policies,
  // says which.
  std::optional<Hash> hardware = {}, policy = {};
};
Uuid uuid_of(const TrialKey&);

struct NewTrial {
  TrialKey key;
  int64_t round = 0;
  double priority = 0;  // higher is claimed earlier
  std::optional<double> predicted_ns;
};

struct Trial {
  Uuid uuid;
  TrialKey key;
  int64_t round = 0;
  double priority = 0;
  std::optional<double> predicted_ns;
  TrialState state = TrialState::kQueued;
  int64_t attempt = 0;   // claims so far
  int64_t position = 0;  // in the order of its campaign's queue, from 1
  std::string lease_owner;
  int64_t lease_until = 0;
  std::string error_class, message;
};

struct ClaimRequest {
  Uuid campaign;
  std::string owner;  // unique per process, e.g. "host:pid:start time"
  int64_t lease_ms = 60'000;
  int64_t limit = 1;
  std::optional<Role> role;
  std::optional<Hash> workload;
  int64_t max_attempts = 3;  // a trial whose lease ran out that often ends as crashed
};

// ---- measurements ---------------------------------------------------------------------------

struct Measurement {
  Uuid uuid;
  Uuid trial;
  Hash artifact, policy;
  Uuid machine, host_state;
  double median_ns = 0, mad_ns = 0, ci_low_ns = 0, ci_high_ns = 0;
  std::string stop_reason;
  std::vector<double> samples_ns;               // every raw sample, in the order taken
  std::vector<bool> outliers;                   // empty, or one flag per sample
  std::optional<int64_t> runs_per_sample = {};  // of which a sample is the mean; nothing: unknown
  // How much the first candidate of the session had changed at its end: 0.02: 2 % slower.
  std::optional<double> drift = {};
  // Samples of the same code, timed in turn with these as if it were another candidate; or empty.
  std::vector<double> twin_ns = {};
  int64_t created_at = 0;  // set by the store
};

// How a trial ended. With state kOk a measurement is due; other states may carry one too
// (a timing taken before the result was found wrong is still a fact).
struct TrialResult {
  Uuid trial;
  std::string owner;
  TrialState state = TrialState::kOk;
  std::string error_class;  // "segfault", "mismatch", …; empty when ok
  std::string message;
  std::optional<Measurement> measurement;
};

struct Correctness {
  Uuid uuid;
  Hash artifact, shape;
  double max_error = 0;  // NaN where a number was due: pass must be false
  double tolerance = 0;
  bool pass = false;
};

struct CostModel {
  Uuid uuid;
  Uuid campaign;
  Hash workload;
  int64_t round = 0;
  std::vector<uint8_t> model;
  std::optional<double> rank_correlation;  // nothing: too few points
  // Of the features that it predicts from. Nothing: from before models were kept to predict.
  std::optional<int64_t> feature_version = {};
  // BLAKE2b-256 of `model`, which is what is signed; set by the store. Empty: from before that.
  std::string digest = {};
  int64_t created_at = 0;  // set by the store
};

// A measured configuration, joined with what it is compared by.
struct Result {
  Uuid measurement, trial, campaign;
  Hash workload, shape, config, artifact, toolchain, policy;
  std::string code_hash;
  Uuid host_state;  // what was timed side by side has one in common
  Dims dims;
  std::string config_json, template_name;
  int64_t template_version = 0;
  int64_t codegen_version = 0;
  Role role = Role::kSearch;
  int64_t threads = 1, round = 0, n = 0;
  double median_ns = 0, mad_ns = 0, ci_low_ns = 0, ci_high_ns = 0;
  std::string stop_reason;
  int64_t created_at = 0;
};

// What results may be ranked together. Policies and code generators are never mixed.
struct ResultQuery {
  Hash workload, hardware, policy;
  int64_t codegen_version = 0;
  std::vector<Role> roles;    // empty: all
  std::optional<Hash> shape;  // nothing: every shape
  int64_t limit = -1;         // -1: all
};

// A trial of a campaign with its time where it has one: what a resumed search learns from.
struct TrialOutcome {
  Trial trial;
  Dims dims;
  std::string config_json;
  std::optional<double> median_ns;
};

// ---- dispatch -------------------------------------------------------------------------------

enum class TableStatus { kDraft, kActive, kRetired };

struct DispatchEntry {
  std::string range = "{}";  // JSON: the region of shapes, as the tree's writer defines it
  Hash config;
  std::optional<Uuid> evidence;  // the measurement behind it
  std::optional<double> expected_ns;
  std::optional<double> regret;  // 0.02: expected to be 2 % over the best known
  bool is_override = false;      // as databases of schema 5 and older have them; see Override
  std::string reason;            // due for an override
  std::string code_hash = {};    // read only: of the evidence's artifact; empty without evidence
};

struct NewDispatchTable {
  Hash workload, hardware, toolchain, policy;
  std::optional<Uuid> campaign, parent;
  std::string objective;
  std::string tree;  // JSON; its leaves name indices into `entries`
  std::vector<DispatchEntry> entries;
};

// A configuration with its template's name and version, ready for code generation.
struct ConfigInfo {
  std::string template_name;
  int64_t template_version = 0;
  std::string json;
};

struct DispatchTable : NewDispatchTable {
  Uuid uuid;
  std::string policy_class;  // of its policy
  int64_t version = 1;
  TableStatus status = TableStatus::kDraft;
  int64_t created_at = 0;
  std::map<Hash, ConfigInfo> configs;  // every configuration that an entry names
};

// Shapes: each feature's first and last value ("s0", "s0*s1", "ceildiv(s0,8)", as a tree's writer
// names them); no last value: unbounded. Without features: every shape.
using Region = std::map<std::string, std::pair<int64_t, std::optional<int64_t>>>;
// {"s0":[17,64]}, and the inverse; throws Error(kInvalidArgument) naming `place` for anything that
// is no region: a first value below zero or above the last, too many features, another form.
std::string json_of(const Region& region);
Region region_from_json(std::string_view json, const std::string& place);

// A person's word that a configuration serves some shapes, whichever table is active, until it is
// withdrawn. Of two that overlap the later one counts.
struct NewOverride {
  Hash workload, hardware;
  Region region;
  Hash config;
  std::string reason;
};

struct Withdrawal {
  std::string reason;
  int64_t created_at = 0;
};

struct Override {
  Uuid uuid;
  Hash workload, hardware;
  std::string region;  // JSON as it is stored: whoever uses it checks it
  Hash config;
  ConfigInfo info;
  std::string reason;
  std::optional<Uuid> evidence;  // the newest measurement of the configuration, when it was made
  std::string code_hash;         // of the evidence's artifact; empty without evidence
  int64_t created_at = 0;
  std::optional<Withdrawal> withdrawn;
};

// A table's times over those of what it would displace, taken in turn in one session.
struct Comparison {
  Uuid uuid, table;
  std::optional<Uuid> rival;  // nothing: the default schedules
  int64_t shapes = 0;
  double ratio = 0;        // weighted mean; below 1: the table is faster
  double worst_ratio = 0;  // of one shape
  int64_t created_at = 0;  // set by the store
};

// What a table's configuration took at a shape.
struct EntryTime {
  Hash config;
  Dims dims;
  double median_ns = 0;
};

struct TemplateVersion {
  std::string name;
  int64_t version = 0;
};

// Everything a record must agree with to be used.
struct LookupKey {
  Workload workload;
  Hardware hardware;
  Toolchain toolchain;
  std::vector<TemplateVersion> templates;  // those that the asking compiler has
  // Classes of measuring policy: the one asked for, then others that may stand in, best first. A
  // class that is not among them stands in last. Empty: any.
  std::vector<std::string> policy_classes;
};

enum class LookupOutcome {
  kNone,  // nothing is known of this key
  kExact,
  kSoftStale,     // usable; the compiler's version or flags differ: its code may
  kFallback,      // usable; measured under another class of policy
  kHardMismatch,  // a table exists and must not be used; `reason` says why
};

struct LookupResult {
  LookupOutcome outcome = LookupOutcome::kNone;
  std::string reason;                  // empty when exact
  std::optional<DispatchTable> table;  // unless nothing or a mismatch was found
  std::string matched_workload;        // canonical text of the table's workload
  std::vector<Override> overrides;     // in force, the latest first; also without a table
};

// ---- merge and check ------------------------------------------------------------------------

struct ImportReport {
  std::string origin;  // identity of the database that exported the file
  int64_t rows_added = 0;
  int64_t rows_updated = 0;  // trials and campaigns that had gone further there
};

struct CheckReport {
  std::vector<std::string> problems;  // one line each; empty: sound
  std::vector<std::string> stale;     // active tables of an older code generator than the newest
  bool sound() const { return problems.empty(); }
};

std::string_view name_of(CacheMode);
std::string_view name_of(CampaignState);
std::string_view name_of(Role);
std::string_view name_of(TrialState);
std::string_view name_of(TableStatus);
std::string_view name_of(LookupOutcome);
std::optional<CacheMode> cache_mode_from_name(std::string_view);
std::optional<CampaignState> campaign_state_from_name(std::string_view);
std::optional<Role> role_from_name(std::string_view);
std::optional<TrialState> trial_state_from_name(std::string_view);
std::optional<TableStatus> table_status_from_name(std::string_view);
std::vector<std::string> role_names();  // all, in the order of Role

}  // namespace nimble::db
