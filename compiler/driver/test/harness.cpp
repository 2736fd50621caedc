#include "compiler/driver/test/harness.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"
#include "vm/base/cpu.h"
#include "vm/base/half.h"
#include "vm/executable/reader.h"
#include "vm/executable/writer.h"
#include "vm/interpreter/test/runner/remote.h"

namespace nimble::driver::testing {
namespace {

using rt::testing::Remote;

// Around powers of two, vector widths and the tiles of the templates.
constexpr int64_t kAwkward[] = {0, 1, 2, 3, 7, 13, 17, 31, 64, 65, 97, 130};

void store(DType t, uint8_t* to, double v) {
  auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  auto i = static_cast<int64_t>(v);
  switch (t) {
    case DType::kBool:
      return put(static_cast<uint8_t>(v != 0));
    case DType::kI8:
      return put(static_cast<int8_t>(i));
    case DType::kU8:
      return put(static_cast<uint8_t>(i));
    case DType::kI16:
      return put(static_cast<int16_t>(i));
    case DType::kU16:
      return put(static_cast<uint16_t>(i));
    case DType::kI32:
      return put(static_cast<int32_t>(i));
    case DType::kU32:
      return put(static_cast<uint32_t>(i));
    case DType::kI64:
      return put(i);
    case DType::kU64:
      return put(static_cast<uint64_t>(i));
    case DType::kF16:
      return put(f16_from_f32(static_cast<float>(v)));
    case DType::kBF16:
      return put(bf16_from_f32(static_cast<float>(v)));
    case DType::kF32:
      return put(static_cast<float>(v));
    case DType::kF64:
      return put(v);
  }
}

// Far more than any test needs, and soon spent by a program that does not end.
constexpr int64_t kSteps = 1'000'000;
constexpr uint64_t kFuel = 10'000'000, kPortableFuel = 1'000'000'000;

// The constants of a list in the text form of the IR, "f32[2]{1, 2}, i64[0]{}"; parentheses
// around it are those of a tuple.
std::vector<ir::TensorRef> tensors_of(std::string list) {
  if (list.starts_with('(')) list = list.substr(1, list.size() - 2);
  const ir::Module m =
      ir::parse_module("fn @in() { let %v = (" + list + ",); %v }", "an example: " + list);
  std::vector<ir::TensorRef> out;
  for (const ir::Atom& a : m.find("in")->body->bindings.at(0).value->args) {
    NIMBLE_CHECK(a.is_constant(), "\"{}\" is not a list of constants", list);
    out.push_back(a.constant);
  }
  return out;
}

double precision(DType t) {
  return t == DType::kF16 ? 2e-3 : t == DType::kBF16 ? 1.6e-2 : 0;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Program& p) {
  return out << p.name;
}

CompileOptions options_of(const Configuration& c) {
  CompileOptions options;
  options.target = kernels::target_by_name(c.target);
  if (!c.image.empty()) options.more_targets = {kernels::target_by_name(c.image)};
  options.device = c.device;
  options.precision = c.precision;
  options.winograd = c.winograd;
  options.pipeline.verify = true;
  if (!c.disabled_pass.empty()) options.pipeline.disabled.insert(c.disabled_pass);
  options.pipeline.fusion = c.fusion;
  options.pipeline.reserialise = c.reserialise;
  if (c.residues) options.tuned = &full_residues();
  options.optimize = c.optimize;
  options.compile_threads = 1;
  return options;
}

std::shared_ptr<const rt::Model> load(exec::Executable e, const Configuration& c) {
  if (!c.image.empty() && !e.images.empty()) {
    EXPECT_EQ(e.images.size(), 2u);
    std::erase_if(e.images, [&](const exec::NativeImage& i) { return i.target != c.image; });
    EXPECT_EQ(e.images.size(), 1u);
  }
  if (c.round_trip) e = exec::deserialize(exec::serialize(e));
  rt::LoadOptions trusted;
  trusted.trust = !c.no_native;
  return rt::Model::load(std::move(e), trusted, "test");
}

std::vector<ir::TensorRef> run_session(rt::Session& session, const std::string& entry,
                                       const std::vector<ir::TensorRef>& inputs) {
  size_t index = session.find_entry(entry);
  std::vector<rt::InputTensor> in;
  for (const ir::TensorRef& t : inputs)
    in.push_back({t->bytes.data(), t->dtype, t->shape, {}, true});
  std::vector<rt::OutputTensor> out(session.plan(index).entry().outputs.size());
  session.run(index, in, out);
  std::vector<ir::TensorRef> results;
  for (const rt::OutputTensor& o : out) {
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(o.dtype, {o.shape().begin(), o.shape().end()}, &data);
    int64_t expected = 1;  // outputs of the VM are dense
    for (int32_t a = o.rank; a-- > 0;) {
      EXPECT_TRUE(o.extents[a] <= 1 || o.strides[a] == expected);
      expected *= o.extents[a];
    }
    if (!t->bytes.empty()) std::memcpy(data, o.data, t->bytes.size());
    results.push_back(std::move(t));
  }
  return results;
}

std::vector<std::string> symbols_of(const ir::Function& f) {
  std::vector<std::string> out;
  for (const ir::VarRef& p : f.parameters)
    for (const ir::Dim& d : p->type->dims)
      for (const std::string& s : d.symbols())
        if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  return out;
}

std::vector<Sizes> sizes_of(const Program& p, const ir::Function& f, size_t limit) {
  std::vector<Sizes> all = p.sizes;
  std::vector<std::string> symbols = symbols_of(f);
  if (all.empty() && symbols.empty()) all.push_back({});
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(p.name)));
  if (all.empty())
    for (const std::string& varied : symbols)
      for (int64_t size : kAwkward) {
        Sizes s;
        for (const std::string& name : symbols)
          s[name] =
              std::max(p.smallest, name == varied ? size : static_cast<int64_t>(1 + random() % 5));
        all.push_back(std::move(s));
      }
  if (all.size() <= limit) return all;
  std::vector<Sizes> some;
  size_t start = random() % all.size();
  for (size_t i = 0; i < limit; ++i)
    some.push_back(all[(start + i * all.size() / limit) % all.size()]);
  return some;
}

