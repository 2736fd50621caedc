// oneDNN's products and convolutions inside our regions.
//
// The library brings its own OpenMP threads, which would fight with ours. So each thread of the
// region calls a primitive of its own share with OpenMP set to one thread: rows of a product; whole
// images of a convolution, or of a single one rows of pixels with the padding that is theirs.
// Shares of one size have one primitive.
//
// Sizes come from the tensors at which a call is made ready, and are compared here with what the
// configuration says; a call's must be the very same, so that the library reads and writes nothing
// but whole tensors. At load they are what a table's entry says: sizes that no tensor has are
// refused before the library sees them.
#include "vm/library/onednn.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <unordered_map>

#include "vm/base/checked.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"
#include "vm/library/onednn_binding.h"
#include "vm/library/vendor_kernels.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::KernelArgument;
using exec::VendorCall;
using exec::VendorOp;
using onednn::Desc;
using onednn::Problem;
using Ints = std::vector<int64_t>;

constexpr int32_t kMostShares = 1024;
// As many steps as a configuration has at most.
constexpr size_t kMostOperands = 32;
// What a file may make up: the sizes of its tables' entries. Of larger ones nobody has tensors, or
// the library, which counts much in 32 bits, might lose count.
constexpr int64_t kMostBytes = int64_t{1} << 40;       // of a tensor
constexpr int64_t kMostImageBytes = int64_t{1} << 30;  // of an image, or a convolution's weights
constexpr int64_t kLargestWindow = 65535;
constexpr uint64_t kMostScratchpad = uint64_t{1} << 30;  // of a share

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(Status::kUnsupported, "oneDNN", problem);
}

Ints dense_strides(const Ints& dims) {
  Ints out(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) out[i - 1] = out[i] * dims[i];
  return out;
}

// The product of extents that are not empty. Whoever has them has a tensor of that many elements.
int64_t product(std::span<const int64_t> dims) {
  const std::optional<int64_t> n = try_element_count(dims);
  if (!n) refuse("it has too many elements");
  return *n;
}

void require_countable(std::span<const LibraryTensor> tensors) {
  for (const LibraryTensor& t : tensors) {
    const auto bytes = try_byte_size(t.dtype, t.shape);
    if (!bytes || *bytes > kMostBytes ||
        std::ranges::any_of(t.shape, [](int64_t extent) { return extent > INT32_MAX; }))
      refuse("a tensor is larger than the library counts");
  }
}

// ---- what a call is cut into

// A tensor of a share: its description and where it begins, in elements.
struct Part {
  Desc desc;
  int64_t first = 0;
};

struct ShareOfWork {
  Problem problem;
  int64_t x = 0, y = 0;           // elements before the share's own
  std::vector<int64_t> operands;  // of bias and steps, as VendorCall::then has them
};

// The sizes of a call, checked against what it is to compute, and its shares.
class Cutter {
 public:
  Cutter(const VendorCall& call, std::span<const LibraryTensor> tensors)
      : call_(sized(call, tensors[call.w].shape)),
        tensors_(tensors),
        x_(shape(call.x)),
        y_(shape(call.y)) {
    require_countable(tensors);
    const std::optional<int64_t> weights = call_.weight_elements();
    if (!weights || product(shape(call.w)) != *weights) refuse("the weights have another size");
    if (product(x_) == 0 || product(y_) == 0) refuse("there is nothing to compute");
    if (call.image)
      check_images();
    else
      check_rows();
  }

