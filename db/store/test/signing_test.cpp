// Public keys, revocations and signatures as the database keeps and merges them.
#include <gmock/gmock.h>

#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::IsEmpty;

const std::string kKey(64, 'a'), kOther(64, 'b'), kSubject(64, '0');

Signature signature(uint8_t fill, const std::string& key = kKey) {
  return {kSubject, key, std::vector<uint8_t>(64, fill)};
}

class SigningTest : public StoreTest {};

TEST_F(SigningTest, WhatIsWrittenIsRead) {
  auto store = open();
  EXPECT_THAT(store->signing_keys(), IsEmpty());
  store->put(SigningKey{kOther, "b"});
  store->put(SigningKey{kKey, "a"});
  store->put(SigningKey{kKey, "another name"});
  ASSERT_EQ(store->signing_keys().size(), 2u);
  EXPECT_EQ(store->signing_keys()[0].public_key, kKey);
  EXPECT_EQ(store->signing_keys()[0].name, "a") << "the first";
  EXPECT_GT(store->signing_keys()[0].created_at, 0);

  EXPECT_TRUE(store->revoke({kKey, "stolen"}));
  EXPECT_FALSE(store->revoke({kKey, "again"}));
  const std::vector<Event> feed = store->events(0);
  ASSERT_EQ(feed.size(), 1u) << "once";
  EXPECT_EQ(feed[0].kind, "key");
  EXPECT_EQ(feed[0].subject, kKey);
  ASSERT_EQ(store->key_revocations().size(), 1u);
  EXPECT_EQ(store->key_revocations()[0].reason, "stolen");

  store->add(signature(1));
  store->add(signature(1));
  store->add(signature(2, kOther));
  // Wrong bytes under a key take no place from the right ones.
  store->add(signature(3));
  const std::vector<Signature> found = store->signatures(kSubject);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[2].public_key, kOther);
  EXPECT_EQ(found[2].bytes, std::vector<uint8_t>(64, 2));
  EXPECT_THAT(store->signatures(std::string(64, '1')), IsEmpty());
}

TEST_F(SigningTest, WhatHasAnotherFormIsRefused) {
  auto store = open();
  const auto refused = [&](auto write) {
    EXPECT_EQ(error_of(write).status(), Status::kInvalidArgument);
  };
  for (const std::string& bad : {std::string(), std::string(63, 'a'), std::string(64, 'A'),
                                 std::string(64, 'g'), std::string(65, 'a')}) {
    refused([&] { store->put(SigningKey{bad, "a"}); });
    refused([&] { store->revoke({bad, "stolen"}); });
    refused([&] { store->add(signature(1, bad)); });
    refused([&] { store->add(Signature{bad, kKey, std::vector<uint8_t>(64, 1)}); });
  }
  refused([&] { store->put(SigningKey{kKey, ""}); });
  refused([&] { store->revoke({kKey, ""}); });
  refused([&] { store->add(Signature{kSubject, kKey, std::vector<uint8_t>(63, 1)}); });
}

TEST_F(SigningTest, NobodyTakesARevocationBack) {
  { open()->revoke({kKey, "stolen"}); }
  const auto raw = connection();
  for (const char* sql :
       {"DELETE FROM key_revocation", "UPDATE key_revocation SET reason = 'never mind'",
        "UPDATE key_revocation SET public_key = reason"})
    EXPECT_EQ(error_of([&] { raw->script(sql); }).status(), Status::kInvalidArgument) << sql;
}

// Whichever way two databases are merged: what one knows to be revoked, both do.
TEST_F(SigningTest, MergingKeepsEveryRevocation) {
  {
    auto one = open("one"), two = open("two");
    one->revoke({kKey, "stolen"});
    one->put(SigningKey{kKey, "a"});
    one->add(signature(1));
    two->put(SigningKey{kKey, "another name"});
    two->revoke({kOther, "lost"});
    two->add(signature(2, kOther));
  }
  for (const auto& [into, from] : {std::pair("one", "two"), std::pair("two", "one")}) {
    auto store = open(into);
    store->import_from(place(from));
    const std::vector<KeyRevocation> all = store->key_revocations();
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].reason, "stolen");
    EXPECT_EQ(all[1].reason, "lost");
    EXPECT_EQ(store->signatures(kSubject).size(), 2u);
    EXPECT_EQ(store->signing_keys().size(), 1u);
    EXPECT_EQ(store->import_from(place(from)).rows_added, 0);
  }
}

}  // namespace
}  // namespace nimble::db
