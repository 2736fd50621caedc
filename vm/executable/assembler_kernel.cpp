// Kernels in the assembler's text: contract, dispatch and implementations.
#include <algorithm>

#include "vm/executable/assembler_lexer.h"

namespace nimble::exec {
namespace {

class KernelParser {
 public:
  explicit KernelParser(AssemblerLexer* in) : in_(*in) {}

  Kernel kernel() {
    static constexpr const char* kStatements[] = {"in",     "out",     "inout",    "scalar",
                                                  "data",   "scratch", "dispatch", "native",
                                                  "vendor", "host",    "device",   "require"};
    Kernel k;
    k.name = in_.string();
    in_.expect("{");
    while (!in_.accept("}")) {
      auto tensor = [&](Access access) {
        KernelArgument a;
        a.access = access;
        a.collapse_leading = in_.accept("rows");
        a.dtype = in_.dtype();
        in_.list("(", ")", [&] { a.dims.push_back(parse_program(&in_)); });
        k.contract.arguments.push_back(std::move(a));
      };
      if (in_.accept("source")) {
        k.source = in_.string();
      } else if (in_.accept("workload")) {
        k.workload = in_.string();
      } else if (in_.accept("symbols")) {
        auto at_statement = [&] {
          return std::any_of(std::begin(kStatements), std::end(kStatements), [&](const char* s) {
            AssemblerLexer copy = in_;
            return copy.accept(s);
          });
        };
        while ((in_.at_word() && !at_statement()) || in_.peek("\""))
          k.contract.symbols.push_back(symbol_name());
      } else if (in_.accept("in")) {
        tensor(Access::kIn);
      } else if (in_.accept("out")) {
        tensor(Access::kOut);
      } else if (in_.accept("inout")) {
        tensor(Access::kInOut);
      } else if (in_.accept("scalar")) {
        KernelArgument a;
        a.kind = KernelArgument::Kind::kScalar;
        a.symbol = symbol(k.contract);
        k.contract.arguments.push_back(std::move(a));
      } else if (in_.accept("data")) {
        KernelArgument a;
        a.kind = KernelArgument::Kind::kData;
        k.contract.arguments.push_back(std::move(a));
      } else if (in_.accept("require")) {
        k.contract.requirements.push_back(parse_program(&in_));
      } else if (in_.accept("scratch")) {
        k.contract.scratch_bytes = parse_program(&in_);
      } else if (in_.accept("device")) {
        k.device = in_.device();
      } else if (in_.accept("dispatch")) {
        dispatch(&k);
      } else if (in_.accept("native")) {
        implementation(ImplementationKind::kNative, &k);
      } else if (in_.accept("vendor")) {
        implementation(ImplementationKind::kVendor, &k);
      } else if (in_.accept("host")) {
        implementation(ImplementationKind::kHost, &k);
      } else if (in_.accept("portable")) {
        implementation(ImplementationKind::kPortable, &k);
      } else {
        in_.fail("a statement of a kernel expected");
      }
    }
    return k;
  }

 private:
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

}  // namespace nimble::exec
