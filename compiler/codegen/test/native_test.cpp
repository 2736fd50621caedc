// Machine code and portable code against the interpreter, bit by bit, on every level that the
// machine can run; what portable code leaves out, and its limits.
#include "compiler/codegen/test/native.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <random>

#include "compiler/codegen/llvm/architecture.h"
#include "compiler/codegen/test/portable.h"
#include "vm/executable/check_status.h"

namespace nimble::codegen {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::bytes_of;
using kir::testing::KernelBuilder;
using testing::Native;
using testing::Portable;
using testing::runnable_levels;

constexpr DType kAllTypes[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
                               DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                               DType::kBF16, DType::kF32, DType::kF64};

// Random elements, rich in the values where conversions and divisions go wrong.
std::vector<std::byte> random_elements(DType t, size_t count, std::mt19937_64& random) {
  std::vector<std::byte> out(count * size_of(t));
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    const uint64_t kind = random() % 8;
    if (t == DType::kBool)
      bits &= 1;
    else if (t == DType::kF32 && kind < 5) {
      static constexpr float kSpecial[] = {0.f,       -0.f,  INFINITY, -INFINITY, NAN,
                                           0x1p-149f, 3e9f,  -1e19f,   65519.9f,  65520.f,
                                           2.5f,      -3.5f, 127.5f,   0x1p-15f};
      const float v = kind < 2 ? kSpecial[random() % std::size(kSpecial)]
                               : (static_cast<float>(random() % 20000) - 10000) / 64;
      uint32_t b;
      std::memcpy(&b, &v, 4);
      bits = b;
    } else if (t == DType::kF64 && kind < 5) {
      const double v = kind == 0   ? 0x1p63
                       : kind == 1 ? NAN
                                   : (static_cast<double>(random() % 2000) - 1000) / 8;
      std::memcpy(&bits, &v, 8);
    } else if (is_int(t) && kind < 4) {
      bits = kind == 0   ? 0
             : kind == 1 ? ~uint64_t{0}
             : kind == 2 ? uint64_t{1} << (8 * size_of(t) - 1)
                         : random() % 7;
    }
    std::memcpy(&out[i * size_of(t)], &bits, size_of(t));
  }
  return out;
}

bool is_nan(DType t, const std::byte* at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, size_of(t));
  switch (t) {
    case DType::kF16:
      return (bits & 0x7fff) > 0x7c00;
    case DType::kBF16:
      return (bits & 0x7fff) > 0x7f80;
    case DType::kF32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kF64:
      return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default:
      return false;
  }
}

// Equal bits; NaNs of any payload are equal.
void expect_same(DType t, const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  const size_t size = size_of(t);
  for (size_t i = 0; i < a.size(); i += size) {
    if (std::memcmp(&a[i], &b[i], size) == 0 || (is_nan(t, &a[i]) && is_nan(t, &b[i]))) continue;
    uint64_t x = 0, y = 0;
    std::memcpy(&x, &a[i], size);
    std::memcpy(&y, &b[i], size);
    FAIL() << what << ": element " << i / size << " is 0x" << std::hex << x << ", interpreted 0x"
           << y;
  }
}

// One kernel per case list: out_r[j] = values[r](lanes at j) for j in steps of `lanes`, over n
// elements with a masked tail.
class Elementwise {
 public:
  using Operands = std::vector<ValueRef>;

