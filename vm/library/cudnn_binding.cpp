#include "vm/library/cudnn_binding.h"

#include "vm/executable/vendor_routines.h"

namespace nimble::rt::cudnn {
namespace {

constexpr const char* kFiles[] = {"libcudnn.so.9"};
constexpr size_t kMajor = 9;

}  // namespace

void Library::open(const std::string& file) {
  if (!load(file)) return;
#define NIMBLE_CUDNN_FIND(result, name, parameters)           \
  name = reinterpret_cast<result(*) parameters>(find(#name)); \
  if (!name) return;
  NIMBLE_CUDNN_FUNCTIONS(NIMBLE_CUDNN_FIND)
#undef NIMBLE_CUDNN_FIND
  if (set_version(kPlace, cudnnGetVersion()) != kMajor)
    problem_ = fmt::format("{} is {}, one of {} is wanted", file, version_, kMajor);
}

void Library::fail(c::Status status, const char* call) const {
  const char* text = cudnnGetErrorString(status);
  const Status of_ours =
      status > c::kSuccess && status / 1000 <= c::kNotSupported / 1000 ? Status::kUnsupported
      : status == c::kHostAllocation || status == c::kDeviceAllocation ? Status::kExhausted
                                                                       : Status::kFatal;
  throw Error(of_ours, kPlace, fmt::format("{} gave {}", call, text ? text : "an unknown status"),
              "run the model without the library (NIMBLE_CUDNN=off), or install another version");
}

const Library& library() {
  static const std::string variable = exec::variable_of_library("cudnn");
  return library_of<Library>(variable.c_str(), kFiles);
}

Context::Context(const Library& library, CudaDevice& device) : library_(library), device_(device) {
  device.enter_quietly();
  library.check(library.cudnnCreate(&handle_), "cudnnCreate");
  try {
    use(device.stream());
  } catch (...) {
    library.cudnnDestroy(handle_);
    throw;
  }
}

Context::~Context() {
  // Sessions have waited for what they started with it.
  if (device_.reenter()) library_.cudnnDestroy(handle_);
}

void Context::use(cuda::Stream stream) const {
  if (stream == stream_) return;
  stream_ = nullptr;
  library_.check(library_.cudnnSetStream(handle_, stream), "cudnnSetStream");
  stream_ = stream;
}

std::shared_ptr<const Context> context_of(const Library& library, CudaDevice& device) {
  return shared_context<Context>(library, device);
}

Descriptor::Descriptor(const Context& context, int kind)
    : context_(context), library_(context.library()) {
  library_.check(library_.cudnnBackendCreateDescriptor(kind, &handle_),
                 "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (handle_ && context_.device().usable()) library_.cudnnBackendDestroyDescriptor(handle_);
}

void Descriptor::set(int attribute, int type, size_t count, const void* values) {
  library_.check(library_.cudnnBackendSetAttribute(handle_, attribute, type,
                                                   static_cast<int64_t>(count), values),
                 "cudnnBackendSetAttribute");
}

void Descriptor::set_all(int attribute, const std::vector<const Descriptor*>& values) {
  std::vector<c::Descriptor> handles;
  for (const Descriptor* d : values) handles.push_back(d->handle_);
  set(attribute, c::kDescriptorType, handles);
}

void Descriptor::close() {
  library_.check(library_.cudnnBackendFinalize(handle_), "cudnnBackendFinalize");
}

int64_t Descriptor::get(int attribute, int type, int64_t most, void* to) const {
  int64_t count = 0;
  library_.check(library_.cudnnBackendGetAttribute(handle_, attribute, type, most, &count, to),
                 "cudnnBackendGetAttribute");
  return count;
}

}  // namespace nimble::rt::cudnn
