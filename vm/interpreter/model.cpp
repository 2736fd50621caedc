#include "vm/interpreter/model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "vm/base/checked.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/json_writer.h"
#include "vm/executable/reader.h"
#include "vm/executable/verifier.h"
#include "vm/interpreter/exact_entries.h"
#include "vm/runtime/device.h"
#include "vm/runtime/thread.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::rt {
namespace {

// Each hot constant starts on a page of its own: panels of different matrices then never share a
// line, and streams through them start alike.
constexpr uint64_t kHotAlignment = 4096;
// Below this, copying in one thread takes about a millisecond.
constexpr uint64_t kParallelCopy = uint64_t{8} << 20;
// Sizes of a kernel for which its routines are made ready: each takes milliseconds or more, and a
// table that is the work of a tuner has a few.
constexpr size_t kMostReadySizes = 256;

}  // namespace

std::shared_ptr<const Model> Model::load(const std::string& path, const LoadOptions& options) {
  return load(exec::read(path, {options.trust, options.limits}), options, path);
}

std::shared_ptr<const Model> Model::load(exec::Executable executable, const LoadOptions& options,
                                         const std::string& place) {
  exec::verify(executable, place, options.limits.verification_steps);
  std::shared_ptr<Model> model(new Model);
  model->executable_ = std::move(executable);
  model->place_ = place;
  model->trusted_ = options.trust;
  if (!options.trust) model->keep_on_host();
  const exec::Executable& e = model->executable_;
  model->memory_left_ = options.limits.resolved(options.trust).memory;
  model->take(e.memory, "its contents");
  for (const exec::BytecodeFunction& f : e.functions) {
    model->functions_.push_back(decode_function(e, f));
    model->take(model->functions_.back().memory(), "its bytecode");
  }
  model->load_image(options);
  NativeCode code;  // stays empty without trust, and where portable forms stand in
  if (options.trust && !model->no_native_)
    code.host = [&](std::string_view symbol) -> nimble_kernel_fn {
      return reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(model->image_->find(symbol)));
    };
  if (!model->modules_.empty())
    code.device = [&](const std::string& symbol, uint32_t shared_bytes, size_t parameters,
                      size_t maps) {
      auto module = model->modules_.find(symbol);
      if (module == model->modules_.end()) module = model->modules_.find("");
      return module == model->modules_.end()
                 ? nullptr
                 : module->second->find(symbol, shared_bytes, parameters, maps);
    };
  for (const exec::Kernel& k : e.kernels) {
    const size_t notes = model->notes_.size();
    model->kernels_.push_back(prepare_kernel(k, code, place, &model->notes_));
    model->kernels_.back().texts = &e.texts;
    model->take(model->kernels_.back().memory(), "its kernels");
    for (size_t i = notes; i < model->notes_.size(); ++i)  // there, and in the description
      model->take(2 * model->notes_[i].size(), "notes on its kernels");
  }
  model->place_constants();
  model->make_routines_ready(options.threads > 0 ? options.threads : ThreadPool::default_threads());
  model->describe();
  return model;
}

Model::~Model() {
  for (const DeviceBlock& b : device_blocks_)
    if (b.data) b.device->free(b.data, b.bytes);
  if (hot_) unmap_huge(hot_, hot_bytes_);
}

void Model::take(uint64_t bytes, std::string_view what) {
  if (bytes > memory_left_)
    throw Error(
        Status::kExhausted, place_,
        fmt::format("{} would take {} bytes, {} are left for loading", what, bytes, memory_left_),
        "raise memory_limit in the load options (nimble: --load-memory) if it is an honest "
        "file");
  memory_left_ -= bytes;
}

const uint8_t* Model::place_on_device(const exec::Constant& c) {
  Device& to = device(c.device);
  if (c.bytes.empty()) return c.bytes.data();
  take(c.bytes.size(), "constants on a device");
  device_blocks_.push_back({&to, nullptr, c.bytes.size()});  // first, or memory might be lost
  void* memory = device_blocks_.back().data = to.allocate(c.bytes.size());
  if (!memory)
    throw Error(Status::kExhausted, place_,
                fmt::format("the {} has no memory for constant {} ({} bytes)", to.name(), c.name,
                            c.bytes.size()),
                "use a smaller model");
  to.copy_in(memory, c.bytes.data(), c.bytes.size());
  return static_cast<const uint8_t*>(memory);
}

void Model::place_constants() {
  uint64_t total = 0;
  std::vector<std::pair<size_t, uint64_t>> hot;  // constant, offset
  constants_.resize(executable_.constants.size());
  for (size_t i = 0; i < executable_.constants.size(); ++i) {
    const exec::Constant& c = executable_.constants[i];
    constants_[i] = c.bytes.data();
    if (c.device != kCpuDevice) {
      constants_[i] = place_on_device(c);
      continue;
    }
    if (!c.hot || c.bytes.empty()) continue;
    hot.emplace_back(i, total);
    total = (total + c.bytes.size() + kHotAlignment - 1) / kHotAlignment * kHotAlignment;
  }
  if (hot.empty()) return;
  // The system gives huge pages whole: the rest of the last one is worth it for much of one.
  if (total % kHugePage >= kHugePage / 8) total = (total / kHugePage + 1) * kHugePage;
  take(total, "constants that each run reads in full");
  hot_ = static_cast<uint8_t*>(map_huge(total));
  if (!hot_)
    throw Error(Status::kExhausted, place_,
                fmt::format("no memory for {} bytes of constants", total), "free some memory");
  hot_bytes_ = total;
  // First touch of huge pages zeroes them, which costs as much as the copy: share both.
  const int threads = total < kParallelCopy ? 1 : host_cpu_without_tiles().usable_threads();
  auto copy = [&](int thread) {
    const uint64_t begin = total * thread / threads, end = total * (thread + 1) / threads;
    for (const auto& [index, offset] : hot) {
      const std::span<const uint8_t> bytes = executable_.constants[index].bytes;
      const uint64_t from = std::max(begin, offset), to = std::min(end, offset + bytes.size());
      if (from < to) std::memcpy(hot_ + from, bytes.data() + (from - offset), to - from);
    }
  };
  struct Helper {
    decltype(copy)* share;
    int thread;
    Thread runs;
  };
  std::vector<Helper> helpers(static_cast<size_t>(threads - 1));
  for (int t = 1; t < threads; ++t) {
    Helper& helper = helpers[static_cast<size_t>(t - 1)];
    helper.share = &copy;
    helper.thread = t;
    helper.runs.start(
        [](void* context) {
          const Helper& self = *static_cast<Helper*>(context);
          (*self.share)(self.thread);
        },
        &helper);
  }
  copy(0);
  for (Helper& helper : helpers)
    if (!helper.runs.started()) copy(helper.thread);  // the system gives no more threads
  for (Helper& helper : helpers) helper.runs.join();
  for (const auto& [index, offset] : hot) constants_[index] = hot_ + offset;
}

