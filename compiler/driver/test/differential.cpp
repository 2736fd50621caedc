#include "compiler/driver/test/differential.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/passes/pipeline.h"
#include "compiler/reference/reference.h"
#include "vm/base/cpu.h"
#include "vm/base/device_number.h"

namespace nimble::driver::testing {
namespace {

using Tensors = std::vector<ir::TensorRef>;

// Around nothing, one, and the widths of vectors.
const std::vector<std::pair<int64_t, int64_t>> kSizes = {{2, 3},  {5, 17}, {1, 1},
                                                         {16, 2}, {0, 4},  {3, 0}};
constexpr double kTolerance = 2e-3, kPerturbation = 1e-6, kLargest = 1e6;

std::string text_of(const Sizes& sizes) {
  std::string out;
  for (const auto& [s, v] : sizes) out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", s, v);
  return out;
}

// The tensor with every float a little off: by a part of itself and, up to it, by `absolute`.
ir::TensorRef perturbed(const ir::TensorRef& t, std::mt19937& random, double absolute) {
  if (t->dtype != DType::kF32 && t->dtype != DType::kF64) return t;
  std::uniform_real_distribution<double> by(-1, 1);
  uint8_t* data = nullptr;
  auto copy = ir::Tensor::make(t->dtype, t->shape, &data);
  for (int64_t i = 0; i < t->elements(); ++i) {
    const double v = t->value(i) * (1 + kPerturbation * by(random)) + absolute * by(random);
    if (t->dtype == DType::kF32)
      reinterpret_cast<float*>(data)[i] = static_cast<float>(v);
    else
      reinterpret_cast<double*>(data)[i] = v;
  }
  return copy;
}

// Operators whose kernels approximate a function or sum in an order of their own. The others give
// the same bits everywhere.
bool rounds(const ir::Expr& call) {
  static const std::set<std::string> kRounding = {"exp",
                                                  "log",
                                                  "rsqrt",
                                                  "tanh",
                                                  "sigmoid",
                                                  "erf",
                                                  "gelu",
                                                  "gelu_tanh",
                                                  "softplus",
                                                  "sin",
                                                  "cos",
                                                  "atan",
                                                  "pow",
                                                  "div",
                                                  "reciprocal",
                                                  "batch_norm",
                                                  "matmul",
                                                  "conv2d",
                                                  "attention",
                                                  "sum",
                                                  "mean",
                                                  "prod",
                                                  "softmax",
                                                  "cumsum",
                                                  "log_softmax",
                                                  "cumprod",
                                                  "l2_normalize",
                                                  "layer_norm",
                                                  "avg_pool2d",
                                                  "packed_matmul",
                                                  "packed_conv2d",
                                                  "blockwise_matmul",
                                                  "packed_groupwise_matmul"};
  return kRounding.contains(call.op) || ir::traits_of(call).cell;
}

// Whether rounding decides something: a small change of the inputs, and of what operators give,
// changes a result much.
bool ill_conditioned(const Tensors& a, const Tensors& b) {
  for (size_t r = 0; r < a.size(); ++r) {
    if (a[r]->shape != b[r]->shape) return true;
    for (int64_t i = 0; i < a[r]->elements(); ++i) {
      if (!is_float(a[r]->dtype)) {
        if (a[r]->integer(i) != b[r]->integer(i)) return true;
        continue;
      }
      const double x = a[r]->value(i), y = b[r]->value(i);
      if (std::isfinite(x) != std::isfinite(y) || std::isnan(x) != std::isnan(y)) return true;
      if (!std::isfinite(x)) continue;
      if (std::abs(x) > kLargest || std::abs(x - y) > kTolerance / 10 * std::max(1.0, std::abs(x)))
        return true;
    }
  }
  return false;
}

Comparison differs(const std::string& where, const std::string& what) {
  return {Verdict::kDiffers, where + ": " + what};
}

// What the run gave, or how it failed.
struct Outcome {
  Tensors results;
  std::optional<Status> failed;
  std::string message;
};
template <class Run>
Outcome attempt(const Run& run) {
  Outcome out;
  try {
    out.results = run();
  } catch (const Error& e) {
    out.failed = e.status();
    out.message = e.what();
  }
  return out;
}

// What a run must do: give the expected results, or fail if there are none. An operator whose value
// nothing needs may fail or not.
struct Experiment {
  Sizes sizes;
  Tensors inputs;
  Outcome expected;
  bool may_fail = false, may_succeed = false;
};

// An experiment for each extent of an input that is an expression: the input has one more there
// than the other inputs make it.
std::vector<Experiment> disagreements(const ir::Module& typed, const Sizes& sizes,
                                      const Tensors& inputs) {
  const ir::FunctionRef main = typed.find("main");
  std::vector<Experiment> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<ir::Dim>& dims = main->parameters[i]->type->dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].as_constant() || dims[d].as_symbol()) continue;
      std::vector<int64_t> shape = inputs[i]->shape;
      ++shape[d];
      uint8_t* data = nullptr;
      Experiment x{sizes, inputs, {}};
      x.inputs[i] = ir::Tensor::make(inputs[i]->dtype, shape, &data);
      std::memset(data, 0, x.inputs[i]->bytes.size());
      x.expected =
          attempt([&] { return reference::Interpreter(typed).run_tensors("main", x.inputs); });
      out.push_back(std::move(x));
    }
  }
  return out;
}

