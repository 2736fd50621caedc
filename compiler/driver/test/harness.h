// The whole chain under test: text → compile → executable → VM, compared with the reference
// interpreter on the same inputs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/ir/tensor.h"
#include "vm/interpreter/session.h"

namespace nimble::driver::testing {

using Sizes = std::map<std::string, int64_t>;  // values of the entry's symbols

struct Range {
  double low, high;  // integers: both ends belong to it
};

// Inputs and what becomes of them, worked out by hand: constants of the text IR.
struct Example {
  std::string inputs;   // "f32[2]{1, 2}, i64[0]{}"
  std::string results;  // "f32[1]{3}", several in parentheses; or a part of the message
  bool fails = false;
};

// A program and what its inputs may be.
struct Program {
  std::string name;
  std::string text;
  Range values = {-2, 2};                // of every input …
  std::map<std::string, Range> special;  // … but these parameters
  int64_t smallest = 0;                  // of every symbol (windows and indices need an element)
  // Relative to max(1, |expected|); f16 and bf16 results get their own on top.
  double tolerance = 2e-5;
  std::vector<Sizes> sizes;  // instead of the awkward sizes of each symbol
  std::vector<Example> examples;
  size_t fifth = 0;  // of the configurations: which it runs under
};
inline constexpr size_t kFifths = 5;

std::ostream& operator<<(std::ostream& out, const Program& p);

// One way to compile and run.
struct Configuration {
  std::string name;
  std::string target = "native";
  std::string image;  // of a file with code for `target` and for this lower level: this one's
  std::string disabled_pass;
  int optimize = 1;
  int threads = 1;
  bool round_trip = false;  // through the bytes of a file
  int32_t device = 0;       // of the compilation
  bool no_native = false;   // portable kernels in the checked interpreter
  bool fusion = true;
  bool reserialise = false;  // through the text of the IR, before every pass
  passes::Precision precision = {};
  int64_t winograd = 0;
  bool residues = false;  // a kernel per residue wherever a template has them (paper, 3.5)
  friend void PrintTo(const Configuration& c, std::ostream* out) { *out << c.name; }
};

// A compiled program in a session of its own, next to its oracle. Code of another architecture runs
// in the process that stands in for such a machine (vm/interpreter/test/runner/remote.h).
class Compiled {
 public:
  Compiled(const ir::Module& module, const Configuration& configuration);

  // Runs an entry; the results in order. Tensors are dense.
  std::vector<ir::TensorRef> run(const std::string& entry,
                                 const std::vector<ir::TensorRef>& inputs);
  // Runs an entry on random inputs at these sizes, and compares with the reference. Where the
  // reference refuses the shapes, the VM must too; where it does not end, the VM must run out of
  // fuel.
  void check(const Program& p, const Sizes& sizes, unsigned seed,
             const std::string& entry = "main");
  // Runs main on an example's inputs; the reference must give the example's results, too.
  void check_example(const Program& p, const Example& example);

  const ir::Module& typed() const { return typed_; }
  const exec::Executable& executable() const {
    return model_->executable();
  }  // not of a remote one
  const CompileReport& report() const { return report_; }

 private:
  ir::Module typed_;
  CompileReport report_;
  std::shared_ptr<const rt::Model> model_;
  std::unique_ptr<rt::Session> session_;
  bool remote_ = false;
};

CompileOptions options_of(const Configuration& c);
// Chooses every template's configuration with a kernel per residue, where it has one.
tuned::TunedSource& full_residues();
// Loads an executable as the configuration says.
std::shared_ptr<const rt::Model> load(exec::Executable e, const Configuration& c = {});
std::vector<ir::TensorRef> run_session(rt::Session& session, const std::string& entry,
                                       const std::vector<ir::TensorRef>& inputs);

// The symbols of an entry's parameters, in order of appearance.
std::vector<std::string> symbols_of(const ir::Function& f);
// Each symbol at each of the awkward sizes, the others small; at most `limit` of them, spread.
std::vector<Sizes> sizes_of(const Program& p, const ir::Function& f, size_t limit);
std::vector<ir::TensorRef> random_inputs(const Program& p, const ir::Function& f,
                                         const Sizes& sizes, unsigned seed);
// Element by element: the first difference, or "" if there is none.
std::string difference_of(const std::vector<ir::TensorRef>& got,
                          const std::vector<ir::TensorRef>& expected, double tolerance);
void expect_close(const std::vector<ir::TensorRef>& got, const std::vector<ir::TensorRef>& expected,
                  double tolerance);

// Compiles, then checks the examples and at up to `limit` sizes.
void check_program(const Program& p, const Configuration& c, size_t limit);

// The programs of a folder of programs/, by name; nimble::Error for a file that is malformed.
std::vector<Program> programs_of(const std::string& area);
// Programs for one suite of their own (bugs_of_others_test.cpp).
inline constexpr const char* kBugsOfOthers = "bugs_of_others";
// The corpus: all other folders, by area and name.
const std::vector<Program>& all_programs();
// The files of the text tests (compiler/test) that have programs: "passes/fuse.nir".
std::vector<std::string> text_files();
// What such a file compiles: its main, or each function where there is none.
std::vector<Program> text_programs(const std::string& file);

}  // namespace nimble::driver::testing
