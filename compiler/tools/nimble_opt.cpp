// nimble opt: runs passes on a model and prints the IR.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/support/crash.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/tools/model_arguments.h"
#include "compiler/tools/records.h"
#include "compiler/tools/targets.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/file.h"

namespace nimble {
namespace {

constexpr char kAbout[] =
    "Runs passes on a model and prints the resulting IR on stdout.\n\n"
    "Text IR may come from stdin (-). A file that a crash left (nimble-crash-….nir) names its own\n"
    "passes in its first line, // RUN-PIPELINE: …; options given here count more.\n\n"
    "Examples:\n"
    "  nimble opt model.nir                        the whole pipeline\n"
    "  nimble opt model.nir --passes infer,simplify,fuse\n"
    "  nimble opt model.onnx --passes '' -o model.nir    import only\n"
    "  nimble opt - --passes infer < model.nir\n"
    "  nimble opt model.nir --print-after fuse --verify --timing\n"
    "  nimble opt nimble-crash-pass-fuse-4711.nir";

struct Options {
  tools::ModelArguments model;
  std::string passes, output;
  std::vector<std::string> print_after;
  bool verify = false, timing = false, statistics = false, list = false;
  Format format = Format::kTable;
  bool no_fusion = false, reserialise = false, passes_given = false;
};

int list_passes(Format format) {
  Table table({"pass",
               {"required", [](const Table::Json& r) { return r.get<bool>() ? "yes" : ""; }},
               {"default", "places in the default pipeline",
                [](const Table::Json& places) {
                  std::string text;
                  for (const Table::Json& p : places) text += (text.empty() ? "" : ", ") + p.dump();
                  return text;
                }},
               {"summary", "what it does"}});
  std::map<std::string, std::vector<size_t>> places;
  size_t place = 0;
  for (const std::string& name : passes::default_pipeline()) places[name].push_back(++place);
  for (const passes::PassInfo& p : passes::all_passes())
    table.add({p.name, p.need == passes::Need::kRequired, places[std::string(p.name)], p.summary});
  table.print(std::cout, format);
  return kExitOk;
}

bool is_text(const std::string& model) {
  return model == "-" || std::filesystem::path(model).extension() == ".nir";
}

// stdin can be read once, but its options are wanted before its module.
const std::string& text_of(const std::string& model) {
  static const std::string text = [&] {
    if (model != "-") return read_text_file(model);
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }();
  return text;
}

// Lowered IR has its types written out; inference knows the language before lowering only.
bool is_lowered(const ir::Module& m) {
  bool lowered = false;
  for (const auto& [name, f] : m.functions)
    passes::visit_bindings(
        *f->body, [&](const ir::Binding& b) { lowered |= b.value->op.starts_with("memory."); });
  return lowered;
}

ir::Module load(const Options& o) {
  if (!is_text(o.model.model)) return tools::import(o.model);
  const bool file = o.model.model != "-";
  const std::string side = file ? ir::side_file_of(o.model.model) : std::string();
  ir::Module m = ir::parse_module(text_of(o.model.model), file ? o.model.model : "<stdin>", side);
  if (passes::reproducer_options(text_of(o.model.model)) || is_lowered(m)) return m;
  if (file) return tools::import(o.model);
  return ir::infer_types(m);
}

int run(const Options& o) {
  // Text may be replaced by what becomes of it; a model of another format would be lost.
  if (!is_text(o.model.model) && is_same_file(o.output, o.model.model))
    throw Error(Status::kInvalidArgument, o.output, "is the model itself", "name another file");
  passes::install_crash_handler(o.model.crash_folder);
  passes::PassContext context = tools::pass_context(o.model);
  passes::PipelineOptions options;
  if (o.passes_given) options.passes = tools::split(o.passes);
  options.disabled.insert(o.model.disabled.begin(), o.model.disabled.end());
  options.print_after.insert(o.print_after.begin(), o.print_after.end());
  options.verify = o.verify;
  options.fusion = !o.no_fusion;
  options.reserialise = o.reserialise;
  options.log = &std::cerr;
  std::vector<passes::PassTiming> timings;
  ir::Module m = passes::run_pipeline(load(o), context, options, &timings);
  if (o.output.empty() || o.output == "-")
    std::cout << ir::print(m);
  else
    ir::write_module(m, o.output);
  if (o.timing) {
    double all = 0;
    for (const passes::PassTiming& t : timings) {
      fmt::print(stderr, "{:>9.2f} ms  {}\n", t.milliseconds, t.pass);
      all += t.milliseconds;
    }
    fmt::print(stderr, "{:>9.2f} ms  in all\n", all);
  }
  if (o.statistics)
    for (const auto& [what, count] : context.statistics)
      fmt::print(stderr, "{:>9}  {}\n", count, what);
  return kExitOk;
}

// Parses the words into `o`; the exit code if the program ends here.
std::optional<int> parse(std::vector<std::string> words, Options* o) {
  CLI::App app(kAbout, "nimble opt");
  tools::add_model_arguments(app, o->model);
  app.get_option("MODEL")->required(false);
  auto* passes = app.add_option("--passes", o->passes, "Comma-separated passes, in order")
                     ->check(read_by([](const std::string& text) {
                       passes::PipelineOptions options;
                       options.passes = tools::split(text);
                       passes::check_pass_names(options);
                     }));
  app.add_option("--print-after", o->print_after,
                 "Print the IR on stderr after a pass ('all': after each)")
      ->check(read_by([](const std::string& name) {
        passes::PipelineOptions options;
        options.print_after = {name};
        passes::check_pass_names(options);
      }));
  app.add_option("-o,--output", o->output, "Write text IR (and its constants) here (-: on stdout)");
  app.add_flag("--verify", o->verify, "Run the IR verifier after each pass");
  app.add_flag("--no-fusion", o->no_fusion, "Let the pass fuse give each operator its own kernel");
  app.add_flag("--reserialise", o->reserialise, "Print and parse the module before each pass");
  app.add_flag("--timing", o->timing, "Print the time of each pass on stderr");
  app.add_flag("--statistics", o->statistics, "Print what the passes did on stderr");
  app.add_flag("--list", o->list, "List the passes");
  add_format(app, &o->format, "The list");
  for (const char* once : {"--passes", "--target", "--precision", "--winograd", "--output"})
    app.get_option(once)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (const auto code = parse_arguments(app, std::move(words), {kExitStale})) return code;
  if (!o->list && o->model.model.empty()) return usage_error(app, "MODEL is required");
  o->passes_given = passes->count() > 0;
  return std::nullopt;
}

int main_of(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  Options o;
  if (std::optional<int> code = parse(words, &o)) return *code;
  if (o.list) return list_passes(o.format);
  if (is_text(o.model.model)) {
    if (auto all = passes::reproducer_options(text_of(o.model.model))) {
      all->insert(all->end(), words.begin(), words.end());
      o = {};
      if (std::optional<int> code = parse(*all, &o)) return *code;
    }
  }
  return run(o);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::tools::run_compiler_program("nimble opt",
                                             [&] { return nimble::main_of(argc, argv); });
}
