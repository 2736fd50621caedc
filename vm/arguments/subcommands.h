// The subcommands of `nimble`, each a program nimble-NAME beside it. Shared by the front door,
// which starts them, and the doctor, which tells which are there. What needs no compiler is built
// without it, too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nimble {

struct Subcommand {
  std::string_view name;
  std::string_view sentence;
  std::string_view needs = {};  // what a build must find to have it; empty: nimble as a whole
};

const std::vector<Subcommand>& subcommands();

// The folder of the running program, without a slash at the end.
std::string program_folder();
// The program of a subcommand beside the running one; empty if it is not installed.
std::string program_of(std::string_view subcommand);
// The known name that is likeliest meant by `typed`; empty if none is near.
std::string_view nearest_subcommand(std::string_view typed);

}  // namespace nimble
