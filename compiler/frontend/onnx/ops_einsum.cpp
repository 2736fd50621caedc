// Einsum as matrix products.
//
// Operands join from the left. What two of them share is either kept (batch axes) or summed (the
// inner axis of a product); what only one has and nobody else needs is summed before. So a join is
// a transposition to (batch, left, inner) and (batch, inner, right), a product of matrices, and a
// result (batch, left, right). A letter twice in one operand is its diagonal. "..." stands for as
// many letters as are left, which broadcast.
#include <algorithm>
#include <set>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

struct Operand {
  Value value;
  std::string letters;  // one per axis; those of "..." are digits, the last axis 0
};

class Einsum {
 public:
  explicit Einsum(NodeContext& c) : c_(c), a_(c.g) {}

  Value build() {
    parse();
    for (Operand& o : operands_) take_diagonals(o);
    Operand all = operands_[0];
    for (size_t i = 1; i < operands_.size(); ++i) all = join(all, operands_[i], i + 1);
    sum_unneeded(all, operands_.size());
    return in_order(all, output_);
  }

 private:
  static std::string expanded(const std::string& term, int64_t rank) {
    const size_t dots = term.find("...");
    if (dots == std::string::npos) return term;
    std::string batch;
    const auto axes = rank - (static_cast<int64_t>(term.size()) - 3);
    for (int64_t i = axes; i-- > 0;) batch += static_cast<char>('0' + i);
    return term.substr(0, dots) + batch + term.substr(dots + 3);
  }

  void parse() {
    std::string equation;
    for (char ch : c_.text("equation", ""))
      if (ch != ' ') equation += ch;
    const size_t arrow = equation.find("->");
    std::string left = equation.substr(0, arrow);
    std::string batch, once;
    for (size_t i = 0; i < c_.count(); ++i) {
      const size_t comma = left.find(',');
      const Value& v = c_.in(i);
      Operand o{a_.widened(v), expanded(left.substr(0, comma), v.rank())};
      if (is_float(v.dtype()) ? false : size_of(v.dtype()) < 4) o.value = a_.cast(v, DType::kI32);
      if (static_cast<int64_t>(o.letters.size()) != v.rank() || v.rank() > 26)
        c_.fail(fmt::format("the equation {} does not fit the operands", printable(equation)));
      for (char ch : o.letters)
        if (std::isdigit(static_cast<unsigned char>(ch)) && batch.find(ch) == std::string::npos)
          batch += ch;
      operands_.push_back(std::move(o));
      left = comma == std::string::npos ? "" : left.substr(comma + 1);
    }
    if (operands_.empty() || !left.empty())
      c_.fail(fmt::format("the equation {} does not fit the operands", printable(equation)));
    std::sort(batch.rbegin(), batch.rend());
    if (arrow != std::string::npos) {
      output_ = equation.substr(arrow + 2);
      if (const size_t dots = output_.find("..."); dots != std::string::npos)
        output_ = output_.substr(0, dots) + batch + output_.substr(dots + 3);
      return;
    }
    // Without a result: the batch, then all letters that occur once, in order.
    std::map<char, int> counts;
    for (const Operand& o : operands_)
      for (char ch : o.letters)
        if (!std::isdigit(static_cast<unsigned char>(ch))) ++counts[ch];
    output_ = batch;
    for (const auto& [ch, n] : counts)
      if (n == 1) output_ += ch;
  }

  void take_diagonals(Operand& o) {
    for (size_t i = 0; i < o.letters.size(); ++i) {
      const size_t j = o.letters.find(o.letters[i], i + 1);
      if (j == std::string::npos) continue;
      const int64_t rank = o.value.rank();
      const auto from = static_cast<int64_t>(i), to = static_cast<int64_t>(j);
      const Dims& d = o.value.dims();
      const Value same =
          a_.equal(a_.range(d[i], DType::kI64, from, rank), a_.range(d[j], DType::kI64, to, rank));
      o.value = a_.sum(a_.where(same, o.value, 0.0), {to}, false);
      o.letters.erase(j, 1);
      --i;  // there may be a third
    }
  }

  bool needed(char letter, size_t from) const {
    if (output_.find(letter) != std::string::npos) return true;
    return std::any_of(
        operands_.begin() + static_cast<long>(from), operands_.end(),
        [&](const Operand& o) { return o.letters.find(letter) != std::string::npos; });
  }

