// The databases that the compiler's programs are given, and what a compilation lacks of them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "compiler/driver/compile.h"
#include "compiler/tools/model_arguments.h"

namespace nimble::tools {

// A database of a newer schema, or one that is no nimble database at all.
class IncompatibleDatabase : public Error {
 public:
  explicit IncompatibleDatabase(const Error& e) : Error(e) {}
};
// As run_program; an incompatible database ends with kExitStale.
int run_compiler_program(const char* name, const std::function<int()>& body);

// Null without --db. The databases must exist; they are opened read-only. Records are those of
// --hardware, else of this machine; for a target of another architecture those of the database's
// only hardware that is of the target's level. Error(kInvalidArgument) if it has several. The same
// for the GPU's target, if there is just one: --hardware may name the GPU in place of the CPU.
std::unique_ptr<tuned::TunedSource> open_database(const ModelArguments& a);
// The database to tune into that a remedy names: the first, or an example; for a shell.
std::string database_word(const ModelArguments& a);
// The command that measures what the kernels of these arguments lack, the GPU's if there are some;
// for a shell.
std::string tune_command(const ModelArguments& a);
std::string_view name_of(tuned::Lookup::Outcome outcome);
// The kernels of a report that lack an exact record, one line each on stderr, named, with the
// reason and a remedy. False if there are any: what --require-tuned refuses.
bool require_tuned(const char* program, const ModelArguments& a,
                   const driver::CompileReport& report);

}  // namespace nimble::tools
