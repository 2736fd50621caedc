// What tests of inference do with a module's text.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "vm/base/error.h"

namespace nimble::ir {

// Infers, verifies the result, and checks that a second inference and a round trip through text
// change nothing.
inline std::string infer(const std::string& text) {
  const Module typed = infer_types(parse_module(text, "t.nir"));
  const std::string printed = print(typed);
  EXPECT_THAT(verify(typed), ::testing::IsEmpty()) << printed;
  EXPECT_EQ(print(infer_types(typed)), printed);
  EXPECT_EQ(print(infer_types(parse_module(printed))), printed);
  return printed;
}

inline std::string error_of(const std::string& text) {
  try {
    return "accepted: " + print(infer_types(parse_module(text, "t.nir")));
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace nimble::ir
