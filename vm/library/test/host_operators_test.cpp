// What holds for every host operator: contracts that do not fit are refused, empty tensors of any
// extents are done at once, and work is charged for, can be cancelled, and counts its memory. The
// operators come from the registry: a new one fails here until it has its rule and its example.
#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

#include "vm/base/error.h"
#include "vm/library/registry.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::DimProgram;
using exec::ImplementationKind;
using exec::KernelArgument;
using exec::KernelContract;

std::vector<const LibraryKernel*> operators() {
  std::vector<const LibraryKernel*> out;
  for (const LibraryKernel* k : library_kernels())
    if (k->kind == ImplementationKind::kHost) out.push_back(k);
  return out;
}

// --- Contracts ------------------------------------------------------------------------------

// A contract that keeps the rule: as few tensors as it allows, of two dims where it has no opinion.
KernelContract example_of(const ContractRule& rule) {
  KernelContract c;
  const auto fresh = [&] {
    c.symbols.push_back(fmt::format("s{}", c.symbols.size()));
    return static_cast<uint32_t>(c.symbols.size() - 1);
  };
  for (size_t i = 0; i < rule.values; ++i)
    c.arguments.emplace_back().kind = KernelArgument::Kind::kData;
  for (size_t i = 0; i < rule.scalars; ++i) {
    KernelArgument a;
    a.kind = KernelArgument::Kind::kScalar;
    a.symbol = fresh();
    c.arguments.push_back(a);
  }
  std::vector<DimProgram> of_first;
  for (const TensorRule& t : rule.tensors) {
    KernelArgument a;
    a.dtype = t.type == TensorRule::Type::kFixed ? t.dtype : DType::kF32;
    a.access = t.access;
    if (t.rank_of_first) {
      a.dims = of_first;
    } else {
      for (int d = 0; d < std::clamp(2, t.min_rank, t.max_rank); ++d)
        a.dims.push_back(a.access == Access::kOut ? DimProgram::constant(1)
                                                  : DimProgram::argument(fresh()));
    }
    if (&t == &rule.tensors.front()) of_first = a.dims;
    c.arguments.push_back(a);
  }
  return c;
}

// Every contract that differs from the example in one thing and breaks the rule, with what it is.
std::vector<std::pair<std::string, KernelContract>> variations(const ContractRule& rule,
                                                               const KernelContract& example) {
  std::vector<std::pair<std::string, KernelContract>> out;
  const size_t first = example.arguments.size() - rule.tensors.size();
  const auto vary = [&](std::string what, auto change) {
    KernelContract c = example;
    change(c.arguments);
    out.emplace_back(std::move(what), std::move(c));
  };
  using Arguments = std::vector<KernelArgument>;
  using Type = TensorRule::Type;
  const auto same =
      static_cast<size_t>(std::ranges::count(rule.tensors, Type::kSame, &TensorRule::type));
  for (size_t i = 0; i < rule.tensors.size(); ++i) {
    const TensorRule& t = rule.tensors[i];
    const size_t at = first + i;
    const auto name = [&](const char* what) { return fmt::format("tensor {} {}", i, what); };
    const auto with_rank = [&](int rank) {
      return [at, rank](Arguments& a) {
        a[at].dims.resize(static_cast<size_t>(rank), DimProgram::constant(1));
      };
    };
    if (!rule.more || i + 1 < rule.tensors.size())
      vary(name("is missing"), [&](Arguments& a) { a.erase(a.begin() + static_cast<long>(at)); });
    for (const Access access : {Access::kIn, Access::kOut, Access::kInOut})
      if (access != t.access)
        vary(name("has another direction"), [&](Arguments& a) { a[at].access = access; });
    for (const DType dtype : {DType::kI64, DType::kF64, DType::kU8})
      if ((t.type == Type::kFixed && dtype != t.dtype) || (t.type == Type::kSame && same > 1))
        vary(name("has another dtype"), [&](Arguments& a) { a[at].dtype = dtype; });
    if (t.min_rank > 0) vary(name("has a dim too few"), with_rank(t.min_rank - 1));
    if (t.max_rank < kMaxRank) vary(name("has a dim too many"), with_rank(t.max_rank + 1));
    if (t.rank_of_first)
      for (const int more : {-1, 1})
        vary(name("has not the first one's dims"),
             with_rank(static_cast<int>(example.arguments[at].dims.size()) + more));
  }
  if (!rule.more) {
    const KernelArgument last = example.arguments.back();
    vary("a tensor too many", [&](Arguments& a) { a.push_back(last); });
  }
  if (rule.scalars > 0)
    vary("a scalar is missing",
         [&](Arguments& a) { a.erase(a.begin() + static_cast<long>(rule.values)); });
  vary("a data-type value too many",
       [](Arguments& a) { a.emplace_back().kind = KernelArgument::Kind::kData; });
  if (rule.values > 0)
    vary("a data-type value is missing", [](Arguments& a) { a.erase(a.begin()); });
  return out;
}

