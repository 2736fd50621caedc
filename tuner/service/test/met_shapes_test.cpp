// What production met, from the files that count it to the shapes of workloads.
#include "tuner/service/met_shapes.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class MetShapesTest : public testing::Test {
 protected:
  MetShapesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nimble-met-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    store = db::Store::open(folder + "/tuning.db");
    // Rows and columns of the model meet as one extent of the kernel.
    options.model.model = write("model.nir",
                                "fn @main(%x: Tensor[(b, n), f32]) -> Tensor[(b, n), f32] "
                                "{ let %y = relu(%x); %y }");
    options.model.threads = {1};
  }
  ~MetShapesTest() override {
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  }
  MetShapesReport count(const std::string& text, const std::string& name = "shapes") {
    options.file = write(name, text);
    return count_met_shapes(*store, options);
  }
  // By the product of the extents: whether leading axes are collapsed is the compiler's affair.
  std::map<int64_t, int64_t> met() {
    std::map<int64_t, int64_t> out;
    for (const db::MetShape& m : store->met_shapes()) {
      int64_t elements = 1;
      for (const auto& [symbol, extent] : m.dims) elements *= extent;
      out[elements] += m.count;
    }
    return out;
  }
  Error refused(const std::string& text) {
    try {
      count(text, "bad");
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << "took " << text;
    return Error(Status::kInvalidArgument, "", "");
  }
  std::string folder;
  std::unique_ptr<db::Store> store;
  MetShapesOptions options;
};

TEST_F(MetShapesTest, ARecordedFileIsCountedOnceHoweverOftenItIsAdded) {
  const MetShapesReport report = count("b\tn\tcount\n2\t7\t1\n2\t7\t1\n3\t5\t4\n-\t5\t1\n");
  EXPECT_EQ(report.runs, 6);
  ASSERT_THAT(report.workloads, SizeIs(1)) << testing::PrintToString(report.left_out);
  EXPECT_EQ(report.workloads[0].runs, 6);
  EXPECT_EQ(report.workloads[0].shapes, 2);
  const std::map<int64_t, int64_t> once{{14, 2}, {15, 4}};
  EXPECT_EQ(met(), once);
  count("b\tn\tcount\n2\t7\t1\n2\t7\t1\n3\t5\t4\n");
  EXPECT_EQ(met(), once);
  count("b\tn\tcount\n2\t7\t1\n2\t7\t1\n3\t5\t4\n2\t7\t1\n1\t1\t1\n");
  EXPECT_EQ(met(), (std::map<int64_t, int64_t>{{14, 3}, {15, 4}, {1, 1}})) << "it has grown";
  count("b,n,count\n2,7,10\n", "another");
  EXPECT_EQ(met().at(14), 13);
  options.source = "server-1";
  count("b,n,count\n2,7,100\n", "another");
  EXPECT_EQ(met().at(14), 113);
  // Nothing is tuned, so all of it is missed.
  ASSERT_THAT(store->misses(), SizeIs(1));
  EXPECT_EQ(store->misses()[0].shapes, 3);
  EXPECT_EQ(store->misses()[0].workload, report.workloads[0].workload);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(MetShapesTest, TheJsonOfTheCInterfaceIsCounted) {
  const MetShapesReport report = count(R"({"entries": [
    {"name": "version", "symbols": [], "shapes": [], "further": 0},
    {"name": "main", "symbols": ["n", "b"],
     "shapes": [{"count": 9, "extents": [7, 2]}, {"count": 1, "extents": [-1, 2]}],
     "further": 0}]})");
  EXPECT_EQ(report.runs, 9);
  EXPECT_EQ(met(), (std::map<int64_t, int64_t>{{14, 9}}));
}

// A size that the model did not name, such as how often its loop turned, is not guessed.
TEST_F(MetShapesTest, WhatDoesNotFollowFromTheRecordIsLeftOut) {
  const MetShapesReport report = count("n\tcount\n7\t3\n");
  EXPECT_EQ(report.runs, 3);
  EXPECT_THAT(report.workloads, SizeIs(0));
  ASSERT_THAT(report.left_out, SizeIs(1));
  EXPECT_THAT(report.left_out[0], HasSubstr("do not follow from what was recorded"));
  EXPECT_THAT(store->met_shapes(), SizeIs(0));
}

TEST_F(MetShapesTest, OtherFilesAreRefused) {
  EXPECT_THAT(refused("x\ty\tcount\n1\t2\t3\n").what(), HasSubstr("symbol of the model"));
  EXPECT_THAT(refused("b\tn\tcount\n1\ttwo\t3\n").what(), HasSubstr("is not a size"));
  EXPECT_THAT(refused("{").what(), HasSubstr("JSON"));
  EXPECT_THAT(refused("{}").what(), HasSubstr("lists no entries"));
  EXPECT_THAT(
      refused(R"({"entries": [{"name": "main", "symbols": ["b", "n"], "shapes": []}]})").what(),
      HasSubstr("tells of no run"));
  EXPECT_THAT(refused(R"({"entries": [{"name": "main", "symbols": ["b", "n"],
                          "shapes": [{"count": 1, "extents": [1]}]}]})")
                  .what(),
              HasSubstr("without its extents"));
  // The last is 2^64 - 1, which is -1 where it is taken for a signed number.
  for (const std::string extent : {"-2", "-9223372036854775808", "2147483649", "1.5", "\"1\"",
                                   "9223372036854775808", "18446744073709551615"})
    EXPECT_THAT(refused(R"({"entries": [{"name": "main", "symbols": ["b", "n"],
                            "shapes": [{"count": 1, "extents": [3, 3]},
                                       {"count": 1, "extents": [3, )" +
                        extent + "]}]}]}")
                    .what(),
                HasSubstr("an extent that is none"))
        << extent;
  EXPECT_THAT(refused(R"({"entries": [{"name": "main", "symbols": ["b", "other"],
                          "shapes": [{"count": 1, "extents": [1, 1]}]}]})")
                  .what(),
              HasSubstr("other, which is no symbol"));
  EXPECT_THAT(store->met_shapes(), SizeIs(0));
}

}  // namespace
}  // namespace nimble::tuner
