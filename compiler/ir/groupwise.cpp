#include "compiler/ir/groupwise.h"

#include <string>

namespace nimble::ir {

Groupwise groupwise_of(const Attrs& attrs) {
  Groupwise g;
  g.group = attr<int64_t>(attrs, "group");
  g.k = attr<int64_t>(attrs, "k");
  g.n = attr<int64_t>(attrs, "n");
  g.layout = *parse_layout(attr<std::string>(attrs, "layout"));
  return g;
}

}  // namespace nimble::ir
