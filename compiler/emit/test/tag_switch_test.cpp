#include "compiler/emit/tag_switch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace nimble::emit {
namespace {

TEST(TagSwitch, FindsEveryCaseInFewQuestions) {
  for (size_t tags = 1; tags <= 70; ++tags)
    for (size_t cases = 1; cases <= std::min<size_t>(tags, 9); ++cases) {
      std::vector<size_t> case_of_tag;
      for (size_t t = 0; t < tags; ++t) case_of_tag.push_back((t * 7 / 3) % cases);
      const std::vector<TagNode> nodes = plan_tag_switch(case_of_tag);
      EXPECT_LE(nodes.size(), 2 * tags - 1);
      for (size_t t = 0; t < tags; ++t) {
        size_t at = 0, questions = 0;
        for (; !nodes[at].leaf; ++questions)
          at = static_cast<int64_t>(t) >= nodes[at].threshold ? nodes[at].from : nodes[at].below;
        EXPECT_EQ(nodes[at].which, case_of_tag[t]);
        EXPECT_LE(questions, std::ceil(std::log2(static_cast<double>(tags))) + 1);
      }
    }
}

}  // namespace
}  // namespace nimble::emit
