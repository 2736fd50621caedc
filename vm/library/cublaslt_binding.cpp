#include "vm/library/cublaslt_binding.h"

#include "vm/executable/vendor_routines.h"

namespace nimble::rt::cublaslt {
namespace {

constexpr const char* kFiles[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr int kOldest = 12, kNewest = 13;

// The newest CUDA whose libraries run here: without a driver none does, but its version is asked
// for where kernels are compiled, too.
int newest_major() {
  try {
    return CudaDriver::open().version() / 1000;
  } catch (const Error&) {
    return kNewest;
  }
}

}  // namespace

int c::data_type(DType t) {
  switch (t) {
    case DType::kF32:
      return 0;  // CUDA_R_32F
    case DType::kBF16:
      return 14;  // CUDA_R_16BF
    default:
      return -1;
  }
}

void Library::open(const std::string& file) {
  if (!load(file)) return;
#define NIMBLE_CUBLASLT_FIND(result, name, parameters)        \
  name = reinterpret_cast<result(*) parameters>(find(#name)); \
  if (!name) return;
  NIMBLE_CUBLASLT_FUNCTIONS(NIMBLE_CUBLASLT_FIND)
#undef NIMBLE_CUBLASLT_FIND
  const auto major = static_cast<int>(set_version(kPlace, cublasLtGetVersion()));
  if (major < kOldest || major > kNewest)
    problem_ = fmt::format("{} is {}, one of {} to {} is wanted", file, version_, kOldest, kNewest);
  else if (const int newest = newest_major(); major > newest)
    problem_ =
        fmt::format("{} is {}, and this machine's driver is of CUDA {}", file, version_, newest);
}

void Library::fail(c::Status status, const char* call) const {
  const char* text = cublasLtGetStatusString(status);
  const Status of_ours =
      status == c::kNotSupported || status == c::kInvalidValue || status == c::kArchMismatch
          ? Status::kUnsupported
      : status == c::kAllocationFailed ? Status::kExhausted
                                       : Status::kFatal;
  throw Error(
      of_ours, kPlace, fmt::format("{} gave {}", call, text ? text : "an unknown status"),
      "run the model without the library (NIMBLE_CUBLASLT=off), or install another version");
}

const Library& library() {
  static const std::string variable = exec::variable_of_library("cublaslt");
  return library_of<Library>(variable.c_str(), kFiles);
}

Context::Context(const Library& library, CudaDevice& device) : library_(library), device_(device) {
  device.enter_quietly();
  library.check(library.cublasLtCreate(&handle_), "cublasLtCreate");
}

Context::~Context() {
  // Sessions have waited for what they started with it.
  if (device_.reenter()) library_.cublasLtDestroy(handle_);
}

std::shared_ptr<const Context> context_of(const Library& library, CudaDevice& device) {
  return shared_context<Context>(library, device);
}

}  // namespace nimble::rt::cublaslt
