// Runs templates' kernels on random tensors and compares them with plain loops.
//
// A case is a function in text IR. Its canonical workload is lowered by the template that serves
// it, under its default and under sampled configurations, and every kernel is run at many sizes
// of the workload's symbols with one thread and with several. Tensors have the canonical shapes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/test/argument_memory.h"
#include "compiler/kernels/test/exhaustive.h"
#include "vm/base/half.h"

namespace nimble::kernels::testing {

// A tensor of doubles; integers and bools are exact in them.
struct Array {
  std::vector<int64_t> shape;
  std::vector<double> v;

  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  int64_t dim(size_t i) const { return shape[i]; }
  double& operator[](int64_t i) { return v[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return v[static_cast<size_t>(i)]; }
  template <typename... I>
  double& at(I... index) {
    return v[offset({static_cast<int64_t>(index)...})];
  }
  template <typename... I>
  double at(I... index) const {
    return v[offset({static_cast<int64_t>(index)...})];
  }
  size_t offset(std::initializer_list<int64_t> index) const {
    int64_t o = 0;
    size_t i = 0;
    for (int64_t x : index) o = o * shape[i++] + x;
    return static_cast<size_t>(o);
  }
};

using Arrays = std::vector<Array>;
// What an in/out argument holds beforehand, exact in all types.
inline constexpr double kElsewhere = 3;
// Fills `out`, whose shapes are set, from `in`.
using Oracle = std::function<void(const Arrays& in, Arrays& out)>;
using Sizes = std::vector<std::vector<int64_t>>;  // each: values of the workload's symbols

// Runs a kernel; the interpreter or native code.
using Runner =
    std::function<int32_t(const kir::Function& f, std::span<const std::span<std::byte>> buffers,
                          std::span<const int64_t> symbols, int threads)>;
inline int32_t interpret(const kir::Function& f, std::span<const std::span<std::byte>> buffers,
                         std::span<const int64_t> symbols, int threads) {
  return kir::Interpreter(f).run(buffers, symbols, threads);
}

struct Case {
  std::string text;
  std::string served_by;
  Oracle oracle;
  Sizes sizes;
  double tolerance = 1e-5;    // relative to max(1, |expected|)
  double low = -2, high = 2;  // of random inputs
  int configurations = 50;    // sampled ones, besides the default
  std::vector<Config> also;   // configurations that are not left to chance
};

// The group that the program of one function becomes. What it asserts of extents stays outside of
// a group.
inline Workload workload_of(const std::string& text) {
  const ir::Module m = ir::infer_types(ir::parse_module(text));
  auto group = std::make_shared<ir::Function>(*m.functions.at(0).second);
  auto body = std::make_shared<ir::Block>();
  std::map<const ir::Var*, ir::Atom> unchecked;
  const auto resolve = [&](const ir::Atom& a) {
    const auto it = a.is_var() ? unchecked.find(a.var.get()) : unchecked.end();
    return it == unchecked.end() ? a : it->second;
  };
  for (const ir::Binding& b : group->body->bindings) {
    auto e = std::make_shared<ir::Expr>(*b.value);
    for (ir::Atom& a : e->args) a = resolve(a);
    if (e->op == "assert_shape")
      unchecked[b.var.get()] = e->args[0];
    else
      body->bindings.push_back({b.var, std::move(e)});
  }
  body->result = resolve(group->body->result);
  group->body = std::move(body);
  return make_workload(*group);
}

inline TargetInfo test_target(int vector_bits, int registers) {
  TargetInfo t;
  t.level = vector_bits == 512 ? "x86-64-v4" : vector_bits == 256 ? "x86-64-v3" : "x86-64-v2";
  t.vector_bits = vector_bits;
  t.vector_registers = registers;
  return t;
}

inline void to_bytes(const Array& a, DType t, std::vector<std::byte>& out) {
  out.resize(std::max<size_t>(1, a.v.size() * size_of(t)));
  const auto put = [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < a.v.size(); ++i) {
      const T x = static_cast<T>(a.v[i]);
      std::memcpy(out.data() + i * sizeof(T), &x, sizeof(T));
    }
  };
  switch (t) {
    case DType::kBool:
    case DType::kU8:
      return put(uint8_t{});
    case DType::kI8:
      return put(int8_t{});
    case DType::kI16:
      return put(int16_t{});
    case DType::kU32:
      return put(uint32_t{});
    case DType::kU64:
      return put(uint64_t{});
    case DType::kI32:
      return put(int32_t{});
    case DType::kI64:
      return put(int64_t{});
    case DType::kF32:
      return put(float{});
    case DType::kF64:
      return put(double{});
    case DType::kF16:
    case DType::kBF16:
      for (size_t i = 0; i < a.v.size(); ++i) {
        const auto v = static_cast<float>(a.v[i]);
        const uint16_t x = t == DType::kF16 ? f16_from_f32(v) : bf16_from_f32(v);
        std::memcpy(out.data() + i * 2, &x, 2);
      }
      return;
    default:
      FAIL() << "no test values of " << name_of(t);
  }
}

inline void from_bytes(std::span<const std::byte> bytes, DType t, Array& a) {
  a.v.resize(static_cast<size_t>(a.size()));
  const auto get = [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < a.v.size(); ++i) {
      T x;
      std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
      a.v[i] = static_cast<double>(x);
    }
  };
  switch (t) {
    case DType::kBool:
    case DType::kU8:
      return get(uint8_t{});
    case DType::kI8:
      return get(int8_t{});
    case DType::kI16:
      return get(int16_t{});
    case DType::kU32:
      return get(uint32_t{});
    case DType::kU64:
      return get(uint64_t{});
    case DType::kI32:
      return get(int32_t{});
    case DType::kI64:
      return get(int64_t{});
    case DType::kF32:
      return get(float{});
    case DType::kF64:
      return get(double{});
    case DType::kF16:
    case DType::kBF16:
      for (size_t i = 0; i < a.v.size(); ++i) {
        uint16_t x;
        std::memcpy(&x, bytes.data() + i * 2, 2);
        a.v[i] = t == DType::kF16 ? f32_from_f16(x) : f32_from_bf16(x);
      }
      return;
    default:
      FAIL() << "no test values of " << name_of(t);
  }
}

