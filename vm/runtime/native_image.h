// Loads a native image: a linked ELF shared object for this program's architecture that stands, as
// bytes, inside an executable file, and holds the kernels' machine code.
//
// The system's dlopen would want a file, run constructors, resolve symbols from whatever else
// the process has loaded. Kernels need none of it: they are closed code with relative
// relocations only. So this loader is small and refuses everything else by name: other
// libraries, undefined symbols, thread-local storage, constructors, text relocations,
// indirect functions, pages both writable and executable. That narrows what a kernel compiler's
// mistake can do; it is no defence against malice, for which there is the caller's `trust`.
// Source: System V gABI chapter 5, its x86-64 supplement, ELF for the Arm 64-bit Architecture.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace nimble::rt {

class NativeImage {
 public:
  // Maps a copy of `elf`. `place` names the file in errors. Error(kCorrupt) if malformed,
  // Error(kIncompatible) if for another machine, or if segments share a page of this one;
  // Error(kUnsupported) for what is refused. `page_bytes`: as if the system had pages of that size,
  // a power of two and at least the system's; 0: the system's.
  static std::shared_ptr<const NativeImage> load(std::span<const uint8_t> elf,
                                                 const std::string& place, uint64_t page_bytes = 0);
  ~NativeImage();
  NativeImage(const NativeImage&) = delete;
  NativeImage& operator=(const NativeImage&) = delete;

  // The address of a defined global function or object; nullptr if there is none.
  const void* find(std::string_view symbol) const;
  size_t symbol_count() const { return symbols_.size(); }
  size_t mapped_bytes() const { return size_; }
  // Appends the functions to /tmp/perf-<pid>.map, where `perf report` looks for names.
  void write_perf_map() const;

 private:
  struct Symbol {
    uint64_t address = 0, size = 0;  // relative to the image's first byte
    bool function = false;
  };
  friend class ElfLoader;
  NativeImage() = default;
  uint8_t* base_ = nullptr;
  size_t size_ = 0;
  std::unordered_map<std::string, Symbol> symbols_;
};

}  // namespace nimble::rt
