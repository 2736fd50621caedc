// An executable as text that assembler.h reads back. The grammar, one statement after another;
// `;` starts a comment that runs to the end of the line; strings are quoted with \" \\ \n \t \xHH:
//
//   text STRING
//   constant STRING DTYPE [EXTENT, …] [hot] [device dN] { VALUE, … }     values as decimal numbers,
//                                                                        or 0xBITS
//   scalar STRING PROGRAM
//   kernel STRING {
//     source STRING   workload STRING   symbols NAME …   device dN
//     in [rows] DTYPE (PROGRAM, …)   out … (…)   inout … (…)   scalar NAME   data
//     require PROGRAM   scratch PROGRAM
//     dispatch { NODE: IMPLEMENTATION      a leaf
//                NODE: FEATURE <= N ? NODE : NODE   … == … }
//     native|vendor|host|portable STRING [template STRING] [config STRING] [threads N] [divisible]
//       [hash 0xHEX]
//       [launch (PROGRAM, PROGRAM, PROGRAM) block N shared N [aligned N]
//         [map TENSOR (PROGRAM by N, …)] … [steps PROGRAM]]
//   }
//   function STRING PARAMETERS REGISTERS {
//     [.origin STRING]   [.note STRING]   [LABEL:]   OPCODE OPERAND, …
//   }
//   type STRING tensor DTYPE [STRING, …] [EXTENT, …]         types are numbered from 0
//   type STRING scalar DTYPE
//   type STRING tuple (NUMBER, …)
//   type STRING data { STRING (NUMBER, …) … }                constructors in the order of tags
//   entry STRING FUNCTION {
//     input STRING DTYPE [STRING, …] [EXTENT, …] [default STRING]
//     output STRING DTYPE [STRING, …] [EXTENT, …]            either: STRING type NUMBER
//   }
//
// `rows`: surplus leading axes of the tensor are multiplied into the first dim. PROGRAM is a dim
// program in postfix, [a0 4 *]; [2->3: a0 a1 1] where its counts of arguments and results do not
// follow from the code. FEATURE is NAME, ceil(NAME, N), mod(NAME, N), NAME * NAME or `threads`,
// NAME a symbol of the contract, quoted if it is no plain word or one of a kernel's statements. A
// launch on a GPU is the blocks along each axis, the threads of a block, the bytes of its shared
// memory, its tensor maps (each the number of a tensor, and of each axis, innermost first, the
// extent and the elements of a box) and perhaps the number of steps that the grid does. Operands:
// registers r3, lists (r1, r2), integers, integer lists [1, 2], constants c0 or c"name", functions
// f0 or f"name", kernels k0 or k"name", texts t0, targets @LABEL (a number is the instruction's
// index), dtypes by name, devices d0.
#pragma once

#include <cstdint>
#include <string>

#include "vm/executable/executable.h"

namespace nimble::exec {

struct DisassembleOptions {
  // Larger constants are shown as comments with their hash; the assembler cannot restore them.
  int64_t max_constant_elements = 64;
  bool comments = true;  // names of callees, kernels, constants after the instructions
};

// The whole executable. Images and provenance, which have no statement, come as comments.
// Works on unverified executables too: what cannot be shown is marked as malformed.
std::string disassemble(const Executable& executable, const DisassembleOptions& options = {});

// One instruction, without its comment; `executable` gives no names here, only indices.
std::string disassemble(const Instruction& instruction);

// The postfix text of a dim program.
std::string postfix(const DimProgram& program);

}  // namespace nimble::exec
