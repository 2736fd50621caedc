#include "compiler/ir/op.h"

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "compiler/ir/axes.h"
#include "compiler/ir/dim_node.h"
#include "compiler/ir/ops/relations.h"
#include "compiler/ir/ops/work.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

// "name:kind name:kind!" of Ops.def.
std::vector<AttrSpec> parse_attr_specs(const std::string& text) {
  using Kind = AttrSpec::Kind;
  static const std::unordered_map<std::string, Kind> kKinds = {
      {"bool", Kind::kBool},       {"int", Kind::kInt},     {"float", Kind::kFloat},
      {"string", Kind::kString},   {"ints", Kind::kInts},   {"floats", Kind::kFloats},
      {"strings", Kind::kStrings}, {"dtype", Kind::kDType}, {"dim", Kind::kDim},
      {"dims", Kind::kDims}};
  std::vector<AttrSpec> specs;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const size_t colon = word.find(':');
    NIMBLE_CHECK(colon != std::string::npos, "attribute {} of Ops.def", word);
    AttrSpec spec;
    spec.name = word.substr(0, colon);
    std::string kind = word.substr(colon + 1);
    if (kind.ends_with('!')) {
      spec.required = true;
      kind.pop_back();
    }
    auto it = kKinds.find(kind);
    NIMBLE_CHECK(it != kKinds.end(), "attribute kind {} of Ops.def", kind);
    spec.kind = it->second;
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<OpInfo> make_table() {
  std::vector<OpInfo> ops;
#define NIMBLE_OP(name, min_args, max_args, fusion, shape_mode, relation, attrs, summary, ...) \
  ops.push_back({#name, min_args, max_args, FusionKind::k##fusion, ShapeMode::k##shape_mode,   \
                 relate_##relation, parse_attr_specs(attrs), summary, Traits{__VA_ARGS__}});
#include "compiler/ir/Ops.def"
#undef NIMBLE_OP
  for (const OpInfo& op : ops)
    for (std::string_view name : op.traits.offsets)
      NIMBLE_CHECK(std::any_of(op.attrs.begin(), op.attrs.end(),
                               [&](const AttrSpec& a) { return a.name == name; }),
                   "{} has no attribute {}, which Ops.def calls an offset", op.name, name);
  return ops;
}

const char* kind_name(AttrSpec::Kind k) {
  static const char* const kNames[] = {"a bool", "an integer", "a float", "a string", "integers",
                                       "floats", "strings",    "a dtype", "a dim",    "dims"};
  return kNames[static_cast<int>(k)];
}

bool has_wildcard(const AttrValue& value) {
  if (const auto* d = std::get_if<Dim>(&value)) return d->is_any();
  const auto* ds = std::get_if<std::vector<Dim>>(&value);
  return ds && std::any_of(ds->begin(), ds->end(), [](const Dim& d) { return d.is_any(); });
}

}  // namespace

const std::vector<OpInfo>& all_ops() {
  static const auto* table = new std::vector<OpInfo>(make_table());
  return *table;
}

const OpInfo* find_op(std::string_view name) {
  static const auto* index = [] {
    auto* map = new std::unordered_map<std::string_view, const OpInfo*>;
    for (const OpInfo& op : all_ops()) map->emplace(op.name, &op);
    return map;
  }();
  auto it = index->find(name);
  return it == index->end() ? nullptr : it->second;
}

const Traits& traits_of(const Expr& e) {
  static const Traits kNone;
  const OpInfo* op = e.kind == ExprKind::kCall ? find_op(e.op) : nullptr;
  return op ? op->traits : kNone;
}

Rows OpInfo::rows() const {
  if (traits.rows) return *traits.rows;
  if (fusion == FusionKind::kElementwise) return Rows::kPointwise;
  return fusion == FusionKind::kReduction ? Rows::kAxes : Rows::kMixed;
}

bool OpInfo::moves_elements() const {
  const bool adds_values = rows() == Rows::kPads || shape_mode != ShapeMode::kDataIndependent;
  return fusion == FusionKind::kInjective && !adds_values;  // a pad's, a range's
}

std::string check_call(const OpInfo& op, const Expr& call) {
  const auto count = static_cast<int>(call.args.size());
  if (count < op.min_args || (op.max_args >= 0 && count > op.max_args)) {
    std::string wanted = fmt::format("{}", op.min_args);
    if (op.max_args < 0) {
      wanted = fmt::format("at least {}", op.min_args);
    } else if (op.max_args != op.min_args) {
      wanted = fmt::format("{} to {}", op.min_args, op.max_args);
    }
    return fmt::format("{} takes {} operand{}, not {}", op.name, wanted, wanted == "1" ? "" : "s",
                       count);
  }
  for (const AttrSpec& spec : op.attrs) {
    auto it = call.attrs.find(spec.name);
    if (it == call.attrs.end()) {
      if (spec.required) return fmt::format("{} needs the attribute {}", op.name, spec.name);
    } else if (it->second.index() != static_cast<size_t>(spec.kind_index())) {
      return fmt::format("attribute {} of {} must be {}", spec.name, op.name, kind_name(spec.kind));
    } else if (has_wildcard(it->second)) {
      return fmt::format("attribute {} of {} cannot contain ?: name the dim", spec.name, op.name);
    }
  }
  for (const auto& [name, value] : call.attrs) {
    if (std::none_of(op.attrs.begin(), op.attrs.end(),
                     [&name = name](const AttrSpec& s) { return s.name == name; })) {
      std::string known;
      for (const AttrSpec& s : op.attrs) known += (known.empty() ? "" : ", ") + s.name;
      return fmt::format("{} has no attribute {} (it has {})", op.name, name,
                         known.empty() ? "none" : known);
    }
  }
  return {};
}

std::string form_of(const OpInfo& op) {
  static const char* const kNames[] = {"%x", "%y", "%z", "%u", "%v"};
  std::string operands, attrs;
  for (int i = 0; i < op.min_args; ++i) {
    operands += std::string(i ? ", " : "") + (i < 5 ? kNames[i] : "%w");
  }
  if (op.max_args < 0) operands += ", …";
  if (op.max_args > op.min_args) operands += operands.empty() ? "[%x]" : "[, …]";
  for (const AttrSpec& a : op.attrs) {
    const std::string one = fmt::format("{} = {}", a.name, kind_name(a.kind));
    attrs += (attrs.empty() ? "" : ", ") + (a.required ? one : "[" + one + "]");
  }
  return fmt::format("write {}({}){}", op.name, operands, attrs.empty() ? "" : " {" + attrs + "}");
}

size_t AttrSpec::kind_index() const {
  switch (kind) {
    case Kind::kBool:
      return AttrValue(bool{}).index();
    case Kind::kInt:
      return AttrValue(int64_t{}).index();
    case Kind::kFloat:
      return AttrValue(double{}).index();
    case Kind::kString:
      return AttrValue(std::string{}).index();
    case Kind::kInts:
      return AttrValue(std::vector<int64_t>{}).index();
    case Kind::kFloats:
      return AttrValue(std::vector<double>{}).index();
    case Kind::kStrings:
      return AttrValue(std::vector<std::string>{}).index();
    case Kind::kDType:
      return AttrValue(DType{}).index();
    case Kind::kDim:
      return AttrValue(Dim{}).index();
    case Kind::kDims:
      return AttrValue(std::vector<Dim>{}).index();
  }
  NIMBLE_UNREACHABLE("attribute kind");
}

void RelationContext::fail(const std::string& problem, const std::string& remedy) const {
  std::string types;
  for (const Type& t : inputs) types += (types.empty() ? "" : ", ") + str(t);
  throw Error(Status::kInvalidArgument, call.location.str(),
              fmt::format("{}({}): {}", call.op, types, problem), remedy);
}

// ------------------------------------------------------------------ shared by the families

int64_t normalize_axis(const RelationContext& c, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) {
    c.fail(fmt::format("axis {} is out of range for rank {}", axis, rank),
           rank == 0 ? "a scalar has no axes" : fmt::format("use -{} … {}", rank, rank - 1));
  }
  return axis_from_front(axis, rank);
}

std::vector<int64_t> normalize_axes(const RelationContext& c, std::vector<int64_t> axes,
                                    int64_t rank) {
  for (int64_t& a : axes) a = normalize_axis(c, a, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    c.fail("an axis is named twice", "name each axis once");
  }
  return axes;
}

void require_rank(const RelationContext& c, size_t input, int64_t wanted) {
  if (rank(c, input) != wanted) {
    c.fail(fmt::format("operand {} must have rank {}, not {}", input + 1, wanted, rank(c, input)),
           "reshape it");
  }
}
void require_rank_at_least(const RelationContext& c, size_t input, int64_t wanted) {
  if (rank(c, input) < wanted) {
    c.fail(fmt::format("operand {} must have rank {} or more, not {}", input + 1, wanted,
                       rank(c, input)),
           "unsqueeze or reshape it");
  }
}
void require_float(const RelationContext& c, size_t input) {
  if (!is_float(dtype(c, input))) {
    c.fail(fmt::format("operand {} must be of a float type, not {}", input + 1,
                       name_of(dtype(c, input))),
           "insert cast");
  }
}
void require_number(const RelationContext& c, size_t input) {
  if (dtype(c, input) == DType::kBool) c.fail("a bool operand has no arithmetic", "insert cast");
}
void require_same_dtype(const RelationContext& c) {
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    if (dtype(c, i) != dtype(c, 0)) {
      c.fail(fmt::format("operands have different element types {} and {}", name_of(dtype(c, 0)),
                         name_of(dtype(c, i))),
             "insert cast");
    }
  }
}
void require_dtype(const RelationContext& c, size_t input, DType t) {
  if (dtype(c, input) != t) {
    c.fail(fmt::format("operand {} must be {}, not {}", input + 1, name_of(t),
                       name_of(dtype(c, input))),
           "insert cast");
  }
}
void require_index(const RelationContext& c, size_t input) {
  require_rank(c, input, 0);
  require_dtype(c, input, DType::kI64);
}

