// Signals and copies of boxes (PTX ISA, "mbarrier" and "cp.async.bulk.tensor"). A wait tries again
// until the phase is over; each try sleeps for as long as the hardware finds right. The kernel's
// tensor maps are parameters, whose addresses the copies take.
#include "compiler/codegen/cuda/emitter.h"
#include "vm/base/error.h"

namespace nimble::codegen {

void CudaEmitter::signal_statement(const kir::Stmt& s) {
  if (!target_.has("tma")) refuse(fmt::format("signals, which {} lacks", target_.level));
  if (s.kind == kir::StmtKind::kTensorCopy) return tensor_copy(s);
  const std::string at = fmt::format("shared_address({})", pointer(*s.buffer, s.index, 8));
  switch (s.kind) {
    case kir::StmtKind::kSignalInit:
      return line(fmt::format(
          "asm volatile(\"mbarrier.init.shared::cta.b64 [%0], {};\" : : \"r\"({}) : \"memory\");",
          s.count, at));
    case kir::StmtKind::kSignalArrive:
      return line(
          fmt::format("asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], "
                      "{};\" : : \"r\"({}) : \"memory\");",
                      s.count, at));
    case kir::StmtKind::kSignalWait: {
      const std::string parity = bind("u32", fmt::format("(u32)({}) & 1u", dim(s.phase).text));
      const std::string over = fresh();
      line(fmt::format("u32 {};", over));
      line("do {");
      line(
          "  asm volatile(\"{ .reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, "
          "[%1], %2; selp.u32 %0, 1, 0, over; }\"");
      line(fmt::format("               : \"=r\"({}) : \"r\"({}), \"r\"({}) : \"memory\");", over,
                       at, parity));
      return line(fmt::format("}} while ({} == 0);", over));
    }
    default:
      NIMBLE_UNREACHABLE();
  }
}

void CudaEmitter::tensor_copy(const kir::Stmt& s) {
  const size_t rank = s.coordinates.size();
  const std::string to = pointer(*s.to_buffer, s.to_index, 1),
                    signal = pointer(*s.buffer, s.index, 8);
  std::string numbers, coordinates;
  for (size_t axis = 0; axis < rank; ++axis) {
    numbers += fmt::format("{}%{}", axis ? ", " : "", axis + 3);
    coordinates += fmt::format(", \"r\"((i32)({}))", dim(s.coordinates[axis]).text);
  }
  line(
      fmt::format("asm volatile(\"cp.async.bulk.tensor.{}d.shared::cluster.global.tile."
                  "mbarrier::complete_tx::bytes [%0], [%1, {{{}}}], [%2];\"",
                  rank, numbers));
  line(
      fmt::format("             : : \"r\"(shared_address({})), \"l\"((u64)&{}), "
                  "\"r\"(shared_address({})){} : \"memory\");",
                  to, maps_.at(s.map.get()), signal, coordinates));
}

}  // namespace nimble::codegen
