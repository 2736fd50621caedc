#include "compiler/frontend/onnx/sequences.h"

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/sequence_functions.h"
#include "compiler/ir/op.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;
using ir::Type;
using ir::TypeKind;

constexpr const char* kSequence = "Sequence";
constexpr const char* kOptional = "Optional";

bool is_data(const Type& t, const char* name) {
  return t->kind == TypeKind::kData && t->name == name;
}

Type any_extents(const Type& t) {
  return ir::tensor_type(Dims(t->dims.size(), Dim::any()), t->dtype);
}

// A name for functions of this type: "f32_2" for matrices.
std::string suffix_of(const Type& t) {
  if (t->kind == TypeKind::kTensor) return fmt::format("{}_{}", name_of(t->dtype), t->dims.size());
  return fmt::format("{}_{}", is_data(t, kSequence) ? "sequences" : "optionals",
                     suffix_of(t->elements[0]));
}

// An expression of some value of the type, where one is needed that nobody reads.
std::string some_value(const Type& t) {
  if (is_data(t, kSequence)) return "SequenceEmpty()";
  if (is_data(t, kOptional)) return "OptionalEmpty()";
  return fmt::format("full() {{shape = ({}), dtype = {}, value = 0.0}}",
                     fmt::join(std::vector<int>(t->dims.size(), 0), ", "), name_of(t->dtype));
}

std::string filled(std::string text, const std::string& key, const std::string& value) {
  for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += value.size())
    text.replace(at, key.size(), value);
  return text;
}

// The text with its element type filled in, as functions of the module.
void define(GraphBuilder& g, const Type& element, const std::string& text,
            const std::vector<std::pair<std::string, std::string>>& more = {}) {
  std::string t = text;
  for (const auto& [key, value] : more) t = filled(std::move(t), key, value);
  t = filled(std::move(t), "$F", suffix_of(element));
  t = filled(std::move(t), "$NONE", some_value(element));
  g.define_functions(filled(std::move(t), "$T", ir::str(element)));
}

// A value of a data type, or of what a function gives: its extents are known to the run only.
Type with_own_extents(const Type& t) {
  if (t->kind != TypeKind::kTensor) return t;
  Dims dims;
  for (size_t i = 0; i < t->dims.size(); ++i) dims.push_back(Dim::symbol(ir::fresh_symbol()));
  return ir::tensor_type(std::move(dims), t->dtype);
}

Value call(GraphBuilder& g, const std::string& function, const std::vector<Value>& args,
           const Type& result) {
  return g.call_any(function, args, with_own_extents(result));
}

const Type& element_of(const Value& v) {
  return v.type->elements[0];
}

// As a value of the data type Sequence, with its functions defined.
Value walkable(GraphBuilder& g, const Value& s) {
  const Type type = stored_type(s);
  if (!is_complete(type))
    throw Error(Status::kUnsupported, g.place(), "an element of an empty sequence is asked for",
                "export the model without it");
  const Value out = stored(g, s, type);
  define(g, element_of(out), kWalks);
  return out;
}

Value scalar(GraphBuilder& g, const Value& v) {
  Arithmetic a(g);
  return a.cast(v.rank() == 0 ? v : g.reshape(v, {}), DType::kI64);
}

// `v`, an i64 scalar, after a check that 0 <= v < limit.
Value checked(GraphBuilder& g, const Value& v, const Value& limit, const char* what) {
  Arithmetic a(g);
  const Value one = g.reshape(v, {1});
  const auto symbols = g.read_contents(a.concat({one, g.reshape(limit, {1})}, 0));
  const Dim &i = (*symbols)[0], &n = (*symbols)[1];
  return g.reshape(g.call("assert_shape", {one},
                          {{"left", Dims{ir::max(i, Dim(0)), ir::min(i, n - Dim(1))}},
                           {"right", Dims{i, i}},
                           {"what", std::string(what)}}),
                   {});
}

// How many elements stand behind position `p` of `places` ones.
Value from_end(GraphBuilder& g, const Value& position, const Value& length, const Value& places) {
  Arithmetic a(g);
  const Value p = scalar(g, position);
  const Value counted = g.call("where", {a.less(p, 0), a.add(p, length), p});
  return a.sub(a.sub(places, 1), checked(g, counted, places, "the position in a sequence"));
}

std::optional<int64_t> known_integer(const Value& v) {
  if (!v.contents || v.contents->size() != 1) return std::nullopt;
  return (*v.contents)[0].as_constant();
}

// The place in a list of `places` that a position known now means.
std::optional<size_t> known_place(GraphBuilder& g, const std::optional<Value>& position,
                                  size_t length, size_t places) {
  const auto count = static_cast<int64_t>(length), all = static_cast<int64_t>(places);
  std::optional<int64_t> p = position ? known_integer(*position) : all - 1;
  if (!p) return std::nullopt;
  if (*p < 0) *p += count;
  if (*p < 0 || *p >= all)
    throw Error(Status::kCorrupt, g.place(),
                fmt::format("a sequence of {} elements has no such position", count),
                "export the model again");
  return static_cast<size_t>(*p);
}

}  // namespace

