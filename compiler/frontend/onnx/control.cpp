// Branches and loops.
//
// A branch is an `if` of the IR, whose blocks are built like any others. A loop is a function that
// calls itself in tail position:
//
//   fn @loop(%step, %go, %state…, %captured…) -> (state…) {
//     if (%step < %count and %go) { body; @loop(%step + 1, go', state'…, captured…) } else { state
//     }
//   }
//
// Which extents of the state stay as they are is found by building the body: an extent that one
// step changes becomes a symbol of its own, and the body is built again, until nothing changes.
// What a loop stacks is a state that grows by one row each step.
//
// The function has symbols of its own. An extent of the caller, be it an expression, is one symbol
// there; equal extents are the same symbol, and results are translated back.
#include <algorithm>

#include "compiler/frontend/onnx/graph_builder.h"
#include "compiler/frontend/onnx/sequences.h"
#include "compiler/ir/op.h"

namespace nimble::frontend::onnx {

using Values = std::vector<Value>;

GraphBuilder::Scope GraphBuilder::enter(bool function) {
  Scope outer{parameters_, std::move(bindings_), facts_, elements_};
  bindings_.clear();
  if (function) {
    parameters_.clear();
    facts_ = {};
    elements_.clear();
  }
  return outer;
}

std::vector<ir::Binding> GraphBuilder::leave(Scope outer) {
  std::vector<ir::Binding> inner = std::move(bindings_);
  parameters_ = std::move(outer.parameters);
  bindings_ = std::move(outer.bindings);
  facts_ = std::move(outer.facts);
  elements_ = std::move(outer.elements);
  return inner;
}

// The fields of a tuple, whose variables carry their types: inference takes over their symbols.
Values GraphBuilder::named_fields(ir::ExprRef expr, const std::vector<ir::Type>& types) {
  const Value tuple = bound(std::move(expr), ir::tuple_type(types), std::nullopt);
  Values out;
  for (size_t i = 0; i < types.size(); ++i) {
    out.push_back(bound(ir::make_get_field(tuple.atom, static_cast<int64_t>(i), location_),
                        types[i], std::nullopt));
    out.back().atom.var->type = types[i];
  }
  return out;
}

namespace {

ir::BlockRef block_of(std::vector<ir::Binding> bindings, const Values& results,
                      const ir::Location& at) {
  ir::BlockBuilder b;
  for (ir::Binding& binding : bindings) b.append(std::move(binding));
  std::vector<ir::Atom> atoms;
  for (const Value& v : results) atoms.push_back(v.atom);
  return b.finish(b.bind(ir::make_tuple(std::move(atoms), at), "results"));
}

ir::Dim unknown() {
  return ir::Dim::symbol(ir::fresh_symbol());
}

void require_alike(const Value& a, const Value& b, const std::string& place, const char* what) {
  if (a.type->kind == ir::TypeKind::kTensor && b.type->kind == ir::TypeKind::kTensor &&
      a.dtype() == b.dtype() && a.rank() == b.rank())
    return;
  throw Error(Status::kUnsupported, place,
              fmt::format("{} has the types {} and {}", what, ir::str(a.type), ir::str(b.type)),
              "give both the same rank and element type");
}

}  // namespace

Value GraphBuilder::stored_after(std::vector<ir::Binding>& block, const Value& v,
                                 const ir::Type& type) {
  bindings_.swap(block);
  Value out = stored(*this, v, type);
  bindings_.swap(block);
  return out;
}

Values GraphBuilder::branch(const Value& condition, const std::function<Values()>& then,
                            const std::function<Values()>& otherwise) {
  const ir::Location at = location_;
  const std::string hint = hint_;
  std::vector<Values> results;
  std::vector<std::vector<ir::Binding>> bindings;
  for (const auto* side : {&then, &otherwise}) {
    Scope outer = enter(false);
    results.push_back((*side)());
    bindings.push_back(leave(std::move(outer)));
    set_place(at, hint);
  }
  if (results[0].size() != results[1].size() || results[0].empty())
    throw Error(Status::kCorrupt, at.str(), "the branches give different numbers of results",
                "export the model again");
  std::vector<ir::Type> types;
  std::vector<Values> given(2);  // without lists and optional values that are empty in both
  for (size_t i = 0; i < results[0].size(); ++i) {
    const Value &a = results[0][i], &b = results[1][i];
    if (is_plain(a) && is_plain(b)) {
      require_alike(a, b, at.str(), "a result of If");
      Dims dims = a.dims();
      for (size_t d = 0; d < dims.size(); ++d)
        if (facts_.equal(dims[d], b.dim(d)) != ir::Proof::kYes) dims[d] = unknown();
      types.push_back(ir::tensor_type(std::move(dims), a.dtype()));
      for (size_t s = 0; s < 2; ++s) given[s].push_back(results[s][i]);
      continue;
    }
    const ir::Type type = joined_type(stored_type(a), stored_type(b), at.str());
    if (!is_complete(type)) continue;
    types.push_back(type);
    for (size_t s = 0; s < 2; ++s)
      given[s].push_back(stored_after(bindings[s], results[s][i], type));
  }
  Values out = results[0];
  if (types.empty()) return out;
  std::vector<ir::BlockRef> blocks;
  for (size_t s = 0; s < 2; ++s) blocks.push_back(block_of(std::move(bindings[s]), given[s], at));
  const Values fields = named_fields(ir::make_if(condition.atom, blocks[0], blocks[1], at), types);
  size_t next = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const bool both = is_plain(out[i]) && is_plain(results[1][i]);
    if (both || is_complete(joined_type(stored_type(out[i]), stored_type(results[1][i]), at.str())))
      out[i] = fields[next++];
  }
  return out;
}

