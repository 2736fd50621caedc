// Memory of the stand-in for NVIDIA's driver, the device's and pinned, and copies.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "vm/runtime/test/standin/cuda_state.h"

namespace standin::cuda {

uint8_t* host_of(Address a) {
  return reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(a & ~kDevice));
}

bool on_device(Address at, size_t bytes) {
  State& s = state();
  if (!(at & kDevice)) return false;
  uint8_t* host = host_of(at);
  auto m = s.memory.upper_bound(host);
  if (m != s.memory.begin() && (--m, host + bytes <= m->first + m->second)) return true;
  auto p = s.pinned.upper_bound(host);
  return p != s.pinned.begin() && (--p, host + bytes <= p->first + p->second);
}

namespace {

bool is_pinned(const void* at, size_t bytes) {
  State& s = state();
  auto* host = static_cast<uint8_t*>(const_cast<void*>(at));
  auto p = s.pinned.upper_bound(host);
  return p != s.pinned.begin() && (--p, host + bytes <= p->first + p->second);
}

int add_copy(Stream* stream, void* to, const void* from, size_t bytes,
             std::vector<std::pair<Address, size_t>> needs) {
  if (const int bad = expect_plain(stream)) return bad;
  for (const auto& [at, size] : needs)
    if (!on_device(at, size)) return violate("a copy beyond what was allocated");
  stream->work.push_back([=] {
    for (const auto& [at, size] : needs)
      if (!on_device(at, size)) return violate("a copy of memory that was freed meanwhile");
    std::memcpy(to, from, bytes);
    return kOk;
  });
  return kOk;
}

}  // namespace

extern "C" {

int cuMemAlloc_v2(Address* memory, size_t bytes) {
  ENTER();
  if (const int bad = expect_no_capture(__func__)) return bad;
  if (bytes == 0) return violate("an allocation of nothing");
  auto* host = static_cast<uint8_t*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (!host) return 2;
  std::memset(host, 0xa5, bytes);
  *memory = static_cast<Address>(reinterpret_cast<uintptr_t>(host)) | kDevice;
  state().memory[host] = bytes;
  return kOk;
}
int cuMemFree_v2(Address memory) {
  ENTER();
  if (const int bad = expect_no_capture(__func__)) return bad;
  const int result = drain_all();
  const auto at = state().memory.find(host_of(memory));
  if (at == state().memory.end()) return violate("memory is freed that was not allocated");
  std::free(at->first);
  state().memory.erase(at);
  return result;
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER();
  if (const int bad = expect_no_capture(__func__)) return bad;
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  state().pinned[static_cast<uint8_t*>(*memory)] = bytes;
  return kOk;
}
int cuMemFreeHost(void* memory) {
  ENTER();
  if (const int bad = expect_no_capture(__func__)) return bad;
  drain_all();
  const auto at = state().pinned.find(static_cast<uint8_t*>(memory));
  if (at == state().pinned.end()) return violate("pinned memory is freed that is none");
  std::free(memory);
  state().pinned.erase(at);
  return kOk;
}
int cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned) {
  ENTER();
  if (!is_pinned(host, 1)) return violate("memory that is not pinned has no address there");
  *device = static_cast<Address>(reinterpret_cast<uintptr_t>(host)) | kDevice;
  return kOk;
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
  ENTER();
  if (is_pinned(from, bytes)) return add_copy(stream, host_of(to), from, bytes, {{to, bytes}});
  // From other memory the driver copies at once.
  if (const int result = add_copy(stream, host_of(to), from, bytes, {{to, bytes}})) return result;
  return drain(stream);
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
  ENTER();
  return add_copy(stream, to, host_of(from), bytes, {{from, bytes}});
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
  ENTER();
  return add_copy(stream, host_of(to), host_of(from), bytes, {{to, bytes}, {from, bytes}});
}
int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Stream* stream) {
  ENTER();
  if (const int bad = expect_plain(stream)) return bad;
  if (!on_device(to, bytes)) return violate("memory is set beyond what was allocated");
  stream->work.push_back([=] {
    if (!on_device(to, bytes)) return violate("memory is set that was freed meanwhile");
    std::memset(host_of(to), value, bytes);
    return kOk;
  });
  return kOk;
}

}  // extern "C"

}  // namespace standin::cuda
