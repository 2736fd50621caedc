#include "compiler/frontend/specialise.h"

#include <cctype>
#include <charconv>
#include <set>

namespace nimble::frontend {
namespace {

std::string listed(const std::set<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : ", ") + n;
  return out.empty() ? "it has none" : "its symbols are " + out;
}

bool is_identifier(const std::string& s) {
  if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0]))) return false;
  for (char c : s)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  return true;
}

// Rebuilds a function with its symbols replaced. Variables are new, so the old one stays whole.
class Substitution {
 public:
  explicit Substitution(const Replacement& r) : replacement_(r) {}

  ir::FunctionRef apply(const ir::Function& f) {
    auto out = std::make_shared<ir::Function>(f);
    for (ir::VarRef& p : out->parameters) p = renew(p);
    if (f.result_type) out->result_type = type(f.result_type);
    out->body = block(*f.body);
    return out;
  }

 private:
  ir::Dim dim(const ir::Dim& d) const { return d.is_any() ? d : d.substitute(replacement_); }

  ir::Type type(const ir::Type& t) const {
    if (!t) return t;
    auto out = std::make_shared<ir::TypeNode>(*t);
    for (ir::Dim& d : out->dims) d = dim(d);
    for (ir::Type& e : out->elements) e = type(e);
    return out;
  }

  ir::VarRef renew(const ir::VarRef& v) {
    return vars_[v.get()] = ir::make_var(v->name, type(v->type), v->location);
  }

  ir::Atom atom(ir::Atom a) const {
    if (!a.is_var()) return a;
    auto it = vars_.find(a.var.get());
    if (it != vars_.end()) a.var = it->second;
    return a;
  }

  ir::BlockRef block(const ir::Block& b) {
    auto out = std::make_shared<ir::Block>();
    for (const ir::Binding& binding : b.bindings) {
      ir::ExprRef value = expr(*binding.value);
      out->bindings.push_back({renew(binding.var), std::move(value)});
    }
    out->result = atom(b.result);
    return out;
  }

  ir::ExprRef expr(const ir::Expr& e) {
    auto out = std::make_shared<ir::Expr>(e);
    for (ir::Atom& a : out->args) a = atom(a);
    if (out->callee) out->callee = atom(*out->callee);
    for (auto& [name, value] : out->attrs) {
      if (auto* d = std::get_if<ir::Dim>(&value)) *d = dim(*d);
      if (auto* ds = std::get_if<std::vector<ir::Dim>>(&value))
        for (ir::Dim& d : *ds) d = dim(d);
    }
    if (e.primitive) out->primitive = apply(*e.primitive);
    if (e.then_block) out->then_block = block(*e.then_block);
    if (e.else_block) out->else_block = block(*e.else_block);
    for (ir::MatchCase& c : out->cases) {
      renew_pattern(c.pattern);
      c.body = block(*c.body);
    }
    return out;
  }

  void renew_pattern(ir::Pattern& p) {
    if (p.var) p.var = renew(p.var);
    for (ir::Pattern& field : p.fields) renew_pattern(field);
  }

  const Replacement& replacement_;
  std::map<const ir::Var*, ir::VarRef> vars_;
};

}  // namespace

std::map<std::string, int64_t> parse_shapes(const std::string& text) {
  std::map<std::string, int64_t> out;
  auto fail = [&](const std::string& problem) {
    throw Error(Status::kInvalidArgument, text, problem, "write symbols as in b=1,n=128");
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = item.find('=');
    if (equals == std::string::npos) fail(fmt::format("'{}' is no SYMBOL=EXTENT", item));
    const std::string name = item.substr(0, equals);
    int64_t value = 0;
    const char* last = item.data() + item.size();
    auto [stop, code] = std::from_chars(item.data() + equals + 1, last, value);
    if (!is_identifier(name)) fail(fmt::format("'{}' is no name of a symbol", name));
    if (code != std::errc() || stop != last || value < 0)
      fail(fmt::format("the extent of {} is no non-negative integer", name));
    if (!out.emplace(name, value).second) fail(fmt::format("{} is given twice", name));
  }
  return out;
}

ir::FunctionRef substituted(const ir::Function& f, const Replacement& values) {
  return Substitution(values).apply(f);
}

Replacement replacement_of(std::set<std::string> symbols, const ImportOptions& options,
                           const std::string& source) {
  auto require = [&](const std::string& name) {
    if (!symbols.contains(name))
      throw Error(Status::kInvalidArgument, source, fmt::format("the model has no symbol {}", name),
                  listed(symbols));
  };
  Replacement renamed;
  std::set<std::string> taken;
  for (const auto& [from, to] : options.names) {
    require(from);
    if (!is_identifier(to))
      throw Error(Status::kInvalidArgument, source, fmt::format("'{}' is no name for a symbol", to),
                  "use letters, digits and _");
    if (!taken.insert(to).second || (symbols.contains(to) && !options.names.contains(to)))
      throw Error(Status::kInvalidArgument, source,
                  fmt::format("two symbols would be called {}", to), "choose another name");
    renamed[from] = ir::Dim::symbol(to);
  }
  for (const auto& [from, to] : options.names) symbols.erase(from);
  symbols.merge(taken);

  Replacement fixed;
  for (const auto& [name, value] : options.shapes) {
    require(name);
    if (value < 0)
      throw Error(Status::kInvalidArgument, source,
                  fmt::format("{} = {} is no extent", name, value), "give a value from 0 on");
    fixed[name] = ir::Dim(value);
  }
  // A fixed symbol may be a new name, but none that was given away.
  for (auto& [from, to] : renamed) to = to.substitute(fixed);
  for (const auto& [name, value] : fixed) renamed.try_emplace(name, value);
  return renamed;
}

void collect_symbols(const ir::Type& t, std::set<std::string>& out) {
  if (!t) return;
  for (const ir::Dim& d : t->dims)
    if (!d.is_any()) out.merge(d.symbols());
  for (const ir::Type& e : t->elements) collect_symbols(e, out);
}

ir::Module specialise(ir::Module module, const ImportOptions& options) {
  if (options.shapes.empty() && options.names.empty()) return module;
  ir::FunctionRef main = module.find("main");
  if (!main)
    throw Error(Status::kInvalidArgument, module.source, "there is no function @main",
                "name the entry function main");
  std::set<std::string> symbols;
  for (const ir::VarRef& p : main->parameters) collect_symbols(p->type, symbols);
  module.set("main",
             substituted(*main, replacement_of(std::move(symbols), options, module.source)));
  return module;
}

}  // namespace nimble::frontend
