// Data-dependent and upper-bound operators, taken apart (paper, 3.2).
//
// The extents that only values decide are symbols of an operator's result. Here the operator
// becomes
//   1. its shape function, which counts into a small tensor (count.nonzero, …),
//   2. read_extents, which gives the symbol the value of that tensor's element,
//   3. itself, told the count: from here on an operator of known extents.
// An upper-bound operator (nms) writes into as many rows as there can be and returns their number
// with them; its value is the prefix of that tensor, in the same memory.
//
// Operators that are compositions of others (tile, argwhere, …) are written out, so that the
// templates and fusion see what they know. The symbols stay those of the result's type, so nothing
// that mentions them changes; inference types what is new.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/ir/axes.h"
#include "compiler/ir/entry.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/dtype.h"
#include "vm/base/error.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::BlockBuilder;
using ir::Dim;
using ir::Expr;
using ir::Type;
using ir::VarRef;
using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

class Splitter {
 public:
  Splitter(const Binding& b, BlockBuilder& out)
      : e_(*b.value), type_(b.var->type), name_(b.var->name), out_(out) {}

  // What stands for the binding; nothing: it stays.
  std::optional<Atom> run() {
    // How each operator is split whose extents data decides, or that has an operand for them.
    using Rule = std::optional<Atom> (Splitter::*)();
    static const std::unordered_map<std::string_view, Rule> kRules = {
        {"nonzero", &Splitter::nonzero},
        {"compress", &Splitter::compress},
        {"unique", &Splitter::unique},
        {"repeat", &Splitter::repeat},
        {"range", &Splitter::range},
        {"tile", &Splitter::tile},
        {"argwhere", &Splitter::argwhere},
        {"masked_select", &Splitter::masked_select},
        {"nms", &Splitter::nms}};
    if (const auto rule = kRules.find(e_.op); rule != kRules.end()) return (this->*rule->second)();
    if (reduces_nothing()) return e_.args[0];
    return std::nullopt;
  }

 private:
  // A copy: the type of a constant lives no longer than the question.
  Dims operand() const { return ir::type_of(e_.args[0])->dims; }
  Dim extent(size_t axis) const { return type_->dims[axis]; }

  VarRef call(const std::string& op, std::vector<Atom> args, ir::Attrs attrs = {}) {
    return out_.call(op, std::move(args), std::move(attrs), name_, e_.location);
  }
  Atom typed(VarRef v) const {
    v->type = type_;
    return v;
  }

  // A reduction over no axis, of a scalar for example, is its operand.
  bool reduces_nothing() const {
    const ir::OpInfo* op = ir::find_op(e_.op);
    return op && op->fusion == ir::FusionKind::kReduction && e_.attrs.contains("axes") &&
           ir::attr<Ints>(e_.attrs, "axes").empty();
  }

  // Gives the symbol `count` the value of a one-element tensor.
  void read(const VarRef& counts, const Dim& count) {
    const auto symbol = count.as_symbol();
    NIMBLE_CHECK(symbol, "the extent {} of {} has no name", count.str(), e_.op);
    call("read_extents", {counts}, {{"symbols", std::vector<std::string>{*symbol}}});
  }

  std::optional<Atom> counted(const char* shape_function, const Atom& by, const Dim& count,
                              ir::Attrs attrs = {}) {
    if (e_.attrs.contains("count")) return std::nullopt;  // it is told already
    read(call(shape_function, {by}, std::move(attrs)), count);
    ir::Attrs all = e_.attrs;
    all["count"] = count;
    return typed(call(e_.op, e_.args, std::move(all)));
  }

  std::optional<Atom> nonzero() { return counted("count.nonzero", e_.args[0], extent(1)); }

  std::optional<Atom> compress() {
    const size_t axis = e_.attrs.contains("axis") ? ir::axis_of(e_) : 0;
    return counted("count.nonzero", e_.args[1], extent(axis));
  }

