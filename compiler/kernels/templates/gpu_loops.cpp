#include "compiler/kernels/templates/gpu_loops.h"

namespace nimble::kernels::gpu {

namespace kb = kir::build;
using kir::Dim;
using kir::StmtRef;

StmtRef stretched_loop(const std::string& var, int64_t count, int64_t most, StmtRef body) {
  const auto straight = [&](const Dim& begin, int64_t steps) {
    return kb::loop(kir::LoopKind::kUnroll, var, begin, steps, body);
  };
  if (count == 0) return kb::seq({});
  if (count <= most) return straight(0, count);
  int64_t steps = most;  // somewhat fewer, if that leaves no rest
  for (int64_t s = most; 2 * s > most; --s)
    if (count % s == 0) {
      steps = s;
      break;
    }
  const int64_t whole = count / steps;
  const std::string outer = var + "_stretch";
  std::vector<StmtRef> all = {kb::loop(kir::LoopKind::kSerial, outer, 0, whole,
                                       straight(Dim::symbol(outer) * steps, steps))};
  if (count % steps != 0) all.push_back(straight(whole * steps, count % steps));
  return kb::seq(std::move(all));
}

}  // namespace nimble::kernels::gpu
