// CUDA C++ to a cubin, or to assembly for a driver to compile.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "compiler/codegen/cuda/assembler_log.h"
#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/cuda/emitter.h"
#include "compiler/codegen/cuda/kept_code.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/parallel.h"
#include "compiler/kernels/unroll.h"
#include "vm/base/error.h"
#include "vm/base/gpu_target.h"
#include "vm/base/hash.h"

namespace nimble::codegen {
namespace {

const Nvrtc& nvrtc() {
  std::string why;
  const Nvrtc* library = Nvrtc::get(&why);
  if (!library)
    throw Error(Status::kUnsupported, "NVRTC", "it cannot be opened: " + why,
                "install NVIDIA's NVRTC, or say in NIMBLE_NVRTC where libnvrtc.so.13 or .12 is");
  return *library;
}

bool is_identifier(const std::string& name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_';
         });
}

// The kernel alone, without what stands before the first one; *alignment: CudaObject's.
std::string kernel_source(const kir::Function& f, const kernels::TargetInfo& target,
                          uint32_t* alignment = nullptr) {
  const std::string fault = kir::verify(f);
  NIMBLE_CHECK(fault.empty(), "malformed kernel: {}\n{}", fault, kir::print(f));
  NIMBLE_CHECK(is_identifier(f.name), "{} is no name of a GPU's kernel", f.name);
  if (!f.launch)
    throw Error(Status::kUnsupported, f.name, "it is a CPU's kernel: it has no launch");
  if (const int64_t bytes = kir::shared_bytes(f); bytes > target.shared_bytes)
    throw Error(Status::kUnsupported, f.name,
                fmt::format("its blocks take {} bytes of shared memory, those of {} have {}", bytes,
                            target.level, target.shared_bytes));
  const kir::Function unrolled = kir::unroll(f, {{"threads", f.launch->threads}});
  CudaEmitter emitter(unrolled, target);
  std::string text = emitter.run();
  if (alignment) *alignment = static_cast<uint32_t>(emitter.argument_alignment());
  return text;
}

std::string preamble(const kir::Function& f) {
  return "#define NIMBLE_DEVICE static __device__ __forceinline__\n" + std::string(cuda_prelude()) +
         fmt::format("extern __shared__ __align__({}) unsigned char nimble_shared[];\n",
                     kir::shared_alignment(f));
}

bool is_assembly(const kernels::TargetInfo& target) {
  const std::optional<GpuTarget> gpu = gpu_target(target.level);
  NIMBLE_CHECK(gpu, "{} is no GPU's", target.level);
  return gpu->assembly;
}

template <class T>
T read_at(const std::vector<uint8_t>& bytes, uint64_t at) {
  T out;
  NIMBLE_CHECK(at <= bytes.size() && sizeof out <= bytes.size() - at, "a cubin ends at {}",
               bytes.size());
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

// Bytes of each kernel's machine code: those of the section ".text.NAME".
std::map<std::string, uint64_t> code_bytes(const std::vector<uint8_t>& cubin) {
  const auto header = read_at<Elf64_Ehdr>(cubin, 0);
  NIMBLE_CHECK(
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64,
      "no cubin");
  const auto section = [&](uint64_t i) {
    return read_at<Elf64_Shdr>(cubin, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  std::map<std::string, uint64_t> out;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    std::string name;
    for (uint64_t at = names.sh_offset + s.sh_name;; ++at) {
      const char c = read_at<char>(cubin, at);
      if (c == '\0') break;
      name += c;
    }
    if (name.starts_with(".text.")) out[name.substr(6)] = s.sh_size;
  }
  return out;
}

}  // namespace

std::string why_no_cuda() {
  std::string why;
  Nvrtc::get(&why);
  return why;
}

void require_cuda(const kernels::TargetInfo& target) {
  if (const std::string why = why_no_cuda(); !why.empty())
    throw Error(Status::kUnsupported, "target " + target.level,
                "no code for GPUs can be made here: " + why,
                "install NVIDIA's toolkit or its wheel nvidia-cuda-nvrtc, or name the library in "
                "NIMBLE_NVRTC");
}

std::string cuda_flags() {
  return Nvrtc::options_text();
}

std::string cuda_backend_version() {
  const Nvrtc* library = Nvrtc::get();
  return library ? "NVRTC " + library->version() : "";
}

uint32_t argument_alignment(const kir::Function& f, const kernels::TargetInfo& target) {
  uint32_t out = 0;
  kernel_source(f, target, &out);
  return out;
}

std::string cuda_source(const kir::Function& f, const kernels::TargetInfo& target) {
  return preamble(f) + kernel_source(f, target);
}

namespace {

CudaObject compile_one(const kir::Function& f, const kernels::TargetInfo& target,
                       CodeCache* cache) {
  CudaObject out;
  const std::string source = preamble(f) + kernel_source(f, target, &out.argument_alignment);
  const Nvrtc& compiler = nvrtc();  // without it nothing is compiled, whatever is in the cache
  kir::Function anonymous = f;
  anonymous.name = "kernel";
  out.function = {f.name, hex(hash128(maker_of(target) + kir::print(anonymous) +
                                      cuda_source(anonymous, target)))};
  const Hash128 key = key_of_cuda(source, target);
  std::optional<Nvrtc::Output> output;
  if (cache)
    if (const auto kept = cache->find(key)) output = unpacked(*kept);
  out.cached = output.has_value();
  if (!output) {
    output = compiler.compile(source, target.level, false);
    if (cache) cache->keep(key, packed(*output));
  }
  out.bytes = std::move(output->code);
  if (is_assembly(target)) {
    const std::string_view text(reinterpret_cast<const char*>(out.bytes.data()), out.bytes.size());
    NIMBLE_CHECK(text.find(".entry " + f.name + "(") != text.npos, "{} is not in its assembly",
                 f.name);
    out.function.code_bytes = text.size();
    return out;
  }
  out.serialized = serialized_products(output->log);
  out.resources = resources_of(output->log)[f.name];
  const std::map<std::string, uint64_t> bytes = code_bytes(out.bytes);
  NIMBLE_CHECK(bytes.contains(f.name), "{} is not in its cubin", f.name);
  out.function.code_bytes = bytes.at(f.name);
  return out;
}

}  // namespace

std::vector<CudaObject> compile_cuda(std::span<const kir::Function> functions,
                                     const kernels::TargetInfo& target, int threads,
                                     CodeCache* cache) {
  std::vector<CudaObject> out(functions.size());
  run_parallel(functions.size(), threads, [&] {
    return [&](size_t i) { out[i] = compile_one(functions[i], target, cache); };
  });
  return out;
}

std::string cuda_assembly(const kir::Function& f, const kernels::TargetInfo& target) {
  return nvrtc().compile(cuda_source(f, target), target.level, true).ptx;
}

}  // namespace nimble::codegen
