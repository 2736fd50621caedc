#include "vm/runtime/fork.h"

#include <pthread.h>

#include <mutex>
#include <new>

namespace nimble::rt {

struct ForkHooks {
  // Never destroyed: a process may fork while it exits, and hooks may outlive any static.
  static ForkHooks& all() {
    static ForkHooks& hooks = *new ForkHooks;
    return hooks;
  }
  ForkHooks() {
    if (::pthread_atfork([] { all().hold(); }, [] { all().let_go(nullptr, false); },
                         [] { all().let_go(nullptr, true); }) != 0)
      throw std::bad_alloc();
  }

  // Leaves the list and every object in it held.
  void hold() noexcept {
    for (;; std::this_thread::yield()) {
      mutex.lock();
      ForkHook* hook = first;
      while (hook && hook->hold_(hook->object_)) hook = hook->next_;
      if (!hook) return;
      let_go(hook, false);
    }
  }
  // Undoes hold() for the hooks before `end`.
  void let_go(const ForkHook* end, bool in_child) noexcept {
    for (ForkHook* hook = first; hook != end; hook = hook->next_)
      hook->let_go_(hook->object_, in_child);
    mutex.unlock();
  }

  std::mutex mutex;
  ForkHook* first = nullptr;
};

ForkHook::ForkHook(void* object, Hold hold, LetGo let_go)
    : object_(object), hold_(hold), let_go_(let_go) {
  ForkHooks& hooks = ForkHooks::all();
  std::lock_guard lock(hooks.mutex);
  next_ = hooks.first;
  if (next_) next_->previous_ = this;
  hooks.first = this;
}

ForkHook::~ForkHook() {
  ForkHooks& hooks = ForkHooks::all();
  std::lock_guard lock(hooks.mutex);
  (previous_ ? previous_->next_ : hooks.first) = next_;
  if (next_) next_->previous_ = previous_;
}

}  // namespace nimble::rt
