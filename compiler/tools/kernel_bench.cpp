// nimble-kernel-bench: speed of compiled kernels by shape (Google Benchmark).
//
// Products are measured as inside a model: weights rotate over six matrices, so they come from
// the third-level cache or memory, not from where the last call left them. The machine's
// multiply-add peak is measured before and after every iteration, by a kernel of the same code
// generator on the same threads: on a shared host clocks and neighbours change within
// milliseconds, and both sides of a ratio must see the same machine. `peak_share` is the median of
// these paired ratios, `share_low` and `share_high` their quartiles. `best_share` is the fastest
// iteration's part of the highest peak seen.
//
//   nimble-kernel-bench --benchmark_filter='dense/768x3072/m:37/.*'
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/layout.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/recurrent.h"
#include "vm/base/error.h"
#include "vm/runtime/native_image.h"
#include "vm/runtime/thread_pool.h"

namespace nimble {
namespace {

using ir::Dim;

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Zeroed memory on huge pages where the system grants them, as the VM keeps packed weights.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t floats) : bytes_((floats * 4 + 2 * kPage) / kPage * kPage) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NIMBLE_CHECK(memory_ != MAP_FAILED, "mmap of {} bytes", bytes_);
    madvise(memory_, bytes_, MADV_HUGEPAGE);
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    data_ = reinterpret_cast<float*>((address + kPage - 1) / kPage * kPage);
    for (size_t i = 0; i < floats; ++i) data_[i] = static_cast<float>(i % 17) * 0.01f - 0.08f;
  }
  ~HugeBuffer() { munmap(memory_, bytes_); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  float* data() const { return data_; }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  size_t bytes_;
  void* memory_ = nullptr;
  float* data_ = nullptr;
};

// One compiled function, loaded and callable on the pool.
class Kernel {
 public:
  explicit Kernel(const kir::Function& f) : function_(f) {
    const codegen::CompiledObject object =
        codegen::compile(std::span(&function_, 1), kernels::detect_host());
    image_ = rt::NativeImage::load(codegen::link(std::span(&object, 1)), function_.name);
    entry_ = reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(image_->find(function_.name)));
    NIMBLE_CHECK(entry_ != nullptr, "no symbol {}", function_.name);
  }

  void run(rt::ThreadPool& pool, int threads, std::vector<void*> buffers,
           const std::vector<int64_t>& symbols) {
    const auto value = [&](const std::string& name) -> std::optional<int64_t> {
      if (name == "threads") return threads;
      for (size_t i = 0; i < symbols.size(); ++i)
        if (function_.contract.symbols[i] == name) return symbols[i];
      return {};
    };
    const auto bytes = static_cast<size_t>(kir::scratch_bytes(function_).evaluate(value));
    if (scratch_.size() < bytes + 64) scratch_.resize(bytes + 64);
    auto address = reinterpret_cast<uintptr_t>(scratch_.data());
    Call call{entry_, {}};
    call.args = {NIMBLE_KERNEL_ABI_VERSION, static_cast<uint32_t>(buffers.size()), buffers.data(),
                 symbols.data(), reinterpret_cast<void*>((address + 63) / 64 * 64)};
    pool.run(
        [](void* context, int32_t thread, int32_t count, nimble_barrier* barrier) {
          const Call& c = *static_cast<Call*>(context);
          const int32_t status = c.entry(&c.args, thread, count, barrier);
          NIMBLE_CHECK(status == 0, "kernel status {}", status);
        },
        &call, threads);
  }

 private:
  struct Call {
    nimble_kernel_fn entry;
    nimble_kernel_args args;
  };
  kir::Function function_;
  std::shared_ptr<const rt::NativeImage> image_;
  nimble_kernel_fn entry_ = nullptr;
  std::vector<char> scratch_;
};

// One pool for all benchmarks: each thread keeps its core, and its share of the weights.
rt::ThreadPool& the_pool() {
  static rt::ThreadPool pool(rt::ThreadPool::default_threads(), true);
  return pool;
}

