// oneDNN, opened at run time with its C interface of major version 2 (Debian 12's 2.6; version 3
// changed the descriptors, so it is refused by name). Nothing of it is linked.
//
// The library brings its own OpenMP threads, which would fight with ours. So it runs inside our
// region: each thread takes an even share of the rows and calls a primitive of its own with
// OpenMP set to one thread. A primitive is generated code for one (rows, k, n): a thread keeps
// those it has used, as many as a model with a few hundred shapes needs.
#include "vm/library/onednn.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include <list>
#include <map>
#include <optional>
#include <tuple>

#include "vm/base/checked.h"
#include "vm/base/error.h"

#if DNNL_VERSION_MAJOR != 2
#error "nimble's oneDNN binding is written for interface version 2 (Debian package libdnnl-dev)"
#endif

namespace nimble::rt {
namespace {

constexpr char kFile[] = "libdnnl.so.2";
constexpr size_t kPrimitivesPerThread = 512;

// The formatter never agrees with itself about this list.
// clang-format off
#define NIMBLE_DNNL_FUNCTIONS(X)                                                        \
  X(dnnl_engine_create)                                                                 \
  X(dnnl_stream_create)                                                                 \
  X(dnnl_stream_wait)                                                                   \
  X(dnnl_stream_destroy)                                                                \
  X(dnnl_memory_desc_init_by_tag)                                                       \
  X(dnnl_matmul_desc_init) X(dnnl_primitive_desc_create) X(dnnl_primitive_desc_destroy) \
      X(dnnl_primitive_create) X(dnnl_primitive_destroy) X(dnnl_memory_create)          \
          X(dnnl_memory_destroy) X(dnnl_memory_set_data_handle) X(dnnl_primitive_execute)
// clang-format on

struct Library {
  std::string problem;  // empty if usable
  std::string version;  // empty if it is not there
#define NIMBLE_DNNL_POINTER(name) decltype(&::name) name = nullptr;
  NIMBLE_DNNL_FUNCTIONS(NIMBLE_DNNL_POINTER)
#undef NIMBLE_DNNL_POINTER
  void (*omp_set_num_threads)(int) = nullptr;
  dnnl_engine_t engine = nullptr;

  Library() {
    problem = open();
  }

