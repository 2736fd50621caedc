// What all of nimble's programs share: exit codes, and how an error ends a program.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

#include "vm/base/error.h"

namespace nimble {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitWrongResult = 3,
  kExitRegression = 4,
  kExitStale = 5,  // stale or incompatible database
  kExitInterrupted = 130,
};

// Runs the body of a program. An Error becomes one line on stderr, "NAME: error: …", and exit
// code 1; so does running out of memory.
template <typename Body>
int run_program(const char* name, Body body) {
  try {
    return body();
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: error: %s\n", name, e.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: error: not enough memory; free some or choose smaller sizes\n", name);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: error: %s\n", name, e.what());
  }
  return kExitFailure;
}

// The same of a program about a database: one that is incompatible has an exit code of its own.
template <typename Body>
int run_database_program(const char* name, Body body) {
  return run_program(name, [&]() -> int {
    try {
      return body();
    } catch (const Error& e) {
      if (e.status() != Status::kIncompatible) throw;
      std::fprintf(stderr, "%s: error: %s\n", name, e.what());
      return kExitStale;
    }
  });
}

}  // namespace nimble