  std::vector<ShareOfWork> cut(int32_t shares) const {
    std::vector<ShareOfWork> out;
    const int64_t whole = pieces(), count = std::min<int64_t>(shares, whole);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = whole * i / count, end = whole * (i + 1) / count;
      out.push_back(call_.image ? images(begin, end) : rows(begin, end));
    }
    return out;
  }

 private:
  std::span<const int64_t> shape(uint32_t tensor) const { return tensors_[tensor].shape; }
  DType type(uint32_t tensor) const { return tensors_[tensor].dtype; }

  // What is divided among the threads.
  int64_t pieces() const {
    if (!call_.image) return product(y_.first(y_.size() - 1));
    return splits_pixels() ? y_[1] : y_[0];
  }
  // One image NHWC; rows of pixels of an image NCHW do not lie together.
  bool splits_pixels() const { return y_[0] == 1 && !call_.image->channels_first; }

  void check_rows() const {
    if (x_.size() < 2 || y_.size() != x_.size() || x_.back() != call_.k || y_.back() != call_.n ||
        !std::equal(x_.begin(), x_.end() - 1, y_.begin()))
      refuse("it is no product of rows");
  }

  void check_images() const {
    const VendorCall::Image& image = *call_.image;
    if (x_.size() != 4 || y_.size() != 4) refuse("images have four axes");
    const int64_t channels = image.channels_first ? x_[1] : x_[3];
    if (x_[0] != y_[0] || y_[3] != call_.n ||
        try_mul(channels, image.kernel[0] * image.kernel[1]) != try_mul(call_.k, image.groups))
      refuse("images and weights differ in their channels");
    if (bytes_of(call_.x, 1) > kMostImageBytes || bytes_of(call_.y, 1) > kMostImageBytes ||
        bytes_of(call_.w, 0) > kMostImageBytes)
      refuse("an image or the weights are larger than the library counts");
    for (size_t axis = 0; axis < 2; ++axis) {
      const auto window = try_mul(image.kernel[axis] - 1, image.dilations[axis]);
      const int64_t padded = height_of(axis) + image.pads[axis] + image.pads[axis + 2];
      if (!window || *window >= padded ||
          (padded - *window - 1) / image.strides[axis] + 1 != y_[1 + axis])
        refuse("the result has other extents than the windows");
      if (*window > kLargestWindow || image.strides[axis] > kLargestWindow ||
          image.dilations[axis] > kLargestWindow)
        refuse("its windows are larger than the library counts");
      if (image.pads[axis] > *window || image.pads[axis + 2] > *window)
        refuse("a window would lie in the padding alone");
    }
  }
  // Of a tensor without its first axes.
  int64_t bytes_of(uint32_t tensor, size_t axes) const {
    return product(shape(tensor).subspan(axes)) * static_cast<int64_t>(size_of(type(tensor)));
  }
  int64_t height_of(size_t axis) const { return x_[(call_.image->channels_first ? 2 : 1) + axis]; }

  // The second operand of a step seen as a matrix beside y's (rows, n): of one row or as many, of
  // one column or as many.
  struct Operand {
    bool rows = false, columns = false;  // has as many, not one
  };
  Operand operand(uint32_t tensor) const {
    const auto dims = shape(tensor);
    if (dims.size() > y_.size()) refuse("an operand has more axes than the result");
    const size_t missing = y_.size() - dims.size();
    bool all = true, none = true;  // of the axes but the last
    for (size_t axis = 0; axis + 1 < y_.size(); ++axis) {
      const int64_t extent = axis < missing ? 1 : dims[axis - missing];
      if (extent != 1 && extent != y_[axis]) refuse("an operand does not broadcast to the result");
      all &= extent == y_[axis];
      none &= extent == 1;
    }
    if (!all && !none) refuse("an operand broadcasts along some rows");
    const int64_t last = dims.empty() ? 1 : dims.back();
    if (last != 1 && last != y_.back()) refuse("an operand does not broadcast to the result");
    return {all && !none, last == y_.back()};
  }

  // `count` pieces of y from `begin` on: `dims` as the library counts them, from what (rows,
  // columns) an operand has.
  void add_steps(ShareOfWork* share, int64_t first_row, const Ints& full_dims,
                 const Ints& full_strides, const Ints& one_row_dims) const {
    const size_t columns_axis = call_.image ? 1 : full_dims.size() - 1;
    for (size_t i = 0; i < call_.then.size(); ++i) {
      const exec::VendorStep& s = call_.then[i];
      if (!exec::has_operand(s.op)) {
        share->problem.steps.push_back({s.op, s.alpha, s.beta, {}});
        continue;
      }
      const Operand o = operand(s.tensor);
      Desc desc{type(s.tensor), o.rows ? full_dims : one_row_dims, {}};
      if (!o.columns) desc.dims[columns_axis] = 1;
      if (o.rows && o.columns)
        desc.strides = full_strides;
      else if (o.rows && call_.image)
        desc.strides = {desc.dims[2] * desc.dims[3], 1, desc.dims[3], 1};
      else
        desc.strides = dense_strides(desc.dims);
      share->operands.push_back(o.rows ? first_row * (o.columns ? y_.back() : 1) : 0);
      // What is added to all rows first is what the library calls the bias.
      if (i == 0 && s.op == VendorOp::kAdd && !o.rows && o.columns && desc.dtype == DType::kF32) {
        if (call_.image) desc = {desc.dtype, {call_.n}, {1}};
        share->problem.bias = std::move(desc);
        continue;
      }
      share->problem.steps.push_back({s.op, s.alpha, s.beta, std::move(desc)});
    }
  }

  ShareOfWork rows(int64_t begin, int64_t end) const {
    const int64_t m = end - begin, k = call_.k, n = call_.n;
    ShareOfWork out;
    out.problem.x = {type(call_.x), {m, k}, {k, 1}};
    out.problem.w = {type(call_.w), {k, n}, {n, 1}};
    out.problem.y = {type(call_.y), {m, n}, {n, 1}};
    out.problem.packs = call_.panel.has_value();
    out.x = begin * k;
    out.y = begin * n;
    add_steps(&out, begin, {m, n}, {n, 1}, {1, n});
    return out;
  }

  ShareOfWork images(int64_t begin, int64_t end) const {
    const VendorCall::Image& image = *call_.image;
    const bool pixels = splits_pixels();
    const int64_t count = pixels ? 1 : end - begin, n = call_.n;
    const int64_t channels = image.channels_first ? x_[1] : x_[3], width = height_of(1);
    const int64_t rows_out = pixels ? end - begin : y_[1], columns_out = y_[2];
    // The rows of the image under the windows, and the padding that is left of them.
    int64_t top = 0, bottom = height_of(0), before = image.pads[0], after = image.pads[2];
    if (pixels) {
      const int64_t reach = (image.kernel[0] - 1) * image.dilations[0];
      const int64_t from = begin * image.strides[0] - image.pads[0];
      const int64_t to = (end - 1) * image.strides[0] - image.pads[0] + reach + 1;
      top = std::clamp<int64_t>(from, 0, height_of(0));
      bottom = std::clamp<int64_t>(to, top, height_of(0));
      before = std::max<int64_t>(0, -from);
      after = std::max<int64_t>(0, to - height_of(0));
      if (top == bottom) refuse("a thread's windows would lie in the padding alone");
    }
    const int64_t height = bottom - top;
    ShareOfWork out;
    Problem& p = out.problem;
    p.x = {type(call_.x), {count, channels, height, width}, {}};
    p.x.strides = image.channels_first
                      ? dense_strides(p.x.dims)
                      : Ints{height * width * channels, 1, width * channels, channels};
    p.y = {type(call_.y), {count, n, rows_out, columns_out}, {}};
    p.y.strides = {rows_out * columns_out * n, 1, columns_out * n, n};
    // The rows of the weights' matrix are (height, width, channel) or (channel, height, width).
    const int64_t kh = image.kernel[0], kw = image.kernel[1], depth = channels / image.groups;
    const Ints taps =
        image.channels_first ? Ints{kh * kw * n, kw * n, n} : Ints{n, kw * depth * n, depth * n};
    p.w = {type(call_.w), {n / image.groups, depth, kh, kw}, {1, taps[0], taps[1], taps[2]}};
    if (image.groups > 1) {
      p.w.dims.insert(p.w.dims.begin(), image.groups);
      p.w.strides.insert(p.w.strides.begin(), n / image.groups);
    }
    p.packs = true;
    p.windows = Problem::Windows{{image.strides[0], image.strides[1]},
                                 {image.dilations[0] - 1, image.dilations[1] - 1},
                                 {before, image.pads[1]},
                                 {after, image.pads[3]}};
    const int64_t first_row = pixels ? begin * columns_out : begin * y_[1] * columns_out;
    out.x = pixels ? top * width * channels : begin * channels * height * width;
    out.y = first_row * n;
    add_steps(&out, first_row, p.y.dims, p.y.strides, {1, n, 1, 1});
    return out;
  }

  // With k and n as the weights' tensor has them where they are left to it.
  static VendorCall sized(VendorCall call, std::span<const int64_t> weights) {
    if (call.k > 0 && call.n > 0) return call;
    if (weights.size() != 2) refuse("the weights are no matrix");
    if (call.k == 0) call.k = weights[0];
    if (call.n == 0) call.n = weights[1];
    return call;
  }

  const VendorCall call_;
  std::span<const LibraryTensor> tensors_;
  std::span<const int64_t> x_, y_;
};

