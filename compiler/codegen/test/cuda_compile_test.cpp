// A GPU's machine code: everything that kernel IR has compiles, for each architecture; equal
// kernels are equal bytes. Whether they compute the same is a GPU's to say: here is none.
#include <gmock/gmock.h>

#include <filesystem>

#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/test/cuda_kernels.h"
#include "compiler/kernels/math.h"
#include "compiler/kernels/test/gpu_levels.h"

namespace nimble::codegen {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::KernelBuilder;
using testing::gpu_target;
using testing::tensor;

const Dim kThread = Dim::symbol("thread");  // NOLINT

constexpr DType kTypes[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
                            DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                            DType::kBF16, DType::kF32, DType::kF64};

std::string word(DType t) {
  return std::string(name_of(t));
}

// Two values of a type, and a place for each result.
struct Operands {
  explicit Operands(const std::string& name, DType t, int lanes) : k(name), lanes(lanes) {
    k.launch(64);
    const Dim n = Dim(64 * lanes);
    a = load(tensor(k, "a", t, n, false), kThread * lanes, lanes);
    b = load(tensor(k, "b", t, n, false), kThread * lanes, lanes);
  }
  void result(const ValueRef& v) {
    const std::string name = "r" + std::to_string(statements.size());
    const BufferRef to = tensor(k, name, v->dtype, Dim(64 * v->lanes), true);
    statements.push_back(store(to, kThread * v->lanes, v));
  }
  Function done() { return k.body(statements); }

