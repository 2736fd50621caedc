// One writer for tables, JSON and CSV; the frame of every program's arguments.
#include "vm/arguments/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "vm/arguments/command_line.h"

namespace nimble {
namespace {

using testing::HasSubstr;
using Json = Table::Json;

std::string printed(const Table& table, Format format) {
  std::ostringstream out;
  table.print(out, format);
  return out.str();
}

Table example() {
  Table table({"name", {"time_ns", "time", cell::microseconds}, {"hidden", ""}, "share"});
  table.add({"a, b", 12345.678901, true, 0.1});
  table.add({"x\ny", nullptr, false, nullptr});
  return table;
}

TEST(Table, JsonHasTheValuesAsTheyAre) {
  const Json rows = Json::parse(printed(example(), Format::kJson));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0],
            Json::parse(R"({"name":"a, b","time_ns":12345.678901,"hidden":true,"share":0.1})"));
  EXPECT_TRUE(rows[1]["time_ns"].is_null());
  EXPECT_EQ(printed(Table({"a"}), Format::kJson), "[]\n");
}

TEST(Table, CsvQuotesAndKeepsAllDigits) {
  EXPECT_EQ(printed(example(), Format::kCsv),
            "name,time_ns,hidden,share\n\"a, b\",12345.678901,true,0.1\n\"x\ny\",,false,\n");
  EXPECT_EQ(printed(Table({"a", "b"}), Format::kCsv), "a,b\n");
}

TEST(Table, PeopleSeeHeadingsUnitsAndOneLineARow) {
  EXPECT_EQ(printed(example(), Format::kTable),
            "name     time  share\na, b  12.3 us    0.1\nx y         -\n");
  EXPECT_EQ(printed(Table({"a"}), Format::kTable), "(none)\n");
}

TEST(Table, AnObjectMayHaveMoreOrLessThanTheColumns) {
  Table table({"a", "b"});
  table.add_object({{"b", Json::array({1, 2})}, {"c", "more"}});
  EXPECT_EQ(printed(table, Format::kCsv), "a,b\n,\"[1,2]\"\n");
  EXPECT_EQ(Json::parse(printed(table, Format::kJson))[0]["c"], "more");
}

TEST(Table, BytesThatAreNoTextDoNotStopIt) {
  Table table({"name"});
  table.add({std::string("\xff\xfe")});
  EXPECT_NO_THROW(Json::parse(printed(table, Format::kJson)));
  EXPECT_EQ(printed(table, Format::kCsv), "name\n\xff\xfe\n");
}

TEST(Cells, AreTextsForPeople) {
  EXPECT_EQ(cell::microseconds(1500), "1.5 us");
  EXPECT_EQ(cell::microseconds(0), "-");
  EXPECT_EQ(cell::percent(0.123), "12.3%");
  EXPECT_EQ(cell::percent(nullptr), "-");
  EXPECT_EQ(cell::short_id("0123456789"), "01234567");
  EXPECT_EQ(cell::time(0), "1970-01-01 00:00:00");
  EXPECT_EQ(cell::time(nullptr), "-");
}

TEST(Arguments, FormatIsOneOfThree) {
  for (const auto& [text, format] : std::map<std::string, Format>{
           {"json", Format::kJson}, {"csv", Format::kCsv}, {"table", Format::kTable}}) {
    CLI::App app("about", "nimble test");
    Format got = Format::kTable;
    add_format(app, &got);
    EXPECT_FALSE(parse_arguments(app, {"--format", text}));
    EXPECT_EQ(got, format);
  }
  CLI::App app("about", "nimble test");
  Format got = Format::kTable;
  add_format(app, &got);
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse_arguments(app, {"--format", "xml"}), kExitUsage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("nimble test: error: --format: xml not in {table,json,csv}"));
}

TEST(Arguments, HelpEndsWithTheExitCodesOfTheProgram) {
  EXPECT_EQ(exit_codes_text({}), "Exit codes: 0 ok, 1 failure, 2 usage.");
  CLI::App app("about", "nimble test");
  app.footer("Example:\n  nimble test");
  testing::internal::CaptureStdout();
  EXPECT_EQ(parse_arguments(app, {"--help"}, {kExitInterrupted, kExitStale}), kExitOk);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("nimble test\n\nExit codes: 0 ok, 1 failure, 2 usage, 5 stale or "
                        "incompatible database, 130 interrupted.\n"));
}

TEST(ExitCodes, EachHasOneRow) {
  std::set<int> seen;
  for (const ExitCodeInfo& info : kExitCodes) {
    EXPECT_TRUE(seen.insert(info.code).second) << info.code;
    EXPECT_FALSE(info.words.empty() || info.sentence.empty());
  }
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2, 3, 4, 5, 130}));
}

TEST(ExitCodes, OfErrors) {
  const auto code_of = [](Status status) {
    return run_program("test", [&]() -> int { throw Error(status, "place", "problem", "remedy"); });
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(code_of(Status::kIo), kExitFailure);
  EXPECT_EQ(code_of(Status::kCancelled), kExitInterrupted);
  EXPECT_EQ(run_database_program(
                "test",
                []() -> int { throw Error(Status::kIncompatible, "place", "problem", "remedy"); }),
            kExitStale);
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace nimble
