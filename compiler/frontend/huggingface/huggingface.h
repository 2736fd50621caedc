// Hugging Face folders: BERT encoders, with sentence-transformers' pooling on top.
#pragma once

#include <string>

#include "compiler/ir/expr.h"

namespace nimble::frontend {

// Imports a folder with config.json (model_type "bert") and its weights (model.safetensors, or
// shards named by model.safetensors.index.json).
//
//   @main(input_ids (b, n) i64, attention_mask (b, n) i64 = ones, token_type_ids (b, n) i64 =
//   zeros)
//     -> last_hidden_state (b, n, h) f32
//        sentence_embedding (b, w) f32    if modules.json configures a pooling
//        pooler_output (b, h) f32         else, if the weights have a pooler
//
// A run with n above max_position_embeddings or an id outside its table fails with a message.
// Errors as frontend.h says.
ir::Module import_huggingface(const std::string& folder);

}  // namespace nimble::frontend
