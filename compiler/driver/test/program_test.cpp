// The corpus as the compiler normally compiles it, at every awkward size; and a part of it under
// every other configuration.
#include <cstdlib>
#include <set>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pass.h"

namespace nimble::driver::testing {
namespace {

class Corpus : public ::testing::TestWithParam<Program> {};

TEST_P(Corpus, AgreesWithTheReference) {
  check_program(GetParam(), {"default"}, SIZE_MAX);
}

std::string name_of_program(const ::testing::TestParamInfo<Program>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Program, Corpus, ::testing::ValuesIn(all_programs()), name_of_program);

TEST(CorpusItself, HoldsEveryOperator) {
  std::set<std::string> seen;
  for (const Program& p : all_programs())
    for (const ir::OpInfo& op : ir::all_ops())
      if (p.text.find(" " + op.name + "(") != std::string::npos) seen.insert(op.name);
  for (const ir::OpInfo& op : ir::all_ops()) {
    // The packed forms are what the compiler makes of products with constants, the others what
    // it makes of operators whose extents depend on data, and of concatenations.
    bool internal = op.name.starts_with("memory.") || op.name.starts_with("pack") ||
                    op.name.starts_with("count.") || op.name == "nms.bounded" ||
                    op.name == "prefix" || op.name == "append" || op.name == "pitched";
    EXPECT_TRUE(internal || seen.contains(op.name)) << op.name;
  }
}

}  // namespace
}  // namespace nimble::driver::testing
