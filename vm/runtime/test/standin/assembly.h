// Assembly (PTX), as far as the stand-in for NVIDIA's driver looks at it.
#pragma once

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

// What the driver's compiler makes of assembly: its entries' names, or an error and its log.
inline int compile_assembly(const std::string& text, int driver, std::vector<std::string>* names,
                            std::string* log) {
  constexpr int kInvalidPtx = 218, kUnsupportedVersion = 222;
  std::istringstream lines(text);
  int number = 1, braces = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    const std::string where = "ptxas application ptx input, line " + std::to_string(number) + "; ";
    std::istringstream words(line);
    std::string word, next;
    words >> word >> next;
    if (word == ".version") {
      // PTX 9.0 came with CUDA 13.0.
      int major = 0, minor = 0;
      if (std::sscanf(next.c_str(), "%d.%d", &major, &minor) != 2) return kInvalidPtx;
      if (1000 * (major + 4) + 10 * minor > driver) {
        *log = where + "fatal   : Unsupported .version " + next;
        return kUnsupportedVersion;
      }
    } else if (const size_t entry = line.find(".entry "); entry != std::string::npos) {
      names->push_back(line.substr(entry + 7, line.find('(', entry) - entry - 7));
    } else if (braces == 0 && !word.empty() && std::strchr("./){}", word[0]) == nullptr) {
      *log = where + "fatal   : Parsing error near '" + word + "': syntax error";
      return kInvalidPtx;
    }
    for (const char c : line) braces += (c == '{') - (c == '}');
  }
  return 0;
}
