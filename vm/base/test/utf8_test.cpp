#include "vm/base/utf8.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

TEST(Utf8, WhatIsNoneIsReplaced) {
  const std::string odd = "\xEF\xBF\xBD";
  for (const char* text : {"", "größer – 2 × 3 …", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "\x01\x7f"})
    EXPECT_EQ(valid_utf8(text), text);
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a" + odd + "b");
  EXPECT_EQ(valid_utf8("\xE2\x82"), odd + odd) << "cut within a character";
  EXPECT_EQ(valid_utf8("\xC0\xAF"), odd + odd) << "more bytes than it takes";
  EXPECT_EQ(valid_utf8("\xE0\x80\xAF"), odd + odd + odd);
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), odd + odd + odd) << "half of a pair";
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), odd + odd + odd + odd) << "beyond the last one";
  EXPECT_EQ(valid_utf8(std::string_view("a\0b", 3)), "a" + odd + "b");
}

}  // namespace
}  // namespace nimble
