// What the functions of a module share in its executable, each thing once: constants, scalar
// functions, texts.
#include <algorithm>

#include "compiler/emit/function_emitter.h"

namespace nimble::emit {

uint32_t EmitContext::constant(const ir::TensorRef& t, bool hot, int32_t device) {
  auto [it, fresh] = constant_index.emplace(std::pair(t.get(), device),
                                            static_cast<uint32_t>(out.constants.size()));
  if (fresh) {
    const std::string_view bytes(reinterpret_cast<const char*>(t->bytes.data()), t->bytes.size());
    const size_t hash = std::hash<std::string_view>()(bytes);
    const auto [first, last] = constants_by_hash.equal_range(hash);
    const auto equal = std::find_if(first, last, [&](const auto& entry) {
      const exec::Constant& c = out.constants[entry.second];
      return c.dtype == t->dtype && c.shape == t->shape && c.device == device &&
             std::equal(c.bytes.begin(), c.bytes.end(), t->bytes.begin(), t->bytes.end());
    });
    if (equal != last) {
      it->second = equal->second;
    } else {
      constants_by_hash.emplace(hash, it->second);
      std::string name = t->name.empty() ? fmt::format("c{}", it->second) : t->name;
      // The tensor owns the bytes (or views a file that its owner keeps mapped).
      out.constants.push_back({name, t->dtype, t->shape, t->bytes, t, hot, device});
    }
  }
  out.constants[it->second].hot |= hot;
  return it->second;
}

uint32_t EmitContext::scalar_function(exec::DimProgram p) {
  std::string key = fmt::format("{}:{}:", p.arguments, p.results);
  for (const exec::DimInstruction& i : p.code)
    key += fmt::format("{},{};", static_cast<int>(i.op), i.immediate);
  auto [it, fresh] = scalar_index.emplace(key, static_cast<uint32_t>(out.scalar_functions.size()));
  if (fresh) out.scalar_functions.push_back({fmt::format("scalar{}", it->second), std::move(p)});
  return bytecode_functions + it->second;
}

uint32_t EmitContext::results_of(int64_t function) const {
  const int64_t scalar = function - bytecode_functions;
  return scalar < 0 ? 1 : out.scalar_functions[static_cast<size_t>(scalar)].program.results;
}

uint32_t EmitContext::text(const std::string& s) {
  auto [it, fresh] = text_index.emplace(s, static_cast<uint32_t>(out.texts.size()));
  if (fresh) out.texts.push_back(s);
  return it->second;
}

}  // namespace nimble::emit
