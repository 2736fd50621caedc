// The text of a kernel. One statement a line, indented by nesting. A value that occurs several
// times in one statement (values are directed graphs: a polynomial's argument, say) is printed
// once as `%i = …` ahead of the statement, so that the text stays as small as the graph.
#include <fmt/format.h>

#include <unordered_map>

#include "compiler/kernels/kernel_ir.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

std::string type_of(DType t, int lanes) {
  return lanes == 1 ? std::string(nimble::name_of(t))
                    : fmt::format("{}x{}", nimble::name_of(t), lanes);
}

class Printer {
 public:
  std::string function(const Function& f) {
    std::string head = fmt::format("kernel {}(", f.name);
    for (size_t i = 0; i < f.arguments.size(); ++i)
      head += (i ? ", " : "") + buffer(*f.arguments[i]);
    head += ")";
    if (!f.contract.symbols.empty()) {
      head += " symbols(";
      for (size_t i = 0; i < f.contract.symbols.size(); ++i) {
        const std::string& name = f.contract.symbols[i];
        head += (i ? ", " : "") + name + range_of(f.facts.facts(name));
      }
      head += ")";
    }
    if (f.launch)
      head += fmt::format(" launch({}, {}, {} of {} threads)", f.launch->grid[0].str(),
                          f.launch->grid[1].str(), f.launch->grid[2].str(), f.launch->threads);
    out_ = head + " {\n";
    for (const BufferRef& b : f.scratch) line("buffer " + buffer(*b));
    for (const BufferRef& b : f.shared) line("buffer " + buffer(*b));
    for (const BufferRef& b : f.registers) line("buffer " + buffer(*b));
    for (const TensorMapRef& m : f.maps)
      line(fmt::format("map {} of {}: ({}) in boxes of ({})", m->name, m->buffer->name,
                       list(m->extents), fmt::join(m->box, ", ")));
    if (f.body) statement(*f.body);
    return out_ + "}\n";
  }

 private:
  static std::string list(const std::vector<Dim>& dims) {
    std::string text;
    for (const Dim& d : dims) text += (text.empty() ? "" : ", ") + d.str();
    return text;
  }

  static std::string range_of(const ir::SymbolFacts& s) {
    std::string text;
    if (s.low != 0 || s.high != INT64_MAX)
      text = s.high == INT64_MAX ? fmt::format(" in [{}, inf)", s.low)
                                 : fmt::format(" in [{}, {}]", s.low, s.high);
    if (s.divisor != 1) text += fmt::format(" by {}", s.divisor);
    return text;
  }

  static std::string buffer(const Buffer& b) {
    const std::string type =
        b.scope == Scope::kTile ? fmt::format("{}x{}x{}", nimble::name_of(b.dtype), b.rows, b.lanes)
                                : type_of(b.dtype, b.lanes);
    std::string text =
        fmt::format("{}{}: {}[{}]", b.scope == Scope::kArgument && b.writable ? "out " : "", b.name,
                    type, b.extent.str());
    if (b.scope != Scope::kArgument) text += fmt::format(" {}", name_of(b.scope));
    if (b.alignment != 0) text += fmt::format(" align {}", b.alignment);
    return text;
  }

  void line(const std::string& text) { out_ += std::string(indent_ * 2, ' ') + text + "\n"; }

  void count(const Value& v) {
    if (++uses_[&v] > 1) return;
    for (const ValueRef& o : v.operands) count(*o);
    if (v.passthrough) count(*v.passthrough);
  }

  // Prepares printing of one statement's value: shared parts get names and lines of their own.
  std::string root(const Value& v) {
    uses_.clear();
    names_.clear();
    count(v);
    return value(v);
  }

  static bool is_leaf(const Value& v) {
    return v.kind == ValueKind::kConst || v.kind == ValueKind::kIndex ||
           v.kind == ValueKind::kLocal || v.kind == ValueKind::kIota ||
           v.kind == ValueKind::kRegister;
  }

  std::string value(const Value& v) {
    if (uses_[&v] < 2 || is_leaf(v)) return expression(v);
    if (auto it = names_.find(&v); it != names_.end()) return it->second;
    const std::string text = expression(v);
    std::string name = fmt::format("%{}", names_.size());
    line(fmt::format("{} = {}", name, text));
    return names_.emplace(&v, name).first->second;
  }

  std::string operands(const Value& v) {
    std::string text;
    for (const ValueRef& o : v.operands) text += (text.empty() ? "" : ", ") + value(*o);
    return text;
  }