TEST(HostOperators, RefuseContractsThatDoNotFit) {
  for (const LibraryKernel* k : operators()) {
    ASSERT_TRUE(k->rule.has_value()) << k->name << " says nothing of its contract";
    EXPECT_NE(k->refusal({}), "") << k->name;
    const KernelContract example = example_of(*k->rule);
    EXPECT_EQ(k->refusal(example), "") << k->name;
    for (const auto& [what, contract] : variations(*k->rule, example))
      EXPECT_NE(k->refusal(contract), "") << k->name << ": " << what;
  }
}

TEST(HostOperators, MoreScalarsThanParametersAreExtents) {
  for (const LibraryKernel* k : operators()) {
    KernelContract c = example_of(*k->rule);
    c.symbols.push_back("extent");
    KernelArgument a;
    a.kind = KernelArgument::Kind::kScalar;
    a.symbol = static_cast<uint32_t>(c.symbols.size() - 1);
    c.arguments.insert(c.arguments.begin(), a);
    EXPECT_EQ(k->refusal(c), "") << k->name;
  }
}

// --- Calls ----------------------------------------------------------------------------------

// Tensors with elements, and what else a call needs.
struct Call {
  struct Operand {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<int64_t> memory;  // enough for any dtype
  };
  std::vector<Operand> operands;
  std::vector<int64_t> scalars;

  // Elements 1, 1, 1, … of f32 or bool, or the given ones of i64.
  Call& tensor(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> integers = {}) {
    const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    Operand o{dtype, std::move(shape), std::move(integers)};
    const bool given = !o.memory.empty();
    o.memory.resize(static_cast<size_t>(n) + 1);
    for (int64_t i = 0; i < n && !given; ++i) {
      if (dtype == DType::kF32) reinterpret_cast<float*>(o.memory.data())[i] = 1;
      if (dtype == DType::kBool) reinterpret_cast<uint8_t*>(o.memory.data())[i] = 1;
    }
    operands.push_back(std::move(o));
    return *this;
  }
  // An empty tensor.
  Call& empty(DType dtype, std::vector<int64_t> shape) {
    operands.push_back({dtype, std::move(shape), {0}});
    return *this;
  }
  Call& scalar(int64_t value) {
    scalars.push_back(value);
    return *this;
  }
  void run(const std::string& name, WorkMeter& meter) {
    std::vector<LibraryTensor> tensors;
    for (Operand& o : operands) tensors.push_back({o.dtype, o.shape, o.memory.data()});
    const LibraryCall call{tensors, {}, scalars, nullptr, {}, &meter};
    find_library_kernel(ImplementationKind::kHost, name)->run(call, 0, 1, nullptr);
  }
};

constexpr int64_t kN = 4096;

