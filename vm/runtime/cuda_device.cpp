#include "vm/runtime/cuda_device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "vm/base/error.h"
#include "vm/base/utf8.h"
#include "vm/runtime/cubin.h"
#include "vm/runtime/gpu_losses.h"
#include "vm/runtime/round_up.h"

namespace nimble::rt {
namespace {

constexpr const char* kPlace = "NVIDIA GPU";
constexpr size_t kTensorMapBytes = 128;  // CUtensorMap

std::atomic<bool> lost_any{false};

cuda::Address address_of(const void* memory) {
  return static_cast<cuda::Address>(reinterpret_cast<uintptr_t>(memory));
}

// Of NIMBLE_CUDA_DEVICE.
int chosen_ordinal() {
  const char* text = std::getenv("NIMBLE_CUDA_DEVICE");
  if (!text || !*text) return 0;
  int ordinal = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, ordinal);
  if (error != std::errc() || rest != end || ordinal < 0)
    throw Error(Status::kInvalidArgument, "NIMBLE_CUDA_DEVICE",
                fmt::format("\"{}\" is no number of a GPU", text), "give one from 0 on");
  return ordinal;
}

// "6f1c2a50-…", as nvidia-smi has it behind "GPU-"; empty if the driver does not say.
std::string uuid_of(const CudaDriver& driver, int device) {
  std::array<unsigned char, 16> bytes{};
  if (!driver.cuDeviceGetUuid_v2 ||
      driver.cuDeviceGetUuid_v2(bytes.data(), device) != cuda::kSuccess ||
      std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 0; }))
    return {};
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i)
    out += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
  return out;
}

}  // namespace

bool has_lost_gpu() {
  return lost_any.load(std::memory_order_relaxed);
}
void forget_lost_gpus() {
  lost_any.store(false, std::memory_order_relaxed);
}

