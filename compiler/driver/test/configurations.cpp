// What the configurations of configuration_test.cpp need beyond the harness: schedules with a
// kernel per residue, and the programs of the text tests.
#include <algorithm>
#include <filesystem>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/file.h"

namespace nimble::driver::testing {
namespace {

namespace fs = std::filesystem;

class FullResidues : public tuned::TunedSource {
 public:
  tuned::Lookup find(const kernels::Workload& w, const kernels::TargetInfo& target,
                     const std::string& /*policy_class*/) override {
    tuned::Lookup out;
    const kernels::Template* t = kernels::template_for(w, target);
    if (!t) return out;
    kernels::Config config = t->default_config(w, target);
    auto tails = config.find("tails");
    if (tails == config.end()) return out;
    tails->second = std::string("residue");
    // As few rows in a tile as the template allows: all residues, but few kernels to compile.
    for (const kernels::Knob& k : t->knobs(w, target)) {
      if (k.name != "rows") continue;
      for (const kernels::KnobValue& rows : k.choices) {
        config["rows"] = rows;
        if (std::get<int64_t>(rows) > 1 && t->valid(w, config, target)) break;
      }
    }
    if (!t->valid(w, config, target)) return out;
    tuned::TunedChoice choice;
    choice.candidates = {{std::string(t->name()), config, {}}};
    choice.code_hashes = {""};
    choice.tree = exec::DispatchTree::single(0);
    out.outcome = tuned::Lookup::Outcome::kTuned;
    out.choice = std::move(choice);
    return out;
  }
  std::string identity() const override { return "a kernel per residue"; }
};

// A function that the harness can feed and whose results it can compare: tensors in, tensors out.
bool is_program(const ir::Function& f) {
  const auto is_tensor = [](const ir::Type& t) { return t->kind == ir::TypeKind::kTensor; };
  if (!f.type_variables.empty()) return false;
  for (const ir::VarRef& p : f.parameters)
    if (!is_tensor(p->type)) return false;
  if (f.result_type->kind != ir::TypeKind::kTuple) return is_tensor(f.result_type);
  return std::all_of(f.result_type->elements.begin(), f.result_type->elements.end(), is_tensor);
}

// Equal and unequal ones; integers may be indices, which need two elements. None is large, nor
// are the values: nobody chose these programs for their conditioning (a matrix's ninth power).
std::vector<Sizes> sizes_for(const std::vector<std::string>& symbols) {
  constexpr int64_t kUnequal[] = {2, 17, 5, 7};
  std::vector<Sizes> out(symbols.empty() ? 1 : 3);
  for (size_t s = 0; s < symbols.size(); ++s) {
    out[0][symbols[s]] = 7;
    out[1][symbols[s]] = kUnequal[s % 4];
    out[2][symbols[s]] = kUnequal[(s + 1) % 4];
  }
  return out;
}

fs::path folder_of_text_tests() {
  return fs::path(NIMBLE_SOURCE_DIR) / "compiler/test";
}

// A test of programs, not of messages nor of IR that is lowered already.
bool has_programs(const fs::path& file) {
  const std::string stem = file.stem().string();
  return file.extension() == ".nir" && file.parent_path().filename() != "wrong" &&
         !stem.ends_with("-rejects") && !stem.ends_with("-lowered");
}

// Whether this machine's code rounds something in between: the softmax's weights of an attention of
// narrow operands, to their type, where it multiplies that.
bool rounds_between(const ir::Function& f) {
  const kernels::TargetInfo native = kernels::target_by_name("native");
  bool rounds = false;
  passes::visit_bindings(*f.body, [&](const ir::Binding& b) {
    const ir::Expr& e = *b.value;
    if (e.op != "attention") return;
    const DType type = ir::type_of(e.args[0])->dtype;
    rounds |= is_narrow_float(type) && kernels::multiplies_factors(native, type);
  });
  return rounds;
}

}  // namespace

tuned::TunedSource& full_residues() {
  static FullResidues source;
  return source;
}

std::vector<std::string> text_files() {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder_of_text_tests()))
    if (has_programs(entry.path()))
      out.push_back(fs::relative(entry.path(), folder_of_text_tests()).string());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Program> text_programs(const std::string& file) {
  std::vector<Program> out;
  const ir::Module m =
      ir::parse_module(read_text_file((folder_of_text_tests() / file).string()), file);
  const ir::Module typed = ir::infer_types(m);
  // Its main; where there is none, each function in turn.
  for (const auto& [name, f] : typed.functions) {
    if (typed.find("main") ? name != "main" : !is_program(*f)) continue;
    ir::Module program = m;
    program.set("main", m.find(name));
    Program p;
    p.name = fs::path(file).replace_extension().string() + "@" + name;
    p.text = ir::print(program, {.inline_constant_elements = INT64_MAX});
    for (const ir::VarRef& v : f->parameters)
      if (is_int(v->type->dtype)) p.special[v->name] = {0, 1};
    p.values = {-0.5, 0.5};
    if (rounds_between(*f)) p.tolerance = 0x1p-8;
    p.sizes = sizes_for(symbols_of(*f));
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace nimble::driver::testing
