// What a call of a kernel that breaks its contract is told: Error(kFatal), naming kernel, operator,
// argument, expected and actual extents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vm/interpreter/kernel.h"

namespace nimble::rt {

// "kernel k3 (matmul+gelu)".
std::string kernel_text(const PreparedKernel& k);

// `argument` is no `expected`.
[[noreturn, gnu::cold]] void fail_kind(const PreparedKernel& k, size_t argument,
                                       std::string_view expected, const Value& actual);
// Its shape or element type is another; `symbols` are bound as far as the arguments ahead bind
// them.
[[noreturn, gnu::cold]] void fail_tensor(const PreparedKernel& k, size_t argument,
                                         const Tensor& tensor, std::span<const int64_t> symbols);
[[noreturn, gnu::cold]] void fail_device(const PreparedKernel& k, size_t argument,
                                         const Tensor& tensor);
[[noreturn, gnu::cold]] void fail_scalar(const PreparedKernel& k, size_t argument, int64_t expected,
                                         int64_t actual);
[[noreturn, gnu::cold]] void fail_requirement(const PreparedKernel& k,
                                              const exec::DimProgram& program,
                                              std::span<const int64_t> symbols);
// Arguments `a` and `b` share memory.
[[noreturn, gnu::cold]] void fail_overlap(const PreparedKernel& k, size_t a, size_t b);
// What would be written is not writable, or what is read was freed.
[[noreturn, gnu::cold]] void fail_memory(const PreparedKernel& k, size_t argument,
                                         const Tensor& tensor);
// Its contract asks for fewer bytes than none.
[[noreturn, gnu::cold]] void fail_scratch(const PreparedKernel& k, int64_t bytes);
// A check inside of the kernel failed with that code (check_status.h).
[[noreturn, gnu::cold]] void fail_check(const PreparedKernel& k, int32_t status,
                                        std::span<const int64_t> symbols);

}  // namespace nimble::rt
