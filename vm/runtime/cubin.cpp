#include "vm/runtime/cubin.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace nimble::rt {
namespace {

constexpr uint16_t kMachine = 190;           // EM_CUDA
constexpr uint32_t kFatBinary = 0xba55ed50;  // several modules in one
constexpr uint32_t kInfo = 0x70000000;       // SHT_CUDA_INFO: what a kernel's parameters are

// At an offset that lies within.
template <typename T>
T read(std::span<const uint8_t> image, uint64_t offset) {
  T value;
  std::memcpy(&value, image.data() + offset, sizeof value);
  return value;
}

bool lies_within(std::span<const uint8_t> image, uint64_t offset, uint64_t bytes) {
  return offset <= image.size() && bytes <= image.size() - offset;
}

// Whether a section of that type has its bytes in the file. What else NVIDIA has are sizes of
// memory.
bool has_bytes(uint32_t type) {
  constexpr uint32_t kTypes[] = {SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA,
                                 SHT_NOTE,     SHT_REL,    kInfo};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

}  // namespace

std::string fault_of_gpu_image(std::span<const uint8_t> image) {
  if (image.size() >= sizeof kFatBinary && read<uint32_t>(image, 0) == kFatBinary)
    return "it is a fat binary";
  if (image.size() < SELFMAG || std::memcmp(image.data(), ELFMAG, SELFMAG) != 0) return {};
  if (image.size() < sizeof(Elf64_Ehdr)) return "it ends in its header";
  const auto header = read<Elf64_Ehdr>(image, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return "it is not for a little-endian machine of 64 bits";
  if (header.e_machine != kMachine)
    return fmt::format("it is code of machine {}, which is no GPU of NVIDIA's", header.e_machine);
  if (header.e_shnum > 0 && header.e_shentsize != sizeof(Elf64_Shdr))
    return "its sections' headers have a wrong size";
  if (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr))
    return "its segments' headers have a wrong size";
  if (!lies_within(image, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)) ||
      !lies_within(image, header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)))
    return "its headers lie outside of it";
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto s = read<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (has_bytes(s.sh_type) && !lies_within(image, s.sh_offset, s.sh_size))
      return fmt::format("its section {} lies outside of it", i);
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto p = read<Elf64_Phdr>(image, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!lies_within(image, p.p_offset, p.p_filesz))
      return fmt::format("its segment {} lies outside of it", i);
  }
  return {};
}

}  // namespace nimble::rt
