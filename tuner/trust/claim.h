// What a signature says, as the bytes that are signed.
//
// One encoding, with no choice in it: the domain, a zero byte, then each field in the order below
// as its length (u64, little-endian) and its bytes. The domain names what is claimed and the
// encoding's version, so no signature of one kind passes for one of another, and a field more
// needs a new domain. Nobody ever parses it: who checks a signature makes the bytes anew from what
// is at hand, so what was signed is what will be run.
//
//   "nimble candidate 1"   campaign (UUID), case (hash), code (digest), target, limits
//   "nimble cost model 1"  campaign (UUID), workload (hash), model (digest)
//
// A claim is made of records of a database, which anybody may have written: a field of another form
// than its own is Error(kInvalidArgument).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/store/queue.h"

namespace nimble::trust {

// The bytes of a claim, and what a message calls it.
struct Claim {
  std::vector<uint8_t> message;
  std::string name;    // "candidate 3f2a90ab"
  db::Digest subject;  // of the message: what signatures are found by
};

// "This executable may run as machine code for this case of this campaign, within these limits."
struct Candidate {
  db::Uuid campaign;
  db::Hash measure_case;  // workload, shape, policy and data
  db::Digest code;        // of the executable's bytes
  std::string target;     // what its machine code may use, e.g. "x86-64-v4"
  std::string limits;     // JSON as the job has it
};
Claim claim_of(const Candidate&);

// "This model was learnt in this campaign": XGBoost's reader is not made for other people's bytes.
struct LearntModel {
  db::Uuid campaign;
  db::Hash workload;
  db::Digest model;  // of its bytes
};
Claim claim_of(const LearntModel&);

}  // namespace nimble::trust
