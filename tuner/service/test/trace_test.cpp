#include "tuner/service/trace.h"

#include <gmock/gmock.h>

#include "tuner/service/campaign.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using ::testing::HasSubstr;
using ::testing::Lt;

using Names = std::vector<std::string>;
using Rows = std::map<std::vector<int64_t>, int64_t>;

Error error_of(const std::string& contents, const std::string& column) {
  try {
    parse_trace(contents, "t.tsv", column.empty() ? Names{} : Names{column});
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(Status::kOk, "", "");
}

TEST(Trace, ReadsAColumnByName) {
  const Trace t = parse_trace("# about\npart\tfirst\tpair\na\t1\t10\nb\t2\t20\r\nb\t2\t10\n",
                              "t.tsv", {"pair"});
  EXPECT_EQ(t.counts, (Rows{{{10}, 2}, {{20}, 1}}));
  EXPECT_EQ(t.total, 3);
  EXPECT_EQ(t.quantile(0, 0.5), 10);
  EXPECT_EQ(t.quantile(0, 0.99), 20);
  EXPECT_EQ(t.quantile(0, 0), 10);
}

TEST(Trace, OneColumnNeedsNoName) {
  EXPECT_EQ(parse_trace("n\n3\n4\n", "t", {}).total, 2);
  EXPECT_EQ(parse_trace("a,b\n3,4\n", "t", {"b"}).counts, (Rows{{{4}, 1}}));
}

TEST(Trace, ALastColumnCounts) {
  const std::string text = "n\tm\tcount\n3\t7\t10\n4\t-\t0\n3\t-\t2\n5\t8\t1\n";
  EXPECT_EQ(parse_trace(text, "t", {"n"}).counts, (Rows{{{3}, 12}, {{5}, 1}}));
  EXPECT_EQ(parse_trace(text, "t", {"m"}).total, 11);
  EXPECT_EQ(parse_trace("n,count\n3,5\n", "t", {}).counts, (Rows{{{3}, 5}}));
  // By itself it is a column like others, and so it is where it is asked for.
  EXPECT_EQ(parse_trace("count\n3\n", "t", {}).counts, (Rows{{{3}, 1}}));
  EXPECT_EQ(parse_trace("n,count\n3,5\n", "t", {"count"}).counts, (Rows{{{5}, 1}}));
  EXPECT_THAT(error_of("n\tcount\n3\tx\n", "n").what(), HasSubstr("\"x\" is not a count"));
  EXPECT_THAT(error_of("n\tcount\n3\n", "n").what(), HasSubstr("\"\" is not a count"));
  EXPECT_THAT(error_of("n\tcount\n3\t1000000000001\n", "n").what(), HasSubstr("is not a count"));
}

TEST(Trace, SeveralColumnsAreSizesThatWereMetTogether) {
  const std::string text = "b\tx\tn\tcount\n1\tq\t30\t5\n4\tq\t30\t2\n1\tq\t30\t1\n4\tq\t-\t9\n";
  const Trace t = parse_trace(text, "t", {"n", "b"});
  EXPECT_EQ(t.columns, (Names{"n", "b"}));
  EXPECT_EQ(t.counts, (Rows{{{30, 1}, 6}, {{30, 4}, 2}}));
  EXPECT_EQ(t.quantile(1, 0.5), 1);
  EXPECT_EQ(t.quantile(1, 0.9), 4);
  // Those that are called like the model's symbols, where none is named.
  EXPECT_EQ(parse_trace(text, "t", {}, {"n", "b", "m"}).columns, (Names{"b", "n"}));
  EXPECT_EQ(parse_trace(text, "t", {}, {"n"}).counts, (Rows{{{30}, 8}}));
  try {
    parse_trace(text, "t", {}, {"s10", "s21"});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("none is called like a symbol of the model (s10, s21)"));
    EXPECT_THAT(e.what(), HasSubstr("--trace t:"));
  }
  EXPECT_THROW(parse_trace(text, "t", {"n", "z"}), Error);
}

TEST(Trace, EveryFaultIsNamed) {
  EXPECT_THAT(error_of("a\tb\n1\t2\n", "c").what(), HasSubstr("no column \"c\""));
  EXPECT_THAT(error_of("a\tb\n1\t2\n", "").what(), HasSubstr("2 columns"));
  const Error word = error_of("a\tb\n1\tx\n", "b");
  EXPECT_EQ(word.status(), Status::kCorrupt);
  EXPECT_THAT(word.what(), HasSubstr("t.tsv:2"));
  EXPECT_THAT(error_of("a\tb\n1\n", "b").what(), HasSubstr("\"\" is not a size"));
  EXPECT_THAT(error_of("a\n-4\n", "a").what(), HasSubstr("\"-4\""));
  EXPECT_THAT(error_of("a\n4.5\n", "a").what(), HasSubstr("\"4.5\""));
  EXPECT_THAT(error_of("a\n99999999999999999999\n", "a").what(), HasSubstr("is not a size"));
  EXPECT_THAT(error_of("a\n2147483649\n", "a").what(), HasSubstr("from 0 to 2147483648"));
  EXPECT_THAT(error_of("a\n", "a").what(), HasSubstr("no sizes"));
  EXPECT_THAT(error_of("", "a").what(), HasSubstr("no sizes"));
  const Error binary = error_of(std::string("\x7f"
                                            "ELF\2\0\0\n\x80",
                                            9),
                                "a");
  EXPECT_THAT(binary.what(), HasSubstr("t.tsv: is not text"));
  EXPECT_THAT(error_of("a\n" + std::string(1000, 'x') + "\n", "a").problem().size(), Lt(100));
  EXPECT_THROW(read_trace("/nowhere/t.tsv:pair", {}), Error);
}

TEST(Options, DurationsAndShares) {
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("5m"), 300);
  EXPECT_EQ(parse_duration("1.5h"), 5400);
  EXPECT_EQ(parse_duration("7"), 7);
  for (const char* bad : {"", "m", "-5m", "5x", "0", "nan", "inf", "5 m", "1e30h"})
    EXPECT_THROW(parse_duration(bad), Error) << bad;
  EXPECT_DOUBLE_EQ(parse_share("90%"), 0.9);
  EXPECT_DOUBLE_EQ(parse_share("0.25"), 0.25);
  EXPECT_DOUBLE_EQ(parse_share("100%"), 1);
  for (const char* bad : {"", "%", "0", "101%", "1.5", "90%%", "x"})
    EXPECT_THROW(parse_share(bad), Error) << bad;
}

}  // namespace
}  // namespace nimble::tuner