Layout layout_of(const RelationContext& c, std::optional<Layout::Kind> kind) {
  const auto& text = attr<std::string>(c.call.attrs, "layout");
  auto layout = parse_layout(text);
  if (!layout || (kind && layout->kind != *kind)) {
    const bool gate = kind == Layout::Kind::kGate;
    c.fail(fmt::format("layout \"{}\" is {}", text, layout ? "of another kind" : "unknown"),
           gate ? "use a layout such as gate16" : "use a layout such as panel32");
  }
  return *layout;
}

void require_max_weight(const RelationContext& c) {
  if (!c.call.attrs.contains("max_weight")) return;
  if (dtype(c, 1) != DType::kI8) c.fail("max_weight is of weights of i8", "drop the attribute");
  const auto most = attr<int64_t>(c.call.attrs, "max_weight");
  if (most < 0 || most > 128)
    c.fail(fmt::format("no i8 exceeds 128 in size, max_weight is {}", most),
           "give the size of the largest weight, or drop the attribute");
}

namespace {

// Whether q is 1 if a is: of a product of extents that is 1 every factor is.
bool is_one_with(const DimContext& facts, const Dim& a, const Dim& q) {
  const std::vector<Dim::Term> whole = a.terms(), part = q.terms();
  if (whole.size() != 1 || whole[0].coefficient != 1) return false;
  if (part.size() != 1 || part[0].coefficient != 1) return false;
  const std::vector<Dim>& factors = whole[0].atoms;
  const auto is_factor = [&](const Dim& d) {
    return std::ranges::find(factors, d) != factors.end();
  };
  return std::ranges::all_of(part[0].atoms, is_factor) &&
         std::ranges::all_of(factors, [&](const Dim& d) { return facts.range(d).low >= 0; });
}

}  // namespace

