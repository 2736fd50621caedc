#include "vm/tools/subcommands.h"

#include <unistd.h>

#include <algorithm>
#include <climits>

namespace nimble {
namespace {

// Levenshtein's distance, but a swap of two neighbours counts once (optimal string alignment):
// "nimble copmile" is one slip.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> all = {
      {"check", "tell which operators of a model are covered and which workloads are tuned", false},
      {"compile", "compile a model to one executable file", false},
      {"run", "run an executable file on tensors", true},
      {"bench", "measure an executable file at given shapes", true},
      {"inspect", "show the signature, code, kernels and provenance of an executable file", true},
      {"opt", "run compiler passes on text IR and print the result", false},
      {"tune", "tune the kernels of a model into a database", false},
      {"worker", "measure candidates for tuning campaigns on this machine", true},
      {"db", "look into a tuning database, merge it, check it", false},
      {"dispatch", "show, compare and override dispatch tables", false},
      {"explain", "tell which kernel runs for which operator at a shape, and why", false},
      {"gui", "open the graphical interface", false},
      {"doctor", "tell what nimble sees of this machine and what is installed", true},
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
  std::string_view best;
  size_t best_distance = 3;  // more than two slips are no slip
  for (const Subcommand& s : subcommands()) {
    const bool prefix = typed.size() >= 2 && s.name.starts_with(typed);
    const size_t distance = prefix ? 0 : edit_distance(typed, s.name);
    if (distance < best_distance && distance < s.name.size()) {
      best = s.name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace nimble
