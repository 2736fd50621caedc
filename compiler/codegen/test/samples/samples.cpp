// nimble-kernel-samples NAME LEVEL kir|llvm|llvm-raw|asm: prints one sample kernel for the text
// tests in compiler/test/codegen.
#include <cstdio>
#include <functional>
#include <map>

#include "compiler/codegen/codegen.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/math.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/test/kernel_builder.h"
#include "vm/base/error.h"

namespace nimble {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::KernelBuilder;

// C[rows][vectors * lanes] = A[rows][K] * B[K][vectors * lanes], all of C in registers; so many
// steps of K, which divide it, are one iteration.
Function tile(int rows, int vectors, int lanes, int steps = 1) {
  KernelBuilder b("tile");
  const Dim depth = b.symbol("K"), k = Dim::symbol("k"), i = Dim::symbol("i"), j = Dim::symbol("j");
  const int width = vectors * lanes;
  auto a = b.in("A", DType::kF32, rows * 768);
  auto packed = b.in("B", DType::kF32, depth * width);
  auto c = b.out("C", DType::kF32, rows * width);
  auto acc = b.registers("acc", DType::kF32, rows * vectors, lanes);
  const auto unroll = [](const std::string& v, int n, StmtRef s) {
    return loop(LoopKind::kUnroll, v, 0, n, std::move(s));
  };
  const Dim at = i * vectors + j, step = k * steps + Dim::symbol("u");
  return b.body(
      {unroll("i", rows, unroll("j", vectors, set_reg(acc, at, f32(0, lanes)))),
       loop(LoopKind::kSerial, "k", 0, ir::floordiv(depth, steps),
            unroll("u", steps,
                   unroll("i", rows,
                          unroll("j", vectors,
                                 set_reg(acc, at,
                                         fma(load_strided(a, i * 768 + step, 0, lanes),
                                             load(packed, step * width + j * lanes, lanes),
                                             reg(acc, at))))))),
       unroll("i", rows, unroll("j", vectors, store(c, i * width + j * lanes, reg(acc, at))))});
}

Function masked(const std::function<ValueRef(ValueRef)>& value, DType t = DType::kF32) {
  KernelBuilder b("masked");
  const Dim n = b.symbol("n"), j = Dim::symbol("j");
  auto x = b.in("x", t, n);
  auto y = b.out("y", DType::kF32, n);
  return b.body({loop(LoopKind::kSerial, "j", 0, n,
                      store_masked(y, j, value(load_masked(x, j, 16, n - j)), n - j), 16)});
}

// The same for dots: the rows' groups are broadcast, the columns' stand side by side. So many steps
// of the depth at a time.
Function dots(Fragment fragment, int rows, int vectors, int lanes, int steps = 1) {
  const FragmentRow& row = row_of(fragment);
  KernelBuilder b("dots");
  const Dim depth = b.symbol("K"), i = Dim::symbol("i"), j = Dim::symbol("j");
  const Dim k = Dim::symbol("k") * steps + Dim::symbol("s");
  const int width = vectors * lanes, group = row.group;
  auto a = b.in("A", row.a, rows * 768);
  auto packed = b.in("B", row.b, depth * width * group);
  auto c = b.out("C", row.sum, rows * width);
  auto acc = b.registers("acc", row.sum, rows * vectors, lanes);
  const auto unroll = [](const std::string& v, int n, StmtRef s) {
    return loop(LoopKind::kUnroll, v, 0, n, std::move(s));
  };
  const Dim at = i * vectors + j;
  const ValueRef factors = broadcast(load(a, i * 768 + k * group, group), lanes * group);
  const ValueRef column = load(packed, (k * width + j * lanes) * group, lanes * group);
  return b.body(
      {unroll("i", rows, unroll("j", vectors, set_reg(acc, at, number(row.sum, 0, lanes)))),
       loop(LoopKind::kSerial, "k", 0, ir::floordiv(depth, steps),
            unroll("s", steps,
                   unroll("i", rows,
                          unroll("j", vectors,
                                 set_reg(acc, at, dot(fragment, factors, column, reg(acc, at))))))),
       unroll("i", rows, unroll("j", vectors, store(c, i * width + j * lanes, reg(acc, at))))});
}

// Two tiles of sums beside each other, of up to 16 rows.
Function matrix_registers(TileFragment fragment) {
  const TileFragmentRow& row = tile_row_of(fragment);
  KernelBuilder b("tiles");
  const int taken = 16 * row.group;
  const Dim rows = b.symbol("rows", {1, 16, 1}), depth = b.symbol("depth");
  const Dim k = Dim::symbol("k"), j = Dim::symbol("j");
  auto a = b.in("A", row.a, rows * 4096);
  auto packed = b.in("B", row.b, depth * 32 * taken);
  auto c = b.out("C", row.sum, rows * 32);
  auto sum = b.tiles("sum", row.sum, 16, 16, 2), lhs = b.tiles("lhs", row.a, 16, taken, 1),
       rhs = b.tiles("rhs", row.b, 16, taken, 2);
  const auto both = [](StmtRef s) { return loop(LoopKind::kUnroll, "j", 0, 2, std::move(s)); };
  return b.body({with_tiles(
      {{sum, rows}, {lhs, rows}, {rhs, 16}},
      seq({both(tile_zero(sum, j)),
           loop(LoopKind::kSerial, "k", 0, depth,
                seq({tile_load(lhs, 0, a, k * taken, 4096),
                     both(seq({tile_load(rhs, j, packed, k * 32 * taken + j * taken, 2 * taken),
                               tile_dot(fragment, sum, j, lhs, 0, rhs, j)}))})),
           both(tile_store(c, j * 16, 32, sum, j))}))});
}

// Row min(n, 3) of a matrix times a column of vectors.
Function bounded_row() {
  KernelBuilder b("bounded");
  const Dim n = b.symbol("n"), k = Dim::symbol("k");
  auto a = b.in("A", DType::kF32, 4 * 768);
  auto column = b.in("B", DType::kF32, 768 * 8);
  auto c = b.out("C", DType::kF32, 8);
  auto acc = b.registers("acc", DType::kF32, 1, 8);
  return b.body({let_index("row", index(ir::min(n, 3) * 768)), set_reg(acc, 0, f32(0, 8)),
                 loop(LoopKind::kSerial, "k", 0, 768,
                      set_reg(acc, 0,
                              fma(load_strided(a, Dim::symbol("row") + k, 0, 8),
                                  load(column, k * 8, 8), reg(acc, 0)))),
                 store(c, 0, reg(acc, 0))});
}

Function fill() {
  KernelBuilder b("fill");
  const Dim n = b.symbol("n"), j = Dim::symbol("j");
  auto x = b.in("x", DType::kF32, n);
  auto y = b.out("y", DType::kF32, n);
  auto z = b.out("z", DType::kF32, n);
  return b.body({loop(LoopKind::kSerial, "j", 0, n, store(y, j, f32(0))),
                 loop(LoopKind::kSerial, "j", 0, n, store(z, j, load(x, j)))});
}

// y = saturate(round(x) + 117).
Function quantised() {
  KernelBuilder b("quantised");
  const Dim n = b.symbol("n"), j = Dim::symbol("j");
  auto x = b.in("x", DType::kF32, n * 16);
  auto y = b.out("y", DType::kU8, n * 16);
  const ValueRef sum = add(unary(UnaryOp::kRound, load(x, j * 16, 16)), f32(117, 16));
  const ValueRef clipped = min(f32(255, 16), max(f32(0, 16), sum));
  return b.body({loop(LoopKind::kSerial, "j", 0, n, store(y, j * 16, cast(DType::kU8, clipped)))});
}

// Attention of parts of one product in bf16, by the default schedule of a level.
Function attention(const char* level) {
  const ir::Module m = ir::infer_types(ir::parse_module(
      R"(fn @f(%x: Tensor[(b, n, 384), bf16], %m: Tensor[(b, 1, 1, n), f32]) {
           let %q = slice(%x) {axes = [2], starts = (0), ends = (128)};
           let %k = slice(%x) {axes = [2], starts = (128), ends = (256)};
           let %v = slice(%x) {axes = [2], starts = (256), ends = (384)};
           let %y = attention(%q, %k, %v, %m) {heads = 2, scale = 0.125, out = f32}; %y })"));
  const kernels::Workload w = kernels::make_workload(*m.functions.at(0).second);
  const kernels::TargetInfo target = kernels::target_by_name(level);
  const kernels::Template& t = *kernels::template_for(w, target);
  return t.lower(w, t.default_config(w, target), target, "attention").functions.at(0);
}

const std::map<std::string, std::function<Function()>> kSamples = {
    {"tile-8x3x16", [] { return tile(8, 3, 16); }},
    {"tile-6x2x8", [] { return tile(6, 2, 8); }},
    {"tile-4x2x4", [] { return tile(4, 2, 4); }},
    {"tile-7x3x4-by-4", [] { return tile(7, 3, 4, 4); }},
    {"masked", [] { return masked([](ValueRef x) { return x; }); }},
    {"bf16", [] { return masked([](ValueRef x) { return cast(DType::kF32, x); }, DType::kBF16); }},
    {"mac", [] { return masked([](ValueRef x) { return add(mul(x, x), x); }); }},
    {"exp", [] { return masked([](ValueRef x) { return math::exp(x); }); }},
    {"bounded-row", bounded_row},
    {"fill", fill},
    {"quantised", quantised},
    {"dots-bf16", [] { return dots(Fragment::kBf16Pairs, 8, 3, 16); }},
    {"dots-u8s8", [] { return dots(Fragment::kU8S8Quads, 8, 3, 16); }},
    {"dots-f16", [] { return dots(Fragment::kF16Pairs, 4, 3, 4); }},
    {"dots-u8s7", [] { return dots(Fragment::kU8S7Quads, 5, 2, 8, 4); }},
    {"dots-s16", [] { return dots(Fragment::kS16Pairs, 5, 2, 8, 4); }},
    {"tiles-bf16", [] { return matrix_registers(TileFragment::kBf16Tiles); }},
    {"tiles-f16", [] { return matrix_registers(TileFragment::kF16Tiles); }},
    {"tiles-u8s8", [] { return matrix_registers(TileFragment::kU8S8Tiles); }},
    {"attention-tiles", [] { return attention("x86-64-v4-amx"); }},
    {"attention-pairs", [] { return attention("x86-64-v4-bf16"); }},
};

int run(int argc, char** argv) {
  if (argc != 4 || !kSamples.contains(argv[1])) {
    std::fprintf(stderr, "usage: %s SAMPLE LEVEL kir|llvm|llvm-raw|asm\nsamples:", argv[0]);
    for (const auto& [name, make] : kSamples) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const Function f = kSamples.at(argv[1])();
  const kernels::TargetInfo target = kernels::target_by_name(argv[2]);
  const std::string form = argv[3];
  const std::string text = form == "kir"        ? print(f)
                           : form == "llvm"     ? codegen::llvm_ir(f, target, true)
                           : form == "llvm-raw" ? codegen::llvm_ir(f, target, false)
                                                : codegen::assembly(f, target);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  try {
    return nimble::run(argc, argv);
  } catch (const nimble::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