// Runs one implementation at one size.
inline void check_size(const Case& c, const Workload& w, const Lowered& lowered,
                       const std::vector<int64_t>& symbols, int threads, const Runner& run,
                       std::mt19937& random) {
  Arrays in, out;
  std::vector<ArgumentMemory> bytes;
  std::vector<DType> types;
  for (const exec::KernelArgument& a : w.contract.arguments) {
    if (a.kind == exec::KernelArgument::Kind::kScalar) continue;
    Array x;
    for (const exec::DimProgram& d : a.dims) x.shape.push_back(d.evaluate1(symbols));
    x.v.assign(static_cast<size_t>(x.size()), 0);
    types.push_back(a.dtype);
    if (a.access == exec::Access::kIn) {
      std::uniform_real_distribution<double> real(c.low, c.high);
      for (double& v : x.v) {
        v = real(random);
        if (a.dtype == DType::kF32) v = static_cast<float>(v);
        if (a.dtype == DType::kF16) v = f32_from_f16(f16_from_f32(static_cast<float>(v)));
        if (a.dtype == DType::kBF16) v = f32_from_bf16(bf16_from_f32(static_cast<float>(v)));
        if (is_int(a.dtype)) v = std::floor(v);
        if (is_unsigned_int(a.dtype)) v = std::fabs(v);
        if (a.dtype == DType::kBool) v = v > (c.low + c.high) / 2 ? 1 : 0;
      }
      in.push_back(std::move(x));
    } else {
      // What is no kernel's to write stays.
      if (a.access == exec::Access::kInOut) x.v.assign(x.v.size(), kElsewhere);
      out.push_back(std::move(x));
    }
  }
  Arrays expected = out;
  c.oracle(in, expected);
  for (size_t i = 0; i < types.size(); ++i) {
    std::vector<std::byte> one;
    to_bytes(i < in.size() ? in[i] : out[i - in.size()], types[i], one);
    bytes.emplace_back(one.begin(), one.end());
  }
  std::vector<std::span<std::byte>> buffers(bytes.begin(), bytes.end());
  ASSERT_EQ(lowered.tails.verify(static_cast<uint32_t>(symbols.size()),
                                 static_cast<uint32_t>(lowered.functions.size())),
            "");
  const kir::Function& f = lowered.functions[lowered.tails.choose(symbols, threads)];
  ASSERT_EQ(run(f, buffers, symbols, threads), 0);
  for (size_t r = 0; r < out.size(); ++r) {
    from_bytes(bytes[in.size() + r], types[in.size() + r], out[r]);
    for (int64_t i = 0; i < out[r].size(); ++i) {
      const double want = expected[r][i], got = out[r][i];
      if (std::isnan(want) && std::isnan(got)) continue;
      if (want == got) continue;
      ASSERT_NEAR(got, want, c.tolerance * std::max(1.0, std::fabs(want)))
          << "result " << r << " element " << i << " of " << out[r].size();
    }
  }
}

// What check() runs: kernels in the interpreter under several configurations, or (set by the
// tests of code generation, which share the cases) as machine code.
struct Mode {
  Runner run = interpret;
  std::vector<TargetInfo> targets = {test_target(512, 32), test_target(128, 16)};
  bool only_default = false;
  // Templates whose cases a GPU's serves as well, and which; these run in the emulator.
  std::map<std::string, std::string> also_on_gpu = {{"elementwise", "gpu_elementwise"},
                                                    {"reduce", "gpu_reduce"},
                                                    {"scan", "gpu_scan"},
                                                    {"pool2d", "gpu_pool2d"},
                                                    {"pool2d_nhwc", "gpu_pool2d"}};
  std::string gpu = "sm_90a";
};
inline Mode& mode() {
  static Mode m;
  return m;
}

