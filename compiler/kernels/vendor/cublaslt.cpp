// cuBLASLt's products of matrices, either side transposed or not.
#include "compiler/kernels/vendor/reader.h"

namespace nimble::kernels::vendor {

void read_cublaslt_matmul(Reader& reader, const ir::Expr& e) {
  exec::VendorCall& call = reader.call();
  call.x = reader.tensor(e.args[0]);
  call.w = reader.tensor(e.args[1]);
  call.transpose_x = ir::attr_or(e.attrs, "transpose_a", false);
  call.transpose_w = ir::attr_or(e.attrs, "transpose_b", false);
  call.tf32 = ir::attr_or(e.attrs, "tf32", false) && ir::type_of(e.args[0])->dtype == DType::kF32;
  const auto& w = ir::type_of(e.args[1])->dims;
  if (w.size() < 2 || ir::type_of(e.args[0])->dims.size() < 2)
    throw Refused{"the vendor's routine takes no vectors"};
  const auto& rows = w[w.size() - 2];
  const auto& columns = w.back();
  const auto known = [](const ir::Dim& d) {
    return std::max<int64_t>(0, d.as_constant().value_or(0));
  };
  call.k = known(call.transpose_w ? columns : rows);
  call.n = known(call.transpose_w ? rows : columns);
}

std::string fault_of_cublaslt_matmul(const exec::VendorCall& call, const Workload& w) {
  return fault_on_gpu(call, w, [](const exec::VendorEpilogue&, DType x, DType weights, DType y) {
    return exec::fault_of_gpu_types(x, weights, y);
  });
}

}  // namespace nimble::kernels::vendor