Comparison run_under(const Configuration& c, const ir::Module& module,
                     const std::vector<Experiment>& experiments) {
  std::unique_ptr<Compiled> compiled;
  try {
    compiled = std::make_unique<Compiled>(module, c);
  } catch (const Error& e) {
    if (e.status() == Status::kUnsupported) return {Verdict::kRefused, c.name + ": " + e.what()};
    // A failure that is certain may be told early.
    const auto fails = [](const Experiment& x) { return x.expected.failed || x.may_fail; };
    if (e.status() == Status::kInvalidArgument && std::ranges::all_of(experiments, fails))
      return {Verdict::kRefused, c.name + ": " + e.what()};
    return differs(c.name, std::string("compiling failed: ") + e.what());
  }
  for (const Experiment& x : experiments) {
    const std::string where = c.name + ", " + text_of(x.sizes);
    const Outcome got = attempt([&] { return compiled->run("main", x.inputs); });
    if (x.expected.failed && !got.failed) {
      if (x.may_succeed) continue;
      return differs(where, "ran, but the reference says: " + x.expected.message);
    }
    if (!x.expected.failed && got.failed) {
      if (x.may_fail) continue;
      return differs(where, "failed: " + got.message);
    }
    if (got.failed) {
      if (*got.failed != Status::kFatal && *got.failed != Status::kInvalidArgument)
        return differs(where, "failed in another way: " + got.message);
      continue;
    }
    const std::string difference = difference_of(got.results, x.expected.results, kTolerance);
    if (!difference.empty()) return differs(where, difference);
  }
  return {};
}

Comparison compare_checked(const ir::Module& module,
                           const std::vector<Configuration>& configurations, unsigned seed) {
  ir::Module typed;
  try {
    typed = ir::infer_types(module);
  } catch (const Error& e) {
    if (e.status() == Status::kInternal) return differs("infer", e.what());
    return {Verdict::kRefused, e.what()};
  }
  if (const auto faults = ir::verify(typed); !faults.empty())
    return differs("verify after infer", faults[0]);
  const std::string text = ir::print(typed);
  if (ir::print(ir::parse_module(text)) != text)
    return differs("text", "printing what was parsed from a print gives another text");

  const ir::FunctionRef main = typed.find("main");
  const std::vector<std::string> symbols = symbols_of(*main);
  std::vector<Experiment> experiments;
  size_t skipped = 0;
  for (const auto& [first, second] : kSizes) {
    Experiment x;
    for (size_t i = 0; i < symbols.size(); ++i) x.sizes[symbols[i]] = i % 2 ? second : first;
    Program p;
    p.values = {-1, 1};
    for (const ir::VarRef& v : main->parameters)
      if (!is_float(v->type->dtype)) p.special[v->name] = {0, 1};
    x.inputs = random_inputs(p, *main, x.sizes, seed + static_cast<unsigned>(first));
    const auto reference = [&](const Tensors& inputs, reference::Failures failures,
                               const reference::Interpreter::AfterEach& after_each = {}) {
      reference::Interpreter run(typed, {}, failures);
      run.set_after_each(after_each);
      Outcome out = attempt([&] { return run.run_tensors("main", inputs); });
      x.may_succeed = !run.failed_for_certain();
      return out;
    };
    const auto needed = reference::Failures::kWhereNeeded;
    std::mt19937 random(seed);
    Tensors beside;
    for (const ir::TensorRef& t : x.inputs) beside.push_back(perturbed(t, random, kPerturbation));
    const Outcome other = reference(beside, needed, [&](const ir::Expr& e, const ir::TensorRef& t) {
      return rounds(e) ? perturbed(t, random, 0) : t;
    });
    x.expected = reference(x.inputs, needed);
    if (!x.expected.failed) {
      x.may_fail = reference(x.inputs, reference::Failures::kAtOnce).failed.has_value();
      if (other.failed || ill_conditioned(x.expected.results, other.results)) {
        ++skipped;
        continue;
      }
    } else if (*x.expected.failed == Status::kUnsupported) {
      return {Verdict::kRefused, x.expected.message};
    }
    experiments.push_back(std::move(x));
  }
  if (experiments.empty())
    return {Verdict::kIllConditioned, fmt::format("at all {} sizes", skipped)};
  const Experiment& first = experiments[0];
  for (Experiment& x : disagreements(typed, first.sizes, Tensors(first.inputs))) {
    if (!x.expected.failed)
      return differs("reference, " + text_of(x.sizes), "took inputs whose extents disagree");
    experiments.push_back(std::move(x));
  }
  LoweredModules modules(module);
  for (const Configuration& c : configurations) {
    if (!modules.is_new(c)) continue;
    Comparison r = run_under(c, module, experiments);
    if (r.verdict != Verdict::kAgrees) return r;
  }
  return {};
}

}  // namespace

