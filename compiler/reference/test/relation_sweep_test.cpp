// Every operator's type relation on operands of rank 0 to 3 over the extents 0, 1, 2, 7, an
// unknown one (`?`: a symbol of its own) and a shared symbol n. One operand: all shapes; two: all
// pairs for the first operator with a relation, for others with the same one all pairs up to rank 2
// and a seeded sample beyond; more: a seeded sample near shapes that fit.
// Attributes are seeded. A relation gives a type, refuses with a user error or demands an
// equality; it never stops the process. Where all extents are known and it accepts, the reference
// interpreter's result has the promised shape; and where one of those extents is then made
// unknown, the type must be the same for the extent that it had, and its demands must hold.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "compiler/ir/op.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {
namespace {

using ir::Dim;
using Dims = std::vector<Dim>;

struct Operand {
  Dims dims;
  DType dtype = DType::kF32;
};
struct Case {
  const ir::OpInfo* op = nullptr;
  std::vector<Operand> operands;
  ir::Attrs attrs;
  std::string str() const {
    std::string s = op->name + "(";
    for (const Operand& o : operands) s += ir::str(ir::tensor_type(o.dims, o.dtype)) + " ";
    s += ")";
    for (const auto& [name, value] : attrs) {
      s += " " + name + "=";
      if (const auto* i = std::get_if<int64_t>(&value)) s += std::to_string(*i);
      if (const auto* v = std::get_if<std::vector<int64_t>>(&value))
        for (int64_t i : *v) s += std::to_string(i) + ",";
      if (const auto* v = std::get_if<Dims>(&value))
        for (const Dim& d : *v) s += d.str() + ",";
    }
    return s;
  }
};

struct Outcome {
  bool accepted = false;
  ir::Type type;
  std::vector<std::pair<Dim, Dim>> demands;
  std::set<std::string> fresh;
  // With integer operands as attributes, the same call: what runs.
  std::optional<ir::RelationResult::Resolved> resolved;
};

Outcome relate(const Case& c) {
  std::vector<ir::Type> types;
  std::vector<ir::Atom> args;
  for (const Operand& o : c.operands) {
    types.push_back(ir::tensor_type(o.dims, o.dtype));
    args.push_back(ir::make_var("x", types.back()));
  }
  const ir::ExprRef call = ir::make_call(c.op->name, args, c.attrs);
  Outcome out;
  ir::DimContext facts;
  ir::RelationContext context{*call,
                              types,
                              facts,
                              [](size_t) -> const Dims* { return nullptr; },
                              [&](const Dim& a, const Dim& b, const std::string& what) {
                                const ir::Proof p = facts.equal(a, b);
                                if (p == ir::Proof::kNo)
                                  throw Error(Status::kInvalidArgument, "", what, "");
                                if (p == ir::Proof::kYes) return;
                                out.demands.emplace_back(a, b);
                                facts.assume_equal(a, b);
                              },
                              [&] {
                                const std::string s = ir::fresh_symbol();
                                out.fresh.insert(s);
                                return Dim::symbol(s);
                              }};
  try {
    ir::RelationResult r = c.op->relation(context);
    out.type = r.type;
    out.resolved = std::move(r.resolved);
    out.accepted = true;
  } catch (const Error& e) {
    EXPECT_NE(e.status(), Status::kInternal) << c.str() << ": " << e.what();
    EXPECT_NE(e.problem(), "") << c.str();
  }
  return out;
}

bool is_concrete(const Case& c) {
  for (const Operand& o : c.operands)
    for (const Dim& d : o.dims)
      if (!d.as_constant()) return false;
  for (const auto& [name, value] : c.attrs) {
    if (const auto* d = std::get_if<Dim>(&value); d && !d->as_constant()) return false;
    if (const auto* ds = std::get_if<Dims>(&value))
      for (const Dim& d : *ds)
        if (!d.as_constant()) return false;
  }
  return true;
}

std::vector<ir::Type> tensors_of(const ir::Type& t) {
  return t->kind == ir::TypeKind::kTuple ? t->elements : std::vector<ir::Type>{t};
}

// The run's shapes are those that the type promises.
void check_run(const Case& c, const ir::Type& type) {
  std::vector<ir::TensorRef> in;
  int64_t elements = 0;
  for (const Operand& o : c.operands) {
    std::vector<int64_t> shape;
    for (const Dim& d : o.dims) shape.push_back(*d.as_constant());
    uint8_t* data = nullptr;
    in.push_back(ir::Tensor::make(o.dtype, shape, &data));
    elements += in.back()->elements();
  }
  const std::vector<ir::Type> promised = tensors_of(type);
  for (const ir::Type& t : promised) elements += ir::element_count(t).as_constant().value_or(0);
  if (elements > 3000) return;
  std::vector<ir::Atom> args;
  for (const ir::TensorRef& t : in) args.push_back(ir::Atom::of(t));
  std::vector<ir::TensorRef> out;
  try {
    out = evaluate_op(*ir::make_call(c.op->name, args, c.attrs), in, {});
  } catch (const Error& e) {
    // Values decide: an index into nothing, a shape operand of zeros.
    EXPECT_TRUE(e.status() == Status::kFatal || e.status() == Status::kInvalidArgument)
        << c.str() << ": " << e.what();
    return;
  }
  ASSERT_EQ(out.size(), promised.size()) << c.str();
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i]->dtype, promised[i]->dtype) << c.str();
    ASSERT_EQ(out[i]->shape.size(), promised[i]->dims.size()) << c.str();
    for (size_t k = 0; k < out[i]->shape.size(); ++k)
      EXPECT_TRUE(promised[i]->dims[k].is_constant(out[i]->shape[k]))
          << c.str() << " gives " << ir::str(promised[i]) << ", the run " << out[i]->shape[k];
  }
}

