// Nested patterns become flat matches: a match on one data-type value whose cases bind fields to
// variables or ignore them, each constructor at most once, perhaps a default at the end.
//
// The method is Maranget's ("Compiling Pattern Matching to Good Decision Trees", ML 2008). The
// state is a list of rows, one a case in the order of the source; a row keeps the tests that are
// still open: (occurrence, constructor pattern), an occurrence being a place in the matched value
// ("field 1 of the Cons at the root"). A state whose first row has no open tests is decided.
// Otherwise an occurrence of the first row's tests is examined; for each constructor the rows
// that want another are dropped and the fields of the pattern become tests; rows that do not care
// go everywhere, and they alone into the default. No value is ever examined twice on a path.
//
// Such a tree may be exponential in the number of cases, as rows that do not care are copied. Two
// things keep it small. The occurrence is chosen by Maranget's heuristics: the one that most of
// the leading rows test, then the one with the fewest branches. And equal states are one node, so
// the tree is a graph: a node that several paths reach becomes a local function, whose parameters
// are the occurrences that it reads, and convert-closures makes a direct call of each call of it.
// The bodies of the cases are such nodes too: none is ever written twice.
//
// Tuples need no test: their fields are read where somebody needs them.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/ir/builder.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::BlockBuilder;
using ir::Expr;
using ir::ExprKind;
using ir::Pattern;
using ir::Type;
using ir::VarRef;

bool is_simple(const Pattern& p) {
  return p.kind == Pattern::Kind::kWildcard || p.kind == Pattern::Kind::kVar;
}

bool is_flat(const Expr& match) {
  std::set<std::string> seen;
  for (size_t i = 0; i < match.cases.size(); ++i) {
    const Pattern& p = match.cases[i].pattern;
    if (p.kind == Pattern::Kind::kWildcard && i > 0 && i + 1 == match.cases.size()) continue;
    if (p.kind != Pattern::Kind::kConstructor || !seen.insert(p.constructor).second ||
        !std::all_of(p.fields.begin(), p.fields.end(), is_simple))
      return false;
  }
  return true;
}

// A place in the matched value: the root, or a field of a constructor or tuple at another place.
struct Occurrence {
  int parent = -1;
  std::string constructor;  // empty: a tuple's field
  size_t field = 0;
  Type type;
  std::string hint;  // what a pattern calls it
};

struct Test {
  int occurrence;
  const Pattern* pattern;  // a constructor's
  friend bool operator==(const Test&, const Test&) = default;
  friend auto operator<=>(const Test&, const Test&) = default;
};
struct Row {
  size_t action;
  std::vector<Test> tests;
  friend auto operator<=>(const Row&, const Row&) = default;
  friend bool operator==(const Row&, const Row&) = default;
};

struct Node {
  bool leaf = false;
  size_t action = 0;   // of a leaf
  int occurrence = 0;  // that is examined
  std::vector<std::pair<const ir::Constructor*, Node*>> cases;
  Node* otherwise = nullptr;
  int references = 0;
  std::set<int> reads;  // occurrences that must be at hand, tuples unread
  VarRef function;      // of a node with several references, once it is made
};

// What variable holds an occurrence on the way to a block.
using Places = std::map<int, Atom>;

class MatchCompiler {
 public:
  MatchCompiler(const ir::Module& m, const Expr& match, PassContext& context)
      : module_(m), match_(match), context_(context) {
    occurrences_.push_back({-1, {}, 0, ir::type_of(match.args[0]), "value"});
    NIMBLE_CHECK(occurrences_[0].type, "flatten-matches needs types");
    std::vector<Row> rows;
    for (size_t i = 0; i < match.cases.size(); ++i) {
      rows.push_back({i, {}});
      bound_.emplace_back();
      add_pattern(rows.back(), 0, match.cases[i].pattern);
      const UseCounts uses = count_uses(*match.cases[i].body);
      std::erase_if(bound_.back(), [&](const auto& b) { return !uses.count(b.first.get()); });
    }
    root_ = node(std::move(rows));
    ++root_->references;
    collect_reads(root_);
  }

