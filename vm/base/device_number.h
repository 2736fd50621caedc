// The devices that a program may name. The number stands in bytecode, files and the IR, so it
// never changes its meaning: append, never reorder.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nimble {

inline constexpr int32_t kCpuDevice = 0;
// Memory that only its own kernels may touch, on every machine: vm/runtime/stand_in_device.h.
inline constexpr int32_t kStandInDevice = 1;
// The first NVIDIA GPU: vm/runtime/cuda_device.h.
inline constexpr int32_t kCudaDevice = 2;

inline constexpr std::array<std::string_view, 3> kDeviceNames = {"cpu", "stand-in", "cuda"};
// What each is, in a few words.
inline constexpr std::array<std::string_view, 3> kDeviceSummaries = {
    "the host's processor and memory", "the CPU's kernels on memory that is closed to all else",
    "the first NVIDIA GPU"};
inline constexpr int32_t kDeviceCount = static_cast<int32_t>(kDeviceNames.size());

constexpr bool is_device(int64_t number) {
  return number >= 0 && number < kDeviceCount;
}
// Whose kernels are code of its own, started as grids of blocks, in memory that the host does not
// address.
constexpr bool is_gpu(int64_t number) {
  return number == kCudaDevice;
}
// "unknown" for a number that is no device's.
constexpr std::string_view device_name(int64_t number) {
  return is_device(number) ? kDeviceNames[static_cast<size_t>(number)] : "unknown";
}
constexpr std::optional<int32_t> device_by_name(std::string_view name) {
  for (int32_t i = 0; i < kDeviceCount; ++i)
    if (kDeviceNames[static_cast<size_t>(i)] == name) return i;
  return std::nullopt;
}

}  // namespace nimble
