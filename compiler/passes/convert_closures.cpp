// Closure conversion: afterwards every function is a global one and closed.
//
// A literal `fn(%x) {…}` becomes a global function whose first parameters are the variables that
// the literal captures, and a kClosure expression that pairs it with their values. This is flat
// closure conversion (Appel, "Compiling with Continuations", chapter 10): a closure holds the
// captured values themselves, never a frame, so it keeps alive exactly what its code reads. A
// closure cannot capture itself (a binding is not visible in its own value), so references never
// form a cycle and counting them frees every closure.
//
// A call of a variable that a literal or a global function defined is a call of that function with
// the captured values as further arguments: captured variables are in scope wherever the closure
// is. A literal that is only called thus costs no closure (eliminate-dead drops it).
//
// Symbols. A function learns its extents from its parameters, and in a closure's type only what
// captured values bind is fixed: the rest is any extent, another at each call. A literal also sees
// the symbols of the function around it, so each of them that it mentions and no captured value
// binds comes with a witness: a value in scope that does. What its code computes with needs a
// tensor that has the symbol as a dim; one with fewest dims is taken, or the tensor whose elements
// the symbols are, read again inside. A name that only occurs in types (the elements of a list)
// needs no more than a value whose type mentions it. What the function around the literal has
// asserted of extents by then the literal may rely on: its global function declares it (the
// attribute `equal`).
//
// Entry functions take boxed scalars and are called from outside only: one that the module itself
// calls is split into the entry and an inner function.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/builder.h"
#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/ir/type_dims.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockBuilder;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::TypeKind;
using ir::Var;
using ir::VarRef;

using Symbols = std::set<std::string>;

// Symbols that stand alone as a dim; `readable`: in a tensor that the value has at hand.
void bare_symbols(const Type& t, bool readable, Symbols& out) {
  if (!t || (readable && t->kind != TypeKind::kTensor && t->kind != TypeKind::kTuple)) return;
  for (const Dim& d : t->dims)
    if (auto s = d.as_symbol()) out.insert(*s);
  for (const Type& e : t->elements) bare_symbols(e, readable, out);
}

void variables_in(const Type& t, Symbols& out) {
  if (!t) return;
  if (t->kind == TypeKind::kVariable) out.insert(t->name);
  for (const Type& e : t->elements) variables_in(e, out);
}

// What a block mentions: variables that it does not bind, symbols, of these what it computes with
// (dims of tensors that operators make, and attributes), and of these the ones in attributes.
struct Mentions {
  std::vector<VarRef> free;
  Symbols symbols, computed, attributes;
};

class Mentioned {
 public:
  Mentions of(const ir::Function& literal) {
    for (const VarRef& p : literal.parameters) bind(p);
    ir::all_symbols_of(literal.result_type, out_.symbols);
    walk(*literal.body);
    out_.computed.insert(out_.attributes.begin(), out_.attributes.end());
    return std::move(out_);
  }

 private:
  void bind(const VarRef& v) {
    bound_.insert(v.get());
    ir::all_symbols_of(v->type, out_.symbols);
  }
  void use(const Atom& a) {
    if (a.is_var() && !bound_.count(a.var.get()) && seen_.insert(a.var.get()).second)
      out_.free.push_back(a.var);
  }
  void walk(const Block& b) {
    for (const Binding& binding : b.bindings) {
      const Expr& e = *binding.value;
      for (const Atom& a : e.args) use(a);
      if (e.callee) use(*e.callee);
      for (const ir::MatchCase& c : e.cases)
        for (const VarRef& v : ir::variables_of(c.pattern)) bind(v);
      for (const ir::BlockRef& nested : ir::blocks_of(e)) walk(*nested);
      for (const auto& [name, value] : e.attrs) {
        if (const auto* d = std::get_if<Dim>(&value)) out_.attributes.merge(d->symbols());
        if (const auto* ds = std::get_if<std::vector<Dim>>(&value))
          for (const Dim& d : *ds) out_.attributes.merge(d.symbols());
      }
      if (e.kind == ExprKind::kCall && !e.callee)
        ir::all_symbols_of(binding.var->type, out_.computed);
      bind(binding.var);
    }
    use(b.result);
  }

  Mentions out_;
  std::unordered_set<const Var*> bound_, seen_;
};

class Conversion {
 public:
  Conversion(const ir::Module& m, PassContext& context) : context_(context), out_(m) {}