  KernelBuilder k;
  int lanes;
  ValueRef a, b;
  std::vector<StmtRef> statements;
};

Function arithmetic(DType t, int lanes) {
  Operands o("arithmetic_" + word(t) + "_" + std::to_string(lanes), t, lanes);
  const bool floating = is_float(t);
  for (const BinaryOp op :
       {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv, BinaryOp::kMod,
        BinaryOp::kMin, BinaryOp::kMax, BinaryOp::kAnd, BinaryOp::kOr, BinaryOp::kXor,
        BinaryOp::kShl, BinaryOp::kShr, BinaryOp::kScale}) {
    const bool of_bits = op == BinaryOp::kAnd || op == BinaryOp::kOr || op == BinaryOp::kXor;
    const bool of_integers =
        of_bits || op == BinaryOp::kMod || op == BinaryOp::kShl || op == BinaryOp::kShr;
    if (t == DType::kBool ? !of_bits : floating ? of_integers : op == BinaryOp::kScale) continue;
    o.result(binary(op, o.a, o.b));
    const bool associative = op != BinaryOp::kSub && op != BinaryOp::kDiv && op != BinaryOp::kMod &&
                             op != BinaryOp::kShl && op != BinaryOp::kShr && op != BinaryOp::kScale;
    if (associative) o.result(reduce(op, o.a));
  }
  for (const UnaryOp op :
       {UnaryOp::kNeg, UnaryOp::kAbs, UnaryOp::kSqrt, UnaryOp::kRsqrt, UnaryOp::kFloor,
        UnaryOp::kCeil, UnaryOp::kRound, UnaryOp::kTrunc, UnaryOp::kNot}) {
    const bool numbers = op == UnaryOp::kNeg || op == UnaryOp::kAbs;
    const bool has = op == UnaryOp::kNot ? !floating : floating || (numbers && t != DType::kBool);
    if (has) o.result(unary(op, o.a));
  }
  for (const CompareOp op : {CompareOp::kEq, CompareOp::kNe, CompareOp::kLt, CompareOp::kLe,
                             CompareOp::kGt, CompareOp::kGe})
    o.result(compare(op, o.a, o.b));
  if (floating) {
    o.result(fma(o.a, o.b, o.a));
    o.result(math::exp(o.a));
    o.result(math::sin(o.b));  // with a rare path
  }
  return o.done();
}

// What a type of storage has, too.
Function storage(DType t, int lanes) {
  Operands o("storage_" + word(t) + "_" + std::to_string(lanes), t, lanes);
  for (const DType to : kTypes) {
    if (to != t) o.result(cast(to, o.a));
    const size_t bytes = size_of(t) * static_cast<size_t>(lanes);
    if (to != t && to != DType::kBool && t != DType::kBool && bytes % size_of(to) == 0)
      o.result(bitcast(to, o.a));
  }
  const ValueRef even =
      compare(CompareOp::kEq, binary(BinaryOp::kAnd, iota(lanes), integer(DType::kI32, 1)),
              integer(DType::kI32, 0));
  o.result(select(even, o.a, o.b));
  o.result(select(even, o.a, number(t, 3)));
  o.result(broadcast(extract(o.b, lanes - 1), lanes));
  o.result(shuffle(o.a, mod(kThread + 1, kWarpLanes)));
  if (t == DType::kI64) o.result(add(extract(o.a, 0), index(floordiv(kThread, 3))));
  return o.done();
}

// Every way to read and write memory, of four blocks.
Function accesses(DType t, int lanes) {
  KernelBuilder k("accesses_" + word(t) + "_" + std::to_string(lanes));
  k.launch(64, 4);
  const Dim n = k.symbol("n"), m = k.symbol("m", {0, 1 << 20, 64});  // lanes within are valid
  const Dim block = Dim::symbol("block_x");
  const Dim all = Dim(4 * 64 * lanes), at = block * Dim(64 * lanes) + kThread * lanes;
  const BufferRef x = tensor(k, "x", t, 4 * all, false), unaligned = k.in("unaligned", t, 4 * all);
  const BufferRef shared = k.shared("shared", t, 64 * lanes),
                  scratch = k.scratch("scratch", t, all);
  const BufferRef r = k.registers("r", t, 2, lanes);
  int outputs = 0;
  const auto out = [&](const Dim& extent) {
    return tensor(k, "y" + std::to_string(outputs++), t, extent, true);
  };
  const ValueRef a = load(x, at, lanes);
  return k.body({
      store(out(all), at, a),
      store(out(all + 1), at + 1, load(unaligned, at, lanes)),
      store(out(all), at, load(x, at + 1, lanes)),
      store_masked(out(all), at, load_masked(x, at, lanes, n - at), n - at),
      store_masked(out(all), at, load_masked(x, at, lanes, m - at, a), m - at),
      store_masked(out(all + 1), at + 1, load_masked(unaligned, at, lanes, n - at, a), n - at),
      store_strided(out(4 * all), at * 4, 3, load_strided(x, at, 2, lanes)),
      store_strided(out(4 * all), at * 4, 3, load_strided(x, at, 2, lanes, n - at), n - at),
      store(out(all), at, load_strided(x, at, 0, lanes)),
      set_reg(r, 0, a),
      set_reg(r, 1, load_masked(x, at + all, lanes, n - at, reg(r, 0))),
      let("kept", reg(r, 1)),
      set_reg(r, 1, reg(r, 0)),
      store(shared, kThread * lanes, reg(r, 1)),
      barrier(Together::kBlock),
      store(scratch, at, load(shared, Dim(63 * lanes) - kThread * lanes, lanes)),
      barrier(Together::kWarp),
      store(out(all), at, load(scratch, at, lanes)),
      store(out(all), at, local("kept", t, lanes)),
      prefetch(x, at, 3),
      prefetch(x, at, 2),
  });
}

// Each fragment as a template uses it: copied to shared memory, loaded by a warp, multiplied.
Function fragments() {
  KernelBuilder k("fragments");
  k.launch(32);
  const Dim n = k.symbol("n");
  std::vector<StmtRef> body;
  for (const WarpFragmentRow& row : all_warp_fragments()) {
    const std::string name(row.name);
    const int each = row.per_register(row.a), in_row = 16 / static_cast<int>(size_of(row.a));
    const BufferRef from = tensor(k, name + "_x", row.a, n * in_row, false);
    const BufferRef to = tensor(k, name + "_y", row.sum, Dim(32 * row.sum_registers()), true);
    const BufferRef shared = k.shared(name + "_shared", row.a, 32 * in_row);
    const BufferRef a = k.registers(name + "_a", row.a, row.a_registers(), each);
    const BufferRef b = k.registers(name + "_b", row.b, row.b_registers(), each);
    const BufferRef sum = k.registers(name + "_sum", row.sum, row.sum_registers());
    const Dim at = kThread * in_row;
    body.push_back(async_copy(shared, at, from, at, in_row));
    body.push_back(async_copy(shared, at, from, at, in_row, n - kThread));
    body.push_back(async_copy(shared, at, from, at, in_row / 2));
    body.push_back(async_copy(shared, at, from, at, in_row / 4, n));
    body.push_back(async_commit());
    body.push_back(async_wait(0));
    body.push_back(barrier(Together::kBlock));
    for (int i = 0; i < row.sum_registers(); ++i)
      body.push_back(set_reg(sum, i, number(row.sum, 0)));
    body.push_back(warp_load(a, 0, 4, shared, at));
    body.push_back(warp_load(b, 0, 2, shared, at, size_of(row.b) == 2));
    body.push_back(warp_load(b, 1, 1, shared, at));
    body.push_back(warp_dot(row.id, sum, 0, a, 0, b, 0));
    for (int i = 0; i < row.sum_registers(); ++i)
      body.push_back(store(to, kThread * row.sum_registers() + i, reg(sum, i)));
    body.push_back(barrier(Together::kBlock));
  }
  return k.body(body);
}

std::vector<Function> everything() {
  std::vector<Function> out = {fragments()};
  for (const DType t : kTypes) {
    if (!is_narrow_float(t)) out.push_back(arithmetic(t, 4));
    out.push_back(storage(t, 4));
    for (const int lanes : {1, 2, 16}) out.push_back(accesses(t, lanes));
  }
  out.push_back(arithmetic(DType::kF32, 1));
  out.push_back(storage(DType::kF16, 1));
  out.push_back(storage(DType::kI8, 2));
  return out;
}

class CudaCompile : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaCompile, TakesEverythingThatKernelsHave) {
  NIMBLE_NEEDS_NVRTC();
  const std::vector<Function> functions = everything();
  const std::vector<CudaObject> objects = compile_cuda(functions, gpu_target(GetParam()), 3);
  ASSERT_EQ(objects.size(), functions.size());
  for (size_t i = 0; i < functions.size(); ++i) {
    const CompiledFunction& f = objects[i].function;
    EXPECT_EQ(f.name, functions[i].name);
    EXPECT_EQ(f.code_hash.size(), 32u);
    EXPECT_GT(f.code_bytes, 0u) << f.name;
    EXPECT_GT(objects[i].resources.registers, 0) << f.name;
    EXPECT_EQ(objects[i].resources.shared_bytes, 0) << f.name << ": the launch gives it";
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaCompile,
                         ::testing::ValuesIn(kernels::testing::gpu_machine_levels()),
                         [](const auto& info) { return info.param; });

// For GPUs that are not there yet: the text that their driver compiles.
TEST(CudaObject, MayBeAssembly) {
  NIMBLE_NEEDS_NVRTC();
  const std::vector<Function> functions = everything();
  const std::vector<CudaObject> objects = compile_cuda(functions, gpu_target("compute_80"), 3);
  ASSERT_EQ(objects.size(), functions.size());
  for (size_t i = 0; i < functions.size(); ++i) {
    const std::string text(objects[i].bytes.begin(), objects[i].bytes.end());
    EXPECT_THAT(text, ::testing::HasSubstr(".target sm_80\n"));
    EXPECT_THAT(text, ::testing::HasSubstr(".entry " + functions[i].name + "("));
    EXPECT_EQ(text.find('\0'), text.npos) << "whoever loads it ends it";
    EXPECT_EQ(objects[i].function.code_bytes, text.size());
    EXPECT_EQ(objects[i].resources.registers, 0) << "only the driver knows";
    EXPECT_GT(objects[i].argument_alignment, 0u);
  }
}

Function scaled(const std::string& name, double by) {
  KernelBuilder k(name);
  k.launch(64);
  const BufferRef x = k.in("x", DType::kF32, 64), y = k.out("y", DType::kF32, 64);
  return k.body({store(y, kThread, mul(load(x, kThread), f32(by)))});
}

TEST(CudaObject, EqualKernelsAreEqualBytes) {
  NIMBLE_NEEDS_NVRTC();
  const std::vector<Function> both = {scaled("a", 2), fragments()};
  const std::vector<CudaObject> a = compile_cuda(both, gpu_target()),
                                b = compile_cuda(both, gpu_target(), 2);
  for (size_t i = 0; i < both.size(); ++i) EXPECT_EQ(a[i].bytes, b[i].bytes);
}

TEST(CudaObject, IsCompiledOnce) {
  NIMBLE_NEEDS_NVRTC();
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "cuda-once";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  CodeCache cache(folder.string());
  const std::vector<Function> a = {scaled("a", 2)}, b = {scaled("b", 2)}, c = {scaled("a", 3)};
  const auto compile = [&](const std::vector<Function>& f, const char* level = "sm_90a") {
    return compile_cuda(f, gpu_target(level), 1, &cache)[0];
  };
  const CudaObject first = compile(a), again = compile(a);
  EXPECT_FALSE(first.cached);
  EXPECT_TRUE(again.cached);
  EXPECT_EQ(again.bytes, first.bytes);
  EXPECT_EQ(again.function.code_hash, first.function.code_hash);
  EXPECT_EQ(again.function.code_bytes, first.function.code_bytes);
  EXPECT_EQ(again.resources.registers, first.resources.registers);
  EXPECT_FALSE(compile(b).cached) << "the name is in the cubin";
  EXPECT_FALSE(compile(c).cached) << "another constant";
  EXPECT_FALSE(compile(a, "sm_80").cached) << "another architecture";
  EXPECT_FALSE(compile(a, "compute_80").cached) << "assembly";
  EXPECT_TRUE(compile(a, "compute_80").cached);
  EXPECT_TRUE(compile(c).cached);
  // What is damaged is compiled again.
  for (const auto& file : std::filesystem::directory_iterator(folder))
    std::filesystem::resize_file(file, 100);
  EXPECT_FALSE(compile(a).cached);
  EXPECT_EQ(compile(a).bytes, first.bytes);
  std::filesystem::remove_all(folder);
}

TEST(CudaObject, HashesDependOnCodeOnly) {
  NIMBLE_NEEDS_NVRTC();
  const auto hash = [](const std::vector<Function>& functions, const char* level = "sm_90a") {
    return compile_cuda(functions, gpu_target(level)).back().function.code_hash;
  };
  const std::string of_a = hash({scaled("a", 2)});
  EXPECT_EQ(hash({scaled("b", 2)}), of_a) << "the name is not a part of it";
  EXPECT_EQ(hash({scaled("c", 3), scaled("d", 2)}), of_a) << "companions are not";
  EXPECT_NE(hash({scaled("a", 3)}), of_a) << "a constant is";
  EXPECT_NE(hash({scaled("a", 2)}, "sm_80"), of_a) << "the target is";
}

// More values at once than a thread of 1024 has registers for.
TEST(CudaObject, TellsWhatSpills) {
  NIMBLE_NEEDS_NVRTC();
  KernelBuilder k("spilling");
  k.launch(1024);
  const BufferRef x = k.in("x", DType::kF32, 4096), y = k.out("y", DType::kF32, 4096);
  const BufferRef r = k.registers("r", DType::kF32, 128);
  const Dim i = Dim::symbol("i"), j = Dim::symbol("j");
  const Function f = k.body(
      {loop(LoopKind::kUnroll, "i", 0, 128, set_reg(r, i, f32(0))),
       loop(LoopKind::kSerial, "j", 0, 32,
            loop(LoopKind::kUnroll, "i", 0, 128,
                 set_reg(r, i, mul(add(reg(r, i), load(x, kThread + j + i)), load(x, i * j))))),
       loop(LoopKind::kUnroll, "i", 0, 128, store(y, kThread + i, reg(r, i)))});
  const std::vector<Function> functions = {scaled("a", 2), f};
  const std::vector<CudaObject> objects = compile_cuda(functions, gpu_target());
  EXPECT_EQ(objects[0].resources.spill_bytes, 0);
  EXPECT_GT(objects[1].resources.spill_bytes, 0);
  EXPECT_LE(objects[1].resources.registers, 64) << "a 1024th of a multiprocessor's";
}

TEST(CudaObject, HasAssembly) {
  NIMBLE_NEEDS_NVRTC();
  EXPECT_THAT(cuda_backend_version(), ::testing::StartsWith("NVRTC 1"));
  const std::string ptx = cuda_assembly(scaled("a", 2), gpu_target());
  EXPECT_THAT(ptx, ::testing::HasSubstr(".target sm_90a"));
  EXPECT_THAT(ptx, ::testing::HasSubstr("ld.global.nc")) << "what is only read has a cache";
  EXPECT_THAT(ptx, ::testing::Not(::testing::HasSubstr(".ftz")));
}

// Each multiplication and each sum rounds, even where one could be part of the other.
TEST(CudaObject, ContractsNothing) {
  NIMBLE_NEEDS_NVRTC();
  Operands o("contracts_nothing", DType::kF32, 1);
  o.result(add(mul(o.a, o.b), o.b));
  const std::string ptx = cuda_assembly(o.done(), gpu_target());
  EXPECT_THAT(ptx, ::testing::Not(::testing::HasSubstr("fma.rn")));
  Operands fused("fused", DType::kF32, 1);
  fused.result(fma(fused.a, fused.b, fused.b));
  EXPECT_THAT(cuda_assembly(fused.done(), gpu_target()), ::testing::HasSubstr("fma.rn.f32"));
}

// A campaign may try thousands of candidates that the assembler cannot take.
TEST(CudaObject, OneRefusedSourceOfAProcessIsKept) {
  NIMBLE_NEEDS_NVRTC();
  const auto place_of = [](const std::string& source) {
    try {
      Nvrtc::get()->compile(source, "sm_90a", false);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr("NVRTC refuses this kernel"));
      return e.place();
    }
    ADD_FAILURE() << "no error";
    return std::string();
  };
  const std::string first = place_of("no kernel;");
  EXPECT_TRUE(std::filesystem::exists(first)) << first;
  const auto bytes = std::filesystem::file_size(first);
  const std::string second = place_of("none either, and longer;");
  EXPECT_FALSE(std::filesystem::exists(second)) << second;
  EXPECT_EQ(std::filesystem::file_size(first), bytes);
  std::filesystem::remove(first);
}

}  // namespace
}  // namespace nimble::codegen