bool LoweredModules::is_new(const Configuration& c) {
  const bool passes_alone = c.name == "default" || !c.disabled_pass.empty() || !c.fusion;
  if (!passes_alone) return true;
  const CompileOptions options = options_of(c);
  passes::PassContext context;
  context.target = options.target;
  context.device = options.device;
  context.precision = options.precision;
  try {
    const ir::Module lowered =
        passes::run_pipeline(ir::infer_types(module_), context, options.pipeline);
    return seen_.insert(ir::print(lowered, {.inline_constant_elements = INT64_MAX})).second;
  } catch (const Error&) {
    return true;  // compiling it tells why
  }
}

const char* name_of(Verdict v) {
  switch (v) {
    case Verdict::kAgrees:
      return "agrees";
    case Verdict::kRefused:
      return "refused";
    case Verdict::kIllConditioned:
      return "ill-conditioned";
    case Verdict::kDiffers:
      return "differs";
  }
  return "?";
}

Comparison compare(const ir::Module& module, const std::vector<Configuration>& configurations,
                   unsigned seed) {
  try {
    return compare_checked(module, configurations, seed);
  } catch (const Error& e) {
    return differs("comparison", e.what());
  }
}

std::vector<Configuration> all_configurations() {
  std::vector<Configuration> out = {{"default"}};
  for (const passes::PassInfo& p : passes::all_passes()) {
    if (p.need == passes::Need::kRequired) continue;
    Configuration c{"without " + std::string(p.name)};
    c.disabled_pass = p.name;
    out.push_back(std::move(c));
  }
  for (const std::string& level : kernels::machine_levels()) {
    Configuration c{"for " + level};
    c.target = level;
    if (host_cpu().has(level)) out.push_back(c);
    // On a machine without it: its weights are packed as that level wants them.
    c.name += ", no native";
    c.no_native = true;
    out.push_back(std::move(c));
  }
  Configuration optimised{"optimised"};
  optimised.optimize = 2;
  out.push_back(optimised);
  Configuration threads{"two threads"};
  threads.threads = 2;
  out.push_back(threads);
  // The IR through its text before every pass, the executable through its bytes.
  Configuration text{"reserialised"};
  text.reserialise = text.round_trip = true;
  out.push_back(text);
  Configuration apart{"without fusion"};
  apart.fusion = false;
  out.push_back(apart);
  Configuration residues{"a kernel per residue"};
  residues.residues = true;
  out.push_back(residues);
  Configuration checked{"no native"};
  checked.no_native = true;
  out.push_back(checked);
  Configuration portable{"for portable"};
  portable.target = "portable";
  portable.round_trip = true;
  out.push_back(portable);
  Configuration elsewhere{"on the stand-in device"};
  elsewhere.device = kStandInDevice;
  out.push_back(elsewhere);
  return out;
}

std::vector<Configuration> some_configurations(unsigned seed, size_t count) {
  std::vector<Configuration> all = all_configurations();
  std::mt19937 random(seed);
  std::shuffle(all.begin() + 1, all.end(), random);
  all.resize(std::min(all.size(), count + 1));
  return all;
}

}  // namespace nimble::driver::testing
