// What unrolled loops become, what must not happen to names and to code that is never reached, and
// that every template's kernels compute the same to the bit.
#include "compiler/kernels/unroll.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "compiler/ir/layout.h"
#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/tile_cases.h"
#include "compiler/kernels/tiles.h"
#include "vm/executable/check_status.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using testing::bytes_of;
using ::testing::ElementsAre;
using testing::KernelBuilder;
using testing::tile_kernel;
using testing::TileCase;

const Dim i = Dim::symbol("i"), j = Dim::symbol("j"), k = Dim::symbol("k");

StmtRef unrolled(const std::string& var, const Dim& begin, const Dim& extent, StmtRef body,
                 int64_t step = 1) {
  return loop(LoopKind::kUnroll, var, begin, extent, std::move(body), step);
}

bool has_unrolled_loop(const Stmt& s) {
  if (s.kind == StmtKind::kFor && s.loop == LoopKind::kUnroll) return true;
  return std::any_of(s.body.begin(), s.body.end(),
                     [](const StmtRef& b) { return has_unrolled_loop(*b); });
}

// The unrolled function, after what holds for each.
Function checked(const Function& f, const std::map<std::string, Dim>& known = {}) {
  EXPECT_EQ(verify(f), "") << print(f);
  Function out = unroll(f, known);
  EXPECT_EQ(verify(out), "") << print(out);
  EXPECT_FALSE(has_unrolled_loop(*out.body)) << print(out);
  EXPECT_EQ(print(unroll(out)), print(out)) << "once is enough";
  return out;
}

// The text of the body alone.
std::string body_of(const Function& f) {
  Function bare = f;
  bare.name = "k";
  const std::string text = print(bare);
  size_t at = text.find('\n') + 1;
  while (text.compare(at, 9, "  buffer ") == 0) at = text.find('\n', at) + 1;
  return text.substr(at, text.size() - at - 2);
}

TEST(Unroll, CopiesBodiesAndCountsRegisters) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto x = b.in("x", DType::kF32, n * 8), y = b.out("y", DType::kF32, n * 8);
  const auto acc = b.registers("acc", DType::kF32, 4, 2);
  const Dim at = i * 2 + j;
  const Function f = b.body(
      {unrolled("i", 0, 2, unrolled("j", 0, 2, set_reg(acc, at, f32(0, 2)))),
       loop(LoopKind::kSerial, "k", 0, n,
            unrolled("i", 0, 2,
                     unrolled("j", 0, 2,
                              set_reg(acc, at, add(reg(acc, at), load(x, k * 8 + at * 2, 2)))))),
       unrolled("i", 1, 2, store(y, i * n, reg(acc, i)))});
  EXPECT_EQ(body_of(checked(f)), R"(  acc[0] = f32x2(0x0p+0)
  acc[1] = f32x2(0x0p+0)
  acc[2] = f32x2(0x0p+0)
  acc[3] = f32x2(0x0p+0)
  serial k from 0 count n {
    acc[0] = add(acc[0], (load.f32x2 x[8*k]))
    acc[1] = add(acc[1], (load.f32x2 x[8*k + 2]))
    acc[2] = add(acc[2], (load.f32x2 x[8*k + 4]))
    acc[3] = add(acc[3], (load.f32x2 x[8*k + 6]))
  }
  store y[n] = acc[1]
  store y[2*n] = acc[2]
)");
}

TEST(Unroll, TakesStepsSymbolicBeginsAndExtentsOfOuterVariables) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto y = b.out("y", DType::kI64, n + 16);
  const Function f = b.body({
      unrolled("i", n, 5, store(y, i, index(i)), 2),
      unrolled("i", 0, 3, unrolled("j", i, i, store(y, j, index(i)))),
      unrolled("i", 0, 0, store(y, 0, index(i))),
      unrolled("i", 0, -3, store(y, 0, index(i))),
  });
  EXPECT_EQ(body_of(checked(f)), R"(  store y[n] = index(n)
  store y[n + 2] = index(n + 2)
  store y[n + 4] = index(n + 4)
  store y[1] = index(1)
  store y[2] = index(2)
  store y[3] = index(2)
)");
}

