// The template "elementwise": any group of element-wise and injective operators.
//
// Element-wise and injective groups.
//
// Every result is pulled through GroupEvaluator, a vector along the last axis at a time. Work is
// cut into items: a row (all axes but that one), several where rows are short, or a stretch of
// `grain` columns of one where rows are long; threads share the items. make_workload() has already
// made one long row of groups without broadcasting, so that those need no coordinates at all.
//
// These keep vectors full where a plain walk would fall back to single elements, or to few lanes:
//  - A result that ends in reshapes is walked in the shape before them; flat offsets are the same.
//    So (b, h, n, d) -> transpose -> (b, n, h*d) copies stretches of d.
//  - A concatenation is walked operand by operand: inside one there is no seam. Short rows (images
//    side by side along their channels) are made one by one, from the first operand's elements to
//    the last one's, so that each line of memory is written at once; long ones operand after
//    operand, so that threads can share a row.
//  - Where a transposition leaves a last axis shorter than a vector, lanes run along the axis whose
//    elements are neighbours in its operand: (n, 3, h, w) -> (n, h, w, 3) reads rows and stores
//    each third element.
//  - A shuffle of channels, (…, 2, c) -> (…, c, 2), reads a vector of each of the two and stores
//    both interleaved: lanes twice as wide hold one of each, side by side.
//  - A shuffle of a concatenation takes its operands in turn; where turns do not interleave, each
//    is walked by itself.
// Results of equal dims that need neither share one walk and so their common values.
//
// A step of a row is `unroll` vectors. Where the group computes functions they are one vector of as
// many lanes (Unrolled::kTurns): copies one behind the other gain nothing, since the chain of a
// function is longer than what a core has in flight. In a loop of their own on a Zen 3, GELU
// by pairs takes 24 % less time, x * sigmoid(x) by pairs 15 % and by fours 27 %.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "compiler/ir/axes.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::Dim;
using kir::StmtRef;

// Rows of so few elements are not worth the divisions that find their coordinates: an item has
// several, one behind the other.
constexpr int64_t kShortRow = 512, kLines = 8;
constexpr int64_t kLongestJoinedRow = 4096;  // of a concatenation that is made row by row

