#include "vm/base/text_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble {
namespace {

TEST(TextTable, AlignsColumnsInCodePoints) {
  TextTable t({"name", "µs", ""});
  t.align_right(1);
  t.add({"é", "7", "last"});
  t.add({"three", "1234", ""});
  EXPECT_EQ(t.str("  "),
            "  name     µs\n"
            "  é         7  last\n"
            "  three  1234\n");
}

TEST(TextTable, KeepsARowOnALine) {
  TextTable t({"what"});
  t.add({"two\nlines\tand\x1b[31m red"});
  EXPECT_EQ(t.str(), "what\ntwo lines and [31m red\n");
}

TEST(TextTable, OneLongCellDoesNotWidenAllRows) {
  TextTable t({"what", "value"});
  t.add({std::string(1000, 'x'), "1"});
  for (int i = 0; i < 100; ++i) t.add({"y", "2"});
  EXPECT_LT(t.str().size(), 1000u + 102 * 210);
}

TEST(TextTable, RefusesARowOfAnotherWidth) {
  TextTable t({"a", "b"});
  EXPECT_DEATH(t.add({"1"}), "1 cells under 2 columns");
}

// What RFC 4180 says of a reader: the cells of the first record, and where it ends.
std::vector<std::string> read_record(const std::string& text, size_t* at) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (; *at < text.size(); ++*at) {
    const char c = text[*at];
    if (quoted && c == '"' && text[*at + 1] == '"') {
      out.back() += text[++*at];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      out.emplace_back();
    } else if (!quoted && c == '\n') {
      ++*at;
      return out;
    } else {
      out.back() += c;
    }
  }
  return out;
}

TEST(TextTable, CsvReadsBackAsItWasWritten) {
  const std::vector<std::string> header = {"plain", "a \"note\""};
  const std::vector<std::vector<std::string>> rows = {
      {"", "with, comma"}, {"\"", "\"\""}, {"two\nlines", "carriage\r"}, {"é", " spaces "}};
  TextTable t(header);
  for (const auto& row : rows) t.add(row);
  const std::string text = t.csv();
  size_t at = 0;
  EXPECT_EQ(read_record(text, &at), header);
  for (const auto& row : rows) EXPECT_EQ(read_record(text, &at), row);
  EXPECT_EQ(at, text.size());
}

TEST(ShellWord, StandsForItsTextInAShell) {
  EXPECT_EQ(shell_word("models/bert-6.onnx"), "models/bert-6.onnx");
  for (const std::string& text :
       {std::string("plain"), std::string(), std::string("my model.onnx"), std::string("it's"),
        std::string("$(id) `id` \"x\" \\ * ; & | < > # ~ !"), std::string("-n"),
        std::string("tab\there"), std::string("two\nlines")}) {
    const std::string command = "printf '%s' " + shell_word(text);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> shell(popen(command.c_str(), "r"),
                                                                &pclose);
    ASSERT_TRUE(shell);
    std::array<char, 256> said{};
    const size_t n = std::fread(said.data(), 1, said.size(), shell.get());
    EXPECT_EQ(std::string(said.data(), n), text);
  }
}

TEST(JsonText, SurvivesWhatIsNoUtf8) {
  const nlohmann::json j = {{"file", "caf\xe9.onnx"}};
  EXPECT_EQ(json_text(j, -1), "{\"file\":\"caf\xef\xbf\xbd.onnx\"}");
}

TEST(JsonText, RefusesAKeyThatStandsTwice) {
  const auto read = [](std::string_view text) {
    return parse_json(text, [](const std::string& problem) {
      throw Error(Status::kCorrupt, "text", problem, "none");
    });
  };
  EXPECT_EQ(read(R"({"a":{"b":1},"c":{"b":2}})")["c"]["b"], 2);
  EXPECT_THROW(read(R"({"a":1,"a":1})"), Error);
  EXPECT_THROW(read(R"([{"a":1,"b":2,"a":1}])"), Error);
  EXPECT_THROW(read(R"({"a":1)"), Error);
}

}  // namespace
}  // namespace nimble
