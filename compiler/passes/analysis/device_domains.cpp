#include "compiler/passes/analysis/device_domains.h"

#include <functional>
#include <utility>

#include "compiler/passes/lower_memory.h"
#include "vm/base/device_number.h"
#include "vm/base/error.h"

namespace nimble::passes {

DeviceDomains::DeviceDomains() {
  nodes_.push_back({kHost, 1, kCpuDevice, false});
}

Domain DeviceDomains::fresh() {
  nodes_.push_back({static_cast<Domain>(nodes_.size()), 1, -1, false});
  return nodes_.back().parent;
}

Domain DeviceDomains::find(Domain d) {
  NIMBLE_CHECK(d >= 0, "a value without a place");
  while (nodes_[static_cast<size_t>(d)].parent != d) {
    Domain& parent = nodes_[static_cast<size_t>(d)].parent;
    parent = nodes_[static_cast<size_t>(parent)].parent;
    d = parent;
  }
  return d;
}

bool DeviceDomains::unite(Domain a, Domain b) {
  if (a == kHost || b == kHost) return a == b;
  a = find(a);
  b = find(b);
  if (a == b) return true;
  Node* large = &nodes_[static_cast<size_t>(a)];
  Node* small = &nodes_[static_cast<size_t>(b)];
  if (large->device >= 0 && small->device >= 0 && large->device != small->device) return false;
  if (large->size < small->size) {
    std::swap(large, small);
    std::swap(a, b);
  }
  small->parent = a;
  large->size += small->size;
  large->kernel |= small->kernel;
  if (large->device < 0) large->device = small->device;
  return true;
}

bool DeviceDomains::pin(Domain d, int32_t device) {
  if (d == kHost) return device == kCpuDevice;
  Node& n = nodes_[static_cast<size_t>(find(d))];
  if (n.device < 0) n.device = device;
  return n.device == device;
}

void DeviceDomains::settle(int32_t target) {
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (Node& n = nodes_[i]; n.parent == static_cast<Domain>(i) && n.device < 0)
      n.device = n.kernel ? target : kCpuDevice;
}

std::optional<int32_t> DeviceDomains::device(Domain d) {
  if (d == kNowhere) return std::nullopt;
  const int32_t device = nodes_[static_cast<size_t>(find(d))].device;
  return device < 0 ? std::nullopt : std::optional(device);
}

namespace {

Place make_place(const ir::Type& type, const std::function<Domain()>& domain) {
  Place p;
  if (is_scalar(type)) return p;
  if (type->kind != ir::TypeKind::kTuple) {
    p.domain = domain();
    return p;
  }
  p.is_tuple = true;
  for (const ir::Type& t : type->elements) p.fields.push_back(make_place(t, domain));
  return p;
}

}  // namespace

Place place_in(const ir::Type& type, Domain domain) {
  return make_place(type, [domain] { return domain; });
}

Place fresh_place(const ir::Type& type, DeviceDomains* domains) {
  return make_place(type, [domains] { return domains->fresh(); });
}

bool unite(const Place& a, const Place& b, DeviceDomains* domains) {
  bool united = true;
  // A tuple against a value of variable type: every field lies where the whole does.
  if (a.is_tuple && !b.is_tuple) {
    for (const Place& f : a.fields) united &= unite(f, b, domains);
    return united;
  }
  if (b.is_tuple && !a.is_tuple) return unite(b, a, domains);
  if (a.is_tuple) {
    NIMBLE_CHECK(a.fields.size() == b.fields.size(), "tuples of different sizes");
    for (size_t i = 0; i < a.fields.size(); ++i) united &= unite(a.fields[i], b.fields[i], domains);
    return united;
  }
  return a.domain == kNowhere || b.domain == kNowhere || domains->unite(a.domain, b.domain);
}

bool pin(const Place& p, int32_t device, DeviceDomains* domains) {
  bool pinned = true;
  for (const Place& f : p.fields) pinned &= pin(f, device, domains);
  return pinned && (p.domain == kNowhere || domains->pin(p.domain, device));
}

std::vector<int32_t> devices_of(const Place& p, DeviceDomains* domains) {
  if (!p.is_tuple)
    return {p.domain == kNowhere ? -1 : domains->device(p.domain).value_or(kCpuDevice)};
  std::vector<int32_t> out;
  for (const Place& f : p.fields)
    for (int32_t d : devices_of(f, domains)) out.push_back(d);
  return out;
}

}  // namespace nimble::passes
