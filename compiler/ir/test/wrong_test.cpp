// The wrong programs of compiler/test/wrong: every file holds several, separated by a line
// `// ----`. `//! text` behind a line means that a diagnostic at that line holds the text; there
// are no others, each has a remedy and a caret.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "vm/base/file.h"

namespace nimble::ir {
namespace {

namespace fs = std::filesystem;

const fs::path kPrograms = fs::path(NIMBLE_SOURCE_DIR) / "compiler/test/wrong";

struct Program {
  std::string text;
  int first_line = 1;  // in its file
};

std::vector<Program> programs_of(const std::string& text) {
  std::vector<Program> out(1);
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line == "// ----") {
      out.push_back({"", number + 1});
    } else {
      out.back().text += line + "\n";
    }
  }
  return out;
}

struct Mark {
  int line;
  std::string text;
};

std::vector<Mark> marks_of(const std::string& text) {
  std::vector<Mark> out;
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    for (size_t at = line.find("//! "); at != std::string::npos;) {
      const size_t next = line.find("//! ", at + 4);
      const size_t begin = at + 4;
      std::string mark = line.substr(begin, next == std::string::npos ? next : next - begin);
      mark.erase(mark.find_last_not_of(' ') + 1);
      out.push_back({number, std::move(mark)});
      at = next;
    }
  }
  return out;
}

std::vector<Diagnostic> diagnostics_of(const Program& p, const std::string& file) {
  ParseResult parsed = parse_text(p.text, file);
  if (!parsed.diagnostics.empty()) return parsed.diagnostics;
  return infer_module(parsed.module).diagnostics;
}

TEST(Wrong, EveryProgramIsRefusedWithTheMessageBesideTheLine) {
  int programs = 0;
  for (const auto& entry : fs::directory_iterator(kPrograms)) {
    if (entry.path().extension() != ".nir") continue;
    const std::string file = entry.path().filename().string();
    for (const Program& p : programs_of(read_text_file(entry.path().string()))) {
      ++programs;
      const auto place = [&](int line) {
        return fmt::format("{}:{}", file, p.first_line + line - 1);
      };
      std::vector<Mark> marks = marks_of(p.text);
      EXPECT_FALSE(marks.empty()) << place(1) << ": the program says nothing of its faults";
      for (const Diagnostic& d : diagnostics_of(p, file)) {
        const auto fits = std::find_if(marks.begin(), marks.end(), [&](const Mark& m) {
          return m.line == d.location.line && d.str().find(m.text) != std::string::npos;
        });
        if (fits == marks.end()) {
          ADD_FAILURE() << place(d.location.line) << ": not expected: " << d.str();
        } else {
          marks.erase(fits);
        }
        EXPECT_NE(d.remedy, "") << place(d.location.line) << ": " << d.str();
        EXPECT_NE(d.source_line, "") << place(d.location.line) << ": " << d.str();
        EXPECT_EQ(d.str().back(), '^');
      }
      for (const Mark& m : marks) ADD_FAILURE() << place(m.line) << ": missing: " << m.text;
    }
  }
  EXPECT_GE(programs, 150);
}

}  // namespace
}  // namespace nimble::ir
