// The template "elementwise": any group of element-wise and injective operators.
//
// Element-wise and injective groups.
//
// Every result is pulled through GroupEvaluator, a vector along the last axis at a time. Work is
// cut into items: a row (all axes but the last), or a stretch of `grain` columns of one where rows
// are long; threads share the items. make_workload() has already made one long row of groups
// without broadcasting, so that those need no coordinates at all.
//
// Two rewrites keep vectors where a plain walk would fall back to single elements:
//  - A result that ends in reshapes is walked in the shape before them; flat offsets are the same.
//    So (b, h, n, d) -> transpose -> (b, n, h*d) copies stretches of d.
//  - A concatenation is walked operand by operand: inside one there is no seam.
// Results of equal dims that need neither share one walk and so their common values.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/axes.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::Dim;
using kir::StmtRef;

class ElementwiseLowering {
 public:
  ElementwiseLowering(const Workload& w, const Config& c, const TargetInfo& t)
      : w_(w),
        frame_(make_frame(w)),
        lanes_(group_lanes(*w.group, t)),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        grain_(knob_int(c, "grain")) {}

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> nests;
    const std::vector<ir::Atom>& results = frame_.result_atoms;
    std::vector<bool> done(results.size(), false);
    for (size_t i = 0; i < results.size(); ++i) {
      if (done[i]) continue;
      std::vector<size_t> together = {i};
      if (is_plain(results[i]))
        for (size_t j = i + 1; j < results.size(); ++j)
          if (frame_.result_types[j]->dims == frame_.result_types[i]->dims && is_plain(results[j]))
            together.push_back(j);
      for (size_t j : together) done[j] = true;
      result(together, nests);
    }
    return make_function(w_, frame_, name, {}, {}, kb::seq(std::move(nests)));
  }

 private:
  GroupEvaluator evaluator() {
    return GroupEvaluator(*w_.group, frame_.parameters, fmt::format("e{}_", next_evaluator_++));
  }

  bool is_plain(const ir::Atom& a) {
    GroupEvaluator group = evaluator();
    return group.vectorizable(a);
  }

  // The concatenation that forms a value up to element-wise operators in its own shape.
  const ir::Binding* concat_of(const ir::Atom& a) const {
    std::vector<ir::Atom> pending = {a};
    const std::vector<Dim> dims = ir::type_of(a)->dims;
    const auto& bindings = w_.group->body->bindings;
    for (auto b = bindings.rbegin(); b != bindings.rend(); ++b) {
      bool wanted = false;
      for (const ir::Atom& p : pending) wanted |= p.is_var() && p.var == b->var;
      if (!wanted || b->var->type->kind != ir::TypeKind::kTensor || b->var->type->dims != dims)
        continue;
      if (b->value->op == "concat") return &*b;
      if (b->value->kind == ir::ExprKind::kAtom || has_compute_rule(b->value->op))
        for (const ir::Atom& x : b->value->args) pending.push_back(x);
    }
    return nullptr;
  }

  void result(const std::vector<size_t>& together, std::vector<StmtRef>& nests) {
    const ir::Atom& a = frame_.result_atoms[together[0]];
    if (is_plain(a)) {
      GroupEvaluator group = evaluator();
      nests.push_back(nest(group, frame_.result_atoms, together, ir::type_of(a)->dims, 0, 0));
      return;
    }
    GroupEvaluator probe = evaluator();
    std::vector<ir::Atom> atoms = frame_.result_atoms;
    const ir::Atom inner = strip_reshapes(probe, a);
    atoms[together[0]] = inner;
    const ir::Binding* concat = inner.is_var() ? concat_of(inner) : nullptr;
    if (concat == nullptr) {
      nests.push_back(nest(probe, atoms, together, ir::type_of(inner)->dims, 0, 0));
      return;
    }
    const size_t axis = ir::axis_of(*concat->value);
    Dim begin = 0;
    for (size_t part = 0; part < concat->value->args.size(); ++part) {
      GroupEvaluator group = evaluator();
      group.choose_part(concat->var.get(), part);
      std::vector<Dim> dims = ir::type_of(inner)->dims;
      dims[axis] = ir::type_of(concat->value->args[part])->dims[axis];
      nests.push_back(nest(group, atoms, together, dims, axis, begin));
      begin = begin + dims[axis];
    }
  }

  // Walks `dims`, which start at `shift` along `axis` of the values' own.
  StmtRef nest(GroupEvaluator& group, const std::vector<ir::Atom>& atoms,
               const std::vector<size_t>& results, std::vector<Dim> dims, size_t axis,
               const Dim& shift) {
    const bool vectors = group.vectorizable(atoms[results[0]]);
    const int lanes = vectors ? lanes_ : 1;
    const bool scalar = dims.empty();
    const Dim columns = scalar ? Dim(1) : dims.back();
    const std::vector<Dim> outer(dims.begin(), scalar ? dims.end() : dims.end() - 1);
    Dim rows = 1;
    for (const Dim& d : outer) rows = rows * d;

    const auto known = columns.as_constant();
    const Dim chunks = known && *known <= grain_ ? Dim(1) : ir::ceildiv(columns, grain_);
    const std::string item = fmt::format("item{}", next_nest_++);
    const Dim i = Dim::symbol(item);
    std::vector<StmtRef> body;
    Dim row = i, first = 0, width = columns;
    if (!chunks.is_constant(1)) {
      if (!rows.is_constant(1)) {
        body.push_back(kb::let_index("row", kb::index(ir::floordiv(i, chunks))));
        row = Dim::symbol("row");
      } else {
        row = 0;
      }
      body.push_back(kb::let_index("first", kb::index((i - row * chunks) * grain_)));
      first = Dim::symbol("first");
      body.push_back(kb::let_index("width", kb::index(ir::min(columns - first, grain_)),
                                   ir::SymbolFacts{0, grain_, 1}));
      width = Dim::symbol("width");
    }
    const std::vector<Dim> outer_at = bind_coordinates("x", outer, row, body);
    const SliceBody slice = [&](const Slice& s) {
      std::vector<Dim> at = outer_at;
      if (!scalar) {
        at.push_back(s.at);
        at[axis] = at[axis] + shift;
      }
      std::vector<StmtRef> stores;
      for (size_t r : results) {
        const kir::BufferRef& buffer = frame_.results[r];
        kir::ValueRef v = group.value(atoms[r], at, lanes, s.valid);
        v = kb::cast(buffer->dtype, v);
        const Dim offset = flat_offset(ir::type_of(atoms[r])->dims, at);
        stores.push_back(s.valid ? kb::store_masked(buffer, offset, v, *s.valid)
                                 : kb::store(buffer, offset, v));
      }
      std::vector<StmtRef> all = group.take_statements();
      all.insert(all.end(), stores.begin(), stores.end());
      return all;
    };
    body.push_back(unroll_ == 1 ? masked_loop("c", first, width, lanes, slice)
                                : vector_loop("c", first, width, lanes, unroll_, slice));
    return kb::loop(kir::LoopKind::kThread, item, 0, rows * chunks, kb::seq(std::move(body)));
  }

  const Workload& w_;
  Frame frame_;
  int lanes_, unroll_;
  int64_t grain_;
  int next_evaluator_ = 0, next_nest_ = 0;
};

}  // namespace

