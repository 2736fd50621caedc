// Most parameters are filled with small numbers, whatever they mean: floats of both signs, integers
// 0 and 1. Two kinds are not. Indices stay inside what they index.
//
// Beside sums of products of bytes, data decides whether a wrong kernel is seen. Bytes have their
// whole range, those of weights in blocks, of several bits each, among them: sums that saturate in
// 16 bits and lost signs show at large bytes alone. Such sums are large. So what multiplies them is
// as small as a model's scales are, or a result that is rounded to a byte would be the least or the
// largest whatever its sum is; and what is added to them, a bias or a correction for zero points,
// is a quarter as large as they, or a kernel that leaves it out would pass.
//
// A scale or an addend may be computed in the kernel itself, like the product of a zero point and
// the weights' sums. Then the wish for its size goes back through conversions and products to the
// parameters of which it is made: one pass over the group finds what is large and what is wished
// beside it, another one, from its end, hands the wishes on.
#include "tuner/service/workload_fills.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compiler/ir/op.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kAnyI8 = 128;     // in size
constexpr double kScaledSum = 128;  // of sums that a model's scales make a byte of

// Which parameters serve as indices of a gather, and the extents that they index.
std::map<size_t, std::vector<ir::Dim>> indices_of(const kernels::Workload& w) {
  const auto& parameters = w.group->parameters;
  std::map<const ir::Var*, std::set<size_t>> from;  // through element-wise operators
  for (size_t i = 0; i < parameters.size(); ++i) from[parameters[i].get()] = {i};
  std::map<size_t, std::vector<ir::Dim>> out;
  for (const ir::Binding& b : w.group->body->bindings) {
    for (const ir::Atom& a : b.value->args)
      if (a.is_var()) from[b.var.get()].insert(from[a.var.get()].begin(), from[a.var.get()].end());
    const ir::Expr& e = *b.value;
    if (!ir::traits_of(e).indexes || !e.args[1].is_var()) continue;
    const auto& dims = ir::type_of(e.args[0])->dims;
    const auto axis = ir::attr_or<int64_t>(e.attrs, "axis", 0);
    for (size_t i : from[e.args[1].var.get()])
      if (is_int(parameters[i]->type->dtype)) out[i].push_back(dims[static_cast<size_t>(axis)]);
  }
  return out;
}

bool is_byte(const ir::Atom& a) {
  const ir::Type t = ir::type_of(a);
  return t->kind == ir::TypeKind::kTensor && (t->dtype == DType::kI8 || t->dtype == DType::kU8);
}

// Whether it sums products of bytes in a wider type, as a kernel may do it wrongly: in 16 bits that
// saturate, or with bytes taken for signed ones that are not, or the other way round.
bool sums_bytes(const ir::Binding& b) {
  const ir::Expr& e = *b.value;
  return ir::traits_of(e).sums && b.var->type->kind == ir::TypeKind::kTensor &&
         size_of(b.var->type->dtype) > 1 && e.args.size() > 1 && is_byte(e.args[1]);
}

// What a byte of an operand may be: anything, but of weights what the product promises of them.
std::pair<double, double> byte_range(const ir::Expr& product, size_t operand) {
  if (ir::type_of(product.args[operand])->dtype == DType::kU8) return {0, 255};
  const auto most =
      operand == 1 ? ir::attr_or<int64_t>(product.attrs, "max_weight", kAnyI8) : kAnyI8;
  return {static_cast<double>(-most), static_cast<double>(std::min<int64_t>(most, kAnyI8 - 1))};
}

// The numbers of a fill that an element of the type can be. (Fills of 64 bits are doubles: half of
// their range is all that is exact.)
Fill within(DType t, Fill f) {
  if (is_float(t)) return f;
  if (t == DType::kBool) return {0, 1};
  const int bits = std::min(63, 8 * static_cast<int>(size_of(t)));
  const double low = is_unsigned_int(t) ? 0 : -std::ldexp(1, bits - 1);
  const double high = std::ldexp(1, is_unsigned_int(t) ? bits : bits - 1) - 1;
  return {std::clamp(f.low, low, high), std::clamp(f.high, low, high)};
}

