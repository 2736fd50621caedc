#include "vm/interpreter/kernel_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "vm/base/error.h"
#include "vm/executable/check_status.h"

namespace nimble::rt {
namespace {

using Dim = PreparedKernel::Dim;

std::string_view kind_of(const Value& v) {
  if (v.is_scalar()) return "scalar";
  return v.is_object() ? name_of(v.object->kind) : "register without a value";
}

// Expected shape as text, "(2, n = 5, ?)", with what is bound so far.
std::string expected_shape(const PreparedKernel& k, const PreparedKernel::Argument& a,
                           std::span<const int64_t> symbols) {
  std::vector<std::string> parts;
  for (int i = 0; i < a.rank; ++i) {
    const Dim& d = k.dims[a.first_dim + i];
    switch (d.kind) {
      case Dim::Kind::kConstant:
        parts.push_back(std::to_string(d.value));
        break;
      case Dim::Kind::kBind:
        parts.push_back(k.kernel->contract.symbols[d.symbol]);
        break;
      case Dim::Kind::kSymbol:
        parts.push_back(
            fmt::format("{} = {}", k.kernel->contract.symbols[d.symbol], symbols[d.symbol]));
        break;
      case Dim::Kind::kProgram: {
        std::string value = "?";
        try {
          value = std::to_string(d.program->evaluate1(symbols));
        } catch (const Error&) {  // the message is about the shape; overflow has its own
        }
        parts.push_back(fmt::format("{} = {}", d.program->str(), value));
        break;
      }
    }
  }
  return fmt::format("({})", fmt::join(parts, ", "));
}

}  // namespace

std::string kernel_text(const PreparedKernel& k) {
  return k.kernel->source.empty() ? fmt::format("kernel {}", k.kernel->name)
                                  : fmt::format("kernel {} ({})", k.kernel->name, k.kernel->source);
}

void fail_kind(const PreparedKernel& k, size_t argument, std::string_view expected,
               const Value& actual) {
  throw Error(Status::kFatal, "",
              fmt::format("{}: argument {} must be a {}, it is a {}", kernel_text(k), argument,
                          expected, kind_of(actual)),
              "report it: the program passes a wrong kind of value");
}

void fail_tensor(const PreparedKernel& k, size_t argument, const Tensor& tensor,
                 std::span<const int64_t> symbols) {
  const PreparedKernel::Argument& a = k.arguments[argument];
  throw Error(Status::kFatal, "",
              fmt::format("{}: argument {} must be {} {}, it is {} ({})", kernel_text(k), argument,
                          name_of(a.dtype), expected_shape(k, a, symbols), name_of(tensor.dtype),
                          fmt::join(tensor.shape(), ", ")),
              "give inputs whose extents agree");
}

void fail_device(const PreparedKernel& k, size_t argument, const Tensor& tensor) {
  throw Error(
      Status::kFatal, "",
      fmt::format("{}: argument {} lies on device {} ({}), the kernel runs on device {} ({})",
                  kernel_text(k), argument, tensor.storage->device,
                  device_name(tensor.storage->device), k.device->number(), k.device->name()),
      "report it: the program lacks a copy between devices");
}

void fail_scalar(const PreparedKernel& k, size_t argument, int64_t expected, int64_t actual) {
  throw Error(
      Status::kFatal, "",
      fmt::format("{}: argument {} must be {} = {}, it is {}", kernel_text(k), argument,
                  k.kernel->contract.symbols[k.arguments[argument].symbol], expected, actual),
      "report it: the program passes a wrong extent");
}

void fail_requirement(const PreparedKernel& k, const exec::DimProgram& program,
                      std::span<const int64_t> symbols) {
  std::vector<std::string> values;
  for (uint32_t i = 0; i < k.symbols; ++i) values.push_back(fmt::format("a{} = {}", i, symbols[i]));
  throw Error(Status::kFatal, "",
              fmt::format("{}: its arguments' extents ({}) break {}", kernel_text(k),
                          fmt::join(values, ", "), program.str()),
              "give inputs whose extents agree");
}

void fail_overlap(const PreparedKernel& k, size_t a, size_t b) {
  throw Error(Status::kFatal, "",
              fmt::format("{}: arguments {} and {} share memory, which it writes", kernel_text(k),
                          std::min(a, b), std::max(a, b)),
              "report it: the memory plan is wrong");
}

void fail_memory(const PreparedKernel& k, size_t argument, const Tensor& tensor) {
  throw Error(Status::kFatal, "",
              fmt::format("{}: argument {} {}", kernel_text(k), argument,
                          tensor.data() ? "would be written but is a constant or an input"
                                        : "lies in a storage that was freed"),
              "report it: the memory plan is wrong");
}

void fail_scratch(const PreparedKernel& k, int64_t bytes) {
  throw Error(Status::kFatal, "",
              fmt::format("{} asks for {} bytes of scratch", kernel_text(k), bytes),
              "report it: the kernel's contract is wrong");
}

void fail_check(const PreparedKernel& k, int32_t status, std::span<const int64_t> symbols) {
  std::string problem;
  if (k.texts)
    for (const std::string& text : *k.texts)
      if (exec::check_status(text) == status) problem = text;
  if (problem.empty())
    problem = fmt::format(
        "a check of the kernel failed with code {}, such as an index out of range", status);
  std::string extents;
  for (size_t i = 0; i < symbols.size(); ++i)
    extents += fmt::format("{}{} = {}", i ? ", " : "; ", k.kernel->contract.symbols[i], symbols[i]);
  throw Error(Status::kFatal, "", fmt::format("{}: {}{}", kernel_text(k), problem, extents),
              "check the values of the inputs");
}

}  // namespace nimble::rt