CudaDeviceInfo cuda_device_info(const CudaDriver& driver) {
  CudaDeviceInfo info;
  info.ordinal = chosen_ordinal();
  int count = 0, device = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (info.ordinal >= count)
    throw Error(
        Status::kUnsupported, kPlace,
        count == 0 ? "the driver sees none"
                   : fmt::format("number {} is not there, the driver sees {}", info.ordinal, count),
        "look whether nvidia-smi sees one, and whether CUDA_VISIBLE_DEVICES or "
        "NIMBLE_CUDA_DEVICE says otherwise");
  driver.check(driver.cuDeviceGet(&device, info.ordinal), "cuDeviceGet");
  char name[256] = {};
  driver.check(driver.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName");
  info.name = valid_utf8(name);  // records and reports take no other text
  const auto attribute = [&](int which) {
    int value = 0;
    driver.check(driver.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  // What only describes it may be missing.
  const auto description = [&](int which) {
    int value = 0;
    return driver.cuDeviceGetAttribute(&value, which, device) == cuda::kSuccess ? value : 0;
  };
  info.capability = 10 * attribute(cuda::kCapabilityMajor) + attribute(cuda::kCapabilityMinor);
  info.multiprocessors = attribute(cuda::kMultiprocessors);
  info.shared_bytes = attribute(cuda::kMostSharedBytes);
  info.l2_bytes = description(cuda::kL2Bytes);
  info.memory_khz = description(cuda::kMemoryKhz);
  info.bus_bits = description(cuda::kBusBits);
  int bus = 0, slot = 0;
  if (driver.cuDeviceGetAttribute(&bus, cuda::kPciBus, device) == cuda::kSuccess &&
      driver.cuDeviceGetAttribute(&slot, cuda::kPciSlot, device) == cuda::kSuccess)
    info.slot = fmt::format("{:04x}:{:02x}:{:02x}", description(cuda::kPciDomain), bus, slot);
  info.uuid = uuid_of(driver, device);
  info.driver = driver.version();
  size_t bytes = 0;
  driver.check(driver.cuDeviceTotalMem_v2(&bytes, device), "cuDeviceTotalMem");
  info.memory_bytes = bytes;
  return info;
}

CudaDevice::CudaDevice(const CudaDriver& driver, bool anew)
    : driver_(driver),
      info_(cuda_device_info(driver)),
      arena_([this](size_t bytes) { return obtain(bytes); },
             [this](void* memory) { give_back(memory); }),
      hook_(this, &hold, &let_go) {
  driver_.check(driver_.cuDeviceGet(&device_, info_.ordinal), "cuDeviceGet");
  if (anew) driver_.check(driver_.cuDevicePrimaryCtxReset_v2(device_), "cuDevicePrimaryCtxReset");
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  try {
    enter();
    check(driver_.cuStreamCreate(&stream_, cuda::kNonBlocking), "cuStreamCreate");
  } catch (...) {
    driver_.cuDevicePrimaryCtxRelease_v2(device_);
    throw;
  }
}

CudaDevice::~CudaDevice() {
  if (!usable()) {
    arena_.forget();
    return;
  }
  driver_.cuCtxSetCurrent(context_);
  driver_.cuStreamSynchronize(stream_);
  arena_.give_all_back();
  for (const cuda::Event event : stage_events_)
    if (event) driver_.cuEventDestroy_v2(event);
  if (stage_) driver_.cuMemFreeHost(stage_);
  if (result_) driver_.cuMemFreeHost(result_);
  if (capture_stream_) driver_.cuStreamDestroy_v2(capture_stream_);
  driver_.cuStreamDestroy_v2(stream_);
  driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

bool CudaDevice::hold(void*) noexcept {
  return true;
}
void CudaDevice::let_go(void* device, bool in_child) noexcept {
  if (in_child) static_cast<CudaDevice*>(device)->forked_.store(true, std::memory_order_relaxed);
}

void CudaDevice::fail_unusable() {
  if (forked_.load(std::memory_order_relaxed))
    throw Error(Status::kUnsupported, kPlace,
                "this process was forked by one that used the GPU, and cannot use it",
                "fork before the first model is loaded, or start a new process instead "
                "(multiprocessing: the start method \"spawn\")");
  throw Error(Status::kFatal, kPlace,
              fmt::format("it was lost by {}, with all that was in it", driver_.text_of(lost_by_)),
              "load the model anew; if that does not help, restart the process");
}

void CudaDevice::fail_result(int result, std::string_view call, std::string_view more) {
  if (CudaDriver::loses_device(result) && !lost()) {
    lost_by_ = result;
    lost_.store(true);
    lost_any.store(true, std::memory_order_relaxed);
  }
  driver_.check(result, call, more);
  NIMBLE_UNREACHABLE("{}", result);
}

void CudaDevice::check(int result, std::string_view call, std::string_view more) {
  if (result != cuda::kSuccess) [[unlikely]]
    fail_result(result, call, more);
}

void CudaDevice::enter_quietly() {
  if (!usable()) [[unlikely]]
    fail_unusable();
  check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

void CudaDevice::enter() {
  enter_quietly();
  if (put_off_) put_off_->ask();
}

bool CudaDevice::reenter() noexcept {
  if (!usable() || driver_.cuCtxSetCurrent(context_) != cuda::kSuccess) return false;
  if (put_off_) put_off_->ask_quietly();
  return usable();
}

void* CudaDevice::obtain(size_t bytes) {
  cuda::Address memory = 0;
  const int result = driver_.cuMemAlloc_v2(&memory, bytes);
  if (result == cuda::kOutOfMemory) return nullptr;
  check(result, "cuMemAlloc");
  return reinterpret_cast<void*>(static_cast<uintptr_t>(memory));
}

// Waits for what runs.
void CudaDevice::give_back(void* memory) noexcept {
  if (usable()) driver_.cuMemFree_v2(address_of(memory));
}

void* CudaDevice::allocate(size_t bytes) {
  enter_quietly();  // nobody uses any more what it finds free
  const std::lock_guard guard(memory_lock_);
  return arena_.allocate(frees_parts(bytes) ? round_up(bytes, kGranule) : bytes);
}

void CudaDevice::free(void* memory, size_t bytes) {
  free_part(memory, frees_parts(bytes) ? round_up(bytes, kGranule) : bytes);
}

void CudaDevice::free_part(void* memory, size_t bytes) {
  if (!reenter()) return;
  const std::lock_guard guard(memory_lock_);
  arena_.free(memory, bytes);
}

void CudaDevice::trim() {
  enter();
  const std::lock_guard guard(memory_lock_);
  arena_.trim();
}

size_t CudaDevice::in_use() const {
  const std::lock_guard guard(memory_lock_);
  return arena_.in_use();
}

size_t CudaDevice::reserved() const {
  const std::lock_guard guard(memory_lock_);
  return arena_.reserved();
}

void CudaDevice::clear(void* memory, size_t bytes) {
  enter();
  check(driver_.cuMemsetD8Async(address_of(memory), 0, bytes, stream_), "cuMemsetD8Async");
}

void CudaDevice::start_staging() {
  for (cuda::Event& event : stage_events_)
    if (!event) check(driver_.cuEventCreate(&event, cuda::kNoTimes), "cuEventCreate");
  void* memory = nullptr;
  check(driver_.cuMemHostAlloc(&memory, kSegments * kSegment, cuda::kPortable), "cuMemHostAlloc");
  stage_ = static_cast<uint8_t*>(memory);
}

uint8_t* CudaDevice::stage_room(size_t* bytes) {
  if (filled_ == kSegment) {
    check(driver_.cuEventRecord(stage_events_[segment_], stream_), "cuEventRecord");
    stage_pending_[segment_] = true;
    const size_t next = (segment_ + 1) % kSegments;
    if (stage_pending_[next]) {  // the device may still read it
      check(driver_.cuEventSynchronize(stage_events_[next]), "cuEventSynchronize");
      stage_pending_[next] = false;
    }
    segment_ = next;
    filled_ = 0;
  }
  *bytes = kSegment - filled_;
  return stage_ + segment_ * kSegment + filled_;
}

void CudaDevice::copy_in(void* device, const void* host, size_t bytes) {
  enter();
  auto* to = static_cast<uint8_t*>(device);
  auto* from = static_cast<const uint8_t*>(host);
  const std::lock_guard guard(stage_lock_);
  if (!stage_) start_staging();
  while (bytes > 0) {
    size_t room = 0;
    uint8_t* stage = stage_room(&room);
    const size_t part = std::min(bytes, room);
    std::memcpy(stage, from, part);
    check(driver_.cuMemcpyHtoDAsync_v2(address_of(to), stage, part, stream_), "cuMemcpyHtoDAsync");
    filled_ += std::min(room, round_up(part, ChunkArena::kUnit));
    to += part;
    from += part;
    bytes -= part;
  }
}

void CudaDevice::copy_out(void* host, const void* device, size_t bytes) {
  enter();
  const auto wait_for = [&](void* to) {
    check(driver_.cuMemcpyDtoHAsync_v2(to, address_of(device), bytes, stream_),
          "cuMemcpyDtoHAsync");
    check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  };
  // Into pageable memory the driver copies twice, too, and takes longer over few bytes.
  if (bytes > kSmallResult) return wait_for(host);
  // Apart from the stage: who copies in need not wait for it.
  const std::lock_guard guard(result_lock_);
  if (!result_) {
    void* memory = nullptr;
    check(driver_.cuMemHostAlloc(&memory, kSmallResult, cuda::kPortable), "cuMemHostAlloc");
    result_ = memory;
  }
  wait_for(result_);
  std::memcpy(host, result_, bytes);
}

void CudaDevice::copy_within(void* to, const void* from, size_t bytes) {
  enter();
  check(driver_.cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), bytes, stream_),
        "cuMemcpyDtoDAsync");
}

void CudaDevice::launch(cuda::Function function, const std::array<uint32_t, 3>& grid,
                        uint32_t threads, uint32_t shared_bytes, void** parameters) {
  if (!usable()) [[unlikely]]
    fail_unusable();
  check(driver_.cuLaunchKernel(function, grid[0], grid[1], grid[2], threads, 1, 1, shared_bytes,
                               stream_, parameters, nullptr),
        "cuLaunchKernel");
}

int64_t CudaDevice::blocks_at_once(cuda::Function function, uint32_t threads,
                                   uint32_t shared_bytes) {
  if (!driver_.cuLaunchCooperativeKernel || !driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor)
    return 0;
  enter();
  int cooperative = 0, blocks = 0;
  check(driver_.cuDeviceGetAttribute(&cooperative, cuda::kCooperativeLaunch, device_),
        "cuDeviceGetAttribute");
  if (cooperative == 0) return 0;
  check(driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, function, static_cast<int>(threads), shared_bytes),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  return int64_t{blocks} * info_.multiprocessors;
}

bool CudaDevice::launch_together(cuda::Function function, const std::array<uint32_t, 3>& grid,
                                 uint32_t threads, uint32_t shared_bytes, void** parameters) {
  if (!usable()) [[unlikely]]
    fail_unusable();
  const int result = driver_.cuLaunchCooperativeKernel(function, grid[0], grid[1], grid[2], threads,
                                                       1, 1, shared_bytes, stream_, parameters);
  if (result == cuda::kTooManyBlocks) return false;
  check(result, "cuLaunchCooperativeKernel");
  return true;
}

void CudaDevice::launch_graph(cuda::GraphExec graph) {
  if (!usable()) [[unlikely]]
    fail_unusable();
  check(driver_.cuGraphLaunch(graph, stream_), "cuGraphLaunch");
}

cuda::Stream CudaDevice::capture_stream() {
  if (!capture_stream_)
    check(driver_.cuStreamCreate(&capture_stream_, cuda::kNonBlocking), "cuStreamCreate");
  return capture_stream_;
}

void CudaDevice::synchronize() {
  enter();
  check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

void CudaDevice::record(cuda::Event event) {
  check(driver_.cuEventRecord(event, stream_), "cuEventRecord");
}

CudaDevice& cuda_device() {
  struct One {
    ForkSafeLock lock;
    std::atomic<CudaDevice*> device{nullptr};
  };
  // Never destroyed: outputs and models that die with the process still give memory back.
  static One& one = *new One;
  CudaDevice* made = one.device.load(std::memory_order_acquire);
  if (made && !made->lost()) [[likely]]
    return *made;
  const std::lock_guard guard(one.lock);
  made = one.device.load(std::memory_order_relaxed);
  if (!made || made->lost()) {
    try {
      one.device.store(new CudaDevice(CudaDriver::open(), made != nullptr),
                       std::memory_order_release);
    } catch (const Error& e) {
      throw Error(e.status(), "device \"cuda\"", e.problem(), e.remedy());
    }
  }
  return *one.device.load(std::memory_order_relaxed);
}

PinnedMemory::PinnedMemory(CudaDevice& device, size_t bytes) : device_(device) {
  device.enter();
  device.check(device.driver().cuMemHostAlloc(&host_, bytes, cuda::kPortable | cuda::kMapped),
               "cuMemHostAlloc");
  cuda::Address address = 0;
  try {
    device.check(device.driver().cuMemHostGetDevicePointer_v2(&address, host_, 0),
                 "cuMemHostGetDevicePointer");
  } catch (...) {
    device.driver().cuMemFreeHost(host_);
    throw;
  }
  of_device_ = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  std::memset(host_, 0, bytes);
}

PinnedMemory::~PinnedMemory() {
  if (device_.reenter()) device_.driver().cuMemFreeHost(host_);
}

CudaEvent::CudaEvent(CudaDevice& device) : device_(device) {
  device.enter();
  device.check(device.driver().cuEventCreate(&event_, cuda::kTimes), "cuEventCreate");
}

CudaEvent::~CudaEvent() {
  if (device_.reenter()) device_.driver().cuEventDestroy_v2(event_);
}

int64_t CudaEvent::since(const CudaEvent& begin) const {
  float milliseconds = 0;
  device_.check(device_.driver().cuEventElapsedTime(&milliseconds, begin.event_, event_),
                "cuEventElapsedTime");
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

DeviceModule::DeviceModule(CudaDevice& device, std::span<const uint8_t> image,
                           const std::string& place)
    : device_(device), place_(place) {
  if (const std::string fault = fault_of_gpu_image(image); !fault.empty())
    throw Error(Status::kCorrupt, place, "the GPU's code: " + fault, "compile the model again");
  device.enter();
  std::vector<uint8_t> text(image.begin(), image.end());
  text.push_back(0);  // assembly ends in a zero
  std::vector<char> log(16 << 10, '\0');
  const int options[] = {cuda::kErrorLog, cuda::kErrorLogBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  const int result = device.driver().cuModuleLoadDataEx(&module_, text.data(), 2, options, values);
  std::string said(log.data());
  std::replace(said.begin(), said.end(), '\n', ' ');
  try {
    device.check(result, "cuModuleLoadDataEx", said);
  } catch (const Error& e) {
    throw Error(
        e.status(), place,
        fmt::format("{} (compute capability {}.{}, driver of CUDA {}) does not load its "
                    "kernels: {}",
                    device.info().name, device.info().capability / 10,
                    device.info().capability % 10, device.driver().version_text(), e.problem()),
        e.remedy());
  }
}

DeviceModule::~DeviceModule() {
  if (device_.reenter()) device_.driver().cuModuleUnload(module_);
}

cuda::Function DeviceModule::find(const std::string& symbol, uint32_t shared_bytes,
                                  size_t parameters, size_t maps) {
  constexpr uint32_t kAlways = 48 << 10;  // that any kernel may have
  device_.enter();
  cuda::Function function = nullptr;
  const CudaDriver& driver = device_.driver();
  const int found = driver.cuModuleGetFunction(&function, module_, symbol.c_str());
  if (found == cuda::kNotFound) return nullptr;
  device_.check(found, "cuModuleGetFunction");
  const CudaDeviceInfo& info = device_.info();
  if (shared_bytes > info.shared_bytes)
    throw Error(Status::kIncompatible, place_,
                fmt::format("{} takes {} bytes of shared memory, of which a block of this GPU "
                            "({}, compute capability {}.{}) has {}",
                            symbol, shared_bytes, info.name, info.capability / 10,
                            info.capability % 10, info.shared_bytes),
                "run it on a GPU of the kind that it was compiled for, or compile the model for "
                "the CPU");
  // Another kernel may be the same code.
  if (uint32_t& most = shared_bytes_.try_emplace(function, kAlways).first->second;
      shared_bytes > most) {
    device_.check(driver.cuFuncSetAttribute(function, cuda::kDynamicSharedBytes,
                                            static_cast<int>(shared_bytes)),
                  "cuFuncSetAttribute", fmt::format("{} bytes of shared memory", shared_bytes));
    most = shared_bytes;
  }
  if (driver.cuFuncLoad) device_.check(driver.cuFuncLoad(function), "cuFuncLoad");
  expect_parameters(symbol, function, parameters, maps);
  return function;
}

// The driver reads as many as the code has, whatever a launch brings. One older than CUDA 12.4 does
// not tell how many: then the file counts, which was trusted to bring native code.
void DeviceModule::expect_parameters(const std::string& symbol, cuda::Function function,
                                     size_t words, size_t maps) const {
  const CudaDriver& driver = device_.driver();
  if (!driver.cuFuncGetParamInfo) return;
  const size_t count = words + maps;
  for (size_t i = 0; i <= count; ++i) {
    size_t offset = 0, bytes = 0;
    if (driver.cuFuncGetParamInfo(function, i, &offset, &bytes) != cuda::kSuccess) return;
    if (i == count || bytes != (i < words ? sizeof(uint64_t) : kTensorMapBytes))
      throw Error(Status::kCorrupt, place_,
                  fmt::format("{} has other parameters than the kernel's contract says", symbol),
                  "compile the model again");
  }
}

}  // namespace nimble::rt