  // Appends what computes the match and binds its value to `v`; returns the value.
  Atom emit(const VarRef& v, BlockBuilder& out) {
    make_functions(root_, out);
    return emit_node(*root_, {{0, match_.args[0]}}, v, out);
  }

 private:
  // ---- the graph

  int intern(int parent, const std::string& constructor, size_t field) {
    auto [it, fresh] =
        index_.try_emplace({parent, constructor, field}, static_cast<int>(occurrences_.size()));
    if (!fresh) return it->second;
    const Type& whole = occurrences_[static_cast<size_t>(parent)].type;
    Type type;
    if (constructor.empty()) {
      type = whole->elements[field];
    } else {
      auto [data, tag] = module_.find_constructor(constructor);
      std::map<std::string, Type> arguments;
      for (size_t i = 0; i < data->variables.size(); ++i)
        arguments[data->variables[i]] = whole->elements[i];
      type = ir::substitute_types(data->constructors[static_cast<size_t>(tag)].fields[field],
                                  arguments);
    }
    occurrences_.push_back({parent, constructor, field, std::move(type), "field"});
    return it->second;
  }

  void add_pattern(Row& row, int occurrence, const Pattern& p) {
    switch (p.kind) {
      case Pattern::Kind::kWildcard:
        return;
      case Pattern::Kind::kVar:
        occurrences_[static_cast<size_t>(occurrence)].hint = p.var->name;
        bound_[row.action].emplace_back(p.var, occurrence);
        return;
      case Pattern::Kind::kTuple:
        for (size_t i = 0; i < p.fields.size(); ++i)
          add_pattern(row, intern(occurrence, "", i), p.fields[i]);
        return;
      case Pattern::Kind::kConstructor:
        row.tests.push_back({occurrence, &p});
        // The variables inside are known to the row from the start, whichever way is taken.
        Row inside{row.action, {}};
        for (size_t i = 0; i < p.fields.size(); ++i)
          add_pattern(inside, intern(occurrence, p.constructor, i), p.fields[i]);
        fields_[{row.action, &p}] = std::move(inside.tests);
        return;
    }
  }

  // How many rows from the first on test the occurrence, and how many branches it would have.
  static std::pair<size_t, size_t> merit(const std::vector<Row>& rows, int occurrence) {
    size_t leading = 0;
    bool unbroken = true;
    std::set<std::string> constructors;
    for (const Row& r : rows) {
      bool tested = false;
      for (const Test& t : r.tests)
        if (t.occurrence == occurrence) {
          tested = true;
          constructors.insert(t.pattern->constructor);
        }
      unbroken &= tested;
      leading += unbroken;
    }
    return {leading, constructors.size()};
  }

  static int choose(const std::vector<Row>& rows) {
    int best = rows[0].tests[0].occurrence;
    auto [leading, branches] = merit(rows, best);
    for (const Test& t : rows[0].tests) {
      auto [l, b] = merit(rows, t.occurrence);
      if (l < leading || (l == leading && b >= branches)) continue;
      best = t.occurrence;
      leading = l;
      branches = b;
    }
    return best;
  }

  // The rows that remain once the occurrence is known to be of the constructor (null: of none that
  // a row tests).
  std::vector<Row> specialise(const std::vector<Row>& rows, int occurrence,
                              const std::string* constructor) const {
    std::vector<Row> out;
    for (const Row& r : rows) {
      Row now{r.action, {}};
      bool fits = true;
      for (const Test& t : r.tests) {
        if (t.occurrence != occurrence) {
          now.tests.push_back(t);
        } else if (constructor && t.pattern->constructor == *constructor) {
          const std::vector<Test>& inside = fields_.at({r.action, t.pattern});
          now.tests.insert(now.tests.end(), inside.begin(), inside.end());
        } else {
          fits = false;
        }
      }
      if (!fits) continue;
      const bool decided = now.tests.empty();
      out.push_back(std::move(now));
      if (decided) break;  // no later row can be reached
    }
    return out;
  }