// ---- what is ready

struct Copy {
  const void* from = nullptr;
  const onednn::Primitive* like = nullptr;
  std::unique_ptr<onednn::Weights> weights;
};

class Ready final : public ReadyCall {
 public:
  struct Share {
    ShareOfWork work;
    const onednn::Primitive* primitive = nullptr;
    const onednn::Weights* weights = nullptr;
    // For one call at a time.
    std::unique_ptr<onednn::Execution> execution;
    std::unique_ptr<std::atomic_flag> busy;
  };

  Ready(const onednn::Library& library, const VendorCall& call,
        std::span<const LibraryTensor> tensors, std::optional<size_t> weights)
      : library_(library), call_(call), weights_(weights) {
    for (const LibraryTensor& t : tensors) shapes_.emplace_back(t.shape.begin(), t.shape.end());
    if (weights_) data_ = tensors[*weights_].data;
  }
  std::vector<Share> shares;

  bool serves(std::span<const LibraryTensor> tensors) const {
    if (tensors.size() != shapes_.size() || (weights_ && tensors[*weights_].data != data_))
      return false;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!std::ranges::equal(tensors[i].shape, shapes_[i])) return false;
    return true;
  }

  void run(const LibraryCall& call, int32_t thread, int32_t threads) const override {
    const onednn::OneThread one(library_);
    for (size_t i = static_cast<size_t>(thread); i < shares.size();
         i += static_cast<size_t>(threads)) {
      const Share& s = shares[i];
      if (!s.busy->test_and_set(std::memory_order_acquire)) {
        struct Release {
          std::atomic_flag& flag;
          ~Release() { flag.clear(std::memory_order_release); }
        } const release{*s.busy};
        run_share(call, s, *s.execution);
      } else {  // another session is there
        run_share(call, s, *s.primitive->execution(s.weights));
      }
    }
  }

 private:
  void run_share(const LibraryCall& call, const Share& s, onednn::Execution& execution) const {
    const auto at = [&](uint32_t tensor, int64_t elements) -> uint8_t* {
      const LibraryTensor& t = call.tensors[tensor];
      return static_cast<uint8_t*>(t.data) + elements * static_cast<int64_t>(size_of(t.dtype));
    };
    const void* bias = nullptr;
    std::array<const void*, kMostOperands> operands;
    size_t count = 0, number = 0;
    for (const exec::VendorStep& step : call_.then) {
      if (!exec::has_operand(step.op)) continue;
      const void* data = at(step.tensor, s.work.operands[number]);
      if (number++ == 0 && s.work.problem.bias)
        bias = data;
      else
        operands[count++] = data;
    }
    execution.run(at(call_.x, s.work.x), at(call_.w, 0), bias, {operands.data(), count},
                  at(call_.y, s.work.y));
  }

  const onednn::Library& library_;
  const VendorCall& call_;
  const std::optional<size_t> weights_;
  std::vector<Ints> shapes_;
  const void* data_ = nullptr;
};