class ByteFills {
 public:
  ByteFills(const kernels::Workload& w, const std::function<double(const ir::Binding&)>& terms)
      : terms_(terms) {
    const std::vector<ir::Binding>& members = w.group->body->bindings;
    for (const ir::VarRef& p : w.group->parameters) reached_.insert(p.get());
    for (const ir::Binding& b : members) {
      if (sums_bytes(b))
        sum(b);
      else
        follow(b);
    }
    for (size_t i = members.size(); i-- > 0;) hand_on(members[i]);
    for (size_t i = 0; i < w.group->parameters.size(); ++i)
      if (const auto it = wishes_.find(w.group->parameters[i].get()); it != wishes_.end())
        fills_.emplace(i, within(it->first->type->dtype, it->second));
  }
  const std::map<size_t, Fill>& fills() const { return fills_; }

 private:
  // Wishes for the numbers of a value. False if no parameter decides them.
  bool wish(const ir::Atom& a, double low, double high) {
    if (!is_reached(a)) return false;
    const auto [wish, fresh] = wishes_.try_emplace(a.var.get(), Fill{low, high});
    if (!fresh) wish->second = {std::max(wish->second.low, low), std::min(wish->second.high, high)};
    return true;
  }
  // Of both signs and up to a size. One number for all elements is not near 0: they would all tell
  // nothing of it.
  bool wish_up_to(const ir::Atom& a, double size) {
    if (!is_reached(a)) return false;
    const bool one = ir::element_count(ir::type_of(a)).is_constant(1);
    return wish(a, one ? size / 4 : -size, size);
  }
  bool is_reached(const ir::Atom& a) const { return a.is_var() && reached_.contains(a.var.get()); }

