// What a whole warp does at once, and copies that go on beside the threads (PTX ISA, "mma",
// "ldmatrix", "cp.async"). Registers of 32 bits hold a fragment's elements, so buffers of packed
// ones are words here already (CudaEmitter::in_words).
#include "compiler/codegen/cuda/emitter.h"
#include "vm/base/error.h"

namespace nimble::codegen {

std::string_view ptx_type(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI8:
      return "s8";
    case DType::kI32:
      return "s32";
    default:
      NIMBLE_UNREACHABLE("{}", name_of(t));
  }
}

namespace {

// A factor; those of f32 are tf32.
std::string_view factor_type(DType t) {
  return t == DType::kF32 ? "tf32" : ptx_type(t);
}

// "{%4, %5}" from the operand number `first` on, which moves behind them.
std::string operands(int count, int* first) {
  std::string out = "{";
  for (int i = 0; i < count; ++i) out += fmt::format("{}%{}", i ? ", " : "", (*first)++);
  return out + "}";
}

}  // namespace

// A factor's register as mma takes it: f32 rounded to tf32.
std::string CudaEmitter::factor_word(const kir::Buffer& b, int64_t number) const {
  const std::string name = register_name(b, number, 0);
  if (in_words(b)) return name;
  return b.dtype == DType::kF32 ? "tf32_from_f32(" + name + ")" : "(u32)" + name;
}

void CudaEmitter::warp_dot(const kir::Stmt& s) {
  const kir::WarpFragmentRow& row = kir::warp_row_of(s.warp_fragment);
  if (!target_.has(std::string(row.feature)))
    refuse(fmt::format("products of {}, which {} lacks", row.name, target_.level));
  const int sums = row.sum_registers(), as = row.a_registers(), bs = row.b_registers();
  int next = 0;
  const std::string d = operands(sums, &next), a = operands(as, &next), b = operands(bs, &next);
  std::string outputs, inputs;
  const auto add = [](std::string& to, const std::string& operand) {
    to += (to.empty() ? "" : ", ") + operand;
  };
  const auto number = [&](size_t i) { return constant(s.tiles[i].number); };
  for (int i = 0; i < sums; ++i)
    add(outputs, fmt::format("\"+{}\"({})", row.sum == DType::kF32 ? "f" : "r",
                             register_name(*s.tiles[0].buffer, number(0) + i, 0)));
  for (int i = 0; i < as; ++i)
    add(inputs, fmt::format("\"r\"({})", factor_word(*s.tiles[1].buffer, number(1) + i)));
  for (int i = 0; i < bs; ++i)
    add(inputs, fmt::format("\"r\"({})", factor_word(*s.tiles[2].buffer, number(2) + i)));
  line(
      fmt::format("asm volatile(\"mma.sync.aligned.m{}n{}k{}.row.col.{}.{}.{}.{} {}, {}, {}, {};\"",
                  row.m, row.n, row.k, ptx_type(row.sum), factor_type(row.a), factor_type(row.b),
                  ptx_type(row.sum), d, a, b, d));
  line(fmt::format("             : {} : {});", outputs, inputs));
}

void CudaEmitter::warp_load(const kir::Stmt& s) {
  const kir::Buffer& to = *s.tiles[0].buffer;
  const int64_t number = constant(s.tiles[0].number);
  const bool direct = in_words(to);
  std::vector<std::string> words;
  std::string outputs;
  for (int i = 0; i < s.count; ++i) {
    words.push_back(direct ? register_name(to, number + i, 0) : fresh());
    if (!direct) line(fmt::format("u32 {};", words.back()));
    outputs += fmt::format("{}\"=r\"({})", i ? ", " : "", words.back());
  }
  int next = 0;
  const std::string d = operands(s.count, &next);
  line(fmt::format(
      "asm volatile(\"ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {}, [%{}];\" : {} : "
      "\"r\"(shared_address({})) : \"memory\");",
      s.count, s.transposed ? ".trans" : "", d, next, outputs, pointer(*s.buffer, s.index, 16)));
  if (direct) return;
  for (int i = 0; i < s.count; ++i)
    line(fmt::format("{} = {};", register_name(to, number + i, 0),
                     lanes_of({words[static_cast<size_t>(i)]}, to.dtype, 1)[0]));
}

void CudaEmitter::async_copy(const kir::Stmt& s) {
  const int size = static_cast<int>(size_of(s.buffer->dtype)), bytes = s.lanes * size;
  NIMBLE_CHECK(bytes == 4 || bytes == 8 || bytes == 16, "a copy of {} bytes in {}", bytes, f_.name);
  std::string valid = std::to_string(bytes);
  if (s.valid) {
    const Integer n = bound(*s.valid);
    valid = fmt::format("(i32)lesser<{0}>({1}, greater<{0}>(0, {2})) * {3}",
                        n.narrow ? "i32" : "i64", s.lanes, n.text, size);
  }
  line(fmt::format("copy_async<{}>({}, {}, {});", bytes, pointer(*s.to_buffer, s.to_index, bytes),
                   pointer(*s.buffer, s.index, bytes), valid));
}

}  // namespace nimble::codegen
