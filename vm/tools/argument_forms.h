// What can be told of arguments without the model: a text of another form is wrong usage, before
// anything is read.
#pragma once

#include "vm/arguments/command_line.h"
#include "vm/tools/shape_arguments.h"
#include "vm/tools/tensor_arguments.h"

namespace nimble {

// An input: NAME=VALUE, or a file's arrays.
inline CLI::Validator input_form() {
  return read_by([](const std::string& text) {
    if (!text.starts_with("@")) split_assignment(text, "--input");
  });
}
inline CLI::Validator assignment_form(const char* option) {
  return read_by([option](const std::string& text) { split_assignment(text, option); });
}
// NAME=16,27,53 and NAME=1, of --shapes and --set.
inline CLI::Validator shapes_form() {
  return read_by([](const std::string& text) { shape_combinations({text}, {}); });
}
inline CLI::Validator extent_form() {
  return read_by([](const std::string& text) { shape_combinations({}, {text}); });
}

}  // namespace nimble
