// One campaign measures on a device of a machine at a time: two would spoil each other's times.
//
// Cards of one machine do not: who measures on a GPU holds that card alone, and the machine beside
// others who do the same on other cards. Who measures on its CPU, or builds there, has all of it.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "vm/base/error.h"

namespace nimble::tuner {

// The lock cannot be made: a fault of the machine, which no database's coming back mends.
class MachineLockError : public Error {
 public:
  using Error::Error;
};

// How a device is held.
enum class Hold { kAlone, kBesideOthers };

class MachineLock {
 public:
  // Waits until no other process of this machine measures on the device. After a second it tells
  // `waiting` who holds the lock. Error(kCancelled) once `cancel` is set, MachineLockError (kIo) if
  // the lock cannot be made. Who wants it alone comes in its turn, however many hold it beside each
  // other. The lock goes with the process, however that ends. It lies in $NIMBLE_LOCK_FOLDER, else
  // in /tmp, which all users share.
  MachineLock(const std::string& device, const std::string& purpose,
              const std::atomic<bool>& cancel,
              const std::function<void(const std::string& holder)>& waiting,
              Hold hold = Hold::kAlone);
  ~MachineLock();
  MachineLock(const MachineLock&) = delete;
  MachineLock& operator=(const MachineLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace nimble::tuner
