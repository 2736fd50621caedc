// Primitives of either version of oneDNN.
//
// A primitive is generated code for one problem. Making one takes milliseconds, so it happens where
// a model is loaded. A call takes an Execution: memory objects and a scratchpad of its own, so that
// threads may call one primitive at a time. Copied weights have one memory object that all share.
#include <dlfcn.h>

#include <new>
#include <utility>

#include "vm/base/error.h"
#include "vm/library/onednn_functions.h"
#include "vm/runtime/device.h"

namespace nimble::rt::onednn {
namespace c {

int data_type(DType t) {
  switch (t) {
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 2;
    case DType::kF32:
      return 3;
    case DType::kI32:
      return 4;
    case DType::kI8:
      return 5;
    case DType::kU8:
      return 6;
    default:
      return 0;
  }
}

}  // namespace c

std::string Functions::look_up(void* handle) {
#define NIMBLE_DNNL_LOOK_UP(result, name, parameters)                    \
  name = reinterpret_cast<result(*) parameters>(::dlsym(handle, #name)); \
  if (!name) return #name;
  NIMBLE_DNNL_FUNCTIONS(NIMBLE_DNNL_LOOK_UP)
#undef NIMBLE_DNNL_LOOK_UP
  return look_up_own(handle);
}

namespace {

// A library that cannot do something says so; with `status` what failed otherwise.
void require(c::Status got, const char* what, Status status = Status::kInternal) {
  if (got == c::kSuccess) return;
  throw Error(status, "oneDNN", fmt::format("{} failed with status {}", what, got),
              status == Status::kInternal
                  ? "compile without --db, or choose ours there: nimble dispatch override"
                  : "");
}

// A handle of the library's and what gives it back.
template <typename T>
class Owned {
 public:
  Owned() = default;
  Owned(T* handle, c::Status (*destroy)(T*)) : handle_(handle), destroy_(destroy) {}
  Owned(Owned&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)), destroy_(o.destroy_) {}
  Owned& operator=(Owned&& o) noexcept {
    std::swap(handle_, o.handle_);
    std::swap(destroy_, o.destroy_);
    return *this;
  }
  ~Owned() {
    if (handle_) destroy_(handle_);
  }
  T* get() const { return handle_; }

 private:
  T* handle_ = nullptr;
  c::Status (*destroy_)(T*) = nullptr;
};

// A memory descriptor that we made.
class OwnedDesc {
 public:
  OwnedDesc(const Functions& f, const Desc& desc, bool any = false) : f_(f) {
    const c::Status made = f.make_desc(&desc_, desc, any);
    if (made == c::kSuccess) return;
    if (f.major() == 2) f.drop_desc(desc_);
    require(made, "making a memory descriptor", Status::kUnsupported);
  }
  ~OwnedDesc() { f_.drop_desc(desc_); }
  OwnedDesc(const OwnedDesc&) = delete;
  OwnedDesc& operator=(const OwnedDesc&) = delete;
  const void* get() const { return desc_; }

 private:
  const Functions& f_;
  void* desc_ = nullptr;
};

// Bytes of whole cache lines, those of large blocks on huge pages as our own weights are.
class Block {
 public:
  explicit Block(size_t bytes) : bytes_(bytes), huge_(bytes >= kHugePage) {
    if (bytes == 0) return;
    data_ = huge_ ? map_huge(bytes) : ::operator new(bytes, kAlignment, std::nothrow);
    if (!data_)
      throw Error(Status::kExhausted, "oneDNN",
                  fmt::format("no memory for {} bytes of a vendor's routine", bytes),
                  "free some memory");
  }
  ~Block() {
    if (!data_) return;
    if (huge_)
      unmap_huge(data_, bytes_);
    else
      ::operator delete(data_, kAlignment);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  size_t bytes_;
  bool huge_;
  void* data_ = nullptr;
};

struct Handles {
  const Functions& f;
  c::Engine* engine;

  Owned<c::Memory> memory(const void* desc, void* data) const {
    c::Memory* made = nullptr;
    require(f.dnnl_memory_create(&made, desc, engine, data), "dnnl_memory_create");
    return {made, f.dnnl_memory_destroy};
  }
  Owned<c::Stream> stream() const {
    c::Stream* made = nullptr;
    require(f.dnnl_stream_create(&made, engine, c::kStreamDefault), "dnnl_stream_create");
    return {made, f.dnnl_stream_destroy};
  }
  Owned<c::Primitive> primitive(const c::PrimitiveDesc* desc) const {
    c::Primitive* made = nullptr;
    require(f.dnnl_primitive_create(&made, desc), "dnnl_primitive_create", Status::kUnsupported);
    return {made, f.dnnl_primitive_destroy};
  }
  void run(const c::Primitive* primitive, c::Stream* stream,
           const std::vector<c::Argument>& arguments) const {
    require(f.dnnl_primitive_execute(primitive, stream, static_cast<int>(arguments.size()),
                                     arguments.data()),
            "dnnl_primitive_execute");
    require(f.dnnl_stream_wait(stream), "dnnl_stream_wait");
  }
};

class PackedWeights final : public Weights {
 public:
  PackedWeights(const Handles& h, const void* desc)
      : block_(h.f.dnnl_memory_desc_get_size(desc)), memory_(h.memory(desc, block_.data())) {}
  uint64_t bytes() const override { return block_.bytes(); }
  c::Memory* memory() const { return memory_.get(); }

 private:
  Block block_;
  Owned<c::Memory> memory_;
};

class OnePrimitive;

class OneExecution final : public Execution {
 public:
  OneExecution(const OnePrimitive& primitive, const PackedWeights* packed);
  void run(const void* x, const void* w, const void* bias, std::span<const void* const> operands,
           void* y) override;

 private:
  void add(int argument, const void* desc) {
    memories_.push_back(handles_.memory(desc, nullptr));
    arguments_.push_back({argument, memories_.back().get()});
  }
  void point(size_t memory, const void* data) {
    require(
        handles_.f.dnnl_memory_set_data_handle(memories_[memory].get(), const_cast<void*>(data)),
        "dnnl_memory_set_data_handle");
  }

  const Handles& handles_;
  const OnePrimitive& primitive_;
  Block scratchpad_;
  Owned<c::Memory> scratchpad_memory_;
  Owned<c::Stream> stream_;
  bool packed_, bias_;
  std::vector<Owned<c::Memory>> memories_;  // x, y, w if not packed, bias if any, operands
  std::vector<c::Argument> arguments_;
};

class OnePrimitive final : public Primitive {
 public:
  OnePrimitive(const Handles& h, const Problem& p)
      : handles_(h),
        problem_(p),
        x_(h.f, p.x),
        w_(h.f, p.w),
        y_(h.f, p.y),
        bias_(p.bias ? std::make_unique<OwnedDesc>(h.f, *p.bias) : nullptr) {
    c::Attributes* made = nullptr;
    require(h.f.dnnl_primitive_attr_create(&made), "dnnl_primitive_attr_create");
    const Owned<c::Attributes> attributes(made, h.f.dnnl_primitive_attr_destroy);
    require(h.f.dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), c::kUserScratchpad),
            "dnnl_primitive_attr_set_scratchpad_mode");
    append_steps(attributes.get());
    const OwnedDesc w(h.f, p.w, p.packs);
    const void* bias = bias_ ? bias_->get() : nullptr;
    c::PrimitiveDesc* desc = nullptr;
    const c::Status status = p.windows
                                 ? h.f.make_convolution(&desc, h.engine, *p.windows, x_.get(),
                                                        w.get(), bias, y_.get(), attributes.get())
                                 : h.f.make_product(&desc, h.engine, x_.get(), w.get(), bias,
                                                    y_.get(), attributes.get());
    require(status, "making a primitive's descriptor", Status::kUnsupported);
    desc_ = {desc, h.f.dnnl_primitive_desc_destroy};
    primitive_ = h.primitive(desc);
  }

  bool shares_weights_with(const Primitive& other) const override {
    const auto& o = static_cast<const OnePrimitive&>(other);
    return handles_.f.dnnl_memory_desc_equal(packed_desc(), o.packed_desc()) != 0;
  }

  std::unique_ptr<Weights> pack(const void* w) const override {
    auto packed = std::make_unique<PackedWeights>(handles_, packed_desc());
    c::PrimitiveDesc* made = nullptr;
    require(handles_.f.dnnl_reorder_primitive_desc_create(&made, w_.get(), handles_.engine,
                                                          packed_desc(), handles_.engine, nullptr),
            "dnnl_reorder_primitive_desc_create", Status::kUnsupported);
    const Owned<c::PrimitiveDesc> desc(made, handles_.f.dnnl_primitive_desc_destroy);
    const Owned<c::Primitive> reorder = handles_.primitive(made);
    const Owned<c::Memory> from = handles_.memory(w_.get(), const_cast<void*>(w));
    const Owned<c::Stream> stream = handles_.stream();
    handles_.run(reorder.get(), stream.get(),
                 {{c::kArgX, from.get()}, {c::kArgY, packed->memory()}});
    return packed;
  }

  std::unique_ptr<Execution> execution(const Weights* packed) const override {
    NIMBLE_CHECK(problem_.packs == (packed != nullptr), "weights of another problem");
    return std::make_unique<OneExecution>(*this, static_cast<const PackedWeights*>(packed));
  }
  uint64_t scratchpad_bytes() const override {
    const void* desc = scratchpad_desc();
    return desc ? handles_.f.dnnl_memory_desc_get_size(desc) : 0;
  }

  const Handles& handles() const { return handles_; }
  const Problem& problem() const { return problem_; }
  const c::Primitive* get() const { return primitive_.get(); }
  const void* x() const { return x_.get(); }
  const void* w() const { return w_.get(); }
  const void* y() const { return y_.get(); }
  const void* bias() const { return bias_->get(); }
  const std::vector<std::unique_ptr<OwnedDesc>>& operands() const { return operands_; }
  const std::vector<int>& operand_arguments() const { return operand_arguments_; }
  const void* scratchpad_desc() const {
    return handles_.f.dnnl_primitive_desc_query_md(desc_.get(), c::kQueryScratchpad, 0);
  }

 private:
  const void* packed_desc() const {
    return handles_.f.dnnl_primitive_desc_query_md(desc_.get(), c::kQueryWeights, 0);
  }

  void append_steps(c::Attributes* to) {
    if (problem_.steps.empty()) return;
    const Functions& f = handles_.f;
    c::PostOps* made = nullptr;
    require(f.dnnl_post_ops_create(&made), "dnnl_post_ops_create");
    const Owned<c::PostOps> list(made, f.dnnl_post_ops_destroy);
    int at = 0;
    for (const Step& s : problem_.steps) {
      ++at;
      if (!exec::has_operand(s.op)) {
        // Swish is x * sigmoid(alpha x).
        const float alpha = s.op == exec::VendorOp::kSwish ? 1 : s.alpha;
        require(f.append_elementwise(made, f.algorithm(s.op), alpha, s.beta),
                "dnnl_post_ops_append_eltwise", Status::kUnsupported);
        continue;
      }
      const int algorithm = s.op == exec::VendorOp::kAdd   ? c::kAdd
                            : s.op == exec::VendorOp::kSub ? c::kSub
                                                           : c::kMul;
      operands_.push_back(std::make_unique<OwnedDesc>(f, s.operand));
      operand_arguments_.push_back(at * f.post_op_argument() | c::kArgOperand);
      require(f.dnnl_post_ops_append_binary(made, algorithm, operands_.back()->get()),
              "dnnl_post_ops_append_binary", Status::kUnsupported);
    }
    require(f.dnnl_primitive_attr_set_post_ops(to, made), "dnnl_primitive_attr_set_post_ops");
  }

  const Handles& handles_;
  const Problem problem_;
  const OwnedDesc x_, w_, y_;
  const std::unique_ptr<OwnedDesc> bias_;
  std::vector<std::unique_ptr<OwnedDesc>> operands_;
  std::vector<int> operand_arguments_;
  Owned<c::PrimitiveDesc> desc_;
  Owned<c::Primitive> primitive_;
};

OneExecution::OneExecution(const OnePrimitive& p, const PackedWeights* packed)
    : handles_(p.handles()),
      primitive_(p),
      scratchpad_(p.scratchpad_bytes()),
      stream_(handles_.stream()),
      packed_(packed != nullptr),
      bias_(p.problem().bias.has_value()) {
  add(c::kArgX, p.x());
  add(c::kArgY, p.y());
  if (packed)
    arguments_.push_back({c::kArgW, packed->memory()});
  else
    add(c::kArgW, p.w());
  if (bias_) add(c::kArgBias, p.bias());
  for (size_t i = 0; i < p.operands().size(); ++i)
    add(p.operand_arguments()[i], p.operands()[i]->get());
  if (scratchpad_.bytes() > 0) {
    scratchpad_memory_ = handles_.memory(p.scratchpad_desc(), scratchpad_.data());
    arguments_.push_back({c::kArgScratchpad, scratchpad_memory_.get()});
  }
}

void OneExecution::run(const void* x, const void* w, const void* bias,
                       std::span<const void* const> operands, void* y) {
  size_t at = 0;
  point(at++, x);
  point(at++, y);
  if (!packed_) point(at++, w);
  if (bias_) point(at++, bias);
  for (const void* operand : operands) point(at++, operand);
  handles_.run(primitive_.get(), stream_.get(), arguments_);
}

class OpenedLibrary final : public Library {
 public:
  OpenedLibrary(std::unique_ptr<Functions> functions, const std::string& file)
      : functions_(std::move(functions)), problem_(open(file)) {}

  ~OpenedLibrary() override {
    if (handles_) functions_->dnnl_engine_destroy(handles_->engine);
  }
  OpenedLibrary(const OpenedLibrary&) = delete;
  OpenedLibrary& operator=(const OpenedLibrary&) = delete;

  const std::string& problem() const override { return problem_; }
  const std::string& version() const override { return version_; }
  bool adds_bytes_exactly() const override {
    return problem_.empty() && (functions_->dnnl_get_effective_cpu_isa() & functions_->vnni()) != 0;
  }
  std::unique_ptr<Primitive> make(const Problem& problem) const override {
    NIMBLE_CHECK(problem_.empty(), "{}", problem_);
    const OneThread one(*this);
    return std::make_unique<OnePrimitive>(*handles_, problem);
  }
  int set_threads(int threads) const override {
    if (!omp_set_num_threads_) return 0;
    const int before = omp_get_max_threads_();
    if (before != threads) omp_set_num_threads_(threads);
    return before;
  }

 private:
  std::string open(const std::string& file) {
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its threads stay
    if (!handle) return fmt::format("{} is not installed ({})", file, functions_->package());
    const auto get_version =
        reinterpret_cast<const c::Version* (*)()>(::dlsym(handle, "dnnl_version"));
    const c::Version* v = get_version ? get_version() : nullptr;
    if (!v) return fmt::format("{} tells no version", file);
    version_ =
        fmt::format("oneDNN {}.{}.{} {}", v->major, v->minor, v->patch, v->hash ? v->hash : "");
    if (v->major != functions_->major() || v->minor < functions_->least_minor())
      return fmt::format("{} is oneDNN {}.{}, {}.{} or later of {} is wanted", file, v->major,
                         v->minor, functions_->major(), functions_->least_minor(),
                         functions_->major());
    // With any other the library would bring threads of its own that nobody can hold back.
    if (v->cpu_runtime != c::kSequential && v->cpu_runtime != c::kOpenMp)
      return fmt::format("{} was built for threads of neither OpenMP nor none (cpu_runtime {})",
                         file, v->cpu_runtime);
    if (v->cpu_runtime == c::kOpenMp) {
      // As the loader finds them for the library: of the program's OpenMP first, which may be
      // another than the library was linked with. One more thread than a primitive was made for
      // would leave its scratchpad.
      const auto find = [&](const char* name) {
        void* of_program = ::dlsym(RTLD_DEFAULT, name);
        return of_program ? of_program : ::dlsym(handle, name);
      };
      omp_set_num_threads_ = reinterpret_cast<void (*)(int)>(find("omp_set_num_threads"));
      omp_get_max_threads_ = reinterpret_cast<int (*)()>(find("omp_get_max_threads"));
      if (!omp_set_num_threads_ || !omp_get_max_threads_)
        return fmt::format("{} runs on an OpenMP that is not to be found", file);
    }
    if (const std::string missing = functions_->look_up(handle); !missing.empty())
      return fmt::format("{} lacks {}", file, missing);
    c::Engine* engine = nullptr;
    if (functions_->dnnl_engine_create(&engine, c::kCpu, 0) != c::kSuccess)
      return fmt::format("{} finds no CPU engine", file);
    handles_.emplace(Handles{*functions_, engine});
    return {};
  }

  std::unique_ptr<Functions> functions_;
  std::optional<Handles> handles_;
  void (*omp_set_num_threads_)(int) = nullptr;
  int (*omp_get_max_threads_)() = nullptr;
  std::string version_;
  const std::string problem_;
};

}  // namespace

std::unique_ptr<Library> open_library(int major, const std::string& file) {
  return std::make_unique<OpenedLibrary>(
      major == 3 ? functions_of_version3() : functions_of_version2(), file);
}

std::unique_ptr<Library> better_of(std::unique_ptr<Library> newer, std::unique_ptr<Library> older) {
  const bool takes_newer =
      newer->problem().empty() ||
      (!older->problem().empty() && older->version().empty() && !newer->version().empty());
  return takes_newer ? std::move(newer) : std::move(older);
}

const Library& library() {
  static const Library* const opened = [] {
    std::unique_ptr<Library> newer = open_library(3, "libdnnl.so.3");
    if (newer->problem().empty()) return newer.release();
    return better_of(std::move(newer), open_library(2, "libdnnl.so.2")).release();
  }();
  return *opened;
}

}  // namespace nimble::rt::onednn
