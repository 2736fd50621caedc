// Shorthand for kernels in tests: declares arguments and their contract together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir::testing {

class KernelBuilder {
 public:
  explicit KernelBuilder(const std::string& name) { f_.name = name; }

  Dim symbol(const std::string& name, ir::SymbolFacts facts = {}) {
    f_.contract.symbols.push_back(name);
    f_.facts.set(name, facts);
    exec::KernelArgument a;
    a.kind = exec::KernelArgument::Kind::kScalar;
    a.symbol = static_cast<uint32_t>(f_.contract.symbols.size()) - 1;
    f_.contract.arguments.push_back(a);
    return Dim::symbol(name);
  }
  BufferRef in(const std::string& name, DType t, const Dim& extent, int alignment = 0) {
    return argument(name, t, extent, exec::Access::kIn, alignment);
  }
  BufferRef out(const std::string& name, DType t, const Dim& extent) {
    return argument(name, t, extent, exec::Access::kOut);
  }
  BufferRef in_out(const std::string& name, DType t, const Dim& extent) {
    return argument(name, t, extent, exec::Access::kInOut);
  }
  BufferRef scratch(const std::string& name, DType t, const Dim& extent,
                    Scope scope = Scope::kScratch) {
    f_.scratch.push_back(build::buffer(name, scope, t, extent));
    return f_.scratch.back();
  }
  BufferRef registers(const std::string& name, DType t, int extent, int lanes = 1) {
    f_.registers.push_back(build::buffer(name, Scope::kRegister, t, extent, lanes));
    return f_.registers.back();
  }
  BufferRef tiles(const std::string& name, DType t, int rows, int lanes, int count) {
    f_.registers.push_back(build::tile_buffer(name, t, rows, lanes, count));
    return f_.registers.back();
  }
  BufferRef shared(const std::string& name, DType t, int64_t extent, int alignment = 0) {
    auto b = std::make_shared<Buffer>(*build::buffer(name, Scope::kShared, t, extent));
    b->alignment = alignment;
    f_.shared.push_back(b);
    return f_.shared.back();
  }
  // Makes it a GPU's function.
  void launch(int threads, const Dim& x = 1, const Dim& y = 1, const Dim& z = 1) {
    f_.launch = Launch{{x, y, z}, threads};
  }
  Function body(std::vector<StmtRef> statements) {
    f_.body = build::seq(std::move(statements));
    return f_;
  }
  Function& function() { return f_; }

 private:
  BufferRef argument(const std::string& name, DType t, const Dim& extent, exec::Access access,
                     int alignment = 0) {
    auto b = std::make_shared<Buffer>(*build::buffer(name, Scope::kArgument, t, extent));
    b->writable = access != exec::Access::kIn;
    b->alignment = alignment;
    exec::KernelArgument a;
    a.dtype = t;
    a.access = access;
    f_.contract.arguments.push_back(a);
    f_.arguments.push_back(b);
    return b;
  }

  Function f_;
};

// The bytes of a vector, as kernels see them.
template <class T>
std::span<std::byte> bytes_of(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

}  // namespace nimble::kir::testing