TEST(Unroll, LeavesOtherFunctionsAsTheyAre) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto x = b.in("x", DType::kF32, n * n), y = b.out("y", DType::kF32, n * n);
  const ValueRef local_v = local("v", DType::kF32, 1);
  const auto row = [&](const std::string& var) {
    return loop(LoopKind::kSerial, var, 0, n, store(y, i * n + Dim::symbol(var), local_v));
  };
  const StmtRef each = loop(LoopKind::kThread, "i", 0, n,
                            seq({check(lt(i, n), "beyond"), let("v", load(x, i)),
                                 if_then(lt(i, 5), row("j"), row("k"))}));
  const Function f = b.body({each});
  const Function out = checked(f);
  EXPECT_EQ(print(out), print(f));
  EXPECT_EQ(out.body->body[0]->body[1], each->body[0]->body[1]) << "nothing is rebuilt for nothing";
}

// ---------------------------------------------------------------- names

TEST(Unroll, GivesEachCopyNamesOfItsOwn) {
  KernelBuilder b("k");
  const auto at = b.in("at", DType::kI32, 8);
  const auto y = b.out("y", DType::kF32, 64);
  const ir::SymbolFacts facts{0, 60, 4};
  const Function f = b.body({unrolled(
      "i", 0, 2,
      seq({let_index("p", load(at, i), facts), let("v", cast(DType::kF32, index(Dim::symbol("p")))),
           store(y, Dim::symbol("p") + i, local("v", DType::kF32, 1))}))});
  const Function out = checked(f);
  EXPECT_EQ(body_of(out), R"(  let index p in [0, 60] by 4 = (load.i32 at[0])
  let v = cast.f32(index(p))
  store y[p] = v
  let index p.0 in [0, 60] by 4 = (load.i32 at[1])
  let v.0 = cast.f32(index(p.0))
  store y[p.0 + 1] = v.0
)");
  std::vector<int32_t> in = {8, 4};
  std::vector<float> got(64);
  in.resize(8);
  ASSERT_EQ(Interpreter(out).run({{bytes_of(in), bytes_of(got)}}, {}), 0);
  EXPECT_EQ(got[8], 8);
  EXPECT_EQ(got[5], 4);
}

// Names that were apart by their blocks stay apart when copies come into one block.
TEST(Unroll, KeepsNamesApartThatBlocksKeptApart) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto at = b.in("at", DType::kI32, 4);
  const auto y = b.out("y", DType::kF32, n * 64);
  const auto bound = [&](const std::string& name, const Dim& from) {
    return seq({let_index(name, load(at, from), ir::SymbolFacts{0, 3, 1}),
                store(y, Dim::symbol(name), f32(1))});
  };
  const Function f = b.body({
      unrolled("i", 0, 2, bound("p", i)),
      // A loop variable of a name that is free again, and an unrolled one.
      loop(LoopKind::kSerial, "p", 0, 2, store(y, Dim::symbol("p") + 8, f32(2))),
      unrolled("p", 3, 1, store(y, Dim::symbol("p") + 16, f32(3))),
      // What a copy might be called.
      loop(LoopKind::kSerial, "p.0", 0, 2, bound("p.1", Dim::symbol("p.0"))),
      if_then(lt(n, 5), bound("q", 0), bound("q", 1)),
      // The same value in two blocks means the name of each.
      if_then(lt(0, n), seq({bound("q", 2)})),
  });
  const Function out = checked(f);
  EXPECT_EQ(body_of(out), R"(  let index p.1 in [0, 3] = (load.i32 at[0])
  store y[p.1] = f32(0x1p+0)
  let index p.2 in [0, 3] = (load.i32 at[1])
  store y[p.2] = f32(0x1p+0)
  serial p from 0 count 2 {
    store y[p + 8] = f32(0x1p+1)
  }
  store y[19] = f32(0x1.8p+1)
  serial p.0 from 0 count 2 {
    let index p.1.0 in [0, 3] = (load.i32 at[p.0])
    store y[p.1.0] = f32(0x1p+0)
  }
  if n < 5 {
    let index q in [0, 3] = (load.i32 at[0])
    store y[q] = f32(0x1p+0)
  } else {
    let index q.0 in [0, 3] = (load.i32 at[1])
    store y[q.0] = f32(0x1p+0)
  }
  if 0 < n {
    let index q.1 in [0, 3] = (load.i32 at[2])
    store y[q.1] = f32(0x1p+0)
  }
)");
}

