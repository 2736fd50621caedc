// nimble opt: runs passes on a model and prints the IR.
#include <fmt/format.h>

#include <fstream>
#include <iostream>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/tools/common.h"
#include "vm/base/program.h"

namespace nimble {
namespace {

constexpr char kAbout[] =
    "Runs passes on a model and prints the resulting IR on stdout.\n\n"
    "Examples:\n"
    "  nimble opt model.nir                        the whole pipeline\n"
    "  nimble opt model.nir --passes infer,simplify,fuse\n"
    "  nimble opt model.onnx --passes '' -o model.nir    import only\n"
    "  nimble opt model.nir --print-after fuse --verify --timing";

struct Options {
  tools::ModelArguments model;
  std::string passes, output;
  std::vector<std::string> print_after;
  bool verify = false, timing = false, statistics = false, list = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::string part;
  for (char c : text + ",") {
    if (c != ',') {
      part += c;
    } else if (!part.empty()) {
      out.push_back(part);
      part.clear();
    }
  }
  return out;
}

int list_passes() {
  std::vector<std::vector<std::string>> rows;
  for (const passes::PassInfo& p : passes::all_passes())
    rows.push_back({std::string(p.name), std::string(p.summary)});
  fmt::print("{}\nThe default pipeline:", tools::table(rows));
  for (const std::string& name : passes::default_pipeline()) fmt::print(" {}", name);
  fmt::print("\n");
  return kExitOk;
}

int run(Options& o, bool passes_given) {
  passes::PassContext context;
  context.target = kernels::target_by_name(o.model.target);
  passes::PipelineOptions options;
  if (passes_given) options.passes = split(o.passes);
  options.disabled.insert(o.model.disabled.begin(), o.model.disabled.end());
  options.print_after.insert(o.print_after.begin(), o.print_after.end());
  options.verify = o.verify;
  options.log = &std::cerr;
  std::vector<passes::PassTiming> timings;
  ir::Module m = passes::run_pipeline(tools::import(o.model), context, options, &timings);
  if (o.output.empty())
    std::cout << ir::print(m);
  else
    ir::write_module(m, o.output);
  if (o.timing)
    for (const passes::PassTiming& t : timings)
      fmt::print(stderr, "{:>9.2f} ms  {}\n", t.milliseconds, t.pass);
  if (o.statistics)
    for (const auto& [what, count] : context.statistics)
      fmt::print(stderr, "{:>9}  {}\n", count, what);
  return kExitOk;
}

int main_of(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "nimble opt");
  tools::add_model_arguments(app, o.model);
  app.get_option("MODEL")->required(false);
  auto* passes = app.add_option("--passes", o.passes, "Comma-separated passes, in order");
  app.add_option("--print-after", o.print_after,
                 "Print the IR on stderr after a pass ('all': after each)");
  app.add_option("-o,--output", o.output, "Write text IR (and its constants) here");
  app.add_flag("--verify", o.verify, "Run the IR verifier after each pass");
  app.add_flag("--timing", o.timing, "Print the time of each pass on stderr");
  app.add_flag("--statistics", o.statistics, "Print what the passes did on stderr");
  app.add_flag("--list", o.list, "List the passes");
  try {
    app.parse(argc, argv);
    if (!o.list && o.model.model.empty()) throw CLI::RequiredError("MODEL");
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  return o.list ? list_passes() : run(o, passes->count() > 0);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::tools::run_compiler_program("nimble opt", [&] { return nimble::main_of(argc, argv); });
}
