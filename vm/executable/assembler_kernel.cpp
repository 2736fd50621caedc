// Kernels in the assembler's text: contract, dispatch and implementations.
#include <algorithm>
#include <span>

#include "vm/executable/assembler_lexer.h"

namespace nimble::exec {
namespace {

class KernelParser {
 public:
  explicit KernelParser(AssemblerLexer* in) : in_(*in) {}

  Kernel kernel() {
    Kernel k;
    k.name = in_.string();
    in_.expect("{");
    while (!in_.accept("}")) {
      const auto s = std::ranges::find_if(
          statements(), [&](const Statement& one) { return in_.accept(one.word); });
      if (s == statements().end()) in_.fail("a statement of a kernel expected");
      s->read(*this, &k);
    }
    return k;
  }

  static bool is_statement(std::string_view word) {
    return std::ranges::find(statements(), word, &Statement::word) != statements().end();
  }

 private:
  struct Statement {
    std::string_view word;  // that it begins with
    void (*read)(KernelParser& p, Kernel* k);
  };

  static std::span<const Statement> statements() {
    static constexpr Statement kAll[] = {
        {"source", [](KernelParser& p, Kernel* k) { k->source = p.in_.string(); }},
        {"workload", [](KernelParser& p, Kernel* k) { k->workload = p.in_.string(); }},
        {"symbols", [](KernelParser& p, Kernel* k) { p.symbols(k); }},
        {"in", [](KernelParser& p, Kernel* k) { p.tensor(Access::kIn, k); }},
        {"out", [](KernelParser& p, Kernel* k) { p.tensor(Access::kOut, k); }},
        {"inout", [](KernelParser& p, Kernel* k) { p.tensor(Access::kInOut, k); }},
        {"scalar", [](KernelParser& p, Kernel* k) { p.scalar(k); }},
        {"data",
         [](KernelParser&, Kernel* k) {
           k->contract.arguments.emplace_back().kind = KernelArgument::Kind::kData;
         }},
        {"require", [](KernelParser& p,
                       Kernel* k) { k->contract.requirements.push_back(parse_program(&p.in_)); }},
        {"scratch",
         [](KernelParser& p, Kernel* k) { k->contract.scratch_bytes = parse_program(&p.in_); }},
        {"device", [](KernelParser& p, Kernel* k) { k->device = p.in_.device(); }},
        {"dispatch", [](KernelParser& p, Kernel* k) { p.dispatch(k); }},
        {"native",
         [](KernelParser& p, Kernel* k) { p.implementation(ImplementationKind::kNative, k); }},
        {"vendor",
         [](KernelParser& p, Kernel* k) { p.implementation(ImplementationKind::kVendor, k); }},
        {"host",
         [](KernelParser& p, Kernel* k) { p.implementation(ImplementationKind::kHost, k); }},
        {"portable",
         [](KernelParser& p, Kernel* k) { p.implementation(ImplementationKind::kPortable, k); }},
    };
    return kAll;
  }

  bool at_statement() const {
    return std::ranges::any_of(statements(), [&](const Statement& s) {
      AssemblerLexer copy = in_;
      return copy.accept(s.word);
    });
  }

  void symbols(Kernel* k) {
    while (in_.peek("\"") || (in_.at_word() && !at_statement()))
      k->contract.symbols.push_back(symbol_name());
  }

  void tensor(Access access, Kernel* k) {
    KernelArgument a;
    a.access = access;
    a.collapse_leading = in_.accept("rows");
    a.dtype = in_.dtype();
    in_.list("(", ")", [&] { a.dims.push_back(parse_program(&in_)); });
    k->contract.arguments.push_back(std::move(a));
  }

  void scalar(Kernel* k) {
    KernelArgument a;
    a.kind = KernelArgument::Kind::kScalar;
    a.symbol = symbol(k->contract);
    k->contract.arguments.push_back(std::move(a));
  }

  std::string symbol_name() { return in_.peek("\"") ? in_.string() : in_.word(); }

  uint32_t symbol(const KernelContract& contract) {
    const std::string name = symbol_name();
    const auto at = std::find(contract.symbols.begin(), contract.symbols.end(), name);
    if (at == contract.symbols.end()) in_.fail(fmt::format("no symbol \"{}\"", name));
    return static_cast<uint32_t>(at - contract.symbols.begin());
  }

  DispatchFeature feature(const KernelContract& contract) {
    using Kind = DispatchFeature::Kind;
    DispatchFeature f;
    const bool ceil = in_.accept("ceil");
    if (ceil || in_.accept("mod")) {
      f.kind = ceil ? Kind::kCeilDiv : Kind::kMod;
      in_.expect("(");
      f.a = symbol(contract);
      in_.expect(",");
      f.t = in_.integer();
      in_.expect(")");
    } else if (in_.accept("threads")) {
      f.kind = Kind::kThreads;
    } else {
      f.a = symbol(contract);
      if (in_.accept("*")) {
        f.kind = Kind::kProduct;
        f.b = symbol(contract);
      }
    }
    return f;
  }

  void dispatch(Kernel* k) {
    in_.expect("{");
    while (!in_.accept("}")) {
      if (in_.index() != k->dispatch.nodes.size()) in_.fail("nodes come in order from 0");
      in_.expect(":");
      DispatchNode n;
      if (in_.at_digit()) {
        n.yes = in_.index();
      } else {
        n.feature = feature(k->contract);
        n.test = in_.accept("<=") ? DispatchNode::Test::kLessEqual : DispatchNode::Test::kEqual;
        if (n.test == DispatchNode::Test::kEqual) in_.expect("==");
        n.threshold = in_.integer();
        in_.expect("?");
        n.yes = in_.index();
        in_.expect(":");
        n.no = in_.index();
      }
      k->dispatch.nodes.push_back(n);
    }
  }

  Launch launch() {
    Launch l;
    in_.expect("(");
    for (size_t axis = 0; axis < l.grid.size(); ++axis) {
      if (axis > 0) in_.expect(",");
      l.grid[axis] = parse_program(&in_);
    }
    in_.expect(")");
    in_.expect("block");
    l.threads = in_.index();
    in_.expect("shared");
    l.shared_bytes = in_.index();
    if (in_.accept("aligned")) l.alignment = in_.index();
    while (in_.accept("map")) {
      TensorMap& m = l.maps.emplace_back();
      m.argument = in_.index();
      in_.list("(", ")", [&] {
        TensorMap::Axis& a = m.axes.emplace_back();
        a.extent = parse_program(&in_);
        in_.expect("by");
        a.box = in_.index();
      });
    }
    if (in_.accept("steps")) l.steps = parse_program(&in_);
    return l;
  }

  void implementation(ImplementationKind kind, Kernel* k) {
    Implementation i;
    i.kind = kind;
    i.symbol = in_.string();
    if (in_.accept("template")) i.template_name = in_.string();
    if (in_.accept("config")) i.config = in_.string();
    if (in_.accept("threads")) i.max_threads = static_cast<int32_t>(in_.integer());
    i.divisible = in_.accept("divisible");
    if (in_.accept("hash")) i.code_hash = in_.hexadecimal();
    if (in_.accept("launch")) i.launch = launch();
    k->implementations.push_back(std::move(i));
  }

  AssemblerLexer& in_;
};

}  // namespace

Kernel parse_kernel(AssemblerLexer* in) {
  return KernelParser(in).kernel();
}

bool begins_kernel_statement(std::string_view word) {
  return KernelParser::is_statement(word);
}

}  // namespace nimble::exec
