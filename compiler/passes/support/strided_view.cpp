#include "compiler/passes/support/strided_view.h"

#include "compiler/ir/axes.h"
#include "compiler/ir/op.h"
#include "compiler/ir/shapes.h"

namespace nimble::passes {

using ir::Atom;
using ir::Dim;
using ir::Expr;
using ir::Type;

namespace {

using Axes = std::vector<int64_t>;
using Dims = std::vector<Dim>;
using Step = StridedView::Step;
using Steps = std::vector<Step>;

Steps axis_of_extent(const Dim& extent, const Dim& stride) {
  return extent.is_constant(1) ? Steps() : Steps{{extent, stride}};
}

StridedView whole(const Atom& a, const Dims& dims) {
  StridedView v{a, std::vector<Steps>(dims.size())};
  Dim stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    v.axes[i] = axis_of_extent(dims[i], stride);
    stride = stride * dims[i];
  }
  return v;
}

// The steps with neighbours as one where they lie in each other.
Steps joined(const Steps& steps) {
  Steps out;
  for (const Step& s : steps) {
    if (!out.empty() && out.back().stride == s.extent * s.stride)
      out.back() = {out.back().extent * s.extent, s.stride};
    else
      out.push_back(s);
  }
  return out;
}

bool transpose(const Expr& e, StridedView* v) {
  std::vector<Steps> turned;
  for (const int64_t axis : ir::attr<Axes>(e.attrs, "axes"))
    turned.push_back(v->axes[static_cast<size_t>(axis)]);
  v->axes = std::move(turned);
  return true;
}

// Deals steps out to axes of extents `dims`, from the last on, in the smallest groups of equal
// extent: several steps are one axis, or one step is several axes.
bool deal(const Steps& steps, const Dims& dims, std::vector<Steps>* axes) {
  axes->assign(dims.size(), {});
  std::vector<size_t> places;  // of the axes that are not of extent 1
  for (size_t i = 0; i < dims.size(); ++i)
    if (!dims[i].is_constant(1)) places.push_back(i);
  size_t s = steps.size(), a = places.size();
  while (s > 0 || a > 0) {
    if (s == 0 || a == 0) return false;
    const Dim extent = steps[s - 1].extent, wanted = dims[places[a - 1]];
    Dim inner = extent, outer = wanted;
    size_t taken = 1, given = 1;
    // One of several or several of one.
    while (!(inner == wanted) && taken < s) {
      ++taken;
      inner = steps[s - taken].extent * inner;
    }
    if (!(inner == wanted)) {
      taken = 1;
      while (!(outer == extent) && given < a) {
        ++given;
        outer = dims[places[a - given]] * outer;
      }
      if (!(outer == extent)) return false;
    }
    if (given == 1) {
      (*axes)[places[a - 1]] = Steps(steps.begin() + static_cast<std::ptrdiff_t>(s - taken),
                                     steps.begin() + static_cast<std::ptrdiff_t>(s));
    } else {
      Dim stride = steps[s - 1].stride;
      for (size_t i = 1; i <= given; ++i) {
        const size_t place = places[a - i];
        (*axes)[place] = {{dims[place], stride}};
        stride = stride * dims[place];
      }
    }
    s -= taken;
    a -= given;
  }
  return true;
}

bool reshape(const Dims& dims, StridedView* v) {
  Steps all;
  for (const Steps& axis : v->axes) all.insert(all.end(), axis.begin(), axis.end());
  std::vector<Steps> axes;
  if (!deal(all, dims, &axes) && !deal(joined(all), dims, &axes)) return false;
  v->axes = std::move(axes);
  return true;
}

bool slice(const Expr& e, const Dims& dims, StridedView* v) {
  if (e.args.size() != 1) return false;
  const auto& axes = ir::attr<Axes>(e.attrs, "axes");
  const auto& starts = ir::attr<Dims>(e.attrs, "starts");
  const auto& ends = ir::attr<Dims>(e.attrs, "ends");
  const Dims steps = ir::attr_or<Dims>(e.attrs, "steps", Dims(axes.size(), 1));
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<size_t>(axes[i]);
    const auto axis = v->axis(at);
    if (!axis || !steps[i].is_constant(1)) return false;
    const auto first =
        ir::slice_bounds(axis->extent, starts[i], ends[i], steps[i], ir::DimContext())
            .first.as_constant();
    if (!first) return false;
    v->offset = v->offset + axis->stride * *first;
    v->axes[at] = axis_of_extent(dims[at], axis->stride);
  }
  return true;
}

