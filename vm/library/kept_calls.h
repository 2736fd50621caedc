// What a GPU's library has been asked of calls, by what tells them apart: what serves each, or that
// nothing does. Internal to vm/library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "vm/base/error.h"
#include "vm/library/device_routine.h"
#include "vm/runtime/fork.h"

namespace nimble::rt {

// A call that the library has nothing for, or that is not what the routine is told to compute.
struct Refused {
  std::string why;
};

// A result without elements takes nothing.
class NoCall final : public DeviceCall {
 public:
  uint64_t workspace_bytes() const override { return 0; }
  bool empty() const override { return true; }
  void start(std::span<void* const>, void*, cuda::Stream) const override {}
};

template <class Key, class Hash>
class KeptCalls {
 public:
  // Calls that are kept. A loop over all lengths has some hundreds; what was not used for longest
  // goes.
  static constexpr size_t kMost = 1024;

  // `make(key)` makes what serves calls of a key, or throws Refused or Error(kUnsupported): then
  // nullptr is kept and returned, with the reason in `why`. It is called with no lock held: who
  // wants the same at that time makes it, too.
  template <class Make>
  std::shared_ptr<const DeviceCall> find(const Key& key, std::string* why, const Make& make) {
    Kept kept;
    if (!known(key, &kept)) kept = keep(key, make);
    if (!kept.call) *why = kept.why;
    return kept.call;
  }

 private:
  struct Kept {
    std::shared_ptr<const DeviceCall> call;
    std::string why;  // there is none
    uint64_t used = 0;
  };

  bool known(const Key& key, Kept* out) {
    const std::lock_guard guard(lock_);
    const auto at = kept_.find(key);
    if (at == kept_.end()) return false;
    at->second.used = ++uses_;
    *out = at->second;
    return true;
  }

  template <class Make>
  Kept keep(const Key& key, const Make& make) {
    Kept made;
    try {
      made.call = make(key);
    } catch (const Refused& refused) {
      made.why = refused.why;
    } catch (const Error& e) {
      if (e.status() != Status::kUnsupported) throw;
      made.why = e.problem();
    }
    std::shared_ptr<const DeviceCall> oldest;  // goes with no lock held
    const std::lock_guard guard(lock_);
    if (kept_.size() >= kMost) {
      const auto at = std::min_element(
          kept_.begin(), kept_.end(),
          [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
      oldest = std::move(at->second.call);
      kept_.erase(at);
    }
    made.used = ++uses_;
    kept_.try_emplace(key, made);
    return made;
  }

  ForkSafeLock lock_;
  std::unordered_map<Key, Kept, Hash> kept_;
  uint64_t uses_ = 0;
};

}  // namespace nimble::rt
