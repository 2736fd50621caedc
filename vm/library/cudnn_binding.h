// NVIDIA's cuDNN 9, opened at run time, by its backend ("graph") interface: nothing of it is
// linked, nor are its headers read. What nimble calls of it is declared here anew (source: the
// library's documentation, version 9); test/cudnn_declarations_test.cpp compares it with the header
// where one is installed. Internal to vm/library.
//
// The interface has one kind of object, the descriptor: made empty, given attributes, then closed
// ("finalized"). Descriptors name others as attributes: operations their tensors, a graph its
// operations, a plan the engine that it runs a graph by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "vm/library/gpu_library.h"

namespace nimble::rt::cudnn {

namespace c {
using Status = int;  // cudnnStatus_t: thousands tell its kind
inline constexpr Status kSuccess = 0, kNotSupported = 3000, kHostAllocation = 4003,
                        kDeviceAllocation = 4004;
using Handle = struct CudnnContextOf*;
using Descriptor = void*;
// Kinds of descriptors, CUDNN_BACKEND_…_DESCRIPTOR.
inline constexpr int kPointwise = 0, kConvolution = 1, kEngine = 2, kConfiguration = 3,
                     kHeuristics = 4, kPlan = 5, kConvolutionForward = 10, kPointwiseOperation = 13,
                     kGraph = 15, kPack = 16, kTensor = 17,
                     kAttentionForward = 41;  // since 9.13
// Types of attributes, CUDNN_TYPE_….
inline constexpr int kHandleType = 0, kDataType = 1, kBoolean = 2, kInt64 = 3, kFloat = 4,
                     kPointer = 6, kConvolutionMode = 7, kHeuristicMode = 8, kNanPropagation = 10,
                     kNumericalNote = 11, kPointwiseMode = 14, kDescriptorType = 15;
// Attributes, CUDNN_ATTR_….
inline constexpr int kPointwiseModeOf = 0, kPointwisePrecision = 1, kPointwiseNans = 2;
inline constexpr int kConvolutionPrecision = 100, kConvolutionModeOf = 101, kDilations = 102,
                     kStrides = 103, kPaddingAfter = 104, kPaddingBefore = 105, kSpatialDims = 106;
inline constexpr int kHeuristicModeOf = 200, kHeuristicGraph = 201, kHeuristicResults = 202;
inline constexpr int kConfigurationEngine = 300, kPlanHandle = 400, kPlanConfiguration = 401,
                     kPlanWorkspace = 402;
inline constexpr int kForwardAlpha = 700, kForwardBeta = 701, kForwardConvolution = 702,
                     kForwardW = 703, kForwardX = 704, kForwardY = 705;
inline constexpr int kPointwiseDescriptor = 750, kPointwiseX = 751, kPointwiseB = 752,
                     kPointwiseY = 753;
inline constexpr int kGraphHandle = 800, kGraphOperations = 801;
inline constexpr int kTensorAlignment = 900, kTensorType = 901, kTensorDims = 902,
                     kTensorStrides = 903, kTensorId = 906, kTensorVirtual = 907,
                     kTensorByValue = 908;
inline constexpr int kPackIds = 1000, kPackPointers = 1001, kPackWorkspace = 1003;
inline constexpr int kEngineNotes = 1303;
inline constexpr int kAttentionQ = 2800, kAttentionK = 2801, kAttentionV = 2802, kAttentionY = 2803,
                     kAttentionScale = 2805;
// Values.
inline constexpr int kF32 = 0, kF16 = 2, kBF16 = 9, kCrossCorrelation = 1, kAdd = 0, kRelu = 100,
                     kPropagate = 1;
inline constexpr int kByRules = 3, kFallback = 2;  // CUDNN_HEUR_MODE_A, _FALLBACK
// Numerical notes of engines.
inline constexpr int kTensorCore = 0, kDownConverts = 1, kReducedSums = 2, kFourier = 3,
                     kNondeterministic = 4, kWinograd = 5, kNoteCount = 10;
}  // namespace c

// NAME(result, name, parameters)
#define NIMBLE_CUDNN_FUNCTIONS(NAME)                                                             \
  NAME(size_t, cudnnGetVersion, ())                                                              \
  NAME(const char*, cudnnGetErrorString, (c::Status))                                            \
  NAME(c::Status, cudnnCreate, (c::Handle*))                                                     \
  NAME(c::Status, cudnnDestroy, (c::Handle))                                                     \
  NAME(c::Status, cudnnSetStream, (c::Handle, cuda::Stream))                                     \
  NAME(c::Status, cudnnBackendCreateDescriptor, (int, c::Descriptor*))                           \
  NAME(c::Status, cudnnBackendDestroyDescriptor, (c::Descriptor))                                \
  NAME(c::Status, cudnnBackendFinalize, (c::Descriptor))                                         \
  NAME(c::Status, cudnnBackendSetAttribute, (c::Descriptor, int, int, int64_t, const void*))     \
  NAME(c::Status, cudnnBackendGetAttribute, (c::Descriptor, int, int, int64_t, int64_t*, void*)) \
  NAME(c::Status, cudnnBackendExecute, (c::Handle, c::Descriptor, c::Descriptor))

// What errors are of.
inline constexpr char kPlace[] = "cuDNN";

class Library : public GpuLibrary {
 public:
  explicit Library(std::string problem) : GpuLibrary(std::move(problem)) {}
  void open(const std::string& file);
  // Throws the error of a call's status, unless it is a success: kUnsupported for what the library
  // has not, does not take or cannot set up here (a library of its own that is missing, for
  // instance), kExhausted without memory, else kFatal.
  void check(c::Status status, const char* call) const {
    if (status != c::kSuccess) [[unlikely]]
      fail(status, call);
  }

#define NIMBLE_CUDNN_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  NIMBLE_CUDNN_FUNCTIONS(NIMBLE_CUDNN_POINTER)
#undef NIMBLE_CUDNN_POINTER

