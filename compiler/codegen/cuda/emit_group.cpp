// What four warps do at once: products of tiles of shared memory, which go on beside the threads
// (PTX ISA, "wgmma"). The sums are operands that a product reads and writes, in and out of each
// statement of PTX, so that the compiler keeps them in their registers; between a product and its
// wait no statement of ours names them.
//
// The compiler does not know what it may move over a fence or a wait, so the sums go through these,
// too: what was written is there ahead of the fence, and what is read is read behind the wait. A
// wait that leaves products under way must not name them. Zeros that are written ahead of a loop
// would else be written again in its midst, where it has not run once, and the assembler would wait
// behind each product (compile.cpp tells what it says then).
#include <algorithm>

#include "compiler/codegen/cuda/emitter.h"
#include "compiler/kernels/group_fragments.h"
#include "vm/base/error.h"

namespace nimble::codegen {
namespace {

const char* constraint_of(DType sum) {
  return sum == DType::kF32 ? "f" : "r";
}

}  // namespace

void CudaEmitter::find_group_sums(const kir::Stmt& s) {
  if (s.kind == kir::StmtKind::kGroupDot) {
    const kir::Buffer* sum = s.tiles[0].buffer.get();
    if (std::find(group_sums_.begin(), group_sums_.end(), sum) == group_sums_.end())
      group_sums_.push_back(sum);
  }
  for (const kir::StmtRef& b : s.body) find_group_sums(*b);
}

// All of them as operands that a statement reads and writes.
std::string CudaEmitter::group_sums() const {
  std::string out;
  for (const kir::Buffer* b : group_sums_)
    for (int64_t i = 0; i < constant(b->extent); ++i)
      out += fmt::format("{}\"+{}\"({})", out.empty() ? "" : ", ", constraint_of(b->dtype),
                         register_name(*b, i, 0));
  return out;
}

void CudaEmitter::group_statement(const kir::Stmt& s) {
  if (!target_.has("wgmma"))
    refuse(fmt::format("products of a group of warps, which {} lacks", target_.level));
  switch (s.kind) {
    case kir::StmtKind::kGroupDot:
      return group_dot(s);
    case kir::StmtKind::kGroupFence:
      return line(fmt::format("asm volatile(\"wgmma.fence.sync.aligned;\" : {} : : \"memory\");",
                              group_sums()));
    case kir::StmtKind::kGroupCommit:
      return line("asm volatile(\"wgmma.commit_group.sync.aligned;\" : : : \"memory\");");
    case kir::StmtKind::kGroupWait:
      return line(
          fmt::format("asm volatile(\"wgmma.wait_group.sync.aligned {};\" : {} : : \"memory\");",
                      s.count, s.count == 0 ? group_sums() : ""));
    case kir::StmtKind::kProxyFence:
      return line("asm volatile(\"fence.proxy.async.shared::cta;\" : : : \"memory\");");
    default:
      NIMBLE_UNREACHABLE();
  }
}

std::string CudaEmitter::descriptor(const kir::GroupView& v) {
  return bind("u64",
              fmt::format("{:#x}ull | (u64)((shared_address({}) & 0x3ffffu) >> 4)",
                          kir::descriptor_of(v), pointer(*v.buffer, v.index, kir::kPieceBytes)));
}

void CudaEmitter::group_dot(const kir::Stmt& s) {
  const kir::GroupFragmentRow& row = kir::group_row_of(s.group_fragment);
  if (!target_.has(std::string(row.feature)))
    refuse(fmt::format("products of {}, which {} lacks", row.name, target_.level));
  const int sums = kir::GroupFragmentRow::sum_registers(s.columns);
  const int64_t first = constant(s.tiles[0].number);
  const std::string a = descriptor(s.views[0]), b = descriptor(s.views[1]);
  std::string registers, outputs;
  for (int i = 0; i < sums; ++i) {
    registers += fmt::format("{}%{}", i ? ", " : "", i);
    outputs += fmt::format("{}\"+{}\"({})", i ? ", " : "", constraint_of(row.sum),
                           register_name(*s.tiles[0].buffer, first + i, 0));
  }
  // Added to the sum; of floats, neither factor negated, and whether each lies across k.
  std::string modifiers = "1";
  if (is_float(row.sum))
    modifiers +=
        fmt::format(", 1, 1, {}, {}", s.views[0].along_k ? 0 : 1, s.views[1].along_k ? 0 : 1);
  line(fmt::format(
      "asm volatile(\"wgmma.mma_async.sync.aligned.m{}n{}k{}.{}.{}.{} {{{}}}, %{}, %{}, {};\"",
      kir::kGroupRows, s.columns, row.k, ptx_type(row.sum), ptx_type(row.a), ptx_type(row.b),
      registers, sums, sums + 1, modifiers));
  line(fmt::format("             : {} : \"l\"({}), \"l\"({}) : \"memory\");", outputs, a, b));
}

}  // namespace nimble::codegen
