#include "tuner/measure/case_arguments.h"

#include <cstring>

#include "vm/base/device_number.h"

namespace nimble::tuner {
namespace {

using exec::Access;
using exec::KernelArgument;

// Copies of an argument, at most. Beyond the caches small ones count, too: 64 copies of a weight of
// 2 MiB are few, and each copy has arguments bound to it.
constexpr size_t kMaxCopies = 64, kMaxFarCopies = 4096;
// A rotation over more than this leaves the caches.
constexpr int64_t kFarBytes = int64_t{32} << 20;

size_t max_copies(const Policy& p) {
  return p.cold || p.rotate_bytes > kFarBytes ? kMaxFarCopies : kMaxCopies;
}

}  // namespace

void fill_on(rt::Device& device, const Fill& fill, DType dtype, uint64_t seed, uint32_t index,
             uint8_t* data, uint64_t bytes) {
  if (device.host_accessible()) return fill_tensor(fill, dtype, seed, index, {data, bytes});
  std::vector<uint8_t> host(bytes);
  fill_tensor(fill, dtype, seed, index, host);
  if (bytes > 0) device.copy_in(data, host.data(), bytes);
}

Arguments::Arguments(const exec::KernelContract& contract, const Case& c,
                     std::shared_ptr<Weights>& weights, const std::shared_ptr<Blocks>& blocks,
                     const std::function<void()>& beat)
    : device_(blocks->device()),
      heap_(std::make_shared<rt::StoragePool>(rt::device(kCpuDevice))),
      arena_(blocks) {
  require(c.symbols.size() == contract.symbols.size(), "symbols");
  int64_t constant_bytes = 0, all_bytes = 0;
  size_t next_input = 0;
  for (const KernelArgument& a : contract.arguments) {
    Shape s;
    for (const exec::DimProgram& d : a.dims) {
      s.extents.push_back(d.evaluate1(c.symbols));
      if (s.extents.back() < 0) bad(fmt::format("an extent of {}", s.extents.back()));
      s.bytes *= static_cast<uint64_t>(s.extents.back());
    }
    s.bytes *= size_of(a.dtype);
    if (a.kind == KernelArgument::Kind::kTensor) all_bytes += static_cast<int64_t>(s.bytes);
    if (a.kind == KernelArgument::Kind::kTensor && a.access != Access::kOut) {
      require(next_input < c.inputs.size(), "inputs");
      s.fill = &c.inputs[next_input++];
      if (s.fill->constant) constant_bytes += static_cast<int64_t>(s.bytes);
    }
    shapes_.push_back(std::move(s));
  }
  require(next_input == c.inputs.size(), "inputs");
  bool serve = weights != nullptr;
  for (uint32_t i = 0; i < shapes_.size() && serve; ++i)
    if (is_weight(contract.arguments[i], shapes_[i]))
      serve = weights->serves(i, key_of(contract.arguments[i], shapes_[i]));
  if (!serve) {
    weights.reset();  // its blocks serve the next
    weights = std::make_shared<Weights>(blocks);
  }
  weights_ = weights;
  size_t variants = 1;
  const int64_t rotating = c.policy.cold ? all_bytes : constant_bytes;
  if (rotating > 0 && c.policy.rotate_bytes > 0)
    variants = static_cast<size_t>(std::clamp<int64_t>(c.policy.rotate_bytes / rotating, 1,
                                                       static_cast<int64_t>(max_copies(c.policy))));
  const bool steps = std::count(c.stepping.begin(), c.stepping.end(), 1) > 0;
  // A kernel that counts its steps runs on the same weights at each of them.
  copies_ = steps ? 1 : variants;
  if (steps) variants = 2;
  values_.resize(variants);
  for (size_t v = 0; v < variants; ++v) {
    beat();
    build(contract, c, v);
  }
}

void Arguments::build(const exec::KernelContract& contract, const Case& c, size_t variant) {
  uint32_t index = 0;
  size_t scalar = 0;
  for (size_t i = 0; i < contract.arguments.size(); ++i, ++index) {
    const KernelArgument& a = contract.arguments[i];
    if (a.kind == KernelArgument::Kind::kScalar) {
      require(scalar < c.stepping.size(), "scalars");
      const int64_t step = c.stepping[scalar++] ? static_cast<int64_t>(variant) : 0;
      values_[variant].push_back(rt::Value::of(c.symbols[a.symbol] + step));
      continue;
    }
    Shape& s = shapes_[i];
    const bool own = variant < copies_ && (c.policy.cold || (s.fill && s.fill->constant));
    if ((own || !s.shared) && is_weight(a, s)) {
      s.shared = view(weights_->copy(index, key_of(a, s), variant), s.bytes);
    } else if (own || !s.shared) {
      if (a.access == Access::kIn) {
        s.shared = view(arena_.take(s.bytes), s.bytes);
      } else {
        s.shared = heap_.new_storage(std::max<uint64_t>(s.bytes, 1), device_.number());
        storages_.push_back(s.shared);
        if (variant == 0) {  // which checks run on
          outputs_.emplace_back(s.shared->data, s.bytes);
          output_types_.push_back(a.dtype);
        }
      }
      if (s.fill && !s.filled)
        fill_on(device_, *s.fill, a.dtype, c.seed, index, s.shared->data, s.bytes);
      else if (s.fill && s.bytes > 0)  // a copy of it
        device_.copy_within(s.shared->data, s.filled->data, s.bytes);
      if (!s.filled) s.filled = s.shared;
    }
    values_[variant].push_back(rt::Value::of(heap_.new_tensor(s.shared, 0, a.dtype, s.extents)));
  }
  require(scalar == c.stepping.size(), "scalars");
}

std::span<const uint8_t> Arguments::output(size_t i) {
  const std::span<uint8_t> there = outputs_[i];
  if (device_.host_accessible()) return there;
  read_.resize(there.size());
  if (!there.empty()) device_.copy_out(read_.data(), there.data(), there.size());
  return read_;
}

void Arguments::poison() const {
  for (const std::span<uint8_t>& out : outputs_) {
    if (out.empty()) continue;
    if (device_.host_accessible()) {
      std::memset(out.data(), 0xff, out.size());
      continue;
    }
    const std::vector<uint8_t> bytes(out.size(), 0xff);
    device_.copy_in(out.data(), bytes.data(), bytes.size());
  }
}

}  // namespace nimble::tuner