namespace {

// The extents of a caller as symbols of a function, and back.
class Translation {
 public:
  ir::Dim inner(const ir::Dim& outer) {
    if (outer.as_constant()) return outer;
    auto [it, added] = inner_.try_emplace(outer);
    if (added) {
      const std::string name = fmt::format("d{}", inner_.size() - 1);
      it->second = ir::Dim::symbol(name);
      outer_.emplace(name, outer);
    }
    return it->second;
  }
  ir::Type inner(const ir::Type& t) {
    if (t->kind != ir::TypeKind::kTensor) return t;  // has no extents
    Dims dims;
    for (const ir::Dim& d : t->dims) dims.push_back(inner(d));
    return ir::tensor_type(std::move(dims), t->dtype);
  }
  // Nothing where the caller has no such extent.
  std::optional<ir::Dim> outer(const ir::Dim& inner) const {
    for (const std::string& s : inner.symbols())
      if (!outer_.contains(s)) return std::nullopt;
    return inner.substitute(outer_);
  }

 private:
  std::map<ir::Dim, ir::Dim> inner_;
  std::map<std::string, ir::Dim> outer_;
};

// What the caller stacks on has no rows; where it does not even know their extents, the first row
// says them.
Value stacked_on(GraphBuilder& g, const Value& step, const Value& rows, const Value& row) {
  const auto join = [&] { return g.call("concat", {rows, row}, {{"axis", int64_t{0}}}); };
  bool known = true;
  for (size_t d = 1; d < rows.dims().size(); ++d) {
    const auto symbol = rows.dim(d).as_symbol();
    known &= !symbol || !symbol->starts_with("changes");
  }
  if (known) return join();
  return g.branch(
      g.call("equal", {step, g.integer(0)}), [&] { return Values{row}; },
      [&] { return Values{join()}; })[0];
}

}  // namespace

namespace {

// The elements of lists, in their order, in the place of the lists; constants need no place.
void flatten(const Values& values, Values* out) {
  for (const Value& v : values) {
    if (is_list(v))
      flatten(*v.items, out);
    else if (!is_nothing(v) && !v.is_constant())
      out->push_back(v);
  }
}

// The same values and lists, of what has taken the places.
Values rebuilt(const Values& values, const Values& places, size_t* next) {
  Values out;
  for (const Value& v : values) {
    if (is_list(v))
      out.push_back(list_of(rebuilt(*v.items, places, next)));
    else if (!is_nothing(v) && !v.is_constant())
      out.push_back(places[(*next)++]);
    else
      out.push_back(v);
  }
  return out;
}

}  // namespace

Value GraphBuilder::random_stream() {
  randomness_.used = true;
  const Value outer = randomness_.outer.value_or(integer(0));
  if (!randomness_.step) return outer;
  const Value bits = call("random_bits", {*randomness_.step, outer}, {{"key", int64_t{0}}});
  return call("bitcast", {bits}, {{"dtype", DType::kI64}});
}

Value GraphBuilder::random_bits(const ir::Dim& count, int64_t key) {
  const Value index =
      call("range", {},
           {{"count", count}, {"start", ir::Dim(0)}, {"step", ir::Dim(1)}, {"dtype", DType::kI64}});
  return call("random_bits", {index, random_stream()}, {{"key", key}});
}

