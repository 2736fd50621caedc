#include "tuner/trust/keyring.h"

#include <sodium.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tuner/trust/private_file.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::trust {
namespace {

constexpr std::string_view kTrusted = "trusted_keys", kRevoked = "revoked_keys", kSuffix = ".key";
constexpr size_t kLongestName = 64, kListBytes = size_t{1} << 20, kKeyDigits = 64;

// A key's file: this, the public key, "secret ", the seed, and an end of line after each of them.
constexpr std::string_view kHead = "nimble signing key 1\npublic ", kSecret = "\nsecret ";
constexpr size_t kSecretAt = kHead.size() + kKeyDigits + kSecret.size();
constexpr size_t kKeyFileBytes = kSecretAt + 2 * SigningKey::kSeedBytes + 1;

void check_name(const std::string& name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const bool right = !name.empty() && name.size() <= kLongestName && is_letter(name[0]) &&
                     std::all_of(name.begin(), name.end(), [&](char c) {
                       return is_letter(c) || std::strchr("._@-", c) != nullptr;
                     });
  if (!right)
    throw Error(Status::kInvalidArgument, printable(name), "is no name for a key",
                "use letters, digits and . _ @ -, at most 64, a letter or digit first");
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The lines of a list that say something, each as its first word and the rest.
struct Line {
  std::string place, word, rest;
};
std::vector<Line> lines_of(const std::string& folder, const std::string& path) {
  check_private_folder(folder);
  const auto bytes = read_private(path, Privacy::kUnwritten, kListBytes);
  std::vector<Line> out;
  if (!bytes) return out;
  std::string_view text(reinterpret_cast<const char*>(bytes->bytes().data()),
                        bytes->bytes().size());
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    const size_t space = std::min(line.find(' '), line.size());
    out.push_back({fmt::format("{}:{}", path, number), std::string(line.substr(0, space)),
                   std::string(line.substr(std::min(space + 1, line.size())))});
  }
  return out;
}

}  // namespace

std::string default_keyring_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const std::string named = variable("NIMBLE_KEYS"); !named.empty()) return named;
  if (const std::string config = variable("XDG_CONFIG_HOME"); config.starts_with('/'))
    return config + "/nimble/keys";
  if (const std::string home = variable("HOME"); home.starts_with('/'))
    return home + "/.config/nimble/keys";
  throw Error(Status::kNotFound, "keys", "the environment names no home folder",
              "set NIMBLE_KEYS to the folder of your keys");
}

NamedKey Keyring::make(const std::string& name) {
  check_name(name);
  make_private_folder(folder_);
  check_private_folder(folder_);
  const SigningKey pair = SigningKey::generate();
  const SecretBytes seed = pair.seed();
  SecretBytes file(kKeyFileBytes + 1);  // sodium_bin2hex ends with a zero
  char* const text = reinterpret_cast<char*>(file.bytes().data());
  std::memcpy(text, kHead.data(), kHead.size());
  std::memcpy(text + kHead.size(), pair.public_key().data(), kKeyDigits);
  std::memcpy(text + kHead.size() + kKeyDigits, kSecret.data(), kSecret.size());
  ::sodium_bin2hex(text + kSecretAt, 2 * SigningKey::kSeedBytes + 1, seed.bytes().data(),
                   seed.bytes().size());
  text[kKeyFileBytes - 1] = '\n';
  const NamedKey key{pair.public_key(), name};
  const std::vector<NamedKey> trusted_keys = trusted();
  for (const NamedKey& k : trusted_keys)
    if (k.name == name)
      throw Error(Status::kInvalidArgument, name, "is the name of a key that is trusted here",
                  "choose another name");
  write_private(path(name + std::string(kSuffix)), file.bytes().first(kKeyFileBytes), 0600, false);
  trust(key);
  return key;
}

SigningKey Keyring::open(const std::string& name) const {
  check_name(name);
  check_private_folder(folder_);
  const std::string file = path(name + std::string(kSuffix));
  const auto bytes = read_private(file, Privacy::kUnread, kKeyFileBytes);
  if (!bytes)
    throw Error(Status::kNotFound, file, "there is no such key",
                fmt::format("make one: nimble keys new {}", name));
  const auto damaged = [&] {
    return Error(Status::kCorrupt, file, "is not a signing key", "restore a copy");
  };
  if (bytes->bytes().size() != kKeyFileBytes) throw damaged();
  const char* const text = reinterpret_cast<const char*>(bytes->bytes().data());
  const SecretBytes seed(SigningKey::kSeedBytes);
  const char* end = nullptr;
  if (std::string_view(text, kHead.size()) != kHead ||
      std::string_view(text + kHead.size() + kKeyDigits, kSecret.size()) != kSecret ||
      text[kKeyFileBytes - 1] != '\n' ||
      ::sodium_hex2bin(seed.bytes().data(), seed.bytes().size(), text + kSecretAt,
                       2 * SigningKey::kSeedBytes, nullptr, nullptr, &end) != 0 ||
      end != text + kSecretAt + 2 * SigningKey::kSeedBytes)
    throw damaged();
  SigningKey pair(seed.bytes());
  if (pair.public_key() != std::string_view(text + kHead.size(), kKeyDigits)) throw damaged();
  for (const Revocation& r : revoked())
    if (r.key == pair.public_key())
      throw Error(Status::kInvalidArgument, file,
                  fmt::format("the key is revoked ({})", printable(r.reason)),
                  "sign with another key");
  return pair;
}

