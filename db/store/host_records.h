// How a machine names itself in the database, whoever asks: the compiler, the tuner, or a worker
// that has neither.
#pragma once

#include <string>

#include "db/store/store.h"

namespace nimble::db {

// This machine. What a process may use of it (affinity, quotas) is no part of its hardware.
Hardware host_hardware();
Machine host_machine();
// What its last cache holds, as its record says; 0 if that says nothing of caches.
int64_t last_cache_bytes(const Hardware& h);

// The record of the hardware that a user names: the beginning of its fingerprint, or its model's
// name or a part of it. Error(kNotFound, kInvalidArgument) lists what the database knows.
Hardware find_hardware(Store& store, const std::string& name);

}  // namespace nimble::db