  std::optional<Atom> unique() {
    ir::Attrs attrs;
    if (e_.attrs.contains("axis")) attrs["axis"] = e_.attrs.at("axis");
    return counted("count.unique", e_.args[0], type_->elements[1]->dims[0], std::move(attrs));
  }

  // start + i * step; integers whose operands were not known are told in attributes already.
  std::optional<Atom> range() {
    if (e_.args.size() != 3 || e_.attrs.contains("count")) return std::nullopt;
    const Dim count = extent(0);
    read(call("count.range", e_.args), count);
    VarRef i =
        call("range", {},
             {{"count", count}, {"start", Dim(0)}, {"step", Dim(1)}, {"dtype", type_->dtype}});
    return typed(call("add", {call("mul", {i, e_.args[2]}), e_.args[0]}));
  }

  // An axis of extent d repeated r times is (r, d), merged; each slice r times in a row, (d, r).
  // What would need more dims than a tensor may have is repeated along one axis after another.
  std::optional<Atom> spread(const Dims& outer, const Dims& inner) {
    Dims dims = operand();
    if (spread_rank(outer, inner) <= static_cast<size_t>(kMaxRank))
      return typed(spread(e_.args[0], dims, outer, inner, type_->dims));
    std::optional<VarRef> x;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (outer[i].is_constant(1) && inner[i].is_constant(1)) continue;
      // The axes before and behind as one each.
      Dims three(3, 1), factor_outer(3, 1), factor_inner(3, 1);
      for (size_t k = 0; k < dims.size(); ++k) {
        Dim& d = three[k < i ? 0 : k == i ? 1 : 2];
        d = d * dims[k];
      }
      factor_outer[1] = outer[i];
      factor_inner[1] = inner[i];
      dims[i] = outer[i] * dims[i] * inner[i];
      x = spread(x ? Atom(*x) : e_.args[0], three, factor_outer, factor_inner, dims);
    }
    return x ? typed(*x) : e_.args[0];
  }
  static size_t spread_rank(const Dims& outer, const Dims& inner) {
    size_t rank = outer.size();
    for (size_t i = 0; i < outer.size(); ++i)
      rank += !outer[i].is_constant(1) + !inner[i].is_constant(1);
    return rank;
  }
  VarRef spread(const Atom& x, const Dims& dims, const Dims& outer, const Dims& inner,
                const Dims& result) {
    Dims apart, filled;
    const auto add = [&](const Dim& extent, const Dim& factor) {
      apart.push_back(extent);
      filled.push_back(factor);
    };
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!outer[i].is_constant(1)) add(1, outer[i]);
      add(dims[i], dims[i]);
      if (!inner[i].is_constant(1)) add(1, inner[i]);
    }
    VarRef y = call("reshape", {x}, {{"shape", apart}, {"allow_zero", true}});
    y = call("expand", {y}, {{"shape", filled}});
    return call("reshape", {y}, {{"shape", result}, {"allow_zero", true}});
  }
  std::optional<Atom> tile() {
    if (e_.args.size() != 1) return std::nullopt;
    return spread(ir::attr<Dims>(e_.attrs, "repeats"), Dims(operand().size(), 1));
  }
  std::optional<Atom> repeat() {
    if (e_.args.size() == 2) return counted("count.repeat", e_.args[1], extent(ir::axis_of(e_)));
    Dims inner(operand().size(), 1);
    inner[ir::axis_of(e_)] = ir::attr<Dim>(e_.attrs, "repeats");
    return spread(Dims(operand().size(), 1), inner);
  }

  std::optional<Atom> argwhere() {
    const Dim count = extent(0);
    read(call("count.nonzero", e_.args), count);
    VarRef columns = call("nonzero", e_.args, {{"count", count}});
    return typed(call("transpose", {columns}, {{"axes", Ints{1, 0}}}));
  }

  std::optional<Atom> masked_select() {
    const Dim count = extent(0);
    read(call("count.nonzero", {e_.args[1]}), count);
    std::vector<Atom> flat;
    for (const Atom& a : e_.args)
      flat.push_back(
          call("reshape", {a},
               {{"shape", Dims{ir::element_count(ir::type_of(a))}}, {"allow_zero", true}}));
    return typed(call("compress", flat, {{"axis", int64_t{0}}, {"count", count}}));
  }

  std::optional<Atom> nms() {
    if (e_.args.size() != 4) return std::nullopt;
    VarRef both = call("nms.bounded", e_.args, e_.attrs);
    VarRef rows = out_.bind(ir::make_get_field(both, 0, e_.location), name_);
    VarRef count = out_.bind(ir::make_get_field(both, 1, e_.location), name_);
    read(count, extent(0));
    return typed(call("prefix", {rows}, {{"count", extent(0)}}));
  }

  const Expr& e_;
  const Type& type_;
  const std::string& name_;
  BlockBuilder& out_;
};

}  // namespace

