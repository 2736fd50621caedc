// NVRTC, opened at run time: CUDA C++ to a GPU's machine code. No header of CUDA's is needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::codegen {

class Nvrtc {
 public:
  // The library that NIMBLE_NVRTC names (a file, or the folder of it), else the system's. Null
  // where there is none; *why then says what was tried.
  static const Nvrtc* get(std::string* why = nullptr);

  struct Output {
    // A cubin; of "compute_80" PTX, without the zero that ends it.
    std::vector<uint8_t> code;
    std::string ptx;  // if asked for
    std::string log;  // of the assembler, too
  };
  // `architecture`: "sm_90a", "compute_80". An internal error if that does not compile: what
  // nimble prints must. The process's first tells of a file with the source.
  Output compile(const std::string& source, const std::string& architecture, bool ptx) const;
  // Of every compilation, but for the architecture.
  static std::string options_text();
  const std::string& version() const { return version_; }  // "13.0"

 private:
  struct Functions;
  explicit Nvrtc(void* library);

  const Functions* functions_ = nullptr;  // null: `why_`
  std::string version_, why_;
};

}  // namespace nimble::codegen
