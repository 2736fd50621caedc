// Sound executables that are dear to verify for their size, each of a kind, for tests and
// benchmarks. What `n` counts stands at each; their files grow in proportion to it.
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/executable/opcodes.h"

namespace nimble::exec::dear {

inline Executable program(uint32_t registers, std::vector<Instruction> code) {
  Executable e;
  e.functions.push_back({"main", 1, registers, std::move(code), {}});
  return e;
}
inline Instruction ret() {
  return {Opcode::kRet, {0}};
}
inline Instruction jump(size_t to) {
  return {Opcode::kGoto, {static_cast<int64_t>(to)}};
}
inline Instruction branch(size_t yes, size_t no) {
  return {Opcode::kIf, {0, static_cast<int64_t>(yes), static_cast<int64_t>(no)}};
}
inline Instruction load(size_t reg) {
  return {Opcode::kLoadConsti, {static_cast<int64_t>(reg), 1}};
}
inline Instruction move(size_t to, size_t from) {
  return {Opcode::kMove, {static_cast<int64_t>(to), static_cast<int64_t>(from)}};
}

// n moves from each register to the one below it: what is known of the last one takes n turns of
// the loop to reach the first.
inline Executable moves_in_a_loop(size_t n) {
  std::vector<Instruction> code;
  for (size_t i = 1; i < n; ++i) code.push_back(load(i));
  code.push_back({Opcode::kMove, {static_cast<int64_t>(n), 0}});
  const size_t loop = code.size();
  for (size_t i = 1; i < n; ++i) code.push_back(move(i, i + 1));
  code.push_back(branch(loop, code.size() + 1));
  code.push_back(ret());
  return program(static_cast<uint32_t>(n + 1), std::move(code));
}

// A frame of `registers`, of which each of n blocks writes and reads one.
inline Executable wide_frame_of_branches(uint32_t registers, size_t n) {
  std::vector<Instruction> code;
  const uint32_t step = std::max<uint32_t>(1, (registers - 1) / static_cast<uint32_t>(n));
  for (size_t i = 0; i < n; ++i) {
    const size_t reg = 1 + i * step % (registers - 1);
    code.push_back(load(reg));
    code.push_back({Opcode::kIf,
                    {static_cast<int64_t>(reg), static_cast<int64_t>(code.size() + 1),
                     static_cast<int64_t>(code.size() + 1)}});
  }
  code.push_back(ret());
  return program(registers, std::move(code));
}

// `live` registers written before and read behind n joins of two branches.
inline Executable live_through_branches(size_t live, size_t n) {
  std::vector<Instruction> code;
  for (size_t i = 1; i <= live; ++i) code.push_back(load(i));
  for (size_t i = 0; i < n; ++i) {
    code.push_back(branch(code.size() + 1, code.size() + 2));
    code.push_back(load(live + 1));
  }
  for (size_t i = 1; i <= live; ++i) code.push_back(move(0, i));
  code.push_back(ret());
  return program(static_cast<uint32_t>(live + 2), std::move(code));
}

// n registers changed inside n loops within each other: each is merged at the head of each.
inline Executable ladder(size_t n) {
  std::vector<Instruction> code;
  for (size_t i = 1; i <= n; ++i) code.push_back(load(i));
  const size_t heads = code.size();
  for (size_t i = 0; i < n; ++i) code.push_back(branch(code.size() + 1, code.size() + 1));
  for (size_t i = 1; i <= n; ++i) code.push_back(move(i, i));
  for (size_t i = n; i-- > 0;) code.push_back(branch(heads + i, code.size() + 1));
  code.push_back(ret());
  return program(static_cast<uint32_t>(n + 1), std::move(code));
}

// n blocks, each of which writes a register and may leave to one that all share.
inline Executable shared_exit(size_t n) {
  std::vector<Instruction> code;
  for (size_t i = 0; i < n; ++i) {
    code.push_back(load(1 + i));
    code.push_back(branch(code.size() + 1, 2 * n));
  }
  code.push_back(ret());
  return program(static_cast<uint32_t>(n + 1), std::move(code));
}

// n blocks that jump anywhere and move registers about.
inline Executable random_jumps(size_t n) {
  std::mt19937_64 random(n);
  const size_t registers = std::max<size_t>(2, n / 2);
  std::vector<Instruction> code;
  for (size_t i = 1; i < registers; ++i) code.push_back(load(i));
  const size_t start = code.size();
  for (size_t i = 0; i < n; ++i) {
    code.push_back(move(random() % registers, random() % registers));
    code.push_back(branch(start + 2 * (random() % n), start + 2 * (random() % n)));
  }
  return program(static_cast<uint32_t>(registers), std::move(code));
}

// A loop in which one instruction reads n registers, each of which changes.
inline Executable wide_reads(size_t n) {
  Executable e = moves_in_a_loop(n);
  std::vector<Instruction>& code = e.functions[0].code;
  Instruction all{Opcode::kAllocADT, {1, 0, static_cast<int64_t>(n)}};
  for (size_t i = 1; i <= n; ++i) all.operands.push_back(static_cast<int64_t>(i));
  code.insert(code.end() - 1, {all, branch(0, code.size() + 1)});
  return e;
}

// n calls that write 200 registers each.
inline Executable many_results(size_t n) {
  ScalarFunction f{"f", {0, 200, {200, DimInstruction{DimOp::kConst, 1}}}};
  std::vector<Instruction> code(n, {Opcode::kInvoke, {1, 1, 0}});
  code.push_back(ret());
  Executable e = program(201, std::move(code));
  e.scalar_functions.push_back(std::move(f));
  return e;
}

// n functions of one instruction and a frame of a million registers.
inline Executable many_functions(size_t n) {
  Executable e;
  for (size_t i = 0; i < n; ++i) e.functions.push_back({"f", 1, 1 << 20, {move(i, 0), ret()}, {}});
  return e;
}

// n instructions of a function whose name is as long as they are.
inline Executable long_name(size_t n) {
  std::vector<Instruction> code(n, move(1, 0));
  code.push_back(ret());
  Executable e = program(2, std::move(code));
  e.functions[0].name.assign(3 * n, 'f');
  return e;
}

inline Kernel kernel(std::string name) {
  Kernel k;
  k.name = std::move(name);
  k.dispatch = DispatchTree::single(0);
  k.implementations.push_back({ImplementationKind::kHost, "host.copy"});
  return k;
}

// A dispatch tree n nodes deep.
inline Executable deep_dispatch(size_t n) {
  Executable e;
  e.kernels.push_back(kernel("k"));
  std::vector<DispatchNode>& nodes = e.kernels[0].dispatch.nodes;
  nodes.assign(n, {DispatchNode::Test::kLessEqual, {DispatchFeature::Kind::kThreads}});
  for (uint32_t i = 0; i < n; ++i) nodes[i].yes = i + 1, nodes[i].no = static_cast<uint32_t>(n);
  nodes.push_back({});
  return e;
}

// Programs of 2n operations: of a scalar function, of a contract's dim, of a requirement.
inline Executable large_dim_programs(size_t n) {
  DimProgram p = DimProgram::argument(0);
  for (size_t i = 0; i < n; ++i) {
    p.code.push_back({DimOp::kConst, 1});
    p.code.push_back({DimOp::kAdd});
  }
  Executable e;
  e.scalar_functions.push_back({"f", p});
  e.kernels.push_back(kernel("k"));
  KernelContract& c = e.kernels[0].contract;
  c.symbols = {"n"};
  KernelArgument in, out;
  in.dims = {DimProgram::argument(0)};
  out.access = Access::kOut;
  out.dims = {p};
  c.arguments = {in, out};
  c.requirements = {p};
  return e;
}

// n kernels, each with a contract.
inline Executable many_contracts(size_t n) {
  Executable e;
  for (size_t i = 0; i < n; ++i) {
    e.kernels.push_back(kernel("k" + std::to_string(i)));
    KernelContract& c = e.kernels[i].contract;
    c.symbols = {"n"};
    KernelArgument in;
    in.dims = {DimProgram::argument(0)};
    c.arguments = {in};
  }
  return e;
}

// An entry point of n inputs, each with a name and a dim of its own.
inline Executable many_names(size_t n) {
  Executable e = program(static_cast<uint32_t>(n), {ret()});
  e.functions[0].parameters = static_cast<uint32_t>(n);
  EntryPoint entry{"main", 0, {}, {}};
  for (size_t i = 0; i < n; ++i) {
    Port p;
    p.name = "input" + std::to_string(i);
    p.dims = {"n" + std::to_string(i)};
    p.extents = {-1};
    entry.inputs.push_back(std::move(p));
  }
  Port out;
  out.name = "y";
  out.dims = {"n0"};
  out.extents = {-1};
  entry.outputs = {out};
  e.entries.push_back(std::move(entry));
  return e;
}

// Portable kernels of 128 n operations in all: loops as deep as they may be, again and again.
inline Executable portable_nests(size_t n) {
  constexpr size_t kEach = kMaxPortableCode / (2 * kMaxPortableDepth);
  Executable e;
  for (size_t done = 0; done < n; done += kEach) {
    e.kernels.push_back(kernel("k" + std::to_string(done)));
    PortableKernel& k = e.kernels.back().portable.emplace();
    k.indices = 3;
    for (size_t i = 0; i < std::min(n - done, kEach); ++i) {
      for (size_t d = 0; d < kMaxPortableDepth; ++d)
        k.code.push_back({PortableOp::kLoop, {2, 0, 1, 1}});
      for (size_t d = 0; d < kMaxPortableDepth; ++d) k.code.push_back({PortableOp::kEnd});
    }
  }
  return e;
}

struct Kind {
  const char* name;
  std::function<Executable(size_t)> make;
};
inline const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kAll = {
      {"moves_in_a_loop", moves_in_a_loop},
      {"wide_frame", [](size_t n) { return wide_frame_of_branches(1 << 20, n); }},
      {"live_through_branches", [](size_t n) { return live_through_branches(n, n); }},
      {"ladder", ladder},
      {"shared_exit", shared_exit},
      {"random_jumps", random_jumps},
      {"wide_reads", wide_reads},
      {"many_results", many_results},
      {"many_functions", many_functions},
      {"long_name", long_name},
      {"deep_dispatch", deep_dispatch},
      {"large_dim_programs", large_dim_programs},
      {"many_contracts", many_contracts},
      {"many_names", many_names},
      {"portable_nests", portable_nests},
  };
  return kAll;
}

}  // namespace nimble::exec::dear
