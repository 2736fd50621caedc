// Fuzz target `ir`: any text parses or is refused with diagnostics; what parses prints and parses
// back exactly; what infers verifies, is a fixed point of inference, and prints and parses back.
#include <algorithm>
#include <filesystem>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "vm/base/file.h"
#include "vm/base/fuzz/fuzz.h"

namespace nimble::fuzz {
namespace {

namespace fs = std::filesystem;

// The text of a module, after a trip through the parser that must not change it.
std::string printed(const ir::Module& m, const char* when) {
  ir::PrintOptions options;
  options.inline_constant_elements = INT64_MAX;  // no side file
  const std::string text = ir::print(m, options);
  const ir::ParseResult again = ir::parse_text(text, "printed");
  NIMBLE_FUZZ_REQUIRE(again.diagnostics.empty(), "{}: {}\n{}", when, again.diagnostics[0].str(),
                      text);
  NIMBLE_FUZZ_REQUIRE(ir::print(again.module, options) == text, "{}: prints otherwise:\n{}\n{}",
                      when, text, ir::print(again.module, options));
  return text;
}

}  // namespace

void run(std::span<const uint8_t> input) {
  const ir::ParseResult parsed = ir::parse_text(text_of(input), "fuzz");
  for (const ir::Diagnostic& d : parsed.diagnostics)
    NIMBLE_FUZZ_REQUIRE(!d.problem.empty() && !d.str().empty(), "a diagnostic says nothing");
  if (!parsed.diagnostics.empty()) return;
  printed(parsed.module, "parsed");
  ir::Module typed;
  try {
    typed = ir::infer_types(parsed.module);
  } catch (const Error& e) {
    NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", e.what());
    return;
  }
  const std::vector<std::string> faults = ir::verify(typed);
  const std::string text = printed(typed, "inferred");
  NIMBLE_FUZZ_REQUIRE(faults.empty(), "inferred, but not well formed: {}\n{}", faults[0], text);
  const std::string twice = printed(ir::infer_types(typed), "inferred twice");
  NIMBLE_FUZZ_REQUIRE(twice == text, "inference is not idempotent:\n{}\n{}", text, twice);
}

std::vector<Seed> seeds() {
  std::vector<Seed> out;
  for (const char* folder : {"passes", "emit", "language"}) {
    const fs::path path = fs::path(NIMBLE_SOURCE_DIR) / "compiler/test" / folder;
    if (!fs::is_directory(path)) continue;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".nir")
        out.push_back({fmt::format("{}-{}", folder, entry.path().filename().string()),
                       read_text_file(entry.path().string())});
  }
  std::sort(out.begin(), out.end(), [](const Seed& a, const Seed& b) { return a.name < b.name; });
  return out;
}

std::vector<std::string> dictionary() {
  std::vector<std::string> out = {"fn @main(",
                                  "let %x = ",
                                  "if (",
                                  "} else { ",
                                  "match",
                                  "data ",
                                  "group fn(",
                                  "signature",
                                  "source ",
                                  "Tensor[(",
                                  "), f32]",
                                  "i64",
                                  "bool",
                                  "-> ",
                                  "attrs {",
                                  "from \"",
                                  "floordiv(",
                                  "ceildiv(",
                                  "mod(",
                                  "min(",
                                  "max(",
                                  "broadcast(",
                                  "const(\"",
                                  "primitive = true",
                                  "range.n = [",
                                  "%x[0]",
                                  "?",
                                  "f32[2]{",
                                  "1i64",
                                  "9223372036854775807",
                                  "-9223372036854775808",
                                  "nan",
                                  "inf"};
  for (const ir::OpInfo& op : ir::all_ops()) {
    out.push_back(op.name + "(");
    for (const ir::AttrSpec& a : op.attrs) out.push_back(a.name + " = ");
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace nimble::fuzz