  Node* node(std::vector<Row> rows) {
    if (rows.empty())
      throw Error(Status::kInvalidArgument, match_.location.str(),
                  "the cases do not cover every value", "add a case, or a default _ => …");
    if (rows[0].tests.empty()) rows.resize(1);
    auto [it, fresh] = nodes_.try_emplace(rows);
    if (!fresh) return it->second.get();
    it->second = std::make_unique<Node>();
    Node* n = it->second.get();
    if (rows[0].tests.empty()) {
      n->leaf = true;
      n->action = rows[0].action;
      return n;
    }
    context_.count("flatten-matches.tests");
    n->occurrence = choose(rows);
    std::set<std::string> tested;
    for (const Row& r : rows)
      for (const Test& t : r.tests)
        if (t.occurrence == n->occurrence) tested.insert(t.pattern->constructor);
    const ir::DataType* data = module_.find_constructor(*tested.begin()).first;
    for (const ir::Constructor& c : data->constructors) {
      if (!tested.count(c.name)) continue;
      Node* next = node(specialise(rows, n->occurrence, &c.name));
      ++next->references;
      n->cases.emplace_back(&c, next);
    }
    if (tested.size() < data->constructors.size()) {
      n->otherwise = node(specialise(rows, n->occurrence, nullptr));
      ++n->otherwise->references;
    }
    return n;
  }

  // The nearest place that is not a tuple's field: what a block must be given to read this one.
  int base(int occurrence) const {
    while (occurrence > 0 && occurrences_[static_cast<size_t>(occurrence)].constructor.empty())
      occurrence = occurrences_[static_cast<size_t>(occurrence)].parent;
    return occurrence;
  }

  const std::set<int>& collect_reads(Node* n) {
    if (!n->reads.empty()) return n->reads;
    if (n->leaf) {
      for (const auto& [v, o] : bound_[n->action]) n->reads.insert(base(o));
      return n->reads;
    }
    n->reads.insert(base(n->occurrence));
    auto below = [&](Node* next, const ir::Constructor* c) {
      for (int o : collect_reads(next)) {
        const Occurrence& place = occurrences_[static_cast<size_t>(o)];
        if (!c || place.parent != n->occurrence || place.constructor != c->name) n->reads.insert(o);
      }
    };
    for (auto& [c, next] : n->cases) below(next, c);
    if (n->otherwise) below(n->otherwise, nullptr);
    return n->reads;
  }

  // ---- code

  bool is_function(const Node& n) const {
    return n.references > 1 && !(n.leaf && match_.cases[n.action].body->bindings.empty());
  }

  // Local functions for the nodes that several paths reach, callees first.
  void make_functions(Node* n, BlockBuilder& out) {
    if (!made_.insert(n).second) return;
    for (auto& [c, next] : n->cases) make_functions(next, out);
    if (n->otherwise) make_functions(n->otherwise, out);
    if (!is_function(*n)) return;
    context_.count("flatten-matches.shared");
    std::vector<VarRef> parameters;
    BlockBuilder body;
    Atom result;
    if (n->leaf) {
      for (const auto& [v, o] : bound_[n->action]) parameters.push_back(v);
      result = append_body(*n, body);
    } else {
      Places places;
      for (int o : n->reads) {
        const Occurrence& place = occurrences_[static_cast<size_t>(o)];
        parameters.push_back(ir::make_var(place.hint, place.type, match_.location));
        places[o] = parameters.back();
      }
      result =
          emit_test(*n, std::move(places), ir::make_var("matched", nullptr, match_.location), body);
    }
    n->function = out.bind(ir::make_function(ir::make_function_of(parameters, body.finish(result),
                                                                  nullptr, {}, match_.location),
                                             match_.location),
                           "case");
  }

  Atom append_body(const Node& leaf, BlockBuilder& out) const {
    const ir::Block& body = *match_.cases[leaf.action].body;
    for (const Binding& b : body.bindings) out.append(b);
    return body.result;
  }

