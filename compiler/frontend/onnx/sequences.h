// Sequences and optional values.
//
// Exporters use sequences in two ways. Most are lists that the export knows: made of named values,
// read at constant places. Such a sequence is a list of values here (Value::items) and leaves
// nothing in the program. The others grow in loops, are cut out of a tensor whose extent the run
// knows, or are inputs and results: those are values of a data type,
//
//   data Sequence[A] { SequenceEmpty; SequenceOf(Sequence[A], A) }   the last element outermost
//   data Optional[A] { OptionalEmpty; OptionalOf(A) }
//
// where A is a tensor of a fixed rank with any extents, or one of these types. A list becomes such
// a value where it meets one: in a branch, in the state of a loop, at the entry. A tensor is also
// an optional value that is there.
//
// Walks over a Sequence are recursive functions, one for each element type, written as text.
#pragma once

#include <string>

#include "compiler/frontend/onnx/graph_builder.h"

namespace nimble::frontend::onnx {

// A sequence that is known now.
Value list_of(std::vector<Value> items);
// An optional value that is known not to be there.
Value nothing();

bool is_list(const Value& v);  // Value::items
bool is_nothing(const Value& v);
bool is_sequence(const Value& v);  // either kind
bool is_plain(const Value& v);     // a tensor

// The type of a value at run time, extents left out. That of an empty list or of nothing lacks its
// argument.
ir::Type stored_type(const Value& v);
bool is_complete(const ir::Type& t);
// The type of what may be either. nimble::Error at `place`.
ir::Type joined_type(const ir::Type& a, const ir::Type& b, const std::string& place);
// `v` as a value of a complete type that joins its own.
Value stored(GraphBuilder& g, const Value& v, const ir::Type& type);

// Of any sequence. `position` is an integer scalar; from the end if negative.
Value sequence_length(GraphBuilder& g, const Value& s);
Value sequence_at(GraphBuilder& g, const Value& s, const Value& position);
Value sequence_with(GraphBuilder& g, const Value& s, const Value& x,
                    const std::optional<Value>& position);
Value sequence_without(GraphBuilder& g, const Value& s, const std::optional<Value>& position);
// Joins the elements along an axis of the result, along a new one if `stack`.
Value sequence_joined(GraphBuilder& g, const Value& s, int64_t axis, bool stack);
// x cut along an axis into parts of `chunk` (an i64 scalar), or of one slice without that axis.
Value sequence_of_parts(GraphBuilder& g, const Value& x, int64_t axis, const Value& chunk,
                        bool keep);
// The same with a length for each part (an i64 vector).
Value sequence_of_lengths(GraphBuilder& g, const Value& x, int64_t axis, const Value& lengths);

// Of any optional value.
Value optional_is_there(GraphBuilder& g, const Value& v);
Value optional_element(GraphBuilder& g, const Value& v);

}  // namespace nimble::frontend::onnx
