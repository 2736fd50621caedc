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
}  // namespace nimble::db