 private:
  [[noreturn, gnu::cold]] void fail(c::Status status, const char* call) const;
};

// The one that NIMBLE_CUDNN names (a file, or its folder; "off": none), else that of the system or
// the toolkit. Looked for once.
const Library& library();

// The library's state on a device, which all routines there share. Its handle is one thread's at a
// time.
class Context {
 public:
  // Error as Library::check.
  Context(const Library& library, CudaDevice& device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  const Library& library() const { return library_; }
  CudaDevice& device() const { return device_; }
  c::Handle handle() const { return handle_; }
  // To be held while the handle, or a descriptor that was made with it, is used.
  std::mutex& lock() const { return lock_; }
  // What is executed next is started on this stream, of the device's and as old as it. The lock is
  // held.
  void use(cuda::Stream stream) const;

 private:
  const Library& library_;
  CudaDevice& device_;
  c::Handle handle_ = nullptr;
  mutable std::mutex lock_;  // a forked child has no use of the device, and never takes it
  mutable cuda::Stream stream_ = nullptr;  // the handle's; nullptr: nobody knows
};
// Of this device, made where nobody holds one.
std::shared_ptr<const Context> context_of(const Library& library, CudaDevice& device);

// A descriptor of the library's. Where the device cannot be used any more it is left: it may hold
// what went with the device, and a forked child calls nothing of the library's.
class Descriptor {
 public:
  Descriptor(const Context& context, int kind);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  template <class T>
  void set(int attribute, int type, const std::vector<T>& values) {
    set(attribute, type, values.size(), values.data());
  }
  void set(int attribute, int type, size_t count, const void* values);
  void set_int(int attribute, int type, int value) { set(attribute, type, 1, &value); }
  void set_int64(int attribute, int64_t value) { set(attribute, c::kInt64, 1, &value); }
  void set_float(int attribute, float value) { set(attribute, c::kFloat, 1, &value); }
  void set_handle(int attribute, c::Handle value) { set(attribute, c::kHandleType, 1, &value); }
  void set_pointer(int attribute, void* value) { set(attribute, c::kPointer, 1, &value); }
  void set_one(int attribute, const Descriptor& value) {
    set(attribute, c::kDescriptorType, 1, &value.handle_);
  }
  void set_all(int attribute, const std::vector<const Descriptor*>& values);
  // No attribute changes any more.
  void close();
  // How many elements there are, up to `most` of which are written to `to`.
  int64_t get(int attribute, int type, int64_t most, void* to) const;
  c::Descriptor get() const { return handle_; }
  // It is not destroyed.
  void leave() { handle_ = nullptr; }

 private:
  const Context& context_;
  const Library& library_;
  c::Descriptor handle_ = nullptr;
};

}  // namespace nimble::rt::cudnn