  ir::Module run() {
    split_entries();
    for (size_t i = 0; i < out_.functions.size(); ++i) {  // literals append functions
      const auto [name, f] = out_.functions[i];
      owner_ = name;
      variables_ = f->type_variables;
      ranges_.clear();
      for (const auto& [key, value] : f->attrs)
        if (key.starts_with("range.")) ranges_[key] = value;
      equal_ = ir::attr_or<std::vector<Dim>>(f->attrs, "equal", {});
      known_.clear();
      scope_ = f->parameters;
      ir::BlockRef body = block(*f->body);
      auto copy = std::make_shared<ir::Function>(*f);
      copy->body = std::move(body);
      out_.functions[i].second = std::move(copy);
    }
    return stale_ ? ir::infer_types(out_) : std::move(out_);
  }

 private:
  // A variable whose value is known to be a closure of this function over these variables.
  struct Known {
    std::string function;
    std::vector<Atom> captured;
  };

  std::string unused(const std::string& wanted) const {
    std::string name = wanted;
    for (int i = 1; out_.find(name); ++i) name = wanted + std::to_string(i);
    return name;
  }

  // What messages call a literal that is bound to %3 rather than to a name.
  static std::string own_name(const Var& v) {
    const bool number = std::all_of(v.name.begin(), v.name.end(),
                                    [](unsigned char c) { return c >= '0' && c <= '9'; });
    return number ? "closure" : v.name;
  }

  // ---- entries

  void split_entries() {
    std::set<std::string> called;
    for (const auto& [name, f] : out_.functions)
      visit_atoms(*f->body, [&](const Atom& a) {
        if (a.is_global() && ir::is_entry(out_, a.global)) called.insert(a.global);
      });
    for (const std::string& name : called) split_entry(name);
  }

  void split_entry(const std::string& name) {
    const std::string inner = unused(name + ".inner");
    const ir::FunctionRef f = out_.find(name);
    BlockBuilder body;
    std::vector<VarRef> parameters;
    std::vector<Atom> args;
    for (const VarRef& p : f->parameters) {
      parameters.push_back(ir::make_var(p->name, p->type, p->location));
      args.push_back(parameters.back());
    }
    VarRef result =
        body.bind(ir::make_call_function(Atom::of_global(inner), args, f->location), "result");
    result->type = f->result_type;
    auto entry = std::make_shared<ir::Function>(*f);
    entry->parameters = std::move(parameters);
    entry->body = body.finish(result);
    auto renamed = [&](Atom& a) {
      if (a.is_global() && a.global == name) a.global = inner;
    };
    std::function<ir::BlockRef(const ir::BlockRef&)> rename = [&](const ir::BlockRef& b) {
      auto copy = std::make_shared<Block>(*b);
      for (Binding& binding : copy->bindings) {
        auto e = std::make_shared<Expr>(*binding.value);
        for (Atom& a : e->args) renamed(a);
        if (e->callee) renamed(*e->callee);
        binding.value = map_blocks(e, rename);
      }
      renamed(copy->result);
      return copy;
    };
    for (auto& [n, g] : out_.functions) {
      auto copy = std::make_shared<ir::Function>(*g);
      copy->body = rename(copy->body);
      g = std::move(copy);
    }
    const ir::FunctionRef moved = out_.find(name);
    out_.set(name, entry);
    out_.set(inner, moved);
    context_.count("convert-closures.entries");
  }

  // ---- blocks

  ir::BlockRef block(const Block& b) {
    BlockBuilder out;
    const size_t outside = scope_.size(), asserted = equal_.size(), read = reads_.size();
    for (const Binding& binding : b.bindings) {
      convert(binding, out);
      scope_.push_back(binding.var);
    }
    const Atom result = as_value(b.result, out, {});
    scope_.resize(outside);
    equal_.resize(asserted);
    reads_.resize(read);
    return out.finish(result);
  }

  // A global function that is used as a value becomes a closure without captured values.
  Atom as_value(const Atom& a, BlockBuilder& out, const ir::Location& location) {
    if (!a.is_global()) return a;
    VarRef v = out.bind(ir::make_closure(a.global, {}, location), a.global);
    known_[v.get()] = {a.global, {}};
    context_.count("convert-closures.closures");
    return v;
  }