size_t hash_of(std::span<const LibraryTensor> tensors, std::optional<size_t> weights) {
  size_t h = weights ? reinterpret_cast<size_t>(tensors[*weights].data) >> 6 : 0;
  for (const LibraryTensor& t : tensors)
    for (const int64_t extent : t.shape) h = h * 0x9e3779b97f4a7c15 + static_cast<size_t>(extent);
  return h;
}

class OneDnnRoutine final : public VendorRoutine {
 public:
  OneDnnRoutine(const onednn::Library& library, VendorCall call)
      : library_(library), call_(std::move(call)) {}

  std::optional<size_t> weights() const override {
    if (!call_.panel && !call_.image) return std::nullopt;
    return call_.w;
  }

  uint64_t make_ready(std::span<const LibraryTensor> tensors, int32_t shares) override {
    if (find(tensors)) return 0;
    auto ready = std::make_unique<Ready>(library_, call_, tensors, weights());
    uint64_t bytes = 0;
    std::vector<ShareOfWork> cut = Cutter(call_, tensors).cut(std::clamp(shares, 1, kMostShares));
    for (ShareOfWork& work : cut) {
      Ready::Share s;
      s.primitive = &primitive(work.problem);
      if (s.primitive->scratchpad_bytes() > kMostScratchpad)
        refuse("the library wants too much memory to work in");
      s.work = std::move(work);
      if (s.work.problem.packs) {
        const Copy& copy = copied(tensors[call_.w], *s.primitive, &bytes);
        s.weights = copy.weights.get();
      }
      s.execution = s.primitive->execution(s.weights);
      s.busy = std::make_unique<std::atomic_flag>();
      bytes += s.primitive->scratchpad_bytes();
      ready->shares.push_back(std::move(s));
    }
    ready_.emplace(hash_of(tensors, weights()), std::move(ready));
    return bytes;
  }

  const ReadyCall* find(std::span<const LibraryTensor> tensors) const override {
    const auto [begin, end] = ready_.equal_range(hash_of(tensors, weights()));
    for (auto it = begin; it != end; ++it)
      if (it->second->serves(tensors)) return it->second.get();
    return nullptr;
  }

  void forget() override {
    ready_.clear();
    copies_.clear();
  }

 private:
  const onednn::Primitive& primitive(const Problem& problem) {
    for (const auto& [known, made] : primitives_)
      if (known == problem) return *made;
    primitives_.emplace_back(problem, library_.make(problem));
    return *primitives_.back().second;
  }

