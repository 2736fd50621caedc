// oneDNN's primitives behind one interface, whatever the library's major version. Internal to
// vm/library.
//
// The library is opened at run time and nothing of it is linked, nor are its headers read: versions
// 2 and 3 cannot stand in one program. What nimble uses of each is declared in onednn_functions.h,
// onednn2.cpp and onednn3.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vm/base/dtype.h"
#include "vm/executable/vendor_call.h"

namespace nimble::rt::onednn {

// A tensor as the library sees it: extents and strides in elements.
struct Desc {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims, strides;
  friend bool operator==(const Desc&, const Desc&) = default;
};

struct Step {
  exec::VendorOp op{};
  float alpha = 0, beta = 0;
  Desc operand;  // of those that have one
  friend bool operator==(const Step&, const Step&) = default;
};

// One call's work, with all extents. A product: x (m, k), w (k, n), y (m, n). A convolution: x and
// y (images, channels, height, width), w ([groups,] filters, channels, height, width).
struct Problem {
  struct Windows {
    std::vector<int64_t> strides, dilations, before, after;  // height, width
    friend bool operator==(const Windows&, const Windows&) = default;
  };
  Desc x, w, y;
  bool packs = false;  // the library chooses how it wants the weights; else they stay as they are
  std::optional<Desc> bias;
  std::vector<Step> steps;
  std::optional<Windows> windows;
  friend bool operator==(const Problem&, const Problem&) = default;
};

// Weights in the library's memory objects: as a call gave them, or copied as a primitive wants.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual uint64_t bytes() const = 0;  // of the copy
};

// A primitive's memory objects and scratchpad: of one call at a time.
class Execution {
 public:
  virtual ~Execution() = default;
  // `operands`: of the steps that have one, in order. `w`: of problems that don't pack. Throws
  // Error(kInternal) with what the library says.
  virtual void run(const void* x, const void* w, const void* bias,
                   std::span<const void* const> operands, void* y) = 0;
};

class Primitive {
 public:
  virtual ~Primitive() = default;
  // Both want their packed weights alike.
  virtual bool shares_weights_with(const Primitive& other) const = 0;
  // Copies weights that lie as the problem says.
  virtual std::unique_ptr<Weights> pack(const void* w) const = 0;
  // `packed`: of pack(), of this primitive or one that shares its weights; nullptr of a problem
  // that doesn't pack. The primitive and the weights outlive it.
  virtual std::unique_ptr<Execution> execution(const Weights* packed) const = 0;
  virtual uint64_t scratchpad_bytes() const = 0;
};

class Library {
 public:
  virtual ~Library() = default;
  // Why it cannot be used; "" if it can.
  virtual const std::string& problem() const = 0;
  // "oneDNN 2.6.3 <revision>"; "" if it is not there.
  virtual const std::string& version() const = 0;
  // Whether it adds up products of bytes without saturating on the way: by instructions that the
  // CPU has and that neither the environment nor the program keeps it from.
  virtual bool adds_bytes_exactly() const = 0;
  // Error(kUnsupported) if the library has nothing for it.
  virtual std::unique_ptr<Primitive> make(const Problem& problem) const = 0;
  // Sets how many threads of OpenMP the library takes on this thread, and tells how many it took
  // before. Of a library without threads it does nothing.
  virtual int set_threads(int threads) const = 0;
};

// For the calling thread alone the library has one thread; afterwards what the program had set.
class OneThread {
 public:
  explicit OneThread(const Library& library) : library_(library), before_(library.set_threads(1)) {}
  ~OneThread() { library_.set_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const Library& library_;
  const int before_;
};

// Opens a library of this major version, 2 or 3. `file`: its path, or a name that the system knows.
std::unique_ptr<Library> open_library(int major, const std::string& file);
// The newer one if it can be used, else the older; of two that cannot the one that is installed,
// so that its problem is told.
std::unique_ptr<Library> better_of(std::unique_ptr<Library> newer, std::unique_ptr<Library> older);
// The one of this process: version 3 if it is installed and usable, else version 2.
const Library& library();

}  // namespace nimble::rt::onednn