std::vector<ir::TensorRef> random_inputs(const Program& p, const ir::Function& f,
                                         const Sizes& sizes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<ir::TensorRef> out;
  for (const ir::VarRef& v : f.parameters) {
    std::vector<int64_t> shape;
    for (const ir::Dim& d : v->type->dims)
      shape.push_back(d.evaluate([&](const std::string& s) -> std::optional<int64_t> {
        auto it = sizes.find(s);
        return it == sizes.end() ? std::nullopt : std::optional(it->second);
      }));
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(v->type->dtype, shape, &data);
    auto it = p.special.find(v->name);
    Range r = it == p.special.end() ? p.values : it->second;
    if (is_unsigned_int(t->dtype)) r.low = std::max(r.low, 0.0);
    std::uniform_real_distribution<double> real(r.low, r.high);
    std::uniform_int_distribution<int64_t> integer(static_cast<int64_t>(r.low),
                                                   static_cast<int64_t>(r.high));
    for (int64_t i = 0; i < t->elements(); ++i)
      store(t->dtype, data + static_cast<size_t>(i) * size_of(t->dtype),
            t->dtype == DType::kBool ? static_cast<double>(random() % 2)
            : is_float(t->dtype)     ? real(random)
                                     : static_cast<double>(integer(random)));
    out.push_back(std::move(t));
  }
  return out;
}

std::string difference_of(const std::vector<ir::TensorRef>& got,
                          const std::vector<ir::TensorRef>& expected, double tolerance) {
  if (got.size() != expected.size())
    return fmt::format("{} results for {}", got.size(), expected.size());
  for (size_t r = 0; r < got.size(); ++r) {
    const ir::Tensor &a = *got[r], &b = *expected[r];
    if (a.dtype != b.dtype || a.shape != b.shape)
      return fmt::format("result {} is {}[{}], not {}[{}]", r, nimble::name_of(a.dtype),
                         fmt::join(a.shape, ", "), nimble::name_of(b.dtype),
                         fmt::join(b.shape, ", "));
    const double bound = tolerance + precision(a.dtype);
    for (int64_t i = 0; i < a.elements(); ++i) {
      bool same;
      if (!is_float(a.dtype)) {
        same = a.integer(i) == b.integer(i);
      } else {
        const double x = a.value(i), y = b.value(i);
        same = std::isnan(y)   ? std::isnan(x)
               : std::isinf(y) ? x == y
                               : std::abs(x - y) <= bound * std::max(1.0, std::abs(y));
      }
      if (!same)
        return fmt::format("result {}, element {}: {} for {}", r, i, a.value(i), b.value(i));
    }
  }
  return "";
}