  Atom place(int occurrence, Places& places, BlockBuilder& out) const {
    if (auto it = places.find(occurrence); it != places.end()) return it->second;
    const Occurrence& o = occurrences_[static_cast<size_t>(occurrence)];
    NIMBLE_CHECK(o.constructor.empty(), "an occurrence is read before it is matched");
    const Atom whole = place(o.parent, places, out);
    return places[occurrence] = out.bind(
               ir::make_get_field(whole, static_cast<int64_t>(o.field), match_.location), o.hint);
  }

  // The value of a node, bound to `v` if it takes a binding.
  Atom emit_node(const Node& n, Places places, const VarRef& v, BlockBuilder& out) const {
    if (n.function) {
      std::vector<Atom> args;
      if (n.leaf)
        for (const auto& [parameter, o] : bound_[n.action]) args.push_back(place(o, places, out));
      else
        for (int o : n.reads) args.push_back(place(o, places, out));
      out.append({v, ir::make_call_function(Atom(n.function), std::move(args), match_.location)});
      return v;
    }
    if (!n.leaf) return emit_test(n, std::move(places), v, out);
    if (n.references > 1) {  // a result alone, which several paths give
      const Atom& result = match_.cases[n.action].body->result;
      for (const auto& [variable, o] : bound_[n.action])
        if (result.is_var() && result.var == variable) return place(o, places, out);
      return result;
    }
    for (const auto& [variable, o] : bound_[n.action])
      out.append({variable, ir::make_atom(place(o, places, out), match_.location)});
    return append_body(n, out);
  }

  Atom emit_test(const Node& n, Places places, const VarRef& v, BlockBuilder& out) const {
    const Atom value = place(n.occurrence, places, out);
    std::vector<ir::MatchCase> cases;
    auto add = [&](Pattern p, const Node& next, Places inside) {
      BlockBuilder body;
      const Atom result = emit_node(next, std::move(inside),
                                    ir::make_var("matched", nullptr, match_.location), body);
      cases.push_back({std::move(p), body.finish(result)});
    };
    for (const auto& [constructor, next] : n.cases) {
      Pattern p;
      p.kind = Pattern::Kind::kConstructor;
      p.constructor = constructor->name;
      p.location = match_.location;
      Places inside = places;
      for (size_t i = 0; i < constructor->fields.size(); ++i) {
        Pattern& field = p.fields.emplace_back();
        field.location = match_.location;
        auto known = index_.find({n.occurrence, constructor->name, i});
        if (known == index_.end() || !next->reads.count(known->second)) continue;
        field.kind = Pattern::Kind::kVar;
        field.var = ir::make_var(occurrences_[static_cast<size_t>(known->second)].hint, nullptr,
                                 match_.location);
        inside[known->second] = field.var;
      }
      add(std::move(p), *next, std::move(inside));
    }
    if (n.otherwise) {
      Pattern wildcard;
      wildcard.location = match_.location;
      add(std::move(wildcard), *n.otherwise, places);
    }
    out.append({v, ir::make_match(value, std::move(cases), match_.location)});
    return v;
  }

  const ir::Module& module_;
  const Expr& match_;
  PassContext& context_;
  std::vector<Occurrence> occurrences_;
  std::map<std::tuple<int, std::string, size_t>, int> index_;
  std::vector<std::vector<std::pair<VarRef, int>>> bound_;  // by case: variables and their places
  std::map<std::pair<size_t, const Pattern*>, std::vector<Test>> fields_;
  std::map<std::vector<Row>, std::unique_ptr<Node>> nodes_;
  std::set<const Node*> made_;
  Node* root_ = nullptr;
};

}  // namespace

ir::Module flatten_matches(const ir::Module& m, PassContext& context) {
  return rewrite_module(m, [&](const Binding& b, BlockBuilder& out) -> std::optional<Atom> {
    if (b.value->kind != ExprKind::kMatch || is_flat(*b.value)) return std::nullopt;
    context.count("flatten-matches.matches");
    return MatchCompiler(m, *b.value, context).emit(b.var, out);
  });
}

}  // namespace nimble::passes
