#include "db/tools/diff.h"

#include <map>

#include "db/store/host_records.h"
#include "db/tools/find.h"

namespace nimble::db {
namespace {

MeasuredQuery side(Store& store, const DiffOptions& options, const std::string& name) {
  MeasuredQuery q;
  switch (options.by) {
    case DiffBy::kCampaign:
      q.campaign = find_campaign(store, name);
      break;
    case DiffBy::kHardware:
      q.hardware = key_of(find_hardware(store, name));
      break;
    case DiffBy::kToolchain:
      // A version is many rows: one for each revision of nimble that was built with it.
      for (const Toolchain& t : store.toolchains())
        if (!name.empty() && (key_of(t).starts_with(name) || t.version == name ||
                              t.version.starts_with(name + ".") || t.revision.starts_with(name)))
          q.toolchains.push_back(key_of(t));
      if (q.toolchains.empty())
        throw Error(Status::kNotFound, printable(name),
                    "is no toolchain's version, revision or beginning of its hash",
                    "list them: nimble db show toolchains");
      break;
  }
  return q;
}

std::string percent(double ratio) {
  return fmt::format("{:+.1f} %", (ratio - 1) * 100);
}

std::string range(const Ratio& r) {
  return fmt::format("{} ({} to {})", percent(r.value), percent(r.low), percent(r.high));
}

}  // namespace

Diff show_diff(Store& store, const DiffOptions& options) {
  MeasuredQuery a = side(store, options, options.a), b = side(store, options, options.b);
  if (!options.workload.empty())
    a.workload = b.workload = key_of(find_workload(store, options.workload));
  const CampaignDiff diff = compare(store, a, b, options.smallest);
  if (diff.rows.empty())
    throw Error(Status::kNotFound, store.path(),
                "the two sides have no workload and shape in common that both measured under one "
                "policy",
                "tune the same model on both sides, with the same --policy");
  Diff out{Table({"workload", "shape", "policy", "threads", "role", "a_ns", "b_ns", "change", "low",
                  "high", "drift", "anchors", "verdict", "a_config", "b_config", "a_measurement",
                  "b_measurement"}),
           {},
           diff.slower > 0};
  int64_t bare = 0;
  for (const Compared& row : diff.rows) {
    out.rows.add({name_of_workload(store, row.a.workload), text_of(row.a.dims), row.a.policy,
                  row.a.threads, name_of(row.a.role), row.a.median_ns, row.b.median_ns,
                  row.ratio.value, row.ratio.low, row.ratio.high, row.drift, row.anchors,
                  name_of(row.verdict), row.a.config_json, row.b.config_json, row.a.measurement,
                  row.b.measurement});
    bare += row.anchors == 0 && row.a.hardware == row.b.hardware && !row.side_by_side;
  }
  out.summary = fmt::format("{} {} in common: time {} on average, {} slower, {} faster",
                            diff.rows.size(), diff.rows.size() == 1 ? "shape" : "shapes",
                            range(diff.mean), diff.slower, diff.faster);
  if (bare > 0)
    out.summary +=
        fmt::format("; {} without an anchor: their times are of different hours or machines", bare);
  return out;
}

}  // namespace nimble::db