Value list_of(std::vector<Value> items) {
  Value v;
  v.type = ir::data_type(kSequence);
  v.items = std::make_shared<const std::vector<Value>>(std::move(items));
  return v;
}

Value nothing() {
  Value v;
  v.type = ir::data_type(kOptional);
  return v;
}

bool is_list(const Value& v) {
  return v.items != nullptr;
}

bool is_nothing(const Value& v) {
  return is_data(v.type, kOptional) && v.type->elements.empty();
}

bool is_sequence(const Value& v) {
  return is_data(v.type, kSequence);
}

bool is_plain(const Value& v) {
  return v.type->kind == TypeKind::kTensor;
}

Type stored_type(const Value& v) {
  if (is_plain(v)) return any_extents(v.type);
  if (!is_list(v) || v.items->empty()) return v.type;
  Type element = stored_type(v.items->front());
  for (const Value& item : *v.items) element = joined_type(element, stored_type(item), "");
  return ir::data_type(kSequence, {element});
}

bool is_complete(const Type& t) {
  return t->kind == TypeKind::kTensor || (!t->elements.empty() && is_complete(t->elements[0]));
}

Type joined_type(const Type& a, const Type& b, const std::string& place) {
  const auto element = [](const Type& t) {
    return is_data(t, kOptional) ? t->elements : std::vector{t};
  };
  if (is_data(a, kOptional) || is_data(b, kOptional)) {
    const auto x = element(a), y = element(b);
    if (x.empty() || y.empty()) return ir::data_type(kOptional, x.empty() ? y : x);
    return ir::data_type(kOptional, {joined_type(x[0], y[0], place)});
  }
  if (is_data(a, kSequence) && is_data(b, kSequence)) {
    if (a->elements.empty() || b->elements.empty()) return a->elements.empty() ? b : a;
    return ir::data_type(kSequence, {joined_type(a->elements[0], b->elements[0], place)});
  }
  if (a->kind == TypeKind::kTensor && b->kind == TypeKind::kTensor && a->dtype == b->dtype &&
      a->dims.size() == b->dims.size())
    return any_extents(a);
  throw Error(Status::kUnsupported, place,
              fmt::format("a value may be {} or {}", ir::str(a), ir::str(b)),
              "give both the same rank and element type");
}

Value stored(GraphBuilder& g, const Value& v, const Type& type) {
  if (is_plain(v) && type->kind == TypeKind::kTensor) return v;
  if (!is_list(v) && !is_nothing(v) && ir::equal(v.type, type)) return v;
  g.define_data(type->name);
  if (is_data(type, kOptional)) {
    if (is_nothing(v)) return g.construct("OptionalEmpty", {}, type);
    if (is_data(v.type, kOptional))
      throw Error(Status::kUnsupported, g.place(), "an optional value changes its element's type",
                  "export the model without it");
    return g.construct("OptionalOf", {stored(g, v, type->elements[0])}, type);
  }
  if (!is_list(v))
    throw Error(Status::kUnsupported, g.place(),
                fmt::format("{} stands where {} is needed", ir::str(v.type), ir::str(type)),
                "export the model without it");
  Value out = g.construct("SequenceEmpty", {}, type);
  for (const Value& item : *v.items)
    out = g.construct("SequenceOf", {out, stored(g, item, type->elements[0])}, type);
  return out;
}

Value sequence_length(GraphBuilder& g, const Value& s) {
  if (is_list(s)) return g.integer(static_cast<int64_t>(s.items->size()));
  const Value w = walkable(g, s);
  return call(g, "sequence_length_" + suffix_of(element_of(w)), {w, g.integer(0)},
              ir::tensor_type({}, DType::kI64));
}

Value sequence_at(GraphBuilder& g, const Value& s, const Value& position) {
  if (is_list(s))
    if (const auto at = known_place(g, position, s.items->size(), s.items->size()))
      return (*s.items)[*at];
  const Value w = walkable(g, s), length = sequence_length(g, w);
  return call(g, "sequence_at_" + suffix_of(element_of(w)),
              {w, from_end(g, position, length, length)}, element_of(w));
}

Value sequence_with(GraphBuilder& g, const Value& s, const Value& x,
                    const std::optional<Value>& position) {
  if (is_list(s))
    if (const auto at = known_place(g, position, s.items->size(), s.items->size() + 1)) {
      std::vector<Value> items = *s.items;
      items.insert(items.begin() + static_cast<long>(*at), x);
      return list_of(std::move(items));
    }
  const Type type =
      joined_type(stored_type(s), ir::data_type(kSequence, {stored_type(x)}), g.place());
  const Value w = walkable(g, stored(g, s, type)), item = stored(g, x, element_of(w));
  if (!position) return g.construct("SequenceOf", {w, item}, w.type);
  Arithmetic a(g);
  const Value length = sequence_length(g, w);
  return call(g, "sequence_insert_" + suffix_of(element_of(w)),
              {w, from_end(g, *position, length, a.add(length, 1)), item}, w.type);
}

