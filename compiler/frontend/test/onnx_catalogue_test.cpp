// docs/onnx-operators.md is what the importer's own table says.
#include <fstream>
#include <set>
#include <sstream>

#include "compiler/frontend/onnx/catalogue.h"
#include "compiler/frontend/test/support.h"

namespace nimble::frontend {
namespace {

TEST(OnnxCatalogue, DocumentIsWhatTheTableSays) {
  std::ifstream file(std::string(NIMBLE_SOURCE_DIR) + "/docs/onnx-operators.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), onnx_operator_list())
      << "run: nimble check --operators > docs/onnx-operators.md";
}

TEST(OnnxCatalogue, EveryRuleIsForAnOperatorOfOnnx) {
  std::set<std::pair<std::string, std::string>> rows;
  for (const onnx::CatalogueRow& row : onnx::catalogue()) {
    EXPECT_TRUE(rows.emplace(row.domain, row.name).second) << row.name << " is listed twice";
    EXPECT_FALSE(row.versions.empty()) << row.name;
    EXPECT_TRUE(std::is_sorted(row.versions.begin(), row.versions.end())) << row.name;
    // What has no rule says why.
    if (!onnx::find_operator(row.domain, row.name)) {
      EXPECT_NE(row.note, "") << row.name;
    }
  }
  for (const onnx::Operator* op : onnx::all_operators())
    EXPECT_TRUE(rows.contains({op->domain, op->name})) << op->name;
}

}  // namespace
}  // namespace nimble::frontend
