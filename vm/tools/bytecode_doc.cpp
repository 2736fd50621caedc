// Writes the reference of the instruction set and of portable kernels in Markdown, from
// Opcodes.def, PortableOps.def and the verifiers' rules (VerifierRules.def, PortableRules.def). Run
// at build time: bytecode_doc FILE.
#include <span>

#include "vm/base/file.h"
#include "vm/base/program.h"
#include "vm/executable/format.h"
#include "vm/executable/opcodes.h"
#include "vm/executable/verifier.h"

namespace nimble::exec {
namespace {

constexpr std::string_view kKinds[][2] = {
    {"dst", "register written"},
    {"src", "register read"},
    {"dsts", "first of several consecutive registers written"},
    {"srcs", "list of registers read"},
    {"imm", "signed integer"},
    {"imms", "list of signed integers"},
    {"const", "index of a constant"},
    {"func", "index of a function: first all bytecode functions, then all scalar functions"},
    {"kernel", "index of a kernel"},
    {"target", "index of an instruction of the same function"},
    {"dtype", "number of an element type"},
    {"device", "number of a device"},
    {"text", "index of a text"},
};

std::string rules(std::string_view letter, std::span<const RuleInfo> table) {
  std::string out = "\n| Rule | What it asks | In detail |\n|---|---|---|\n";
  for (const RuleInfo& r : table)
    out += fmt::format("| {}{} | {} | {} |\n", letter, r.number, r.sentence, r.description);
  return out;
}

std::string portable_document() {
  std::string out = fmt::format(
      "\n# Portable kernels\n\n"
      "Section {} holds each kernel once more in a form that any machine runs with every access "
      "checked (`vm/executable/portable_kernel.h`). Version {}. Operands: I an index slot that is "
      "read, J one that is written, V and W the same of values, B a buffer, S one that is stored "
      "into, N an immediate.\n\n"
      "| Number | Operation | Operands | Meaning |\n|---|---|---|---|\n",
      static_cast<uint32_t>(Section::kPortable), kPortableVersion);
  for (int i = 0; i < kPortableOpCount; ++i) {
    const PortableOpInfo& info = info_of(static_cast<PortableOp>(i));
    out += fmt::format("| {} | `{}` | {} | {} |\n", i, info.name, info.operands, info.sentence);
  }
  return out + "\n## Rules of their verifier\n" + rules("P", kPortableRules);
}

std::string document() {
  std::string out =
      "# Bytecode\n\n"
      "Made from `vm/executable/Opcodes.def`; do not edit.\n\n"
      "A function has as many registers as it needs; its parameters are the first ones. An "
      "instruction is one byte of opcode and its operands in order, each a variable-length "
      "integer of seven bits a byte, low bits first. Signed integers are zigzag-coded; a list is "
      "its count and its elements. What comes from the paper has its meaning there (Appendix C, "
      "Table C.1); extensions are this implementation's own.\n\n"
      "| Number | Instruction | From | Operands | Effect | Meaning |\n|---|---|---|---|---|---|\n";
  for (int i = 0; i < kOpcodeCount; ++i) {
    const OpcodeInfo& info = info_of(static_cast<Opcode>(i));
    std::string operands;
    for (const OperandSpec& o : info.operands)
      operands += fmt::format("{}`{}` {}", operands.empty() ? "" : ", ", o.name, name_of(o.kind));
    out += fmt::format("| {} | `{}` | {} | {} | {} | {} |\n", i, info.name, name_of(info.origin),
                       operands, name_of(info.effect), info.sentence);
  }
  out += "\n## Kinds of operands\n\n| Kind | Meaning |\n|---|---|\n";
  for (const auto& [kind, meaning] : kKinds) out += fmt::format("| {} | {} |\n", kind, meaning);
  out += "\n## Rules of the verifier\n" + rules("R", kRules);
  out += fmt::format(
      "\n## Sections of an executable file (format version {})\n\n"
      "| Number | Section |\n|---|---|\n",
      kFormatVersion);
  for (uint32_t s = 1; s <= kSectionCount; ++s)
    out += fmt::format("| {} | {} |\n", s, name_of(static_cast<Section>(s)));
  return out + portable_document();
}

}  // namespace
}  // namespace nimble::exec

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: bytecode_doc FILE\n", stderr);
    return nimble::kExitUsage;
  }
  return nimble::run_program("bytecode_doc", [&] {
    nimble::write_file_atomically(argv[1], nimble::exec::document());
    return nimble::kExitOk;
  });
}
