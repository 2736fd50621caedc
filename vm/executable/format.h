// The layout of an executable file. All numbers are little-endian.
//
//   offset 0   magic            8 bytes
//          8   format version   u32
//         12   flags            u32, 0
//         16   section count    u32
//         20   reserved         u32, 0
//         24   file size        u64
//         32   section table    32 bytes a section: id u32, flags u32, offset u64, size u64,
//                               xxHash3-64 of the section's bytes u64
//              header checksum  u64, xxHash3-64 of everything before it
//              sections         in the table's order, each aligned; the gaps hold zeros
//
// Every byte of the file is under a checksum or must be zero, so that any damage is noticed.
// Constants and images lie at multiples of 4096 in the file, each constant at a multiple of 64
// within its section and each image at a multiple of 4096, so that a mapping of the file serves
// them in place.
//
// Portable kernels come in a section of their own, which may be absent: a count, then for each
// kernel that has one its index and its code (portable_kernel.h). It is required only if some
// kernel has nothing else.
//
// What the file was compiled with comes in a section of its own, too, which files from before have
// not: pairs of an option and its value.
//
// Which implementations are divisible comes in an optional section: a count, for each the indices
// of its kernel and implementation. A reader that skips it runs them with one share a thread.
//
// How a GPU's code is started, and whose code an image is where it is not the CPU's, come in a
// section that only files with such code have, and in these it is required: a count of launches,
// for each the indices of its kernel and implementation, the three programs of its grid, threads of
// a block, bytes of shared memory, alignment of its arguments; then a count of images that are not
// the CPU's, for each its index and device and the symbol and bytes of each of its modules.
//
// Tensor maps of launches come in a section of their own, which only files with such launches have,
// and in these it is required: a count of launches, for each the indices of its kernel and
// implementation and a count of maps, for each its argument, a count of axes, and of each of these
// the program of its extent and the elements of a box.
//
// Launches whose grid does steps come in a section that only files with such launches have, and in
// these it is required: a count, for each the indices of its kernel and implementation, and the
// program of the number of steps.
//
// Evolution: a reader skips sections that it does not know unless kRequired is set, and refuses
// a file with an unknown required section or another format version. The version grows when the
// meaning of an existing section changes, and then takes in what came as sections of its own; what
// can be ignored comes as a new optional section, and what only some files need as a new required
// one in those files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace nimble::exec {

inline constexpr uint8_t kMagic[8] = {0x8f, 'N', 'I', 'M', 'B', 'L', 'E', '\n'};
inline constexpr uint32_t kFormatVersion = 4;
// 1: Fatal had no values. 2: scalars did not wrap, a step of linearise was three numbers. 3:
// GetField read elements, storages and their sizes, too; devices and requirements had sections.
inline constexpr uint32_t kOldestFormatVersion = 4;
inline constexpr size_t kHeaderSize = 32;
inline constexpr size_t kTableEntrySize = 32;
inline constexpr size_t kSectionAlignment = 64;
inline constexpr size_t kDataAlignment = 4096;
inline constexpr size_t kConstantAlignment = 64;
inline constexpr uint32_t kMaxSections = 1024;

enum class Section : uint32_t {
  kNone,
#define NIMBLE_SECTION(name, text) name,
#include "vm/executable/Sections.def"
#undef NIMBLE_SECTION
};
inline constexpr std::string_view kSectionNames[] = {
    "unknown",
#define NIMBLE_SECTION(name, text) text,
#include "vm/executable/Sections.def"
#undef NIMBLE_SECTION
};
inline constexpr uint32_t kSectionCount = std::size(kSectionNames) - 1;
inline constexpr uint32_t kRequired = 1;  // section flag

constexpr std::string_view name_of(Section s) {
  const uint32_t i = static_cast<uint32_t>(s);
  return kSectionNames[i <= kSectionCount ? i : 0];
}

}  // namespace nimble::exec