TEST(Unroll, TellsTheSameValueInTwoBlocksApart) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto x = b.in("x", DType::kF32, 2), y = b.out("y", DType::kF32, 2);
  const ValueRef twice = add(local("v", DType::kF32, 1), local("v", DType::kF32, 1));
  const auto block = [&](int from) {
    return seq({let("v", load(x, from)), store(y, from, twice)});
  };
  const Function out = checked(b.body({if_then(lt(n, 5), block(0)), if_then(lt(n, 6), block(1))}));
  std::vector<float> in = {3, 5}, got(2);
  ASSERT_EQ(Interpreter(out).run({{bytes_of(in), bytes_of(got)}}, {{1}}), 0);
  EXPECT_THAT(got, ElementsAre(6, 10));
}

// ---------------------------------------------------------------- conditions

TEST(Unroll, DecidesConditionsOfConstants) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto y = b.out("y", DType::kF32, 8);
  const auto mark = [&](int at) { return store(y, at, f32(at)); };
  const Function f =
      b.body({unrolled("i", 0, 2,
                       seq({if_then(lt(i, 1), mark(0), mark(1)), if_then(le(1, i), mark(2)),
                            if_then(both(eq(i, 0), lt(i, n)), mark(3)),
                            if_then(both(lt(i, n), eq(i, 1)), mark(4)), if_then({}, mark(5)),
                            check(both(le(i, 1), lt(i, n)), "few"), check(le(i, 1), "never")}))});
  EXPECT_EQ(body_of(checked(f)), R"(  store y[0] = f32(0x0p+0)
  if 0 < n {
    store y[3] = f32(0x1.8p+1)
  }
  store y[5] = f32(0x1.4p+2)
  check 0 < n else "few"
  store y[1] = f32(0x1p+0)
  store y[2] = f32(0x1p+1)
  if 1 < n {
    store y[4] = f32(0x1p+2)
  }
  store y[5] = f32(0x1.4p+2)
  check 1 < n else "few"
)");
}

TEST(Unroll, KeepsChecksThatFail) {
  KernelBuilder b("k");
  const auto y = b.out("y", DType::kF32, 4);
  const Function out = checked(
      b.body({unrolled("i", 0, 4, seq({check(lt(i, 2), "too far"), store(y, i, f32(7))}))}));
  std::vector<float> got(4);
  EXPECT_EQ(Interpreter(out).run({{bytes_of(got)}}, {}), exec::check_status("too far"));
  EXPECT_THAT(got, ElementsAre(7, 7, 0, 0));
}

// What a copy guards against must not be looked at in that copy.
TEST(Unroll, LooksAtNothingThatIsNeverReached) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto y = b.out("y", DType::kI64, 8);
  const auto r = b.registers("r", DType::kI64, 2);
  const Function f = b.body({
      set_reg(r, 0, index(1)),
      set_reg(r, 1, index(2)),
      unrolled("i", 0, 3,
               seq({if_then(lt(0, i), store(y, i, index(ir::floordiv(n, i)))),
                    if_then(both(lt(0, i), eq(ir::mod(n, i), 0)), store(y, i + 3, index(i))),
                    if_then(lt(i, 2), store(y, i + 6, reg(r, i)))})),
  });
  const Function out = checked(f);
  std::vector<int64_t> got(8), want(8);
  ASSERT_EQ(Interpreter(f).run({{bytes_of(want)}}, {{7}}), 0);
  ASSERT_EQ(Interpreter(out).run({{bytes_of(got)}}, {{7}}), 0);
  EXPECT_EQ(got, want);
  EXPECT_THAT(want, ElementsAre(0, 7, 3, 0, 1, 0, 1, 2));
}

TEST(UnrollDeathTest, RefusesRegistersBeyondTheirBuffer) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto r = b.registers("r", DType::kF32, 4);
  const Function f = b.body({unrolled("i", 0, 4, if_then(lt(i, n), set_reg(r, i + 1, f32(0))))});
  ASSERT_EQ(verify(f), "");
  EXPECT_DEATH(unroll(f), "register r\\[4\\] in k");
}

// ---------------------------------------------------------------- values

// A graph of 60 additions of what came before to itself: 2^60 values as a tree.
TEST(Unroll, RebuildsSharedValuesOnce) {
  KernelBuilder b("k");
  const auto x = b.in("x", DType::kI32, 2), y = b.out("y", DType::kI32, 2);
  ValueRef v = load(x, i);
  for (int depth = 0; depth < 60; ++depth) v = add(v, v);
  const Function out = checked(b.body({unrolled("i", 0, 2, store(y, i, v))}));
  const Value& last = *out.body->body[1]->value;
  EXPECT_EQ(last.operands[0], last.operands[1]);
}

