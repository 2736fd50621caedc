// The in-memory form of an executable file: what the emitter builds, the writer stores, the
// reader restores, the verifier checks and the interpreter runs. Plain data, no behaviour.
//
// One file holds: bytecode functions, scalar functions, constants, kernels (contract, dispatch
// tree, implementations, portable form), native images per target, the signatures of entry
// functions, devices, provenance, all under checksums (format.h says how).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vm/base/dtype.h"
#include "vm/executable/contract.h"
#include "vm/executable/dim_program.h"
#include "vm/executable/dispatch.h"
#include "vm/executable/portable_kernel.h"

namespace nimble::exec {

enum class Opcode : uint8_t {
#define NIMBLE_OPCODE(name, ...) k##name,
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
};

// Decoded instruction: operands in the table's order, lists (srcs, imms) as their count
// followed by their elements. Registers, indices and targets are non-negative.
struct Instruction {
  Opcode op;
  std::vector<int64_t> operands;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// Where an instruction came from: what it does and the place in the source model.
struct SourceNote {
  uint32_t instruction;  // holds from here on until the next note
  std::string text;      // "matmul at /encoder/layer.0/attention/query/MatMul"
  friend bool operator==(const SourceNote&, const SourceNote&) = default;
};

struct BytecodeFunction {
  std::string name;
  uint32_t parameters = 0;  // in registers 0 …
  uint32_t registers = 0;   // in all
  std::vector<Instruction> code;
  std::vector<SourceNote> notes;
  std::string origin;  // its place in the source model, for messages; may be empty
};

// Function indices of Invoke and AllocClosure: first all bytecode functions, then all scalar
// functions (AllocClosure takes only the former).
struct ScalarFunction {
  std::string name;
  DimProgram program;
};

struct Constant {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // `bytes` views either `owned` or a mapping that outlives the executable.
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;
  bool hot = false;    // read in full at each run (packed matrices): copied to huge pages at load
  int32_t device = 0;  // where it is read: copied there at load (device_number.h)
};

enum class ImplementationKind : uint8_t {
  kNative = 0,    // a symbol of a native image
  kVendor = 1,    // a vendor library's routine, by name ("onednn.matmul")
  kHost = 2,      // a host-side operator of vm/library, by name ("host.nonzero")
  kPortable = 3,  // the kernel's portable form; `symbol` is only a name
};

// What a GPU's copy engine is told of a tensor argument that is only read, and lies densely: the
// driver encodes it for each address and extents (vm/runtime/tensor_maps.h). A box is what one copy
// takes; its innermost extent is a line of 32, 64 or 128 bytes, whose pieces of 16 bytes are
// swizzled in shared memory. What a box has beyond the tensor is zeros.
struct TensorMap {
  static constexpr size_t kMaxRank = 5;
  static constexpr uint32_t kMaxBox = 256;  // elements along an axis
  struct Axis {
    DimProgram extent;  // elements, over the contract's symbols
    uint32_t box = 1;   // elements of a box
    friend bool operator==(const Axis&, const Axis&) = default;
  };
  uint32_t argument = 0;   // its number among the contract's tensors
  std::vector<Axis> axes;  // innermost first
  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

// How a GPU's native implementation is started: blocks along each axis, over the contract's symbols
// alone (a region's number of threads says nothing of a GPU), threads of a block, bytes of its
// shared memory. launch.h computes the blocks of a call.
struct Launch {
  static constexpr uint32_t kWarp = 32;  // threads come in whole warps
  static constexpr uint32_t kMaxThreads = 1024;
  // What a block may have at compute capability 9.0; at none it may have more.
  static constexpr uint32_t kMaxSharedBytes = 227 << 10;
  static constexpr uint32_t kMaxAlignment = 16;  // bytes of a thread's widest access
  static constexpr size_t kMaxMaps = 8;
  std::array<DimProgram, 3> grid = {DimProgram::constant(1), DimProgram::constant(1),
                                    DimProgram::constant(1)};
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
  // Bytes, a power of two, of which the addresses of its arguments have to be multiples: those of
  // the widest access to one. Of whom nothing is known, the most.
  uint32_t alignment = kMaxAlignment;
  // Its code's last parameters. With any, the alignment is the most.
  std::vector<TensorMap> maps = {};
  // How many steps of the whole grid it does, over the contract's symbols; nothing: it has none.
  // Its blocks meet between two steps, so they are started for all steps only where all of them are
  // on the GPU at once, and else for each step anew.
  std::optional<DimProgram> steps;
  friend bool operator==(const Launch&, const Launch&) = default;
};

struct Implementation {
  ImplementationKind kind = ImplementationKind::kNative;
  std::string symbol;
  std::string config;  // canonical JSON of the template's configuration, for explain
  std::string template_name;
  // The most threads of a region that do it, and shares that it is cut into; 0: any number.
  int32_t max_threads = 0;
  // Native code whose threads wait for nobody: its work may be cut into more shares than there are
  // threads, done in any order.
  bool divisible = false;
  uint64_t code_hash = 0;
  std::optional<Launch> launch;  // native code of a kernel on a GPU has one, nothing else has
};

struct Kernel {
  std::string name;      // unique; shown by profiler and explain
  std::string source;    // the operators it computes, "matmul+add+gelu"
  std::string workload;  // canonical workload text (the database's key), may be empty
  KernelContract contract;
  DispatchTree dispatch;  // leaves index `implementations`
  std::vector<Implementation> implementations;
  int32_t device = 0;  // where it runs and all its tensors lie (device_number.h)
  // The same computation in the form that any machine runs and that can be checked.
  std::optional<PortableKernel> portable;
};

// Machine code for one target: of the CPU a linked shared object, of a GPU modules of its driver.
// Every image of a device holds the same symbols. The stand-in device runs the CPU's.
struct NativeImage {
  std::string target;                 // "x86-64-v4", …, "sm_90a"
  std::vector<std::string> features;  // CPU features that it needs ("avx512f", …)
  std::span<const uint8_t> bytes;     // ELF; PTX where the target is "compute_…"
  std::shared_ptr<const void> owner;
  int32_t device = 0;  // whose kernels' code it is: the CPU's or a GPU's (device_number.h)
  // Of a GPU's, where each kernel is a module of its own: what `bytes` are, one behind the other.
  // None: one module, of all kernels.
  struct Module {
    std::string symbol;
    uint64_t bytes = 0;
    friend bool operator==(const Module&, const Module&) = default;
  };
  std::vector<Module> modules;
};

// What data-type values of a signature are made of: the caller's values are checked against it,
// for verified bytecode trusts the shape of its data. Types refer to each other by index, so they
// may be recursive.
struct ValueType {
  enum class Kind : uint8_t {
    kTensor = 0,
    kScalar = 1,  // a tensor without dims that lives unboxed in registers and fields
    kTuple = 2,
    kData = 3,
  };
  struct Constructor {
    std::string name;              // "" of a tuple
    std::vector<uint32_t> fields;  // indices of types
    friend bool operator==(const Constructor&, const Constructor&) = default;
  };
  Kind kind = Kind::kTensor;
  std::string name;               // "List[Tensor[(n), f32]]", for messages
  DType dtype = DType::kF32;      // kTensor, kScalar
  std::vector<std::string> dims;  // kTensor, as in Port
  std::vector<int64_t> extents;
  std::vector<Constructor> constructors;  // kTuple: one; kData: by tag
  friend bool operator==(const ValueType&, const ValueType&) = default;
};

// One parameter or result of an entry function as its user sees it.
struct Port {
  std::string name;
  // The index of its type, -1 if it is a tensor: then dtype and dims say what it is.
  int64_t type = -1;
  DType dtype = DType::kF32;
  std::vector<std::string> dims;  // "1", "n", "n + m", "?": text, equal names are equal extents
  std::vector<int64_t> extents;   // the same where constant, else -1
  // For a parameter with a default, how to fill it when it is not given; empty: required.
  std::string default_fill;  // "", "zeros", "ones"
  // The dims of a default, computed from other ports' symbols by name: `dims` again.
};

struct EntryPoint {
  std::string name;  // "main"
  uint32_t function = 0;
  std::vector<Port> inputs;
  std::vector<Port> outputs;  // more than one: the function returns a tuple
};

// Where a kernel choice came from, and everything needed to reproduce the file.
struct Provenance {
  std::string compiler;                        // nimble's version and code-generator version
  std::string toolchain;                       // LLVM's version
  std::string model;                           // source name
  std::string database;                        // its identity, may be empty
  std::map<std::string, std::string> kernels;  // kernel name -> JSON: evidence of its dispatch
  std::map<std::string, std::string> options;  // of the compilation: "precision" -> "bf16"
};

struct Executable {
  std::vector<BytecodeFunction> functions;
  std::vector<ScalarFunction> scalar_functions;
  std::vector<Constant> constants;
  std::vector<Kernel> kernels;
  std::vector<NativeImage> images;
  std::vector<ValueType> types;
  std::vector<EntryPoint> entries;
  std::vector<std::string> texts;  // messages of Fatal
  Provenance provenance;
  // What reading it took of LoadLimits::memory, in bytes; 0 if it was not read.
  uint64_t memory = 0;
};

}  // namespace nimble::exec
