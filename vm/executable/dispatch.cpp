#include "vm/executable/dispatch.h"

#include "vm/base/error.h"
#include "vm/executable/verifier_rules.h"

namespace nimble::exec {
namespace {

constexpr int kMaxPrintedDepth = 100;

int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

std::optional<Finding> feature_fault(size_t node, const DispatchFeature& f, uint32_t symbols) {
  using Kind = DispatchFeature::Kind;
  if (f.kind > Kind::kThreads)
    return finding<Fault::kDispatchUnknownFeature>(node, static_cast<int>(f.kind));
  if (f.kind != Kind::kThreads && f.a >= symbols)
    return finding<Fault::kDispatchNoSuchSymbol>(node, f.a, symbols);
  if (f.kind == Kind::kProduct && f.b >= symbols)
    return finding<Fault::kDispatchNoSuchFactor>(node, f.b, symbols);
  if ((f.kind == Kind::kCeilDiv || f.kind == Kind::kMod) && f.t < 1)
    return finding<Fault::kDispatchDivisor>(node, f.t);
  return std::nullopt;
}

std::string feature_text(const DispatchFeature& f, std::span<const std::string> names) {
  constexpr size_t kLongest = 1000;  // of a name that many nodes may refer to
  auto name = [&](uint32_t i) {
    return i < names.size() && names[i].size() <= kLongest ? names[i] : fmt::format("s{}", i);
  };
  switch (f.kind) {
    case DispatchFeature::Kind::kSymbol:
      return name(f.a);
    case DispatchFeature::Kind::kCeilDiv:
      return fmt::format("ceil({} / {})", name(f.a), f.t);
    case DispatchFeature::Kind::kMod:
      return fmt::format("{} mod {}", name(f.a), f.t);
    case DispatchFeature::Kind::kProduct:
      return fmt::format("{} * {}", name(f.a), name(f.b));
    case DispatchFeature::Kind::kThreads:
      return "threads";
  }
  return "?";
}

}  // namespace

int64_t value_of(const DispatchFeature& f, std::span<const int64_t> symbols, int32_t threads) {
  switch (f.kind) {
    case DispatchFeature::Kind::kSymbol:
      return symbols[f.a];
    case DispatchFeature::Kind::kCeilDiv:
      return ceil_div(symbols[f.a], f.t);
    case DispatchFeature::Kind::kMod: {
      const int64_t r = symbols[f.a] % f.t;
      return r < 0 ? r + f.t : r;
    }
    case DispatchFeature::Kind::kProduct: {
      int64_t r;
      if (__builtin_mul_overflow(symbols[f.a], symbols[f.b], &r))
        return (symbols[f.a] < 0) != (symbols[f.b] < 0) ? INT64_MIN : INT64_MAX;
      return r;
    }
    case DispatchFeature::Kind::kThreads:
      return threads;
  }
  NIMBLE_UNREACHABLE("feature {}", static_cast<int>(f.kind));
}

std::optional<Finding> DispatchTree::find_fault(uint32_t symbols, uint32_t implementations) const {
  if (nodes.empty()) return finding<Fault::kDispatchEmpty>();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const DispatchNode& n = nodes[i];
    if (n.test > DispatchNode::Test::kEqual)
      return finding<Fault::kDispatchUnknownTest>(i, static_cast<int>(n.test));
    if (n.test == DispatchNode::Test::kLeaf) {
      if (n.yes >= implementations)
        return finding<Fault::kDispatchNoSuchLeaf>(i, n.yes, implementations);
      continue;
    }
    for (uint32_t next : {n.yes, n.no})
      if (next <= i || next >= nodes.size())
        return finding<Fault::kDispatchNoSuchNode>(i, next, nodes.size());
    if (auto bad = feature_fault(i, n.feature, symbols)) return bad;
  }
  return std::nullopt;
}

std::string DispatchTree::verify(uint32_t symbols, uint32_t implementations) const {
  std::optional<Finding> bad = find_fault(symbols, implementations);
  return bad ? std::move(bad->message) : std::string();
}

uint32_t DispatchTree::choose(std::span<const int64_t> symbols, int32_t threads) const {
  uint32_t at = 0;
  while (true) {
    const DispatchNode& n = nodes[at];
    if (n.test == DispatchNode::Test::kLeaf) return n.yes;
    const int64_t value = value_of(n.feature, symbols, threads);
    const bool yes =
        n.test == DispatchNode::Test::kLessEqual ? value <= n.threshold : value == n.threshold;
    at = yes ? n.yes : n.no;
  }
}

DispatchTree DispatchTree::graft(std::span<const DispatchTree> trees,
                                 std::span<const uint32_t> base) const {
  NIMBLE_CHECK(trees.size() == base.size());
  // This tree's nodes keep their places; the root of trees[i] takes the place of each leaf i and
  // its other nodes are appended once, shared by all leaves i.
  DispatchTree out = *this;
  std::vector<uint32_t> shift(trees.size());  // node j > 0 of trees[i] becomes node shift[i] + j
  auto moved = [&](const DispatchNode& node, size_t i) {
    DispatchNode n = node;
    if (n.test == DispatchNode::Test::kLeaf) {
      n.yes += base[i];
    } else {
      n.yes += shift[i];
      n.no += shift[i];
    }
    return n;
  };
  for (size_t i = 0; i < trees.size(); ++i) {
    NIMBLE_CHECK(!trees[i].nodes.empty(), "tree {}", i);
    shift[i] = static_cast<uint32_t>(out.nodes.size()) - 1;
    for (size_t j = 1; j < trees[i].nodes.size(); ++j)
      out.nodes.push_back(moved(trees[i].nodes[j], i));
  }
  for (size_t k = 0; k < nodes.size(); ++k)
    if (nodes[k].test == DispatchNode::Test::kLeaf) {
      NIMBLE_CHECK(nodes[k].yes < trees.size(), "leaf {} of {}", nodes[k].yes, trees.size());
      out.nodes[k] = moved(trees[nodes[k].yes].nodes[0], nodes[k].yes);
    }
  return out;
}

// One line per node, indented; a subtree that several nodes share is printed once and then
// referred to, so that the text stays linear in the tree. Trees of real dispatch tables are some
// ten levels deep; what lies beyond kMaxPrintedDepth comes only from damage, and is cut.
std::string DispatchTree::str(std::span<const std::string> symbol_names) const {
  std::string text;
  std::vector<bool> seen(nodes.size());
  auto print = [&](auto&& self, uint32_t at, int depth) -> void {
    const std::string indent(2 * static_cast<size_t>(depth), ' ');
    if (at >= nodes.size()) {
      text += fmt::format("{}-> <missing node {}>\n", indent, at);
      return;
    }
    const DispatchNode& n = nodes[at];
    if (n.test == DispatchNode::Test::kLeaf) {
      text += fmt::format("{}-> {}\n", indent, n.yes);
      return;
    }
    if (depth > kMaxPrintedDepth) {
      text += indent + "…\n";
      return;
    }
    if (seen[at]) {
      text += fmt::format("{}as node {}\n", indent, at);
      return;
    }
    seen[at] = true;
    text += fmt::format("{}if {} {} {}\n", indent, feature_text(n.feature, symbol_names),
                        n.test == DispatchNode::Test::kLessEqual ? "<=" : "==", n.threshold);
    self(self, n.yes, depth + 1);
    text += indent + "else\n";
    self(self, n.no, depth + 1);
  };
  print(print, 0, 0);
  return text;
}

}  // namespace nimble::exec
