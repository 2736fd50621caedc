// nimble-kernel-bench: speed of compiled kernels by shape (Google Benchmark).
//
// Products are measured as inside a model: weights rotate over six matrices, so they come from
// the third-level cache or memory, not from where the last call left them. The machine's
// multiply-add peak is measured before and after every iteration, by a kernel of the same code
// generator on the same threads: on a shared host clocks and neighbours change within
// milliseconds, and both sides of a ratio must see the same machine. `peak_share` is the median of
// these paired ratios, `share_low` and `share_high` their quartiles. `best_share` is the fastest
// iteration's part of the highest peak seen. Products of bf16, f16 and 8 bits are measured against
// the peak of their own instructions, all those that a dot takes, in matrix registers where the
// machine has them. Where bytes are multiplied as i16, "u8s8-bytes" has them multiplied as bytes
// all the same; "u8s7" are those with weights of seven bits, where these are multiplied otherwise.
//
//   nimble-kernel-bench --benchmark_filter='dense/768x3072/m:37/.*'
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "compiler/ir/winograd.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/kernels/templates/tile.h"
#include "compiler/kernels/templates/tiled_product.h"
#include "compiler/tools/kernel_runner.h"

namespace nimble {
namespace {

using namespace bench;

// ---------------------------------------------------------------- the machine's peak

namespace kb = kir::build;

constexpr int64_t kPeakSteps = 32000;  // about 0.2 ms, a product's time

// What every thread multiplies and adds, its sums in registers, which it stores once.
struct Peak {
  kir::Function kernel;
  int64_t results = 0;     // elements of 4 bytes that a thread stores
  double flops = 0;        // of a thread
  std::vector<size_t> in;  // bytes of the operands that all threads read
};

// A kernel of `in` and `out`, whose threads each run `body` with their number as "t".
Peak peak_of(DType sum, int64_t results, double flops, const std::vector<kir::BufferRef>& in,
             const kir::BufferRef& out, std::vector<kir::BufferRef> registers, kir::StmtRef body) {
  Peak p{{}, results, flops};
  kir::Function& f = p.kernel;
  f.name = "peak";
  f.contract.symbols = {"s0"};
  exec::KernelArgument count;
  count.kind = exec::KernelArgument::Kind::kScalar;
  count.dtype = DType::kI64;
  exec::KernelArgument output;
  output.access = exec::Access::kOut;
  output.dtype = sum;
  output.dims = {(Dim::symbol("s0") * results).to_program({"s0"})};
  f.contract.arguments = {count};
  for (const kir::BufferRef& b : in) {
    exec::KernelArgument operand;
    operand.dtype = b->dtype;
    operand.dims = {b->extent.to_program({"s0"})};
    f.contract.arguments.push_back(operand);
    f.arguments.push_back(b);
    p.in.push_back(static_cast<size_t>(*b->extent.as_constant()) * size_of(b->dtype));
  }
  f.contract.arguments.push_back(output);
  f.arguments.push_back(out);
  f.registers = std::move(registers);
  f.facts.set("s0", {1, 1024, 1});
  f.body = kb::loop(kir::LoopKind::kThread, "t", 0, Dim::symbol("s0"), std::move(body));
  return p;
}

kir::BufferRef peak_output(DType t, int64_t results) {
  auto out = std::make_shared<kir::Buffer>(
      *kb::buffer("out", kir::Scope::kArgument, t, Dim::symbol("s0") * results));
  out->writable = true;
  return out;
}

// In vectors: multiply-adds, or dots of narrow operands. A dot is several instructions where none
// makes all of it, and those that take its operands alone would run once, ahead of the loop, if
// these stayed as they are. So they are a tile's (tile.h): they lie in L1 and change with each
// step.
Peak vector_peak(const kernels::TargetInfo& target, const Types& types) {
  constexpr int kVectors = 2;
  constexpr int64_t kSteps = 64;  // before the operands come again
  static_assert(kPeakSteps % kSteps == 0);
  const int lanes = target.lanes_f32();
  // Bytes may be multiplied as i16.
  const auto fragment = kernels::packing_fragment(target, types.rhs, types.most);
  const int rows = static_cast<int>(kernels::rows_with_room(
      target, fragment, kVectors, std::min(24, target.vector_registers - 4) / kVectors));
  const int sums = rows * kVectors;
  const int group = kernels::group_of(fragment);
  const kir::BufferRef out = peak_output(types.sum, int64_t{sums} * lanes);
  const kir::BufferRef acc = kb::buffer("acc", kir::Scope::kRegister, types.sum, sums, lanes);
  const Dim i = Dim::symbol("i"), at = (Dim::symbol("t") * sums + i) * lanes;
  const auto each = [&](kir::StmtRef s) {
    return kb::loop(kir::LoopKind::kUnroll, "i", 0, sums, std::move(s));
  };
  const auto often = [](const char* var, int64_t count, kir::StmtRef s) {
    return kb::loop(kir::LoopKind::kSerial, var, 0, count, std::move(s));
  };
  const kir::ValueRef sum = kb::reg(acc, i);
  std::vector<kir::BufferRef> in, registers = {acc};
  kir::StmtRef steps;
  if (fragment) {
    kernels::RegisterTile tile;
    tile.rows = rows;
    tile.vectors = kVectors;
    tile.lanes = lanes;
    tile.dtype = types.sum;
    tile.fragment = fragment;
    tile.accumulators = acc;
    tile.panel = kernels::panel_registers(types.sum, kVectors, lanes, fragment);
    tile.lhs = kb::buffer("lhs", kir::Scope::kArgument, kir::row_of(*fragment).a,
                          tile.rows * kSteps * group);
    tile.rhs = kb::buffer("rhs", kir::Scope::kArgument, kir::row_of(*fragment).b,
                          kVectors * kSteps * group * lanes);
    tile.lhs_index = [=](const Dim& row, const Dim& k) { return (row * kSteps + k) * group; };
    tile.rhs_index = [=](const Dim& v, const Dim& k) {
      return (k * kVectors + v) * (group * lanes);
    };
    tile.k_extent = kSteps;
    in = {tile.lhs, tile.rhs};
    registers.push_back(tile.panel);
    steps = often("again", kPeakSteps / kSteps, kernels::tile_product(tile, "t_"));
  } else {
    const kir::ValueRef next = kb::fma(sum, kb::f32(0.5, lanes), kb::f32(0.25, lanes));
    steps = often("k", kPeakSteps, each(kb::set_reg(acc, i, next)));
  }
  return peak_of(types.sum, int64_t{sums} * lanes, 2.0 * group * sums * lanes * kPeakSteps, in, out,
                 std::move(registers),
                 kb::seq({each(kb::set_reg(acc, i, kb::load(out, at, lanes))), std::move(steps),
                          each(kb::store(out, at, sum))}));
}

// In matrix registers: 2 x 2 products a step.
Peak tile_peak(kir::TileFragment fragment) {
  const kir::TileFragmentRow& row = kir::tile_row_of(fragment);
  const int columns = kernels::tile_columns(fragment), depth = kernels::tile_depth(fragment);
  const int64_t results = int64_t{4} * row.rows * columns, steps = kPeakSteps / 8;
  const kir::BufferRef out = peak_output(row.sum, results);
  const kir::BufferRef acc = kb::tile_buffer("acc", row.sum, row.rows, columns, 4);
  const kir::BufferRef a = kb::tile_buffer("a", row.a, row.rows, depth, 2);
  const kir::BufferRef b = kb::tile_buffer("b", row.b, depth / row.group, columns * row.group, 2);
  std::vector<kir::StmtRef> begin, step, end;
  for (int i = 0; i < 2; ++i) begin.insert(begin.end(), {kb::tile_zero(a, i), kb::tile_zero(b, i)});
  for (int i = 0; i < 4; ++i) {
    begin.push_back(kb::tile_zero(acc, i));
    step.push_back(kb::tile_dot(fragment, acc, i, a, i % 2, b, i / 2));
    end.push_back(
        kb::tile_store(out, Dim::symbol("t") * results + i * row.rows * columns, columns, acc, i));
  }
  kir::StmtRef body =
      kb::seq({kb::seq(begin), kb::loop(kir::LoopKind::kSerial, "k", 0, steps, kb::seq(step)),
               kb::seq(end)});
  return peak_of(
      row.sum, results, 8.0 * row.rows * columns * depth * static_cast<double>(steps), {}, out,
      {acc, a, b},
      kb::with_tiles({{acc, row.rows}, {a, row.rows}, {b, depth / row.group}}, std::move(body)));
}

// The machine's multiply-adds of operands of these types, by the fastest of its instructions.
class PeakMeter {
 public:
  explicit PeakMeter(const Types& types) : peak_(make(types)), kernel_(peak_.kernel) {
    // Bytes that are a number of moderate size in each type.
    for (const size_t bytes : peak_.in) in_.emplace_back(bytes, std::byte{0x3c});
  }

