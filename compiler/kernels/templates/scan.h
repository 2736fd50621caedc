// Running sums and products, for the templates of CPUs and GPUs.
#pragma once

#include <vector>

#include "compiler/kernels/templates/frame.h"

namespace nimble::kernels {

bool is_scan(const Workload& w);
// Whether lanes can be neighbouring rows: another axis than the last one is scanned.
bool scans_across(const Frame& frame);

// Rows, or blocks of `lanes` neighbouring ones (across alone), of which `body` takes number `item`.
struct ScanItems {
  kir::Dim count;
  kir::StmtRef body;
  std::vector<kir::BufferRef> registers;
};
ScanItems scan_items(const Workload& w, const Frame& frame, int lanes, int unroll);

}  // namespace nimble::kernels