// ---------------------------------------------------------------- the machine's peak

constexpr int kPeakSums = 24;
constexpr int64_t kPeakSteps = 32000;  // about 0.2 ms, a product's time

// Every thread multiplies and adds in registers; the sums are stored once.
kir::Function peak_kernel(const kernels::TargetInfo& target) {
  namespace kb = kir::build;
  const int lanes = target.lanes_f32();
  const int sums = std::min(kPeakSums, target.vector_registers - 4);
  auto out = std::make_shared<kir::Buffer>(
      *kb::buffer("out", kir::Scope::kArgument, DType::kF32, Dim::symbol("s0") * sums * lanes));
  out->writable = true;
  const kir::BufferRef acc = kb::buffer("acc", kir::Scope::kRegister, DType::kF32, sums, lanes);
  const Dim i = Dim::symbol("i"), t = Dim::symbol("t");
  auto each = [&](kir::StmtRef s) {
    return kb::loop(kir::LoopKind::kUnroll, "i", 0, sums, std::move(s));
  };
  const kir::BufferRef result = out;
  kir::Function f;
  f.name = "peak";
  f.contract.symbols = {"s0"};
  exec::KernelArgument count;
  count.kind = exec::KernelArgument::Kind::kScalar;
  count.dtype = DType::kI64;
  exec::KernelArgument output;
  output.access = exec::Access::kOut;
  output.dims = {(Dim::symbol("s0") * sums * lanes).to_program({"s0"})};
  f.contract.arguments = {count, output};
  f.arguments = {result};
  f.registers = {acc};
  f.facts.set("s0", {1, 1024, 1});
  f.body = kb::loop(
      kir::LoopKind::kThread, "t", 0, Dim::symbol("s0"),
      kb::seq({each(kb::set_reg(acc, i, kb::load(result, (t * sums + i) * lanes, lanes))),
               kb::loop(kir::LoopKind::kSerial, "k", 0, kPeakSteps,
                        each(kb::set_reg(
                            acc, i,
                            kb::fma(kb::reg(acc, i), kb::f32(0.5, lanes), kb::f32(0.25, lanes))))),
               each(kb::store(result, (t * sums + i) * lanes, kb::reg(acc, i)))}));
  return f;
}