void expect_close(const std::vector<ir::TensorRef>& got, const std::vector<ir::TensorRef>& expected,
                  double tolerance) {
  ASSERT_EQ(difference_of(got, expected, tolerance), "");
}

Compiled::Compiled(const ir::Module& module, const Configuration& c)
    : typed_(ir::infer_types(module)) {
  exec::Executable executable = driver::compile(module, options_of(c), &report_);
  const auto level = architecture_of_level(c.target);
  if (level && level != host_architecture() && !c.no_native) {
    remote_ = true;
    NIMBLE_CHECK(Remote::get() != nullptr, "{} runs nowhere", c.target);
    Remote::get()->load_model(exec::serialize(executable), c.threads, kFuel);
    return;
  }
  model_ = load(std::move(executable), c);
  rt::SessionOptions options;
  options.threads = c.threads;
  options.fuel = c.no_native ? kPortableFuel : kFuel;
  session_ = std::make_unique<rt::Session>(model_, options);
}

std::vector<ir::TensorRef> Compiled::run(const std::string& entry,
                                         const std::vector<ir::TensorRef>& inputs) {
  if (!remote_) return run_session(*session_, entry, inputs);
  std::vector<Remote::Tensor> in;
  for (const ir::TensorRef& t : inputs) {
    const auto* bytes = reinterpret_cast<const char*>(t->bytes.data());
    in.push_back({t->dtype, t->shape, {bytes, t->bytes.size()}});
  }
  std::vector<ir::TensorRef> results;
  for (const Remote::Tensor& o : Remote::get()->run_model(entry, in)) {
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(o.dtype, o.shape, &data);
    if (!t->bytes.empty()) std::memcpy(data, o.bytes.data(), t->bytes.size());
    results.push_back(std::move(t));
  }
  return results;
}

void Compiled::check(const Program& p, const Sizes& sizes, unsigned seed,
                     const std::string& entry) {
  std::string trace;
  for (const auto& [s, v] : sizes) trace += s + " = " + std::to_string(v) + " ";
  SCOPED_TRACE(trace);
  std::vector<ir::TensorRef> inputs = random_inputs(p, *typed_.find(entry), sizes, seed);
  std::vector<ir::TensorRef> expected;
  try {
    reference::Limits limits;
    limits.max_steps = kSteps;
    expected = reference::Interpreter(typed_, limits).run_tensors(entry, inputs);
  } catch (const Error& refused) {
    try {
      run(entry, inputs);
      ADD_FAILURE() << "ran, but the reference says: " << refused.what();
    } catch (const Error& e) {
      if (refused.status() == Status::kExhausted)
        EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
      else
        EXPECT_TRUE(e.status() == Status::kFatal || e.status() == Status::kInvalidArgument)
            << e.what();
    }
    return;
  }
  std::vector<ir::TensorRef> got;
  try {
    got = run(entry, inputs);
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  expect_close(got, expected, p.tolerance);
}

void Compiled::check_example(const Program& p, const Example& example) {
  SCOPED_TRACE("in: " + example.inputs);
  const std::vector<ir::TensorRef> inputs = tensors_of(example.inputs);
  if (!example.fails) {
    const std::vector<ir::TensorRef> results = tensors_of(example.results);
    expect_close(run("main", inputs), results, p.tolerance);
    expect_close(reference::Interpreter(typed_).run_tensors("main", inputs), results, p.tolerance);
    return;
  }
  try {
    run("main", inputs);
    ADD_FAILURE() << "it ran";
  } catch (const Error& e) {
    EXPECT_TRUE(e.status() == Status::kFatal || e.status() == Status::kInvalidArgument ||
                e.status() == Status::kExhausted)
        << e.what();
    EXPECT_NE(std::string(e.what()).find(example.results), std::string::npos) << e.what();
  }
}

void check_program(const Program& p, const Configuration& c, size_t limit) {
  SCOPED_TRACE(p.name + " under " + c.name);
  try {
    Compiled compiled(ir::parse_module(p.text, p.name), c);
    for (const Example& example : p.examples) compiled.check_example(p, example);
    unsigned seed = 1;
    for (const Sizes& s : sizes_of(p, *compiled.typed().find("main"), limit)) {
      compiled.check(p, s, ++seed);
      if (::testing::Test::HasFailure()) return;
    }
  } catch (const Error& e) {
    FAIL() << e.what();
  }
}

}  // namespace nimble::driver::testing