  // The weights as the primitive wants them; `bytes` grows by what is new.
  const Copy& copied(const LibraryTensor& w, const onednn::Primitive& like, uint64_t* bytes) {
    for (const Copy& c : copies_)
      if (c.from == w.data && like.shares_weights_with(*c.like)) return c;
    const onednn::OneThread one(library_);
    const auto* data = static_cast<const uint8_t*>(w.data);
    Copy made{w.data, &like, nullptr};
    if (call_.panel) {
      const std::vector<uint8_t> plain = exec::unpack_panels(call_, w.dtype, data);
      made.weights = like.pack(plain.data());
    } else {
      made.weights = like.pack(data);
    }
    *bytes += made.weights->bytes();
    copies_.push_back(std::move(made));
    return copies_.back();
  }

  const onednn::Library& library_;
  const VendorCall call_;
  std::vector<std::pair<Problem, std::unique_ptr<onednn::Primitive>>> primitives_;
  std::vector<Copy> copies_;
  std::unordered_multimap<size_t, std::unique_ptr<Ready>> ready_;
};

// ---- what a contract must be

std::string contract_fault(const onednn::Library& library, const VendorCall& call,
                           const exec::KernelContract& contract) {
  std::vector<const KernelArgument*> t;
  for (const KernelArgument& a : contract.arguments)
    if (a.kind == KernelArgument::Kind::kTensor) t.push_back(&a);
  std::vector<uint32_t> read = {call.x, call.w};
  for (const exec::VendorStep& s : call.then)
    if (exec::has_operand(s.op)) read.push_back(s.tensor);
  for (const uint32_t i : read)
    if (i >= t.size() || t[i]->access != Access::kIn) return "it reads what is no input";
  if (call.y >= t.size() || t[call.y]->access != Access::kOut) return "it writes what is no output";
  if (call.x == call.w) return "rows and weights are one tensor";
  if (call.transpose_x || call.transpose_w) return "it takes no transposed operands";
  if (call.tf32 || call.attention) return "it takes what a GPU's library computes";
  if (call.image && call.image->channels_first && call.image->groups != 1)
    return "images NCHW have one group";
  for (size_t i = 0; i < t.size(); ++i)
    if (t[i]->access != Access::kIn && i != call.y) return "it leaves a result unwritten";
  const DType x = t[call.x]->dtype, w = t[call.w]->dtype, y = t[call.y]->dtype;
  if (std::string fault = exec::fault_of_types(call, x, w, y); !fault.empty()) return fault;
  if (std::string fault = exec::fault_of_groups(call, contract); !fault.empty()) return fault;
  // Without such instructions pairs of products saturate at 16 bits.
  const CpuInfo& cpu = host_cpu_without_tiles();
  if (w == DType::kI8 &&
      ((!cpu.has("avx512_vnni") && !cpu.has("avx_vnni")) || !library.adds_bytes_exactly()))
    return "8-bit products are not exact on this CPU, as far as the library may use it";
  for (const exec::VendorStep& s : call.then)
    if (exec::has_operand(s.op) && t[s.tensor]->dtype != DType::kF32 &&
        t[s.tensor]->dtype != DType::kI32 && t[s.tensor]->dtype != DType::kBF16)
      return fmt::format("an operand is {}", name_of(t[s.tensor]->dtype));
  return {};
}

std::unique_ptr<VendorRoutine> prepare(const std::string& configuration,
                                       const exec::KernelContract& contract) {
  return make_onednn_routine(onednn::library(), configuration, contract);
}

}  // namespace

std::unique_ptr<VendorRoutine> make_onednn_routine(const onednn::Library& library,
                                                   const std::string& configuration,
                                                   const exec::KernelContract& contract) {
  VendorCall call = exec::vendor_call_of(configuration);
  if (!library.problem().empty()) refuse(library.problem());
  if (std::string fault = contract_fault(library, call, contract); !fault.empty()) refuse(fault);
  if (call.library != library.version())
    throw Error(
        Status::kIncompatible, "oneDNN",
        fmt::format("it was measured with {}, here is {}",
                    call.library.empty() ? "another" : printable(call.library), library.version()),
        "tune the model here");
  return std::make_unique<OneDnnRoutine>(library, std::move(call));
}

// What a routine is told says which of them it is.
void bind_onednn_matmul(LibraryKernel* kernel) {
  kernel->unavailable = [] { return onednn::library().problem(); };
  kernel->version = [] { return onednn::library().version(); };
  kernel->prepare = prepare;
}
void bind_onednn_conv2d(LibraryKernel* kernel) {
  bind_onednn_matmul(kernel);
}

}  // namespace nimble::rt
