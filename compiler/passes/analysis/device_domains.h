// DeviceDomain (paper, section 3.4): which values must lie on one device, by union-find.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/type.h"

namespace nimble::passes {

using Domain = int32_t;
// An unboxed scalar in a register: it has no place, every device may be given it.
inline constexpr Domain kNowhere = -1;
// The CPU as a border: what stands here is on the CPU, and that says nothing about its neighbours.
inline constexpr Domain kHost = 0;

// Equivalence classes of values. A class may be fixed to a device; uniting keeps that.
class DeviceDomains {
 public:
  DeviceDomains();
  Domain fresh();
  // The representative of the class.
  Domain find(Domain d);
  // Makes one class of two; false, and nothing happens, if they are fixed to different devices or
  // one of them is a border.
  bool unite(Domain a, Domain b);
  // Fixes a class to a device; false if it is fixed to another.
  bool pin(Domain d, int32_t device);
  // Says that a kernel reads or writes the class.
  void set_kernel(Domain d) { nodes_[static_cast<size_t>(find(d))].kernel = true; }
  // What is fixed nowhere goes to `target` if a kernel touches it, else it stays with the host.
  void settle(int32_t target);
  // The device of a class; nothing before it is fixed or settled, and for kNowhere.
  std::optional<int32_t> device(Domain d);

 private:
  struct Node {
    Domain parent;
    int32_t size = 1;
    int32_t device = -1;
    bool kernel = false;
  };
  std::vector<Node> nodes_;
};

// Where a value lies: one domain, or one per field of a tuple.
struct Place {
  Domain domain = kNowhere;
  std::vector<Place> fields;
  bool is_tuple = false;
};

// The place of a value of a type, all of whose tensors lie in `domain`. A data-type value, a
// closure and a value of variable type have one domain with all that is in them.
Place place_in(const ir::Type& type, Domain domain);
// The same with a domain for each field.
Place fresh_place(const ir::Type& type, DeviceDomains* domains);
// Unites two places field by field; false if that failed for any.
bool unite(const Place& a, const Place& b, DeviceDomains* domains);
bool pin(const Place& p, int32_t device, DeviceDomains* domains);

// The device of each leaf in order; -1 for kNowhere.
std::vector<int32_t> devices_of(const Place& p, DeviceDomains* domains);

}  // namespace nimble::passes