void Model::make_routine_ready(size_t kernel, VendorRoutine& routine,
                               std::span<const int64_t> symbols, int32_t threads,
                               std::map<size_t, std::vector<uint32_t>>* constants) {
  const exec::Kernel& k = executable_.kernels[kernel];
  std::vector<std::vector<int64_t>> shapes;
  std::vector<LibraryTensor> tensors;
  std::optional<size_t> weights;  // among the arguments
  for (size_t i = 0; i < k.contract.arguments.size(); ++i) {
    const exec::KernelArgument& a = k.contract.arguments[i];
    if (a.kind != exec::KernelArgument::Kind::kTensor) continue;
    if (routine.weights() == shapes.size()) weights = i;
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (const exec::DimProgram& dim : a.dims) shape.push_back(dim.evaluate1(symbols));
    tensors.push_back({a.dtype, {}, nullptr});
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].shape = shapes[i];
  const auto ready = [&] {
    const uint64_t bytes = routine.make_ready(tensors, threads);
    take(bytes, "weights as vendors' routines want them");
    vendor_bytes_ += bytes;
    ++vendor_calls_;
  };
  if (!weights) return ready();
  const size_t w = *routine.weights();
  // The whole program is looked through for them: once, not for each size.
  const auto [passed, is_new] = constants->try_emplace(*weights);
  if (is_new)
    passed->second = constants_passed(executable_, static_cast<uint32_t>(kernel), *weights);
  for (const uint32_t index : passed->second) {
    const exec::Constant& c = executable_.constants[index];
    if (c.dtype != tensors[w].dtype || c.device != kCpuDevice || c.shape != shapes[w]) continue;
    tensors[w].data = const_cast<uint8_t*>(constants_[index]);
    ready();
  }
}

void Model::make_routines_ready(int32_t threads) {
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const PreparedKernel& kernel = kernels_[k];
    if (std::none_of(kernel.targets.begin(), kernel.targets.end(),
                     [](const KernelTarget& t) { return t.routine != nullptr; }))
      continue;
    std::string why;
    size_t sizes = 0, served = 0, refused = 0;
    std::map<size_t, std::vector<uint32_t>> constants;
    for (const ExactEntry& e : exact_entries(kernel.kernel->dispatch, kernel.symbols, threads)) {
      const KernelTarget& target = kernel.targets[e.implementation];
      if (!target.routine) continue;
      if (++sizes > kMostReadySizes) {
        ++refused;
        why = fmt::format("a kernel has at most {}", kMostReadySizes);
        continue;
      }
      const size_t before = vendor_calls_;
      try {
        make_routine_ready(k, *target.routine, e.symbols, threads, &constants);
      } catch (const Error& error) {
        if (error.status() == Status::kExhausted) throw;
        ++refused;
        why = error.problem();
      }
      served += vendor_calls_ - before;
    }
    // A table may send more to the routine than what it is ready for; all of that is served.
    if (refused > 0 || served == 0)
      notes_.push_back(
          fmt::format("kernel {}: a vendor's routine is ready for {} calls{}; others run ours",
                      kernel.kernel->name, served,
                      refused > 0 ? fmt::format(", and not for {} sizes ({})", refused, why) : ""));
  }
}

void Model::describe() {
  uint64_t bytes = 0;
  for (const exec::Constant& c : executable_.constants) bytes += c.bytes.size();
  const exec::Provenance& p = executable_.provenance;
  JsonWriter json;
  json.begin_object()
      .member("constant_bytes", bytes)
      .member("file", place_)
      .member("functions", executable_.functions.size());
  if (!modules_.empty()) json.member("gpu_target", gpu_target_);
  json.member("hot_bytes", hot_bytes_)
      .member("kernels", executable_.kernels.size())
      .member("native_bytes", image_ ? image_->mapped_bytes() : 0)
      .member("no_native", no_native_)
      .member("vendor_bytes", vendor_bytes_)
      .member("vendor_calls", vendor_calls_);
  json.key("notes").begin_array();
  for (const std::string& note : notes_) json.value(note);
  json.end_array().key("provenance").begin_object();
  json.member("compiler", p.compiler).member("database", p.database).member("model", p.model);
  json.key("options").begin_object();
  for (const auto& [name, value] : p.options) json.member(name, value);
  json.end_object()
      .member("toolchain", p.toolchain)
      .end_object()
      .member("target", target_)
      .end_object();
  info_ = json.text();
}

}  // namespace nimble::rt
