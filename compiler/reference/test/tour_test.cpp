// Every ```nir snippet of docs/language-tour.md. Its comments say what must happen:
//   // error: TEXT    the snippet is refused with a message that holds the text
//   // in: CONSTANTS  arguments of @main, for the `out` or `fails` that follows
//   // out: VALUE     what @main gives
//   // fails: TEXT    the run stops with a message that holds the text
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <sstream>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"
#include "vm/base/file.h"

namespace nimble::reference {
namespace {

namespace fs = std::filesystem;

const fs::path kTour = fs::path(NIMBLE_SOURCE_DIR) / "docs/language-tour.md";

struct Snippet {
  std::string text;
  int line = 0;  // of its first line
};

std::vector<Snippet> snippets() {
  std::vector<Snippet> out;
  std::istringstream in(read_text_file(kTour.string()));
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line == "```nir") {
      inside = true;
      out.push_back({"", number + 1});
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      out.back().text += line + "\n";
    }
  }
  return out;
}

// The values of `// in:`, through the language's own constants.
std::vector<ValueRef> values_of(const std::string& constants) {
  const ir::Module m = ir::parse_module("fn @in() { let %v = (" + constants + ",); %v }", "in");
  std::vector<ValueRef> out;
  for (const ir::Atom& a : m.find("in")->body->bindings[0].value->args)
    out.push_back(value_of(a.constant));
  return out;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was wrong";
}

TEST(Tour, EverySnippetDoesWhatItSays) {
  const std::vector<Snippet> all = snippets();
  ASSERT_GE(all.size(), 15u);
  for (const Snippet& s : all) {
    SCOPED_TRACE("docs/language-tour.md:" + std::to_string(s.line));
    ir::Module module;
    const std::string refused =
        message_of([&] { module = ir::infer_types(ir::parse_module(s.text, "tour.nir")); });
    const size_t error = s.text.find("// error: ");
    if (error != std::string::npos) {
      const std::string text = s.text.substr(error + 10, s.text.find('\n', error) - error - 10);
      EXPECT_NE(refused.find(text), std::string::npos) << refused;
      continue;
    }
    ASSERT_EQ(refused, "nothing was wrong");
    EXPECT_EQ(ir::verify(module), std::vector<std::string>());
    std::istringstream lines(s.text);
    std::vector<ValueRef> args;
    int runs = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto said = [&](const std::string& mark) {
        return line.starts_with(mark) ? std::optional(line.substr(mark.size())) : std::nullopt;
      };
      if (auto in = said("// in: ")) args = values_of(*in);
      if (auto out = said("// out: ")) {
        ++runs;
        EXPECT_EQ(str(Interpreter(module).run("main", args)), *out);
      }
      if (auto text = said("// fails: ")) {
        ++runs;
        const std::string failure = message_of([&] { Interpreter(module).run("main", args); });
        EXPECT_NE(failure.find(*text), std::string::npos) << failure;
      }
    }
    EXPECT_GT(runs, 0) << "a snippet that is neither run nor refused";
  }
}

// What inference makes of a damaged program is a diagnostic or a module that the verifier accepts.
TEST(Tour, DamagedSnippetsAreRefusedOrSound) {
  std::mt19937 random(5);
  int accepted = 0, refused = 0;
  const auto check = [&](const std::string& text) {
    const ir::ParseResult parsed = ir::parse_text(text, "damaged.nir");
    if (!parsed.diagnostics.empty()) return;
    const ir::InferResult inferred = ir::infer_module(parsed.module);
    for (const ir::Diagnostic& d : inferred.diagnostics) EXPECT_NE(d.remedy, "") << d.str();
    ++(inferred.diagnostics.empty() ? accepted : refused);
    if (!inferred.diagnostics.empty()) return;
    EXPECT_EQ(ir::verify(inferred.module), std::vector<std::string>()) << text;
    // A second inference may know more of a recursive function's result; then nothing changes.
    const std::string wrong = message_of([&] {
      const ir::Module again = ir::infer_types(inferred.module);
      EXPECT_EQ(ir::print(ir::infer_types(again)), ir::print(again)) << text;
    });
    EXPECT_EQ(wrong, "nothing was wrong") << text;
  };
  const char* const words[] = {"%x",
                               "%r",
                               "?",
                               "n",
                               "k",
                               "3",
                               "f32",
                               "i64",
                               "_",
                               "A",
                               "@main",
                               "Nil()",
                               "%f",
                               "(",
                               ")",
                               ",",
                               "Tensor[(), i64]"};
  for (const Snippet& s : snippets()) {
    std::vector<size_t> starts;  // of words
    for (size_t i = 1; i < s.text.size(); ++i)
      if (std::isalnum(static_cast<unsigned char>(s.text[i])) !=
          std::isalnum(static_cast<unsigned char>(s.text[i - 1])))
        starts.push_back(i);
    for (int i = 0; i < 60; ++i) {
      const size_t at = random() % (starts.size() - 1);
      std::string text = s.text;
      const size_t length = starts[at + 1] - starts[at];
      if (i % 3 == 0) {
        text.erase(starts[at], length);
      } else if (i % 3 == 1) {
        text.replace(starts[at], length, words[random() % std::size(words)]);
      } else {  // by another word of the same text
        const size_t from = random() % (starts.size() - 1);
        text.replace(starts[at], length,
                     s.text.substr(starts[from], starts[from + 1] - starts[from]));
      }
      check(text);
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace nimble::reference