std::vector<NamedKey> Keyring::own() const {
  std::vector<NamedKey> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(kSuffix)) continue;
    const std::string name = file.substr(0, file.size() - kSuffix.size());
    check_name(name);
    const auto bytes = read_private(entry.path().string(), Privacy::kUnread, kKeyFileBytes);
    if (!bytes) continue;
    const char* const text = reinterpret_cast<const char*>(bytes->bytes().data());
    if (bytes->bytes().size() != kKeyFileBytes || std::string_view(text, kHead.size()) != kHead)
      throw Error(Status::kCorrupt, entry.path().string(), "is not a signing key",
                  "restore a copy");
    out.push_back(
        {public_key_from_text({text + kHead.size(), kKeyDigits}, entry.path().string()), name});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(Status::kIo, folder_, fmt::format("cannot be read ({})", error.message()),
                "check its permissions");
  std::sort(out.begin(), out.end(),
            [](const NamedKey& a, const NamedKey& b) { return a.name < b.name; });
  return out;
}

std::vector<NamedKey> Keyring::trusted() const {
  std::vector<NamedKey> out;
  for (const Line& line : lines_of(folder_, path(kTrusted))) {
    NamedKey key{public_key_from_text(line.word, line.place), line.rest};
    check_name(key.name);
    out.push_back(std::move(key));
  }
  return out;
}

std::vector<Revocation> Keyring::revoked() const {
  std::vector<Revocation> out;
  for (const Line& line : lines_of(folder_, path(kRevoked))) {
    Revocation r{public_key_from_text(line.word, line.place), {}, 0};
    const char* const begin = line.rest.data();
    const char* const end = begin + line.rest.size();
    const auto [at, code] = std::from_chars(begin, end, r.created_at);
    if (code != std::errc() || at == end || *at != ' ')
      throw Error(Status::kCorrupt, line.place, "is not \"KEY TIME REASON\"",
                  "write it so; to leave out a revocation would undo it");
    r.reason.assign(at + 1, end);
    out.push_back(std::move(r));
  }
  return out;
}

void Keyring::write_trusted(const std::vector<NamedKey>& keys) const {
  std::string text = "# Whose code runs here; written by nimble keys.\n";
  for (const NamedKey& k : keys) text += fmt::format("{} {}\n", k.key, k.name);
  write_private(path(kTrusted), bytes_of(text), 0644, true);
}

void Keyring::trust(const NamedKey& key) {
  check_name(key.name);
  make_private_folder(folder_);
  const FolderLock lock(folder_);
  for (const Revocation& r : revoked())
    if (r.key == key.key)
      throw Error(Status::kInvalidArgument, key.key.substr(0, 16),
                  fmt::format("is revoked ({})", printable(r.reason)), "trust another key");
  std::vector<NamedKey> keys = trusted();
  std::erase_if(keys, [&](const NamedKey& k) { return k.key == key.key; });
  for (const NamedKey& k : keys)
    if (k.name == key.name)
      throw Error(Status::kInvalidArgument, key.name,
                  fmt::format("is the name of key {}", k.key.substr(0, 16)), "give another name");
  keys.push_back(key);
  write_trusted(keys);
}

bool Keyring::distrust(const PublicKey& key) {
  check_private_folder(folder_);
  if (!std::filesystem::exists(folder_)) return false;
  const FolderLock lock(folder_);
  std::vector<NamedKey> keys = trusted();
  if (std::erase_if(keys, [&](const NamedKey& k) { return k.key == key; }) == 0) return false;
  write_trusted(keys);
  return true;
}

bool Keyring::revoke(const PublicKey& key, const std::string& reason, int64_t now_ms) {
  make_private_folder(folder_);
  const FolderLock lock(folder_);
  std::string text = "# Keys that count no more, for good; written by nimble keys.\n";
  for (const Revocation& r : revoked()) {
    if (r.key == key) return false;
    text += fmt::format("{} {} {}\n", r.key, r.created_at, r.reason);
  }
  text += fmt::format("{} {} {}\n", key, now_ms, one_line(reason));
  write_private(path(kRevoked), bytes_of(text), 0644, true);
  return true;
}

Verifier Keyring::verifier(std::vector<Revocation> elsewhere) const {
  std::vector<Revocation> all = revoked();
  all.insert(all.end(), elsewhere.begin(), elsewhere.end());
  return Verifier(trusted(), all);
}

}  // namespace nimble::trust
