// What a measuring process may open once it is confined, a row each: another device's files are
// another row. Beside these, what LD_LIBRARY_PATH names may be read, and on a GPU the libraries
// that the environment names (exec::gpu_library_variables()), with those beside them.
#pragma once

namespace nimble::tuner {

enum class Access {
  kRead,          // a file, or all beneath a folder, with their lists
  kReadAndWrite,  // a file
  kDevice,        // a device's file: to read, write, map and control (ioctl)
};

struct ConfinedPath {
  const char* pattern;  // of glob(7); what is not there is left out
  Access access;
  bool gpu = false;  // for processes alone that measure on a GPU
};

inline constexpr ConfinedPath kConfinedPaths[] = {
    // Libraries that are opened when a kernel first needs them,
    {"/usr", Access::kRead},
    {"/lib*", Access::kRead},
    {"/etc/ld.so.cache", Access::kRead},
    // and what they ask of the machine.
    {"/sys", Access::kRead},
    {"/proc/self", Access::kRead},
    {"/proc/cpuinfo", Access::kRead},
    {"/proc/meminfo", Access::kRead},
    {"/proc/stat", Access::kRead},
    {"/proc/loadavg", Access::kRead},
    {"/proc/sys/vm", Access::kRead},
    {"/dev/urandom", Access::kRead},
    {"/dev/null", Access::kReadAndWrite},
    // NVIDIA's driver opens its devices again for memory that it maps later.
    {"/dev/nvidia*", Access::kDevice, true},
    {"/proc/driver/nvidia", Access::kRead, true},
    {"/proc/devices", Access::kRead, true},
};

}  // namespace nimble::tuner