// Makes each extent unknown in turn.
void check_generalised(const Case& concrete, const ir::Type& type) {
  const std::vector<ir::Type> promised = tensors_of(type);
  for (size_t i = 0; i < concrete.operands.size(); ++i) {
    for (size_t k = 0; k < concrete.operands[i].dims.size(); ++k) {
      Case general = concrete;
      const int64_t extent = *general.operands[i].dims[k].as_constant();
      general.operands[i].dims[k] = Dim::symbol("s");
      const Outcome o = relate(general);
      if (!o.accepted) continue;  // an operator may want an extent to be known
      const auto value = [&](const Dim& d) {
        return d.evaluate([&](const std::string& s) -> std::optional<int64_t> {
          return s == "s" ? std::optional(extent) : std::nullopt;
        });
      };
      const auto is_open = [&](const Dim& d) {
        for (const std::string& s : d.symbols())
          if (o.fresh.contains(s)) return true;
        return false;
      };
      for (const auto& [left, right] : o.demands) {
        if (!is_open(left) && !is_open(right)) {
          EXPECT_EQ(value(left), value(right)) << general.str() << " from " << concrete.str();
        }
      }
      const std::vector<ir::Type> found = tensors_of(o.type);
      ASSERT_EQ(found.size(), promised.size()) << general.str();
      for (size_t t = 0; t < found.size(); ++t) {
        EXPECT_EQ(found[t]->dtype, promised[t]->dtype) << general.str();
        ASSERT_EQ(found[t]->dims.size(), promised[t]->dims.size()) << general.str();
        for (size_t d = 0; d < found[t]->dims.size(); ++d) {
          if (is_open(found[t]->dims[d])) continue;
          EXPECT_TRUE(promised[t]->dims[d].is_constant(value(found[t]->dims[d])))
              << general.str() << " gives " << ir::str(found[t]) << ", with s = " << extent << " "
              << ir::str(promised[t]);
        }
      }
    }
  }
}