// x[…, i, …] for a constant i that is known to exist; of the index's axes each has extent 1.
bool index(const Expr& e, size_t at, StridedView* v) {
  const Atom& which = e.args[1];
  const auto axis = v->axis(at);
  if (!axis || !which.is_constant() || which.constant->elements() != 1) return false;
  const auto extent = axis->extent.as_constant();
  if (!extent) return false;
  int64_t i = which.constant->integer(0);
  if (e.op == "gather") i = ir::axis_from_front(i, *extent);  // take_row has no end to count from
  if (i < 0 || i >= *extent) return false;
  v->offset = v->offset + axis->stride * i;
  const auto place = v->axes.erase(v->axes.begin() + static_cast<std::ptrdiff_t>(at));
  v->axes.insert(place, which.constant->shape.size(), Steps());
  return true;
}

}  // namespace

std::optional<StridedView::Step> StridedView::axis(size_t i) const {
  const Steps steps = joined(axes[i]);
  if (steps.empty()) return Step{1, 0};
  return steps.size() == 1 ? std::optional(steps[0]) : std::nullopt;
}

Atom strip_factors(const Definitions& d, Atom a, double* scale) {
  while (true) {
    if (const Expr* mul = definition(d, a, "mul")) {
      if (auto c = constant_value(mul->args[1])) {
        *scale *= *c;
        a = mul->args[0];
        continue;
      }
      if (auto c = constant_value(mul->args[0])) {
        *scale *= *c;
        a = mul->args[1];
        continue;
      }
    } else if (const Expr* div = definition(d, a, "div")) {
      if (auto c = constant_value(div->args[1])) {
        *scale /= *c;
        a = div->args[0];
        continue;
      }
    }
    return a;
  }
}

std::vector<StridedView> views_of(const Definitions& d, const Atom& a) {
  const Type t = ir::type_of(a);
  if (!t || t->kind != ir::TypeKind::kTensor) return {};
  const Dims& dims = t->dims;
  std::vector<StridedView> all = {whole(a, dims)};
  const Expr* e = definition(d, a);
  if (!e || e->args.empty()) return all;
  double factor = 1;
  const Atom bare = strip_factors(d, a, &factor);
  if (bare.is_var() && bare.var != a.var) {
    // Integers' products and quotients are others than their factors' product.
    const Type b = ir::type_of(bare);
    if (!b || b->dims != dims || !is_float(b->dtype)) return all;
    for (StridedView& v : views_of(d, bare)) {
      v.scale *= factor;
      all.push_back(std::move(v));
    }
    return all;
  }
  const bool turned = e->op == "transpose", part = e->op == "slice";
  const bool view = ir::traits_of(*e).memory == ir::Memory::kView;
  const bool indexed = e->op == "gather" || e->op == "take_row";
  if (!turned && !part && !view && !indexed) return all;
  for (StridedView& v : views_of(d, e->args[0])) {
    const bool known = turned ? transpose(*e, &v)
                       : view ? reshape(dims, &v)
                       : part ? slice(*e, dims, &v)
                              : index(*e, e->op == "gather" ? ir::axis_of(*e) : 0, &v);
    if (known) all.push_back(std::move(v));
  }
  return all;
}

}  // namespace nimble::passes
