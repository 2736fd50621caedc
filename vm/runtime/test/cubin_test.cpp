// Modules of a GPU whose headers lead out of them.
#include "vm/runtime/cubin.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace nimble::rt {
namespace {

using ::testing::HasSubstr;

// A header, sixteen bytes of code, memory without any, a segment of the code; the sections' headers
// stand last.
struct Cubin {
  static constexpr uint64_t kCode = sizeof(Elf64_Ehdr), kCodeBytes = 16;
  Elf64_Ehdr header{};
  Elf64_Shdr sections[3] = {};
  Elf64_Phdr segment{};

  Cubin() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = 190;
    header.e_phoff = kCode + kCodeBytes;
    header.e_phentsize = sizeof segment;
    header.e_phnum = 1;
    header.e_shoff = header.e_phoff + sizeof segment;
    header.e_shentsize = sizeof sections[0];
    header.e_shnum = 3;
    sections[1].sh_type = SHT_PROGBITS;
    sections[1].sh_offset = kCode;
    sections[1].sh_size = kCodeBytes;
    sections[2].sh_type = SHT_NOBITS;
    sections[2].sh_size = 1 << 16;
    segment.p_type = PT_LOAD;
    segment.p_offset = kCode;
    segment.p_filesz = kCodeBytes;
  }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> out;
    const auto add = [&](const void* data, size_t size) {
      const auto* from = static_cast<const uint8_t*>(data);
      out.insert(out.end(), from, from + size);
    };
    const uint8_t code[kCodeBytes] = {};
    add(&header, sizeof header);
    add(code, sizeof code);
    add(&segment, sizeof segment);
    add(sections, sizeof sections);
    return out;
  }
  std::string fault() const { return fault_of_gpu_image(bytes()); }
};

TEST(GpuImage, WholeOnesAndAssemblyAreTaken) {
  EXPECT_EQ(Cubin().fault(), "");
  for (const std::string_view text : {"", ".version 8.0\n.target sm_80\n", "\x7f", "\x7f\x45\x4c"})
    EXPECT_EQ(fault_of_gpu_image({reinterpret_cast<const uint8_t*>(text.data()), text.size()}), "");
}

TEST(GpuImage, EveryTruncationIsFound) {
  const std::vector<uint8_t> whole = Cubin().bytes();
  for (size_t size = SELFMAG; size < whole.size(); ++size)
    EXPECT_NE(fault_of_gpu_image(std::span(whole).first(size)), "") << size;
}

TEST(GpuImage, PlacesBeyondItAreFound) {
  for (const uint64_t far : {uint64_t{1} << 20, UINT64_MAX - 8, UINT64_MAX}) {
    Cubin c;
    c.header.e_shoff = far;
    EXPECT_THAT(c.fault(), HasSubstr("headers lie outside"));
    c = Cubin();
    c.header.e_phoff = far;
    EXPECT_THAT(c.fault(), HasSubstr("headers lie outside"));
    c = Cubin();
    c.sections[1].sh_offset = far;
    EXPECT_THAT(c.fault(), HasSubstr("section 1 lies outside"));
    c = Cubin();
    c.sections[1].sh_size = far;
    EXPECT_THAT(c.fault(), HasSubstr("section 1 lies outside"));
    c = Cubin();
    c.segment.p_offset = far;
    EXPECT_THAT(c.fault(), HasSubstr("segment 0 lies outside"));
    c = Cubin();
    c.segment.p_filesz = far;
    EXPECT_THAT(c.fault(), HasSubstr("segment 0 lies outside"));
  }
}

TEST(GpuImage, CodeOfOtherMachinesIsFound) {
  Cubin c;
  c.header.e_machine = EM_X86_64;
  EXPECT_THAT(c.fault(), HasSubstr("machine 62"));
  c = Cubin();
  c.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(c.fault(), HasSubstr("64 bits"));
  c = Cubin();
  c.header.e_shentsize = 8;
  EXPECT_THAT(c.fault(), HasSubstr("wrong size"));
  c = Cubin();
  c.header.e_phentsize = 8;
  EXPECT_THAT(c.fault(), HasSubstr("wrong size"));
  const uint8_t fat[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
  EXPECT_THAT(fault_of_gpu_image(fat), HasSubstr("fat binary"));
}

}  // namespace
}  // namespace nimble::rt