class Sweep {
 public:
  Sweep(const ir::OpInfo& op, bool first_of_relation)
      : op_(op), first_of_relation_(first_of_relation), random_(17) {}

  void run() {
    if (op_.max_args == 0) return many(0, 200);
    if (op_.min_args <= 1) one();
    if (op_.min_args <= 2 && (op_.max_args < 0 || op_.max_args >= 2)) two();
    const int most = op_.max_args < 0 ? 3 : op_.max_args;
    for (int count = 3; count <= most; ++count)
      if (count >= op_.min_args) many(static_cast<size_t>(count), 3000);
  }
  int64_t accepted = 0, evaluated = 0;

 private:
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Dim extent() {
    static int64_t unknown = 0;
    const Dim all[] = {
        0, 1, 2, 7, Dim::symbol(fmt::format("u{}", unknown++ % 8)), Dim::symbol("n")};
    return all[pick(0, 5)];
  }
  DType element() {
    const DType all[] = {DType::kF32, DType::kI64, DType::kBool};
    return all[pick(0, 2)];
  }

  // All shapes of a rank up to `most`; each unknown extent of a case has its own symbol.
  static std::vector<Dims> shapes(size_t most, const std::string& prefix) {
    std::vector<Dims> out = {{}};
    for (size_t begin = 0, rank = 0; rank < most; ++rank) {
      const size_t end = out.size();
      for (; begin < end; ++begin) {
        for (int i = 0; i < 6; ++i) {
          Dims d = out[begin];
          const Dim all[] = {
              0, 1, 2, 7, Dim::symbol(prefix + std::to_string(rank)), Dim::symbol("n")};
          d.push_back(all[i]);
          out.push_back(std::move(d));
        }
      }
    }
    return out;
  }

  void one() {
    for (const Dims& d : shapes(3, "u"))
      for (DType t : {DType::kF32, DType::kI64, DType::kBool})
        for (int i = 0; i < 3; ++i) check({&op_, {{d, t}}, {}});
  }

  void two() {
    const size_t most = first_of_relation_ ? 3 : 2;
    const std::vector<Dims> left = shapes(most, "u"), right = shapes(most, "v");
    for (const Dims& a : left)
      for (const Dims& b : right) check({&op_, {{a, DType::kF32}, {b, second()}}, {}});
    const std::vector<Dims> more = shapes(3, "u"), others = shapes(3, "v");
    for (int i = 0; i < 4000; ++i) {
      const auto last = static_cast<int64_t>(more.size()) - 1;
      const DType t = element();
      check({&op_,
             {{more[static_cast<size_t>(pick(0, last))], t},
              {others[static_cast<size_t>(pick(0, last))], pick(0, 2) ? t : second()}},
             {}});
    }
  }

  DType second() { return pick(0, 1) ? DType::kF32 : DType::kI64; }

  // Shapes that are near each other, so that some fit.
  void many(size_t count, int cases) {
    for (int i = 0; i < cases; ++i) {
      Case c{&op_, {}, {}};
      Dims base;
      for (int64_t r = pick(0, op_.name == "conv2d" ? 4 : 3); r > 0; --r) base.push_back(extent());
      const DType t = pick(0, 3) ? DType::kF32 : element();
      for (size_t k = 0; k < count; ++k) {
        Operand o{base, t};
        if (pick(0, 2) == 0 && !o.dims.empty()) o.dims.erase(o.dims.begin());
        for (Dim& d : o.dims)
          if (pick(0, 5) == 0) d = extent();
        if (pick(0, 7) == 0) o.dtype = element();
        if (k == 0 && op_.name == "where") o.dtype = DType::kBool;
        if (op_.name == "write_row" && k == 1) o = {{}, DType::kI64};
        if (op_.name == "scatter" && k == 1) o = {{base.empty() ? 1 : base[0]}, DType::kI64};
        c.operands.push_back(std::move(o));
      }
      check(std::move(c));
    }
  }

