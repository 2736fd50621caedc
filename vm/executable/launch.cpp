#include "vm/executable/launch.h"

#include <algorithm>

#include "vm/base/device_number.h"
#include "vm/base/error.h"
#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

// Where the devices of an instruction stand among its operands.
std::vector<size_t> device_operands(const Instruction& in) {
  std::vector<size_t> out;
  if (const std::optional<Operands> operands = operands_of(in))
    for (const OperandView& o : *operands)
      if (o.spec->kind == OperandKind::kDevice)
        out.push_back(static_cast<size_t>(o.values.data() - in.operands.data()));
  return out;
}

}  // namespace

std::array<uint32_t, 3> grid_of(const Launch& launch, std::span<const int64_t> symbols) {
  std::array<uint32_t, 3> out{};
  for (size_t axis = 0; axis < out.size(); ++axis) {
    const int64_t blocks = launch.grid[axis].evaluate1(symbols);
    if (blocks < 0 || blocks > kMaxGrid[axis])
      throw Error(Status::kUnsupported, "",
                  fmt::format("its grid would have {} blocks along {}, a GPU takes 0 to {}", blocks,
                              "xyz"[axis], kMaxGrid[axis]),
                  "use smaller inputs, or compile the model for the CPU");
    out[axis] = static_cast<uint32_t>(blocks);
  }
  return out;
}

int64_t steps_of(const Launch& launch, std::span<const int64_t> symbols) {
  if (!launch.steps) return 1;
  const int64_t steps = launch.steps->evaluate1(symbols);
  if (steps < 0 || steps > kMaxSteps)
    throw Error(Status::kUnsupported, "",
                fmt::format("its grid would do {} steps, 0 to {} are possible", steps, kMaxSteps),
                "use smaller inputs, or compile the model for the CPU");
  return steps;
}

bool uses_gpu(const Executable& e) {
  const auto on_gpu = [](const auto& x) { return is_gpu(x.device); };
  if (std::any_of(e.kernels.begin(), e.kernels.end(), on_gpu) ||
      std::any_of(e.constants.begin(), e.constants.end(), on_gpu))
    return true;
  for (const BytecodeFunction& f : e.functions)
    for (const Instruction& in : f.code)
      for (size_t at : device_operands(in))
        if (is_gpu(in.operands[at])) return true;
  return false;
}

const Kernel* move_to_cpu(Executable* e) {
  for (const Kernel& k : e->kernels)
    if (is_gpu(k.device) && !k.portable) return &k;
  for (Kernel& k : e->kernels) {
    if (!is_gpu(k.device)) continue;
    k.device = kCpuDevice;
    for (Implementation& i : k.implementations) {
      i.kind = ImplementationKind::kPortable;
      i.launch.reset();
    }
  }
  for (Constant& c : e->constants)
    if (is_gpu(c.device)) c.device = kCpuDevice;
  for (BytecodeFunction& f : e->functions)
    for (Instruction& in : f.code)
      for (size_t at : device_operands(in))
        if (is_gpu(in.operands[at])) in.operands[at] = kCpuDevice;
  return nullptr;
}

}  // namespace nimble::exec