  Elementwise(std::vector<DType> inputs, int lanes) : inputs_(std::move(inputs)), lanes_(lanes) {
    n_ = k_.symbol("n");
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto x = k_.in(fmt::format("x{}", i), inputs_[i], n_);
      operands_.push_back(load_masked(x, j_, lanes, n_ - j_));
    }
  }

  Elementwise& add(const std::function<ValueRef(const Operands&)>& value) {
    const ValueRef v = value(operands_);
    results_.push_back(v->dtype);
    const auto y = k_.out(fmt::format("y{}", results_.size()), v->dtype, n_);
    stores_.push_back(store_masked(y, j_, v, n_ - j_));
    return *this;
  }

  void check(std::mt19937_64& random) {
    const Function f = k_.body({loop(LoopKind::kThread, "j", 0, n_, seq(stores_), lanes_)});
    ASSERT_EQ(verify(f), "");
    const Portable portable(f);
    compare(f, "portable", false, random,
            [&](const auto& buffers, int64_t n, int) { return portable.run(buffers, {n}); });
    for (const std::string& level : runnable_levels()) {
      const Native native(f, level);
      compare(f, level, has_fma(kernels::target_by_name(level)), random,
              [&](const auto& buffers, int64_t n, int threads) {
                return native.run(buffers, {n}, threads);
              });
    }
  }

 private:
  template <class Run>
  void compare(const Function& f, const std::string& level, bool fused, std::mt19937_64& random,
               const Run& run) {
    const Interpreter interpreter(f, {.fused = fused});
    for (int64_t n : {0, 1, 5, 16, 37, 259}) {
      std::vector<std::vector<std::byte>> data, got, want;
      for (DType t : inputs_) data.push_back(random_elements(t, n, random));
      for (DType t : results_) got.emplace_back(n * size_of(t));
      want = got;
      std::vector<std::span<std::byte>> a(data.begin(), data.end()), b = a;
      a.insert(a.end(), got.begin(), got.end());
      b.insert(b.end(), want.begin(), want.end());
      EXPECT_EQ(run(a, n, 1 + static_cast<int>(n % 3)), 0);
      EXPECT_EQ(interpreter.run(b, {{n}}), 0);
      for (size_t r = 0; r < results_.size(); ++r)
        expect_same(results_[r], got[r], want[r],
                    fmt::format("{} result {} in {}", level, r, print(f)));
    }
  }

  KernelBuilder k_{"elementwise"};
  std::vector<DType> inputs_, results_;
  int lanes_;
  Dim n_, j_ = Dim::symbol("j");
  Operands operands_;
  std::vector<StmtRef> stores_;
};

TEST(Native, CopiesEveryType) {
  std::mt19937_64 random(1);
  for (int lanes : {1, 8, 16}) {
    Elementwise e({std::begin(kAllTypes), std::end(kAllTypes)}, lanes);
    for (size_t i = 0; i < std::size(kAllTypes); ++i) e.add([i](const auto& v) { return v[i]; });
    e.check(random);
  }
}

TEST(Native, CastsBetweenAllTypes) {
  std::mt19937_64 random(2);
  for (DType from : kAllTypes) {
    Elementwise e({from}, 8);
    for (DType to : kAllTypes)
      if (from != to) e.add([to](const auto& v) { return cast(to, v[0]); });
    e.check(random);
  }
}

// What is clipped to a type's range, rounded ahead of it or not, converts by other instructions.
TEST(Native, Quantisations) {
  std::mt19937_64 random(16);
  struct To {
    DType type;
    double low, high, zero;
  };
  for (const int lanes : {1, 2, 4, 8, 16, 32, 64}) {
    Elementwise e({DType::kF32}, lanes);
    for (const To& to : {To{DType::kU8, 0, 255, 0},
                         {DType::kU8, 0, 255, 117},
                         {DType::kU8, 0, 255, 300},
                         {DType::kU8, 3, 200, 0},
                         {DType::kU8, 3, 200, 9},
                         {DType::kI8, -128, 127, 0},
                         {DType::kI8, -128, 127, -7},
                         {DType::kI8, -128, 127, 90},
                         {DType::kI8, -100, -2, 5},
                         {DType::kU16, 0, 65535, 1234},
                         {DType::kI16, -32768, 32767, -300},
                         {DType::kU8, -1, 255, 0},
                         {DType::kI8, -128, 128, 2},
                         {DType::kU8, 0.5, 254.5, 1}})
      for (const int form : {0, 1, 2}) {
        e.add([&to, form](const auto& v) {
          ValueRef x = v[0];
          if (form > 0) x = unary(UnaryOp::kRound, x);
          if (form > 1) x = kir::build::add(x, f32(to.zero, x->lanes));
          x = max(f32(to.low, x->lanes), x);
          return cast(to.type, min(f32(to.high, x->lanes), x));
        });
      }
    e.check(random);
  }
}

TEST(Native, UnaryOperations) {
  std::mt19937_64 random(3);
  for (DType t : {DType::kF32, DType::kF64}) {
    Elementwise e({t}, 16);
    for (UnaryOp op : {UnaryOp::kNeg, UnaryOp::kAbs, UnaryOp::kSqrt, UnaryOp::kRsqrt,
                       UnaryOp::kFloor, UnaryOp::kCeil, UnaryOp::kRound, UnaryOp::kTrunc})
      e.add([op](const auto& v) { return unary(op, v[0]); });
    e.check(random);
  }
  for (DType t : {DType::kI8, DType::kI32, DType::kI64, DType::kU16}) {
    Elementwise e({t}, 16);
    for (UnaryOp op : {UnaryOp::kNeg, UnaryOp::kAbs, UnaryOp::kNot})
      e.add([op](const auto& v) { return unary(op, v[0]); });
    e.check(random);
  }
  Elementwise({DType::kBool}, 16)
      .add([](const auto& v) { return unary(UnaryOp::kNot, v[0]); })
      .check(random);
}

