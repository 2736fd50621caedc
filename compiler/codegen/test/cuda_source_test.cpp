// The CUDA C++ of kernels, where its form matters: what is one access, which arithmetic is narrow,
// what a failed check says, and what is refused.
#include <gmock/gmock.h>

#include <functional>

#include "compiler/codegen/test/cuda_kernels.h"
#include "vm/executable/check_status.h"

namespace nimble::codegen {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::KernelBuilder;
using testing::gpu_target;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::tensor;

const Dim kThread = Dim::symbol("thread");  // NOLINT
const Dim kBlock = Dim::symbol("block_x");  // NOLINT

// Without what stands before the kernel.
std::string body_of(const Function& f) {
  const std::string source = cuda_source(f, gpu_target());
  return source.substr(source.find("extern \"C\""));
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// y = x of f16, in vectors of `lanes`, every `pitch` elements.
Function copy(int lanes, int pitch, bool aligned) {
  KernelBuilder k("copy");
  k.launch(32);
  const Dim n = Dim(32 * pitch + lanes);
  const BufferRef x = aligned ? tensor(k, "x", DType::kF16, n, false) : k.in("x", DType::kF16, n);
  const BufferRef y = aligned ? tensor(k, "y", DType::kF16, n, true) : k.out("y", DType::kF16, n);
  return k.body({store(y, kThread * pitch, load(x, kThread * pitch, lanes))});
}

TEST(CudaSource, NeighboursAreOneAccessWhereTheyAreAligned) {
  const std::string whole = body_of(copy(8, 8, true));
  EXPECT_EQ(count(whole, "reinterpret_cast<const uint4*>"), 1u) << whole;
  EXPECT_EQ(count(whole, "make_uint4"), 1u) << whole;
  EXPECT_EQ(count(body_of(copy(16, 16, true)), "make_uint4"), 2u);
  EXPECT_EQ(count(body_of(copy(4, 8, true)), "make_uint2"), 1u);
  EXPECT_EQ(count(body_of(copy(8, 12, true)), "make_uint2"), 2u) << "every 24 bytes";
  EXPECT_EQ(count(body_of(copy(8, 2, true)), "reinterpret_cast<u32*>"), 4u);
  for (const Function& f : {copy(8, 7, true), copy(8, 8, false)})
    EXPECT_THAT(body_of(f), Not(HasSubstr("reinterpret_cast"))) << "by element";
}

// What a launch asks of its arguments' addresses is what its code does, not what buffers claim.
TEST(CudaSource, TellsHowArgumentsAreToLie) {
  const auto of = [](const std::function<std::vector<StmtRef>(KernelBuilder&, const BufferRef& x,
                                                              const BufferRef& y)>& body,
                     DType t = DType::kF32, bool aligned = true) {
    KernelBuilder k("k");
    k.launch(32);
    const BufferRef x = aligned ? tensor(k, "x", t, 1024, false) : k.in("x", t, 1024);
    const BufferRef y = aligned ? tensor(k, "y", t, 1024, true) : k.out("y", t, 1024);
    const std::vector<StmtRef> statements = body(k, x, y);
    return argument_alignment(k.body(statements), gpu_target());
  };
  // y[thread] = x[at], of a few lanes the last one.
  const auto loads = [&](const Dim& at, int lanes, DType t = DType::kF32, bool aligned = true) {
    return of(
        [&](KernelBuilder&, const BufferRef& x, const BufferRef& y) -> std::vector<StmtRef> {
          const ValueRef v = load(x, at, lanes);
          return {store(y, kThread, lanes == 1 ? v : extract(v, lanes - 1))};
        },
        t, aligned);
  };
  EXPECT_EQ(loads(kThread, 1), 4u);
  EXPECT_EQ(loads(kThread, 1, DType::kI8), 1u);
  EXPECT_EQ(loads(kThread, 1, DType::kF64), 8u);
  EXPECT_EQ(loads(kThread * 2, 2), 8u);
  EXPECT_EQ(loads(kThread * 4, 4), 16u);
  EXPECT_EQ(loads(kThread * 16, 16), 16u);
  EXPECT_EQ(loads(kThread * 6, 4), 8u) << "every 24 bytes";
  EXPECT_EQ(loads(kThread * 4 + 1, 4), 4u);
  EXPECT_EQ(loads(kThread * 8, 8, DType::kF16), 16u);
  EXPECT_EQ(loads(kThread * 2, 2, DType::kI8), 2u);
  EXPECT_EQ(loads(kThread * 4, 4, DType::kF32, false), 4u);
  using Body = std::vector<StmtRef>;
  EXPECT_EQ(of([](KernelBuilder&, const BufferRef& x, const BufferRef& y) -> Body {
              return {store(y, kThread * 4, broadcast(load(x, kThread), 4))};
            }),
            16u)
      << "a store";
  EXPECT_EQ(of([](KernelBuilder&, const BufferRef& x, const BufferRef& y) -> Body {
              return {store_strided(y, kThread * 8, 2, load_strided(x, kThread * 8, 2, 4))};
            }),
            4u);
  EXPECT_EQ(of([](KernelBuilder&, const BufferRef& x, const BufferRef& y) -> Body {
              const ValueRef other = load(x, kThread * 4, 4);
              const ValueRef v = load_masked(x, kThread, 4, 100 - kThread, other);
              return {store(y, kThread, extract(v, 0))};
            }),
            16u)
      << "the values behind the valid ones";
  EXPECT_EQ(of([](KernelBuilder& k, const BufferRef& x, const BufferRef& y) -> Body {
              const BufferRef s = k.shared("s", DType::kF32, 256);
              return {async_copy(s, kThread * 2, x, kThread * 2, 2), async_commit(), async_wait(0),
                      store(y, kThread, load(s, kThread * 2))};
            }),
            8u);
  EXPECT_EQ(of([](KernelBuilder& k, const BufferRef& x, const BufferRef& y) -> Body {
              const BufferRef s = k.shared("s", DType::kF32, 256);
              return {prefetch(x, kThread, 3), store(s, kThread * 4, broadcast(f32(1), 4)),
                      store(y, kThread, load(s, kThread * 4))};
            }),
            4u)
      << "a block's own memory is where it is";
}

TEST(CudaSource, MasksOfWholeAccessesKeepThemWhole) {
  KernelBuilder k("masked");
  k.launch(32);
  const Dim n = k.symbol("n", {0, 1 << 20, 4}), odd = k.symbol("odd");
  const BufferRef x = tensor(k, "x", DType::kF32, n + odd, false);
  const BufferRef y = tensor(k, "y", DType::kF32, n + odd, true);
  const Dim at = kThread * 8;
  Function f = k.body({store_masked(y, at, load_masked(x, at, 8, n - at), n - at)});
  const std::string whole = body_of(f);
  EXPECT_EQ(count(whole, "uint4*>"), 4u) << whole;
  EXPECT_EQ(count(whole, "if ("), 4u) << whole;
  f = k.body({store_masked(y, at, load_masked(x, at, 8, odd), odd)});
  const std::string either = body_of(f);
  EXPECT_EQ(count(either, "uint4*>"), 4u) << either;
  EXPECT_EQ(count(either, "else {"), 2u) << "an element at a time at the end: " << either;
}

// No i32 can be shifted by 32.
TEST(CudaSource, NarrowIndicesAreWidenedToBeShiftedFar) {
  KernelBuilder k("far");
  k.launch(32);
  const BufferRef x = k.in("x", DType::kF32, Dim(64)), y = k.out("y", DType::kF32, Dim(64));
  for (const int by : {5, 31, 32, 40, 62}) {
    const Dim far = Dim(0) - floordiv(Dim(0) - kThread, Dim(int64_t{1} << by));
    const std::string text = body_of(k.body({store(y, kThread, load(x, far))}));
    EXPECT_THAT(text, HasSubstr(fmt::format(" >> {})", by)));
    EXPECT_EQ(count(text, "((i64)("), by > 31 ? 1u : 0u) << text;
  }
}

TEST(CudaSource, IndicesAreNarrowWhereRangesProveIt) {
  KernelBuilder k("narrow");
  const Dim n = k.symbol("n", {0, 1000, 1}), large = k.symbol("large");
  k.launch(32, n);
  const BufferRef x = k.in("x", DType::kF32, n * 1000 + 32);
  const BufferRef y = k.out("y", DType::kF32, large * n + large);
  const Function f =
      k.body({store(y, large * kBlock + kThread, load(x, kBlock * 1000 + floordiv(kThread, 3)))});
  const std::string text = body_of(f);
  EXPECT_THAT(text, ::testing::ContainsRegex("= \\(i32\\)n[0-9]+_n;"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\\(v[0-9]+ \\* 1000\\)")) << text;
  EXPECT_THAT(text, ::testing::ContainsRegex("\\(i32\\)\\(\\(u32\\)v[0-9]+ / \\(u32\\)3\\)"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\\(i64\\)(v[0-9]+|n[0-9]+_large) \\*")) << text;
}

TEST(CudaSource, LoopsOverNegativeNumbersRoundDown) {
  KernelBuilder k("negative");
  k.launch(32);
  const BufferRef y = k.out("y", DType::kI64, 32);
  const Dim i = Dim::symbol("i");
  const std::string text =
      body_of(k.body({loop(LoopKind::kSerial, "i", -5, 10,
                           store(y, kThread, add(index(floordiv(i, 3)), index(mod(i, 8)))))}));
  EXPECT_THAT(text, HasSubstr("floor_divide<i32>(")) << text;
  EXPECT_THAT(text, HasSubstr("& 7)")) << text;
  EXPECT_THAT(text, HasSubstr("#pragma unroll 1")) << text;
}

TEST(CudaSource, AFailedCheckLeavesItsStatus) {
  KernelBuilder k("checked");
  const Dim n = k.symbol("n");
  k.launch(32);
  const BufferRef y = k.out("y", DType::kF32, n);
  const Function f = k.body({check(le(Dim(32), n), "too short"), store(y, kThread, f32(1))});
  const int32_t status = exec::check_status("too short");
  EXPECT_THAT(body_of(f), HasSubstr("fail(status, " + std::to_string(status) + ")"));
}

// A name keeps the value that the register had.
TEST(CudaSource, NamesKeepWhatRegistersLose) {
  KernelBuilder k("kept");
  k.launch(32);
  const BufferRef y = k.out("y", DType::kF32, 32);
  const BufferRef r = k.registers("r", DType::kF32, 1);
  const std::string text =
      body_of(k.body({set_reg(r, 0, f32(1)), let("old", reg(r, 0)), set_reg(r, 0, f32(2)),
                      store(y, kThread, add(local("old", DType::kF32, 1), reg(r, 0)))}));
  EXPECT_THAT(text, ::testing::ContainsRegex("const f32 (v[0-9]+) = n[0-9]+_r_0;")) << text;
  EXPECT_EQ(count(text, "_r_0;\n"), 3u) << "declared, and read for each use: " << text;
}

TEST(CudaSource, SharedMemoryIsTheLaunchs) {
  KernelBuilder k("shares");
  k.launch(32);
  const BufferRef first = k.shared("first", DType::kF32, 33),
                  second = k.shared("second", DType::kF32, 32);
  const BufferRef y = k.out("y", DType::kF32, 32);
  const Function f = k.body({store(first, kThread, f32(1)), store(second, kThread, f32(1)),
                             barrier(Together::kBlock), store(y, kThread, load(first, kThread))});
  const std::string text = body_of(f);
  EXPECT_THAT(text, HasSubstr("(nimble_shared + 0)"));
  EXPECT_THAT(text, HasSubstr("(nimble_shared + 256)"));
  EXPECT_THAT(text, HasSubstr("__syncthreads();"));
  EXPECT_THAT(text, HasSubstr("__launch_bounds__(32)"));
}

template <class Make>
void expect_refused(const Make& make, const std::string& why) {
  try {
    make();
    FAIL() << "taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
    EXPECT_THAT(e.what(), HasSubstr(why));
  }
}

// Blocks meet between two steps of one launch. A load from one of two pointers must not go through
// the read-only cache, which sees nothing of other blocks, so none says that it is its own.
TEST(CudaSource, BlocksMeetBetweenSteps) {
  KernelBuilder k("steps");
  const Dim n = k.symbol("n"), t = Dim::symbol("t");
  const BufferRef x = k.in("x", DType::kF32, 32), y = k.out("y", DType::kF32, n * 32);
  k.launch(32);
  const Function f =
      k.body({loop(LoopKind::kSteps, "t", 0, n,
                   if_then(eq(t, 0), store(y, kThread, load(x, kThread)),
                           store(y, t * 32 + kThread, load(y, (t - 1) * 32 + kThread))))});
  const std::string body = body_of(f);
  EXPECT_THAT(body, HasSubstr("i64 first_step, i64 end_step, u32* arrived"));
  EXPECT_EQ(count(body, "meet_grid(arrived);"), 1u);
  EXPECT_THAT(body, Not(HasSubstr("__restrict__")));
  EXPECT_THAT(body_of(copy(1, 1, true)), Not(HasSubstr("arrived")));
}

TEST(CudaSource, RefusesWhatAGpuLacks) {
  KernelBuilder cpu("cpu");
  const BufferRef y = cpu.out("y", DType::kF32, 64);
  const Function f = cpu.body({store(y, 0, f32(0))});
  expect_refused([&] { cuda_source(f, gpu_target()); }, "it has no launch");

  KernelBuilder large("large");
  large.launch(32);
  const BufferRef s = large.shared("s", DType::kF32, 50000);
  const Function g = large.body({store(s, kThread, f32(0))});
  cuda_source(g, gpu_target("sm_90a"));
  expect_refused([&] { cuda_source(g, gpu_target("sm_80")); },
                 "its blocks take 200064 bytes of shared memory, those of sm_80 have 166912");
}

}  // namespace
}  // namespace nimble::codegen
