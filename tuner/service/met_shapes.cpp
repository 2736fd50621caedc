#include "tuner/service/met_shapes.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/tuned/tuned.h"
#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "tuner/service/measuring.h"
#include "tuner/service/model_tasks.h"
#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"

namespace nimble::tuner {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostCounted = 1'000'000'000'000;
constexpr size_t kMostRows = 1'000'000;
constexpr char kRemedy[] = "give what nimble_session_shapes_json returned";
// Two values for what happens inside of a model: a shape that is another with the other does not
// follow from what was recorded.
constexpr int64_t kInsideOne = 3, kInsideOther = 1009;

Trace read_record(const MetShapesOptions& o, const std::vector<std::string>& symbols) {
  const std::string text = read_text_file(o.file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{')
    return trace_of_session(text, o.file, o.entry);
  return parse_trace(text, o.file, {}, symbols);
}

}  // namespace

Trace trace_of_session(const std::string& text, const std::string& file, const std::string& entry) {
  const auto refuse = [&](const std::string& problem) -> void {
    throw Error(Status::kCorrupt, file, problem, kRemedy);
  };
  const Json json = parse_json(text, refuse);
  if (!json.is_object() || !json.contains("entries") || !json.at("entries").is_array())
    refuse("lists no entries");
  Trace trace{file, {}, {}, 0};
  for (const Json& e : json.at("entries")) {
    if (!e.is_object() || !e.contains("symbols") || !e.at("symbols").is_array() ||
        !e.contains("shapes") || !e.at("shapes").is_array() || !e.contains("name") ||
        !e.at("name").is_string())
      refuse("has an entry without name, symbols or shapes");
    if (entry.empty() ? e.at("symbols").empty() : e.at("name") != entry) continue;
    for (const Json& s : e.at("symbols")) {
      if (!s.is_string()) refuse("names a symbol that is no text");
      trace.columns.push_back(s.get<std::string>());
    }
    if (e.at("shapes").size() > kMostRows) refuse("lists too many shapes");
    for (const Json& s : e.at("shapes")) {
      if (!s.is_object() || !s.contains("count") || !s.at("count").is_number_unsigned() ||
          !s.contains("extents") || !s.at("extents").is_array() ||
          s.at("extents").size() != trace.columns.size() ||
          s.at("count").get<uint64_t>() > static_cast<uint64_t>(kMostCounted))
        refuse("lists a shape without its extents or its count");
      std::vector<int64_t> row;
      for (const Json& extent : s.at("extents")) {
        // What no input told is -1.
        const bool fits = extent.is_number_unsigned()
                              ? extent.get<uint64_t>() <= static_cast<uint64_t>(kLargestSize)
                              : extent.is_number_integer() && extent.get<int64_t>() == -1;
        if (!fits) refuse("tells an extent that is none");
        row.push_back(extent.get<int64_t>());
      }
      const auto count = s.at("count").get<int64_t>();
      if (count == 0 || std::ranges::any_of(row, [](int64_t n) { return n < 0; })) continue;
      trace.counts[std::move(row)] += count;
      trace.total += count;
    }
    break;
  }
  if (trace.total == 0)
    throw Error(
        Status::kInvalidArgument, file,
        entry.empty() ? "tells of no run" : fmt::format("tells of no run of {}", printable(entry)),
        "count with record_shapes in the session's options");
  return trace;
}

MetShapesReport count_met_shapes(db::Store& store, const MetShapesOptions& options) {
  MetShapesReport report;
  require_cpu(kernels::target_by_name(options.model.target), "shapes are counted");
  const kernels::TargetInfo target = tuning_machine(options.model.target).target;
  Trace trace;
  std::vector<ModelPoint> rows;
  const auto points = [&](const ir::Module& typed) {
    const std::vector<std::string> symbols = model_symbols(typed);
    trace = read_record(options, symbols);
    for (const std::string& column : trace.columns)
      if (std::ranges::find(symbols, column) == symbols.end())
        throw Error(Status::kInvalidArgument, options.file,
                    fmt::format("counts {}, which is no symbol of the model", printable(column)),
                    fmt::format("the model has {}", fmt::join(symbols, ", ")));
    std::vector<WeightedPoint> out;
    for (const auto& [row, count] : trace.counts) {
      ModelPoint at;
      for (size_t c = 0; c < row.size(); ++c) at[trace.columns[c]] = row[c];
      rows.push_back(at);
      WeightedPoint p{std::move(at)};
      p.weight = static_cast<double>(count) / static_cast<double>(trace.total);
      p.representative = out.empty();
      out.push_back(std::move(p));
    }
    return out;
  };
  const ModelTasks model = tasks_of_model(options.model, target, points, &report.left_out);
  report.runs = trace.total;
  const std::vector<int64_t> threads = threads_of(options.model, target);
  const db::Machine machine = db::host_machine();
  const std::string source =
      options.source.empty()
          ? machine.hostname + ":" +
                std::filesystem::absolute(options.file).lexically_normal().string()
          : options.source;
  store.transaction([&] {
    const db::Hash hardware = store.put(db::host_hardware());
    for (const TuningTask& task : model.tasks) {
      const std::vector<std::string>& names = task.workload().contract.symbols;
      const PossibleSizes possible(task.workload());
      std::map<db::Dims, int64_t> met;
      int64_t runs = 0;
      size_t i = 0;
      for (const auto& [row, count] : trace.counts) {
        const ModelPoint& at = rows[i++];
        const auto symbols = workload_symbols(task.use, at, kInsideOne);
        if (!symbols || symbols != workload_symbols(task.use, at, kInsideOther) ||
            !possible.contains(*symbols))
          continue;
        db::Dims dims;
        for (size_t s = 0; s < symbols->size(); ++s) dims[names[s]] = (*symbols)[s];
        met[dims] += count;
        runs += count;
      }
      if (met.empty()) {
        report.left_out.push_back(task.label + ": its shapes do not follow from what was recorded");
        continue;
      }
      for (const int64_t n : threads) {
        MetWorkload w;
        w.workload = store.put(tuned::workload_record(task.workload(), target, n));
        w.label = task.label;
        w.threads = n;
        w.shapes = std::ssize(met);
        w.runs = runs;
        std::vector<db::ShapeCount> counts;
        for (const auto& [dims, count] : met) counts.push_back({w.workload, hardware, dims, count});
        store.tell_shapes(db::uuid_from_hash(db::hash_of_fields("shapes", {source})), counts);
        report.workloads.push_back(std::move(w));
      }
    }
  });
  return report;
}

}  // namespace nimble::tuner
