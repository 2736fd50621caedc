// Matrix products, and those of ONNX Runtime with weights of 4 or 8 bits.
#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

// The templates multiply numbers of 4 and 8 bytes: narrower ones are widened.
Value widened(Arithmetic& a, const Value& x) {
  if (size_of(x.dtype()) >= 4) return x;
  return a.cast(x, is_float(x.dtype()) ? DType::kF32 : DType::kI32);
}

Values matmul(NodeContext& c) {
  if (auto y = quantised_product(c, /*transpose_b=*/false)) return {*y};
  Arithmetic a(c.g);
  const Value y = a.matmul(widened(a, c.in(0)), widened(a, c.in(1)));
  return {a.cast(y, c.in(0).dtype())};
}

Values gemm(NodeContext& c) {
  Arithmetic a(c.g);
  const Value left = widened(a, c.in(0)), right = widened(a, c.in(1));
  const DType type = left.dtype(), result = c.in(0).dtype();
  ir::Attrs attrs;
  const bool transpose_a = c.integer("transA", 0) != 0, transpose_b = c.integer("transB", 0) != 0;
  if (transpose_a) attrs["transpose_a"] = true;
  if (transpose_b) attrs["transpose_b"] = true;
  const std::optional<Value> of_bytes =
      transpose_a ? std::nullopt : quantised_product(c, transpose_b);
  Value y = of_bytes ? *of_bytes : c.g.call("matmul", {left, right}, attrs);
  const double alpha = c.real("alpha", 1), beta = c.real("beta", 1);
  if (alpha != 1) y = c.g.call("mul", {y, c.g.scalar(alpha, type)});
  if (!c.has(2) || beta == 0) return {a.cast(y, result)};
  Value bias = a.cast(c.in(2), type);
  if (beta != 1) bias = c.g.call("mul", {bias, c.g.scalar(beta, type)});
  return {a.cast(c.g.call("add", {y, bias}), result)};
}

// Inputs of MatMulNBits.
enum : size_t { kX, kWeights, kScales, kZeros, kOrder, kBias };

int64_t integer_of(const Node& n, const char* name, int64_t otherwise) {
  const Attribute* a = n.find(name);
  return a ? a->i : otherwise;
}

std::string check_matmul_n_bits(const Node& n, int64_t) {
  const int64_t bits = integer_of(n, "bits", 4);
  if (bits != 4 && bits != 8) return fmt::format("weights of {} bits; quantise to 4 or 8", bits);
  if (n.inputs.size() > kOrder && !n.inputs[kOrder].empty())
    return "g_idx, rows in an order of their own; quantise without reordering (no act_order)";
  if (integer_of(n, "weight_prepacked", 0) != 0)
    return "weights that are packed for one runtime; quantise without prepacking";
  return "";
}

// (n, blocks) zero points of 4 or 8 bits, from bytes: of 4 bits two in one, each row of its own.
Value zeros_of_bytes(NodeContext& c, const ir::Dim& n, const ir::Dim& blocks, int64_t bits) {
  Arithmetic a(c.g);
  if (bits == 8) return c.g.reshape(c.in(kZeros), {n, blocks});
  const ir::Dim bytes = ir::ceildiv(blocks, 2);
  const Value v = c.g.reshape(c.in(kZeros), {n, bytes, 1});
  const Value both = a.concat({a.binary("bitwise_and", v, 15), a.binary("shift_right", v, 4)}, 2);
  const Value all = c.g.reshape(both, {n, bytes * 2});
  return bytes * 2 == blocks ? all : c.g.slice(all, 1, ir::Dim(0), blocks);
}

// As the com.microsoft domain has it: y = x W + bias, W (k, n) = (q - zero) * scale by blocks of a
// column. accuracy_level 4 allows to round x to bytes by blocks, which is done then.
Values matmul_n_bits(NodeContext& c) {
  Arithmetic a(c.g);
  const int64_t k = c.integer("K"), n = c.integer("N"), bits = c.integer("bits", 4);
  const int64_t block = c.integer("block_size");
  const auto within = [](int64_t v) { return v >= 1 && v <= INT32_MAX; };
  if (!within(k) || !within(n)) c.fail(fmt::format("K is {} and N is {}", k, n));
  if (block < 16 || block > 65536 || (block & (block - 1)) != 0)
    c.fail(fmt::format("block_size is {}, no power of two from 16 to 65536", block));
  const DType type = c.in(kX).dtype();
  const int64_t blocks = (k + block - 1) / block;
  const auto of = [&](size_t input, Dims shape, const char* what) {
    ir::Dim wanted = 1;
    for (const ir::Dim& d : shape) wanted = wanted * d;
    const ir::Dim given = ir::element_count(c.in(input).type);
    if (!(given == wanted))
      c.fail(fmt::format("{} has {} elements; K = {}, N = {} and block_size = {} make {}", what,
                         given.str(), k, n, block, wanted.str()));
    return c.g.reshape(c.in(input), std::move(shape));
  };
  std::vector<Value> args = {a.cast(c.in(kX), DType::kF32),
                             of(kWeights, {n, blocks, block * bits / 8}, "B"),
                             a.cast(of(kScales, {n, blocks}, "scales"), DType::kF32)};
  if (c.has(kZeros)) {
    if (c.in(kZeros).dtype() == DType::kU8) {
      of(kZeros, {n, bits == 8 ? blocks : (blocks + 1) / 2}, "zero_points");
      args.push_back(zeros_of_bytes(c, n, blocks, bits));
    } else {
      args.push_back(a.cast(of(kZeros, {n, blocks}, "zero_points"), DType::kF32));
    }
  }
  ir::Attrs attrs = {{"bits", bits}, {"block", block}, {"k", k}, {"n", n}};
  if (c.integer("accuracy_level", 0) == 4) attrs["activations"] = DType::kI8;
  Value y = c.g.call("blockwise_matmul", args, std::move(attrs));
  if (c.has(kBias)) y = a.add(y, a.cast(of(kBias, {n}, "bias"), DType::kF32));
  return {a.cast(y, type)};
}

}  // namespace

std::span<const Operator> product_operators() {
  static const Operator kRows[] = {
      {"MatMul", matmul},
      {"Gemm", gemm},
      {"MatMulNBits", matmul_n_bits, check_matmul_n_bits, "com.microsoft"},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
