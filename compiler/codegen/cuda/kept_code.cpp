#include "compiler/codegen/cuda/kept_code.h"

#include <cstring>

#include "compiler/codegen/code_cache.h"
#include "compiler/codegen/cuda/cuda.h"

namespace nimble::codegen {

std::string maker_of(const kernels::TargetInfo& target) {
  return target.level + "\n" + cuda_backend_version() + "\n";
}

Hash128 key_of_cuda(const std::string& source, const kernels::TargetInfo& target) {
  return CodeCache::key_of(maker_of(target) + Nvrtc::options_text() + "\n" + source);
}

// How long the log is, the log, the code.
std::vector<uint8_t> packed(const Nvrtc::Output& output) {
  const uint64_t log = output.log.size();
  std::vector<uint8_t> out(sizeof log);
  std::memcpy(out.data(), &log, sizeof log);
  out.insert(out.end(), output.log.begin(), output.log.end());
  out.insert(out.end(), output.code.begin(), output.code.end());
  return out;
}

std::optional<Nvrtc::Output> unpacked(std::span<const uint8_t> bytes) {
  uint64_t log = 0;
  if (bytes.size() < sizeof log) return std::nullopt;
  std::memcpy(&log, bytes.data(), sizeof log);
  if (log > bytes.size() - sizeof log) return std::nullopt;
  const auto begin = bytes.begin() + sizeof log, end = begin + static_cast<ptrdiff_t>(log);
  return Nvrtc::Output{{end, bytes.end()}, "", {begin, end}};
}

}  // namespace nimble::codegen
