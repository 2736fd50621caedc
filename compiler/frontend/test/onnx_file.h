// ONNX files that a test writes byte by byte, imported.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"

namespace nimble::frontend {

class OnnxFile : public testing::Test {
 protected:
  Error import_error(const std::string& contents) {
    scratch_.write("m.onnx", contents);
    return error_of([&] { import_model(scratch_.path("m.onnx")); });
  }
  ir::Module import(const std::string& contents) {
    scratch_.write("m.onnx", contents);
    return import_model(scratch_.path("m.onnx"));
  }
  Scratch scratch_;
};

}  // namespace nimble::frontend
