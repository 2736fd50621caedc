#include "compiler/codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/gpu_target.h"
#include "vm/base/nvrtc_library.h"

namespace nimble::codegen {
namespace {

// As NVRTC's documentation has them.
struct Program;
constexpr int kSuccess = 0;

// Arithmetic is what kernel IR says: nothing contracted, approximated or flushed.
constexpr const char* kOptions[] = {"--std=c++17",        "--fmad=false",      "--ftz=false",
                                    "--prec-div=true",    "--prec-sqrt=true",  "--restrict",
                                    "--disable-warnings", "--ptxas-options=-v"};

constexpr const char* kUnkept = "kernels.cu";

// A file with a source that NVRTC refuses, or kUnkept. A campaign may try thousands of such
// candidates: of one process the first is kept, and nothing written over it.
std::string keep_refused(const std::string& source) {
  static std::atomic<bool> kept{false};
  if (kept.exchange(true)) return kUnkept;
  std::error_code ignored;
  const std::string file =
      (std::filesystem::temp_directory_path(ignored) / fmt::format("nimble-cuda-{}.cu", ::getpid()))
          .string();
  try {
    write_file_atomically(file, std::string_view(source));
  } catch (const Error&) {  // the log is told anyway
    return kUnkept;
  }
  return file;
}

}  // namespace

struct Nvrtc::Functions {
  int (*create)(Program** program, const char* source, const char* name, int headers,
                const char* const* texts, const char* const* names);
  int (*destroy)(Program** program);
  int (*compile)(Program* program, int options, const char* const* texts);
  int (*log_size)(Program* program, size_t* bytes);
  int (*log)(Program* program, char* to);
  int (*cubin_size)(Program* program, size_t* bytes);
  int (*cubin)(Program* program, char* to);
  int (*ptx_size)(Program* program, size_t* bytes);
  int (*ptx)(Program* program, char* to);
  const char* (*error)(int result);
};

Nvrtc::Nvrtc(void* library) {
  static Functions f;  // there is one library
  const auto find = [&](auto& function, const char* name) {
    void* symbol = ::dlsym(library, name);
    if (!symbol) why_ = std::string("it lacks ") + name;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
  };
  find(f.create, "nvrtcCreateProgram");
  find(f.destroy, "nvrtcDestroyProgram");
  find(f.compile, "nvrtcCompileProgram");
  find(f.log_size, "nvrtcGetProgramLogSize");
  find(f.log, "nvrtcGetProgramLog");
  find(f.cubin_size, "nvrtcGetCUBINSize");
  find(f.cubin, "nvrtcGetCUBIN");
  find(f.ptx_size, "nvrtcGetPTXSize");
  find(f.ptx, "nvrtcGetPTX");
  find(f.error, "nvrtcGetErrorString");
  if (!why_.empty()) return;
  version_ = nvrtc_library().version;
  functions_ = &f;
}

const Nvrtc* Nvrtc::get(std::string* why) {
  const NvrtcLibrary& library = nvrtc_library();
  if (!library.handle) {
    if (why) *why = library.why;
    return nullptr;
  }
  static const Nvrtc nvrtc(library.handle);
  if (why) *why = nvrtc.why_;
  return nvrtc.functions_ ? &nvrtc : nullptr;
}

std::string Nvrtc::options_text() {
  return fmt::format("{}", fmt::join(kOptions, " "));
}

Nvrtc::Output Nvrtc::compile(const std::string& source, const std::string& architecture,
                             bool ptx) const {
  const Functions& f = *functions_;
  const auto check = [&](int result, const char* what) {
    NIMBLE_CHECK(result == kSuccess, "NVRTC, {}: {}", what, f.error(result));
  };
  Program* program = nullptr;
  // The name is a part of what it makes, so it is always the same.
  check(f.create(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr), "create");
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(target.c_str());
  const int result = f.compile(program, static_cast<int>(options.size()), options.data());
  const auto read = [&](auto& to, auto size, auto get) {
    size_t bytes = 0;
    check(size(program, &bytes), "size");
    to.resize(bytes);
    if (bytes) check(get(program, reinterpret_cast<char*>(to.data())), "read");
  };
  Output out;
  read(out.log, f.log_size, f.log);
  while (!out.log.empty() && out.log.back() == '\0') out.log.pop_back();
  if (result != kSuccess) {
    const std::string file = keep_refused(source);
    f.destroy(&program);
    for (char& c : out.log)
      if (c == '\n') c = ' ';
    // No abort: of a tuner's many candidates one that the assembler cannot take (registers, say) is
    // one less.
    throw Error(Status::kInternal, file,
                fmt::format("NVRTC refuses this kernel ({}): {}", f.error(result), out.log),
                file == kUnkept ? "compile the kernel alone, and report it with the file that is "
                                  "told then"
                                : "please report it with that file");
  }
  const std::optional<GpuTarget> gpu = gpu_target(architecture);
  const bool assembly = gpu && gpu->assembly;
  if (!assembly) read(out.code, f.cubin_size, f.cubin);
  if (ptx || assembly) {
    read(out.ptx, f.ptx_size, f.ptx);
    while (!out.ptx.empty() && out.ptx.back() == '\0') out.ptx.pop_back();
  }
  if (assembly) out.code.assign(out.ptx.begin(), out.ptx.end());
  check(f.destroy(&program), "destroy");
  return out;
}

}  // namespace nimble::codegen
