// nimble keys: signing keys, and whom this machine trusts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>

#include "db/store/open_existing.h"
#include "db/store/place.h"
#include "tuner/trust/records.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/printable.h"

namespace nimble {
namespace {

using Json = Table::Json;

constexpr char kEpilogue[] =
    "A KEY is a name, or the beginning of a public key's 64 hex digits. To trust somebody else's\n"
    "key takes all 64, from a source that you believe: a beginning can be imitated.\n\n"
    "Examples:\n"
    "  nimble keys new planner\n"
    "  nimble keys list\n"
    "  nimble keys trust d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a "
    "--name planner\n"
    "  nimble keys revoke planner --reason \"laptop was stolen\"\n"
    "  nimble keys check\n\n"
    "Keys lie in the folder that the environment variable NIMBLE_KEYS names, else in\n"
    "~/.config/nimble/keys. Secrets never leave it. With --db, or NIMBLE_DB, a database is told "
    "of\n"
    "new keys and revocations, too, and those that it knows are listed; it makes no key trusted.";

struct Arguments {
  std::string folder, database, key, name, reason;
  Format format = Format::kTable;
};

// A key with all that is known of it here.
struct Known {
  trust::NamedKey key;
  bool own = false, trusted = false, announced = false;
  std::optional<trust::Revocation> revoked;
};

// The database that was named; nothing if none was.
std::unique_ptr<db::Store> open(const Arguments& a, bool write) {
  if (a.database.empty()) return nullptr;
  return write ? db::open_to_write(a.database) : db::open_to_read(a.database);
}

std::vector<Known> known_keys(const trust::Keyring& ring, db::Store* store = nullptr) {
  std::vector<Known> all;
  const auto entry = [&](const trust::NamedKey& key) -> Known& {
    for (Known& k : all)
      if (k.key.key == key.key) {
        if (k.key.name.empty()) k.key.name = key.name;
        return k;
      }
    all.push_back({key, false, false, false, std::nullopt});
    return all.back();
  };
  for (const trust::NamedKey& k : ring.own()) entry(k).own = true;
  for (const trust::NamedKey& k : ring.trusted()) entry(k).trusted = true;
  for (const trust::Revocation& r : ring.revoked()) entry({r.key, ""}).revoked = r;
  if (!store) return all;
  for (const db::SigningKey& k : store->signing_keys())
    entry({k.public_key, k.name}).announced = true;
  for (const db::KeyRevocation& r : store->key_revocations())
    if (Known& k = entry({r.public_key, ""}); !k.revoked)
      k.revoked = trust::Revocation{r.public_key, r.reason, r.created_at};
  return all;
}

bool is_whole(const std::string& key) {
  return key.size() == 64 && key.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

// The one that is named so, or begins so.
Known find(const std::vector<Known>& all, const std::string& key) {
  const Known* found = nullptr;
  for (const Known& k : all)
    if (k.key.name == key) return k;
  for (const Known& k : all) {
    if (key.empty() || !k.key.key.starts_with(key)) continue;
    if (found)
      throw Error(Status::kInvalidArgument, key, "names several keys", "give more of its digits");
    found = &k;
  }
  if (!found)
    throw Error(Status::kNotFound, printable(key), "no key is named or begins so",
                "list them: nimble keys list");
  return *found;
}

Known find(const trust::Keyring& ring, const std::string& key) {
  return find(known_keys(ring), key);
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void print(const std::vector<Known>& keys, Format format) {
  const auto yes = [](const Json& b) { return b.get<bool>() ? "yes" : ""; };
  Table table({"name",
               "key",
               {"own", yes},
               {"trusted", yes},
               {"database", yes},
               {"revoked", [](const Json& r) {
                  return r.is_null() ? ""
                                     : fmt::format("{}: {}", cell::time(r["at"]).substr(0, 10),
                                                   r["reason"].get<std::string>());
                }}});
  for (const Known& k : keys) {
    Json row = {{"key", k.key.key},
                {"name", k.key.name},
                {"own", k.own},
                {"trusted", k.trusted},
                {"database", k.announced}};
    if (k.revoked) row["revoked"] = {{"reason", k.revoked->reason}, {"at", k.revoked->created_at}};
    table.add_object(std::move(row));
  }
  table.print(std::cout, format, "(none; make one: nimble keys new NAME)");
}

int make(trust::Keyring& ring, const Arguments& a) {
  const std::unique_ptr<db::Store> store = open(a, true);  // before a key is made in vain
  const trust::NamedKey key = ring.make(a.name);
  if (store) store->put(db::SigningKey{key.key, key.name});
  std::cout << key.key << '\n';
  std::cerr << fmt::format(
      "The secret is in {}/{}.key and nowhere else. On other machines, to run what it signs:\n"
      "  nimble keys trust {} --name {}\n",
      ring.folder(), key.name, key.key, key.name);
  return kExitOk;
}

int trust_key(trust::Keyring& ring, const Arguments& a) {
  trust::NamedKey key{a.key, a.name};
  if (is_whole(a.key)) {
    key.key = trust::public_key_from_text(a.key, "key");
    for (const Known& k : known_keys(ring))
      if (k.key.key == key.key && key.name.empty()) key.name = k.key.name;
    if (key.name.empty())
      throw Error(Status::kInvalidArgument, a.key.substr(0, 16), "has no name here yet",
                  "give --name");
  } else {
    const Known known = find(ring, a.key);
    if (!known.own && !known.trusted)
      throw Error(Status::kInvalidArgument, printable(a.key), "is not the whole key",
                  "give its 64 digits, from a source that you believe");
    key = {known.key.key, a.name.empty() ? known.key.name : a.name};
  }
  ring.trust(key);
  std::cerr << fmt::format("what {} ({}) signs may run on this machine\n", key.name,
                           key.key.substr(0, 16));
  return kExitOk;
}

int distrust_key(trust::Keyring& ring, const Arguments& a) {
  const Known known = find(ring, a.key);
  if (!ring.distrust(known.key.key))
    throw Error(Status::kInvalidArgument, printable(a.key), "is not trusted",
                "list those that are: nimble keys list");
  return kExitOk;
}

int revoke_key(trust::Keyring& ring, const Arguments& a) {
  // Of a key that is not known here, too, if it is given whole.
  const std::string key =
      is_whole(a.key) ? trust::public_key_from_text(a.key, "key") : find(ring, a.key).key.key;
  const std::unique_ptr<db::Store> store = open(a, true);
  const bool here = ring.revoke(key, a.reason, now_ms());
  const bool there = store && store->revoke({key, a.reason});
  if (!here && !there)
    throw Error(Status::kInvalidArgument, key.substr(0, 16), "is revoked already",
                "nimble keys show tells the reason");
  std::cerr << fmt::format(
      "key {} counts no more {}, for good\n", key.substr(0, 16),
      store ? "on this machine and for all who use the database" : "on this machine");
  return kExitOk;
}

// Signs and verifies with each key of one's own, and reads both lists: what a campaign would trip
// over, it finds.
int check(trust::Keyring& ring, const Arguments& a) {
  const std::vector<Known> keys = known_keys(ring);
  const std::vector<uint8_t> message = {'t', 'e', 's', 't'};
  int tried = 0;
  for (const Known& k : keys) {
    if (!k.own || k.revoked || (!a.key.empty() && find(ring, a.key).key.key != k.key.key)) continue;
    const trust::SigningKey pair = ring.open(k.key.name);
    if (pair.public_key() != k.key.key ||
        !trust::is_signed(message, pair.sign(message), pair.public_key()))
      throw Error(Status::kCorrupt, k.key.name, "does not sign as its public key says",
                  "restore a copy");
    ++tried;
    std::cout << fmt::format("{} {} signs; {}\n", k.key.key.substr(0, 16), k.key.name,
                             k.trusted ? "trusted here" : "not trusted here");
  }
  if (!a.key.empty() && tried == 0)
    throw Error(Status::kInvalidArgument, printable(a.key), "is no key of yours that may sign",
                "list them: nimble keys list");
  const std::unique_ptr<db::Store> store = open(a, false);
  const trust::Verifier verifier = store ? trust::verifier_of(ring, *store) : ring.verifier();
  const auto revoked = known_keys(ring, store.get());
  std::cout << fmt::format(
      "{} {} trusted, {} revoked\n", verifier.keys().size(),
      verifier.keys().size() == 1 ? "key" : "keys",
      std::count_if(revoked.begin(), revoked.end(), [](const Known& k) { return k.revoked; }));
  return kExitOk;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Make signing keys, and decide whose code this machine runs. Workers run only candidates\n"
      "that are signed by a key they trust.",
      "nimble keys"};
  app.require_subcommand(1);
  app.footer(kEpilogue);
  Arguments a;
  const auto command = [&](const char* name, const char* about, const char* example) {
    CLI::App* sub = app.add_subcommand(name, about);
    sub->add_option("--folder", a.folder, "Where keys lie; default: NIMBLE_KEYS, ~/.config/…")
        ->type_name("FOLDER");
    sub->add_option("--db", a.database, "A database to be told, or asked, too")
        ->check(read_by(db::require_place))
        ->envname("NIMBLE_DB")
        ->type_name("FILE|URL");
    sub->footer(fmt::format("Example:\n  {}", example));
    return sub;
  };
  CLI::App* make_command =
      command("new", "Make a pair; print its public key", "nimble keys new me");
  make_command->add_option("name", a.name, "What to call it")->required()->type_name("NAME");
  CLI::App* list_command = command("list", "Print one's own keys, trusted and revoked ones",
                                   "nimble keys list --format json");
  add_format(*list_command, &a.format);
  CLI::App* show_command = command("show", "Print one key", "nimble keys show me");
  add_format(*show_command, &a.format);
  show_command->add_option("key", a.key, "Which")->required()->type_name("KEY");
  CLI::App* trust_command =
      command("trust", "Run what a key signs", "nimble keys trust d75a98…511a --name planner");
  trust_command->add_option("key", a.key, "All 64 digits, or one of your own")
      ->required()
      ->type_name("KEY");
  trust_command->add_option("--name", a.name, "What to call it here")->type_name("NAME");
  CLI::App* distrust_command = command("distrust", "Run what a key signs no more; can be undone",
                                       "nimble keys distrust planner");
  distrust_command->add_option("key", a.key, "Which")->required()->type_name("KEY");
  CLI::App* revoke_command = command("revoke", "Let a key count no more, for good",
                                     "nimble keys revoke planner --reason \"laptop was stolen\"");
  revoke_command->add_option("key", a.key, "Which; all 64 digits if it is not known here")
      ->required()
      ->type_name("KEY");
  revoke_command->add_option("--reason", a.reason, "Why, for those who wonder")->required();
  CLI::App* check_command =
      command("check", "Try whether keys sign and the lists are sound", "nimble keys check me");
  check_command->add_option("key", a.key, "Only this one")->type_name("KEY");
  if (const auto code = parse_arguments(app, argc, argv, {kExitStale})) return *code;
  trust::Keyring ring(a.folder.empty() ? trust::default_keyring_folder() : a.folder);
  if (*make_command) return make(ring, a);
  if (*trust_command) return trust_key(ring, a);
  if (*distrust_command) return distrust_key(ring, a);
  if (*revoke_command) return revoke_key(ring, a);
  if (*check_command) return check(ring, a);
  const std::vector<Known> known = known_keys(ring, open(a, false).get());
  print(*show_command ? std::vector{find(known, a.key)} : known, a.format);
  return kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble keys", [&] { return nimble::run(argc, argv); });
}
