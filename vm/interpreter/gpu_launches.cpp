#include "vm/interpreter/gpu_launches.h"

#include <algorithm>
#include <array>

#include "vm/base/error.h"
#include "vm/executable/launch.h"
#include "vm/interpreter/gpu_arguments.h"
#include "vm/interpreter/kernel_faults.h"
#include "vm/interpreter/library_arguments.h"

namespace nimble::rt {
namespace {

// Dispatch sees one thread of the host's, whatever the session has: it has no part in the work.
constexpr int32_t kHostThreads = 1;
constexpr size_t kMostSuspects = 8;
constexpr size_t kMeetingBytes = sizeof(uint32_t);

struct Extent {
  std::array<uint32_t, 3> grid{};
  int64_t steps = 1;

  bool empty() const { return grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || steps == 0; }
  int64_t blocks() const { return int64_t{grid[0]} * grid[1] * grid[2]; }
};
Extent extent_of(const PreparedKernel& k, const exec::Launch& launch,
                 std::span<const int64_t> symbols) {
  try {
    return {exec::grid_of(launch, symbols), exec::steps_of(launch, symbols)};
  } catch (const Error& e) {
    throw Error(e.status(), "", fmt::format("{}: {}", kernel_text(k), e.problem()), e.remedy());
  }
}

// Whether a kernel of ours may serve what a library failed at. What else it says is a fault of its
// own or of the device's, and of a device that is lost nothing more is asked.
bool leaves_it_to_ours(const PreparedKernel& k, const CudaDevice& device, const Error& e) {
  return k.stand_in && device.usable() &&
         (e.status() == Status::kUnsupported || e.status() == Status::kExhausted);
}

// The library has not started it.
struct NotStarted {};

uint64_t word_of(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

}  // namespace

GpuLaunches::~GpuLaunches() {
  forget();
  if (meeting_) device_->free(meeting_, kMeetingBytes);
}

void GpuLaunches::prepare(CudaDevice& device) {
  std::vector<Since> since(kernels_.size());
  for (size_t i = 0; i < since.size(); ++i) since[i].symbols.resize(kernels_[i].symbols);
  launched_.reserve(kernels_.size());
  size_t parameters = 0, maps = 0;
  bool steps = false;
  for (const PreparedKernel& k : kernels_) {
    const auto count = [&](const KernelTarget& t) {
      if (!t.launch) return;
      parameters = std::max(parameters, launch_parameters(k, *t.launch));
      maps = std::max(maps, t.launch->maps.size());
      steps |= t.launch->steps.has_value();
    };
    for (const KernelTarget& t : k.targets) count(t);
    if (k.stand_in) count(*k.stand_in);
    // A library's call has its tensors and a workspace.
    if (k.launches) parameters = std::max(parameters, size_t{k.tensors} + 1);
  }
  words_ = std::make_unique<LaunchWords>(parameters, maps);
  maps_ = std::make_unique<TensorMaps>(device);
  stretches_ = std::make_unique<GpuStretches>(device);
  cells_ = std::make_unique<PinnedMemory>(device, kernels_.size() * sizeof(int32_t));
  since_ = std::move(since);
  device_ = &device;
  if (!steps) return;
  void* const meeting = device.allocate(kMeetingBytes);
  if (!meeting) return;
  try {
    device.clear(meeting, kMeetingBytes);
  } catch (...) {  // blocks that met there would wait for ever
    device.free(meeting, kMeetingBytes);
    throw;
  }
  meeting_ = meeting;
}

void GpuLaunches::note(uint32_t index, std::span<const int64_t> symbols) {
  Since& since = since_[index];
  if (since.launches++ == 0) launched_.push_back(index);
  std::copy(symbols.begin(), symbols.end(), since.symbols.begin());
}

void GpuLaunches::take_back(uint32_t index) {
  if (--since_[index].launches == 0) launched_.pop_back();
}

void GpuLaunches::enter() {
  if (!entered_) device_->enter();
  entered_ = true;
}

void GpuLaunches::start_timed(uint32_t index, const KernelCallResult& done,
                              std::span<const int64_t> symbols,
                              const std::function<void()>& start) {
  device_->enter();
  const size_t events = next_events();
  Timed timed{index, done.implementation, done.threads, events, {symbols.begin(), symbols.end()}};
  device_->record(events_[events]->get());
  if (timed_.empty()) began_ = Profiler::now();
  start();
  device_->record(events_[events + 1]->get());
  timed_.push_back(std::move(timed));
}

std::optional<KernelCallResult> GpuLaunches::start_routine(uint32_t index,
                                                           const KernelTarget& target,
                                                           std::span<const Value> arguments,
                                                           Scratch& scratch, KernelFrame* frame,
                                                           Profiler* profiler) {
  const PreparedKernel& k = kernels_[index];
  refuse_overlaps(k, arguments, frame);
  const std::span<const LibraryTensor> tensors = library_tensors(k, arguments, frame);
  device_->enter_quietly();
  std::string why;
  std::shared_ptr<const DeviceCall> call;
  void* space = nullptr;
  try {
    call = target.device_routine->find(tensors, &why);
    if (call)
      if (const uint64_t bytes = call->workspace_bytes(); bytes > 0)
        space = scratch.at_least(bytes);
  } catch (const Error& e) {
    // Of memory ours may do with less.
    if (!leaves_it_to_ours(k, *device_, e)) throw;
    return std::nullopt;
  }
  if (!call) {
    if (k.stand_in) return std::nullopt;
    throw Error(Status::kUnsupported, "",
                fmt::format("{}: {} has nothing for these sizes ({}), and nothing stands in for it",
                            kernel_text(k), target.library->name, why),
                "compile the model again: what stands in for it is made then");
  }
  const std::span<const int64_t> symbols(frame->symbols.data(), k.symbols);
  const KernelCallResult done{target.implementation, 1};
  if (call->empty()) return done;
  const std::span<void* const> data(frame->buffers.data(), k.tensors);
  note(index, symbols);
  // What was put off and is asked for before is another kernel's: ours does not serve that.
  const auto start = [&] {
    try {
      call->start(data, space, device_->stream());
    } catch (const Error& e) {
      if (!leaves_it_to_ours(k, *device_, e)) throw;
      throw NotStarted{};
    }
  };
  try {
    if (profiler) {
      start_timed(index, done, symbols, start);
    } else if (stretches_->takes_calls()) {
      enter();
      words_->set(*call, data, space);
      stretches_->add(*words_, call, start);
    } else {
      device_->enter();
      entered_ = true;
      start();
    }
  } catch (const NotStarted&) {
    take_back(index);
    return std::nullopt;
  }
  return done;
}

KernelCallResult GpuLaunches::launch(uint32_t index, std::span<const Value> arguments,
                                     Scratch& scratch, KernelFrame* frame, Profiler* profiler) {
  const PreparedKernel& k = kernels_[index];
  if (!device_) [[unlikely]]
    prepare(static_cast<CudaDevice&>(*k.device));
  const std::span<const int64_t> symbols(frame->symbols.data(), k.symbols);
  const KernelTarget* target =
      &k.targets[k.single ? k.kernel->dispatch.nodes[0].yes
                          : k.kernel->dispatch.choose(symbols, kHostThreads)];
  if (target->device_routine) {
    if (const auto done = start_routine(index, *target, arguments, scratch, frame, profiler))
      return *done;
    target = &*k.stand_in;
  }
  const exec::Launch& launch = *target->launch;
  const Extent extent = extent_of(k, launch, symbols);
  KernelCallResult done{target->implementation, static_cast<int32_t>(launch.threads)};
  if (extent.empty()) return done;
  // As much, however the device does them.
  if (extent.steps > 1) frame->meter.charge(static_cast<uint64_t>(extent.steps) - 1);

  void* space = nullptr;
  if (k.uses_scratch) {
    frame->symbols[k.symbols] = launch.threads;
    const int64_t bytes =
        k.kernel->contract.scratch_bytes.evaluate1({frame->symbols.data(), size_t{k.symbols} + 1});
    if (bytes < 0) [[unlikely]]
      fail_scratch(k, bytes);
    space = scratch.at_least(static_cast<uint64_t>(bytes));
  }
  void* const status = static_cast<int32_t*>(cells_->of_device()) + index;
  const size_t parameters = launch_parameters(k, launch);
  words_->set(target->function, extent.grid, launch.threads, launch.shared_bytes, parameters);
  uint64_t* word = words_->parameters();
  for (uint32_t i = 0; i < k.tensors; ++i) *word++ = word_of(frame->buffers[i]);
  for (const int64_t symbol : symbols) *word++ = static_cast<uint64_t>(symbol);
  *word++ = word_of(space);
  *word++ = word_of(status);
  uint64_t* const step = word;  // the first one, and the one to end ahead of
  if (launch.steps) step[2] = word_of(meeting_);
  if (!launch.maps.empty()) {
    word = words_->add_maps(launch.maps.size());
    for (const exec::TensorMap& map : launch.maps) {
      const TensorMaps::Words& encoded = maps_->find(boxed_tensor(k, map, arguments, *frame));
      word = std::copy(encoded.begin(), encoded.end(), word);
    }
  }

  const bool together = extent.steps > 1 && meeting_ && extent.blocks() <= target->blocks_at_once;
  const auto each_step = [&](const auto& start) {
    if (!launch.steps) return start();
    for (int64_t i = 0; i < extent.steps; ++i) {
      frame->meter.poll();  // a launch waits where the device has very many ahead of it
      step[0] = static_cast<uint64_t>(i);
      step[1] = static_cast<uint64_t>(i) + 1;
      start();
    }
  };
  note(index, symbols);
  if (!profiler && !together && stretches_->on()) [[likely]] {
    enter();
    each_step([&] { stretches_->add(*words_); });
    return done;
  }
  const CudaLaunch call = words_->launch();
  const auto start = [&] {
    if (together) {
      step[0] = 0;
      step[1] = static_cast<uint64_t>(extent.steps);
      if (device_->launch_together(call.function, call.grid, call.threads, call.shared_bytes,
                                   call.parameters))
        return;
    }
    each_step([&] {
      device_->launch(call.function, call.grid, call.threads, call.shared_bytes, call.parameters);
    });
  };
  if (profiler) {
    start_timed(index, done, symbols, start);
  } else if (together) {
    device_->enter();  // it is no part of a stretch
    entered_ = true;
    start();
  } else {
    enter();
    start();
  }
  return done;
}

size_t GpuLaunches::next_events() {
  const size_t first = events_used_;
  while (events_.size() < first + 2) events_.push_back(std::make_unique<CudaEvent>(*device_));
  events_used_ += 2;
  return first;
}

void GpuLaunches::tell(Profiler* profiler) {
  profiler->note_refused_graphs(stretches_->refusals(), stretches_->last_refusal());
  for (const Timed& t : timed_) {
    const int64_t ns = events_[t.events + 1]->since(*events_[t.events]);
    profiler->add_kernel(t.kernel, t.implementation, t.threads, t.symbols, ns);
    if (Trace* trace = profiler->trace())
      trace->add_kernel(t.kernel, t.implementation, t.threads, t.symbols,
                        began_ + events_[t.events]->since(*events_[timed_.front().events]), ns);
  }
}

void GpuLaunches::clear() noexcept {
  for (const uint32_t kernel : launched_) since_[kernel].launches = 0;
  launched_.clear();
  timed_.clear();
  events_used_ = 0;
}

void GpuLaunches::settle(Profiler* profiler) {
  if (launched_.empty()) return;
  if (device_->lost()) device_->enter();  // the cells went with it
  struct Clear {
    GpuLaunches* launches;
    ~Clear() { launches->clear(); }
  } clear{this};
  if (profiler) tell(profiler);
  auto* const cells = static_cast<volatile int32_t*>(cells_->host());
  int32_t status = 0;
  uint32_t failed = 0;
  for (const uint32_t kernel : launched_) {
    if (cells[kernel] == 0) [[likely]]
      continue;
    if (status == 0) {
      status = cells[kernel];
      failed = kernel;
    }
    cells[kernel] = 0;
  }
  if (status == 0) [[likely]]
    return;
  // Of several launches nobody knows which it was.
  const Since& since = since_[failed];
  const std::vector<int64_t> symbols = since.launches == 1 ? since.symbols : std::vector<int64_t>();
  fail_check(kernels_[failed], status, symbols);
}

void GpuLaunches::wait(Profiler* profiler) {
  if (launched_.empty()) return;
  device_->synchronize();
  settle(profiler);
}

void GpuLaunches::forget() noexcept {
  if (launched_.empty()) return;
  try {
    wait(nullptr);
  } catch (...) {  // of a run that has ended with an error of its own
  }
  clear();
}

std::string GpuLaunches::suspects() const {
  if (!device_ || !device_->lost()) return {};
  std::vector<std::string> names;
  // The last ones are likelier than the first, which may be done.
  const size_t first = launched_.size() - std::min(launched_.size(), kMostSuspects);
  for (size_t i = first; i < launched_.size(); ++i)
    names.push_back(kernel_text(kernels_[launched_[i]]));
  if (names.empty()) return {};
  return fmt::format("; started since the last wait: {}{}", first > 0 ? "…, " : "",
                     fmt::join(names, ", "));
}

}  // namespace nimble::rt