class ElementwiseLowering {
 public:
  ElementwiseLowering(const Workload& w, const Config& c, const TargetInfo& t)
      : w_(w),
        frame_(make_frame(w)),
        lanes_(group_lanes(*w.group, t)),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        grain_(knob_int(c, "grain")),
        unrolled_(computes_functions(*w.group, lanes_, t) ? Unrolled::kTurns : Unrolled::kCopies) {}

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> nests;
    for (const std::vector<size_t>& together :
         results_together(frame_, [&](const ir::Atom& a) { return is_plain(a); }))
      result(together, nests);
    return make_function(w_, frame_, name, {}, {}, kb::seq(std::move(nests)));
  }

 private:
  GroupEvaluator evaluator() {
    return GroupEvaluator(*w_.group, frame_.parameters, fmt::format("e{}_", next_evaluator_++));
  }

  bool is_plain(const ir::Atom& a) {
    GroupEvaluator group = evaluator();
    return group.vectorizable(a);
  }

  bool is_part(size_t r) const { return frame_.result_dims[r] != frame_.result_types[r]->dims; }
  // The extents by which a result lies in memory, where it is walked as `a`.
  std::vector<Dim> dims_of(size_t r, const ir::Atom& a) const {
    return is_part(r) ? frame_.result_dims[r] : ir::type_of(a)->dims;
  }

  const ir::Binding* formed_by(const std::string& op, const ir::Atom& a) const {
    return kernels::formed_by(*w_.group, op, a);
  }

  // A walk over the elements of values that start at `shift` along `axis` of these.
  struct Walk {
    std::vector<Dim> dims;
    size_t lanes = 0;  // the axis along which they run
    size_t axis = 0;
    Dim shift = 0;
  };

  // Over all elements of results of equal dims.
  Walk whole(GroupEvaluator& group, const std::vector<ir::Atom>& atoms,
             const std::vector<size_t>& results) {
    const ir::Atom& a = atoms[results[0]];
    Walk walk{ir::type_of(a)->dims};
    if (walk.dims.empty()) return walk;
    walk.lanes = walk.dims.size() - 1;
    const auto last = walk.dims.back().as_constant();
    const ir::Binding* turn = last && *last < lanes_ ? formed_by("transpose", a) : nullptr;
    if (turn == nullptr) return walk;
    const size_t axis = place_of_axis(*turn, walk.dims.size() - 1);
    const auto extent = walk.dims[axis].as_constant();
    if (extent && *extent <= *last) return walk;
    for (size_t r : results)
      if (!group.vectorizable(atoms[r], axis)) return walk;
    walk.lanes = axis;
    return walk;
  }

  // Where a transposition puts an axis of its operand.
  static size_t place_of_axis(const ir::Binding& transpose, size_t axis) {
    const auto& axes = ir::attr<std::vector<int64_t>>(transpose.value->attrs, "axes");
    return static_cast<size_t>(std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) -
                               axes.begin());
  }

  // concat(x, y) -> (…, 2, c) -> transpose -> (…, c, 2): the concatenation, which operand each of
  // the turns along the last axis takes, and the axis with c elements.
  struct Shuffle {
    const ir::Var* concat;
    std::vector<size_t> parts;
    size_t axis;
  };
  std::optional<Shuffle> shuffle_of(const GroupEvaluator& group, const ir::Atom& a) const {
    constexpr int64_t kMostTurns = 8;  // each has code of its own
    const ir::Binding* turn = formed_by("transpose", a);
    if (turn == nullptr) return std::nullopt;
    const std::vector<Dim> in = ir::type_of(turn->value->args[0])->dims;
    const size_t rank = in.size();
    if (rank < 2 || place_of_axis(*turn, rank - 2) != rank - 1) return std::nullopt;
    const auto turns = in[rank - 2].as_constant(), length = in[rank - 1].as_constant();
    if (!turns || !length || *turns < 1 || *turns > kMostTurns || *length < 1) return std::nullopt;
    const ir::Atom source = strip_reshapes(group, turn->value->args[0]);
    const ir::Expr* concat = group.definition(source);
    if (concat == nullptr || concat->op != "concat") return std::nullopt;
    const std::vector<Dim> joined = ir::type_of(source)->dims;
    if (ir::axis_of(*concat) + 1 != joined.size() || !joined.back().is_constant(*turns * *length))
      return std::nullopt;
    Shuffle out{source.var.get(), {}, place_of_axis(*turn, rank - 1)};
    int64_t begin = 0;
    for (size_t part = 0; part < concat->args.size(); ++part) {
      const auto extent = ir::type_of(concat->args[part])->dims.back().as_constant();
      // A turn that crosses a seam has two operands.
      if (!extent || *extent % *length != 0) return std::nullopt;
      for (; begin < *extent; begin += *length) out.parts.push_back(part);
      begin = 0;
    }
    return out;
  }

  void result(const std::vector<size_t>& together, std::vector<StmtRef>& nests) {
    const ir::Atom& a = frame_.result_atoms[together[0]];
    // A plain concatenation has its seams between rows: no vector need ask where it lies.
    if (is_plain(a) && (together.size() > 1 || !a.is_var() || !formed_by("concat", a))) {
      GroupEvaluator group = evaluator();
      if (together.size() == 1 && !is_part(together[0]))
        if (StmtRef all = interleaved(group, frame_.result_atoms, together[0])) {
          nests.push_back(std::move(all));
          return;
        }
      const Walk walk = whole(group, frame_.result_atoms, together);
      nests.push_back(nest(group, frame_.result_atoms, together, walk));
      return;
    }
    GroupEvaluator probe = evaluator();
    std::vector<ir::Atom> atoms = frame_.result_atoms;
    // The elements of a part are not one behind the other: no other extents describe them.
    const bool part = is_part(together[0]);
    const ir::Atom inner = part ? probe.resolve(a) : strip_reshapes(probe, a);
    atoms[together[0]] = inner;
    if (StmtRef all = part ? nullptr : interleaved(probe, atoms, together[0])) {
      nests.push_back(std::move(all));
      return;
    }
    if (const auto shuffle = part ? std::nullopt : shuffle_of(probe, inner)) {
      for (size_t turn = 0; turn < shuffle->parts.size(); ++turn) {
        GroupEvaluator group = evaluator();
        group.choose_part(shuffle->concat, shuffle->parts[turn]);
        Walk walk{ir::type_of(inner)->dims, shuffle->axis};
        walk.axis = walk.dims.size() - 1;
        walk.dims.back() = 1;
        walk.shift = static_cast<int64_t>(turn);
        nests.push_back(nest(group, atoms, together, walk));
      }
      return;
    }
    const ir::Binding* concat = inner.is_var() ? formed_by("concat", inner) : nullptr;
    if (concat == nullptr) {
      const Walk walk = whole(probe, atoms, together);
      nests.push_back(nest(probe, atoms, together, walk));
      return;
    }
    if (StmtRef rows = side_by_side(*concat, atoms, together[0])) {
      nests.push_back(std::move(rows));
      return;
    }
    const size_t axis = ir::axis_of(*concat->value);
    Dim begin = 0;
    for (size_t part = 0; part < concat->value->args.size(); ++part) {
      GroupEvaluator group = evaluator();
      group.choose_part(concat->var.get(), part);
      Walk walk{ir::type_of(inner)->dims};
      walk.dims[axis] = ir::type_of(concat->value->args[part])->dims[axis];
      if (walk.dims[axis].is_constant(0)) continue;
      walk.lanes = walk.dims.size() - 1;
      walk.axis = axis;
      walk.shift = begin;
      nests.push_back(nest(group, atoms, together, walk));
      begin = begin + walk.dims[axis];
    }
  }

  // The nest of a result that a concatenation along the last axis forms, row by row; null where
  // rows are long or of unknown length.
  StmtRef side_by_side(const ir::Binding& concat, const std::vector<ir::Atom>& atoms, size_t r) {
    const ir::Atom& a = atoms[r];
    const std::vector<Dim> dims = ir::type_of(a)->dims;
    const auto length = dims.back().as_constant();
    if (dims.size() < 2 || ir::axis_of(*concat.value) + 1 != dims.size() || !length ||
        *length > kLongestJoinedRow)
      return nullptr;
    std::vector<GroupEvaluator> groups;
    std::vector<int64_t> extents;
    for (const ir::Atom& operand : concat.value->args) {
      const auto extent = ir::type_of(operand)->dims.back().as_constant();
      groups.push_back(evaluator());
      groups.back().choose_part(concat.var.get(), extents.size());
      if (!extent || !groups.back().vectorizable(a)) return nullptr;
      extents.push_back(*extent);
    }
    std::vector<Dim> outer(dims.begin(), dims.end() - 1);
    const size_t line_axis = last_of_several(outer);
    const Dim lines = outer[line_axis];
    const bool by_lines = several(outer);
    if (by_lines) outer[line_axis] = ir::ceildiv(lines, kLines);
    const Dim count = count_of(outer);
    const std::string item = fmt::format("item{}", next_nest_++);
    std::vector<StmtRef> body, row;
    std::vector<Dim> at = bind_coordinates("x", outer, Dim::symbol(item), body);
    const Dim first_line = by_lines ? at[line_axis] * kLines : Dim(0);
    if (by_lines) at[line_axis] = Dim::symbol("line");
    at.emplace_back(0);
    const kir::BufferRef& buffer = frame_.results[r];
    int64_t begin = 0;
    for (size_t part = 0; part < groups.size(); ++part) {
      const SliceBody slice = [&](const Slice& s) {
        at.back() = s.at + begin;
        kir::ValueRef v = kb::cast(buffer->dtype, groups[part].value(a, at, s.lanes, s.valid));
        std::vector<StmtRef> all = groups[part].take_statements();
        all.push_back(
            kb::store_strided(buffer, flat_offset(dims_of(r, a), at), 1, std::move(v), s.valid));
        return all;
      };
      row.push_back(vector_loop(fmt::format("c{}", part), 0, extents[part], lanes_, unroll_, slice,
                                unrolled_));
      begin += extents[part];
    }
    StmtRef all = kb::seq(std::move(row));
    if (by_lines)
      all = kb::loop(kir::LoopKind::kSerial, "line", first_line,
                     ir::min(lines - first_line, kLines), std::move(all));
    body.push_back(std::move(all));
    return kb::loop(kir::LoopKind::kThread, item, 0, count, kb::seq(std::move(body)));
  }

  // An unsigned integer of so many bytes.
  static std::optional<DType> bits_of(size_t bytes) {
    switch (bytes) {
      case 1:
        return DType::kU8;
      case 2:
        return DType::kU16;
      case 4:
        return DType::kU32;
      case 8:
        return DType::kU64;
      default:
        return std::nullopt;
    }
  }

  // The nest of a result (…, c, turns) whose lanes run along c, the turns of each stored at once;
  // null where its form is another one.
  StmtRef interleaved(GroupEvaluator& probe, const std::vector<ir::Atom>& atoms, size_t r) {
    const ir::Atom& a = atoms[r];
    const std::vector<Dim> dims = ir::type_of(a)->dims;
    const DType type = frame_.results[r]->dtype;
    if (dims.size() < 2 || type == DType::kBool) return nullptr;
    const auto turns = dims.back().as_constant();
    constexpr int64_t kMostLanes = 64;
    const auto length = dims[dims.size() - 2].as_constant();
    if (!turns || *turns < 2 || *turns * lanes_ > kMostLanes || (length && *length <= *turns) ||
        !bits_of(size_of(type) * static_cast<size_t>(*turns)))
      return nullptr;
    const ir::Binding* turn = formed_by("transpose", a);
    const size_t axis = dims.size() - 2;
    if (turn == nullptr) return nullptr;
    const size_t last = ir::type_of(turn->value->args[0])->dims.size() - 1;
    if (place_of_axis(*turn, last) != axis) return nullptr;
    const auto shuffle = shuffle_of(probe, a);
    std::vector<GroupEvaluator> groups;
    for (int64_t t = 0; t < *turns; ++t) {
      groups.push_back(evaluator());
      if (shuffle)
        groups.back().choose_part(shuffle->concat, shuffle->parts[static_cast<size_t>(t)]);
      if (!groups.back().vectorizable(a, axis)) return nullptr;
    }
    Walk walk{dims, axis};
    walk.axis = dims.size() - 1;
    walk.dims.back() = 1;
    return nest(groups, atoms, {r}, walk);
  }

  // Lane i of each value, one behind the other, then lane i + 1 of each.
  static kir::ValueRef interleave(const std::vector<kir::ValueRef>& values) {
    const DType type = values[0]->dtype;
    const int lanes = values[0]->lanes;
    const size_t bytes = size_of(type);
    const DType narrow = *bits_of(bytes), wide = *bits_of(bytes * values.size());
    kir::ValueRef all;
    for (size_t i = 0; i < values.size(); ++i) {
      kir::ValueRef v = kb::cast(wide, kb::bitcast(narrow, values[i]));
      if (i > 0)
        v = kb::binary(kir::BinaryOp::kShl, std::move(v),
                       kb::integer(wide, static_cast<int64_t>(8 * bytes * i), lanes));
      all = all ? kb::binary(kir::BinaryOp::kOr, std::move(all), std::move(v)) : std::move(v);
    }
    return kb::bitcast(type, std::move(all));
  }

  // Whether telling rows apart takes a division.
  static bool several(const std::vector<Dim>& axes) {
    return std::count_if(axes.begin(), axes.end(), [](const Dim& d) { return !d.is_constant(1); }) >
           1;
  }

  // The last axis whose extent is not 1, or the first.
  static size_t last_of_several(const std::vector<Dim>& axes) {
    size_t last = axes.empty() ? 0 : axes.size() - 1;
    while (last > 0 && axes[last].is_constant(1)) --last;
    return last;
  }

  StmtRef nest(GroupEvaluator& group, const std::vector<ir::Atom>& atoms,
               const std::vector<size_t>& results, const Walk& walk) {
    return nest(std::span(&group, 1), atoms, results, walk);
  }

  // `groups`: of each element along the last axis, where the walk takes all of these together.
  StmtRef nest(std::span<GroupEvaluator> groups, const std::vector<ir::Atom>& atoms,
               const std::vector<size_t>& results, const Walk& walk) {
    GroupEvaluator& group = groups[0];
    const bool scalar = walk.dims.empty();
    const auto along = scalar ? std::nullopt : std::optional<size_t>(walk.lanes);
    const bool vectors = group.vectorizable(atoms[results[0]], along);
    const int lanes = vectors ? lanes_ : 1;
    const Dim columns = scalar ? Dim(1) : walk.dims[walk.lanes];
    const auto lanes_at = static_cast<std::ptrdiff_t>(walk.lanes);
    std::vector<Dim> outer = walk.dims, steps(walk.dims.size(), 0);
    if (!scalar) {
      outer.erase(outer.begin() + lanes_at);
      steps[walk.lanes] = 1;
    }
    const size_t line_axis = last_of_several(outer);
    const Dim lines = outer.empty() ? Dim(1) : outer[line_axis];
    const auto known = columns.as_constant();
    const Dim chunks = known && *known <= grain_ ? Dim(1) : ir::ceildiv(columns, grain_);
    const bool by_lines = chunks.is_constant(1) && known && *known <= kShortRow && several(outer);
    if (by_lines) outer[line_axis] = ir::ceildiv(lines, kLines);
    const Dim rows = count_of(outer);
    const std::string item = fmt::format("item{}", next_nest_++);
    const Dim i = Dim::symbol(item);
    std::vector<StmtRef> body;
    Dim row = i, first = 0, width = columns;
    if (!chunks.is_constant(1)) {
      if (!rows.is_constant(1)) {
        body.push_back(kb::let_index("row", kb::index(ir::floordiv(i, chunks))));
        row = Dim::symbol("row");
      } else {
        row = 0;
      }
      body.push_back(kb::let_index("first", kb::index((i - row * chunks) * grain_)));
      first = Dim::symbol("first");
      body.push_back(kb::let_index("width", kb::index(ir::min(columns - first, grain_)),
                                   ir::SymbolFacts{0, grain_, 1}));
      width = Dim::symbol("width");
    }
    std::vector<Dim> outer_at = bind_coordinates("x", outer, row, body);
    const Dim first_line = by_lines ? outer_at[line_axis] * kLines : Dim(0);
    if (by_lines) outer_at[line_axis] = Dim::symbol("line");
    const SliceBody slice = [&](const Slice& s) {
      std::vector<Dim> at = outer_at;
      if (!scalar) {
        at.insert(at.begin() + lanes_at, s.at);
        at[walk.axis] = at[walk.axis] + walk.shift;
      }
      std::vector<StmtRef> ahead, stores;
      for (size_t r : results) {
        const kir::BufferRef& buffer = frame_.results[r];
        const std::vector<Dim> dims = dims_of(r, atoms[r]);
        if (groups.size() > 1) {
          std::vector<kir::ValueRef> turns;
          for (GroupEvaluator& one : groups) {
            at.back() = static_cast<int64_t>(turns.size());
            turns.push_back(kb::broadcast(
                kb::cast(buffer->dtype, one.value_along(atoms[r], at, steps, s.lanes, s.valid)),
                s.lanes));
            for (StmtRef& q : one.take_statements()) ahead.push_back(std::move(q));
          }
          at.back() = 0;
          auto valid = s.valid;
          if (valid) valid = *valid * static_cast<int64_t>(groups.size());
          stores.push_back(
              kb::store_strided(buffer, flat_offset(dims, at), 1, interleave(turns), valid));
          continue;
        }
        kir::ValueRef v = group.value_along(atoms[r], at, steps, s.lanes, s.valid);
        v = kb::cast(buffer->dtype, v);
        const Dim stride = scalar ? Dim(1) : flat_offset(dims, steps);
        stores.push_back(kb::store_strided(buffer, flat_offset(dims, at), stride, v, s.valid));
      }
      std::vector<StmtRef> all = group.take_statements();
      all.insert(all.end(), ahead.begin(), ahead.end());
      all.insert(all.end(), stores.begin(), stores.end());
      return all;
    };
    // Turns that are interleaved make vectors of many lanes as they are, and single elements none.
    const Unrolled as = lanes > 1 && groups.size() == 1 ? unrolled_ : Unrolled::kCopies;
    StmtRef all = unroll_ == 1 ? masked_loop("c", first, width, lanes, slice)
                               : vector_loop("c", first, width, lanes, unroll_, slice, as);
    if (by_lines)
      all = kb::loop(kir::LoopKind::kSerial, "line", first_line,
                     ir::min(lines - first_line, kLines), std::move(all));
    body.push_back(std::move(all));
    return kb::loop(kir::LoopKind::kThread, item, 0, rows * chunks, kb::seq(std::move(body)));
  }

  const Workload& w_;
  Frame frame_;
  int lanes_, unroll_;
  int64_t grain_;
  Unrolled unrolled_;
  int next_evaluator_ = 0, next_nest_ = 0;
};

}  // namespace

bool ElementwiseTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return is_pullable_group(*w.group);
}

std::vector<Knob> ElementwiseTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2, 4}), int_knob("grain", {1024, 4096, 16384})};
}

bool ElementwiseTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

// A concatenation has a nest for each part: where their width is symbolic, copies of the body for
// the rest of a row would multiply that.
Config ElementwiseTemplate::default_config(const Workload& w, const TargetInfo&) const {
  const auto& all = w.group->body->bindings;
  const bool parts = std::any_of(all.begin(), all.end(), [](const ir::Binding& b) {
    return b.value->op == "concat" && !b.var->type->dims.back().as_constant();
  });
  return {{"unroll", int64_t{parts ? 1 : 2}}, {"grain", int64_t{4096}}};
}

Lowered ElementwiseTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                   const std::string& name) const {
  Dim elements = 0;
  const ir::Type r = ir::type_of(w.group->body->result);
  for (const ir::Type& e : r->kind == ir::TypeKind::kTuple ? r->elements : std::vector<ir::Type>{r})
    elements = elements + ir::element_count(e);
  return one_kernel(ElementwiseLowering(w, c, t).run(name), threads_for(elements));
}

}  // namespace nimble::kernels
