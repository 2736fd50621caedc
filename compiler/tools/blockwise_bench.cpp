// nimble-blockwise-bench: how near products with 4- and 8-bit weights come to the memory's speed.
//
// Few rows cost what reading the weights and their scales costs. Weights rotate over so much memory
// that none is in a cache when its turn comes (--mib; more than the last level's cache, which a
// virtual machine may share). What the memory gives is measured before and after each call, by a
// kernel of the same code generator on the same threads that adds up as many bytes of the same
// memory: on a shared host it changes within milliseconds, and both sides of a ratio must see the
// same machine. `share` is the median of these paired ratios, with its quartiles.
//
//   nimble-blockwise-bench --mib=1024 --calls=60 '--config={"few":2}'
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/blockwise.h"
#include "compiler/kernels/templates/blockwise.h"
#include "compiler/tools/kernel_runner.h"

namespace nimble {
namespace {

using namespace bench;

constexpr int kSums = 8;
constexpr int64_t kPart = 1 << 14;  // floats that a share of the reading kernel adds up

// Adds up "s0" parts of memory, split over the threads.
kir::Function read_kernel(const kernels::TargetInfo& target) {
  namespace kb = kir::build;
  const int lanes = target.lanes_f32();
  const Dim parts = Dim::symbol("s0"), t = Dim::symbol("t"), k = Dim::symbol("k"),
            i = Dim::symbol("i");
  const kir::BufferRef in = kb::buffer("in", kir::Scope::kArgument, DType::kF32, parts * kPart);
  auto writable = std::make_shared<kir::Buffer>(
      *kb::buffer("out", kir::Scope::kArgument, DType::kF32, parts * (kSums * lanes)));
  writable->writable = true;
  const kir::BufferRef out = writable;
  const kir::BufferRef acc = kb::buffer("acc", kir::Scope::kRegister, DType::kF32, kSums, lanes);
  const auto each = [&](kir::StmtRef s) {
    return kb::loop(kir::LoopKind::kUnroll, "i", 0, kSums, std::move(s));
  };
  kir::Function f;
  f.name = "read";
  f.contract.symbols = {"s0"};
  exec::KernelArgument count, input, output;
  count.kind = exec::KernelArgument::Kind::kScalar;
  count.dtype = DType::kI64;
  input.dims = {in->extent.to_program({"s0"})};
  output.access = exec::Access::kOut;
  output.dims = {out->extent.to_program({"s0"})};
  f.contract.arguments = {count, input, output};
  f.arguments = {in, out};
  f.registers = {acc};
  f.facts.set("s0", {1, 1 << 20, 1});
  const Dim at = t * kPart + (k * kSums + i) * lanes;
  f.body = kb::loop(
      kir::LoopKind::kThread, "t", 0, parts,
      kb::seq(
          {each(kb::set_reg(acc, i, kb::f32(0, lanes))),
           kb::loop(kir::LoopKind::kSerial, "k", 0, kPart / (kSums * lanes),
                    each(kb::set_reg(acc, i, kb::add(kb::reg(acc, i), kb::load(in, at, lanes))))),
           each(kb::store(out, (t * kSums + i) * lanes, kb::reg(acc, i)))}));
  return f;
}

struct Product {
  int64_t bits, k, n;
  bool bytes = false;
};

// x[m, k] times weights in blocks of 32, without zeros.
kernels::Workload workload(const Product& p) {
  const std::string layout = kernels::blockwise_layout(kernels::detect_host(), p.bits, p.n);
  const ir::Blockwise form{p.bits, 32, p.k, p.n, ir::parse_layout(layout)};
  const auto type = [](const std::vector<int64_t>& shape, DType t) {
    return ir::tensor_type(std::vector<Dim>(shape.begin(), shape.end()), t);
  };
  const Dim m = Dim::symbol("m");
  const ir::VarRef x = ir::make_var("x", f32({m, p.k}));
  const ir::VarRef w = ir::make_var("w", type(form.weight_shape(), DType::kU8));
  const ir::VarRef s = ir::make_var("s", type(form.scale_shape(), DType::kF32));
  ir::Attrs attrs = {
      {"bits", p.bits}, {"block", form.block}, {"k", p.k}, {"n", p.n}, {"layout", layout}};
  if (p.bytes) attrs["activations"] = DType::kI8;
  ir::BlockBuilder body;
  const ir::VarRef y = body.call("blockwise_matmul", {x, w, s}, attrs);
  y->type = f32({m, p.n});
  return kernels::make_workload(*ir::make_function_of({x, w, s}, body.finish(y), y->type),
                                {false, true, true});
}

struct Options {
  size_t mib = 1024;
  int calls = 60;
  kernels::Config config;
};

void measure(const Product& p, const Options& o, const HugeBuffer& memory) {
  rt::ThreadPool& pool = the_pool();
  const kernels::TargetInfo target = kernels::detect_host();
  const std::string layout = kernels::blockwise_layout(target, p.bits, p.n);
  const ir::Blockwise form{p.bits, 32, p.k, p.n, ir::parse_layout(layout)};
  const auto count = [](const std::vector<int64_t>& shape) {
    int64_t all = 1;
    for (int64_t d : shape) all *= d;
    return static_cast<size_t>(all);
  };
  const size_t weights = count(form.weight_shape()) / 4, scales = count(form.scale_shape());
  const size_t one = (weights + scales + kPart - 1) / kPart * kPart;  // floats
  const size_t turns = o.mib * (size_t{1} << 18) / one;
  if (turns < 2)
    throw Error(Status::kInvalidArgument, "--mib", "less than two copies of the weights",
                "give more memory");
  const kernels::Workload w = workload(p);
  kernels::Config overrides;  // products of bytes have fewer knobs
  for (const auto& [name, value] : kernels::template_for(w, target)->default_config(w, target))
    if (const auto it = o.config.find(name); it != o.config.end()) overrides[name] = it->second;
  Compiled product(w, overrides);
  static Kernel reader(read_kernel(target));
  static const HugeBuffer sums(size_t{1} << 22);
  for (const int64_t m : {1, 2, 4, 8, 32}) {
    const HugeBuffer x(static_cast<size_t>(m * p.k)), y(static_cast<size_t>(m * p.n));
    for (const int threads : {1, 2}) {
      if (threads > rt::ThreadPool::default_threads()) continue;
      size_t turn = 0;
      const auto next = [&] { return memory.data() + one * (turn++ % turns); };
      const auto read = [&] {
        const double start = now();
        reader.run(pool, threads, {next(), sums.data()}, {static_cast<int64_t>(one / kPart)});
        return static_cast<double>(one) * 4 / (now() - start);
      };
      std::vector<double> times, shares, speeds;
      double before = read();
      for (int c = 0; c < o.calls; ++c) {
        float* numbers = next();
        const double start = now();
        product.run(pool, threads, {x.data(), numbers, numbers + weights, y.data()}, {m});
        const double seconds = now() - start, after = read();
        times.push_back(seconds);
        speeds.push_back(static_cast<double>(weights + scales) * 4 / seconds);
        shares.push_back(speeds.back() / ((before + after) / 2));
        before = after;
      }
      fmt::print(
          "{} bits{} {}x{} m:{} threads:{}  {:.1f} us  {:.1f} GB/s  share {:.2f} ({:.2f} - "
          "{:.2f})\n",
          p.bits, p.bytes ? ", bytes," : "", p.k, p.n, m, threads, quantile(times, 0.5) * 1e6,
          quantile(speeds, 0.5) / 1e9, quantile(shares, 0.5), quantile(shares, 0.25),
          quantile(shares, 0.75));
    }
  }
}

void run(const Options& o) {
  const HugeBuffer memory(o.mib * (size_t{1} << 18));
  for (const auto& [k, n] :
       {std::pair<int64_t, int64_t>(4096, 4096), std::pair<int64_t, int64_t>(768, 3072)})
    for (const int64_t bits : {4, 8})
      for (const bool bytes : {false, true}) measure({bits, k, n, bytes}, o, memory);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  try {
    nimble::Options options;
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      const auto value = [&](std::string_view flag) -> const char* {
        return argument.starts_with(flag) ? argv[i] + flag.size() : nullptr;
      };
      if (const char* mib = value("--mib="))
        options.mib = std::strtoull(mib, nullptr, 10);
      else if (const char* calls = value("--calls="))
        options.calls = std::atoi(calls);
      else if (const char* config = value("--config="))
        options.config = nimble::kernels::config_from_json(config);
      else
        throw nimble::Error(nimble::Status::kInvalidArgument, std::string(argument),
                            "no such argument", "there are --mib=, --calls= and --config=");
    }
    if (options.calls < 1)
      throw nimble::Error(nimble::Status::kInvalidArgument, "--calls", "no calls",
                          "give 1 or more");
    nimble::run(options);
  } catch (const nimble::Error& e) {
    fmt::print(stderr, "nimble-blockwise-bench: {}\n", e.what());
    return 1;
  }
  return 0;
}
