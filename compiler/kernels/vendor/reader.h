// Reads a workload as a call of a vendor's routine: the anchor as the routine's own file says, what
// is fused behind it as steps. Internal to compiler/kernels/vendor.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/workload.h"
#include "vm/base/error.h"
#include "vm/executable/vendor_call.h"
#include "vm/executable/vendor_epilogue.h"

namespace nimble::kernels::vendor {

struct Refused {
  std::string why;
};

struct OpRow;

class Reader {
 public:
  // Of a GPU's library, or a CPU's.
  Reader(const Workload& w, bool gpu) : w_(w), gpu_(gpu) {}

  // The call, but for the names of routine and library. `read_anchor` tells it what the anchor is;
  // nullptr: there is no routine for it, which is refused. Throws Refused.
  exec::VendorCall read(void (*read_anchor)(Reader& reader, const ir::Expr& anchor));

  // ---- for `read_anchor`

  exec::VendorCall& call() { return out_; }
  // The contract's tensor that an operand is. Throws Refused where it is computed in the kernel.
  uint32_t tensor(const ir::Atom& operand) const;
  // Whether it is one of the kernel's own parameters, and constant.
  bool is_constant(const ir::Atom& operand) const;
  // The first step: a number for each channel of an image.
  void add_bias(const ir::Atom& operand);

 private:
  void read_arguments();
  void read_alias(const ir::Binding& b);
  bool is_value(const ir::Atom& a) const { return a.is_var() && a.var.get() == value_; }
  bool uses_value(const ir::Expr& e) const;
  bool is_swish(const ir::Binding& a, const ir::Binding& b) const;
  void read_step(const ir::Binding& b, bool last);
  void expect_sum(const ir::Atom& other);
  std::optional<exec::VendorStep> with_number(const OpRow& row, const ir::Expr& e) const;
  void add(const exec::VendorStep& step);

  const Workload& w_;
  const bool gpu_;
  exec::VendorCall out_;
  bool has_row_ = false, has_whole_ = false;    // among the sums of a GPU's routine
  std::map<const ir::Var*, uint32_t> tensor_;   // the contract's, by what names it
  std::map<const ir::Var*, size_t> parameter_;  // its place among the parameters
  std::vector<ir::Dim> dims_;                   // of every value
  const ir::Var* value_ = nullptr;              // so far
};

// An extent of the weights. Throws Refused where it is unknown.
int64_t constant_extent(const ir::Dim& d);

template <size_t N>
void read_ints(const ir::Expr& e, const char* name, std::array<int64_t, N>& out) {
  const auto& values = ir::attr<std::vector<int64_t>>(e.attrs, name);
  NIMBLE_CHECK(values.size() == N, "{} of {}", name, e.op);
  std::copy(values.begin(), values.end(), out.begin());
}
// Groups, strides, dilations and padding of a convolution.
void read_windows(const ir::Expr& e, exec::VendorCall::Image* image);

// The element types of the contract's tensors, in order.
std::vector<DType> tensor_types(const Workload& w);
// Why a GPU's library does not compute the call; "" if it does. `fault_of` says so of what is
// behind it, and of the types of x, w and y.
std::string fault_on_gpu(
    const exec::VendorCall& call, const Workload& w,
    const std::function<std::string(const exec::VendorEpilogue&, DType, DType, DType)>& fault_of);

// Of each row of the table: tells what the anchor is; and why the routine does not compute the call
// of these types, "" if it does.
#define NIMBLE_VENDOR_ROUTINE(library, routine, ...)                       \
  void read_##library##_##routine(Reader& reader, const ir::Expr& anchor); \
  std::string fault_of_##library##_##routine(const exec::VendorCall& call, const Workload& w);
#include "vm/executable/VendorRoutines.def"
#undef NIMBLE_VENDOR_ROUTINE

}  // namespace nimble::kernels::vendor
