// The bytes of a dim program in a file.
#pragma once

#include "vm/base/bytes.h"
#include "vm/executable/dim_program.h"

namespace nimble::exec {

inline void encode(const DimProgram& p, ByteWriter* out) {
  out->varint(p.arguments);
  out->varint(p.results);
  out->varint(p.code.size());
  for (const DimInstruction& in : p.code) {
    out->u8(static_cast<uint8_t>(in.op));
    if (in.op == DimOp::kConst || in.op == DimOp::kArg) out->svarint(in.immediate);
  }
}

// The operations are known ones; DimProgram::verify() says whether they make sense.
inline DimProgram decode_dim_program(ByteReader* in) {
  DimProgram p;
  p.arguments = in->varint32("number of arguments");
  p.results = in->varint32("number of results");
  p.code.resize(in->count("number of dim instructions", 1, sizeof(DimInstruction)));
  for (DimInstruction& i : p.code) {
    const uint8_t op = in->u8();
    if (op >= kDimOpCount) in->fail(fmt::format("unknown dim operation {}", op));
    i.op = static_cast<DimOp>(op);
    if (i.op == DimOp::kConst || i.op == DimOp::kArg) i.immediate = in->svarint();
  }
  return p;
}

}  // namespace nimble::exec
