#include "vm/runtime/thread.h"

#include "vm/base/error.h"

namespace nimble::rt {

void* Thread::run(void* self) {
  Thread& thread = *static_cast<Thread*>(self);
  thread.body_(thread.context_);
  return nullptr;
}

bool Thread::start(void (*body)(void*), void* context) noexcept {
  NIMBLE_CHECK(!started_);
  body_ = body;
  context_ = context;
  started_ = ::pthread_create(&handle_, nullptr, &run, this) == 0;
  return started_;
}

void Thread::join() noexcept {
  if (started_) ::pthread_join(handle_, nullptr);
  started_ = false;
}

}  // namespace nimble::rt
