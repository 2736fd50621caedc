// A user's keys: a folder of small text files.
//
//   NAME.key       a signing key of one's own, mode 0600: three lines, the last the secret
//   trusted_keys   whose code may run here, "KEY NAME" a line
//   revoked_keys   which never may again, "KEY TIME REASON" a line; only ever grows
//
// Lines of the two lists that are empty or begin with # are comments. The folder lies in the user's
// configuration, never in a database: NIMBLE_KEYS, else $XDG_CONFIG_HOME/nimble/keys, else
// ~/.config/nimble/keys. It is made when the first key is.
//
// A key that others could have read signs nothing, and a list that others could have written to
// trusts nobody: both are refused by name rather than passed over. Every change is one rename under
// a lock, so several programs may share a folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/trust/verifier.h"

namespace nimble::trust {

// Error(kNotFound) where the environment names no home.
std::string default_keyring_folder();

class Keyring {
 public:
  explicit Keyring(std::string folder) : folder_(std::move(folder)) {}
  const std::string& folder() const { return folder_; }

  // Makes a pair, keeps it under a name that no other has and trusts it here.
  // Error(kInvalidArgument) for a name that is taken, or is none: letters, digits and . _ @ -, at
  // most 64, a letter or digit first.
  NamedKey make(const std::string& name);
  // One's own keys by name, without their secrets. A file that is none is an error.
  std::vector<NamedKey> own() const;
  // Error(kNotFound) for no such key, (kInvalidArgument) for a file that others may read or that
  // is not the user's, and for a revoked key; (kCorrupt) for a damaged file.
  SigningKey open(const std::string& name) const;

  std::vector<NamedKey> trusted() const;
  std::vector<Revocation> revoked() const;
  // Error(kInvalidArgument) for a revoked key, or another key's name. A name anew for a key that is
  // trusted already replaces the old.
  void trust(const NamedKey& key);
  bool distrust(const PublicKey& key);  // false: it was not trusted
  // False: it was revoked already; the first reason stays.
  bool revoke(const PublicKey& key, const std::string& reason, int64_t now_ms);

  // What this machine trusts; `elsewhere`: revocations that a database tells of.
  Verifier verifier(std::vector<Revocation> elsewhere = {}) const;

 private:
  std::string path(std::string_view file) const { return folder_ + "/" + std::string(file); }
  void write_trusted(const std::vector<NamedKey>& keys) const;

  std::string folder_;
};

}  // namespace nimble::trust
