// Makes a whole decoding loop of a model of one step.
//
// Exporters write a decoder as one step: token ids, the positions before them as a past of keys and
// values, and out come logits and the present, which is the next step's past. The caller's loop
// copies every cache at every token. decoding_loop() puts the loop into the program: @main takes a
// prompt and returns the finished sequence, and the past is a parameter of a recursive function,
// which the passes lay-out-states and grow-tensors let grow in place.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::frontend {

struct DecodeOptions {
  // How a token is chosen: "greedy", the most likely; "sample", drawn from the `top_k` most likely
  // by their probabilities. Empty: no loop, the model stays a step.
  std::string choice;
  int64_t top_k = 50;
  int64_t end_token = -1;  // ends a sequence; negative: none does
  int64_t context = 0;     // positions that the model has; 0: it knows no limit
  // Which output becomes which input of the next step, by name; a * stands for the same text on
  // both sides. Empty: the names that exporters use.
  std::vector<std::pair<std::string, std::string>> states;  // input, output
};

// Parses "past_key_values.*=present.*". nimble::Error(kInvalidArgument) for anything else.
std::pair<std::string, std::string> parse_state(const std::string& text);

// `step`: a module after inference whose @main takes, by the names of its signature, input_ids
// (1, n) of integers, the states, and, if it has them, attention_mask (1, past + n) and
// position_ids (1, n); and returns logits (1, n, vocabulary) and the states' next values, longer by
// n along the axis of the symbol `past`. A batch symbol becomes 1. The result, to be inferred, has
//
//   @main(input_ids (1, n) i64, max_new () i64) -> sequences (1, ?) i64
//
// and, for "sample", takes temperature () f32 (default 1) and uniform (max_new) f32 too: the draw
// in [0, 1) for each new token. Randomness is an input, so that runs can be repeated and compared.
// The sequence is the prompt with at most max_new tokens behind it; it ends behind the end token
// and where the context is full.
//
// nimble::Error(kInvalidArgument): a model that is no such step, options that make no sense.
ir::Module decoding_loop(const ir::Module& step, const DecodeOptions& options);

}  // namespace nimble::frontend
