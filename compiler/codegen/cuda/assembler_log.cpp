#include "compiler/codegen/cuda/assembler_log.h"

#include <algorithm>
#include <sstream>

namespace nimble::codegen {
namespace {

// The number before a word, as in "16 registers"; 0 if there is none.
int64_t number_before(const std::string& line, const std::string& word) {
  const size_t end = line.find(word);
  if (end == std::string::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  return begin == end ? 0 : std::stoll(line.substr(begin, end - begin));
}

}  // namespace

// A line with the kernel's name, and then for each of its functions, itself among them, a line of
// spills and perhaps one of what it uses.
std::map<std::string, CudaResources> resources_of(const std::string& log) {
  std::map<std::string, CudaResources> out;
  std::istringstream in(log);
  std::string kernel;
  for (std::string line; std::getline(in, line);) {
    if (line.find("Compiling entry function") != std::string::npos) {
      const size_t begin = line.find('\''), end = line.find('\'', begin + 1);
      kernel = end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
    }
    if (kernel.empty()) continue;
    CudaResources& r = out[kernel];
    r.spill_bytes = std::max(r.spill_bytes, number_before(line, " bytes spill stores") +
                                                number_before(line, " bytes spill loads"));
    if (line.find("Used ") == std::string::npos) continue;
    r.registers = std::max(r.registers, static_cast<int>(number_before(line, " registers")));
    r.shared_bytes = std::max(r.shared_bytes, number_before(line, " bytes smem"));
  }
  return out;
}

std::string serialized_products(const std::string& log) {
  for (const char* said :
       {"wgmma.mma_async instructions are serialized", "warpgroup.wait is injected"}) {
    const size_t at = log.find(said);
    if (at == log.npos) continue;
    const size_t begin = log.rfind('\n', at) + 1;  // npos + 1: of the first line
    return log.substr(begin, log.find('\n', at) - begin);
  }
  return {};
}

}  // namespace nimble::codegen
