#include "compiler/passes/pipeline.h"

#include <chrono>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace nimble::passes {

const std::vector<std::string>& default_pipeline() {
  static const std::vector<std::string> kPasses = {
      // Understand: every dim named, every constant known.
      "infer",
      "simplify",
      "fold-constants",
      "propagate-constants",
      "infer",
      "simplify",
      "fold-constants",
      "eliminate-common",
      "eliminate-dead",
      // Recognise what has a kernel of its own.
      "fuse-attention",
      "recognise-cells",
      "hoist-projections",
      "merge-products",
      "infer",
      "fold-constants",
      "pack-weights",
      "infer",
      "fold-constants",
      "eliminate-common",
      "eliminate-dead",
      // Kernels.
      "fuse",
      // Memory and shapes become explicit: from here on the order of bindings matters.
      "lower-memory",
      "plan-memory",
      "lower-shapes",
  };
  return kPasses;
}

const std::vector<PassInfo>& all_passes() {
  static const std::vector<PassInfo> kAll = {
#define NIMBLE_PASS(name, function, summary) {name, function, summary},
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

// Without these no module reaches the emitter; all others only make it better.
const std::set<std::string> kRequired = {"infer", "fuse", "lower-memory", "lower-shapes"};

void check_names(const PipelineOptions& options) {
  auto known = [](const std::string& name) {
    if (find_pass(name)) return;
    std::string names;
    for (const PassInfo& p : all_passes())
      names += (names.empty() ? "" : ", ") + std::string(p.name);
    throw Error(Status::kInvalidArgument, "pass " + name, "there is no such pass",
                "the passes are " + names);
  };
  for (const std::string& p : options.passes) known(p);
  for (const std::string& p : options.disabled) {
    known(p);
    if (kRequired.count(p))
      throw Error(Status::kInvalidArgument, "pass " + p, "this pass cannot be disabled",
                  "every other pass can");
  }
  for (const std::string& p : options.print_after)
    if (p != "all") known(p);
}

// Whether every variable has a type: a pass may leave new ones to the next inference.
bool is_typed(const ir::Module& m) {
  bool typed = true;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&](const ir::Binding& b) { typed &= b.var->type != nullptr; });
  return typed;
}

void verify_after(const ir::Module& m, const std::string& pass) {
  if (!is_typed(m)) return;
  std::vector<std::string> faults = ir::verify(m);
  if (!faults.empty())
    NIMBLE_UNREACHABLE("the module is malformed after pass '{}': {} ({} faults)", pass, faults[0],
                       faults.size());
}

}  // namespace

ir::Module infer(const ir::Module& m, PassContext&) {
  return ir::infer_types(m);
}

ir::Module run_pipeline(ir::Module m, PassContext& context, const PipelineOptions& options,
                        std::vector<PassTiming>* timings) {
  check_names(options);
  for (const std::string& name : options.passes) {
    if (options.disabled.count(name)) continue;
    auto begin = std::chrono::steady_clock::now();
    m = find_pass(name)->run(m, context);
    std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
    if (timings) timings->push_back({name, spent.count()});
    if (options.log && (options.print_after.count(name) || options.print_after.count("all")))
      *options.log << "// after " << name << "\n" << ir::print(m) << "\n";
    if (options.verify) verify_after(m, name);
  }
  return m;
}

}  // namespace nimble::passes
