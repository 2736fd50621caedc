// Loads and stores. Lanes that follow one another in memory are accessed 16, 8, 4 or 2 bytes at
// once where that is known to be aligned (kernels/gpu_access.h). Such an access gives words
// (CudaEmitter::Parts), of which lanes are made when somebody asks: what is only carried from here
// to there stays as it is.
#include <algorithm>

#include "compiler/codegen/cuda/emitter.h"
#include "compiler/kernels/gpu_access.h"
#include "vm/base/error.h"

namespace nimble::codegen {

using ir::Dim;

namespace {

int bytes_of(DType t) {
  return static_cast<int>(size_of(t));
}

// The vector type of so many bytes, and its members.
const char* vector_type(int bytes) {
  return bytes == 16 ? "uint4" : bytes == 8 ? "uint2" : bytes == 4 ? "u32" : "u16";
}

}  // namespace

// The address is a sum of what changes and a constant, which becomes the access's displacement.
std::string CudaEmitter::pointer(const kir::Buffer& b, const Dim& index, int bytes) {
  if (b.scope == kir::Scope::kArgument) argument_alignment_ = std::max(argument_alignment_, bytes);
  Dim changing = 0;
  int64_t rest = 0;
  for (const Dim::Term& t : index.terms()) {
    if (t.atoms.empty()) {
      rest = t.coefficient;
      continue;
    }
    Dim term = t.coefficient;
    for (const Dim& a : t.atoms) term = term * a;
    changing = changing + term;
  }
  std::string text = places_.at(&b);
  if (!changing.is_constant(0)) text += " + " + dim(changing).text;
  if (rest != 0) text += " + " + integer(DType::kI64, rest);
  const bool constant = b.scope == kir::Scope::kArgument && !b.writable;
  return bind(fmt::format("{}{}* const", constant ? "const " : "", cuda_memory_type(b.dtype)),
              text);
}

CudaEmitter::Parts CudaEmitter::load(const kir::Value& v) {
  Parts out;
  const kir::Buffer& b = *v.buffer;
  if (v.lanes > 1 && v.stride.is_constant(1)) {
    load_dense(v, out);
    return out;
  }
  const bool same = v.lanes > 1 && v.stride.is_constant(0) && !v.valid;
  const std::string at = pointer(b, v.index, bytes_of(b.dtype));
  const std::string stride = v.lanes > 1 && !same ? bound(v.stride).text : "0";
  const std::string valid = v.valid ? bound(*v.valid).text : "";
  std::vector<std::string> others;
  if (v.passthrough) others = lanes(v.passthrough);
  const std::string type(cuda_type(v.dtype));
  for (int i = 0; i < v.lanes; ++i) {
    if (same && i > 0) {
      out.lanes.push_back(out.lanes[0]);
      continue;
    }
    std::string element =
        i == 0 ? "*" + at
               : fmt::format("{}[{}(i64){}]", at, i > 1 ? fmt::format("{} * ", i) : "", stride);
    if (v.dtype == DType::kBool) element = "(" + element + " != 0)";
    if (v.valid)
      element = fmt::format("{} > {} ? {} : {}", valid, i, element,
                            others.empty() ? fmt::format("({})0", type) : others[i]);
    out.lanes.push_back(bind(type, element));
  }
  return out;
}

// `to`: variables that are declared already.
void CudaEmitter::load_chunk(const std::string& from, int bytes,
                             const std::vector<std::string>& to) {
  if (bytes == 4) return line(fmt::format("{} = *reinterpret_cast<const u32*>({});", to[0], from));
  const std::string all = bind(vector_type(bytes), fmt::format("*reinterpret_cast<const {}*>({})",
                                                               vector_type(bytes), from));
  for (int w = 0; w < bytes / 4; ++w) line(fmt::format("{} = {}.{};", to[w], all, "xyzw"[w]));
}

void CudaEmitter::load_dense(const kir::Value& v, Parts& out) {
  const kir::Buffer& b = *v.buffer;
  const int size = bytes_of(b.dtype), all = size * v.lanes;
  const int chunk = kir::access_bytes(b, v.index, v.lanes, facts_);
  const std::string type(cuda_type(v.dtype)), at = pointer(b, v.index, chunk);
  const std::string valid = v.valid ? bound(*v.valid).text : "";
  const auto element = [&](int i) {
    const std::string text = fmt::format("{}[{}]", at, i);
    return v.dtype == DType::kBool ? "(" + text + " != 0)" : text;
  };
  std::vector<std::string> others;
  if (chunk == size || chunk < 4) {
    if (v.passthrough) others = lanes(v.passthrough);
    const auto other = [&](int i) {
      return others.empty() ? fmt::format("({})0", type) : others[i];
    };
    if (chunk == size || v.valid) {
      for (int i = 0; i < v.lanes; ++i)
        out.lanes.push_back(
            bind(type, v.valid ? fmt::format("{} > {} ? {} : {}", valid, i, element(i), other(i))
                               : element(i)));
      return;
    }
    for (int i = 0; i < v.lanes; i += 2) {  // bytes in pairs
      const std::string pair =
          bind("u16", fmt::format("*reinterpret_cast<const u16*>({} + {})", at, i));
      for (const std::string& lane : lanes_of({pair}, v.dtype, 2)) out.lanes.push_back(lane);
    }
    return;
  }
  for (int w = 0; w < all / 4; ++w) {
    out.words.push_back(fresh());
    line(fmt::format("u32 {};", out.words.back()));
  }
  const auto words_from = [&](int byte) {
    return std::vector<std::string>(out.words.begin() + byte / 4,
                                    out.words.begin() + (byte + chunk) / 4);
  };
  const auto load_all = [&] {
    for (int byte = 0; byte < all; byte += chunk)
      load_chunk(fmt::format("{} + {}", at, byte / size), chunk, words_from(byte));
  };
  if (!v.valid) {
    load_all();
  } else {
    std::vector<std::string> other_words(out.words.size(), "0u");
    if (v.passthrough) other_words = words(v.passthrough), others = lanes(v.passthrough);
    const bool whole = facts_.divisible(*v.valid, chunk / size) == ir::Proof::kYes;
    if (whole) {  // each access is all or nothing
      for (int byte = 0; byte < all; byte += chunk) {
        const auto to = words_from(byte);
        braces(fmt::format("if ({} > {}) ", valid, byte / size),
               [&] { load_chunk(fmt::format("{} + {}", at, byte / size), chunk, to); });
        braces("else ", [&] {
          for (int w = 0; w < chunk / 4; ++w)
            line(fmt::format("{} = {};", to[w], other_words[byte / 4 + w]));
        });
      }
    } else {
      braces(fmt::format("if ({} >= {}) ", valid, v.lanes), load_all);
      braces("else ", [&] {
        std::vector<std::string> each;
        for (int i = 0; i < v.lanes; ++i)
          each.push_back(
              bind(type, fmt::format("{} > {} ? {} : {}", valid, i, element(i),
                                     others.empty() ? fmt::format("({})0", type) : others[i])));
        const auto packed = words_of(each, v.dtype);
        for (size_t w = 0; w < packed.size(); ++w)
          line(fmt::format("{} = {};", out.words[w], packed[w]));
      });
    }
  }
  if (v.dtype == DType::kBool) {  // any byte but 0 is true
    out.lanes = lanes_of(out.words, v.dtype, v.lanes);
    out.words.clear();
  }
}

void CudaEmitter::store_chunk(const std::string& to, int bytes,
                              const std::vector<std::string>& words, size_t first) {
  std::string all = words[first];
  for (int w = 1; w < bytes / 4; ++w) all += ", " + words[first + w];
  if (bytes > 4) all = fmt::format("make_{}({})", vector_type(bytes), all);
  line(fmt::format("*reinterpret_cast<{}*>({}) = {};", vector_type(bytes), to, all));
}

void CudaEmitter::store(const kir::Stmt& s) {
  const kir::Buffer& b = *s.buffer;
  const DType t = s.value->dtype;
  const int size = bytes_of(t), n = s.value->lanes;
  const bool dense = n == 1 || s.stride.is_constant(1);
  const int chunk = dense ? kir::access_bytes(b, s.index, n, facts_) : size;
  const bool vectors = chunk > size && chunk >= 4;
  value(s.value);
  const std::string valid = s.valid ? bound(*s.valid).text : "";
  const std::string stride = dense ? "" : bound(s.stride).text;
  const std::string at = pointer(b, s.index, vectors ? chunk : size);
  const auto each = [&] {
    const std::vector<std::string> all = lanes(s.value);
    for (int i = 0; i < n; ++i)
      line(fmt::format("{}{}[{}{}] = {};", s.valid ? fmt::format("if ({} > {}) ", valid, i) : "",
                       at, dense ? "" : fmt::format("(i64){} * ", stride), i,
                       t == DType::kBool ? "(u8)" + all[i] : all[i]));
  };
  if (!vectors) return each();
  const std::vector<std::string> packed = words(s.value);
  const auto store_at = [&](int byte) {
    store_chunk(fmt::format("{} + {}", at, byte / size), chunk, packed,
                static_cast<size_t>(byte / 4));
  };
  const auto store_all = [&] {
    for (int byte = 0; byte < n * size; byte += chunk) store_at(byte);
  };
  if (!s.valid) return store_all();
  if (facts_.divisible(*s.valid, chunk / size) == ir::Proof::kYes) {
    for (int byte = 0; byte < n * size; byte += chunk)
      braces(fmt::format("if ({} > {}) ", valid, byte / size), [&] { store_at(byte); });
    return;
  }
  braces(fmt::format("if ({} >= {}) ", valid, n), store_all);
  braces("else ", each);
}

}  // namespace nimble::codegen
