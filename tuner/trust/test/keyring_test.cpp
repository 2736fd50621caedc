// The folder of keys: what it keeps, and what it refuses.
#include "tuner/trust/keyring.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "db/store/test/fixture.h"

namespace nimble::trust {
namespace {

namespace fs = std::filesystem;
using db::error_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class KeyringTest : public testing::Test {
 protected:
  ~KeyringTest() override { fs::remove_all(root_); }

  std::string file(const std::string& name) const { return ring.folder() + "/" + name; }
  void write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    fs::create_directories(ring.folder());
    ::chmod(ring.folder().c_str(), 0700);
    std::ofstream(file(name)) << text;
    ::chmod(file(name).c_str(), mode);
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(file(name)).rdbuf();
    return text.str();
  }
  mode_t mode_of(const std::string& path) const {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777u;
  }
  std::vector<std::string> names(const std::vector<NamedKey>& keys) const {
    std::vector<std::string> out;
    for (const NamedKey& k : keys) out.push_back(k.name);
    return out;
  }

  static std::string new_folder() {
    std::string pattern = testing::TempDir() + "nimble-keys-XXXXXX";
    return ::mkdtemp(pattern.data());
  }
  std::string root_ = new_folder();
  Keyring ring{root_ + "/config/nimble/keys"};
};

TEST_F(KeyringTest, AFolderThatIsNotThereHasNoKeys) {
  EXPECT_TRUE(ring.own().empty());
  EXPECT_TRUE(ring.trusted().empty());
  EXPECT_TRUE(ring.revoked().empty());
  EXPECT_FALSE(ring.distrust(SigningKey::generate().public_key()));
  EXPECT_EQ(error_of([&] { ring.open("me"); }).status(), Status::kNotFound);
  EXPECT_FALSE(fs::exists(ring.folder()));
}

TEST_F(KeyringTest, ANewKeyIsTheUsersAloneAndTrustedHere) {
  const mode_t before = ::umask(0);  // as careless as can be
  const NamedKey made = ring.make("me@laptop");
  ::umask(before);
  EXPECT_EQ(mode_of(ring.folder()), 0700u);
  EXPECT_EQ(mode_of(file("me@laptop.key")), 0600u);
  EXPECT_EQ(mode_of(file("trusted_keys")), 0644u);
  EXPECT_THAT(names(ring.own()), ElementsAre("me@laptop"));
  ASSERT_EQ(ring.trusted().size(), 1u);
  EXPECT_EQ(ring.trusted()[0].key, made.key);
  EXPECT_EQ(ring.open("me@laptop").public_key(), made.key);
  // The secret is in its own file and nowhere else.
  const std::string text = read("me@laptop.key");
  const std::string secret = text.substr(text.find("secret ") + 7, 64);
  EXPECT_THAT(read("trusted_keys"), AllOf(HasSubstr(made.key), Not(HasSubstr(secret))));
  for (const auto& entry : fs::directory_iterator(ring.folder()))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tmp")));
}

TEST_F(KeyringTest, ANameIsTakenOnce) {
  const NamedKey first = ring.make("me");
  const std::string text = read("me.key");
  EXPECT_EQ(error_of([&] { ring.make("me"); }).status(), Status::kInvalidArgument);
  ring.distrust(first.key);
  EXPECT_THAT(error_of([&] { ring.make("me"); }).what(), HasSubstr("exists already"));
  EXPECT_EQ(read("me.key"), text);
  // A trusted key of somebody else's has its name, too.
  ring.trust({SigningKey::generate().public_key(), "you"});
  EXPECT_THAT(error_of([&] { ring.make("you"); }).what(), HasSubstr("trusted here"));
  EXPECT_THAT(error_of([&] {
                ring.trust({SigningKey::generate().public_key(), "you"});
              }).what(),
              HasSubstr("is the name of key"));
}

TEST_F(KeyringTest, NamesThatAreNoneAreRefused) {
  for (const std::string& bad :
       {std::string(), std::string("../me"), std::string("a/b"), std::string(".hidden"),
        std::string("a b"), std::string("a\nb"), std::string(65, 'a'), std::string("-x")}) {
    EXPECT_EQ(error_of([&] { ring.make(bad); }).status(), Status::kInvalidArgument) << bad;
    EXPECT_EQ(error_of([&] { ring.open(bad); }).status(), Status::kInvalidArgument) << bad;
  }
}

TEST_F(KeyringTest, AKeyThatOthersMayReadSignsNothing) {
  ring.make("me");
  for (const mode_t mode : {0640, 0604, 0644, 0660, 0666, 0610}) {
    ::chmod(file("me.key").c_str(), mode);
    const Error error = error_of([&] { ring.open("me"); });
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << mode;
    EXPECT_THAT(error.what(), AllOf(HasSubstr("others may"), HasSubstr("chmod 600")));
  }
  ::chmod(file("me.key").c_str(), 0400);
  EXPECT_NO_THROW(ring.open("me"));
}

TEST_F(KeyringTest, AKeyOfAnotherUserOrBehindALinkSignsNothing) {
  ring.make("me");
  fs::rename(file("me.key"), file("elsewhere"));
  fs::create_symlink(file("elsewhere"), file("me.key"));
  EXPECT_THAT(error_of([&] { ring.open("me"); }).what(), HasSubstr("symbolic link"));
  fs::remove(file("me.key"));
  ASSERT_EQ(::mkfifo(file("me.key").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { ring.open("me"); }).what(), HasSubstr("not a file"));
  fs::remove(file("me.key"));
  fs::rename(file("elsewhere"), file("me.key"));
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(::chown(file("me.key").c_str(), 4321, 4321), 0);
  EXPECT_THAT(error_of([&] { ring.open("me"); }).what(), HasSubstr("another user"));
}

TEST_F(KeyringTest, ADamagedKeySignsNothing) {
  ring.make("me");
  const std::string good = read("me.key");
  std::string other_public = good, other_secret = good, other_head = good;
  other_public[good.find("public ") + 7] ^= 1;
  other_secret[good.find("secret ") + 7] ^= 1;
  other_head[0] = 'N';
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() - 1), other_public, other_secret, other_head}) {
    write("me.key", bad);
    EXPECT_EQ(error_of([&] { ring.open("me"); }).status(), Status::kCorrupt) << bad;
  }
  write("me.key", good + good);
  EXPECT_EQ(error_of([&] { ring.open("me"); }).status(), Status::kCorrupt);
  write("me.key", good);
  EXPECT_NO_THROW(ring.open("me"));
}