TEST(Unroll, SubstitutesInEveryPlaceOfAnAccess) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n");
  const auto x = b.in("x", DType::kF32, 64), y = b.out("y", DType::kF32, 64);
  const ValueRef other = load_strided(x, i, i + 2, 4);
  const Function f = b.body({unrolled(
      "i", 1, 1,
      seq({store_strided(y, i, i + 1, load_strided(x, i * 2, i + 3, 4, n - i, other), i + 3),
           prefetch(x, i + 8, 3),
           loop(LoopKind::kSerial, "j", i, i + n, store(y, j, f32(0)), 2)}))});
  EXPECT_EQ(
      body_of(checked(f)),
      R"(  store y[1 : 2] first 4 = (load.f32x4 x[2 : 4] first n - 1 else (load.f32x4 x[1 : 3]))
  prefetch.3 x[9]
  serial j from 1 count n + 1 step 2 {
    store y[j] = f32(0x0p+0)
  }
)");
}

TEST(Unroll, PutsKnownSymbolsInPlace) {
  KernelBuilder b("k");
  const Dim n = b.symbol("n"), thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
  const auto y = b.out("y", DType::kI64, n * 2);
  const Function f =
      b.body({if_then(eq(thread, 0), store(y, 0, index(threads))), barrier(),
              loop(LoopKind::kThread, "i", 0, n - 1, store(y, i + 1, index(thread + i))),
              loop(LoopKind::kSerial, "i", thread, threads * n, store(y, i + n, index(i)))});
  const Function out = checked(f, {{"thread", 0}, {"threads", 1}});
  EXPECT_EQ(body_of(out), R"(  store y[0] = index(1)
  barrier
  thread i from 0 count n - 1 {
    store y[i + 1] = index(i)
  }
  serial i from 0 count n {
    store y[i + n] = index(i)
  }
)");
  std::vector<int64_t> got(10), want(10);
  ASSERT_EQ(Interpreter(f).run({{bytes_of(want)}}, {{5}}), 0);
  ASSERT_EQ(Interpreter(out).run({{bytes_of(got)}}, {{5}}), 0);
  EXPECT_EQ(got, want);
}

// ---------------------------------------------------------------- matrix registers

TEST(Unroll, NumbersMatrixRegisters) {
  std::mt19937_64 random(4);
  for (const TileFragmentRow& row : all_tile_fragments()) {
    const Function f = tile_kernel(row.id);
    for (const Function& before : {f, expand_tiles(f)}) {
      const Function after = checked(before);
      for (const int64_t m : {0, 1, 16, 37})
        for (const int threads : {1, 3}) {
          TileCase want(row.id, {}, m, 2, true, random), got = want;
          ASSERT_EQ(Interpreter(before).run(want.arguments(), want.symbols(), threads), 0);
          ASSERT_EQ(Interpreter(after).run(got.arguments(), got.symbols(), threads), 0);
          EXPECT_EQ(got.y, want.y) << row.name << " of " << m << " rows";
        }
    }
  }
}

// ---------------------------------------------------------------- templates

struct Program {
  std::string text;
  double low = -2, high = 2;
};

std::vector<Program> programs(const kernels::TargetInfo& target) {
  std::vector<Program> all;
  for (const kernels::testing::Row& r : kernels::testing::kOperatorRows) {
    const std::string op = r.op;
    all.push_back({text_of(r), r.low, r.high});
    if (op.starts_with("gather")) all.back().low = -7, all.back().high = 7;
    if (op == "take_row") all.back().low = 0, all.back().high = 4;
  }
  // Products, which unroll most.
  const auto packed = [&](DType lhs, DType rhs, DType sum, int64_t depth, int64_t columns) {
    const std::string layout = kernels::dense_layout(target, lhs, rhs, columns);
    std::string shape;
    for (const Dim& d : ir::parse_layout(layout)->packed_dims(depth, columns))
      shape += (shape.empty() ? "" : ", ") + d.str();
    all.push_back({fmt::format(
        "fn @f(%x: Tensor[(m, {}), {}], %w: Tensor[({}), {}]) {{ let %y = packed_matmul(%x, %w) "
        "{{n = {}, k = {}, layout = \"{}\"{}}}; %y }}",
        depth, nimble::name_of(lhs), shape, nimble::name_of(rhs), columns, depth, layout,
        rhs == sum ? "" : fmt::format(", out = {}", nimble::name_of(sum)))});
  };
  packed(DType::kF32, DType::kF32, DType::kF32, 21, 40);
  packed(DType::kBF16, DType::kBF16, DType::kF32, 70, 33);
  packed(DType::kF16, DType::kF16, DType::kF32, 70, 33);
  packed(DType::kU8, DType::kI8, DType::kI32, 133, 64);
  all.push_back(
      {"fn @f(%x: Tensor[(b, m, k), f32], %y: Tensor[(b, k, n), f32]) "
       "{ let %r = matmul(%x, %y); %r }"});
  all.push_back(
      {"fn @f(%g: Tensor[(b, 36), f32], %h: Tensor[(b, 9), f32], %c: Tensor[(b, 9), "
       "f32], %w: Tensor[(9, 36), f32]) { let %r = lstm_cell(%g, %h, %c, %w); %r }"});
  all.push_back(
      {"fn @f(%g: Tensor[(b, 24), f32], %h: Tensor[(b, 8), f32], %w: Tensor[(8, 24), "
       "f32], %c: Tensor[(24), f32]) "
       "{ let %r = gru_cell(%g, %h, %w, %c) {linear_before_reset = true}; %r }"});
  all.push_back(
      {"fn @f(%x: Tensor[(b, h, w, 19), f32], %w: Tensor[(3, 3, 1, 19), f32]) "
       "{ let %y = conv2d(%x, %w) {strides = [1, 1], pads = [1, 1, 1, 1], "
       "dilations = [1, 1], groups = 19, layout = \"nhwc\", skip_padding = true}; %y }"});
  return all;
}

