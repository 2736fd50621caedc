// The text of the functions that walk over a Sequence or look into an Optional (sequences.h), with
// places that are filled in for each element type.
#pragma once

namespace nimble::frontend::onnx {

// The functions of sequences whose elements have type $T, named after it by $F; $NONE is some $T.
inline constexpr const char* kWalks = R"(
fn @sequence_length_$F(%s: Sequence[$T], %n: Tensor[(), i64]) -> Tensor[(), i64] {
  let %r = match (%s) {
    SequenceEmpty => { %n }
    SequenceOf(%rest, _) => {
      let %m = add(%n, 1i64);
      let %l = @sequence_length_$F(%rest, %m);
      %l
    }
  };
  %r
}
fn @sequence_at_$F(%s: Sequence[$T], %back: Tensor[(), i64]) -> $T {
  let %r = match (%s) {
    SequenceEmpty => { let %none: $T = $NONE; %none }
    SequenceOf(%rest, %x) => {
      let %here = equal(%back, 0i64);
      let %y = if (%here) { %x } else {
        let %b = sub(%back, 1i64);
        let %z = @sequence_at_$F(%rest, %b);
        %z
      };
      %y
    }
  };
  %r
}
fn @sequence_insert_$F(%s: Sequence[$T], %back: Tensor[(), i64], %x: $T) -> Sequence[$T] {
  let %here = equal(%back, 0i64);
  let %r = if (%here) { let %y = SequenceOf(%s, %x); %y } else {
    let %z = match (%s) {
      SequenceEmpty => { %s }
      SequenceOf(%rest, %last) => {
        let %b = sub(%back, 1i64);
        let %t = @sequence_insert_$F(%rest, %b, %x);
        let %y = SequenceOf(%t, %last);
        %y
      }
    };
    %z
  };
  %r
}
fn @sequence_erase_$F(%s: Sequence[$T], %back: Tensor[(), i64]) -> Sequence[$T] {
  let %r = match (%s) {
    SequenceEmpty => { %s }
    SequenceOf(%rest, %last) => {
      let %here = equal(%back, 0i64);
      let %y = if (%here) { %rest } else {
        let %b = sub(%back, 1i64);
        let %t = @sequence_erase_$F(%rest, %b);
        let %z = SequenceOf(%t, %last);
        %z
      };
      %y
    }
  };
  %r
}
fn @sequence_reverse_$F(%s: Sequence[$T], %to: Sequence[$T]) -> Sequence[$T] {
  let %r = match (%s) {
    SequenceEmpty => { %to }
    SequenceOf(%rest, %x) => {
      let %t = SequenceOf(%to, %x);
      let %y = @sequence_reverse_$F(%rest, %t);
      %y
    }
  };
  %r
}
)";

// Joining along axis $K what $ITEM makes of an element %x; $R is the type of the whole.
inline constexpr const char* kJoins = R"(
fn @sequence_join_on_$F(%s: Sequence[$T], %to: $R) -> $R {
  let %r = match (%s) {
    SequenceEmpty => { %to }
    SequenceOf(%rest, %x) => {
      let %item = $ITEM;
      let %t = concat(%to, %item) {axis = $K};
      let %y = @sequence_join_on_$F(%rest, %t);
      %y
    }
  };
  %r
}
fn @sequence_join_$F(%s: Sequence[$T]) -> $R {
  let %none: Sequence[$T] = SequenceEmpty();
  let %t = @sequence_reverse_$E(%s, %none);
  let %r = match (%t) {
    SequenceEmpty => { let %z: $R = $NONE; %z }
    SequenceOf(%rest, %x) => {
      let %item = $ITEM;
      let %y = @sequence_join_on_$F(%rest, %item);
      %y
    }
  };
  %r
}
)";

// Parts of %x, of type $X, along axis $K from row %i on; $PART makes one of rows %i to %end.
inline constexpr const char* kParts = R"(
fn @sequence_split_$F(%x: $X, %i: Tensor[(), i64], %chunk: Tensor[(), i64], %to: Sequence[$T])
    -> Sequence[$T] {
  let %shape = shape_of(%x);
  let %extent = gather(%shape, $Ki64) {axis = 0};
  let %more = less(%i, %extent);
  let %r = if (%more) {
    let %end = add(%i, %chunk);
    $PART
    let %t = SequenceOf(%to, %part);
    let %y = @sequence_split_$F(%x, %end, %chunk, %t);
    %y
  } else { %to };
  %r
}
)";
inline constexpr const char* kSlicePart = R"(
    let %from = unsqueeze(%i) {axes = [0]};
    let %until = unsqueeze(%end) {axes = [0]};
    let %part = slice(%x, %from, %until) {axes = [$K]};)";
inline constexpr const char* kRowPart = R"(
    let %part = gather(%x, %i) {axis = $K};)";

// The same with a length for each part.
inline constexpr const char* kLengths = R"(
fn @sequence_cut_$F(%x: $X, %i: Tensor[(), i64], %j: Tensor[(), i64], %lengths: Tensor[(k), i64],
    %to: Sequence[$T]) -> Sequence[$T] {
  let %count = size() {value = k};
  let %more = less(%j, %count);
  let %r = if (%more) {
    let %length = take_row(%lengths, %j);
    let %end = add(%i, %length);
    $PART
    let %t = SequenceOf(%to, %part);
    let %next = add(%j, 1i64);
    let %y = @sequence_cut_$F(%x, %end, %next, %lengths, %t);
    %y
  } else { %to };
  %r
}
)";

inline constexpr const char* kOptionals = R"(
fn @optional_is_there_$F(%v: Optional[$T]) -> Tensor[(), bool] {
  let %r = match (%v) { OptionalEmpty => { false } OptionalOf(_) => { true } };
  %r
}
// It has been checked that there is an element: the first case is never taken.
fn @optional_element_$F(%v: Optional[$T], %checked: Tensor[(), i64]) -> $T {
  let %r = match (%v) {
    OptionalEmpty => { let %never = @optional_element_$F(%v, %checked); %never }
    OptionalOf(%x) => { %x }
  };
  %r
}
)";

}  // namespace nimble::frontend::onnx