TEST_F(KeyringTest, AListThatOthersMayWriteTrustsNobody) {
  ring.make("me");
  for (const char* list : {"trusted_keys", "revoked_keys"}) {
    if (!fs::exists(file(list))) write(list, "");
    for (const mode_t mode : {0664, 0646}) {
      ::chmod(file(list).c_str(), mode);
      const Error error = error_of([&] { ring.verifier(); });
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("others may write to it"));
    }
    ::chmod(file(list).c_str(), 0644);
    EXPECT_NO_THROW(ring.verifier());
  }
  ::chmod(ring.folder().c_str(), 0770);
  EXPECT_THAT(error_of([&] { ring.verifier(); }).what(), HasSubstr("others may write to it"));
  EXPECT_THAT(error_of([&] { ring.open("me"); }).what(), HasSubstr("others may write to it"));
  EXPECT_THROW(ring.make("more"), Error);
}

TEST_F(KeyringTest, ALineThatCannotBeReadIsNotPassedOver) {
  const PublicKey key = SigningKey::generate().public_key();
  write("trusted_keys", "# whom I know\n\n" + key + " friend\n");
  EXPECT_THAT(names(ring.trusted()), ElementsAre("friend"));
  for (const std::string& bad :
       {std::string("x friend"), key.substr(1) + " friend", key + " ../friend", key}) {
    write("trusted_keys", bad);
    EXPECT_EQ(error_of([&] { ring.trusted(); }).status(), Status::kInvalidArgument) << bad;
  }
  write("trusted_keys", "");
  for (const std::string& bad : {key, key + " reason", key + " 12", key + " 12x reason"}) {
    write("revoked_keys", bad);
    EXPECT_EQ(error_of([&] { ring.verifier(); }).status(), Status::kCorrupt) << bad;
  }
}

TEST_F(KeyringTest, TrustIsGivenAndTakenBack) {
  const NamedKey friends{SigningKey::generate().public_key(), "friend"};
  ring.trust(friends);
  ring.trust({friends.key, "friend2"});
  EXPECT_THAT(names(ring.trusted()), ElementsAre("friend2"));
  EXPECT_EQ(ring.verifier().keys().size(), 1u);
  EXPECT_TRUE(ring.distrust(friends.key));
  EXPECT_FALSE(ring.distrust(friends.key));
  EXPECT_TRUE(ring.verifier().keys().empty());
}

TEST_F(KeyringTest, ARevocationIsForGood) {
  const NamedKey me = ring.make("me");
  EXPECT_TRUE(ring.revoke(me.key, "laptop was\nstolen", 1234));
  EXPECT_FALSE(ring.revoke(me.key, "again", 5678));
  ASSERT_EQ(ring.revoked().size(), 1u);
  EXPECT_EQ(ring.revoked()[0].reason, "laptop was stolen");
  EXPECT_EQ(ring.revoked()[0].created_at, 1234);
  EXPECT_THAT(error_of([&] { ring.open("me"); }).what(), HasSubstr("revoked (laptop was stolen)"));
  EXPECT_THAT(error_of([&] { ring.trust(me); }).what(), HasSubstr("is revoked"));
  EXPECT_TRUE(ring.verifier().keys().empty()) << "though it is among the trusted ones";
  // Also of a key that is known from elsewhere only, and with a revocation from a database.
  const NamedKey friends{SigningKey::generate().public_key(), "friend"};
  ring.trust(friends);
  EXPECT_EQ(ring.verifier().keys().size(), 1u);
  EXPECT_TRUE(ring.verifier({{friends.key, "told by a database", 1}}).keys().empty());
}

TEST_F(KeyringTest, TheFolderIsTheConfigurationsOrAsNamed) {
  const auto set = [](const char* name, const char* value) {
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  };
  const char* home = std::getenv("HOME");
  const std::string kept = home ? home : "";
  set("NIMBLE_KEYS", nullptr);
  set("XDG_CONFIG_HOME", nullptr);
  set("HOME", "/home/me");
  EXPECT_EQ(default_keyring_folder(), "/home/me/.config/nimble/keys");
  set("XDG_CONFIG_HOME", "/config");
  EXPECT_EQ(default_keyring_folder(), "/config/nimble/keys");
  set("NIMBLE_KEYS", "/keys");
  EXPECT_EQ(default_keyring_folder(), "/keys");
  set("NIMBLE_KEYS", nullptr);
  set("XDG_CONFIG_HOME", nullptr);
  set("HOME", nullptr);
  EXPECT_EQ(error_of([] { default_keyring_folder(); }).status(), Status::kNotFound);
  set("HOME", kept.c_str());
}

}  // namespace
}  // namespace nimble::trust