  void sum_unneeded(Operand& o, size_t from, const std::string& other = "") {
    Axes axes;
    std::string kept;
    for (size_t i = 0; i < o.letters.size(); ++i)
      if (needed(o.letters[i], from) || other.find(o.letters[i]) != std::string::npos)
        kept += o.letters[i];
      else
        axes.push_back(static_cast<int64_t>(i));
    o.value = a_.sum(o.value, axes, false);
    o.letters = kept;
  }

  Value in_order(const Operand& o, const std::string& letters) {
    Axes order;
    for (char ch : letters) {
      const size_t at = o.letters.find(ch);
      if (at == std::string::npos) c_.fail("the result of the equation has a letter of its own");
      order.push_back(static_cast<int64_t>(at));
    }
    return order.empty() ? o.value : a_.transpose(o.value, order);
  }

  Operand join(Operand x, Operand y, size_t from) {
    sum_unneeded(x, from, y.letters);
    sum_unneeded(y, from, x.letters);
    std::string batch, inner, left, right;
    for (char ch : x.letters) {
      const bool shared = y.letters.find(ch) != std::string::npos;
      (!shared ? left : needed(ch, from) ? batch : inner) += ch;
    }
    for (char ch : y.letters)
      if (x.letters.find(ch) == std::string::npos) right += ch;
    const auto extents = [&](const Operand& o, const std::string& letters) {
      Dims out;
      for (char ch : letters) out.push_back(o.value.dim(o.letters.find(ch)));
      return out;
    };
    const auto whole = [&](const Dims& d) {
      return product_of(d, 0, static_cast<int64_t>(d.size()));
    };
    const Dims rows = extents(x, left), columns = extents(y, right);
    const auto matrix = [&](const Operand& o, const std::string& order, const Dim& a,
                            const Dim& b) {
      Dims to = extents(o, batch);
      to.push_back(a);
      to.push_back(b);
      return c_.g.reshape(in_order(o, order), to);
    };
    const Dim summed = whole(extents(x, inner)), also_summed = whole(extents(y, inner));
    const Value product = a_.matmul(matrix(x, batch + left + inner, whole(rows), summed),
                                    matrix(y, batch + inner + right, also_summed, whole(columns)));
    Dims to(product.dims().begin(), product.dims().end() - 2);
    to.insert(to.end(), rows.begin(), rows.end());
    to.insert(to.end(), columns.begin(), columns.end());
    return {c_.g.reshape(product, to), batch + left + right};
  }

  NodeContext& c_;
  Arithmetic a_;
  std::vector<Operand> operands_;
  std::string output_;
};

Values einsum(NodeContext& c) {
  Arithmetic a(c.g);
  return {a.cast(Einsum(c).build(), c.in(0).dtype())};
}

// The determinant by cofactors of the first row: exact for the small matrices that models have.
Value determinant(NodeContext& c, const Value& x, int64_t n) {
  Arithmetic a(c.g);
  const int64_t rows = x.rank() - 2, columns = x.rank() - 1;
  const auto entry = [&](int64_t k) {
    return a.squeeze(c.g.slice(c.g.slice(x, rows, 0, 1), columns, Dim(k), Dim(k + 1)),
                     {rows, columns});
  };
  if (n == 1) return entry(0);
  const Value below = c.g.slice(x, rows, 1, Dim(n));
  std::optional<Value> sum;
  for (int64_t k = 0; k < n; ++k) {
    Values rest;
    if (k > 0) rest.push_back(c.g.slice(below, columns, 0, Dim(k)));
    if (k + 1 < n) rest.push_back(c.g.slice(below, columns, Dim(k + 1), Dim(n)));
    const Value part = a.mul(entry(k), determinant(c, a.concat(rest, columns), n - 1));
    sum = !sum ? part : k % 2 ? a.sub(*sum, part) : a.add(*sum, part);
  }
  return *sum;
}

Values det(NodeContext& c) {
  const Value& x = c.in(0);
  const auto n = x.rank() < 2 ? std::nullopt : x.dims().back().as_constant();
  constexpr int64_t kMost = 6;  // cofactors are factorial in number
  if (!n || *n < 1 || *n > kMost)
    c.unsupported("a determinant of matrices that are not 1 to 6 wide", "export smaller ones");
  Dims square = x.dims();  // as many rows as columns, or it is said
  square[square.size() - 2] = *n;
  return {determinant(c, c.g.reshape(x, square), *n)};
}

}  // namespace

std::span<const Operator> algebra_operators() {
  static const Operator kRows[] = {
      {"Einsum", einsum},
      {"Det", det},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
