// Element-wise operators: unary ones, broadcasting ones, comparisons; with the symbolic
// contents of small integer tensors carried through.
#include "compiler/ir/dim_node.h"
#include "compiler/ir/ops/relations.h"
#include "compiler/ir/within_64_bits.h"

namespace nimble::ir {
namespace {

// Operators that mean something on integers too; all other unary ones are for floats.
bool takes_integers(const std::string& op) {
  return op == "neg" || op == "abs" || op == "relu" || op == "clip";
}

Proof as_bool(const Dim& d) {
  return d.is_constant(1) ? Proof::kYes : d.is_constant(0) ? Proof::kNo : Proof::kUnknown;
}

std::optional<Dim> truth(Proof p) {
  if (p == Proof::kUnknown) return std::nullopt;
  return Dim(p == Proof::kYes ? 1 : 0);
}

Proof negate(Proof p) {
  return p == Proof::kYes ? Proof::kNo : p == Proof::kNo ? Proof::kYes : Proof::kUnknown;
}

// a / b, truncated. floordiv floors: the same where neither is negative.
//
// A dividend that may be negative here often is not where the quotient is used: exporters compute
// the length that convolutions leave, (n / 80 - 3) / 2 - 1, ahead of the convolutions, whose
// windows fit only if n is large. So both halves are kept until facts decide them. Each nested
// quotient doubles its dividend, hence the limit.
std::optional<Dim> quotient(const DimContext& dims, const Dim& a, const Dim& b) {
  constexpr size_t kMostParts = 64;
  if (dims.less(Dim(0), b) != Proof::kYes) return std::nullopt;
  if (dims.less_equal(Dim(0), a) == Proof::kYes) return dims.simplify(floordiv(a, b));
  if (a.node()->parts > kMostParts || !b.as_constant()) return std::nullopt;
  return dims.simplify(max(Dim(0), floordiv(a, b)) - max(Dim(0), floordiv(Dim(0) - a, b)));
}

// One element of a two-operand operator on integers, if a Dim can express it for certain.
std::optional<Dim> apply(const RelationContext& c, const std::string& op, const Dim& a,
                         const Dim& b) {
  if (op == "add") return a + b;
  if (op == "sub") return a - b;
  if (op == "mul") return a * b;
  if (op == "maximum") return c.dims.simplify(max(a, b));
  if (op == "minimum") return c.dims.simplify(min(a, b));
  if (op == "div") return quotient(c.dims, a, b);
  if (op == "mod") {
    const bool positive = c.dims.less(Dim(0), b) == Proof::kYes;
    return positive ? std::optional(c.dims.simplify(mod(a, b))) : std::nullopt;
  }
  if (op == "equal") return truth(c.dims.equal(a, b));
  if (op == "not_equal") return truth(negate(c.dims.equal(a, b)));
  if (op == "less") return truth(c.dims.less(a, b));
  if (op == "less_equal") return truth(c.dims.less_equal(a, b));
  if (op == "greater") return truth(c.dims.less(b, a));
  if (op == "greater_equal") return truth(c.dims.less_equal(b, a));
  if (op == "and") {
    if (as_bool(a) == Proof::kNo || as_bool(b) == Proof::kNo) return Dim(0);
    return as_bool(a) == Proof::kYes && as_bool(b) == Proof::kYes ? std::optional(Dim(1))
                                                                  : std::nullopt;
  }
  if (op == "or") {
    if (as_bool(a) == Proof::kYes || as_bool(b) == Proof::kYes) return Dim(1);
    return as_bool(a) == Proof::kNo && as_bool(b) == Proof::kNo ? std::optional(Dim(0))
                                                                : std::nullopt;
  }
  return std::nullopt;
}

// The element of `contents` that stands at position i of a broadcast result of n elements.
const Dim& at(const Dims& contents, size_t i) {
  return contents[contents.size() == 1 ? 0 : i];
}

// Contents are tracked through broadcasting only where it is plain: equal counts, or one element.
std::optional<size_t> common_count(std::initializer_list<const Dims*> all, const Type& result) {
  size_t n = 1;
  for (const Dims* d : all) n = std::max(n, d->size());
  for (const Dims* d : all) {
    if (d->size() != 1 && d->size() != n) return std::nullopt;
  }
  if (element_count(result) != Dim(static_cast<int64_t>(n))) return std::nullopt;
  return n;
}

std::optional<Dims> binary_contents(const RelationContext& c, const Type& result) {
  auto a = contents_of(c, 0), b = contents_of(c, 1);
  if (!a || !b || !tracks_contents(result->dtype)) return std::nullopt;
  auto n = common_count({&*a, &*b}, result);
  if (!n) return std::nullopt;
  Dims out;
  for (size_t i = 0; i < *n; ++i) {
    auto v = within_64_bits([&] { return apply(c, c.call.op, at(*a, i), at(*b, i)); }, {});
    if (!v) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

RelationResult broadcasting(RelationContext& c, DType result) {
  Type t = tensor_type(broadcast_shapes(c, dims(c, 0), dims(c, 1)), result);
  auto contents = binary_contents(c, t);
  return {std::move(t), std::move(contents)};
}

}  // namespace

RelationResult relate_unary(RelationContext& c) {
  const std::string& op = c.call.op;
  if (!takes_integers(op)) require_float(c, 0);
  require_number(c, 0);
  RelationResult r{c.inputs[0], std::nullopt};
  if (auto in = contents_of(c, 0); in && (op == "neg" || op == "abs")) {
    for (Dim& d : *in) {
      const auto v = within_64_bits(
          [&] {
            const Dim negated = d * Dim(-1);
            return std::optional(op == "neg" ? negated : c.dims.simplify(max(d, negated)));
          },
          {});
      if (!v) return r;
      d = *v;
    }
    r.contents = std::move(in);
  }
  return r;
}

RelationResult relate_unary_bool(RelationContext& c) {
  require_dtype(c, 0, DType::kBool);
  RelationResult r{c.inputs[0], std::nullopt};
  if (auto in = contents_of(c, 0)) {
    for (Dim& d : *in) d = Dim(1) - d;
    r.contents = std::move(in);
  }
  return r;
}

RelationResult relate_cast(RelationContext& c) {
  const DType to = attr<DType>(c.call.attrs, "dtype");
  RelationResult r{tensor_type(dims(c, 0), to), std::nullopt};
  if (auto in = contents_of(c, 0); in && tracks_contents(to)) {
    bool keep = true;
    for (const Dim& d : *in) {
      const DimContext::Interval range = c.dims.range(d);
      if (to == DType::kBool) keep &= range.low >= 0 && range.high <= 1;
      // Extents are taken to fit 32 bits only where that is known or the source was 32 bits.
      if (to == DType::kI32 && dtype(c, 0) == DType::kI64 && d.as_constant()) {
        keep &= range.low >= INT32_MIN && range.high <= INT32_MAX;
      }
    }
    if (keep) r.contents = std::move(in);
  }
  return r;
}

RelationResult relate_broadcast(RelationContext& c) {
  require_same_dtype(c);
  if (dtype(c, 0) == DType::kBool)
    c.fail("bool operands have no arithmetic", "use and, or, or cast");
  return broadcasting(c, dtype(c, 0));
}

RelationResult relate_bitwise(RelationContext& c) {
  require_same_dtype(c);
  if (is_float(dtype(c, 0)) || dtype(c, 0) == DType::kBool)
    c.fail(fmt::format("{} has no bits to combine", name_of(dtype(c, 0))), "give integers");
  return broadcasting(c, dtype(c, 0));
}

RelationResult relate_bitcast(RelationContext& c) {
  const DType from = dtype(c, 0), to = attr<DType>(c.call.attrs, "dtype");
  if (size_of(from) != size_of(to))
    c.fail(fmt::format("{} has {} bytes and {} has {}", name_of(from), size_of(from), name_of(to),
                       size_of(to)),
           "name an element type of the same width");
  return {tensor_type(dims(c, 0), to), std::nullopt};
}

RelationResult relate_random_bits(RelationContext& c) {
  require_dtype(c, 0, DType::kI64);
  require_dtype(c, 1, DType::kI64);
  return broadcasting(c, DType::kU64);
}

RelationResult relate_comparison(RelationContext& c) {
  require_same_dtype(c);
  return broadcasting(c, DType::kBool);
}

RelationResult relate_logical(RelationContext& c) {
  require_dtype(c, 0, DType::kBool);
  require_dtype(c, 1, DType::kBool);
  return broadcasting(c, DType::kBool);
}

RelationResult relate_where(RelationContext& c) {
  require_dtype(c, 0, DType::kBool);
  if (dtype(c, 1) != dtype(c, 2)) {
    c.fail(fmt::format("the two values have different element types {} and {}",
                       name_of(dtype(c, 1)), name_of(dtype(c, 2))),
           "insert cast");
  }
  Dims shape = broadcast_shapes(c, dims(c, 1), dims(c, 2));
  Type t = tensor_type(broadcast_shapes(c, dims(c, 0), shape), dtype(c, 1));
  RelationResult r{t, std::nullopt};
  auto condition = contents_of(c, 0), x = contents_of(c, 1), y = contents_of(c, 2);
  if (condition && x && y) {
    if (auto n = common_count({&*condition, &*x, &*y}, t)) {
      Dims out;
      for (size_t i = 0; i < *n; ++i) {
        const Proof p = as_bool(at(*condition, i));
        if (p == Proof::kUnknown && at(*x, i) != at(*y, i)) return r;
        out.push_back(p == Proof::kNo ? at(*y, i) : at(*x, i));
      }
      r.contents = std::move(out);
    }
  }
  return r;
}

}  // namespace nimble::ir
