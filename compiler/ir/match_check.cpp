// Exhaustiveness and redundancy of pattern matching, by usefulness (L. Maranget, "Warnings for
// pattern matching", JFP 17(3), 2007).
//
// The cases form a matrix of patterns, one row per case, one column per value still to be looked
// at. A row of patterns q is *useful* against the rows P above it if some list of values fits q
// and none of P. A case is unreachable if it is not useful against the cases before it; a match
// is exhaustive if a row of wildcards is not useful against all of them, and otherwise the values
// found are the witness that the message shows.
//
// The search looks at the first column. If q begins with a constructor c, only rows that begin
// with c or a wildcard matter; they are *specialised*: the fields of c take the place of the
// column. If q begins with a wildcard and the constructors that occur in the column are all of
// the data type, one of them must lead to a solution. If some are missing, a value of a missing
// one fits no row but those that begin with a wildcard: the search goes on with the *default*
// matrix, the rest of those rows. A tuple is a data type of one constructor.
//
// The recursion is as deep as patterns nest and exponential only in columns of which every
// constructor occurs; the parser bounds nesting, and a budget bounds the rest: beyond it the match
// is refused as too complex.
#include "compiler/ir/match_check.h"

#include <algorithm>

namespace nimble::ir {
namespace {

using Row = std::vector<const Pattern*>;

const Pattern kWildcard;

bool is_wild(const Pattern& p) {
  return p.kind == Pattern::Kind::kWildcard || p.kind == Pattern::Kind::kVar;
}

class Usefulness {
 public:
  explicit Usefulness(const Module& m) : module_(m) {}

  // A list of values, one per type, that fits `q` and no row; nothing if there is none.
  std::optional<std::vector<std::string>> witness(const std::vector<Row>& rows, const Row& q,
                                                  const std::vector<Type>& types) {
    if (q.empty()) {
      if (rows.empty()) return std::vector<std::string>();
      return std::nullopt;
    }
    budget_ -= static_cast<int64_t>(1 + rows.size() * q.size());
    if (budget_ < 0) return std::nullopt;
    const Pattern& first = *q[0];
    if (!is_wild(first)) return with_constructor(rows, q, types, first.constructor);
    std::vector<std::string> missing;
    const std::vector<std::string> all = constructors_of(types[0]);
    for (const std::string& c : all) {
      const bool occurs = std::any_of(rows.begin(), rows.end(), [&](const Row& r) {
        return !is_wild(*r[0]) && r[0]->constructor == c;
      });
      if (!occurs) missing.push_back(c);
    }
    if (!all.empty() && missing.empty()) {
      for (const std::string& c : all) {
        if (auto found = with_constructor(rows, q, types, c)) return found;
      }
      return std::nullopt;
    }
    std::vector<Row> rest;
    for (const Row& r : rows) {
      if (is_wild(*r[0])) rest.emplace_back(r.begin() + 1, r.end());
    }
    auto found = witness(rest, Row(q.begin() + 1, q.end()), {types.begin() + 1, types.end()});
    if (!found) return std::nullopt;
    // Where a constructor is missing it is the clearest witness; with none named, anything is.
    const bool any = missing.size() == all.size() || missing.empty();
    found->insert(found->begin(), any ? "_" : shown(types[0], missing[0]));
    return found;
  }

  bool spent() const { return budget_ < 0; }

 private:
  // The constructors of a type: of a tuple the one without a name, of other types none.
  std::vector<std::string> constructors_of(const Type& t) const {
    if (t && t->kind == TypeKind::kTuple) return {""};
    const DataType* d = t && t->kind == TypeKind::kData ? module_.find_data(t->name) : nullptr;
    std::vector<std::string> out;
    if (d) {
      for (const Constructor& c : d->constructors) out.push_back(c.name);
    }
    return out;
  }

  std::vector<Type> fields_of(const Type& t, const std::string& constructor) const {
    if (t && t->kind == TypeKind::kTuple) return t->elements;
    const auto [d, tag] = module_.find_constructor(constructor);
    if (!d || !t || t->elements.size() != d->variables.size()) return {};
    std::map<std::string, Type> arguments;
    for (size_t i = 0; i < d->variables.size(); ++i) arguments[d->variables[i]] = t->elements[i];
    std::vector<Type> out;
    for (const Type& f : d->constructors[static_cast<size_t>(tag)].fields) {
      out.push_back(substitute_types(f, arguments));
    }
    return out;
  }

  static std::string applied(const Type& t, const std::string& constructor,
                             const std::vector<std::string>& fields) {
    std::string s;
    for (const std::string& f : fields) s += (s.empty() ? "" : ", ") + f;
    if (t && t->kind == TypeKind::kTuple) return "(" + s + ")";
    return constructor + (fields.empty() ? "" : "(" + s + ")");
  }

  std::string shown(const Type& t, const std::string& constructor) const {
    return applied(t, constructor, std::vector<std::string>(fields_of(t, constructor).size(), "_"));
  }

  static std::optional<Row> specialise(const Row& row, const std::string& constructor,
                                       size_t fields) {
    Row out;
    if (is_wild(*row[0])) {
      out.assign(fields, &kWildcard);
    } else {
      if (row[0]->constructor != constructor) return std::nullopt;
      for (const Pattern& f : row[0]->fields) out.push_back(&f);
      out.resize(fields, &kWildcard);
    }
    out.insert(out.end(), row.begin() + 1, row.end());
    return out;
  }

  std::optional<std::vector<std::string>> with_constructor(const std::vector<Row>& rows,
                                                           const Row& q,
                                                           const std::vector<Type>& types,
                                                           const std::string& constructor) {
    std::vector<Type> inner = fields_of(types[0], constructor);
    const size_t fields = inner.size();
    inner.insert(inner.end(), types.begin() + 1, types.end());
    std::vector<Row> special;
    for (const Row& r : rows) {
      if (auto s = specialise(r, constructor, fields)) special.push_back(std::move(*s));
    }
    auto found = witness(special, *specialise(q, constructor, fields), inner);
    if (!found) return std::nullopt;
    const auto end = found->begin() + static_cast<int64_t>(fields);
    std::string value = applied(types[0], constructor, {found->begin(), end});
    found->erase(found->begin(), end);
    found->insert(found->begin(), std::move(value));
    return found;
  }

  const Module& module_;
  int64_t budget_ = 20'000'000;  // patterns that the matrices may hold, all together
};

}  // namespace

MatchFault check_match(const Module& m, const Type& t, const std::vector<MatchCase>& cases) {
  MatchFault fault;
  std::vector<Row> rows;
  Usefulness search(m);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Row q = {&cases[i].pattern};
    if (!search.witness(rows, q, {t})) fault.unreachable.push_back(i);
    rows.push_back(q);
  }
  if (auto found = search.witness(rows, {&kWildcard}, {t})) fault.uncovered = (*found)[0];
  fault.too_complex = search.spent();
  return fault;
}

}  // namespace nimble::ir
