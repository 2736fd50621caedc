#include "tuner/tools/dispatch_shapes.h"

#include <iostream>

#include "compiler/tools/targets.h"
#include "db/store/host_records.h"
#include "db/store/open_existing.h"
#include "vm/arguments/command_line.h"
#include "vm/base/printable.h"

namespace nimble::tools {
namespace {

constexpr char kFooter[] =
    "The file is what nimble run --record-shapes wrote, any table with a column called count, or\n"
    "the JSON of nimble_session_shapes_json. Counts of one source only grow: adding a file again,\n"
    "or when it is longer, counts nothing twice. nimble db show shapes lists what was met, and\n"
    "nimble db show misses what no table serves.\n\n"
    "Example:\n"
    "  nimble run model.nimble -i x=random:3x7 --record-shapes shapes.tsv\n"
    "  nimble dispatch shapes model.onnx --add shapes.tsv --db tuning.db";

constexpr int64_t kMostShapes = 1'000'000;

}  // namespace

void DispatchShapesCommand::add(CLI::App& sub, const std::string& database) {
  database_ = &database;
  arguments_.add_model(sub, options_.model);
  sub.add_option("--add", options_.file, "Shapes of runs, with how often each was met")
      ->required()
      ->type_name("FILE");
  sub.add_option("--entry", options_.entry,
                 "Of JSON: the entry point (default: the first that has named dims)")
      ->type_name("NAME");
  sub.add_option("--source", options_.source,
                 "Whose counts they are, for example a server's name and a day (default: this\n"
                 "host's name and the file's)")
      ->type_name("NAME");
  sub.add_option("--threads", options_.model.threads,
                 "Thread counts that it runs with: 1,2 (default: all cores)")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  sub.add_option("--target", options_.model.target, machine_target_names())
      ->capture_default_str()
      ->check(one_target());
  add_format(sub, &format_);
  sub.footer(kFooter);
}

int DispatchShapesCommand::run() {
  arguments_.read(options_.model);
  const auto store = db::open_to_write(*database_);
  const tuner::MetShapesReport report = tuner::count_met_shapes(*store, options_);
  Table out({{"label", "workload"},
             "threads",
             "shapes",
             "runs",
             {"without_table", "without table"},
             {"not_measured", "not measured"}});
  const db::Hash hardware = db::key_of(db::host_hardware());
  for (const tuner::MetWorkload& w : report.workloads) {
    int64_t without_table = 0, not_measured = 0;
    for (const db::MetShape& m : store->met_shapes(w.workload, false, kMostShapes)) {
      if (m.hardware != hardware) continue;
      without_table += !m.has_table;
      not_measured += !m.is_measured;
    }
    out.add({printable(w.label), w.threads, w.shapes, w.runs, without_table, not_measured});
  }
  out.print(std::cout, format_);
  for (const std::string& reason : report.left_out)
    std::cerr << "left out: " << printable(reason) << '\n';
  return kExitOk;
}

}  // namespace nimble::tools