  static std::string access(const Buffer& b, const Dim& index, const Dim& stride,
                            const std::optional<Dim>& valid) {
    std::string text = fmt::format("{}[{}", b.name, index.str());
    if (!stride.is_constant(1)) text += fmt::format(" : {}", stride.str());
    text += "]";
    if (valid) text += fmt::format(" first {}", valid->str());
    return text;
  }

  std::string expression(const Value& v) {
    const std::string type = type_of(v.dtype, v.lanes);
    switch (v.kind) {
      case ValueKind::kConst:
        return is_float(v.dtype) ? fmt::format("{}({:a})", type, v.constant)
                                 : fmt::format("{}({})", type, v.integer);
      case ValueKind::kIndex:
        return fmt::format("index({})", v.index.str());
      case ValueKind::kIota:
        return "iota." + type;
      case ValueKind::kLoad: {
        std::string text =
            fmt::format("load.{} {}", type, access(*v.buffer, v.index, v.stride, v.valid));
        if (v.passthrough) text += " else " + value(*v.passthrough);
        return "(" + text + ")";
      }
      case ValueKind::kRegister:
        return fmt::format("{}[{}]", v.buffer->name, v.index.str());
      case ValueKind::kLocal:
        return v.name;
      case ValueKind::kUnary:
        return fmt::format("{}({})", name_of(v.unary), operands(v));
      case ValueKind::kBinary:
        return fmt::format("{}({})", name_of(v.binary), operands(v));
      case ValueKind::kFma:
        return fmt::format("fma({})", operands(v));
      case ValueKind::kCompare:
        return fmt::format("{}({})", name_of(v.compare), operands(v));
      case ValueKind::kSelect:
        return fmt::format("{}({})", v.rare ? "select_rare" : "select", operands(v));
      case ValueKind::kCast:
        return fmt::format("cast.{}({})", type, operands(v));
      case ValueKind::kBitcast:
        return fmt::format("bitcast.{}({})", type, operands(v));
      case ValueKind::kBroadcast:
        return fmt::format("broadcast.{}({})", type, operands(v));
      case ValueKind::kReduce:
        return fmt::format("reduce.{}({})", name_of(v.binary), operands(v));
      case ValueKind::kExtract:
        return fmt::format("extract({}, {})", operands(v), v.integer);
      case ValueKind::kDot:
        return fmt::format("dot.{}({})", row_of(v.fragment).name, operands(v));
      case ValueKind::kShuffle:
        return fmt::format("shuffle({}, {})", operands(v), v.index.str());
    }
    NIMBLE_UNREACHABLE();
  }

  static std::string condition(const Condition& c) {
    static constexpr const char* kOps[] = {"<", "<=", "==", "!="};
    std::string text;
    for (const Condition::Term& t : c.terms)
      text += fmt::format("{}{} {} {}", text.empty() ? "" : " and ", t.a.str(),
                          kOps[static_cast<int>(t.op)], t.b.str());
    return text.empty() ? "true" : text;
  }

  static std::string tile(const TileRef& t) {
    return fmt::format("{}[{}]", t.buffer->name, t.number.str());
  }

  static std::string view(const GroupView& v) {
    return fmt::format("{}[{}] {}", v.buffer->name, v.index.str(),
                       v.along_k ? fmt::format("along {}", v.span)
                                 : fmt::format("across {} by {}", v.span, v.slab));
  }

  static std::string signal(const Stmt& s) { return access(*s.buffer, s.index, 1, std::nullopt); }

  void block(const Stmt& s) {
    ++indent_;
    statement(s);
    --indent_;
  }

