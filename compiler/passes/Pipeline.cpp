#include "compiler/passes/pipeline.h"

#include <chrono>

#include "compiler/ir/dim_prover_statistics.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/analysis/verify_plan.h"
#include "compiler/passes/fuse.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/crash.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

const std::vector<std::string>& default_pipeline() {
  static const std::vector<std::string> kPasses = {
      // Understand: every dim named, every constant known. An inference stands where passes leave
      // variables without types, or with types that name other symbols, and those below ask for
      // them.
      //
      // Here for a module that nobody has typed: from a text, before `nimble opt`.
      "infer",
      "check-inputs",
      // Functions and patterns of the source become those that the passes below know: global
      // functions, and matches on one constructor at a time.
      "flatten-matches",
      // The matches of a decision tree and its local functions are new; convert-closures reads off
      // types which symbols a function captures.
      "infer",
      "convert-closures",
      // Calls of what were literals bind the symbols that came with captured values.
      "infer",
      "simplify",
      "fold-constants",
      "propagate-constants",
      "batch-recursion",
      // Its steps are written without types; refine-shapes compares those of all calls.
      "infer",
      "refine-shapes",
      "expose-shapes",
      // Operators that were written out, and operators told their counts, have no types; layouts
      // and rules of simplify are chosen by extents.
      "infer",
      "lay-out-states",
      "simplify",
      "fold-constants",
      "fold-batch-norm",
      "eliminate-common",
      "eliminate-dead",
      // Recognise what has a kernel of its own.
      "fuse-attention",
      "simplify",
      "recognise-activations",
      "merge-scales",
      "recognise-cells",
      "hoist-projections",
      "merge-products",
      "stack-products",
      // Loops took parameters and products rows of others: extents are new, and expand-attention
      // asks which of them are known.
      "infer",
      "expand-attention",
      "expand-cells",
      // What the passes above replaced: weights that nobody reads are not laid out.
      "eliminate-dead",
      // Behind all that recognises formulas by the axes that exporters give them; the weights'
      // transposes are folded next.
      "channels-last",
      "fold-constants",
      "expand-padding",
      // Of weights as they are packed next.
      "set-precision",
      "store-images",
      "quantise-products",
      "quantise-weights",
      "use-winograd",
      "pack-weights",
      "widen-products",
      "expand-blockwise",
      // A packed matrix has the type of its layout, which its kernels' workloads need.
      "infer",
      "fold-constants",
      "eliminate-common",
      "repeat-widening",
      // Of weights as they were narrowed; what the loops began with is dead.
      "join-steps",
      "eliminate-dead",
      "grow-tensors",
      // Kernels.
      "fuse",
      "place-devices",
      // Memory and shapes become explicit: from here on the order of bindings matters.
      "lower-memory",
      "write-through",
      "join-in-place",
      "update-in-place",
      "plan-memory",
      "lower-shapes",
  };
  return kPasses;
}

const std::vector<PassInfo>& all_passes() {
  static const std::vector<PassInfo> kAll = {
#define NIMBLE_PASS(name, function, need, summary) {name, function, summary, Need::need},
#include "compiler/passes/Passes.def"
#undef NIMBLE_PASS
  };
  return kAll;
}

const PassInfo* find_pass(std::string_view name) {
  for (const PassInfo& p : all_passes())
    if (p.name == name) return &p;
  return nullptr;
}

namespace {

const PassInfo* pass_of(const PipelineOptions& options, std::string_view name) {
  static const PassInfo kApart = {"fuse", fuse_nothing, "Gives every operator a kernel of its own.",
                                  Need::kRequired};
  for (const PassInfo& p : options.extra_passes)
    if (p.name == name) return &p;
  return name == "fuse" && !options.fusion ? &kApart : passes::find_pass(name);
}

// pack-weights leaves constants to fold-constants that no kernel makes: without the latter nothing
// is packed.
bool is_left_out(const PipelineOptions& options, const std::string& name) {
  return options.disabled.count(name) > 0 ||
         (name == "pack-weights" && options.disabled.count("fold-constants") > 0);
}

// The names of the passes that `is_wanted` takes, "infer, check-inputs".
template <typename Predicate>
std::string names_of(Predicate is_wanted) {
  std::string names;
  for (const PassInfo& p : all_passes())
    if (is_wanted(p)) names += (names.empty() ? "" : ", ") + std::string(p.name);
  return names;
}

}  // namespace