  void sum(const ir::Binding& b) {
    const ir::Expr& e = *b.value;
    double each = 1;
    bool has_signs = false;
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (!is_byte(e.args[i])) continue;
      const auto [low, high] = byte_range(e, i);
      const bool drawn = wish(e.args[i], low, high);
      if (i > 1 || !drawn) continue;  // what the kernel makes of other parameters is 0 or 1
      each *= high - low;
      has_signs |= low < 0;
    }
    if (e.attrs.contains("group")) {
      // Its rows are rounded in the kernel, over the range that they have (groupwise.h).
      const double scale = 1 / std::max(1.0, byte_range(e, 1).second);
      wish(e.args[2], -scale, scale);
    } else if (is_byte(e.args[0])) {
      // Signs that are drawn cancel each other.
      const double terms = std::max(1.0, terms_(b));
      large_[b.var.get()] = each / 4 * (has_signs ? std::sqrt(terms) : terms);
    }
  }

  double size_of_sums(const ir::Atom& a) const {
    const auto it = a.is_var() ? large_.find(a.var.get()) : large_.end();
    return it == large_.end() ? 0 : it->second;
  }

  void follow(const ir::Binding& b) {
    const ir::Expr& e = *b.value;
    double most = 0;
    for (const ir::Atom& a : e.args) most = std::max(most, size_of_sums(a));
    if (most == 0) {
      if ((keeps_size(e) || is_product(e)) &&
          std::any_of(e.args.begin(), e.args.end(), [&](const auto& a) { return is_reached(a); }))
        reached_.insert(b.var.get());
      return;
    }
    // What is a byte itself is not large.
    if (b.var->type->kind != ir::TypeKind::kTensor || size_of(b.var->type->dtype) == 1) return;
    const std::optional<double>& neutral = ir::traits_of(e).neutral;
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (size_of_sums(e.args[i]) > 0) continue;
      if (is_product(e) || (neutral == 1.0 && i == 1))
        most = scaled(most, e.args[i], !is_product(e));
      else if (neutral == 0.0)
        wish_up_to(e.args[i], most / 4);
    }
    large_[b.var.get()] = most;
  }

  // Of a constant that is one number, and no zero; else 1.
  static double size_of_number(const ir::Atom& a) {
    const double size = a.constant->elements() == 1 ? std::abs(a.constant->value(0)) : 1;
    return size > 0 ? size : 1;
  }

  // How large sums are that `by` multiplies or divides.
  double scaled(double most, const ir::Atom& by, bool divides) {
    if (by.is_constant()) return divides ? most / size_of_number(by) : most * size_of_number(by);
    if (!is_float(ir::type_of(by)->dtype)) return most;
    const double quotient = most / kScaledSum;
    const bool drawn =
        divides ? wish(by, quotient, 4 * quotient) : wish(by, 1 / (4 * quotient), 1 / quotient);
    return drawn ? kScaledSum : most;
  }

  // What a wish for a result is of its operands.
  void hand_on(const ir::Binding& b) {
    const auto it = wishes_.find(b.var.get());
    if (it == wishes_.end()) return;
    const ir::Expr& e = *b.value;
    const Fill f = it->second;
    if (keeps_size(e)) {
      wish(e.args[0], f.low, f.high);
      return;
    }
    double constant = 1, factors = 0;
    for (const ir::Atom& a : e.args) {
      if (a.is_constant()) constant *= size_of_number(a);
      factors += is_reached(a);
    }
    const auto share = [&](double size) { return std::pow(size / constant, 1 / factors); };
    for (const ir::Atom& a : e.args) {
      if (f.low > 0)
        wish(a, share(f.low), share(f.high));
      else
        wish_up_to(a, share(f.high));
    }
  }

  // Of one operand, of which at most the sign or the element type becomes another.
  static bool keeps_size(const ir::Expr& e) {
    const ir::OpInfo* op = e.kind == ir::ExprKind::kCall ? ir::find_op(e.op) : nullptr;
    return op && e.args.size() == 1 &&
           (op->traits.identity ||
            (op->traits.cheap && op->fusion == ir::FusionKind::kElementwise));
  }
  static bool is_product(const ir::Expr& e) {
    const ir::Traits& t = ir::traits_of(e);
    return t.commutative && t.neutral == 1.0;
  }

  const std::function<double(const ir::Binding&)>& terms_;
  std::unordered_set<const ir::Var*> reached_;        // what parameters decide, as far as wishes go
  std::unordered_map<const ir::Var*, double> large_;  // what is made of sums, and how large it is
  std::unordered_map<const ir::Var*, Fill> wishes_;
  std::map<size_t, Fill> fills_;  // of parameters
};

}  // namespace

std::vector<Fill> fills_of(const kernels::Workload& w,
                           const std::function<double(const ir::Binding&)>& terms,
                           std::map<size_t, ir::Dim>* indexed) {
  const auto indices = indices_of(w);
  const std::map<size_t, Fill> bytes = ByteFills(w, terms).fills();
  const auto scalars = ir::attr_or<std::vector<int64_t>>(w.group->attrs, "scalars", {});
  std::vector<Fill> out;
  for (size_t i = 0; i < w.group->parameters.size(); ++i) {
    if (std::find(scalars.begin(), scalars.end(), static_cast<int64_t>(i)) != scalars.end())
      continue;
    Fill f;
    if (!is_float(w.group->parameters[i]->type->dtype)) f.low = 0, f.high = 1;
    if (const auto it = bytes.find(i); it != bytes.end()) f = it->second;
    f.constant = i < w.constant_parameter.size() && w.constant_parameter[i];
    if (const auto it = indices.find(i); it != indices.end()) {
      // Indices stay inside the smallest extent that they will meet. A symbolic one is known where
      // there is a point.
      ir::Dim extent = it->second[0];
      for (const ir::Dim& other : it->second) extent = min(extent, other);
      const auto constant = extent.as_constant();
      f.low = 0;
      f.high = constant ? static_cast<double>(std::max<int64_t>(0, *constant - 1)) : 0;
      if (!constant) indexed->emplace(out.size(), extent);
    }
    out.push_back(f);
  }
  return out;
}

}  // namespace nimble::tuner
