#include "vm/library/gpu_routine.h"

#include <optional>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::rt {

GpuCall gpu_call_of(const GpuLibrary& library, const char* place, const std::string& configuration,
                    const exec::KernelContract& contract,
                    std::string (*fault_of)(const GpuCall& told, DType x, DType w, DType y)) {
  const auto refused = [&](const std::string& problem) {
    return Error(Status::kUnsupported, place, problem);
  };
  GpuCall told{exec::vendor_call_of(configuration), {}};
  const exec::VendorCall& call = told.call;
  if (!library.problem().empty()) throw refused(library.problem());
  std::string why;
  std::optional<exec::VendorEpilogue> epilogue = exec::epilogue_of(call, &why);
  if (!epilogue) throw refused(why);
  told.epilogue = std::move(*epilogue);
  std::vector<const exec::KernelArgument*> t;
  for (const exec::KernelArgument& a : contract.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor) t.push_back(&a);
  why = exec::fault_of_gpu_arguments(call, told.epilogue, t);
  if (why.empty()) why = fault_of(told, t[call.x]->dtype, t[call.w]->dtype, t[call.y]->dtype);
  if (!why.empty()) throw refused(why);
  // Where none was measured, as where a person asks for the routine, any will do.
  if (!call.library.empty() && call.library != library.version())
    throw Error(Status::kIncompatible, place,
                fmt::format("it was measured with {}, here is {}", printable(call.library),
                            library.version()),
                "tune the model here");
  return told;
}

}  // namespace nimble::rt