std::vector<int64_t> numbers(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// A call of each operator with kN elements to work on. linearise_test.cpp has the two that read
// data-type values.
std::map<std::string, Call> examples() {
  using enum DType;
  std::map<std::string, Call> out;
  const std::vector<int64_t> ones(kN, 1);
  out["host.copy"].tensor(kF32, {kN}).tensor(kF32, {kN});
  out["host.zero"].tensor(kF32, {kN});
  out["host.count_nonzero"].tensor(kF32, {kN}).tensor(kI64, {1});
  out["host.nonzero"].tensor(kF32, {64, kN / 64}).tensor(kI64, {2, kN});
  out["host.compress"].tensor(kF32, {kN}).tensor(kBool, {kN}).tensor(kF32, {kN}).scalar(0);
  out["host.count_repeat"].tensor(kI64, {kN}, ones).tensor(kI64, {1});
  out["host.repeat"].tensor(kF32, {kN}).tensor(kI64, {kN}, ones).tensor(kF32, {kN}).scalar(0);
  out["host.count_range"].tensor(kF32, {}).tensor(kF32, {}).tensor(kF32, {}).tensor(kI64, {1});
  out["host.count_unique"].tensor(kI64, {kN}, numbers(kN)).tensor(kI64, {1}).scalar(-1);
  out["host.unique"]
      .tensor(kI64, {kN}, numbers(kN))
      .tensor(kI64, {kN})
      .tensor(kI64, {kN})
      .tensor(kI64, {kN})
      .tensor(kI64, {kN})
      .scalar(-1)
      .scalar(0);
  out["host.topk"].tensor(kF32, {kN}).tensor(kF32, {7}).tensor(kI64, {7}).scalar(0).scalar(1);
  out["host.nms"]
      .tensor(kF32, {1, kN, 4})
      .tensor(kF32, {1, 1, kN})
      .tensor(kF32, {})
      .empty(kF32, {1})
      .tensor(kI64, {16, 3})
      .tensor(kI64, {1})
      .scalar(16)
      .scalar(0);
  out["host.scatter"]
      .tensor(kF32, {kN})
      .tensor(kI64, {kN}, numbers(kN))
      .tensor(kF32, {kN})
      .tensor(kF32, {kN})
      .scalar(0);
  return out;
}

Status status_of(const std::string& name, Call call, WorkMeter& meter) {
  try {
    call.run(name, meter);
  } catch (const Error& e) {
    return e.status();
  }
  return Status::kOk;
}

TEST(HostOperators, AllHaveAnExample) {
  const std::map<std::string, Call> all = examples();
  for (const LibraryKernel* k : operators())
    EXPECT_TRUE(all.contains(k->name) || k->rule->values > 0) << k->name;
}

TEST(HostOperators, TakeStepsByTheirWork) {
  for (const auto& [name, call] : examples()) {
    if (name == "host.count_range") continue;  // three numbers
    WorkMeter meter{1 << 30};
    ASSERT_EQ(status_of(name, call, meter), Status::kOk) << name;
    const uint64_t taken = (1 << 30) - meter.steps;
    EXPECT_GE(taken, kN * sizeof(float) / WorkMeter::kBytesPerStep) << name;
    EXPECT_LE(taken, 64 * kN) << name;
    meter.steps = taken;
    EXPECT_EQ(status_of(name, call, meter), Status::kOk) << name;
    EXPECT_EQ(meter.steps, 0u) << name;
    meter.steps = taken - 1;
    EXPECT_EQ(status_of(name, call, meter), Status::kExhausted) << name;
  }
}

TEST(HostOperators, EndWhenCancelled) {
  RunControl control;
  ASSERT_TRUE(control.begin());
  control.cancel();
  for (const auto& [name, call] : examples()) {
    if (name == "host.count_range") continue;
    WorkMeter meter{UINT64_MAX, &control};
    EXPECT_EQ(status_of(name, call, meter), Status::kCancelled) << name;
  }
}

TEST(HostOperators, CountTheirMemory) {
  StoragePool pool(device(kCpuDevice), 16 * kN);
  WorkMeter meter{UINT64_MAX, nullptr, &pool};
  const std::set<std::string> sorting = {"host.count_unique", "host.unique", "host.topk",
                                         "host.nms"};
  for (const auto& [name, call] : examples()) {
    pool.charge(15 * kN);
    EXPECT_EQ(status_of(name, call, meter),
              sorting.contains(name) ? Status::kExhausted : Status::kOk)
        << name;
    pool.refund(15 * kN);
    pool.charge(16 * kN);  // all was given back
    pool.refund(16 * kN);
  }
}

// Extents of tensors without elements may be as large as they like: loops over them would never
// end, and their products do not fit 64 bits.
TEST(HostOperators, AreDoneAtOnceWithEmptyTensors) {
  using enum DType;
  constexpr int64_t kHuge = int64_t{1} << 40;
  const std::vector<int64_t> front = {0, kHuge, kHuge}, middle = {kHuge, 0, kHuge},
                             back = {kHuge, kHuge, 0};
  std::vector<std::pair<std::string, Call>> calls;
  const auto call = [&](const char* name) -> Call& {
    calls.emplace_back(name, Call());
    return calls.back().second;
  };
  for (const auto& shape : {front, middle, back}) {
    call("host.copy").empty(kF32, shape).empty(kF32, shape);
    call("host.zero").empty(kF32, shape);
    call("host.count_nonzero").empty(kF32, shape).tensor(kI64, {1});
    call("host.nonzero").empty(kF32, shape).empty(kI64, {3, 0});
    for (int64_t axis = -1; axis < 3; ++axis) {
      const int64_t extent = axis < 0 ? 0 : shape[static_cast<size_t>(axis)];
      std::vector<int64_t> one = shape, none = shape;
      if (axis >= 0) none[static_cast<size_t>(axis)] = 0;
      if (axis >= 0) one[static_cast<size_t>(axis)] = std::min<int64_t>(extent, 1);
      const std::vector<int64_t> nothing = axis < 0 ? std::vector<int64_t>{0} : none;
      call("host.compress").empty(kF32, shape).empty(kBool, {0}).empty(kF32, nothing).scalar(axis);
      if (extent == 0)
        call("host.repeat").empty(kF32, shape).empty(kI64, {0}).empty(kF32, nothing).scalar(axis);
      call("host.count_unique").empty(kF32, shape).tensor(kI64, {1}).scalar(axis);
      if (extent == 0)
        call("host.unique")
            .empty(kF32, shape)
            .empty(kF32, nothing)
            .empty(kI64, {0})
            .empty(kI64, {0})
            .empty(kI64, {0})
            .scalar(axis)
            .scalar(1);
      if (axis < 0) continue;
      for (const auto& result : {one, none})
        call("host.topk")
            .empty(kF32, shape)
            .empty(kF32, result)
            .empty(kI64, result)
            .scalar(axis)
            .scalar(1);
    }
    call("host.nms")
        .empty(kF32, {shape[0], shape[2], 4})
        .empty(kF32, shape)
        .tensor(kF32, {1})
        .tensor(kF32, {1})
        .empty(kI64, {0, 3})
        .tensor(kI64, {1})
        .scalar(kHuge)
        .scalar(0);
  }
  call("host.scatter")
      .empty(kF32, back)
      .empty(kI64, {0})
      .empty(kF32, {0, kHuge, 0})
      .empty(kF32, back)
      .scalar(1);
  call("host.scatter")
      .empty(kF32, front)
      .empty(kI64, {0})
      .empty(kF32, front)
      .empty(kF32, front)
      .scalar(1);
  // One class of as many slices as there is room for.
  call("host.unique")
      .empty(kF32, {kHuge, 0, 5, kHuge})
      .empty(kF32, {kHuge, 0, 1, kHuge})
      .tensor(kI64, {1})
      .tensor(kI64, {5})
      .tensor(kI64, {1})
      .scalar(2)
      .scalar(1);
  StoragePool pool(device(kCpuDevice), 4096);
  for (auto& [name, c] : calls) {
    std::string shapes;
    for (const Call::Operand& o : c.operands)
      shapes += fmt::format(" ({})", fmt::join(o.shape, ", "));
    WorkMeter meter{100, nullptr, &pool};
    try {
      c.run(name, meter);
    } catch (const Error& e) {
      ADD_FAILURE() << name << shapes << " " << c.scalars.size() << ": " << e.what();
    }
    if (name == "host.count_unique") {
      EXPECT_LE(c.operands[1].memory[0], 1) << shapes;
    }
  }
  Call& last = calls.back().second;
  EXPECT_EQ(last.operands[2].memory[0], 0);
  EXPECT_EQ(last.operands[4].memory[0], 5);
}

TEST(HostOperators, RefuseAxesThatAreNotThere) {
  using enum DType;
  for (const int64_t axis : {int64_t{1}, int64_t{7}, INT64_MAX}) {
    for (const char* name : {"host.compress", "host.repeat", "host.topk", "host.unique"}) {
      Call call = examples()[name];
      call.scalars[0] = axis;
      WorkMeter meter;
      EXPECT_EQ(status_of(name, call, meter), Status::kFatal) << name << " " << axis;
    }
  }
}

}  // namespace
}  // namespace nimble::rt
