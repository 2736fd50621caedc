// The first characters of an identifier stand for the whole.
#include "db/store/identifier.h"

#include <gmock/gmock.h>

#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TheOne, IsTheOnlyOneOrTheOneInFull) {
  EXPECT_EQ(the_one({"abcd1"}, "abcd", "thing", "look"), "abcd1");
  EXPECT_EQ(the_one({"abcd", "abcd1"}, "abcd", "thing", "look"), "abcd");
  EXPECT_EQ(the_one({"abc"}, "abc", "thing", "look"), "abc") << "short, but in full";
  const Error none = error_of([] { the_one({}, "abcd", "thing", "look around"); });
  EXPECT_EQ(none.status(), Status::kNotFound);
  EXPECT_THAT(none.what(), AllOf(HasSubstr("no thing begins so"), HasSubstr("look around")));
  for (const char* prefix : {"", "abc"}) {
    const Error brief = error_of([&] { the_one({"abcd1"}, prefix, "thing", "look"); });
    EXPECT_EQ(brief.status(), Status::kInvalidArgument);
    EXPECT_THAT(brief.what(), HasSubstr("give 4 characters or more"));
  }
  const Error several = error_of([] { the_one({"abcd1", "abcd2"}, "abcd", "thing", "look"); });
  EXPECT_EQ(several.status(), Status::kInvalidArgument);
  EXPECT_THAT(several.what(), HasSubstr("several things begin so: abcd1, abcd2"));
}

}  // namespace

TEST_F(StoreTest, RecordsAreFoundByTheBeginningOfTheirKey) {
  auto store = open();
  World world(*store);
  const Uuid trial = world.tried(*store, 8, 64, 100);
  world.tried(*store, 16, 64, 100);
  const Uuid table = store->create_table(world.draft(*store, 8));
  EXPECT_EQ(store->find(Kind::kCampaign, world.campaign.substr(0, 8)),
            std::vector<std::string>{world.campaign});
  EXPECT_EQ(store->find(Kind::kTrial, trial), std::vector<std::string>{trial});
  EXPECT_EQ(store->find(Kind::kTable, table.substr(0, 20)), std::vector<std::string>{table});
  const std::vector<std::string> both = store->find(Kind::kTrial, "");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_LT(both[0], both[1]);
  EXPECT_EQ(store->find(Kind::kTrial, "", 1), std::vector<std::string>{both[0]});
  for (const Kind kind : {Kind::kMeasurement, Kind::kMachine, Kind::kCampaign})
    for (const char* none :
         {"%", "_", "g", "A", "0' OR 1", "00000000-0000-0000-0000-0000000000000"})
      EXPECT_TRUE(store->find(kind, none).empty()) << name_of(kind) << " " << none;
  EXPECT_EQ(the_one(*store, Kind::kTable, table.substr(0, 20), "look"), table);
  EXPECT_THAT(error_of([&] { the_one(*store, Kind::kMachine, "abcd", "look around"); }).what(),
              AllOf(HasSubstr("no machine begins so"), HasSubstr("look around")));
}

}  // namespace nimble::db