  void statement(const Stmt& s) {
    switch (s.kind) {
      case StmtKind::kSeq:
        for (const StmtRef& b : s.body) statement(*b);
        return;
      case StmtKind::kFor:
        line(fmt::format("{} {} from {} count {}{} {{", name_of(s.loop), s.var, s.begin.str(),
                         s.extent.str(), s.step == 1 ? "" : fmt::format(" step {}", s.step)));
        block(*s.body[0]);
        return line("}");
      case StmtKind::kIf:
        line(fmt::format("if {} {{", condition(s.condition)));
        block(*s.body[0]);
        if (s.body.size() > 1) {
          line("} else {");
          block(*s.body[1]);
        }
        return line("}");
      case StmtKind::kStore: {
        const std::string text = root(*s.value);
        return line(
            fmt::format("store {} = {}", access(*s.buffer, s.index, s.stride, s.valid), text));
      }
      case StmtKind::kSetRegister: {
        const std::string text = root(*s.value);
        return line(fmt::format("{}[{}] = {}", s.buffer->name, s.index.str(), text));
      }
      case StmtKind::kLet: {
        const std::string text = root(*s.value);
        return line(fmt::format("let {} = {}", s.var, text));
      }
      case StmtKind::kLetIndex: {
        const std::string text = root(*s.value);
        return line(
            fmt::format("let index {}{} = {}", s.var, s.facts ? range_of(*s.facts) : "", text));
      }
      case StmtKind::kPrefetch:
        return line(fmt::format("prefetch.{}{} {}[{}]", s.for_write ? "write." : "", s.locality,
                                s.buffer->name, s.index.str()));
      case StmtKind::kBarrier:
        return line(s.together == Together::kRegion
                        ? "barrier"
                        : fmt::format("barrier {}", name_of(s.together)));
      case StmtKind::kCheck:
        return line(fmt::format("check {} else \"{}\"", condition(s.condition), s.message));
      case StmtKind::kTiles: {
        std::string shapes;
        for (const TileShape& t : s.shapes)
          shapes += fmt::format("{}{} of {} rows", shapes.empty() ? "" : ", ", t.tile->name,
                                t.rows.str());
        line(fmt::format("tiles {} {{", shapes));
        block(*s.body[0]);
        return line("}");
      }
      case StmtKind::kTileZero:
        return line(fmt::format("{} = zero", tile(s.tiles[0])));
      case StmtKind::kTileLoad:
        return line(fmt::format("{} = load.tile {}", tile(s.tiles[0]),
                                access(*s.buffer, s.index, s.stride, std::nullopt)));
      case StmtKind::kTileStore:
        return line(fmt::format("store.tile {} = {}",
                                access(*s.buffer, s.index, s.stride, std::nullopt),
                                tile(s.tiles[0])));
      case StmtKind::kTileDot:
        return line(fmt::format("{} = dot.{}({}, {}, {})", tile(s.tiles[0]),
                                tile_row_of(s.tile_fragment).name, tile(s.tiles[1]),
                                tile(s.tiles[2]), tile(s.tiles[0])));
      case StmtKind::kWarpDot:
        return line(fmt::format("{} = dot.{}({}, {}, {})", tile(s.tiles[0]),
                                warp_row_of(s.warp_fragment).name, tile(s.tiles[1]),
                                tile(s.tiles[2]), tile(s.tiles[0])));
      case StmtKind::kWarpLoad:
        return line(fmt::format("{} = load.warp{} {} matrices {}", tile(s.tiles[0]),
                                s.transposed ? ".transposed" : "", s.count,
                                access(*s.buffer, s.index, 1, std::nullopt)));
      case StmtKind::kAsyncCopy:
        return line(fmt::format("copy.async {} = {} {}", access(*s.to_buffer, s.to_index, 1, {}),
                                type_of(s.buffer->dtype, s.lanes),
                                access(*s.buffer, s.index, 1, s.valid)));
      case StmtKind::kAsyncCommit:
        return line("commit.async");
      case StmtKind::kAsyncWait:
        return line(fmt::format("wait.async {}", s.count));
      case StmtKind::kGroupDot:
        return line(fmt::format("{} = dot.{} {} columns({}, {}, {})", tile(s.tiles[0]),
                                group_row_of(s.group_fragment).name, s.columns, view(s.views[0]),
                                view(s.views[1]), tile(s.tiles[0])));
      case StmtKind::kGroupFence:
        return line("fence.group");
      case StmtKind::kGroupCommit:
        return line("commit.group");
      case StmtKind::kGroupWait:
        return line(fmt::format("wait.group {}", s.count));
      case StmtKind::kProxyFence:
        return line("fence.proxy");
      case StmtKind::kSignalInit:
        return line(fmt::format("init.signal {} of {}", signal(s), s.count));
      case StmtKind::kSignalArrive:
        return line(fmt::format("arrive.signal {} with {} bytes", signal(s), s.count));
      case StmtKind::kSignalWait:
        return line(fmt::format("wait.signal {} phase {}", signal(s), s.phase.str()));
      case StmtKind::kTensorCopy:
        return line(fmt::format("copy.tensor {} = {}({}) {}",
                                access(*s.to_buffer, s.to_index, 1, {}), s.map->name,
                                list(s.coordinates), signal(s)));
    }
  }

  std::string out_;
  int indent_ = 1;
  std::unordered_map<const Value*, int> uses_;
  std::unordered_map<const Value*, std::string> names_;
};

}  // namespace

std::string print(const Function& f) {
  return Printer().function(f);
}

}  // namespace nimble::kir