Value sequence_without(GraphBuilder& g, const Value& s, const std::optional<Value>& position) {
  if (is_list(s))
    if (const auto at = known_place(g, position, s.items->size(), s.items->size())) {
      std::vector<Value> items = *s.items;
      items.erase(items.begin() + static_cast<long>(*at));
      return list_of(std::move(items));
    }
  const Value w = walkable(g, s), length = sequence_length(g, w);
  return call(g, "sequence_erase_" + suffix_of(element_of(w)),
              {w, from_end(g, position.value_or(g.integer(-1)), length, length)}, w.type);
}

Value sequence_joined(GraphBuilder& g, const Value& s, int64_t axis, bool stack) {
  Arithmetic a(g);
  if (is_list(s) && !s.items->empty()) {
    std::vector<Value> items = *s.items;
    if (stack)
      for (Value& v : items) v = a.unsqueeze(v, {axis});
    return items.size() == 1 ? items[0] : a.concat(items, axis);
  }
  const Value w = walkable(g, s);
  const Type& element = element_of(w);
  if (element->kind != TypeKind::kTensor)
    throw Error(Status::kUnsupported, g.place(), "sequences of sequences have no sum",
                "export the model without it");
  const Type whole =
      ir::tensor_type(Dims(element->dims.size() + (stack ? 1 : 0), Dim::any()), element->dtype);
  const std::string name =
      fmt::format("{}_along_{}{}", suffix_of(element), stack ? "new_" : "", axis);
  std::string text = kWalks;
  text = filled(filled(std::move(text), "$NONE", some_value(element)), "$F", suffix_of(element));
  define(g, element, text + kJoins,
         {{"$NONE", some_value(whole)},
          {"$F", name},
          {"$E", suffix_of(element)},
          {"$R", ir::str(whole)},
          {"$K", std::to_string(axis)},
          {"$ITEM", stack ? fmt::format("unsqueeze(%x) {{axes = [{}]}}", axis) : "%x"}});
  return call(g, "sequence_join_" + name, {w}, whole);
}

Value sequence_of_parts(GraphBuilder& g, const Value& x, int64_t axis, const Value& chunk,
                        bool keep) {
  const Type whole = any_extents(x.type);
  const Type part = ir::tensor_type(Dims(x.dims().size() - (keep ? 0 : 1), Dim::any()), x.dtype());
  const std::string name =
      fmt::format("{}_along_{}{}", suffix_of(whole), axis, keep ? "" : "_rows");
  const Value none = stored(g, list_of({}), ir::data_type(kSequence, {part}));
  define(g, part, kParts,
         {{"$PART", keep ? kSlicePart : kRowPart},
          {"$F", name},
          {"$X", ir::str(whole)},
          {"$K", std::to_string(axis)}});
  return call(g, "sequence_split_" + name, {x, g.integer(0), chunk, none}, none.type);
}

Value sequence_of_lengths(GraphBuilder& g, const Value& x, int64_t axis, const Value& lengths) {
  const Type whole = any_extents(x.type);
  const std::string name = fmt::format("{}_along_{}", suffix_of(whole), axis);
  const Value none = stored(g, list_of({}), ir::data_type(kSequence, {whole}));
  define(
      g, whole, kLengths,
      {{"$PART", kSlicePart}, {"$F", name}, {"$X", ir::str(whole)}, {"$K", std::to_string(axis)}});
  return call(g, "sequence_cut_" + name, {x, g.integer(0), g.integer(0), lengths, none}, none.type);
}

Value optional_is_there(GraphBuilder& g, const Value& v) {
  if (!is_data(v.type, kOptional)) return g.scalar(1, DType::kBool);
  if (is_nothing(v)) return g.scalar(0, DType::kBool);
  define(g, element_of(v), kOptionals);
  return call(g, "optional_is_there_" + suffix_of(element_of(v)), {v},
              ir::tensor_type({}, DType::kBool));
}

Value optional_element(GraphBuilder& g, const Value& v) {
  if (!is_data(v.type, kOptional)) return v;
  if (is_nothing(v))
    throw Error(Status::kCorrupt, g.place(), "the element of an empty optional is asked for",
                "export the model again");
  Arithmetic a(g);
  const Value there = a.cast(optional_is_there(g, v), DType::kI64);
  const Value is_there = checked(g, a.sub(there, 1), there, "an optional value that is asked for");
  return call(g, "optional_element_" + suffix_of(element_of(v)), {v, is_there}, element_of(v));
}

}  // namespace nimble::frontend::onnx
