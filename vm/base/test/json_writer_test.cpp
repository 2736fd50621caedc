#include "vm/base/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace nimble {
namespace {

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  JsonWriter json;
  json.begin_object().member("a", 1).key("b").begin_array();
  for (int i = 0; i < 2; ++i) json.begin_object().member("x", i == 0).end_object();
  json.value(INT64_MIN).value(UINT64_MAX).value(0.25).end_array();
  json.key("c").begin_object().end_object().key("d").begin_array().end_array();
  json.member("e", "text").end_object();
  EXPECT_EQ(json.text(),
            R"({"a":1,"b":[{"x":true},{"x":false},-9223372036854775808,18446744073709551615,0.25],)"
            R"("c":{},"d":[],"e":"text"})");
}

TEST(JsonWriter, EscapesAndMendsText) {
  auto quoted = [](std::string_view text) {
    JsonWriter json;
    json.value(text);
    return json.text();
  };
  EXPECT_EQ(quoted("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(quoted(std::string_view("\n\0\x1f", 3)), R"("\u000a\u0000\u001f")");
  EXPECT_EQ(quoted("ä€\U0001F600"), "\"ä€\U0001F600\"");
  const std::string lost = "\"\xef\xbf\xbd";
  EXPECT_EQ(quoted("\xff"), lost + "\"");
  EXPECT_EQ(quoted("\xe2\x82"), lost + "\xef\xbf\xbd\"") << "cut short";
  EXPECT_EQ(quoted("\xc0\x80").substr(0, 4), lost) << "overlong";
  EXPECT_EQ(quoted("\xed\xa0\x80").substr(0, 4), lost) << "half of a surrogate pair";
  EXPECT_EQ(quoted("\xf4\x90\x80\x80").substr(0, 4), lost) << "beyond U+10FFFF";
  EXPECT_EQ(quoted("\x80"
                   "a"),
            lost + "a\"");
}

}  // namespace
}  // namespace nimble
