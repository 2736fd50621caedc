#include "vm/arguments/subcommands.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "vm/base/edit_distance.h"

namespace nimble {

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> all = {
      {"check", "tell which operators of a model are covered and which workloads are tuned"},
      {"compile", "compile a model to one executable file"},
      {"run", "run an executable file on tensors"},
      {"bench", "measure an executable file at given shapes"},
      {"inspect", "show the signature, code, kernels and provenance of an executable file"},
      {"opt", "run compiler passes on text IR and print the result"},
      {"reduce", "shrink a module that shows a fault"},
      {"tune", "tune the kernels of a model into a database"},
      {"campaigns", "submit campaigns for a fleet of machines, watch and control them"},
      {"serve", "tune submitted campaigns with the workers of a database"},
      {"worker", "measure candidates for tuning campaigns on this machine"},
      {"db", "look into a tuning database, merge it, check it"},
      {"dispatch", "show, compare and override dispatch tables"},
      {"keys", "make signing keys, and decide whose code this machine runs"},
      {"explain", "tell which kernel runs for which operator at a shape, and why"},
      {"gui", "look at campaigns and kernels on the desktop", "Qt 6 and QCustomPlot"},
      {"doctor", "tell what nimble sees of this machine, and how well it can be measured"},
      {"config", "show what configuration files and the environment set, and where"},
      {"completion", "print the completion script of a shell"},
  };
  return all;
}

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, n > 0 ? static_cast<size_t>(n) : 0);
  const size_t slash = whole.rfind('/');
  return slash == std::string::npos ? "." : whole.substr(0, slash);
}

std::string program_of(std::string_view subcommand) {
  std::string path = program_folder() + "/nimble-" + std::string(subcommand);
  return ::access(path.c_str(), X_OK) == 0 ? path : std::string();
}

std::string_view nearest_subcommand(std::string_view typed) {
  std::vector<std::string_view> names;
  for (const Subcommand& s : subcommands()) names.push_back(s.name);
  return nearest_name(typed, names, 2);
}

}  // namespace nimble
