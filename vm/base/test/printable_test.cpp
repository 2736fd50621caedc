#include "vm/base/printable.h"

#include <gtest/gtest.h>

#include "vm/base/program.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

TEST(Printable, NothingSteersATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\r\n\x7f"), "a?[31mb???");
  EXPECT_EQ(printable("a\xC2\x9B"
                      "31mb"),
            "a?31mb")
      << "U+009B is ESC [ in one character";
  EXPECT_EQ(printable("a\xE2\x80\xAE"
                      "b\xE2\x81\xA6"
                      "c\xE2\x80\x8F"),
            "a?b?c?")
      << "text that runs backwards shows another name than it is";
  TextTable table({"name"});
  table.add(
      {"a\x1b[2J\xC2\x9B"
       "31m\xE2\x80\xAE"});
  EXPECT_EQ(table.str().find_first_of("\x1b\xC2\xE2"), std::string::npos) << table.str();
}

TEST(Printable, NeitherDoErrors) {
  testing::internal::CaptureStderr();
  print_error("nimble", "a\x1b[2J of postgresql://me:secret@host/db\xC2\x9B\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "nimble: error: a?[2J of postgresql://me@host/db?\n\n");
}

TEST(Printable, OtherTextStaysAsItIs) {
  for (const char* text : {"", "größer – 2 × 3 …", "\xC2\xA0", "\xE2\x82\xAC", "\xE2", "\xC2"})
    EXPECT_EQ(printable(text), text);
  EXPECT_EQ(without_controls("a\n\tb\x1b", '?', "\n\t"), "a\n\tb?");
}

TEST(Printable, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(printable(std::string(61, 'x')), std::string(60, 'x') + "…");
  EXPECT_EQ(printable(std::string(59, 'x') + "€€"), std::string(59, 'x') + "…");
}

}  // namespace
}  // namespace nimble
