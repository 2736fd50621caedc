// What may be told of URLs.
#include "vm/base/url.h"

#include <gmock/gmock.h>

namespace nimble {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Url, LosesItsPassword) {
  for (const auto& [given, told] : std::initializer_list<std::pair<const char*, const char*>>{
           {"tuning.db", "tuning.db"},
           {"a@b:c?password=d", "a@b:c?password=d"},
           {"postgresql://me:secret@host/db", "postgresql://me@host/db"},
           {"--db=postgresql://me:secret@host/db", "--db=postgresql://me@host/db"},
           {"https://host/a?b=c", "https://host/a"},
           {"misspelt://:secret@host", "misspelt://@host"},
           {"://", "://"},
           {"x://?", "x://"},
           {"x://@", "x://@"}})
    EXPECT_EQ(without_password(given), told) << given;
  const std::string_view kept[] = {"user"};
  EXPECT_EQ(without_password("x://h/d?password=p&user=me&user2=b", kept), "x://h/d?user=me");
}

TEST(Url, StrayCharactersOfAPasswordGoToo) {
  for (const char* stray :
       {"se@cret", "se/cret", "se?cret", "se#cret", "se:cret", "se cret", "cret"})
    EXPECT_THAT(without_password("x://me:" + std::string(stray) + "@host/db"),
                Not(HasSubstr("cret")))
        << stray;
}

TEST(Url, EveryWordOfATextLosesItsOwn) {
  EXPECT_EQ(
      without_passwords("two: \"x://a:secret@h/d\",\n (y://b:secret@i?password=secret); write "
                        "postgresql://USER@HOST:PORT/DATABASE."),
      "two: \"x://a@h/d\",\n (y://b@i); write postgresql://USER@HOST:PORT/DATABASE.");
  EXPECT_EQ(without_passwords(" plain  text: me@host "), " plain  text: me@host ");
  EXPECT_EQ(without_passwords(""), "");
}

}  // namespace
}  // namespace nimble
