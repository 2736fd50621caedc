// Random programs: graphs of element-wise operators, reductions, reshapes, transposes and
// products, by seed. Shapes come from two symbols, so operands meet by broadcasting.
#include <random>

#include "compiler/emit/test/harness.h"
#include "compiler/ir/text.h"

namespace nimble::emit::testing {
namespace {

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  Program make(const std::string& name) {
    text_ =
        "fn @main(%p0: Tensor[(n, m), f32], %p1: Tensor[(n, 1), f32], "
        "%p2: Tensor[(m), f32], %p3: Tensor[(m, 6), f32]) {\n";
    values_ = {{"p0", {"n", "m"}}, {"p1", {"n", "1"}}, {"p2", {"m"}}, {"p3", {"m", "6"}}};
    size_t count = 4 + pick(9);
    for (size_t i = 0; i < count; ++i) step();
    size_t results = 1 + pick(3);
    std::string tuple;
    for (size_t i = 0; i < results; ++i)
      tuple += (i ? ", %" : "%") + values_[values_.size() - 1 - pick(4)].name;
    text_ += results == 1 ? "  let %r = neg(" + tuple + ");\n" : "  let %r = (" + tuple + ");\n";
    text_ += "  %r\n}";
    Program p{name, text_};
    p.values = {-1, 1};
    p.tolerance = 2e-4;
    for (auto [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {5, 17}, {33, 4}, {2, 67}, {16, 1}})
      p.sizes.push_back({{"n", n}, {"m", m}});
    return p;
  }

 private:
  struct Value {
    std::string name;
    std::vector<std::string> dims;
  };
  size_t pick(size_t n) { return random_() % n; }
  // Recent values more often, so that graphs grow deep.
  const Value& any() {
    size_t back = std::min(pick(values_.size()), pick(values_.size()));
    return values_[values_.size() - 1 - back];
  }
  void let(const std::string& expression, std::vector<std::string> dims) {
    std::string name = "v" + std::to_string(values_.size());
    text_ += "  let %" + name + " = " + expression + ";\n";
    values_.push_back({name, std::move(dims)});
  }
  static bool together(const Value& a, const Value& b, std::vector<std::string>& out) {
    out = a.dims.size() >= b.dims.size() ? a.dims : b.dims;
    const auto& shorter = a.dims.size() >= b.dims.size() ? b.dims : a.dims;
    for (size_t i = 0; i < shorter.size(); ++i) {
      std::string& d = out[out.size() - shorter.size() + i];
      if (d == "1")
        d = shorter[i];
      else if (shorter[i] != "1" && shorter[i] != d)
        return false;
    }
    return true;
  }
  void step() {
    const Value a = any();
    switch (pick(9)) {
      case 0:
      case 1: {
        static const char* const kOps[] = {"tanh", "sigmoid", "abs", "relu", "sin", "gelu", "neg"};
        return let(fmt::format("{}(%{})", kOps[pick(std::size(kOps))], a.name), a.dims);
      }
      case 2:
      case 3:
      case 4: {
        const Value b = any();
        std::vector<std::string> dims;
        if (!together(a, b, dims)) return;
        static const char* const kOps[] = {"add", "sub", "mul", "maximum", "minimum"};
        return let(fmt::format("{}(%{}, %{})", kOps[pick(std::size(kOps))], a.name, b.name), dims);
      }
      case 5: {
        if (a.dims.empty()) return;
        size_t axis = pick(a.dims.size());
        static const char* const kOps[] = {"mean", "reduce_max", "reduce_min"};
        const char* op = kOps[pick(3)];
        bool keep = pick(2);
        std::vector<std::string> dims = a.dims;
        if (keep)
          dims[axis] = "1";
        else
          dims.erase(dims.begin() + static_cast<int64_t>(axis));
        return let(fmt::format("{}(%{}) {{axes = [{}], keepdims = {}}}", op, a.name, axis, keep),
                   dims);
      }
      case 6: {
        if (a.dims.size() < 2) return;
        std::vector<std::string> dims = {a.dims[1], a.dims[0]};
        dims.insert(dims.end(), a.dims.begin() + 2, a.dims.end());
        return let(fmt::format("transpose(%{}) {{axes = [1, 0{}]}}", a.name,
                               a.dims.size() == 3 ? ", 2" : ""),
                   dims);
      }
      case 7: {
        if (a.dims.size() != 2) return;
        if (pick(2)) return let(fmt::format("softmax(%{}) {{axis = {}}}", a.name, pick(2)), a.dims);
        std::vector<std::string> dims = {a.dims[0], "1", a.dims[1]};
        if (pick(2)) return let(fmt::format("unsqueeze(%{}) {{axes = [1]}}", a.name), dims);
        return let(
            fmt::format("reshape(%{}) {{shape = (1, {}, {})}}", a.name, a.dims[1], a.dims[0]),
            {"1", a.dims[1], a.dims[0]});
      }
      default: {
        const Value b = any();
        if (a.dims.size() != 2 || b.dims.size() != 2) return;
        for (int flags = 0; flags < 4; ++flags) {
          const std::string& k = a.dims[flags & 1 ? 0 : 1];
          if (k != b.dims[flags & 2 ? 1 : 0]) continue;
          return let(fmt::format("matmul(%{}, %{}) {{transpose_a = {}, transpose_b = {}}}", a.name,
                                 b.name, bool(flags & 1), bool(flags & 2)),
                     {a.dims[flags & 1 ? 1 : 0], b.dims[flags & 2 ? 0 : 1]});
        }
      }
    }
  }

  std::mt19937 random_;
  std::string text_;
  std::vector<Value> values_;
};

class RandomPrograms : public ::testing::TestWithParam<int> {};

TEST_P(RandomPrograms, AgreeWithTheReference) {
  for (int i = 0; i < 10; ++i) {
    int seed = GetParam() * 10 + i;
    Program p = Generator(static_cast<unsigned>(seed)).make("random_" + std::to_string(seed));
    SCOPED_TRACE(p.text);
    check_program(p, {"default"}, SIZE_MAX);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range(0, 10));

}  // namespace
}  // namespace nimble::emit::testing
