#include "compiler/kernels/vendor/reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nimble::kernels::vendor {

using exec::KernelArgument;
using exec::VendorCall;
using exec::VendorOp;
using exec::VendorStep;
using ir::Atom;
using ir::Binding;
using ir::Expr;

struct OpRow {
  VendorOp op;
  std::string_view name, alpha, beta;
};

namespace {

// More than this a library refuses, and nobody fuses.
constexpr size_t kMostSteps = 32;

constexpr OpRow kOps[] = {
#define NIMBLE_VENDOR_OP(name, spelling, op, has_operand, alpha, beta) \
  {VendorOp::k##name, op, alpha, beta},
#include "vm/executable/VendorOps.def"
#undef NIMBLE_VENDOR_OP
};

float number(const Expr& e, std::string_view name) {
  const auto it = e.attrs.find(std::string(name));
  if (it == e.attrs.end() || !std::holds_alternative<double>(it->second))
    throw Refused{fmt::format("{} has no {}", e.op, name)};
  // The configuration is JSON, which has no infinity.
  const double v = std::get<double>(it->second);
  if (!(std::abs(v) <= std::numeric_limits<float>::max()))
    throw Refused{fmt::format("the vendor's routine takes no {} of {} beyond f32", name, e.op)};
  return static_cast<float>(v);
}

}  // namespace

VendorCall Reader::read(void (*read_anchor)(Reader& reader, const Expr& anchor)) {
  read_arguments();
  const auto& bindings = w_.group->body->bindings;
  const auto anchor = std::find_if(bindings.begin(), bindings.end(), [&](const Binding& b) {
    return b.value->kind == ir::ExprKind::kCall && b.value->op == w_.anchor;
  });
  if (anchor == bindings.end()) throw Refused{"the vendor has no routine for " + w_.anchor};
  for (const Binding& b : bindings)
    if (&b < &*anchor) read_alias(b);
  if (!read_anchor) throw Refused{"the vendor has no routine for " + w_.anchor};
  read_anchor(*this, *anchor->value);
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

void Reader::read_arguments() {
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

uint32_t Reader::tensor(const Atom& operand) const {
  const auto it = operand.is_var() ? tensor_.find(operand.var.get()) : tensor_.end();
  if (it == tensor_.end()) throw Refused{"an operand is computed in the same kernel"};
  return it->second;
}

// An operand that is only widened: the library reads it as it was.
void Reader::read_alias(const Binding& b) {
  const Expr& e = *b.value;
  const bool widens = e.kind == ir::ExprKind::kCall && e.op == "cast" && e.args[0].is_var() &&
                      b.var->type->dtype == DType::kF32 &&
                      (ir::type_of(e.args[0])->dtype == DType::kBF16 ||
                       ir::type_of(e.args[0])->dtype == DType::kI32);
  if (!widens) throw Refused{"an operand is computed in the same kernel"};
  tensor_[b.var.get()] = tensor(e.args[0]);
}

bool Reader::uses_value(const Expr& e) const {
  return std::any_of(e.args.begin(), e.args.end(), [&](const Atom& a) { return is_value(a); });
}

// t = sigmoid(v), v * t
bool Reader::is_swish(const Binding& a, const Binding& b) const {
  const Expr &first = *a.value, &second = *b.value;
  if (first.kind != ir::ExprKind::kCall || second.kind != ir::ExprKind::kCall ||
      first.op != "sigmoid" || second.op != "mul" || !is_value(first.args[0]))
    return false;
  const auto is_first = [&](const Atom& x) { return x.is_var() && x.var == a.var; };
  return (is_value(second.args[0]) && is_first(second.args[1])) ||
         (is_value(second.args[1]) && is_first(second.args[0]));
}

// What is bound to `b`, computed from the value so far.
void Reader::read_step(const Binding& b, bool last) {
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
void Reader::expect_sum(const Atom& other) {
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
std::optional<VendorStep> Reader::with_number(const OpRow& row, const Expr& e) const {
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

void Reader::add(const VendorStep& step) {
  if (out_.then.size() == kMostSteps) throw Refused{"too much is fused behind it"};
  out_.then.push_back(step);
}

bool Reader::is_constant(const Atom& operand) const {
  const auto place = parameter_.find(operand.var.get());  // none of what is widened here
  return place != parameter_.end() && place->second < w_.constant_parameter.size() &&
         w_.constant_parameter[place->second];
}

void Reader::add_bias(const Atom& operand) {
  has_row_ = true;
  add({VendorOp::kAdd, tensor(operand)});
}

int64_t constant_extent(const ir::Dim& d) {
  const auto v = d.as_constant();
  if (!v || *v < 1) throw Refused{"the weights have no constant size"};
  return *v;
}

void read_windows(const Expr& e, VendorCall::Image* image) {
  image->groups = ir::attr_or<int64_t>(e.attrs, "groups", 1);
  read_ints(e, "strides", image->strides);
  read_ints(e, "dilations", image->dilations);
  read_ints(e, "pads", image->pads);
}

std::vector<DType> tensor_types(const Workload& w) {
  std::vector<DType> types;
  for (const KernelArgument& a : w.contract.arguments)
    if (a.kind == KernelArgument::Kind::kTensor) types.push_back(a.dtype);
  return types;
}

std::string fault_on_gpu(
    const VendorCall& call, const Workload& w,
    const std::function<std::string(const exec::VendorEpilogue&, DType, DType, DType)>& fault_of) {
  std::string fault;
  const auto epilogue = exec::epilogue_of(call, &fault);
  if (!epilogue) return fault;
  const std::vector<DType> types = tensor_types(w);
  const DType y = types[call.y];
  for (const uint32_t i : epilogue->sums)
    if (types[i] != y) return "the vendor's routine adds what has the result's type";
  return fault_of(*epilogue, types[call.x], types[call.w], y);
}

}  // namespace nimble::kernels::vendor