// Multiply-add peak of `threads` threads in GF/s: one short run.
double measure_peak(rt::ThreadPool& pool, int threads) {
  const kernels::TargetInfo target = kernels::detect_host();
  static Kernel kernel(peak_kernel(target));
  static std::vector<float> out(1024 * kPeakSums * 64);
  const int sums = std::min(kPeakSums, target.vector_registers - 4);
  const double start = now();
  kernel.run(pool, threads, {out.data()}, {threads});
  const double seconds = now() - start;
  return 2.0 * sums * target.lanes_f32() * kPeakSteps * threads / seconds / 1e9;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

// ---------------------------------------------------------------- workloads

ir::Type f32(std::vector<Dim> dims) {
  return ir::tensor_type(std::move(dims), DType::kF32);
}

// act(x[m, k] * w[k, n] + b[n]) with packed w.
kernels::Workload dense_workload(int64_t k, int64_t n, const std::string& activation) {
  const kernels::TargetInfo target = kernels::detect_host();
  const std::string layout = kernels::dense_layout(target, DType::kF32, n);
  const Dim m = Dim::symbol("m");
  const ir::VarRef x = ir::make_var("x", f32({m, k}));
  const ir::VarRef w = ir::make_var("w", f32(ir::parse_layout(layout)->packed_dims(k, n)));
  const ir::VarRef b = ir::make_var("b", f32({n}));
  ir::BlockBuilder body;
  ir::VarRef y = body.call("packed_matmul", {x, w}, {{"n", n}, {"k", k}, {"layout", layout}});
  y->type = f32({m, n});
  y = body.call("add", {y, b});
  y->type = f32({m, n});
  if (!activation.empty()) {
    y = body.call(activation, {y});
    y->type = f32({m, n});
  }
  return kernels::make_workload(*ir::make_function_of({x, w, b}, body.finish(y), f32({m, n})),
                                {false, true, true});
}

kernels::Workload lstm_workload(int64_t hidden) {
  const std::string layout = kernels::recurrent_layout(kernels::detect_host(), DType::kF32);
  const ir::VarRef gates = ir::make_var("x", f32({1, 4 * hidden}));
  const ir::VarRef h = ir::make_var("h", f32({1, hidden})), c = ir::make_var("c", f32({1, hidden}));
  const ir::VarRef w =
      ir::make_var("w", f32(ir::parse_layout(layout)->packed_dims(hidden, 4 * hidden)));
  const ir::VarRef step = ir::make_var("step", ir::tensor_type({}, DType::kI64));
  ir::BlockBuilder body;
  const ir::VarRef y = body.call("packed_lstm_cell", {gates, h, c, w, step},
                                 {{"hidden", hidden}, {"layout", layout}});
  y->type = ir::tuple_type({h->type, c->type});
  return kernels::make_workload(
      *ir::make_function_of({gates, h, c, w, step}, body.finish(y), y->type,
                            {{"scalars", std::vector<int64_t>{4}}}),
      {false, false, false, true, false});
}

// A workload's kernels: by residue where the configuration says so.
class Compiled {
 public:
  Compiled(const kernels::Workload& w, const std::string& overrides) {
    const kernels::TargetInfo target = kernels::detect_host();
    const kernels::Template* t = kernels::template_for(w, target);
    NIMBLE_CHECK(t != nullptr, "no template for {}", w.key);
    kernels::Config config = t->default_config(w, target);
    if (!overrides.empty())
      for (const auto& [name, value] : kernels::config_from_json(overrides)) config[name] = value;
    if (!t->valid(w, config, target))
      throw Error(Status::kInvalidArgument, "--config", "no valid configuration of this shape",
                  "see `nimble inspect --kernels` for configurations in use");
    const kernels::Lowered lowered = t->lower(w, config, target, "bench");
    tails_ = lowered.tails;
    for (const kir::Function& f : lowered.functions)
      kernels_.push_back(std::make_unique<Kernel>(f));
  }
  void run(rt::ThreadPool& pool, int threads, std::vector<void*> buffers,
           const std::vector<int64_t>& symbols) {
    kernels_[tails_.choose(symbols, threads)]->run(pool, threads, std::move(buffers), symbols);
  }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
  exec::DispatchTree tails_;
};

// ---------------------------------------------------------------- benchmarks

constexpr int kRotation = 6;

void dense(benchmark::State& state, const std::shared_ptr<Compiled>& kernel, int64_t k, int64_t n) {
  const int64_t m = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  rt::ThreadPool& pool = the_pool();
  const size_t matrix = static_cast<size_t>(k * ((n + 255) / 256 * 256));
  const HugeBuffer x(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n)),
      b(static_cast<size_t>(n)), w(matrix * kRotation);
  const double flops = 2.0 * static_cast<double>(m * k * n) / 1e9;
  std::vector<double> speeds, peaks, shares;
  int64_t turn = 0;
  auto call = [&] {
    float* weights = w.data() + matrix * static_cast<size_t>(turn++ % kRotation);
    const double start = now();
    kernel->run(pool, threads, {x.data(), weights, b.data(), y.data()}, {m});
    return now() - start;
  };
  for (int i = 0; i < kRotation; ++i) call();  // touches every matrix
  double before = measure_peak(pool, threads);
  for (auto _ : state) {
    const double seconds = call();
    const double after = measure_peak(pool, threads);
    speeds.push_back(flops / seconds);
    peaks.push_back((before + after) / 2);
    shares.push_back(speeds.back() / peaks.back());
    before = after;
    state.SetIterationTime(seconds);
  }
  state.counters["GF/s"] = quantile(speeds, 0.5);
  state.counters["best_GF/s"] = quantile(speeds, 1);
  state.counters["peak_GF/s"] = quantile(peaks, 0.5);
  state.counters["peak_share"] = quantile(shares, 0.5);
  state.counters["share_low"] = quantile(shares, 0.25);
  state.counters["share_high"] = quantile(shares, 0.75);
  state.counters["best_share"] = quantile(speeds, 1) / quantile(peaks, 1);
}