Values GraphBuilder::loop(const Loop& loop) {
  const ir::Location at = location_;
  const std::string hint = hint_;
  std::string name = loop.name;
  for (int i = 1; module_.find(name); ++i) name = fmt::format("{}_{}", loop.name, i);
  module_.set(name, nullptr);

  const Value yes = scalar(1, DType::kBool);
  const Value first = integer(0);
  Translation translation;
  std::vector<ir::Type> captured_types, state_types, stacked_types;
  Values taken_along;
  flatten(loop.captured, &taken_along);
  for (const Value& v : taken_along) captured_types.push_back(translation.inner(v.type));
  // A state that is an empty list, or nothing, is no parameter until a step gives it a type.
  for (const Value& v : loop.state)
    state_types.push_back(is_plain(v) ? translation.inner(v.type) : stored_type(v));
  const bool limited = loop.count.has_value();
  size_t own = 0;  // symbols of extents that change
  // The stream of random numbers around this loop comes along if the body draws any and it is not
  // the constant one.
  const Randomness around = randomness_;
  bool draws = false;
  const auto takes_stream = [&](bool trial) {
    return (around.step || around.outer) && (trial || draws);
  };

  // Builds the function's body under the present types; returns whether they hold.
  ir::BlockRef body;
  std::vector<ir::VarRef> parameters;
  const auto attempt = [&](bool trial) {
    Scope outer = enter(true);
    const auto make = [&](const std::string& n, const ir::Type& t) { return parameter(n, t); };
    const Value step = make("step", ir::tensor_type({}, DType::kI64));
    const Value go = make("go", ir::tensor_type({}, DType::kBool));
    std::optional<Value> count;
    if (limited) count = make("count", ir::tensor_type({}, DType::kI64));
    Values state, present, stacked, captured;
    for (size_t i = 0; i < state_types.size(); ++i) {
      const bool is_there = is_complete(state_types[i]);
      state.push_back(is_there ? make("state", state_types[i]) : loop.state[i]);
      if (is_there) present.push_back(state.back());
    }
    if (!trial)
      for (const ir::Type& t : stacked_types) stacked.push_back(make("stack", t));
    for (const ir::Type& t : captured_types) captured.push_back(make("captured", t));
    randomness_ = {step, {}, false};
    if (takes_stream(trial)) randomness_.outer = make("stream", ir::tensor_type({}, DType::kI64));
    std::vector<ir::VarRef> own_parameters = parameters_;
    Value more = go;
    if (count) more = call("and", {call("less", {step, *count}), go});
    std::vector<ir::Binding> head = std::move(bindings_);
    bindings_.clear();

    size_t place = 0;
    Step next = loop.body(step, state, rebuilt(loop.captured, captured, &place));
    set_place(at, hint);
    const Randomness inside = std::exchange(randomness_, around);
    draws |= inside.used;
    bool holds = true;
    if (next.state.size() != state.size())
      throw Error(Status::kCorrupt, at.str(), "the body gives another number of states",
                  "export the model again");
    for (size_t i = 0; i < state.size(); ++i) {
      if (!is_plain(state[i])) {
        const ir::Type type = joined_type(state_types[i], stored_type(next.state[i]), at.str());
        holds &= ir::equal(type, state_types[i]);
        state_types[i] = type;
        continue;
      }
      require_alike(state[i], next.state[i], at.str(), "a state of the loop");
      Dims dims = state_types[i]->dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (facts_.equal(dims[d], next.state[i].dim(d)) == ir::Proof::kYes) continue;
        const auto symbol = dims[d].as_symbol();
        if (symbol && symbol->starts_with("changes")) continue;
        dims[d] = ir::Dim::symbol(fmt::format("changes{}", own++));
        holds = false;
      }
      state_types[i] = ir::tensor_type(std::move(dims), state[i].dtype());
    }
    if (trial) {
      for (size_t i = 0; i < next.outputs.size(); ++i) {
        Dims dims = next.outputs[i].dims();
        for (ir::Dim& d : dims)
          if (!translation.outer(d)) d = ir::Dim::symbol(fmt::format("changes{}", own++));
        dims.insert(dims.begin(), ir::Dim::symbol(fmt::format("rows{}", i)));
        stacked_types.push_back(ir::tensor_type(std::move(dims), next.outputs[i].dtype()));
      }
      holds = false;
    }
    if (holds) {
      Value go_on = next.go_on.value_or(yes);
      Values args = {call("add", {step, integer(1)}), go_on};
      if (count) args.push_back(*count);
      for (size_t i = 0; i < state.size(); ++i)
        if (is_complete(state_types[i]))
          args.push_back(is_plain(next.state[i]) ? next.state[i]
                                                 : stored(*this, next.state[i], state_types[i]));
      for (size_t i = 0; i < stacked.size(); ++i) {
        const Value row = call("unsqueeze", {next.outputs[i]}, {{"axes", Axes{0}}});
        args.push_back(stacked_on(*this, step, stacked[i], row));
      }
      args.insert(args.end(), captured.begin(), captured.end());
      if (inside.outer) args.push_back(*inside.outer);
      std::vector<ir::Atom> atoms;
      for (const Value& v : args) atoms.push_back(v.atom);
      ir::BlockBuilder taken;
      for (ir::Binding& b : bindings_) taken.append(std::move(b));
      const ir::VarRef rest = taken.bind(
          ir::make_call_function(ir::Atom::of_global(name), std::move(atoms), at), "rest");
      Values results = present;
      results.insert(results.end(), stacked.begin(), stacked.end());
      ir::BlockBuilder whole;
      for (ir::Binding& b : head) whole.append(std::move(b));
      const ir::VarRef out = whole.bind(
          ir::make_if(more.atom, taken.finish(rest), block_of({}, results, at), at), "results");
      body = whole.finish(out);
      parameters = std::move(own_parameters);
    }
    leave(std::move(outer));
    set_place(at, hint);
    return holds;
  };
  bool done = attempt(true);
  constexpr int kMostAttempts = 64;  // every one but the last generalises an extent
  for (int i = 0; !done && i < kMostAttempts; ++i) done = attempt(false);
  NIMBLE_CHECK(done, "the extents of {} never settle", name);

  // What changes is any extent in the result type, and a new symbol here.
  std::vector<ir::Type> declared, results;
  Values initial;
  for (size_t i = 0; i < state_types.size(); ++i) {
    if (!is_complete(state_types[i])) continue;
    const Value& v = loop.state[i];
    initial.push_back(is_plain(v) ? v : stored(*this, v, state_types[i]));
  }
  const auto changes = [](const ir::Dim& d) {
    const auto s = d.as_symbol();
    return s && (s->starts_with("changes") || s->starts_with("rows"));
  };
  const auto add_result = [&](const ir::Type& t) {
    if (t->kind != ir::TypeKind::kTensor) {
      declared.push_back(t);
      results.push_back(t);
      return;
    }
    Dims any = t->dims, out = t->dims;
    for (size_t d = 0; d < any.size(); ++d) {
      if (changes(any[d])) {
        any[d] = ir::Dim::any();
        out[d] = unknown();
      } else {
        out[d] = *translation.outer(out[d]);
      }
    }
    declared.push_back(ir::tensor_type(std::move(any), t->dtype));
    results.push_back(ir::tensor_type(std::move(out), t->dtype));
  };
  for (const ir::Type& t : state_types)
    if (is_complete(t)) add_result(t);
  for (const ir::Type& t : stacked_types) {
    add_result(t);
    Dims empty = results.back()->dims;
    for (size_t d = 0; d < empty.size(); ++d)
      if (changes(t->dims[d])) empty[d] = 0;
    initial.push_back(full(std::move(empty), 0, t->dtype));
  }
  module_.set(name, ir::make_function_of(parameters, body, ir::tuple_type(declared), {}, at));

  std::vector<ir::Atom> args = {first.atom, loop.condition.value_or(yes).atom};
  if (limited) args.push_back(loop.count->atom);
  for (const Value& v : initial) args.push_back(v.atom);
  for (const Value& v : taken_along) args.push_back(v.atom);
  if (takes_stream(false)) args.push_back(random_stream().atom);
  randomness_.used |= draws;
  if (results.empty()) return loop.state;
  const Values fields =
      named_fields(ir::make_call_function(ir::Atom::of_global(name), std::move(args), at), results);
  Values out;
  size_t next = 0;
  for (size_t i = 0; i < state_types.size(); ++i)
    out.push_back(is_complete(state_types[i]) ? fields[next++] : loop.state[i]);
  out.insert(out.end(), fields.begin() + static_cast<long>(next), fields.end());
  return out;
}

}  // namespace nimble::frontend::onnx
