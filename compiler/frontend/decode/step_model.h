// What decoding_loop() knows of a step model: which input and output plays which part.
#pragma once

#include <optional>

#include "compiler/frontend/decode/decode.h"

namespace nimble::frontend {

struct StepModel {
  struct State {
    size_t input = 0, output = 0;  // parameter of @main, field of its result
    int64_t axis = 0;              // along which it grows
  };
  size_t tokens = 0;
  std::optional<size_t> mask, positions;
  size_t logits = 0;
  std::vector<State> states;
  // Symbols of @main; a mask may state its length by an expression of the others.
  std::string n, past;
  std::optional<std::string> batch, total;
  int64_t vocabulary = 0;
};

StepModel analyse_step(const ir::Module& step, const DecodeOptions& options);

}  // namespace nimble::frontend
