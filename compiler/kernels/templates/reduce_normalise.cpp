// Normalisations of rows: two or three passes over each.
#include "compiler/kernels/math.h"
#include "compiler/kernels/templates/reduce_lowering.h"

namespace nimble::kernels {

namespace km = kir::math;
namespace kb = kir::build;
using kir::BinaryOp;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;
using Dims = std::vector<Dim>;

namespace {

ValueRef wide_like(const ValueRef& v, const ValueRef& like) {
  return kb::broadcast(v, like->lanes);
}

}  // namespace

kir::BufferRef ReduceLowering::row_buffer() {
  if (!row_) {
    const Dim length = plan_.along ? row_length() + lanes_ : row_length() * lanes_;
    row_ = kb::buffer("row", kir::Scope::kThread, type_, length);
    scratch_.push_back(row_);
  }
  return row_;
}

StmtRef ReduceLowering::keep(const Step& s, const ValueRef& v) {
  return kb::store(row_buffer(), s.place, v);
}

ValueRef ReduceLowering::kept(const Step& s) {
  return kb::load(row_buffer(), s.place, lanes_);
}

GroupEvaluator::Given ReduceLowering::kept_row() {
  return
      [row = row_buffer()](const Dims& at, int lanes) { return kb::load(row, at.back(), lanes); };
}

void ReduceLowering::normalise(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
  const std::string& op = call_.op;
  const bool plain = group_.definition(x_) == nullptr;  // a parameter: reading it twice is free
  const bool keeps_first = keeps_row(plain), keeps = keeps_row(false);
  const auto named = [&](const Step& s, ValueRef v, std::vector<StmtRef>& all) {
    v = let(all, "v", v);
    all.push_back(keep(s, v));
    return v;
  };
  const auto first = [&](const Step& s, std::vector<StmtRef>& all) {
    ValueRef v = pull(s, all);
    return keeps_first ? named(s, v, all) : v;
  };
  const auto again = [&](const Step& s, std::vector<StmtRef>& all) {
    return keeps_first ? kept(s) : pull(s, all);
  };
  const auto wide = [&](const ValueRef& v) { return kb::broadcast(v, lanes_); };
  const ValueRef one = kb::number(type_, 1, 1);

  Element last;
  if (op == "softmax" || op == "log_softmax") {
    const ValueRef top = fold(out, columns, BinaryOp::kMax, "m", first);
    if (op == "softmax") {
      const Element exponential = [=, this](const Step& s, std::vector<StmtRef>& all) {
        return km::exp_flushed(let(all, "d", kb::sub(again(s, all), wide(top))));
      };
      const ValueRef sum =
          fold(out, columns, BinaryOp::kAdd, "sum", [&](const Step& s, std::vector<StmtRef>& all) {
            const ValueRef v = exponential(s, all);
            return keeps ? named(s, v, all) : v;
          });
      const ValueRef scale = let(out, "scale", kb::div(wide_like(one, sum), sum));
      last = [=, this](const Step& s, std::vector<StmtRef>& all) {
        return kb::mul(keeps ? kept(s) : exponential(s, all), wide(scale));
      };
    } else {
      const ValueRef sum =
          fold(out, columns, BinaryOp::kAdd, "sum", [&](const Step& s, std::vector<StmtRef>& all) {
            return km::exp_flushed(let(all, "d", kb::sub(again(s, all), wide(top))));
          });
      const ValueRef log_sum = let(out, "log", km::log(sum));
      last = [=](const Step& s, std::vector<StmtRef>& all) {
        return kb::sub(kb::sub(again(s, all), wide(top)), wide(log_sum));
      };
    }
  } else if (op == "l2_normalize") {
    const ValueRef sum =
        fold(out, columns, BinaryOp::kAdd, "sum", [&](const Step& s, std::vector<StmtRef>& all) {
          const ValueRef v = let(all, "q", first(s, all));
          return kb::mul(v, v);
        });
    const ValueRef epsilon =
        kb::number(type_, ir::attr<double>(call_.attrs, "epsilon"), sum->lanes);
    const ValueRef norm = kb::max(kb::unary(kir::UnaryOp::kSqrt, sum), epsilon);
    const ValueRef scale = let(out, "scale", kb::div(wide_like(one, sum), norm));
    last = [=](const Step& s, std::vector<StmtRef>& all) {
      return kb::mul(again(s, all), wide(scale));
    };
  } else {
    const ValueRef length = kb::cast(type_, kb::index(row_length()));
    const ValueRef sum = fold(out, columns, BinaryOp::kAdd, "sum", first);
    const ValueRef mean = let(out, "mean", kb::div(sum, length));
    const ValueRef squares =
        fold(out, columns, BinaryOp::kAdd, "q", [&](const Step& s, std::vector<StmtRef>& all) {
          const ValueRef d = let(all, "d", kb::sub(again(s, all), wide(mean)));
          return kb::mul(d, d);
        });
    const ValueRef variance =
        kb::add(kb::div(squares, length),
                kb::number(type_, ir::attr<double>(call_.attrs, "epsilon"), squares->lanes));
    const ValueRef scale =
        let(out, "scale", kb::div(one, kb::unary(kir::UnaryOp::kSqrt, variance)));
    last = [=, this](const Step& s, std::vector<StmtRef>& all) {
      const auto parameter = [&](size_t i) {
        const ir::Atom& a = call_.args[i];
        const size_t rank = a.is_constant() ? 0 : ir::type_of(a)->dims.size();
        const Dims at(s.at.end() - static_cast<long>(rank), s.at.end());
        ValueRef v = group_.value(a, at, lanes_, s.valid);
        for (StmtRef& q : group_.take_statements()) all.push_back(std::move(q));
        return v;
      };
      const ValueRef gamma = parameter(1);
      const ValueRef beta = parameter(2);
      const ValueRef d = kb::mul(kb::sub(again(s, all), wide(mean)), wide(scale));
      return kb::fma(d, gamma, beta);
    };
  }

  out.push_back(walk(columns, [&](const Step& s) {
    std::vector<StmtRef> all;
    const ValueRef y = let(all, "y", last(s, all));
    if (!plan_.more.empty()) {
      all.push_back(keep(s, y));
      return all;
    }
    group_.give(anchor_->var, [y](const Dims&, int) { return y; });
    for (size_t r = 0; r < frame_.results.size(); ++r) {
      StmtRef st = store(r, stripped(frame_.result_atoms[r]), s.at, lanes_, s.valid, all);
      all.push_back(std::move(st));
    }
    return all;
  }));
  if (!plan_.more.empty()) reduce_again(columns, out);
}

void ReduceLowering::reduce_again(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
  group_.give(anchor_->var, kept_row());
  reduce_more(columns, out);
}

}  // namespace nimble::kernels
