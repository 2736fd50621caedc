// The limits of loading as arguments of a program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "vm/arguments/command_line.h"
#include "vm/executable/load_limits.h"

namespace nimble {

// Adds --load-memory, --load-constants and --load-steps, which set `limits`.
inline void add_load_limits(CLI::App& app, exec::LoadLimits* limits) {
  app.add_option("--load-memory", limits->memory,
                 "Bytes that loading the file may take, also as 512MiB (default: no limit, or\n"
                 "4GiB where its native code may not run)")
      ->transform(ByteSize());
  app.add_option("--load-constants", limits->constants,
                 "Bytes of constants that the file may have (default: no limit, or 2GiB)")
      ->transform(ByteSize());
  app.add_option("--load-steps", limits->verification_steps,
                 "Steps that its verification may take (default: in proportion to its size)")
      ->check(whole_number());
}

}  // namespace nimble
