// One entry of a case, bound to the case's arguments and ready to run: on the host, by its clock,
// or on a GPU, by that one's.
#pragma once

#include <cstdint>
#include <memory>

#include "tuner/measure/case_arguments.h"
#include "vm/interpreter/model.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::tuner {

// Which copy of the arguments is next. The entries of a case share one: if each went through the
// copies by itself, an entry would find in the cache what the one before it had just read, and only
// the first of a round would be timed as its policy says.
class Rotation {
 public:
  explicit Rotation(size_t copies) : copies_(copies) {}
  size_t copies() const { return copies_; }
  size_t next() {
    const size_t now = next_;
    if (++next_ == copies_) next_ = 0;
    return now;
  }
  void rewind() { next_ = 0; }

 private:
  size_t copies_, next_ = 0;
};

class Runnable {
 public:
  virtual ~Runnable() = default;
  // On the next copy of the arguments; returns when it is done.
  virtual void run() = 0;
  // Of how many runs a sample is that takes about `sample_ns`, where one takes `once_ns`.
  virtual int64_t runs_for(double sample_ns, double once_ns) = 0;
  // What one of so many runs takes, in ns: a mean, above 0.
  virtual double sample(int64_t runs) = 0;
};

// All that is given must outlive it. Error(kUnsupported) where a vendor's routine cannot be made
// ready for this size.
std::unique_ptr<Runnable> make_runnable(std::shared_ptr<const rt::Model> model, uint32_t kernel,
                                        const Arguments& arguments, Rotation& rotation,
                                        rt::ThreadPool& pool, int32_t threads);
// Of a kernel of a GPU.
std::unique_ptr<Runnable> make_gpu_runnable(std::shared_ptr<const rt::Model> model, uint32_t kernel,
                                            const Arguments& arguments, Rotation& rotation);

}  // namespace nimble::tuner