bool ElementwiseTemplate::accepts(const Workload& w, const TargetInfo&) const {
  for (const ir::Binding& b : w.group->body->bindings) {
    switch (b.value->kind) {
      case ir::ExprKind::kAtom:
      case ir::ExprKind::kTuple:
      case ir::ExprKind::kGetField:
        break;
      case ir::ExprKind::kCall: {
        const ir::Expr& e = *b.value;
        if (!is_pullable(e)) return false;
        // Shapes as operands were read by the shape function; the type has them.
        if (b.var->type->kind != ir::TypeKind::kTensor) return false;
        break;
      }
      default:
        return false;
    }
  }
  return true;
}

std::vector<Knob> ElementwiseTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2, 4}), int_knob("grain", {1024, 4096, 16384})};
}

bool ElementwiseTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

// A concatenation has a nest for each part: where their width is symbolic, copies of the body for
// the rest of a row would multiply that.
Config ElementwiseTemplate::default_config(const Workload& w, const TargetInfo&) const {
  const auto& all = w.group->body->bindings;
  const bool parts = std::any_of(all.begin(), all.end(), [](const ir::Binding& b) {
    return b.value->op == "concat" && !b.var->type->dims.back().as_constant();
  });
  return {{"unroll", int64_t{parts ? 1 : 2}}, {"grain", int64_t{4096}}};
}

Lowered ElementwiseTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                   const std::string& name) const {
  Dim elements = 0;
  const ir::Type r = ir::type_of(w.group->body->result);
  for (const ir::Type& e : r->kind == ir::TypeKind::kTuple ? r->elements : std::vector<ir::Type>{r})
    elements = elements + ir::element_count(e);
  return one_kernel(ElementwiseLowering(w, c, t).run(name), threads_for(elements));
}

}  // namespace nimble::kernels
