#include "compiler/ir/groupwise.h"

#include <string>

namespace nimble::ir {

Groupwise groupwise_of(const Attrs& attrs) {
  Groupwise g;
  g.group = attr<int64_t>(attrs, "group");
  g.k = attr<int64_t>(attrs, "k");
  g.n = attr<int64_t>(attrs, "n");
  g.layout = *parse_layout(attr<std::string>(attrs, "layout"));
  g.steps = attr_or(attrs, "steps", Groupwise::kSteps);
  g.most = attr_or(attrs, "max_weight", Groupwise::kAnyByte);
  return g;
}

int64_t Groupwise::most_beside_bytes() const {
  return (steps * most + kSteps - 1) / kSteps;
}

}  // namespace nimble::ir