Dim broadcast_dims(RelationContext& c, const Dim& a, const Dim& b, const std::string& what) {
  if (a.is_constant(1)) return b;
  if (b.is_constant(1)) return a;
  if (c.dims.equal(a, b) == Proof::kYes) {
    // Of two equal dims the simpler one: a constant, else the user's own symbol, else one of which
    // the other is a multiple.
    if (a.as_constant() || b.as_constant()) return b.as_constant() ? b : a;
    return (b.as_symbol() && !a.as_symbol()) || (a != b && divide_exactly(a, b)) ? b : a;
  }
  const auto one = [&](const Dim& d) { return c.dims.equal(d, Dim(1)); };
  if (one(a) == Proof::kYes) return b;
  if (one(b) == Proof::kYes) return a;
  if (one(a) == Proof::kNo && one(b) == Proof::kNo) {
    c.require_equal(a, b, what);
    return a.as_constant() ? a : b.as_constant() ? b : a;
  }
  // min(n, 512) against n (a slice of a table against the sequence): where it runs at all, the
  // two are equal, since min(n, 512) = 1 only for n = 1.
  for (const auto& [small, large] : {std::pair(a, b), std::pair(b, a)}) {
    auto app = small.as_application();
    if (!app || app->function != Dim::Function::kMin) continue;
    bool among = false, others = true;
    for (const Dim& o : app->operands) {
      if (o == large)
        among = true;
      else
        others &= one(o) == Proof::kNo;
    }
    if (among && others) {
      c.require_equal(small, large, what);
      return large;
    }
  }
  // broadcast(a, q*a), as of a tensor beside what a batch was folded into, is q*a wherever it is
  // defined: if a is 1, and if q*a is, too. Where a cannot be 1 but with q, the two are equal, and
  // one such step after the other says nothing new: dims do not grow with the depth of a model.
  for (const auto& [small, large] : {std::pair(a, b), std::pair(b, a)}) {
    const std::optional<Dim> quotient = divide_exactly(large, small);
    if (!quotient) continue;
    const bool equal = is_one_with(c.dims, small, *quotient);
    c.require_equal(equal ? small : broadcast(small, large), large, what);
    return equal ? small : large;
  }
  // A dim that is certainly not 1 is the result; the other must be 1 or the same.
  for (const auto& [known, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (one(known) != Proof::kNo) continue;
    c.require_equal(broadcast(known, other), known, what);
    return known;
  }
  return c.dims.simplify(broadcast(a, b));
}

Dims broadcast_shapes(RelationContext& c, const Dims& a, const Dims& b) {
  const size_t n = std::max(a.size(), b.size());
  Dims out(n);
  for (size_t i = 0; i < n; ++i) {  // i counts from the last axis
    const bool in_a = i < a.size(), in_b = i < b.size();
    const Dim x = in_a ? a[a.size() - 1 - i] : Dim(1), y = in_b ? b[b.size() - 1 - i] : Dim(1);
    out[n - 1 - i] = broadcast_dims(c, x, y, fmt::format("axis -{} of the operands", i + 1));
  }
  return out;
}

bool tracks_contents(DType t) {
  return t == DType::kI64 || t == DType::kI32 || t == DType::kBool;
}

std::optional<Dims> contents_of(const RelationContext& c, size_t input) {
  if (!c.contents || !tracks_contents(dtype(c, input))) return std::nullopt;
  const Dims* known = c.contents(input);
  if (!known || known->size() > kMaxContents) return std::nullopt;
  return *known;
}

Dims extents_of(RelationContext& c, size_t input, const std::string& role) {
  if (dtype(c, input) != DType::kI64 && dtype(c, input) != DType::kI32)
    require_dtype(c, input, DType::kI64);
  if (rank(c, input) > 1) require_rank(c, input, 1);
  if (auto known = contents_of(c, input)) return *known;
  if (const Dims* read = c.read_contents ? c.read_contents(input) : nullptr) return *read;
  c.fail(fmt::format("{} has a number of elements that only the run knows", role),
         "ranks are static: give it a constant extent, or compute it from constants, shape_of and "
         "size");
}

void require_not_negative(RelationContext& c, const Dim& d, const std::string& what) {
  if (c.dims.range(d).low >= 0) return;
  c.require_equal(max(d, Dim(0)), d, what + " is not negative");
}

Dim is_negative(const Dim& d) {
  if (auto c = d.as_constant()) return *c < 0 ? 1 : 0;
  return Dim(0) - max(min(d, Dim(0)), Dim(-1));
}

}  // namespace nimble::ir
