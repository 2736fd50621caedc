// What a worker may run as machine code.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "db/store/store.h"
#include "tuner/trust/keyring.h"
#include "vm/base/gpu_facts.h"

namespace nimble::tuner {

// Asked by one thread at a time.
class Permission {
 public:
  virtual ~Permission() = default;
  // Learns anew whom to trust; asked before each claim, so that a revocation counts from the next
  // job on. True if that has changed since it was asked before. Errors: of the place where that is
  // written; of the database.
  virtual bool renew(db::Store& store) = 0;
  // Error with the reason if this executable may not run here for that job.
  virtual void require(db::Store& store, const db::Job& job, const db::JobTrial& trial,
                       std::span<const uint8_t> executable) = 0;
  // What renew() found, for people (db::Worker::trusted_keys).
  virtual std::string trusted_keys() const = 0;
};

// Only what is signed by a key that this machine trusts, for just this campaign, case, code, target
// and limits, and only if this machine, or the GPU that it measures on, is of the target. What is
// claimed is made anew from what is about to run; of what the database says about the signature
// nothing is believed.
class SignedOnly final : public Permission {
 public:
  // `only`: of the keyring's keys those with these names; a whole key (64 digits) need not be in
  // the keyring. Empty: all that the keyring trusts. The first renew() throws
  // Error(kInvalidArgument) for a name that no trusted key has; one that goes later is trusted no
  // more. `gpu`: code for that GPU runs, and none for CPUs; nothing: the other way around.
  SignedOnly(trust::Keyring ring, std::vector<std::string> only = {},
             std::optional<GpuFacts> gpu = {});

  bool renew(db::Store& store) override;
  void require(db::Store& store, const db::Job& job, const db::JobTrial& trial,
               std::span<const uint8_t> executable) override;
  std::string trusted_keys() const override;
  // Trusted and not revoked, as of the last renew().
  std::vector<trust::NamedKey> keys() const { return verifier_.keys(); }

 private:
  std::vector<trust::NamedKey> chosen() const;
  // Why code for the target cannot run here; empty: it can.
  std::string why_not_of(const std::string& target) const;

  trust::Keyring ring_;
  std::vector<std::string> only_;
  std::optional<GpuFacts> gpu_;
  trust::Verifier verifier_;
  bool asked_ = false;
};

}  // namespace nimble::tuner
