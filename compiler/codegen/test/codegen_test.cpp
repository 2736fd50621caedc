// Objects and shared objects: hashes, determinism, symbols, other machines.
#include "compiler/codegen/codegen.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <cstring>

#include "compiler/codegen/test/native.h"
#include "compiler/kernels/math.h"
#include "compiler/kernels/targets.h"

namespace nimble::codegen {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::bytes_of;
using kir::testing::KernelBuilder;

Function scale_kernel(const std::string& name, double by) {
  KernelBuilder k(name);
  const Dim n = k.symbol("n"), j = Dim::symbol("j");
  auto x = k.in("x", DType::kF32, n);
  auto y = k.out("y", DType::kF32, n);
  return k.body(
      {loop(LoopKind::kThread, "j", 0, n,
            store_masked(y, j, mul(math::exp(load_masked(x, j, 16, n - j)), f32(by)), n - j), 16)});
}

std::string hash_of(const Function& f, const char* level = "x86-64-v3") {
  return compile({&f, 1}, kernels::target_by_name(level)).functions.at(0).code_hash;
}

TEST(CodeHash, DependsOnCodeOnly) {
  const std::string hash = hash_of(scale_kernel("a", 2));
  EXPECT_EQ(hash.size(), 32u);
  EXPECT_EQ(hash_of(scale_kernel("a", 2)), hash);
  EXPECT_EQ(hash_of(scale_kernel("b", 2)), hash) << "the name is not a part of it";
  EXPECT_NE(hash_of(scale_kernel("a", 3)), hash) << "a constant is";
  const std::string v4 = hash_of(scale_kernel("a", 2), "x86-64-v4");
  EXPECT_NE(v4, hash) << "the target is";
  EXPECT_EQ(hash_of(scale_kernel("a", 2), "x86-64-v4-bf16"), v4)
      << "features that the kernel has no use for are not";
  const std::vector<Function> both = {scale_kernel("c", 3), scale_kernel("d", 2)};
  const CompiledObject object = compile(both, kernels::target_by_name("x86-64-v3"));
  EXPECT_EQ(object.functions.at(1).code_hash, hash) << "companions are not";
}

TEST(Link, IsDeterministicAndKeepsEveryKernel) {
  std::vector<Function> functions;
  constexpr int kCount = 24;  // more than one object takes
  for (int i = 0; i < kCount; ++i)
    functions.push_back(scale_kernel("kernel_" + std::to_string(i), i));
  const auto target = kernels::detect_host();
  const std::vector<CompiledObject> objects = compile_parallel(functions, target, 2);
  EXPECT_GT(objects.size(), 1u);
  const auto image = link(objects);
  for (int threads : {0, 1, 2, 3, 7})
    EXPECT_EQ(link(compile_parallel(functions, target, threads)), image) << threads << " threads";
  const auto loaded = rt::NativeImage::load(image, "test image");
  for (int i = 0; i < kCount; ++i) {
    auto fn = reinterpret_cast<nimble_kernel_fn>(
        const_cast<void*>(loaded->find("kernel_" + std::to_string(i))));
    ASSERT_NE(fn, nullptr);
    float x = 0, y = -1;
    void* buffers[] = {&x, &y};
    const int64_t n = 1;
    const nimble_kernel_args args{NIMBLE_KERNEL_ABI_VERSION, 2, buffers, &n, nullptr};
    EXPECT_EQ(fn(&args, 0, 1, nullptr), 0);
    EXPECT_EQ(y, static_cast<float>(i));
  }
}

// The parts of an ELF file that decide whether our loader takes it.
TEST(Link, NeedsNoLibrarySymbolOrRelocationByName) {
  const Function f = scale_kernel("k", 2);
  std::vector<std::string> levels = kernels::machine_levels();
  for (const std::string& level : levels) {
    const CompiledObject object = compile({&f, 1}, kernels::target_by_name(level));
    const auto image = link({&object, 1});
    Elf64_Ehdr header;
    ASSERT_GT(image.size(), sizeof header);
    std::memcpy(&header, image.data(), sizeof header);
    EXPECT_EQ(header.e_type, ET_DYN);
    EXPECT_EQ(header.e_machine, level.starts_with("aarch64") ? EM_AARCH64 : EM_X86_64);
    for (int i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      std::memcpy(&segment, &image[header.e_phoff + i * sizeof segment], sizeof segment);
      EXPECT_NE(segment.p_type, static_cast<uint32_t>(PT_INTERP)) << level;
      EXPECT_NE(segment.p_type, static_cast<uint32_t>(PT_TLS)) << level;
      EXPECT_NE(segment.p_flags & (PF_W | PF_X), static_cast<uint32_t>(PF_W | PF_X)) << level;
      if (segment.p_type != PT_DYNAMIC) continue;
      for (size_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;
           at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        std::memcpy(&entry, &image[at], sizeof entry);
        EXPECT_NE(entry.d_tag, DT_NEEDED) << level;
        EXPECT_NE(entry.d_tag, DT_JMPREL) << level;
        EXPECT_NE(entry.d_tag, DT_INIT_ARRAY) << level;
      }
    }
  }
}

TEST(Compile, RefusesKernelsOfAGpu) {
  KernelBuilder k("gpu");
  auto y = k.out("y", DType::kF32, 64);
  k.function().launch = Launch{{1, 1, 1}, 64};
  const Function f = k.body({store(y, Dim::symbol("thread"), f32(0))});
  try {
    compile({&f, 1}, kernels::target_by_name("x86-64-v3"));
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("x86-64-v3 has no blocks of threads"));
  }
}

TEST(Compile, EveryOptimisationLevelGivesTheSameResults) {
  const Function f = scale_kernel("k", 2);
  std::vector<float> x(100), want(100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 10 - 5;
  ASSERT_EQ(Interpreter(f).run({{bytes_of(x), bytes_of(want)}}, {{100}}), 0);
  for (int level : {0, 1, 2}) {
    const CompiledObject object =
        compile({&f, 1}, kernels::target_by_name("native"), {.optimize = level});
    const auto image = rt::NativeImage::load(link({&object, 1}), "test image");
    auto fn = reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(image->find("k")));
    std::vector<float> y(100);
    void* buffers[] = {x.data(), y.data()};
    const int64_t n = 100;
    const nimble_kernel_args args{NIMBLE_KERNEL_ABI_VERSION, 2, buffers, &n, nullptr};
    EXPECT_EQ(fn(&args, 0, 1, nullptr), 0);
    if (kernels::detect_host().has("fma")) {
      EXPECT_EQ(y, want) << level;
    }
  }
}

TEST(Target, LevelsNest) {
  const auto v2 = kernels::target_by_name("x86-64-v2"), v4 = kernels::target_by_name("x86-64-v4");
  EXPECT_TRUE(v4.has("avx512f") && v4.has("sse4.2"));
  EXPECT_FALSE(v2.has("avx2"));
  EXPECT_EQ(v4.lanes_f32(), 16);
  EXPECT_EQ(v2.lanes_f32(), 4);
  EXPECT_THROW(kernels::target_by_name("pentium"), Error);
}

}  // namespace
}  // namespace nimble::codegen