 private:
  std::string open() {
    void* handle = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);  // never closed: primitives live on
    if (!handle) return fmt::format("{} is not installed (Debian package libdnnl2)", kFile);
    const auto get_version =
        reinterpret_cast<decltype(&::dnnl_version)>(::dlsym(handle, "dnnl_version"));
    if (const dnnl_version_t* v = get_version ? get_version() : nullptr)
      version =
          fmt::format("oneDNN {}.{}.{} {}", v->major, v->minor, v->patch, v->hash ? v->hash : "");
    if (!get_version || get_version()->major != DNNL_VERSION_MAJOR || get_version()->minor < 6)
      return fmt::format("{} has another interface than 2.6", kFile);
#define NIMBLE_DNNL_LOOK_UP(name)                                     \
  name = reinterpret_cast<decltype(&::name)>(::dlsym(handle, #name)); \
  if (!name) return fmt::format("{} lacks {}", kFile, #name);
    NIMBLE_DNNL_FUNCTIONS(NIMBLE_DNNL_LOOK_UP)
#undef NIMBLE_DNNL_LOOK_UP
    // Missing where the library was built without OpenMP; then it starts no threads either.
    omp_set_num_threads = reinterpret_cast<void (*)(int)>(::dlsym(handle, "omp_set_num_threads"));
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
      return fmt::format("{} finds no CPU engine", kFile);
    return {};
  }
};

const Library& library() {
  static const Library* const opened = new Library;
  return *opened;
}

void require(dnnl_status_t status, const char* what) {
  if (status != dnnl_success)
    throw Error(Status::kInternal, "onednn.matmul",
                fmt::format("{} failed with oneDNN status {}", what, static_cast<int>(status)),
                "compile the model without vendor kernels");
}

// y[m, n] = x[m, k] · w[k, n] (+ bias[n]), all dense row-major f32.
class MatmulPrimitive {
 public:
  MatmulPrimitive(int64_t m, int64_t k, int64_t n, bool bias) {
    const Library& lib = library();
    dnnl_memory_desc_t descs[4];
    auto describe = [&](int i, int64_t rows, int64_t columns) {
      const dnnl_dims_t dims = {rows, columns};
      require(lib.dnnl_memory_desc_init_by_tag(&descs[i], 2, dims, dnnl_f32, dnnl_ab),
              "dnnl_memory_desc_init_by_tag");
    };
    describe(kX, m, k);
    describe(kW, k, n);
    describe(kBias, 1, n);
    describe(kY, m, n);
    dnnl_matmul_desc_t desc;
    require(lib.dnnl_matmul_desc_init(&desc, &descs[kX], &descs[kW], bias ? &descs[kBias] : nullptr,
                                      &descs[kY]),
            "dnnl_matmul_desc_init");
    dnnl_primitive_desc_t primitive_desc = nullptr;
    require(lib.dnnl_primitive_desc_create(&primitive_desc, &desc, nullptr, lib.engine, nullptr),
            "dnnl_primitive_desc_create");
    const dnnl_status_t made = lib.dnnl_primitive_create(&primitive_, primitive_desc);
    lib.dnnl_primitive_desc_destroy(primitive_desc);
    require(made, "dnnl_primitive_create");
    constexpr int kArguments[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    for (int i : {kX, kW, kBias, kY}) {
      if (i == kBias && !bias) continue;
      dnnl_memory_t memory = nullptr;
      require(lib.dnnl_memory_create(&memory, &descs[i], lib.engine, DNNL_MEMORY_NONE),
              "dnnl_memory_create");
      memories_[i] = memory;
      arguments_[count_++] = {kArguments[i], memory};
    }
  }
  ~MatmulPrimitive() {
    for (dnnl_memory_t m : memories_)
      if (m) library().dnnl_memory_destroy(m);
    if (primitive_) library().dnnl_primitive_destroy(primitive_);
  }
  MatmulPrimitive(const MatmulPrimitive&) = delete;

  void run(dnnl_stream_t stream, const float* x, const float* w, const float* bias, float* y) {
    const void* data[4] = {x, w, bias, y};
    for (int i : {kX, kW, kBias, kY})
      if (memories_[i])
        require(library().dnnl_memory_set_data_handle(memories_[i], const_cast<void*>(data[i])),
                "dnnl_memory_set_data_handle");
    require(library().dnnl_primitive_execute(primitive_, stream, count_, arguments_),
            "dnnl_primitive_execute");
    require(library().dnnl_stream_wait(stream), "dnnl_stream_wait");
  }

 private:
  enum { kX = 0, kW = 1, kBias = 2, kY = 3 };
  dnnl_primitive_t primitive_ = nullptr;
  dnnl_memory_t memories_[4] = {};
  dnnl_exec_arg_t arguments_[4];
  int count_ = 0;
};

// A thread's primitives, the least recently used one dropped first.
class PrimitiveCache {
 public:
  PrimitiveCache() {
    require(library().dnnl_stream_create(&stream_, library().engine, dnnl_stream_default_flags),
            "dnnl_stream_create");
  }
  ~PrimitiveCache() { library().dnnl_stream_destroy(stream_); }
  PrimitiveCache(const PrimitiveCache&) = delete;
  PrimitiveCache& operator=(const PrimitiveCache&) = delete;
  MatmulPrimitive& get(int64_t m, int64_t k, int64_t n, bool bias) {
    const Key key{m, k, n, bias};
    const auto found = index_.find(key);
    if (found != index_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return found->second->second;
    }
    if (order_.size() == kPrimitivesPerThread) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    order_.emplace_front(std::piecewise_construct, std::forward_as_tuple(key),
                         std::forward_as_tuple(m, k, n, bias));
    index_[key] = order_.begin();
    return order_.front().second;
  }
  dnnl_stream_t stream() const { return stream_; }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, bool>;
  using Order = std::list<std::pair<Key, MatmulPrimitive>>;
  dnnl_stream_t stream_ = nullptr;
  Order order_;
  std::map<Key, Order::iterator> index_;
};

std::string check_matmul(const exec::KernelContract& contract) {
  using exec::Access;
  std::vector<const exec::KernelArgument*> t;
  for (const auto& a : contract.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor) t.push_back(&a);
  if (t.size() != 3 && t.size() != 4) return "it takes x, w, perhaps a bias, and y";
  const auto &x = *t.front(), &w = *t[1], &y = *t.back();
  for (size_t i = 0; i < t.size(); ++i) {
    if (t[i]->dtype != DType::kF32) return "all tensors must be f32";
    if (t[i]->access != (i + 1 == t.size() ? Access::kOut : Access::kIn))
      return "x, w and bias are read, y is written";
  }
  if (x.dims.size() < 2 || y.dims.size() != x.dims.size() || w.dims.size() != 2)
    return "x and y have as many dims, two or more; w has two";
  for (size_t i = 0; i + 1 < x.dims.size(); ++i)
    if (x.dims[i] != y.dims[i]) return "x and y differ in their rows";
  if (x.dims.back() != w.dims[0]) return "the last dim of x is not the first of w";
  if (y.dims.back() != w.dims[1]) return "the last dim of y is not that of w";
  if (t.size() == 4 && (t[2]->dims.size() != 1 || t[2]->dims[0] != w.dims[1]))
    return "the bias is not as long as the rows of y";
  return {};
}

void run_matmul(const LibraryCall& call, int32_t thread, int32_t threads, nimble_barrier*) {
  const bool bias = call.tensors.size() == 4;
  const LibraryTensor& x = call.tensors.front();
  const LibraryTensor& w = call.tensors[1];
  const int64_t k = w.shape[0], n = w.shape[1];
  std::optional<int64_t> elements = try_element_count(call.tensors.back().shape);
  if (elements.value_or(0) == 0) return;
  const int64_t m = *elements / n;
  const int64_t begin = m * thread / threads, rows = m * (thread + 1) / threads - begin;
  if (rows == 0) return;
  const float* b = bias ? static_cast<const float*>(call.tensors[2].data) : nullptr;
  float* y = static_cast<float*>(call.tensors.back().data) + begin * n;
  if (k == 0) {  // oneDNN leaves y alone then; an empty sum is zero
    for (int64_t i = 0; i < rows * n; ++i) y[i] = b ? b[i % n] : 0.0f;
    return;
  }
  thread_local PrimitiveCache cache;
  // A setting of the calling thread only, and set each time because the program may change it.
  if (library().omp_set_num_threads) library().omp_set_num_threads(1);
  cache.get(rows, k, n, bias)
      .run(cache.stream(), static_cast<const float*>(x.data) + begin * k,
           static_cast<const float*>(w.data), b, y);
}

}  // namespace

std::vector<LibraryKernel> onednn_kernels() {
  return {{"onednn.matmul", exec::ImplementationKind::kVendor,
           "x f32 (m…, k), w f32 (k, n) [, bias f32 (n)] -> y f32 (m…, n)",
           "Matrix product with optional bias by oneDNN, rows split over the region's threads.",
           check_matmul, [] { return library().problem; }, run_matmul, std::nullopt,
           [] { return library().version; }}};
}

}  // namespace nimble::rt