  void convert(const Binding& binding, BlockBuilder& out) {
    const Expr& e = *binding.value;
    if (e.kind == ExprKind::kFunction) return literal(binding, out);
    if (e.kind == ExprKind::kAtom && e.args[0].is_global()) {
      known_[binding.var.get()] = {e.args[0].global, {}};
      out.append({binding.var, ir::make_closure(e.args[0].global, {}, e.location)});
      context_.count("convert-closures.closures");
      return;
    }
    if (e.kind == ExprKind::kAtom && e.args[0].is_var())
      if (auto it = known_.find(e.args[0].var.get()); it != known_.end())
        known_[binding.var.get()] = Known(it->second);
    if (e.op == "assert_shape") {
      const auto& left = ir::attr<std::vector<Dim>>(e.attrs, "left");
      const auto& right = ir::attr<std::vector<Dim>>(e.attrs, "right");
      for (size_t i = 0; i < left.size(); ++i) equal_.insert(equal_.end(), {left[i], right[i]});
    }
    if (ir::traits_of(e).names_symbols) reads_.push_back(binding);
    auto copy = std::make_shared<Expr>(e);
    for (Atom& a : copy->args) a = as_value(a, out, e.location);
    if (e.kind == ExprKind::kCall && e.callee && e.callee->is_var())
      if (auto it = known_.find(e.callee->var.get()); it != known_.end()) {
        copy->callee = Atom::of_global(it->second.function);
        copy->args.insert(copy->args.begin(), it->second.captured.begin(),
                          it->second.captured.end());
        context_.count("convert-closures.direct_calls");
      }
    if (e.kind == ExprKind::kIf) {
      copy->then_block = block(*e.then_block);
      copy->else_block = block(*e.else_block);
    }
    for (ir::MatchCase& c : copy->cases) {
      const size_t outside = scope_.size();
      for (const VarRef& v : ir::variables_of(c.pattern)) scope_.push_back(v);
      c.body = block(*c.body);
      scope_.resize(outside);
    }
    out.append({binding.var, copy});
  }

  // ---- literals

  void literal(const Binding& binding, BlockBuilder& out) {
    ir::Function f = *binding.value->primitive;
    const size_t outside = scope_.size();
    scope_.insert(scope_.end(), f.parameters.begin(), f.parameters.end());
    f.body = block(*f.body);
    scope_.resize(outside);

    Mentions mentions = Mentioned().of(f);
    std::vector<VarRef> captured = std::move(mentions.free);
    add_witnesses(mentions, captured);
    const std::vector<Binding> reads = missing_reads(mentions, f, captured);
    const Known known{unused(owner_ + "." + own_name(*binding.var)),
                      {captured.begin(), captured.end()}};

    Rewriter inside([](const Binding&, BlockBuilder&) { return std::nullopt; });
    Symbols bound;
    for (const auto* list : {&captured, &f.parameters})
      for (const VarRef& v : *list) bare_symbols(v->type, false, bound);
    std::vector<VarRef> parameters;
    for (const VarRef& v : captured) {
      parameters.push_back(ir::make_var(v->name, bound_part(v->type, bound), v->location));
      inside.substitute(v, parameters.back());
    }
    parameters.insert(parameters.end(), f.parameters.begin(), f.parameters.end());
    auto read_first = std::make_shared<Block>(*f.body);
    read_first->bindings.insert(read_first->bindings.begin(), reads.begin(), reads.end());
    f.body = inside.rewrite(read_first);
    f.parameters = std::move(parameters);
    Symbols variables;
    for (const VarRef& p : f.parameters) variables_in(p->type, variables);
    variables_in(f.result_type, variables);
    for (const std::string& v : variables_)
      if (variables.count(v)) f.type_variables.push_back(v);
    f.attrs.insert(ranges_.begin(), ranges_.end());
    declare_equal(f);
    out_.set(known.function, std::make_shared<ir::Function>(std::move(f)));
    out.append(
        {binding.var, ir::make_closure(known.function, known.captured, binding.value->location)});
    known_[binding.var.get()] = known;
    context_.count("convert-closures.closures");
  }

