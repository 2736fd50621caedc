#include "compiler/kernels/vendor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "vm/base/error.h"
#include "vm/executable/vendor_epilogue.h"

namespace nimble::kernels {
namespace {

using exec::KernelArgument;
using exec::VendorCall;
using exec::VendorOp;
using exec::VendorStep;
using ir::Atom;
using ir::Binding;
using ir::Expr;
using Ints = std::vector<int64_t>;

// More than this a library refuses, and nobody fuses.
constexpr size_t kMostSteps = 32;

struct OpRow {
  VendorOp op;
  std::string_view name, alpha, beta;
};
constexpr OpRow kOps[] = {
#define NIMBLE_VENDOR_OP(name, spelling, op, has_operand, alpha, beta) \
  {VendorOp::k##name, op, alpha, beta},
#include "vm/executable/VendorOps.def"
#undef NIMBLE_VENDOR_OP
};

struct Refused {
  std::string why;
};

class Reader {
 public:
  Reader(const Workload& w, bool gpu) : w_(w), gpu_(gpu) {}

  VendorCall read() {
    read_arguments();
    const auto& bindings = w_.group->body->bindings;
    const auto anchor = std::find_if(bindings.begin(), bindings.end(), [&](const Binding& b) {
      return b.value->kind == ir::ExprKind::kCall && b.value->op == w_.anchor;
    });
    if (anchor == bindings.end()) throw Refused{"the vendor has no routine for " + w_.anchor};
    for (const Binding& b : bindings)
      if (&b < &*anchor) read_alias(b);
    read_anchor(*anchor->value);
    value_ = anchor->var.get();
    if (anchor->var->type->kind != ir::TypeKind::kTensor) throw Refused{"it has several results"};
    dims_ = anchor->var->type->dims;
    for (auto b = anchor + 1; b != bindings.end(); ++b) {
      const auto next = b + 1;
      if (next != bindings.end() && is_swish(*b, *next)) {
        add({VendorOp::kSwish});
        value_ = next->var.get();
        b = next;
      } else if (uses_value(*b->value)) {
        read_step(*b, next == bindings.end());
        value_ = b->var.get();
      } else {
        read_alias(*b);
      }
    }
    const Atom& result = w_.group->body->result;
    if (!result.is_var() || result.var.get() != value_)
      throw Refused{"the vendor's routine has one result, the last value"};
    return out_;
  }

 private:
  void read_arguments() {
    uint32_t tensors = 0;
    std::optional<uint32_t> result;
    for (size_t i = 0; i < w_.contract.arguments.size(); ++i) {
      const KernelArgument& a = w_.contract.arguments[i];
      if (a.kind == KernelArgument::Kind::kData) throw Refused{"it reads a data type's value"};
      if (a.kind != KernelArgument::Kind::kTensor) continue;
      if (i < w_.group->parameters.size() && a.access == exec::Access::kIn) {
        tensor_[w_.group->parameters[i].get()] = tensors;
        parameter_[w_.group->parameters[i].get()] = i;
      } else if (a.access == exec::Access::kOut && !result) {
        result = tensors;
      } else {
        throw Refused{"the vendor's routine has one result"};
      }
      ++tensors;
    }
    if (!result) throw Refused{"it has no result"};
    out_.y = *result;
  }

  uint32_t tensor(const Atom& a) const {
    const auto it = a.is_var() ? tensor_.find(a.var.get()) : tensor_.end();
    if (it == tensor_.end()) throw Refused{"an operand is computed in the same kernel"};
    return it->second;
  }

  // An operand that is only widened: the library reads it as it was.
  void read_alias(const Binding& b) {
    const Expr& e = *b.value;
    const bool widens = e.kind == ir::ExprKind::kCall && e.op == "cast" && e.args[0].is_var() &&
                        b.var->type->dtype == DType::kF32 &&
                        (ir::type_of(e.args[0])->dtype == DType::kBF16 ||
                         ir::type_of(e.args[0])->dtype == DType::kI32);
    if (!widens) throw Refused{"an operand is computed in the same kernel"};
    tensor_[b.var.get()] = tensor(e.args[0]);
  }

  void read_anchor(const Expr& e) {
    const bool packed_product = e.op == "packed_matmul", product = e.op == "matmul";
    if (gpu_) return e.op == "conv2d" ? read_gpu_convolution(e) : read_gpu_product(e);
    if (packed_product || product) {
      out_.routine = "onednn.matmul";
      out_.x = tensor(e.args[0]);
      out_.w = tensor(e.args[1]);
      if (product) {
        if (ir::attr_or(e.attrs, "transpose_a", false) ||
            ir::attr_or(e.attrs, "transpose_b", false))
          throw Refused{"the vendor's routine takes no transposed operands"};
        const ir::Type w = ir::type_of(e.args[1]);
        if (w->dims.size() != 2 || ir::type_of(e.args[0])->dims.size() < 2)
          throw Refused{"the vendor's routine takes one matrix on the right"};
        out_.k = std::max<int64_t>(0, w->dims[0].as_constant().value_or(0));
        out_.n = std::max<int64_t>(0, w->dims[1].as_constant().value_or(0));
      } else {
        out_.k = ir::attr<int64_t>(e.attrs, "k");
        out_.n = ir::attr<int64_t>(e.attrs, "n");
        out_.panel = panel(e);
      }
      return;
    }
    const bool packed_convolution = e.op == "packed_conv2d";
    if (!packed_convolution && e.op != "conv2d")
      throw Refused{"the vendor has no routine for " + w_.anchor};
    out_.routine = "onednn.conv2d";
    out_.x = tensor(e.args[0]);
    out_.w = tensor(e.args[1]);
    VendorCall::Image image;
    image.groups = ir::attr_or<int64_t>(e.attrs, "groups", 1);
    read_ints(e, "strides", image.strides);
    read_ints(e, "dilations", image.dilations);
    read_ints(e, "pads", image.pads);
    if (packed_convolution) {
      read_ints(e, "kernel", image.kernel);
      image.channels_first = ir::attr_or<std::string>(e.attrs, "image_layout", "nhwc") == "nchw";
      const int64_t channels = constant(ir::type_of(e.args[0])->dims[image.channels_first ? 1 : 3]);
      out_.k = image.kernel[0] * image.kernel[1] * (channels / image.groups);
      out_.n = ir::attr<int64_t>(e.attrs, "filters");
      out_.panel = panel(e);
    } else {
      const auto& weights = ir::type_of(e.args[1])->dims;
      if (!ir::image_layout_of(e.attrs).channels_last())
        throw Refused{"the vendor's routine takes images with channels last"};
      const auto place = parameter_.find(e.args[1].var.get());  // none of what is widened here
      if (place == parameter_.end() || place->second >= w_.constant_parameter.size() ||
          !w_.constant_parameter[place->second])
        throw Refused{"a convolution's weights must be constant"};
      image.kernel = {constant(weights[0]), constant(weights[1])};
      out_.k = image.kernel[0] * image.kernel[1] * constant(weights[2]);
      out_.n = constant(weights[3]);
    }
    out_.image = image;
    if (e.args.size() == 3) add({VendorOp::kAdd, tensor(e.args[2])});
  }

  void read_gpu_product(const Expr& e) {
    if (e.op != "matmul") throw Refused{"the vendor has no routine for " + w_.anchor};
    out_.routine = "cublaslt.matmul";
    out_.x = tensor(e.args[0]);
    out_.w = tensor(e.args[1]);
    out_.transpose_x = ir::attr_or(e.attrs, "transpose_a", false);
    out_.transpose_w = ir::attr_or(e.attrs, "transpose_b", false);
    const auto& w = ir::type_of(e.args[1])->dims;
    if (w.size() < 2 || ir::type_of(e.args[0])->dims.size() < 2)
      throw Refused{"the vendor's routine takes no vectors"};
    const auto& rows = w[w.size() - 2];
    const auto& columns = w.back();
    const auto known = [](const ir::Dim& d) {
      return std::max<int64_t>(0, d.as_constant().value_or(0));
    };
    out_.k = known(out_.transpose_w ? columns : rows);
    out_.n = known(out_.transpose_w ? rows : columns);
  }

  void read_gpu_convolution(const Expr& e) {
    out_.routine = "cudnn.conv2d";
    out_.x = tensor(e.args[0]);
    out_.w = tensor(e.args[1]);
    if (ir::image_layout_of(e.attrs).channels_last())
      throw Refused{"the vendor's routine takes images with channels first"};
    VendorCall::Image image;
    image.channels_first = true;
    image.groups = ir::attr_or<int64_t>(e.attrs, "groups", 1);
    read_ints(e, "strides", image.strides);
    read_ints(e, "dilations", image.dilations);
    read_ints(e, "pads", image.pads);
    const auto& weights = ir::type_of(e.args[1])->dims;
    image.kernel = {constant(weights[2]), constant(weights[3])};
    out_.k = image.kernel[0] * image.kernel[1] * constant(weights[1]);
    out_.n = constant(weights[0]);
    out_.image = image;
    if (e.args.size() < 3) return;
    has_row_ = true;
    add({VendorOp::kAdd, tensor(e.args[2])});
  }

  static int64_t constant(const ir::Dim& d) {
    const auto v = d.as_constant();
    if (!v || *v < 1) throw Refused{"the weights have no constant size"};
    return *v;
  }

  static VendorCall::Panel panel(const Expr& e) {
    const auto layout = ir::parse_layout(ir::attr<std::string>(e.attrs, "layout"));
    if (!layout || layout->kind != ir::Layout::Kind::kPanel)
      throw Refused{"the weights are not in panels"};
    return {layout->width, layout->group};
  }

  template <size_t N>
  static void read_ints(const Expr& e, const char* name, std::array<int64_t, N>& out) {
    const auto& values = ir::attr<Ints>(e.attrs, name);
    NIMBLE_CHECK(values.size() == N, "{} of {}", name, e.op);
    std::copy(values.begin(), values.end(), out.begin());
  }

  bool is_value(const Atom& a) const { return a.is_var() && a.var.get() == value_; }
  bool uses_value(const Expr& e) const {
    return std::any_of(e.args.begin(), e.args.end(), [&](const Atom& a) { return is_value(a); });
  }

  // t = sigmoid(v), v * t
  bool is_swish(const Binding& a, const Binding& b) const {
    const Expr &first = *a.value, &second = *b.value;
    if (first.kind != ir::ExprKind::kCall || second.kind != ir::ExprKind::kCall ||
        first.op != "sigmoid" || second.op != "mul" || !is_value(first.args[0]))
      return false;
    const auto is_first = [&](const Atom& x) { return x.is_var() && x.var == a.var; };
    return (is_value(second.args[0]) && is_first(second.args[1])) ||
           (is_value(second.args[1]) && is_first(second.args[0]));
  }

  // What is bound to `b`, computed from the value so far.
  void read_step(const Binding& b, bool last) {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall)
      throw Refused{"the vendor's routine has one result, the last value"};
    if (b.var->type->kind != ir::TypeKind::kTensor || b.var->type->dims != dims_)
      throw Refused{"what follows has other extents"};
    const DType from = ir::type_of(e.args[0])->dtype, to = b.var->type->dtype;
    if (e.op == "cast" && is_value(e.args[0])) {
      // Values are f32 on the way. Where ours are rounded, theirs must be.
      const bool sums = from == DType::kI32 && to == DType::kF32;
      const bool rounds = from == DType::kF32 && to == DType::kBF16 && last;
      if (!sums && !rounds) throw Refused{"the vendor's routine rounds elsewhere"};
      return;
    }
    const OpRow* row = std::find_if(std::begin(kOps), std::end(kOps), [&](const OpRow& r) {
      return !r.name.empty() && r.name == e.op;
    });
    if (row == std::end(kOps)) throw Refused{"the vendor's routine has no " + e.op + " behind it"};
    if (to != DType::kF32 && to != DType::kI32)
      throw Refused{"the vendor's routine rounds elsewhere"};
    if (const std::optional<VendorStep> linear = with_number(*row, e)) return add(*linear);
    VendorStep step{row->op};
    if (!row->alpha.empty()) step.alpha = number(e, row->alpha);
    if (!row->beta.empty()) step.beta = number(e, row->beta);
    if (exec::has_operand(row->op)) {
      const bool turned = !is_value(e.args[0]);
      if (turned && !ir::traits_of(e).commutative)
        throw Refused{"the vendor's routine has no " + e.op + " with its value on the right"};
      const Atom& other = e.args[turned ? 0 : 1];
      if (is_value(other) && is_value(e.args[turned ? 1 : 0]))
        throw Refused{"the value meets itself"};
      step.tensor = tensor(other);
      if (gpu_) expect_sum(other);
    } else if (!is_value(e.args[0])) {
      throw Refused{"the vendor's routine has no such operands"};
    }
    add(step);
  }

  // A GPU's library adds one row to all, or a number to each channel of an image, and one tensor as
  // large as the value. What symbols leave open is seen at run time (vm/library/cublaslt.cpp,
  // vm/library/cudnn.cpp).
  void expect_sum(const Atom& other) {
    const auto& dims = ir::type_of(other)->dims;
    const auto is_one = [](const ir::Dim& d) { return d.is_constant(1); };
    const size_t behind = out_.image ? 2 : 0;  // axes of space
    const bool row = dims.size() > behind &&
                     dims[dims.size() - 1 - behind] == dims_[dims_.size() - 1 - behind] &&
                     std::all_of(dims.end() - behind, dims.end(), is_one) &&
                     std::all_of(dims.begin(), dims.end() - 1 - behind, is_one);
    if (row && !has_row_)
      has_row_ = true;
    else if (dims == dims_ && !has_whole_)
      has_whole_ = true;
    else
      throw Refused{
          "the vendor's routine adds one row or a number to each channel, and one tensor "
          "as large"};
  }

  // A sum, a difference or a product of the value with a number that stands in the program.
  std::optional<VendorStep> with_number(const OpRow& row, const Expr& e) const {
    if (e.args.size() != 2) return std::nullopt;
    const bool turned = is_value(e.args[1]);
    const Atom& other = e.args[turned ? 0 : 1];
    if (!other.is_constant() || other.constant->elements() != 1) return std::nullopt;
    const auto v = static_cast<float>(other.constant->value(0));
    if (!std::isfinite(v)) return std::nullopt;
    switch (row.op) {
      case VendorOp::kAdd:
        return VendorStep{VendorOp::kLinear, 0, 1, v};
      case VendorOp::kMul:
        return VendorStep{VendorOp::kLinear, 0, v, 0};
      case VendorOp::kSub:
        return turned ? VendorStep{VendorOp::kLinear, 0, -1, v}
                      : VendorStep{VendorOp::kLinear, 0, 1, -v};
      default:
        return std::nullopt;
    }
  }

  static float number(const Expr& e, std::string_view name) {
    const auto it = e.attrs.find(std::string(name));
    if (it == e.attrs.end() || !std::holds_alternative<double>(it->second))
      throw Refused{fmt::format("{} has no {}", e.op, name)};
    // The configuration is JSON, which has no infinity.
    const double v = std::get<double>(it->second);
    if (!(std::abs(v) <= std::numeric_limits<float>::max()))
      throw Refused{fmt::format("the vendor's routine takes no {} of {} beyond f32", name, e.op)};
    return static_cast<float>(v);
  }

  void add(const VendorStep& step) {
    if (out_.then.size() == kMostSteps) throw Refused{"too much is fused behind it"};
    out_.then.push_back(step);
  }

  const Workload& w_;
  const bool gpu_;
  VendorCall out_;
  bool has_row_ = false, has_whole_ = false;    // among the sums of a GPU's routine
  std::map<const ir::Var*, uint32_t> tensor_;   // the contract's, by what names it
  std::map<const ir::Var*, size_t> parameter_;  // its place among the parameters
  std::vector<ir::Dim> dims_;                   // of every value
  const ir::Var* value_ = nullptr;              // so far
};

}  // namespace

std::optional<exec::VendorCall> vendor_call_of(const Workload& w, const TargetInfo& target,
                                               std::string* why) {
  try {
    VendorCall call = Reader(w, target.is_gpu()).read();
    std::vector<DType> types;
    for (const KernelArgument& a : w.contract.arguments)
      if (a.kind == KernelArgument::Kind::kTensor) types.push_back(a.dtype);
    const DType x = types[call.x], weights = types[call.w], y = types[call.y];
    std::string fault;
    if (target.is_gpu()) {
      if (const auto epilogue = exec::epilogue_of(call, &fault)) {
        fault = call.image ? exec::fault_of_gpu_convolution(*epilogue, x, weights, y)
                           : exec::fault_of_gpu_types(x, weights, y);
        for (const uint32_t i : epilogue->sums)
          if (types[i] != y) fault = "the vendor's routine adds what has the result's type";
      }
    } else {
      fault = exec::fault_of_types(call, x, weights, y);
      if (fault.empty()) fault = exec::fault_of_groups(call, w.contract);
    }
    if (!fault.empty()) throw Refused{std::move(fault)};
    return call;
  } catch (const Refused& refused) {
    if (why) *why = refused.why;
    return std::nullopt;
  }
}

bool serves_exact_sizes(std::string_view routine) {
  return routine.starts_with("onednn.");
}

}  // namespace nimble::kernels