TEST(Native, FloatOperations) {
  std::mt19937_64 random(4);
  for (DType t : {DType::kF32, DType::kF64}) {
    Elementwise e({t, t, t}, 8);
    for (BinaryOp op : {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv,
                        BinaryOp::kMin, BinaryOp::kMax})
      e.add([op](const auto& v) { return binary(op, v[0], v[1]); });
    e.add([](const auto& v) { return fma(v[0], v[1], v[2]); });
    // A product and a sum must not be contracted.
    e.add([](const auto& v) { return build::add(mul(v[0], v[1]), v[2]); });
    e.check(random);
  }
}

TEST(Native, IntegerOperations) {
  std::mt19937_64 random(5);
  for (DType t :
       {DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kU32, DType::kI64, DType::kU64}) {
    Elementwise e({t, t}, 4);
    for (BinaryOp op : {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv,
                        BinaryOp::kMod, BinaryOp::kMin, BinaryOp::kMax, BinaryOp::kAnd,
                        BinaryOp::kOr, BinaryOp::kXor, BinaryOp::kShl, BinaryOp::kShr})
      e.add([op](const auto& v) { return binary(op, v[0], v[1]); });
    e.check(random);
  }
  Elementwise e({DType::kBool, DType::kBool}, 16);
  for (BinaryOp op : {BinaryOp::kAnd, BinaryOp::kOr, BinaryOp::kXor})
    e.add([op](const auto& v) { return binary(op, v[0], v[1]); });
  e.check(random);
}

TEST(Native, ComparesAndSelects) {
  std::mt19937_64 random(6);
  for (DType t : {DType::kF32, DType::kF64, DType::kI32, DType::kU8, DType::kU64}) {
    Elementwise e({t, t}, 16);
    for (CompareOp op : {CompareOp::kEq, CompareOp::kNe, CompareOp::kLt, CompareOp::kLe,
                         CompareOp::kGt, CompareOp::kGe})
      e.add([op](const auto& v) { return compare(op, v[0], v[1]); });
    e.check(random);
  }
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kI64})
    Elementwise({DType::kBool, t, t}, 8)
        .add([](const auto& v) { return select(v[0], v[1], v[2]); })
        .check(random);
}

TEST(Native, LanesAndBits) {
  std::mt19937_64 random(7);
  Elementwise e({DType::kF32, DType::kF16}, 16);
  for (BinaryOp op : {BinaryOp::kAdd, BinaryOp::kMul, BinaryOp::kMin, BinaryOp::kMax})
    e.add([op](const auto& v) { return broadcast(reduce(op, v[0]), 16); });
  e.add([](const auto& v) { return broadcast(extract(v[0], 5), 16); });
  e.add([](const auto& v) { return build::add(bitcast(DType::kI32, v[0]), iota(16)); });
  e.add([](const auto& v) { return bitcast(DType::kU16, v[1]); });
  e.check(random);
}

// Transposes through strided, masked and broadcast accesses.
TEST(Native, StridedAccess) {
  for (DType t : {DType::kF32, DType::kI64, DType::kU8, DType::kBF16}) {
    KernelBuilder k("strided");
    const Dim n = k.symbol("n"), m = k.symbol("m"), i = Dim::symbol("i"), j = Dim::symbol("j");
    auto x = k.in("x", t, n * m);
    auto y = k.out("y", t, n * m);
    auto z = k.out("z", t, n * m);
    auto w = k.out("w", t, n * 8);
    const Function f = k.body(
        {loop(LoopKind::kSerial, "i", 0, m,
              loop(LoopKind::kSerial, "j", 0, n,
                   seq({store_masked(y, i * n + j, load_strided(x, j * m + i, m, 8, n - j), n - j),
                        store_strided(z, i + j * m, m,
                                      load_strided(x, j * m + i, m, 8, n - j, number(t, 1)),
                                      n - j)}),
                   8)),
         loop(LoopKind::kSerial, "j", 0, n, store(w, j * 8, load_strided(x, j * m, 0, 8)))});
    ASSERT_EQ(verify(f), "");
    std::mt19937_64 random(8);
    for (const std::string& level : runnable_levels()) {
      const Native native(f, level);
      for (const auto& [n, m] : {std::pair{1, 1}, {5, 3}, {16, 9}, {37, 13}}) {
        auto x = random_elements(t, n * m, random);
        std::vector<std::byte> got[3], want[3];
        for (int o = 0; o < 3; ++o) {
          got[o].resize((o == 2 ? n * 8 : n * m) * size_of(t));
          want[o] = got[o];
        }
        EXPECT_EQ(native.run({x, got[0], got[1], got[2]}, {n, m}), 0);
        EXPECT_EQ(Interpreter(f).run({{x, want[0], want[1], want[2]}}, {{n, m}}), 0);
        for (int o = 0; o < 3; ++o) expect_same(t, got[o], want[o], print(f) + level);
      }
    }
  }
}