void check_pass_names(const PipelineOptions& options) {
  auto known = [&](const std::string& name) {
    if (pass_of(options, name)) return;
    throw Error(Status::kInvalidArgument, "pass " + name, "there is no such pass",
                "the passes are " + names_of([](const PassInfo&) { return true; }));
  };
  for (const std::string& p : options.passes) known(p);
  for (const std::string& p : options.disabled) {
    known(p);
    if (pass_of(options, p)->need == Need::kRequired)
      throw Error(
          Status::kInvalidArgument, "pass " + p, "this pass cannot be disabled",
          "these can be: " + names_of([](const PassInfo& i) { return i.need == Need::kOptional; }));
  }
  for (const std::string& p : options.print_after)
    if (p != "all") known(p);
}

namespace {

// Whether every variable has a type: a pass may leave new ones to the next inference.
bool is_typed(const ir::Module& m) {
  bool typed = true;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&](const ir::Binding& b) {
      typed &= b.var->type != nullptr;
      for (const ir::MatchCase& c : b.value->cases)
        for (const ir::VarRef& v : ir::variables_of(c.pattern)) typed &= v->type != nullptr;
    });
  return typed;
}

void verify_after(const ir::Module& m, const std::string& pass) {
  if (!is_typed(m)) return;
  std::vector<std::string> faults = ir::verify(m);
  if (!faults.empty())
    NIMBLE_UNREACHABLE("the module is malformed after pass '{}': {} ({} faults)", pass, faults[0],
                       faults.size());
}

void verify_plan_after(const ir::Module& m, const std::string& pass, PassContext& context) {
  const PlanReport report = verify_plan(m);
  if (!report.faults.empty())
    NIMBLE_UNREACHABLE("the memory plan is wrong after pass '{}': {} ({} faults)", pass,
                       report.faults[0], report.faults.size());
  context.statistics["verify-plan.proved_sizes"] = report.proved_sizes;
  context.statistics["verify-plan.checked_sizes"] = report.checked_sizes;
}

#ifdef NDEBUG
constexpr bool kVerifyPlans = false;
#else
constexpr bool kVerifyPlans = true;
#endif

ir::Module reserialised(const ir::Module& m, const std::string& before) {
  ir::PrintOptions whole;
  whole.inline_constant_elements = INT64_MAX;
  const std::string text = ir::print(m, whole);
  ir::ParseResult parsed = ir::parse_text(text, "before pass " + before);
  if (!parsed.diagnostics.empty())
    NIMBLE_UNREACHABLE("what was printed before pass '{}' does not parse: {}", before,
                       parsed.diagnostics[0].str());
  const std::string again = ir::print(parsed.module, whole);
  NIMBLE_CHECK(again == text, "the text before pass '{}' does not print as it was parsed", before);
  return std::move(parsed.module);
}

}  // namespace

ir::Module infer(const ir::Module& m, PassContext&) {
  return ir::infer_types(m);
}

std::string command_options(const PipelineOptions& options, size_t first_pass,
                            const PassContext& context) {
  std::string passes;
  for (size_t i = first_pass; i < options.passes.size(); ++i)
    if (!is_left_out(options, options.passes[i]))
      passes += (passes.empty() ? "" : ",") + options.passes[i];
  std::string out = "--passes " + passes;
  if (!context.target.level.empty()) out += " --target " + context.target_names();
  if (context.precision != Precision{})
    out += fmt::format(" --precision {}", name_of(context.precision));
  if (context.winograd != 0) out += fmt::format(" --winograd {}", context.winograd);
  if (!options.fusion) out += " --no-fusion";
  if (options.verify) out += " --verify";
  if (options.reserialise) out += " --reserialise";
  return out;
}

ir::Module run_pipeline(ir::Module m, PassContext& context, const PipelineOptions& options,
                        std::vector<PassTiming>* timings) {
  check_pass_names(options);
  bool planned = false;
  for (size_t i = 0; i < options.passes.size(); ++i) {
    const std::string& name = options.passes[i];
    if (is_left_out(options, name)) continue;
    if (options.reserialise) m = reserialised(m, name);
    const CrashScope scope(m, "pass '" + name + "'", command_options(options, i, context));
    auto begin = std::chrono::steady_clock::now();
    const int64_t exhausted = ir::exhausted_questions();
    m = pass_of(options, name)->run(m, context);
    if (const int64_t more = ir::exhausted_questions() - exhausted)
      context.count("dims.exhausted-questions", more);
    std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
    if (timings) timings->push_back({name, spent.count()});
    if (options.log && (options.print_after.count(name) || options.print_after.count("all")))
      *options.log << "// after " << name << "\n" << ir::print(m) << "\n";
    if (options.verify) verify_after(m, name);
    planned |= name == "plan-memory";
    if (planned && (options.verify || kVerifyPlans)) verify_plan_after(m, name, context);
  }
  return m;
}

}  // namespace nimble::passes