// Another mode as long as it lives, also where a test throws.
class ModeOfScope {
 public:
  explicit ModeOfScope(Mode m) : kept_(std::exchange(mode(), std::move(m))) {}
  ~ModeOfScope() { mode() = std::move(kept_); }
  ModeOfScope(const ModeOfScope&) = delete;
  ModeOfScope& operator=(const ModeOfScope&) = delete;

 private:
  Mode kept_;
};

inline void check_in_mode(Case c) {
  const Workload w = workload_of(c.text);
  if (exhaustive() && w.contract.symbols.size() == 1 && !c.sizes.empty()) {
    int64_t least = 130;
    for (const auto& s : c.sizes) least = std::min(least, s[0]);
    c.sizes.clear();
    for (int64_t n = least; n <= 130; ++n) c.sizes.push_back({n});
  }
  std::mt19937 random(1234);
  for (const TargetInfo& target : mode().targets) {
    const Template* t = template_for(w, target);
    ASSERT_NE(t, nullptr) << w.key;
    EXPECT_EQ(t->name(), c.served_by) << w.key;
    std::vector<Config> configs = {t->default_config(w, target)};
    ASSERT_TRUE(t->valid(w, configs[0], target)) << to_json(configs[0]);
    std::set<std::string> seen = {to_json(configs[0])};
    for (const Config& one : c.also) {
      ASSERT_TRUE(t->valid(w, one, target)) << to_json(one);
      if (seen.insert(to_json(one)).second) configs.push_back(one);
    }
    const int tries = mode().only_default ? 0 : 10 * c.configurations;
    for (int i = 0; i < tries && seen.size() <= static_cast<size_t>(c.configurations); ++i) {
      Config sample;
      for (const Knob& k : t->knobs(w, target))
        sample[k.name] = k.choices[random() % k.choices.size()];
      if (t->valid(w, sample, target) && seen.insert(to_json(sample)).second)
        configs.push_back(sample);
    }
    // The default meets every size; the sampled configurations share them out, each at least two.
    const size_t share =
        exhaustive() ? 1
                     : std::max<size_t>(1, std::min(configs.size() - 1, (c.sizes.size() + 1) / 2));
    for (size_t i = 0; i < configs.size(); ++i) {
      SCOPED_TRACE(target.level + " " + to_json(configs[i]) + "\n" + w.key);
      Lowered lowered = t->lower(w, configs[i], target, "k");
      for (const kir::Function& f : lowered.functions)
        ASSERT_EQ(kir::verify(f), "") << kir::print(f);
      // The default meets every size; a sampled configuration every third, in turn.
      for (size_t s = 0; s < c.sizes.size(); ++s) {
        if (i > 0 && s % share != i % share) continue;
        SCOPED_TRACE(::testing::PrintToString(c.sizes[s]));
        check_size(c, w, lowered, c.sizes[s], s % 2 == 0 ? 1 : 3, mode().run, random);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Keeps `most` of some sizes, spread over all.
inline void thin_out(Sizes& sizes, size_t most) {
  if (sizes.size() <= most) return;
  Sizes kept;
  for (size_t i = 0; i < most; ++i) kept.push_back(sizes[i * sizes.size() / most]);
  sizes = std::move(kept);
}

inline void check(Case c) {
  check_in_mode(c);
  const auto on_gpu = mode().also_on_gpu.find(c.served_by);
  if (::testing::Test::HasFatalFailure() || on_gpu == mode().also_on_gpu.end()) return;
  // A whole block runs even where there is little to do, so there are fewer of all.
  constexpr size_t kMostSizes = 8;
  c.served_by = on_gpu->second;
  c.configurations = std::min(c.configurations, exhaustive() ? 50 : 6);
  if (!exhaustive()) thin_out(c.sizes, kMostSizes);
  const ModeOfScope scope({interpret, {target_by_name(mode().gpu)}, false, {}, {}});
  check_in_mode(std::move(c));
}

inline Sizes one_symbol() {  // every value from 0 to 130
  Sizes s;
  for (int64_t n = 0; n <= 130; ++n) s.push_back({n});
  return s;
}
inline Sizes few(std::initializer_list<int64_t> values) {
  Sizes s;
  for (int64_t n : values) s.push_back({n});
  return s;
}
// Random tuples of sizes up to `most`, among them 0 and 1.
inline Sizes random_sizes(size_t symbols, int64_t most, int count) {
  std::mt19937 random(99);
  Sizes s;
  for (int i = 0; i < count; ++i) {
    std::vector<int64_t> one;
    for (size_t k = 0; k < symbols; ++k) {
      const auto r = static_cast<int64_t>(random());
      one.push_back(r % 7 == 0 ? r / 7 % 2 : r / 7 % (most + 1));
    }
    s.push_back(std::move(one));
  }
  return s;
}

}  // namespace nimble::kernels::testing
