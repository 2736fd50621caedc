#include "vm/runtime/native_image.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <random>

#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/kernel_abi.h"

namespace nimble::rt {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> fixture(const std::string& name) {
  return read_file(std::string(NIMBLE_FIXTURE_DIR) + "/" + name + ".so");
}

std::string failure(std::span<const uint8_t> elf) {
  try {
    NativeImage::load(elf, "m.nimble");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void run_scale(const NativeImage& image, int64_t n, float factor) {
  const auto scale = reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(image.find("scale")));
  ASSERT_NE(scale, nullptr);
  std::vector<float> x(n), y(n);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  void* buffers[] = {x.data(), y.data()};
  const nimble_kernel_args args{NIMBLE_KERNEL_ABI_VERSION, 2, buffers, &n, nullptr};
  for (int t = 0; t < 2; ++t) EXPECT_EQ(scale(&args, t, 2, nullptr), 0);
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(y[i], x[i] * factor);
}

TEST(NativeImage, RunsRelocatedCode) {
  for (const char* name : {"good", "sysv"}) {
    const auto image = NativeImage::load(fixture(name), name);
    run_scale(*image, 10, 2.0f);
    run_scale(*image, 11, 3.0f);
    EXPECT_EQ(image->find("absent"), nullptr);
    EXPECT_EQ(image->symbol_count(), 3u);
  }
}

TEST(NativeImage, ImagesHaveDataOfTheirOwn) {
  const auto a = NativeImage::load(fixture("good"), "a"),
             b = NativeImage::load(fixture("good"), "b");
  auto calls = [](const NativeImage& image) {
    return reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(image.find("count_calls")))(
        nullptr, 0, 1, nullptr);
  };
  EXPECT_EQ(calls(*a), 1);
  EXPECT_EQ(calls(*a), 2);
  EXPECT_EQ(calls(*b), 1);
}

TEST(NativeImage, RefusesWhatKernelsMustNotHave) {
  EXPECT_THAT(failure(fixture("undefined")), HasSubstr("not allowed"));
  EXPECT_THAT(failure(fixture("constructor")), HasSubstr("constructor"));
  EXPECT_THAT(failure(fixture("tls")), HasSubstr("thread-local"));
}

TEST(NativeImage, RefusesOtherFiles) {
  EXPECT_THAT(failure(std::vector<uint8_t>(100)), HasSubstr("not an ELF file"));
  EXPECT_THAT(failure({}), HasSubstr("ends early"));
}

// The error says what the file has and what this machine is.
TEST(NativeImage, RefusesOtherMachines) {
  const auto good = fixture("good");
  const auto of_machine = [&](uint16_t number) {
    auto elf = good;
    std::memcpy(&elf[offsetof(Elf64_Ehdr, e_machine)], &number, sizeof number);
    return failure(elf);
  };
  if (host_architecture() == CpuArchitecture::kX86_64) {
    EXPECT_THAT(of_machine(EM_AARCH64),
                HasSubstr("its machine is aarch64, and this one is x86-64"));
  }
  if (host_architecture() == CpuArchitecture::kAArch64) {
    EXPECT_THAT(of_machine(EM_X86_64), HasSubstr("its machine is x86-64, and this one is aarch64"));
  }
  EXPECT_THAT(of_machine(EM_RISCV), HasSubstr("its machine is number 243 of ELF"));
  auto big_endian = good;
  big_endian[EI_DATA] = ELFDATA2MSB;
  EXPECT_THAT(failure(big_endian), HasSubstr("little-endian"));
}

// Pages of 64 KiB on a machine with smaller ones: segments have pages of their own, or there is an
// error that says why not.
TEST(NativeImage, TakesLargerPagesThanTheSystems) {
  constexpr uint64_t kLarge = 65536;
  const auto image = NativeImage::load(fixture("large-pages"), "m", kLarge);
  run_scale(*image, 10, 2.0f);
  EXPECT_EQ(image->mapped_bytes() % kLarge, 0u);
  EXPECT_GT(image->mapped_bytes(), kLarge);
  EXPECT_NO_THROW(NativeImage::load(fixture("large-pages"), "m"));
  try {
    NativeImage::load(fixture("small-pages"), "m.nimble", kLarge);
    FAIL() << "its segments share pages";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kIncompatible);
    EXPECT_THAT(e.what(), HasSubstr("share pages, which have 65536 bytes here"));
  }
}

// Damage may go unnoticed here (checksums are the file's business) but must not crash the loader.
TEST(NativeImage, SurvivesDamage) {
  const auto good = fixture("good");
  for (size_t n = 0; n < good.size(); n += 97) failure({good.data(), n});
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    auto bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % (i % 2 ? bad.size() : 1024)] = random();
    failure(bad);
  }
}

// Its end is what the section says of it, or its last entry.
TEST(NativeImage, ReadsADynamicSectionThatHasNoEndToItsEnd) {
  auto elf = fixture("good");
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; ++i) {
    uint8_t* const at = elf.data() + header.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr p;
    std::memcpy(&p, at, sizeof p);
    if (p.p_type == PT_DYNAMIC) p.p_memsz = UINT64_MAX;
    std::memcpy(at, &p, sizeof p);
  }
  run_scale(*NativeImage::load(elf, "m"), 10, 2.0f);
}

TEST(NativeImage, WritesAPerfMap) {
  const auto image = NativeImage::load(fixture("good"), "m");
  const std::string path = "/tmp/perf-" + std::to_string(::getpid()) + ".map";
  image->write_perf_map();
  EXPECT_THAT(read_text_file(path), HasSubstr(" scale\n"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace nimble::rt