  // Of `threads` threads in GF/s: one short run.
  double measure(rt::ThreadPool& pool, int threads) {
    out_.resize(static_cast<size_t>(peak_.results * threads));
    std::vector<void*> buffers;
    for (std::vector<std::byte>& operand : in_) buffers.push_back(operand.data());
    buffers.push_back(out_.data());
    const double start = now();
    kernel_.run(pool, threads, std::move(buffers), {threads});
    return peak_.flops * threads / (now() - start) / 1e9;
  }

 private:
  static Peak make(const Types& types) {
    const kernels::TargetInfo target = kernels::detect_host();
    const auto tiles = kernels::tile_fragment_of(target, types.lhs, types.rhs, types.sum);
    return tiles ? tile_peak(*tiles) : vector_peak(target, types);
  }

  Peak peak_;
  Kernel kernel_;
  std::vector<std::vector<std::byte>> in_;
  std::vector<float> out_;
};

// ---------------------------------------------------------------- workloads

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

// A convolution of one channels-last image (of up to four channels: channels first), its bias and
// relu, in the type of its sums. The kernel is square and padded by half of it; depthwise if
// `filters` is 0; by Winograd's tiles if `tile` is their size. The operations that count are those
// of the plain convolution.
struct Image {
  int64_t size, channels, filters, kernel, stride, groups = 1, tile = 0;

