#include "compiler/tuned/overlay.h"

#include "vm/base/error.h"
#include "vm/base/printable.h"
#include "vm/executable/dispatch_text.h"

namespace nimble::tuned {

Layer layer_of(const db::Override& o, const std::vector<std::string>& symbols) {
  Layer out;
  const std::string place = "override " + o.uuid;
  for (const auto& [name, ends] : db::region_from_json(o.region, place)) {
    const auto feature = exec::feature_from_text(name, symbols);
    if (!feature || feature->kind == exec::DispatchFeature::Kind::kThreads)
      throw Error(Status::kInvalidArgument, place,
                  fmt::format("{} is not a feature of the workload's shapes", printable(name)),
                  "withdraw it (nimble dispatch withdraw) and make it anew");
    out.ranges.push_back({*feature, ends.first, ends.second});
  }
  return out;
}

exec::DispatchTree lay_over(const std::vector<Layer>& layers, const exec::DispatchTree& base) {
  using exec::DispatchNode;
  exec::DispatchTree out;
  // A layer is a chain of tests, one for each end of a range, and its leaf. Who fails a test goes
  // on to the next layer, behind the last to the tree below: always to a later node.
  for (const Layer& layer : layers) {
    size_t tests = 0;
    for (const Layer::Range& r : layer.ranges) tests += (r.first > 0) + r.last.has_value();
    const auto next = static_cast<uint32_t>(out.nodes.size() + tests + 1);
    for (const Layer::Range& r : layer.ranges) {
      const auto add = [&](int64_t threshold, bool inside_if_yes) {
        const auto on = static_cast<uint32_t>(out.nodes.size() + 1);
        out.nodes.push_back({DispatchNode::Test::kLessEqual, r.feature, threshold,
                             inside_if_yes ? on : next, inside_if_yes ? next : on});
      };
      if (r.first > 0) add(r.first - 1, false);
      if (r.last) add(*r.last, true);
    }
    out.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, layer.leaf, 0});
  }
  const auto shift = static_cast<uint32_t>(out.nodes.size());
  for (DispatchNode n : base.nodes) {
    if (n.test != DispatchNode::Test::kLeaf) n.yes += shift, n.no += shift;
    out.nodes.push_back(n);
  }
  return out;
}

}  // namespace nimble::tuned