namespace {

// What an entry declares of its symbols (range.n = [low, high, divisor]; equal = (a, b, …)) the
// compiler believes, so the run must check it, first of all.
ir::FunctionRef check_facts(const ir::FunctionRef& f) {
  static constexpr std::string_view kPrefix = "range.";
  BlockBuilder checks;
  const auto equal = ir::attr_or<std::vector<Dim>>(f->attrs, "equal", {});
  const auto any = std::find_if(f->parameters.begin(), f->parameters.end(), [](const VarRef& p) {
    return p->type->kind == ir::TypeKind::kTensor;
  });
  for (size_t i = 0; i + 1 < equal.size() && any != f->parameters.end(); i += 2)
    checks.call("assert_shape", {*any},
                {{"left", std::vector<Dim>{equal[i]}},
                 {"right", std::vector<Dim>{equal[i + 1]}},
                 {"what", fmt::format("{} = {} as the attribute equal declares", equal[i].str(),
                                      equal[i + 1].str())}},
                (*any)->name, f->location);
  for (const auto& [name, value] : f->attrs) {
    const auto* range = std::get_if<Ints>(&value);
    if (!name.starts_with(kPrefix) || !range || range->size() < 2) continue;
    const Dim n = Dim::symbol(name.substr(kPrefix.size()));
    const auto binds =
        std::find_if(f->parameters.begin(), f->parameters.end(), [&](const VarRef& p) {
          return std::find(p->type->dims.begin(), p->type->dims.end(), n) != p->type->dims.end();
        });
    if (binds == f->parameters.end()) continue;
    Dims left = {min(n, Dim((*range)[0])), max(n, Dim((*range)[1]))};
    Dims right = {Dim((*range)[0]), Dim((*range)[1])};
    if (range->size() > 2) {
      left.push_back(mod(n, Dim((*range)[2])));
      right.emplace_back(0);
    }
    checks.call(
        "assert_shape", {*binds},
        {{"left", left},
         {"right", right},
         {"what", fmt::format("{} lies within {} = [{}]", n.str(), name, fmt::join(*range, ", "))}},
        (*binds)->name, f->location);
  }
  if (checks.bindings().empty()) return f;
  for (const Binding& b : f->body->bindings) checks.append(b);
  auto copy = std::make_shared<ir::Function>(*f);
  copy->body = checks.finish(f->body->result, f->body->location);
  return copy;
}

}  // namespace

ir::Module expose_shapes(const ir::Module& m, PassContext&) {
  ir::Module out = rewrite_module(m, [](const Binding& b, BlockBuilder& o) {
    return b.value->kind == ir::ExprKind::kCall ? Splitter(b, o).run() : std::nullopt;
  });
  for (auto& [name, f] : out.functions)
    if (ir::is_entry(m, name)) f = check_facts(f);
  return out;
}

}  // namespace nimble::passes