  bool may_have_tiles() const {
    return kernel == ir::Winograd::kTaps && stride == 1 && groups == 1 && channels >= 16 &&
           filters >= 16;
  }
  // Weights for an output.
  int64_t weights() const {
    return tile == 0 ? sums() : ir::find_winograd(tile)->products() * channels;
  }

  int64_t outputs() const { return filters == 0 ? channels : filters; }
  int64_t result_size() const { return (size + kernel / 2 * 2 - kernel) / stride + 1; }
  int64_t sums() const { return kernel * kernel * (filters == 0 ? 1 : channels / groups); }
  int64_t group_outputs() const { return outputs() / groups; }
  bool channels_first() const { return filters != 0 && channels <= 4; }
  double flops() const {
    return 2.0 * static_cast<double>(result_size() * result_size() * outputs() * sums());
  }
};

// `known`: the kernel is made for this size, else for any.
kernels::Workload conv_workload(const Image& s, bool known, const Types& types) {
  using Ints = std::vector<int64_t>;
  const int64_t pad = s.kernel / 2, outputs = s.outputs();
  const Dim h = known ? Dim(s.size) : Dim::symbol("h");
  const Dim w = known ? Dim(s.size) : Dim::symbol("w");
  const auto result = [&](const Dim& extent) {
    return ir::floordiv(extent + 2 * pad - s.kernel, s.stride) + 1;
  };
  ir::Attrs attrs = {{"strides", Ints{s.stride, s.stride}},
                     {"pads", Ints{pad, pad, pad, pad}},
                     {"dilations", Ints{1, 1}},
                     {"skip_padding", true}};
  std::string op = "conv2d", layout = "nhwc";
  ir::Type weights = f32({s.kernel, s.kernel, 1, outputs});
  if (s.filters == 0) {
    attrs["groups"] = s.channels;
  } else if (s.tile != 0) {
    op = "packed_winograd";
    layout = kernels::dense_layout(kernels::detect_host(), types.rhs, outputs);
    const int64_t width = ir::parse_layout(layout)->width;
    weights = f32(
        {(outputs + width - 1) / width, ir::find_winograd(s.tile)->products(), s.channels, width});
    attrs = {{"filters", outputs}, {"pads", Ints{pad, pad, pad, pad}}};
    attrs["tile"] = s.tile;
  } else {
    op = "packed_conv2d";
    const kernels::TargetInfo host = kernels::detect_host();
    layout = types.layout(
        kernels::conv2d_nhwc_layout(host, types.lhs, types.rhs, s.group_outputs(), types.most));
    if (const int64_t promise = types.promise(host); promise > 0) attrs["max_weight"] = promise;
    std::vector<Dim> packed = ir::parse_layout(layout)->packed_dims(s.sums(), s.group_outputs());
    packed[0] = packed[0] * s.groups;
    weights = ir::tensor_type(std::move(packed), types.rhs);
    if (types.rhs != types.sum) attrs["out"] = types.sum;
    attrs["groups"] = s.groups;
    if (s.channels_first()) attrs["image_layout"] = std::string("nchw");
    attrs["kernel"] = Ints{s.kernel, s.kernel};
    attrs["filters"] = outputs;
  }
  attrs["layout"] = layout;
  const std::vector<Dim> image = s.channels_first() ? std::vector<Dim>{1, s.channels, h, w}
                                                    : std::vector<Dim>{1, h, w, s.channels};
  const ir::VarRef x = ir::make_var("x", ir::tensor_type(image, types.lhs));
  const ir::VarRef k = ir::make_var("w", weights);
  const ir::VarRef b = ir::make_var("b", ir::tensor_type({outputs}, types.sum));
  const ir::Type type = ir::tensor_type({1, result(h), result(w), outputs}, types.sum);
  ir::BlockBuilder body;
  ir::VarRef y = body.call(op, {x, k, b}, attrs);
  y->type = type;
  y = body.call("relu", {y});
  y->type = type;
  return kernels::make_workload(*ir::make_function_of({x, k, b}, body.finish(y), type),
                                {false, true, true});
}

// ---------------------------------------------------------------- benchmarks

constexpr int kRotation = 6;

// Times `call`, which takes its seconds, against the peak.
template <typename Call>
void measure(benchmark::State& state, int threads, double flops, const Types& types,
             const Call& call) {
  std::vector<double> speeds, peaks, shares;
  PeakMeter peak(types);
  for (int i = 0; i < kRotation; ++i) call();  // touches every matrix
  double before = peak.measure(the_pool(), threads);
  for (auto _ : state) {
    const double seconds = call();
    const double after = peak.measure(the_pool(), threads);
    speeds.push_back(flops / 1e9 / seconds);
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

// Floats that hold so many elements of a type.
size_t floats_of(int64_t elements, DType t) {
  return static_cast<size_t>((elements * static_cast<int64_t>(size_of(t)) + 3) / 4);
}

void dense(benchmark::State& state, const std::shared_ptr<Compiled>& kernel, int64_t k, int64_t n,
           const Types& types) {
  const int64_t m = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  rt::ThreadPool& pool = the_pool();
  const size_t matrix = floats_of(k * ((n + 255) / 256 * 256), types.rhs);
  const HugeBuffer x(floats_of(m * k, types.lhs)), y(static_cast<size_t>(m * n)),
      b(static_cast<size_t>(n)), w(matrix * kRotation);
  int64_t turn = 0;
  measure(state, threads, 2.0 * static_cast<double>(m * k * n), types, [&] {
    float* weights = w.data() + matrix * static_cast<size_t>(turn++ % kRotation);
    const double start = now();
    kernel->run(pool, threads, {x.data(), weights, b.data(), y.data()}, {m});
    return now() - start;
  });
}

void conv(benchmark::State& state, const std::shared_ptr<Compiled>& kernel, const Image& s,
          bool known, const Types& types) {
  const int threads = static_cast<int>(state.range(0));
  rt::ThreadPool& pool = the_pool();
  const auto floats = [](int64_t n) { return static_cast<size_t>(n); };
  const size_t matrix =
      floats_of(s.weights() * ((s.group_outputs() + 255) / 256 * 256) * s.groups, types.rhs);
  const HugeBuffer x(floats_of(s.size * s.size * s.channels, types.lhs)),
      y(floats(s.result_size() * s.result_size() * s.outputs())), b(floats(s.outputs())),
      w(matrix * kRotation);
  const std::vector<int64_t> symbols =
      known ? std::vector<int64_t>{} : std::vector<int64_t>{s.size, s.size};
  int64_t turn = 0;
  measure(state, threads, s.flops(), types, [&] {
    float* weights = w.data() + matrix * floats(turn++ % kRotation);
    const double start = now();
    kernel->run(pool, threads, {x.data(), weights, b.data(), y.data()}, symbols);
    return now() - start;
  });
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

void add_benchmarks(const kernels::Config& config) {
  struct Shape {
    int64_t k, n;
    const char* activation;
    int64_t pixels = 0;  // rows of a convolution by windows of one pixel; 0: those of sentences
  };
  const Shape shapes[] = {{768, 768, ""},  {768, 3072, ""},        {768, 3072, "gelu"},
                          {3072, 768, ""}, {384, 384, ""},         {384, 1152, ""},
                          {384, 1536, ""}, {384, 1536, "gelu"},    {1536, 384, ""},
                          {300, 2048, ""}, {256, 64, "", 56 * 56}, {512, 128, "", 28 * 28}};
  const std::vector<int64_t> rows = {1,  2,  4,  8,  13, 16, 17, 18, 19, 20, 21, 22, 23,  24,
                                     27, 32, 33, 37, 41, 48, 53, 57, 64, 65, 80, 96, 104, 128};
  struct Precision {
    const char* name;  // in a benchmark's; none for f32
    Types types;
  };
  // Weights of f16 stand beside rows of f16 where the machine multiplies them.
  const Types f16_types = {kernels::rows_type(kernels::detect_host(), DType::kF16), DType::kF16,
                           DType::kF32};
  std::vector<Precision> precisions = {
      {"", {}}, {"/bf16", kBF16Types}, {"/u8s8", kInt8Types}, {"/f16", f16_types}};
  // What multiplying them as i16 gains.
  if (kernels::packing_fragment(kernels::detect_host(), kInt8Types.rhs) == kir::Fragment::kS16Pairs)
    precisions.push_back({"/u8s8-bytes", kByteTypes});
  if (kSmallWeightTypes.promise(kernels::detect_host()) > 0)
    precisions.push_back({"/u8s7", kSmallWeightTypes});
  for (const Precision& precision : precisions)
    for (const Shape& s : shapes) {
      // Compiled at the first use, so that a filter pays for its own shapes only.
      auto kernel = std::make_shared<std::shared_ptr<Compiled>>();
      auto* b = benchmark::RegisterBenchmark(
          fmt::format("dense{}/{}x{}{}{}", precision.name, s.k, s.n, *s.activation ? "+" : "",
                      s.activation)
              .c_str(),
          [=](benchmark::State& state) {
            if (!*kernel)
              *kernel = std::make_shared<Compiled>(
                  dense_workload(Dim::symbol("m"), s.k, s.n, s.activation, precision.types),
                  config);
            dense(state, *kernel, s.k, s.n, precision.types);
          });
      b->ArgNames({"m", "threads"})->UseManualTime()->Unit(benchmark::kMicrosecond);
      for (int64_t m : s.pixels > 0 ? std::vector<int64_t>{s.pixels} : rows)
        for (int64_t threads : {1, 2})
          if (threads <= rt::ThreadPool::default_threads()) b->Args({m, threads});
    }
  // Layers of residual networks, of VGG and of those with depthwise convolutions.
  const Image images[] = {
      {224, 3, 64, 7, 2},       {56, 64, 64, 3, 1},       {28, 128, 128, 3, 1},
      {14, 256, 256, 3, 1},     {7, 512, 512, 3, 1},      {56, 128, 128, 3, 2},
      {28, 256, 256, 3, 2},     {14, 512, 512, 3, 2},     {56, 256, 512, 1, 2},
      {112, 64, 128, 3, 1},     {37, 40, 58, 3, 1},       {224, 3, 32, 3, 2},
      {112, 32, 0, 3, 1},       {56, 144, 0, 3, 2},       {28, 192, 0, 3, 1},
      {14, 576, 0, 3, 1},       {7, 960, 0, 3, 1},        {14, 480, 0, 5, 1},
      {28, 104, 104, 3, 1, 13}, {56, 128, 128, 3, 1, 32}, {14, 208, 208, 3, 1, 13},
      {28, 240, 240, 1, 1, 3}};
  for (const Precision& precision : precisions)
    for (const Image& plain : images)
      for (const int64_t tile : {0, 2, 4})
        for (const bool known : {true, false}) {
          Image s = plain;
          s.tile = tile;
          // Images with channels first and tiles are computed in f32 alone; so are depthwise
          // convolutions here, whose narrow weights are not packed.
          const bool is_f32 = precision.types.rhs == DType::kF32;
          if (!is_f32 && (s.channels_first() || s.filters == 0)) continue;
          if (tile != 0 && !(is_f32 && s.may_have_tiles())) continue;
          auto kernel = std::make_shared<std::shared_ptr<Compiled>>();
          const std::string filters = s.filters == 0 ? "depthwise" : fmt::format("{}", s.filters);
          auto* b = benchmark::RegisterBenchmark(
              fmt::format("conv{8}/{0}x{0}/{1}->{2}/{3}x{3}/stride:{4}{5}{6}/{7}", s.size,
                          s.channels, filters, s.kernel, s.stride,
                          s.groups == 1 ? "" : fmt::format("/groups:{}", s.groups),
                          tile == 0 ? "" : fmt::format("/tiles:{}", tile), known ? "known" : "any",
                          precision.name)
                  .c_str(),
              [=](benchmark::State& state) {
                if (!*kernel)
                  *kernel =
                      std::make_shared<Compiled>(conv_workload(s, known, precision.types), config);
                conv(state, *kernel, s, known, precision.types);
              });
          b->ArgName("threads")->UseManualTime()->Unit(benchmark::kMicrosecond);
          for (int64_t threads : {1, 2})
            if (threads <= rt::ThreadPool::default_threads()) b->Arg(threads);
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
  std::string text;
  constexpr std::string_view kFlag = "--config=";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(kFlag)) {
      text = argv[i] + kFlag.size();
      std::copy(argv + i + 1, argv + argc, argv + i);
      --argc, --i;
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    nimble::add_benchmarks(text.empty() ? nimble::kernels::Config()
                                        : nimble::kernels::config_from_json(text));
    benchmark::RunSpecifiedBenchmarks();
  } catch (const nimble::Error& e) {
    fmt::print(stderr, "nimble-kernel-bench: {}\n", e.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}