// Square blocks, which machine code transposes in registers, what only looks like them, and one
// whose columns are stored over each other.
TEST(Native, SquareBlocksAreTransposed) {
  for (DType t : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8, DType::kBF16})
    for (const int lanes : {2, 4, 8, 16, 32}) {
      KernelBuilder k("squares");
      const Dim m = k.symbol("m"), i = Dim::symbol("i"), j = Dim::symbol("j");
      const Dim columns = floordiv(m, 2 * lanes) * lanes;
      auto x = k.in("x", t, m * lanes);
      auto y = k.out("y", t, m * lanes);
      auto z = k.out("z", t, m * lanes);
      auto w = k.out("w", t, m * lanes);
      auto v = k.out("v", t, m * lanes);
      const auto copy = [&](const BufferRef& to, const Dim& column, int count, int pitch) {
        return loop(LoopKind::kSerial, "j", 0, columns,
                    loop(LoopKind::kUnroll, "i", 0, count,
                         store(to, (j + i) * pitch, load_strided(x, column, m, lanes))),
                    lanes);
      };
      const Function f = k.body({copy(y, j + i, lanes, lanes), copy(z, j + i, lanes - 1, lanes),
                                 copy(w, j + i * 2, lanes, lanes), copy(v, j + i, lanes, 1)});
      ASSERT_EQ(verify(f), "");
      std::mt19937_64 random(10);
      // All levels of two types; of the others those with the narrowest and the widest vectors.
      std::vector<std::string> levels = runnable_levels();
      if (t != DType::kF32 && t != DType::kU8) levels = {levels.front(), levels.back()};
      for (const std::string& level : levels) {
        const Native native(f, level);
        for (const int64_t size : {64, 67, 129}) {
          const size_t count = static_cast<size_t>(size) * lanes;
          auto in = random_elements(t, count, random);
          std::vector<std::byte> got[4], want[4];
          for (int o = 0; o < 4; ++o) want[o] = got[o] = std::vector<std::byte>(in.size());
          EXPECT_EQ(native.run({in, got[0], got[1], got[2], got[3]}, {size}), 0);
          EXPECT_EQ(Interpreter(f).run({{in, want[0], want[1], want[2], want[3]}}, {{size}}), 0);
          for (int o = 0; o < 4; ++o)
            expect_same(t, got[o], want[o], fmt::format("{} {} {}", level, lanes, o));
        }
      }
    }
}

TEST(Native, UnmaskedStridesAndReversal) {
  KernelBuilder k("reverse");
  auto x = k.in("x", DType::kF32, 48);
  auto y = k.out("y", DType::kF32, 48);
  const Dim j = Dim::symbol("j");
  const Function f =
      k.body({loop(LoopKind::kSerial, "j", 0, 3,
                   store_strided(y, j, 3, load_strided(x, Dim(47) - j * 16, -1, 16)))});
  std::mt19937_64 random(9);
  for (const std::string& level : runnable_levels()) {
    auto in = random_elements(DType::kF32, 48, random);
    std::vector<std::byte> got(in.size()), want(in.size());
    EXPECT_EQ(Native(f, level).run({in, got}, {}), 0);
    EXPECT_EQ(Interpreter(f).run({{in, want}}, {}), 0);
    expect_same(DType::kF32, got, want, level);
  }
}

TEST(Native, DimFunctions) {
  KernelBuilder k("dims");
  const Dim n = k.symbol("n"), m = k.symbol("m"), i = Dim::symbol("i");
  auto y = k.out("y", DType::kI64, n * 8);
  const std::vector<Dim> forms = {
      ir::floordiv(i - 7, 3), ir::mod(i - 7, 3),     ir::floordiv(i - 7, 4), ir::mod(i - 7, 4),
      ir::floordiv(i * m, n), ir::mod(i * m - n, m), ir::min(i, m),          ir::max(i - m, m * 2)};
  std::vector<StmtRef> stores;
  for (size_t j = 0; j < forms.size(); ++j)
    stores.push_back(store(y, i * 8 + static_cast<int>(j), index(forms[j])));
  const Function f = k.body({loop(LoopKind::kSerial, "i", 0, n, seq(stores))});
  for (const std::string& level : runnable_levels()) {
    std::vector<int64_t> got(29 * 8), want(29 * 8);
    EXPECT_EQ(Native(f, level).run({bytes_of(got)}, {29, 5}), 0);
    EXPECT_EQ(Interpreter(f).run({{bytes_of(want)}}, {{29, 5}}), 0);
    EXPECT_EQ(got, want);
  }
}

