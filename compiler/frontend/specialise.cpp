#include "compiler/frontend/specialise.h"

#include <cctype>
#include <charconv>
#include <set>

#include "compiler/ir/substitute.h"
#include "compiler/ir/type_dims.h"

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
    if (equals == std::string::npos) fail(fmt::format("'{}' is not SYMBOL=EXTENT", item));
    const std::string name = item.substr(0, equals);
    int64_t value = 0;
    const char* last = item.data() + item.size();
    auto [stop, code] = std::from_chars(item.data() + equals + 1, last, value);
    if (!is_identifier(name)) fail(fmt::format("'{}' is not a name of a symbol", name));
    if (code != std::errc() || stop != last || value < 0)
      fail(fmt::format("the extent of {} is not a non-negative integer", name));
    if (!out.emplace(name, value).second) fail(fmt::format("{} is given twice", name));
  }
  return out;
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
      throw Error(Status::kInvalidArgument, source,
                  fmt::format("'{}' is not a name for a symbol", to), "use letters, digits and _");
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
                  fmt::format("{} = {} is not an extent", name, value), "give a value from 0 on");
    fixed[name] = ir::Dim(value);
  }
  // A fixed symbol may be a new name, but none that was given away.
  for (auto& [from, to] : renamed) to = to.substitute(fixed);
  for (const auto& [name, value] : fixed) renamed.try_emplace(name, value);
  return renamed;
}

ir::Module specialise(ir::Module module, const ImportOptions& options) {
  if (options.shapes.empty() && options.names.empty()) return module;
  ir::FunctionRef main = module.find("main");
  if (!main)
    throw Error(Status::kInvalidArgument, module.source, "there is no function @main",
                "name the entry function main");
  std::set<std::string> symbols;
  for (const ir::VarRef& p : main->parameters) ir::all_symbols_of(p->type, symbols);
  module.set("main",
             ir::substitute(*main, replacement_of(std::move(symbols), options, module.source)));
  return module;
}

}  // namespace nimble::frontend
