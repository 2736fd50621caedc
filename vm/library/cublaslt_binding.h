// NVIDIA's cuBLASLt, opened at run time: nothing of it is linked, nor are its headers read. What
// nimble calls of it is declared here anew (source: the library's documentation, versions 12 and
// 13); test/cublaslt_declarations_test.cpp compares it with the header where one is installed.
// Internal to vm/library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "vm/base/dtype.h"
#include "vm/library/gpu_library.h"

namespace nimble::rt::cublaslt {

namespace c {
using Status = int;  // cublasStatus_t
inline constexpr Status kSuccess = 0, kAllocationFailed = 3, kInvalidValue = 7, kArchMismatch = 8,
                        kNotSupported = 15;
using Handle = struct ContextOf*;
using Layout = struct LayoutOf*;          // of a matrix
using Product = struct ProductOf*;        // cublasLtMatmulDesc_t
using Preference = struct PreferenceOf*;  // of the search for an algorithm
struct Algorithm {                        // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct Found {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};
// CUBLAS_COMPUTE_…: 32F, products and sums in f32, no TF32; 32F_FAST_TF32, factors may be TF32.
inline constexpr int kComputeF32 = 68, kComputeTf32 = 77;
inline constexpr int32_t kPlain = 0, kTransposed = 1;  // CUBLAS_OP_…
// CUBLASLT_MATRIX_LAYOUT_…
inline constexpr int kBatchCount = 5, kBatchStride = 6;
// CUBLASLT_MATMUL_DESC_…
inline constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8;
// CUBLASLT_EPILOGUE_…
inline constexpr uint32_t kNothing = 1, kRelu = 2, kBias = 4, kGelu = 32;
// CUBLASLT_MATMUL_PREF_…
inline constexpr int kMostWorkspace = 1, kReductions = 3, kAlignmentA = 5, kAlignmentB = 6,
                     kAlignmentC = 7, kAlignmentD = 8;
inline constexpr uint32_t kReduceInComputeType = 2;  // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
// cudaDataType; -1 of what nimble does not multiply there.
int data_type(DType t);
}  // namespace c

// NAME(result, name, parameters)
#define NIMBLE_CUBLASLT_FUNCTIONS(NAME)                                                            \
  NAME(size_t, cublasLtGetVersion, ())                                                             \
  NAME(const char*, cublasLtGetStatusString, (c::Status))                                          \
  NAME(c::Status, cublasLtCreate, (c::Handle*))                                                    \
  NAME(c::Status, cublasLtDestroy, (c::Handle))                                                    \
  NAME(c::Status, cublasLtMatrixLayoutCreate, (c::Layout*, int, uint64_t, uint64_t, int64_t))      \
  NAME(c::Status, cublasLtMatrixLayoutDestroy, (c::Layout))                                        \
  NAME(c::Status, cublasLtMatrixLayoutSetAttribute, (c::Layout, int, const void*, size_t))         \
  NAME(c::Status, cublasLtMatmulDescCreate, (c::Product*, int, int))                               \
  NAME(c::Status, cublasLtMatmulDescDestroy, (c::Product))                                         \
  NAME(c::Status, cublasLtMatmulDescSetAttribute, (c::Product, int, const void*, size_t))          \
  NAME(c::Status, cublasLtMatmulPreferenceCreate, (c::Preference*))                                \
  NAME(c::Status, cublasLtMatmulPreferenceDestroy, (c::Preference))                                \
  NAME(c::Status, cublasLtMatmulPreferenceSetAttribute, (c::Preference, int, const void*, size_t)) \
  NAME(c::Status, cublasLtMatmulAlgoGetHeuristic,                                                  \
       (c::Handle, c::Product, c::Layout, c::Layout, c::Layout, c::Layout, c::Preference, int,     \
        c::Found*, int*))                                                                          \
  NAME(c::Status, cublasLtMatmul,                                                                  \
       (c::Handle, c::Product, const void*, const void*, c::Layout, const void*, c::Layout,        \
        const void*, const void*, c::Layout, void*, c::Layout, const c::Algorithm*, void*, size_t, \
        cuda::Stream))

// What errors are of.
inline constexpr char kPlace[] = "cuBLASLt";

class Library : public GpuLibrary {
 public:
  explicit Library(std::string problem) : GpuLibrary(std::move(problem)) {}
  void open(const std::string& file);
  // Throws the error of a call's status, unless it is a success: kUnsupported for what the library
  // has not, kExhausted without memory, else kFatal.
  void check(c::Status status, const char* call) const {
    if (status != c::kSuccess) [[unlikely]]
      fail(status, call);
  }

#define NIMBLE_CUBLASLT_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  NIMBLE_CUBLASLT_FUNCTIONS(NIMBLE_CUBLASLT_POINTER)
#undef NIMBLE_CUBLASLT_POINTER

 private:
  [[noreturn, gnu::cold]] void fail(c::Status status, const char* call) const;
};

// The one that NIMBLE_CUBLASLT names (a file, or its folder; "off": none), else the newest that the
// system or the toolkit has and this machine's driver runs. Looked for once.
const Library& library();

// The library's state on a device, which all routines there share.
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

 private:
  const Library& library_;
  CudaDevice& device_;
  c::Handle handle_ = nullptr;
};
// Of this device, made where nobody holds one.
std::shared_ptr<const Context> context_of(const Library& library, CudaDevice& device);

}  // namespace nimble::rt::cublaslt
