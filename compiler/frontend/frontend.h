// The way in: reads a model of any supported format into the IR.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/decode/decode.h"
#include "compiler/ir/expr.h"

namespace nimble::frontend {

struct ImportOptions {
  // Symbols of the entry function that become constants: {"n", 128}.
  std::map<std::string, int64_t> shapes;
  // New names of its symbols: {"batch_size", "b"}. Applied before `shapes`.
  std::map<std::string, std::string> names;
  // A name for one more input of an ONNX model, an i64 scalar of default 0: the stream that its
  // random operators draw from. Without it every run draws the same, as with 0.
  std::string random_input;
  // A decoding loop around the model, if a choice is given (decode/decode.h).
  DecodeOptions decode;
};

// Parses "b=1,n=128". nimble::Error(kInvalidArgument) for anything else.
std::map<std::string, int64_t> parse_shapes(const std::string& text);

// Imports the model at `path`:
//   a folder with config.json    a Hugging Face model (BERT family), weights in safetensors
//   *.onnx                       an ONNX model, its external data in the same folder
//   *.nir                        text IR, its big constants in the side file
// Types are inferred. Weights view the mapped files: replace those by rename,
// never in place, while the module lives.
//
// nimble::Error, in one line with place and remedy: kNotFound (no such file, a missing weight),
// kCorrupt (damaged or contradictory), kUnsupported (an operator or a setting that nimble lacks;
// every unsupported operator is in the message once), kInvalidArgument (unknown symbol, types that
// contradict each other).
ir::Module import_model(const std::string& path, const ImportOptions& options = {});

// What of a model nimble can import, operator by operator.
struct Coverage {
  struct Row {
    std::string op;      // the source format's name; an IR operator unless from ONNX
    std::string domain;  // ONNX operator set, "" for the standard one and other formats
    int64_t count = 0;   // nodes of the model, those in subgraphs included
    bool supported = false;
    std::string reason;      // why not; empty if supported
    std::string first_node;  // name of the first (unsupported) node; may be empty
  };
  std::string format;     // "onnx", "huggingface", "text"
  std::vector<Row> rows;  // sorted by op and domain
  bool complete() const;
};

// Reads the model's structure without importing it; throws as import_model does for a file that
// cannot be read, but not for unsupported operators.
Coverage coverage(const std::string& path);

// A page in Markdown: every ONNX operator and version, supported or why not.
std::string onnx_operator_list();

}  // namespace nimble::frontend
