// Runs a fuzz target without libFuzzer:
//
//   nimble-replay-NAME [--mutants N] [FILE or FOLDER]…
//
// runs the target's seeds, N mutants of each (always the same ones), and the given files. Prints
// the input's name before a finding ends the process, so that a failure names its cause.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "vm/base/file.h"
#include "vm/base/fuzz/fuzz.h"
#include "vm/base/program.h"

namespace nimble::fuzz {
namespace {

namespace fs = std::filesystem;

char current[512] = "";

void name_the_input(int signal) {
  std::fprintf(stderr, "finding: input %s\n", current);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run_named(const std::string& name, std::string_view bytes) {
  std::snprintf(current, sizeof current, "%s", name.c_str());
  // A copy of exactly this size: a sanitizer then sees one byte too far.
  const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  try {
    run(copy);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "finding: input %s: threw %s\n", current, e.what());
    std::exit(kExitFailure);
  }
}

// What libFuzzer does most: bytes changed, removed, copied, and words of the dictionary put in.
std::string mutant(std::string s, const std::vector<std::string>& words, std::mt19937& random) {
  auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t edits = 1 + below(4); edits-- > 0;) {
    const size_t at = below(s.size()), size = std::min(s.size() - at, below(16));
    switch (below(5)) {
      case 0:
        if (!s.empty()) s[at] = static_cast<char>(random());
        break;
      case 1:
        if (!s.empty()) s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        break;
      case 2:
        s.erase(at, size);
        break;
      case 3:
        s.insert(below(s.size() + 1), s.substr(at, size));
        break;
      default:
        if (!words.empty()) s.insert(at, words[below(words.size())]);
    }
  }
  return s;
}

int replay(const std::vector<std::string>& arguments) {
  size_t mutants = 0, inputs = 0;
  std::vector<fs::path> files;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--mutants" && i + 1 < arguments.size()) {
      mutants = std::strtoull(arguments[++i].c_str(), nullptr, 10);
    } else if (fs::is_directory(arguments[i])) {
      for (const auto& entry : fs::directory_iterator(arguments[i]))
        if (entry.path().filename() != "README.md") files.push_back(entry.path());
    } else {
      files.push_back(arguments[i]);
    }
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& f : files) {
    run_named(f.string(), read_text_file(f.string()));
    ++inputs;
  }
  const std::vector<std::string> words = dictionary();
  std::mt19937 random(20210406);
  for (const Seed& s : seeds()) {
    run_named(s.name, s.bytes);
    for (size_t i = 0; i < mutants; ++i)
      run_named(fmt::format("{}, mutant {}", s.name, i), mutant(s.bytes, words, random));
    inputs += 1 + mutants;
  }
  std::printf("%zu inputs, no finding\n", inputs);
  return kExitOk;
}

}  // namespace
}  // namespace nimble::fuzz

int main(int argc, char** argv) {
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, nimble::fuzz::name_the_input);
  return nimble::run_program("replay", [&] {
    return nimble::fuzz::replay(std::vector<std::string>(argv + 1, argv + argc));
  });
}