// The kernel and the unrolled one on the same memory, with one thread and with several, in the
// interpreter, which checks every access of both.
void expect_the_same_bits(const Function& f, std::span<const std::span<std::byte>> buffers,
                          std::span<const int64_t> symbols, int threads) {
  const Function out = checked(f), one = checked(f, {{"thread", 0}, {"threads", 1}});
  const auto run = [&](const Function& g, int number) {
    std::vector<std::vector<std::byte>> memory;
    for (const auto& b : buffers) memory.emplace_back(b.begin(), b.end());
    EXPECT_EQ(Interpreter(g).run(std::vector<std::span<std::byte>>(memory.begin(), memory.end()),
                                 symbols, number),
              0);
    return memory;
  };
  EXPECT_EQ(run(out, threads), run(f, threads)) << print(out);
  EXPECT_EQ(run(one, 1), run(f, 1)) << print(one);
}

class UnrollTemplates : public ::testing::TestWithParam<const char*> {};

TEST_P(UnrollTemplates, ComputesTheSameBits) {
  using kernels::testing::Case;
  const kernels::TargetInfo target = kernels::target_by_name(GetParam());
  std::mt19937 random(5);
  size_t copied = 0;
  for (const Program& p : programs(target)) {
    SCOPED_TRACE(p.text);
    const kernels::Workload w = kernels::testing::workload_of(p.text);
    const kernels::Template* t = kernels::template_for(w, target);
    ASSERT_NE(t, nullptr) << w.key;
    Case c;
    c.low = p.low;
    c.high = p.high;
    c.oracle = [](const auto&, auto&) {};
    std::vector<kernels::Config> configs = {t->default_config(w, target)};
    for (int tries = 0; tries < 20 && configs.size() < 3; ++tries) {
      kernels::Config sample;
      for (const kernels::Knob& knob : t->knobs(w, target))
        sample[knob.name] = knob.choices[random() % knob.choices.size()];
      if (t->valid(w, sample, target)) configs.push_back(sample);
    }
    for (const kernels::Config& config : configs) {
      SCOPED_TRACE(kernels::to_json(config));
      const kernels::Lowered lowered = t->lower(w, config, target, "k");
      for (const Function& f : lowered.functions) copied += has_unrolled_loop(*f.body);
      std::vector<int64_t> symbols;
      for (size_t s = 0; s < w.contract.symbols.size(); ++s)
        symbols.push_back(2 + static_cast<int64_t>(random() % 17));
      SCOPED_TRACE(::testing::PrintToString(symbols));
      const auto compare = [](const Function& f, auto buffers, auto values, int threads) {
        expect_the_same_bits(f, buffers, values, threads);
        return 0;
      };
      kernels::testing::check_size(c, w, lowered, symbols, 3, compare, random);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(copied, 20u) << "there is something to see";
}

INSTANTIATE_TEST_SUITE_P(Levels, UnrollTemplates,
                         ::testing::Values("x86-64-v2", "x86-64-v4-amx-fp16", "portable"),
                         [](const auto& level) {
                           std::string name = level.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nimble::kir