void lstm(benchmark::State& state, const std::shared_ptr<Compiled>& kernel, int64_t hidden) {
  const int threads = static_cast<int>(state.range(0));
  rt::ThreadPool& pool = the_pool();
  const auto h = static_cast<size_t>(hidden);
  const HugeBuffer x(4 * h), hidden_state(2 * h), cell(2 * h), w(4 * h * (h + 64));
  double best = 1e300;
  constexpr int64_t kSteps = 27;  // tokens of an average sentence
  for (auto _ : state) {
    const double start = now();
    for (int64_t s = 0; s < kSteps; ++s) {
      const size_t from = s % 2 == 0 ? 0 : h, to = h - from;
      kernel->run(pool, threads,
                  {x.data(), hidden_state.data() + from, cell.data() + from, w.data(),
                   hidden_state.data() + to, cell.data() + to},
                  {s});
    }
    const double seconds = (now() - start) / kSteps;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["best_us"] = best * 1e6;
}

void add_benchmarks(const std::string& config) {
  struct Shape {
    int64_t k, n;
    const char* activation;
  };
  const Shape shapes[] = {{768, 768, ""},      {768, 3072, ""}, {768, 3072, "gelu"},
                          {3072, 768, ""},     {384, 384, ""},  {384, 1152, ""},
                          {384, 1536, "gelu"}, {1536, 384, ""}, {300, 2048, ""}};
  const std::vector<int64_t> rows = {1,  2,  4,  8,  13, 16, 17, 18, 19, 20, 21, 22, 23,  24,
                                     27, 32, 33, 37, 41, 48, 53, 57, 64, 65, 80, 96, 104, 128};
  for (const Shape& s : shapes) {
    // Compiled at the first use, so that a filter pays for its own shapes only.
    auto kernel = std::make_shared<std::shared_ptr<Compiled>>();
    auto* b = benchmark::RegisterBenchmark(
        fmt::format("dense/{}x{}{}{}", s.k, s.n, *s.activation ? "+" : "", s.activation).c_str(),
        [=](benchmark::State& state) {
          if (!*kernel)
            *kernel = std::make_shared<Compiled>(dense_workload(s.k, s.n, s.activation), config);
          dense(state, *kernel, s.k, s.n);
        });
    b->ArgNames({"m", "threads"})->UseManualTime()->Unit(benchmark::kMicrosecond);
    for (int64_t m : rows)
      for (int64_t threads : {1, 2})
        if (threads <= rt::ThreadPool::default_threads()) b->Args({m, threads});
  }
  auto kernel = std::make_shared<std::shared_ptr<Compiled>>();
  auto* b = benchmark::RegisterBenchmark("lstm_cell/512", [=](benchmark::State& state) {
    if (!*kernel) *kernel = std::make_shared<Compiled>(lstm_workload(512), config);
    lstm(state, *kernel, 512);
  });
  b->ArgName("threads")->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (int64_t threads : {1, 2})
    if (threads <= rt::ThreadPool::default_threads()) b->Arg(threads);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  // --config='{"rows":6}' overrides knobs of the default configurations.
  std::string config;
  constexpr std::string_view kFlag = "--config=";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(kFlag)) {
      config = argv[i] + kFlag.size();
      std::copy(argv + i + 1, argv + argc, argv + i);
      --argc, --i;
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    nimble::add_benchmarks(config);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const nimble::Error& e) {
    fmt::print(stderr, "nimble-kernel-bench: {}\n", e.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}
