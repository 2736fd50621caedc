// Blobs by content, and the candidates that they are.
#include <gmock/gmock.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "db/store/hash.h"
#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

std::vector<uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(Digest, IsBlake2b) {
  // BLAKE2b-256 of nothing and of "abc", as libsodium and Python's hashlib compute them.
  EXPECT_EQ(digest_of({}), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(digest_of(bytes_of("abc")),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  EXPECT_TRUE(is_digest(digest_of({})));
  EXPECT_FALSE(is_digest(std::string(64, 'G')));
  EXPECT_FALSE(is_digest(std::string(63, 'a')));
}

TEST_F(StoreTest, BlobsAreKeptByContent) {
  auto store = open();
  std::vector<uint8_t> noise(5000);
  for (size_t i = 0; i < noise.size(); ++i)
    noise[i] = static_cast<uint8_t>(i * i * 2654435761u >> 13);
  for (const std::vector<uint8_t>& bytes :
       {std::vector<uint8_t>(), bytes_of("short"), std::vector<uint8_t>(100'000, 7), noise}) {
    const Digest digest = store->put_blob(bytes);
    EXPECT_EQ(digest, digest_of(bytes));
    EXPECT_EQ(store->put_blob(bytes), digest);
    EXPECT_EQ(store->blob(digest), bytes);
    EXPECT_TRUE(store->has_blob(digest));
  }
  const auto raw = connection();
  EXPECT_EQ(raw->integer("SELECT count(*) FROM blob"), 4);
  EXPECT_LT(raw->integer("SELECT length(bytes) FROM blob WHERE size = 100000"), 1000);
  EXPECT_FALSE(store->blob(std::string(64, '0')));
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(FileTest, ABlobThatIsNotItsDigestIsRefused) {
  auto store = open();
  const Digest digest = store->put_blob(bytes_of("a candidate"));
  {
    const auto raw = connection();
    raw->script("DROP TRIGGER blob_keeps_update");
    raw->run("UPDATE blob SET bytes = ?", std::span<const uint8_t>(bytes_of("b candidate")));
  }
  EXPECT_EQ(error_of([&] { store->blob(digest); }).status(), Status::kCorrupt);
  EXPECT_FALSE(store->check().sound());
}

TEST_F(StoreTest, CandidatesAreFoundByArtifact) {
  auto store = open();
  Fleet fleet(*store);
  const Hash artifact = fleet.artifact(8);
  const Digest digest = store->put_blob(bytes_of("an executable"));
  store->put(Candidate{artifact, digest, "x86-64-v4"});
  store->put(Candidate{artifact, digest, "x86-64-v4"});
  ASSERT_THAT(store->candidates(artifact), SizeIs(1));
  EXPECT_EQ(store->candidates(artifact)[0].digest, digest);
  EXPECT_THAT(store->candidates(fleet.artifact(9)), IsEmpty());
  EXPECT_EQ(error_of([&] {
              store->put(Candidate{artifact, std::string(64, '0'), "x86-64-v4"});
            }).status(),
            Status::kInvalidArgument);
}

}  // namespace
}  // namespace nimble::db
