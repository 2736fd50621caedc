#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "compiler/driver/test/harness.h"
#include "vm/base/file.h"

namespace nimble::driver::testing {
namespace {

namespace fs = std::filesystem;

// What is wrong with a program's file; there is no test to fail yet where it is read.
[[noreturn]] void refuse(const std::string& file, const std::string& line,
                         const std::string& problem) {
  throw Error(Status::kInvalidArgument, file, fmt::format("\"{}\": {}", line, problem),
              "compiler/driver/test/programs/README.md tells what may stand there");
}

std::string trimmed(const std::string& s) {
  const size_t begin = s.find_first_not_of(' ');
  return begin == std::string::npos ? "" : s.substr(begin, s.find_last_not_of(' ') - begin + 1);
}

// "n = 1, m = 7"
Sizes sizes_in(const std::string& text) {
  Sizes out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return {};
    out[trimmed(part.substr(0, equals))] = std::stoll(part.substr(equals + 1));
  }
  return out;
}

std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> out;
  std::istringstream in(text);
  for (double v; in >> v;) out.push_back(v);
  return in.eof() ? out : std::vector<double>{};
}

// Takes "// key: text" or "// key parameter: text" into the program; false for other comments.
bool take_directive(const std::string& line, Program& p) {
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return false;
  std::istringstream head(line.substr(2, colon - 2));
  std::string key, parameter, more;
  head >> key >> parameter >> more;
  if (key.empty() || !more.empty() || (!parameter.empty() && key != "values")) return false;
  const std::string text = trimmed(line.substr(colon + 1));
  const std::vector<double> numbers = numbers_in(text);
  const auto need = [&](bool right) {
    if (!right) refuse(p.name, line, "malformed");
  };
  if (key == "values") {
    need(numbers.size() == 2 && numbers[0] <= numbers[1]);
    (parameter.empty() ? p.values : p.special[parameter]) = {numbers[0], numbers[1]};
  } else if (key == "smallest") {
    need(numbers.size() == 1);
    p.smallest = static_cast<int64_t>(numbers[0]);
  } else if (key == "tolerance") {
    need(numbers.size() == 1);
    p.tolerance = numbers[0];
  } else if (key == "sizes") {
    p.sizes.push_back(sizes_in(text));
    need(!p.sizes.back().empty());
  } else if (key == "fifth") {
    need(numbers.size() == 1 && numbers[0] >= 0 && numbers[0] < kFifths);
    p.fifth = static_cast<size_t>(numbers[0]);
  } else if (key == "in") {
    p.examples.push_back({text, "", false});
  } else if (key == "out" || key == "fails") {
    need(!p.examples.empty() && p.examples.back().results.empty() && !p.examples.back().fails);
    p.examples.back().fails = key == "fails";
    p.examples.back().results = text;
  } else {
    refuse(p.name, line, "there is no such directive");
  }
  return true;
}

Program read_program(const fs::path& file) {
  Program p;
  p.name = file.stem().string();
  p.fifth = std::hash<std::string>()(p.name) % kFifths;
  std::istringstream lines(read_text_file(file.string()));
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("//") || !take_directive(line, p)) p.text += line + "\n";
  return p;
}

fs::path folder_of_programs() {
  return fs::path(NIMBLE_SOURCE_DIR) / "compiler/driver/test/programs";
}

}  // namespace

std::vector<Program> programs_of(const std::string& area) {
  std::vector<Program> out;
  for (const auto& entry : fs::directory_iterator(folder_of_programs() / area))
    if (entry.path().extension() == ".nir") out.push_back(read_program(entry.path()));
  std::sort(out.begin(), out.end(),
            [](const Program& a, const Program& b) { return a.name < b.name; });
  return out;
}

const std::vector<Program>& all_programs() {
  static const std::vector<Program> kAll = [] {
    std::vector<std::string> areas;
    for (const auto& entry : fs::directory_iterator(folder_of_programs()))
      if (entry.is_directory() && entry.path().filename() != kBugsOfOthers)
        areas.push_back(entry.path().filename().string());
    std::sort(areas.begin(), areas.end());
    std::vector<Program> all;
    for (const std::string& area : areas)
      for (Program& p : programs_of(area)) all.push_back(std::move(p));
    return all;
  }();
  return kAll;
}

}  // namespace nimble::driver::testing
