// What may be told of a database's place.
#include "db/store/place.h"

#include <gmock/gmock.h>

#include "db/store/open.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(Place, AFileIsNoServer) {
  EXPECT_FALSE(names_server("tuning.db"));
  EXPECT_FALSE(names_server("./postgresql://x"));
  EXPECT_TRUE(names_server("postgresql:///tuning"));
  EXPECT_TRUE(names_server("postgres://server/tuning"));
  EXPECT_EQ(printable_place("a@b:c?password=d"), "a@b:c?password=d") << "a file's name";
}

TEST(Place, AUrlIsToldWithoutItsPassword) {
  for (const auto& [given, told] : std::initializer_list<std::pair<const char*, const char*>>{
           {"postgres://host/db", "postgresql://host/db"},
           {"postgresql://me@host:5433/db", "postgresql://me@host:5433/db"},
           {"postgresql://me:secret@host/db", "postgresql://me@host/db"},
           {"postgresql://:secret@host/db", "postgresql://@host/db"},
           {"postgresql:///db?host=%2Ftmp&user=me&password=secret&sslmode=verify-full",
            "postgresql:///db?host=%2Ftmp&user=me&sslmode=verify-full"},
           {"postgresql://h/db?pass%77ord=secret", "postgresql://h/db"},
           {"postgresql://h/db?sslpassword=secret&connect_timeout=3", "postgresql://h/db"}})
    EXPECT_EQ(printable_place(given), told);
}

// Taken for a file's name, a slip in the scheme would make a database beside the one that is meant.
TEST(Place, AUrlOfAnythingElseIsRefusedWithWhatThereIs) {
  const std::string folder = testing::TempDir() + "nimble-other-urls";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/mysql:/host");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  for (const std::string url :
       {"mysql://host/db", "mysql://me:secret@host/db", "postgresq://host/db",
        "sqlite:///tuning.db", "PostgreSQL://host/db", "file://tuning.db", "a+b-c.1://x"}) {
    for (const Error& error :
         {error_of([&] { Store::open(url); }), error_of([&] { require_place(url); }),
          error_of([&] { Store::open("mine.db")->import_from(url); }),
          error_of([&] { Store::open("mine.db")->export_to(url); })}) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument) << url;
      EXPECT_THAT(error.what(), HasSubstr("nimble has no databases at")) << url;
      EXPECT_THAT(error.what(), HasSubstr("postgresql://USER@HOST/DATABASE")) << url;
      EXPECT_THAT(error.what(), Not(HasSubstr("secret")));
    }
  }
  EXPECT_EQ(printable_place("mysql://me:secret@host/db"), "mysql://me@host/db");
  // These are files, whatever they are called.
  for (const char* file : {"./mysql://host/db", "tuning.db", "://x", "1x://y", "a b://y"})
    EXPECT_NO_THROW(require_place(file)) << file;
  EXPECT_NO_THROW(Store::open("./mysql://host/db"));
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

// A password that should have been escaped is cut all the same.
TEST(Place, StrayCharactersOfAPasswordAreNotTold) {
  for (const char* stray : {"se@cret", "se/cret", "se?cret", "se#cret", "se:cret", "s%ecret"}) {
    const std::string url = "postgresql://me:" + std::string(stray) + "@host/db";
    EXPECT_THAT(printable_place(url), Not(HasSubstr("cret"))) << url;
    const Error error = error_of([&] { Store::open(url + "?connect_timeout=1&port=x"); });
    EXPECT_THAT(error.what(), Not(HasSubstr("cret"))) << url;
  }
}

TEST(Place, FilesBesideAServersDatabaseLieInTheUsersCache) {
  EXPECT_EQ(local_prefix("a/tuning.db", "id"), "a/tuning.db");
  const std::filesystem::path cache = std::filesystem::path(testing::TempDir()) / "nimble-cache";
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  EXPECT_EQ(local_prefix("postgresql://me:secret@host/db", "id"), cache / "nimble" / "id");
  EXPECT_TRUE(std::filesystem::is_directory(cache / "nimble"));
  unsetenv("XDG_CACHE_HOME");
  std::filesystem::remove_all(cache);
}

#ifndef NIMBLE_POSTGRES
TEST(Place, WithoutTheClientLibraryAUrlIsRefusedByName) {
  const Error error = error_of([] { Store::open("postgresql://me:secret@host/db"); });
  EXPECT_EQ(error.status(), Status::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("built without PostgreSQL"));
}
#endif

}  // namespace
}  // namespace nimble::db
