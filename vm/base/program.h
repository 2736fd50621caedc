// What all of nimble's programs share: exit codes, and how an error ends a program.
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "vm/base/error.h"
#include "vm/base/printable.h"
#include "vm/base/url.h"

namespace nimble {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitWrongResult = 3,
  kExitRegression = 4,
  kExitStale = 5,
  kExitInterrupted = 130,
};

// What a program may say of anything: output ends up in logs and on terminals, so passwords of URLs
// are left out, and characters that steer a terminal become "?".
inline std::string sayable(std::string_view text) {
  return without_controls(without_passwords(text), '?', "\n\t");
}

// Tells an error as the programs do: one line on stderr.
inline void print_error(const char* name, std::string_view what) {
  std::fprintf(stderr, "%s: error: %s\n", name, sayable(what).c_str());
}

struct ExitCodeInfo {
  ExitCode code;
  std::string_view words;     // in a list: "5 stale or incompatible database"
  std::string_view sentence;  // in a manual
};

// All of them: the help texts, the manual pages and docs/commands.md say what stands here.
inline constexpr ExitCodeInfo kExitCodes[] = {
    {kExitOk, "ok", "The program did what it was asked to."},
    {kExitFailure, "failure", "It could not; the message names the place and the remedy."},
    {kExitUsage, "usage", "The arguments are wrong; nothing was done."},
    {kExitWrongResult, "wrong result", "A result is not what it was compared with."},
    {kExitRegression, "regression", "Something is slower than what it was compared with."},
    {kExitStale, "stale or incompatible database",
     "Records are missing, or of other code than is generated now; or the database is of another "
     "version of nimble, or none of nimble's."},
    {kExitInterrupted, "interrupted",
     "A signal ended it; what it had found by then is kept where its manual says so."},
};

// Runs the body of a program. An Error becomes one line on stderr, "NAME: error: …", and exit
// code 1, or 130 if it says that the user interrupted; so does running out of memory.
template <typename Body>
int run_program(const char* name, Body body) {
  try {
    return body();
  } catch (const Error& e) {
    print_error(name, e.what());
    if (e.status() == Status::kCancelled) return kExitInterrupted;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: error: not enough memory; free some or choose smaller sizes\n", name);
  } catch (const std::exception& e) {
    print_error(name, e.what());
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
      print_error(name, e.what());
      return kExitStale;
    }
  });
}

}  // namespace nimble