  ir::AttrValue value(const ir::AttrSpec& spec, const Case& c) {
    using K = ir::AttrSpec::Kind;
    const auto rank = static_cast<int64_t>(c.operands.empty() ? 2 : c.operands[0].dims.size());
    switch (spec.kind) {
      case K::kBool:
        return pick(0, 1) == 1;
      case K::kInt:
        return spec.name.find("axis") != std::string::npos ? pick(-rank - 1, rank) : pick(0, 4);
      case K::kFloat:
        return 0.5;
      case K::kString:
        if (pick(0, 1)) return std::string("nonsense");
        if (spec.name == "reduction") return std::string("add");
        return std::string(op_.name.find("2d") != std::string::npos ? "nhwc" : "panel32");
      case K::kInts: {
        std::vector<int64_t> v(static_cast<size_t>(pick(0, 3) ? rank : pick(0, 4)));
        if (spec.name == "axes") v.resize(static_cast<size_t>(pick(0, 3)));
        if (spec.name == "axes" && op_.name == "transpose") v.resize(static_cast<size_t>(rank));
        for (int64_t& i : v) i = pick(0, 4) ? pick(0, std::max<int64_t>(rank - 1, 0)) : pick(-4, 4);
        return v;
      }
      case K::kFloats:
        return std::vector<double>{0.5};
      case K::kStrings:
        return std::vector<std::string>{"n"};
      case K::kDType:
        return element();
      case K::kDim:
        return pick(0, 3) ? Dim(pick(0, 7)) : extent();
      case K::kDims: {
        Dims v;
        for (int64_t i = pick(0, 3); i > 0; --i) {
          const int64_t what = pick(0, 5);
          v.push_back(what == 0 ? Dim(-1) : what == 1 ? extent() : Dim(pick(0, 7)));
        }
        if (!c.operands.empty() && pick(0, 1)) v = c.operands[0].dims;
        return v;
      }
    }
    NIMBLE_UNREACHABLE("attribute kind");
  }

  void check(Case c) {
    for (const ir::AttrSpec& spec : op_.attrs) {
      // What expose-shapes computed from the operands' values is not ours to choose.
      if (spec.name == "count" && op_.shape_mode != ir::ShapeMode::kDataIndependent) continue;
      if (spec.required || pick(0, 1)) c.attrs[spec.name] = value(spec, c);
    }
    const Outcome o = relate(c);
    if (!o.accepted) return;
    ++accepted;
    if (!is_concrete(c) || !o.demands.empty() || !o.fresh.empty()) return;
    ++evaluated;
    Case runs = c;
    if (o.resolved) {
      runs.attrs = o.resolved->attrs;
      runs.operands.resize(o.resolved->operands);
    }
    if (has_reference(op_.name)) check_run(runs, o.type);
    if (evaluated % 4 == 0) check_generalised(c, o.type);
  }

  const ir::OpInfo& op_;
  const bool first_of_relation_;
  std::mt19937 random_;
};

TEST(RelationSweep, EveryOperatorOnEveryShape) {
  std::set<ir::TypeRelation> seen;
  for (const ir::OpInfo& op : ir::all_ops()) {
    if (op.name.starts_with("memory.")) continue;  // they have no relation
    Sweep sweep(op, seen.insert(op.relation).second);
    sweep.run();
    // Of the others, seeded attributes and shapes hardly ever fit all at once.
    const bool rare = op.name.starts_with("packed_") || op.name == "pack" ||
                      op.name == "blockwise_matmul" || op.name == "assert_shape" ||
                      op.name.find("2d") != std::string::npos ||
                      op.name.find("cell") != std::string::npos || op.name.ends_with("_steps") ||
                      op.name == "attention" || op.name == "batch_norm" ||
                      op.name == "layer_norm" || op.name.starts_with("nms");
    if (!rare) {
      EXPECT_GT(sweep.accepted, 0) << op.name;
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace nimble::reference