TEST(Native, ScratchBarriersAndIndicesFromData) {
  KernelBuilder k("gather");
  const Dim n = k.symbol("n"), i = Dim::symbol("i"), j = Dim::symbol("j");
  auto x = k.in("x", DType::kI32, n);
  auto y = k.out("y", DType::kF32, n);
  auto shared = k.scratch("shared", DType::kF32, n);
  auto own = k.scratch("own", DType::kF32, 4, Scope::kThread);
  const auto threads = [&](StmtRef s) { return loop(LoopKind::kThread, "i", 0, n, s); };
  const Function f = k.body(
      {threads(
           seq({store(own, 1, cast(DType::kF32, index(i * i))), store(shared, i, load(own, 1))})),
       barrier(),
       threads(loop(LoopKind::kUnroll, "u", 0, 2,
                    seq({let_index("j", load(x, i), ir::SymbolFacts{0, 100, 1}),
                         if_then(eq(Dim::symbol("u"), 1), store(y, i, load(shared, j)))})))});
  ASSERT_EQ(verify(f), "");
  for (const std::string& level : runnable_levels()) {
    const Native native(f, level);
    for (int threads : {1, 2, 3}) {
      std::vector<int32_t> at = {4, 3, 2, 1, 0, 6, 5};
      std::vector<float> got(7), want = {16, 9, 4, 1, 0, 36, 25};
      EXPECT_EQ(native.run({bytes_of(at), bytes_of(got)}, {7}, threads), 0);
      EXPECT_EQ(got, want);
    }
  }
}

TEST(Portable, HasNothingThatOneThreadDecides) {
  KernelBuilder k("first");
  const Dim n = k.symbol("n"), i = Dim::symbol("i"), thread = Dim::symbol("thread");
  auto y = k.out("y", DType::kI64, n);
  const Function f =
      k.body({if_then(eq(thread, 0), loop(LoopKind::kSerial, "i", 0, n, store(y, i, index(i))),
                      store(y, 0, index(thread)))});
  const Portable portable(f);
  for (const exec::PortableInstruction& in : portable.code().code)
    EXPECT_NE(in.op, exec::PortableOp::kIf);
  std::vector<int64_t> got(3);
  EXPECT_EQ(portable.run({bytes_of(got)}, {3}), 0);
  EXPECT_EQ(got, (std::vector<int64_t>{0, 1, 2}));
}

TEST(Portable, RefusesKernelsThatUnrollTooMuch) {
  constexpr int64_t kDepth = 64, kCopies = exec::kMaxPortableCode / kDepth;
  KernelBuilder k("long");
  const Dim n = k.symbol("n"), i = Dim::symbol("i");
  auto x = k.in("x", DType::kF32, kCopies);
  auto y = k.out("y", DType::kF32, kCopies);
  ValueRef v = load(x, i);
  for (int64_t d = 0; d < kDepth; ++d) v = unary(UnaryOp::kNeg, v);
  const Function f = k.body({loop(LoopKind::kSerial, "j", 0, n,
                                  loop(LoopKind::kUnroll, "i", 0, kCopies, store(y, i, v)))});
  try {
    to_portable(f);
    FAIL() << "lowered";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("more than 262144 operations"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("unrolls less"));
  }
}

TEST(Native, FailedChecksReturnTheStatusOfTheirMessage) {
  KernelBuilder k("checked");
  auto x = k.in("x", DType::kI64, 1);
  auto y = k.out("y", DType::kF32, 4);
  const Dim j = Dim::symbol("j");
  const Function f = k.body({let_index("j", load(x, 0)), check(le(0, j), "negative index"),
                             check(lt(j, 4), "index too large"), store(y, j, f32(7))});
  for (const std::string& level : runnable_levels()) {
    const Native native(f, level);
    std::vector<float> out(4);
    for (const auto& [at, status] : {std::pair<int64_t, int>{2, 0},
                                     {-5, exec::check_status("negative index")},
                                     {4, exec::check_status("index too large")}}) {
      std::vector<int64_t> index = {at};
      EXPECT_EQ(native.run({bytes_of(index), bytes_of(out)}, {}), status);
      EXPECT_EQ(Interpreter(f).run({{bytes_of(index), bytes_of(out)}}, {}), status);
    }
    EXPECT_EQ(out[2], 7);
  }
}

}  // namespace
}  // namespace nimble::codegen
