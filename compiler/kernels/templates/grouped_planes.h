// Images with channels first for products that take neighbouring channels in groups (bf16 by two,
// bytes by four): neighbours in memory are pixels of one channel there. The kernel copies the image
// ahead of its product, a pixel's channels of a group side by side, the last group filled up with
// zeros:
//
//   (n, c, h, w)    =>    (n, ceil(c / group), h, w, group)
//
// The copy is made 32 bits of a pixel at a time, in vectors of pixels: the bits of each channel are
// shifted to their place. Written as a transposition ahead of the kernel it would be one element at
// a time. A photograph's three channels are read some ten times by each of the filters' panels, so
// the copy is a few hundredths of the time.
#pragma once

#include <string>
#include <vector>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels {

struct GroupedPlanes {
  kir::BufferRef from;
  int64_t channels = 1, group = 1;
  kir::Dim images, pixels;      // pixels of a plane
  kir::BufferRef to = nullptr;  // a scratch of all threads, its elements as wide as 4 bytes hold

  int64_t planes() const { return (channels + group - 1) / group; }
  void make_copy(DType type, const std::string& name);
};

// Makes the copy, each thread a share of every plane, and waits for the others. Nothing else of the
// kernel may check an index: a failed check leaves it.
std::vector<kir::StmtRef> group_planes(const GroupedPlanes& p, int lanes);

}  // namespace nimble::kernels
