// Stopping a query from another thread.
#pragma once

namespace nimble::db {

// Stops what runs in one Store, from another thread, any time, also when nothing runs or the Store
// is gone. The call that is stopped throws Error(kCancelled) and leaves nothing half done; the
// Store goes on. On a server a call that begins at that very moment may be the one that is stopped:
// try it again.
class Canceller {
 public:
  virtual ~Canceller() = default;
  virtual void cancel() noexcept = 0;
};

}  // namespace nimble::db
