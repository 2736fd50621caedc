// What versions 2 and 3 of oneDNN's C interface have in common, declared anew (source: the
// library's documentation and headers), and what they don't, as virtual functions. Internal to
// vm/library. test/onednn_declarations_test.cpp compares the numbers with the installed header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "vm/library/onednn_binding.h"

namespace nimble::rt::onednn {

namespace c {
using Status = int;  // dnnl_status_t
inline constexpr Status kSuccess = 0;
struct Engine;
struct Stream;
struct Memory;
struct PrimitiveDesc;
struct Primitive;
struct Attributes;
struct PostOps;
struct Argument {  // dnnl_exec_arg_t
  int arg;
  Memory* memory;
};
struct Version {  // dnnl_version_t
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};
inline constexpr int kMaxDims = 12;  // DNNL_MAX_NDIMS
using Dims = int64_t[kMaxDims];
inline constexpr unsigned kSequential = 1, kOpenMp = 2;  // DNNL_RUNTIME_…
inline constexpr int kCpu = 1;                           // dnnl_cpu
inline constexpr unsigned kStreamDefault = 1;            // dnnl_stream_default_flags
inline constexpr int kUserScratchpad = 1;                // dnnl_scratchpad_mode_user
inline constexpr int kAny = 1;                           // dnnl_format_tag_any
inline constexpr int kForwardInference = 96, kAutoConvolution = 3;
inline constexpr int kQueryWeights = 131, kQueryScratchpad = 136;  // dnnl_query_…_md
inline constexpr int kArgX = 1, kArgY = 17, kArgW = 33, kArgBias = 41, kArgScratchpad = 80;
inline constexpr int kArgOperand = 2;  // DNNL_ARG_SRC_1, of a post-operation
inline constexpr int kAdd = 0x1fff0, kMul = 0x1fff1, kSub = 0x1fff5;  // dnnl_binary_…
// dnnl_data_type_t; 0 of what the library has not.
int data_type(DType t);
}  // namespace c

// NAME(result, name, parameters): of both versions. A memory descriptor is a structure of the
// caller's in version 2 and a handle in version 3; either way functions take its address.
#define NIMBLE_DNNL_FUNCTIONS(NAME)                                                      \
  NAME(c::Status, dnnl_engine_create, (c::Engine**, int, size_t))                        \
  NAME(c::Status, dnnl_engine_destroy, (c::Engine*))                                     \
  NAME(c::Status, dnnl_stream_create, (c::Stream**, c::Engine*, unsigned))               \
  NAME(c::Status, dnnl_stream_wait, (c::Stream*))                                        \
  NAME(c::Status, dnnl_stream_destroy, (c::Stream*))                                     \
  NAME(c::Status, dnnl_primitive_attr_create, (c::Attributes**))                         \
  NAME(c::Status, dnnl_primitive_attr_destroy, (c::Attributes*))                         \
  NAME(c::Status, dnnl_primitive_attr_set_scratchpad_mode, (c::Attributes*, int))        \
  NAME(c::Status, dnnl_primitive_attr_set_post_ops, (c::Attributes*, const c::PostOps*)) \
  NAME(c::Status, dnnl_post_ops_create, (c::PostOps**))                                  \
  NAME(c::Status, dnnl_post_ops_destroy, (c::PostOps*))                                  \
  NAME(c::Status, dnnl_post_ops_append_binary, (c::PostOps*, int, const void*))          \
  NAME(c::Status, dnnl_primitive_desc_destroy, (c::PrimitiveDesc*))                      \
  NAME(const void*, dnnl_primitive_desc_query_md, (const c::PrimitiveDesc*, int, int))   \
  NAME(c::Status, dnnl_reorder_primitive_desc_create,                                    \
       (c::PrimitiveDesc**, const void*, c::Engine*, const void*, c::Engine*,            \
        const c::Attributes*))                                                           \
  NAME(c::Status, dnnl_primitive_create, (c::Primitive**, const c::PrimitiveDesc*))      \
  NAME(c::Status, dnnl_primitive_destroy, (c::Primitive*))                               \
  NAME(c::Status, dnnl_primitive_execute,                                                \
       (const c::Primitive*, c::Stream*, int, const c::Argument*))                       \
  NAME(c::Status, dnnl_memory_create, (c::Memory**, const void*, c::Engine*, void*))     \
  NAME(c::Status, dnnl_memory_destroy, (c::Memory*))                                     \
  NAME(c::Status, dnnl_memory_set_data_handle, (c::Memory*, void*))                      \
  NAME(int, dnnl_memory_desc_equal, (const void*, const void*))                          \
  NAME(size_t, dnnl_memory_desc_get_size, (const void*))                                 \
  NAME(int, dnnl_get_effective_cpu_isa, ())

// The functions of an opened library.
class Functions {
 public:
  virtual ~Functions() = default;

#define NIMBLE_DNNL_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  NIMBLE_DNNL_FUNCTIONS(NIMBLE_DNNL_POINTER)
#undef NIMBLE_DNNL_POINTER

  // Finds all functions; the name of the first that is missing, "" if none is.
  std::string look_up(void* handle);

  // The versions that the declarations fit: this major one, from this minor one on.
  virtual int major() const = 0;
  virtual int least_minor() const = 0;
  // The package that has it, for who lacks it.
  virtual const char* package() const = 0;

  // dnnl_alg_kind_t of an operator without a second operand.
  virtual int algorithm(exec::VendorOp op) const = 0;
  // Added to an argument's number, of the first post-operation; of the second twice that.
  virtual int post_op_argument() const = 0;

  // What dnnl_cpu_isa_t has of instruction sets with VNNI, of 512 or 256 bits, and of no other.
  virtual int vnni() const = 0;

  // A memory descriptor, its layout left to the library where `any`. It is released by drop_desc().
  virtual c::Status make_desc(void** out, const Desc& desc, bool any) const = 0;
  virtual void drop_desc(void* desc) const = 0;
  virtual c::Status append_elementwise(c::PostOps* to, int algorithm, float alpha,
                                       float beta) const = 0;
  // `bias` may be nullptr.
  virtual c::Status make_product(c::PrimitiveDesc** out, c::Engine* engine, const void* x,
                                 const void* w, const void* bias, const void* y,
                                 const c::Attributes* attributes) const = 0;
  virtual c::Status make_convolution(c::PrimitiveDesc** out, c::Engine* engine,
                                     const Problem::Windows& windows, const void* x, const void* w,
                                     const void* bias, const void* y,
                                     const c::Attributes* attributes) const = 0;

 protected:
  // Those that only this version has; as look_up().
  virtual std::string look_up_own(void* handle) = 0;
};

// Room for version 2's structures: in 2.6 dnnl_memory_desc_t has 696 bytes and
// dnnl_convolution_desc_t, the largest of an operation, 5976. The library fills in what it has;
// what is behind is for later minor versions.
inline constexpr size_t kMemoryDescBytes = 1024, kOperationDescBytes = 12288;

std::unique_ptr<Functions> functions_of_version2();
std::unique_ptr<Functions> functions_of_version3();

}  // namespace nimble::rt::onednn
