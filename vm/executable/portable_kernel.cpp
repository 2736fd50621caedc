// Table, bytes and text of portable kernels.
#include "vm/executable/portable_kernel.h"

#include <bit>

#include "vm/executable/dim_program_bytes.h"

namespace nimble::exec {
namespace {

constexpr PortableOpInfo kInfo[] = {
#define NIMBLE_PORTABLE_OP(name, operands, types, sentence) \
  {#name, operands, PortableTypes::types, sentence},
#include "vm/executable/PortableOps.def"
#undef NIMBLE_PORTABLE_OP
};

constexpr bool operands_fit() {
  for (const PortableOpInfo& i : kInfo)
    if (i.operands.size() > kPortableOperands) return false;
  return true;
}
static_assert(operands_fit());
static_assert(kPortableOpCount <= 256);

std::string buffer_name(int64_t index, size_t arguments) {
  if (index < 0) return fmt::format("b{}", index);
  const auto i = static_cast<uint64_t>(index);
  return i < arguments ? fmt::format("b{}", i) : fmt::format("s{}", i - arguments);
}

// An operation's result, its name, then the others; an access as "b0 [i1 + i2 + 16]".
std::string text_of(const PortableInstruction& in, size_t arguments) {
  if (static_cast<int>(in.op) >= kPortableOpCount)
    return fmt::format("<operation {}>", static_cast<int>(in.op));
  const PortableOpInfo& info = info_of(in.op);
  std::string result, rest;
  const auto add = [&](const std::string& t) { rest += (rest.empty() ? " " : ", ") + t; };
  for (size_t i = 0; i < info.operands.size(); ++i) {
    const int64_t v = in.operands[i];
    switch (info.operands[i]) {
      case 'J':
        result = fmt::format("i{} = ", v);
        break;
      case 'W':
        result = fmt::format("v{} = ", v);
        break;
      case 'I':
        add(fmt::format("i{}", v));
        break;
      case 'V':
        add(fmt::format("v{}", v));
        break;
      case 'N':
        add(std::to_string(v));
        break;
      default:
        add(fmt::format("{} [i{} + i{} + {}]", buffer_name(v, arguments), in.operands[i + 1],
                        in.operands[i + 2], in.operands[i + 3]));
        i += 3;
    }
  }
  return result + std::string(info.name) + rest;
}

size_t tensor_arguments(const KernelContract& c) {
  size_t n = 0;
  for (const KernelArgument& a : c.arguments) n += a.kind == KernelArgument::Kind::kTensor;
  return n;
}

}  // namespace

const PortableOpInfo& info_of(PortableOp op) {
  return kInfo[static_cast<size_t>(op)];
}

void encode(const PortableKernel& k, ByteWriter* out) {
  out->varint(kPortableVersion);
  out->text(k.template_name);
  out->text(k.config);
  out->varint(k.indices);
  out->varint(k.values.size());
  for (const PortableValue& v : k.values) {
    out->u8(static_cast<uint8_t>(v.dtype));
    out->u8(v.lanes);
  }
  out->varint(k.scratch.size());
  for (const PortableScratch& s : k.scratch) {
    out->u8(static_cast<uint8_t>(s.dtype));
    encode(s.extent, out);
  }
  out->varint(k.code.size());
  for (const PortableInstruction& in : k.code) {
    out->u8(static_cast<uint8_t>(in.op));
    const std::string_view kinds = info_of(in.op).operands;
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] == 'N')
        out->svarint(in.operands[i]);
      else
        out->varint(static_cast<uint64_t>(in.operands[i]));
    }
  }
}

PortableKernel decode_portable(ByteReader* in) {
  const auto dtype = [&] {
    const uint8_t v = in->u8();
    if (v >= kDTypeCount) in->fail(fmt::format("unknown dtype {}", v));
    return static_cast<DType>(v);
  };
  PortableKernel k;
  if (const uint32_t version = in->varint32("version of portable code");
      version != kPortableVersion)
    in->fail(fmt::format("portable code of version {}, this nimble reads {}", version,
                         kPortableVersion));
  k.template_name = in->text();
  k.config = in->text();
  k.indices = in->varint32("number of index slots");
  k.values.resize(in->count("number of value registers", 2, sizeof(PortableValue)));
  for (PortableValue& v : k.values) {
    v.dtype = dtype();
    v.lanes = in->u8();
  }
  k.scratch.resize(in->count("number of scratch buffers", 4, sizeof(PortableScratch)));
  for (PortableScratch& s : k.scratch) {
    s.dtype = dtype();
    s.extent = decode_dim_program(in);
  }
  const size_t instructions =
      in->count("number of portable instructions", 1, sizeof(PortableInstruction));
  // An instruction in memory is many times its bytes in the file: do not let a count alone ask
  // for more than the verifier would take.
  if (instructions > kMaxPortableCode)
    in->fail(fmt::format("{} portable instructions, at most {} are possible", instructions,
                         kMaxPortableCode));
  k.code.resize(instructions);
  for (PortableInstruction& i : k.code) {
    const uint8_t op = in->u8();
    if (op >= kPortableOpCount) in->fail(fmt::format("unknown portable operation {}", op));
    i.op = static_cast<PortableOp>(op);
    const std::string_view kinds = info_of(i.op).operands;
    for (size_t o = 0; o < kinds.size(); ++o)
      i.operands[o] = kinds[o] == 'N' ? in->svarint() : in->varint32("operand");
  }
  return k;
}

std::string disassemble(const PortableKernel& k, const KernelContract& c) {
  const size_t arguments = tensor_arguments(c);
  std::string out = fmt::format("{} index slots, symbols ({}); {} values", k.indices,
                                fmt::join(c.symbols, ", "), k.values.size());
  // Registers of one type stand together.
  for (size_t i = 0; i < k.values.size();) {
    size_t end = i + 1;
    while (end < k.values.size() && k.values[end] == k.values[i]) ++end;
    const bool known = static_cast<int>(k.values[i].dtype) < kDTypeCount;
    out += fmt::format("{}v{}..v{} {}x{}", i == 0 ? ": " : ", ", i, end - 1,
                       known ? name_of(k.values[i].dtype) : "?", k.values[i].lanes);
    i = end;
  }
  out += '\n';
  for (size_t i = 0; i < k.scratch.size(); ++i)
    out += fmt::format("scratch s{} {} [{}]\n", i, name_of(k.scratch[i].dtype),
                       k.scratch[i].extent.str());
  size_t depth = 0;
  for (const PortableInstruction& in : k.code) {
    const bool closes = in.op == PortableOp::kEnd || in.op == PortableOp::kElse;
    if (closes && depth > 0) --depth;
    out += std::string(2 * std::min<size_t>(depth + 1, 40), ' ') + text_of(in, arguments) + '\n';
    if (in.op == PortableOp::kLoop || in.op == PortableOp::kIf || in.op == PortableOp::kElse)
      ++depth;
  }
  return out;
}

}  // namespace nimble::exec