  // Symbols in the literal's attributes that are elements of a tensor: what reads them anew. That
  // tensor is captured, too. (Types alone are inferred anew without.)
  std::vector<Binding> missing_reads(const Mentions& mentions, const ir::Function& literal,
                                     std::vector<VarRef>& captured) {
    Symbols bound;
    for (const VarRef& v : captured) bare_symbols(v->type, false, bound);
    for (const VarRef& v : literal.parameters) bare_symbols(v->type, false, bound);
    std::vector<Binding> out;
    for (const Binding& read : reads_) {
      auto symbols = ir::attr<std::vector<std::string>>(read.value->attrs, "symbols");
      bool missing = false;
      for (std::string& s : symbols) {
        if (bound.count(s))
          s = ir::fresh_symbol();
        else
          missing = missing || mentions.attributes.count(s);
      }
      if (!missing) continue;
      bound.insert(symbols.begin(), symbols.end());
      if (std::find(captured.begin(), captured.end(), read.var) == captured.end())
        captured.push_back(read.var);
      ir::Attrs attrs = read.value->attrs;
      attrs["symbols"] = symbols;
      VarRef again = ir::make_var(read.var->name, read.var->type, read.var->location);
      out.push_back({again, ir::make_call("read_extents", {read.var}, std::move(attrs),
                                          read.value->location)});
      stale_ = true;
    }
    return out;
  }

  // A type without the extents that nothing of the function binds, such as those that were computed
  // from the elements of a tensor: they are any extents there.
  Type bound_part(const Type& t, const Symbols& bound) {
    return ir::map_dims(t, [&](const Dim& d) {
      const Symbols used = d.symbols();
      if (std::includes(bound.begin(), bound.end(), used.begin(), used.end())) return d;
      stale_ = true;
      return Dim::any();
    });
  }

  // What is asserted here of symbols that the function has from its parameters, by way of others,
  // too: of n = m and m = 1 a function without m keeps n = 1.
  void declare_equal(ir::Function& f) const {
    Symbols mine;
    for (const VarRef& p : f.parameters) ir::all_symbols_of(p->type, mine);
    std::vector<Dim> pairs = equal_;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto symbol = pairs[i].as_symbol();
      const Dim other = pairs[i ^ 1];
      if (!symbol || mine.count(*symbol) || other.symbols().count(*symbol)) continue;
      for (Dim& d : pairs) d = d.substitute({{*symbol, other}});
    }
    std::vector<Dim> declared;
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      Symbols used = pairs[i].symbols();
      used.merge(pairs[i + 1].symbols());
      if (pairs[i] != pairs[i + 1] &&
          std::includes(mine.begin(), mine.end(), used.begin(), used.end()))
        declared.insert(declared.end(), {pairs[i], pairs[i + 1]});
    }
    if (!declared.empty()) f.attrs["equal"] = std::move(declared);
  }

  void add_witnesses(const Mentions& mentions, std::vector<VarRef>& captured) const {
    Symbols readable, bare, outer;
    auto learn = [&](const VarRef& v) {
      bare_symbols(v->type, true, readable);
      bare_symbols(v->type, false, bare);
    };
    for (const VarRef& v : captured) learn(v);
    for (const VarRef& v : scope_) ir::all_symbols_of(v->type, outer);
    auto witness = [&](const std::string& symbol, bool must_read) {
      const VarRef* best = nullptr;
      for (const VarRef& v : scope_) {
        Symbols here;
        bare_symbols(v->type, must_read, here);
        if (here.count(symbol) && (!best || v->type->dims.size() < (*best)->type->dims.size()))
          best = &v;
      }
      if (!best) return;
      captured.push_back(*best);
      learn(*best);
    };
    for (const std::string& s : mentions.computed)
      if (outer.count(s) && !readable.count(s)) witness(s, true);
    // A tensor where there is one, else any value; types of what is captured may mention more.
    auto name = [&](const Symbols& symbols) {
      for (const std::string& s : symbols) {
        if (outer.count(s) && !bare.count(s)) witness(s, true);
        if (outer.count(s) && !bare.count(s)) witness(s, false);
      }
    };
    name(mentions.symbols);
    for (size_t i = 0; i < captured.size(); ++i) {
      Symbols needed;
      ir::all_symbols_of(captured[i]->type, needed);
      name(needed);
    }
  }

  PassContext& context_;
  ir::Module out_;
  std::string owner_;                   // the function being converted
  std::vector<std::string> variables_;  // its type variables
  ir::Attrs ranges_;                    // what is known of its symbols
  std::vector<Dim> equal_;              // pairs that are asserted here
  std::vector<VarRef> scope_;           // what is visible here, outermost first
  std::vector<Binding> reads_;          // what names elements of tensors as symbols here
  std::unordered_map<const Var*, Known> known_;
  bool stale_ = false;  // types have to be inferred anew
};

}  // namespace

ir::Module convert_closures(const ir::Module& m, PassContext& context) {
  return Conversion(m, context).run();
}

}  // namespace nimble::passes
