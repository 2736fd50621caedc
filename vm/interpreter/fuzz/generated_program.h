// A valid executable for any bytes: calls of host operators, and of a portable kernel over rows,
// whose contracts the verifier accepts. So no mutation is lost at the door, and what varies is what
// the operators and the call path must stand: ranks and extents, dtypes, scalars, the places of
// tensors in memory, the contents of the inputs. Now and then something is asked for that must be
// refused: a contract beside the operator's signature, one that hides axes, a result on a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vm/base/checked.h"
#include "vm/executable/assembler.h"
#include "vm/interpreter/fuzz/operator_programs.h"
#include "vm/interpreter/fuzz/portable_programs.h"
#include "vm/library/registry.h"

namespace nimble::fuzz {

class ProgramGenerator {
 public:
  explicit ProgramGenerator(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  exec::Executable program() {
    // Two storages with little room each, so that tensors meet. Both come from malloc, where a
    // sanitizer sees what is beyond them.
    line("LoadConsti r2, {}", 64 << (next() % 8));
    line("AllocStorage r3, r2, 64, d0");
    line("LoadConsti r2, 65024");
    line("AllocStorage r4, r2, 64, d0");
    const uint8_t plan = next();
    for (size_t calls = 1 + plan % 4; calls > 0; --calls) call();
    const bool forever = plan / 4 % 16 == 1;  // until the fuel ends
    if (forever) calls_ = "again:\n" + calls_ + "Goto @again\n";
    body_ += calls_;
    const std::string types = give_result();
    exec::Executable e =
        exec::assemble(head_ + fmt::format("function \"main\" 2 {} {{\n", used_) + body_ + "Ret " +
                       result_ + "\n}\n" + kTypes + types + kEntry + result_port_ + "\n}\n");
    size_t portable = 0;
    for (exec::Kernel& k : e.kernels)
      if (k.implementations[0].kind == exec::ImplementationKind::kPortable)
        k.portable = portable_[portable++];
    return e;
  }

 private:
  // A tree of the caller's comes as r1.
  static constexpr const char* kTypes =
      "type \"Tree\" data { \"Leaf\" (1) \"Node\" (0, 0) }\n"
      "type \"w\" tensor f32 [\"2\"] [2]\n";
  static constexpr const char* kEntry =
      "entry \"main\" f0 {\ninput \"x\" f32 [\"n\"] [-1]\ninput \"t\" type 0\n";
  static constexpr size_t kMostElements = 64;  // of a constant

  uint8_t next() {
    if (bytes_.empty()) return 0;
    const uint8_t b = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return b;
  }
  template <typename... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    body_ += fmt::format(text, std::forward<Args>(args)...) + "\n";
  }
  std::string fresh() { return fmt::format("r{}", used_++); }

  int64_t extent() {
    static constexpr int64_t kExtents[] = {1, 2, 3, 4, 0, 5, 6, 7, 8, 1, 2, 3, 4, 33};
    static constexpr int64_t kLarge[] = {1000, int64_t{1} << 31, int64_t{1} << 40,
                                         (int64_t{1} << 32) + 1};
    const uint8_t b = next();
    return b < 240 ? kExtents[b % std::size(kExtents)] : kLarge[b % std::size(kLarge)];
  }
  int64_t number() {
    static constexpr int64_t kLarge[] = {INT64_MAX, INT64_MIN, int64_t{1} << 32, 1000};
    const uint8_t b = next();
    return b < 240 ? b % 16 - 2 : kLarge[b % std::size(kLarge)];
  }
  // Extents that a tensor can have: their product fits, or one is 0.
  std::vector<int64_t> shape(int rank, const std::vector<int64_t>* like) {
    std::vector<int64_t> out;
    for (int d = 0; d < rank; ++d) {
      const auto at = static_cast<size_t>(d);
      out.push_back(like && at < like->size() && next() % 4 != 0 ? (*like)[at] : extent());
    }
    const auto bytes = try_byte_size(DType::kF64, out);
    if (!bytes) out.back() = 0;
    return out;
  }

  std::string scalar(int64_t value) {
    const std::string reg = fresh();
    line("LoadConsti {}, {}", reg, value);
    return reg;
  }

  // The register of a tensor in a storage: of its own, behind the one before, or anywhere.
  std::string in_storage(DType dtype, const std::vector<int64_t>& s) {
    const int64_t bytes = try_byte_size(dtype, s).value_or(0);
    const uint8_t where = next();
    if (where % 8 >= 4) {
      const std::string storage = fresh(), reg = fresh();
      line("AllocStorage {}, {}, 64, d0", storage, scalar(bytes));
      line("AllocTensor {}, {}, {}, {}, [{}]", reg, storage, scalar(0), name_of(dtype),
           fmt::join(s, ", "));
      return reg;
    }
    int64_t at = at_;
    if (where % 8 == 0) at = next() * static_cast<int64_t>(size_of(dtype));
    if (where % 8 != 0) at_ += (bytes + 63) / 64 * 64;
    const std::string reg = fresh();
    line("AllocTensor {}, r{}, {}, {}, [{}]", reg, where % 8 == 0 && where > 128 ? 3 : 4,
         scalar(at), name_of(dtype), fmt::join(s, ", "));
    return reg;
  }
  // The same of a constant whose elements the bytes tell.
  std::string constant(DType dtype, const std::vector<int64_t>& s) {
    const auto n = static_cast<size_t>(try_element_count(s).value_or(0));
    std::vector<int64_t> elements(n);
    const uint8_t modulus = 1 + next() % 8;
    for (int64_t& e : elements) e = dtype == DType::kBool ? next() % 2 : next() % modulus;
    head_ += fmt::format("constant \"c{}\" {} [{}] {{ {} }}\n", constants_, name_of(dtype),
                         fmt::join(s, ", "), fmt::join(elements, ", "));
    const std::string reg = fresh();
    line("LoadConst {}, c{}", reg, constants_++);
    return reg;
  }

  void call() {
    std::vector<const rt::LibraryKernel*> operators;
    for (const rt::LibraryKernel* k : rt::library_kernels())
      if (k->kind == exec::ImplementationKind::kHost) operators.push_back(k);
    const size_t at = next() % (operators.size() + 1);
    if (at == operators.size())
      portable();
    else
      host(*operators[at]);
  }

  void invoke(const std::vector<std::string>& arguments) {
    calls_ += fmt::format("InvokePacked k{}, ({})\n", kernels_++, fmt::join(arguments, ", "));
  }

  // Leaves the last result, which may lie on a device and in a value, in result_; gives the types
  // for that.
  std::string give_result() {
    const uint8_t how = next();
    if (how % 8 == 1) {
      const std::string there = fresh();
      line("DeviceCopy {}, {}, d1", there, result_);
      result_ = there;
    }
    std::vector<std::string> dims(result_rank_, "\"?\"");
    std::vector<int64_t> any(result_rank_, -1);
    const std::string tensor = fmt::format("{} [{}] [{}]", name_of(result_dtype_),
                                           fmt::join(dims, ", "), fmt::join(any, ", "));
    if (how / 8 % 4 != 1) {
      result_port_ = "output \"y\" " + tensor;
      return "";
    }
    const std::string value = fresh();
    line("AllocADT {}, 0, ({}, {})", value, result_, result_);
    result_ = value;
    result_port_ = "output \"y\" type 3";
    return "type \"result\" tensor " + tensor + "\ntype \"Pair\" tuple (2, 2)\n";
  }

  // A copy by portable code, whose contract takes any number of leading axes; or nothing, with much
  // scratch.
  void portable() {
    const std::vector<int64_t> s = shape(1 + next() % 4, nullptr);
    const std::vector<int64_t> other = shape(1 + next() % 4, &s);
    head_ += fmt::format(
        "kernel \"k{}\" {{ symbols n in rows f32 ([a0]) out rows f32 ([a0]) scratch [0]\n"
        "dispatch {{ 0: 0 }} portable \"copy\" }}\n",
        kernels_);
    const std::string x = in_storage(DType::kF32, s);
    const std::string y = in_storage(DType::kF32, next() % 4 ? s : other);
    exec::PortableKernel kernel = *portable_program({}).kernels[0].portable;
    if (next() % 8 == 1) {
      kernel.code.clear();
      kernel.scratch = {{DType::kF32, exec::DimProgram::constant(int64_t{1} << next() % 24)}};
    }
    portable_.push_back(std::move(kernel));
    invoke({x, y});
  }

  void host(const rt::LibraryKernel& op) {
    const rt::ContractRule& rule = *op.rule;
    std::vector<std::string> symbols, arguments, reads, writes, scalars;
    std::vector<int64_t> values;  // of symbols
    const auto symbol = [&](int64_t value) {
      symbols.push_back(fmt::format("s{}", symbols.size()));
      values.push_back(value);
      return fmt::format("[a{}]", symbols.size() - 1);
    };
    std::vector<int64_t> first;
    const auto common = static_cast<DType>(next() % kDTypeCount);
    size_t count = rule.tensors.size();
    if (rule.more) count += next() % 4;
    const uint8_t wrong = next();  // what the verifier or the signature refuses
    const bool hides_all = wrong % 32 == 1, hides_one = wrong % 32 == 2, other = wrong % 32 == 3;
    for (size_t i = 0; i < count; ++i) {
      const rt::TensorRule& t = rule.tensors[std::min(i, rule.tensors.size() - 1)];
      const int rank = hides_all         ? 1 + next() % 4
                       : t.rank_of_first ? static_cast<int>(first.size())
                                         : std::clamp(1 + next() % 4, t.min_rank, t.max_rank);
      const std::vector<int64_t> s = shape(rank, i > 0 ? &first : nullptr);
      if (i == 0) first = s;
      const DType dtype = other && next() % 4 == 1 ? static_cast<DType>(next() % kDTypeCount)
                          : t.type == rt::TensorRule::Type::kFixed ? t.dtype
                          : t.type == rt::TensorRule::Type::kAny
                              ? static_cast<DType>(next() % kDTypeCount)
                              : common;
      const bool written = t.access != exec::Access::kIn;
      std::vector<std::string> dims;
      std::vector<int64_t> seen = s;  // by the contract
      if (hides_all) seen.clear();
      if (hides_one && seen.size() > 1) {
        seen[1] = try_element_count({seen.data(), 2}).value_or(0);
        seen.erase(seen.begin());
      }
      for (const int64_t e : seen) {
        const auto known = std::find(values.begin(), values.end(), e);
        if (op.name == "host.copy" && written)  // must be the same programs
          dims.push_back(fmt::format("[a{}]", dims.size()));
        else if (!written && (op.name == "host.copy" || next() % 4 != 0))
          dims.push_back(symbol(e));
        else if (known != values.end())
          dims.push_back(fmt::format("[a{}]", known - values.begin()));
        else
          dims.push_back(fmt::format("[{}]", e));
      }
      arguments.push_back(fmt::format("{} {}{} ({})", written ? "out" : "in",
                                      seen.size() < s.size() ? "rows " : "", name_of(dtype),
                                      fmt::join(dims, ", ")));
      const bool small = try_element_count(s).value_or(0) <= static_cast<int64_t>(kMostElements);
      const std::string reg =
          !written && small && next() % 8 != 0 ? constant(dtype, s) : in_storage(dtype, s);
      (written ? writes : reads).push_back(reg);
      if (written) {
        result_ = reg;
        result_dtype_ = dtype;
        result_rank_ = s.size();
      }
    }
    std::vector<int64_t> told;
    for (size_t i = 0; i < rule.scalars; ++i) told.push_back(number());
    if (rule.values > 0) {
      // Leaves of an f32 pair and nodes of two trees, as the entry's type has them; or nearly so.
      told = {2, 0, 0, 0, 1, 0, static_cast<int64_t>(DType::kF32), 1, 2, 0, 1, 2, 0, 0, 1, 0, 0};
      if (const uint8_t change = next(); change % 2) told[change / 2 % told.size()] = number();
      reads.insert(reads.begin(), value());
    }
    std::string contract;
    for (size_t i = 0; i < rule.values; ++i) contract += "data\n";
    const size_t inputs = reads.size() - rule.values;
    for (size_t i = 0; i < inputs; ++i) contract += arguments[i] + "\n";
    for (const int64_t v : told) {
      scalars.push_back(scalar(v));
      symbol(v);
      contract += "scalar " + symbols.back() + "\n";
    }
    for (size_t i = inputs; i < arguments.size(); ++i) contract += arguments[i] + "\n";
    head_ += fmt::format(
        "kernel \"k{}\" {{\n{}{}{}scratch [0]\ndispatch {{ 0: 0 }}\nhost \"{}\"\n}}\n", kernels_,
        symbols.empty() ? "" : "symbols ", fmt::join(symbols, " "), "\n" + contract, op.name);
    reads.insert(reads.end(), scalars.begin(), scalars.end());
    reads.insert(reads.end(), writes.begin(), writes.end());
    invoke(reads);
  }

  // The caller's tree, or one with shared parts.
  std::string value() {
    std::string v = "r1";
    for (size_t levels = next() % 8; levels > 0; --levels) {
      const std::string node = fresh();
      line("AllocADT {}, 1, ({}, {})", node, v, next() % 2 ? "r1" : v);
      v = node;
    }
    return v;
  }

  std::span<const uint8_t> bytes_;
  std::string head_, body_, calls_;  // kernels and constants; operands; what is done with them
  std::vector<exec::PortableKernel> portable_;  // of the kernels that have one, in their order
  std::string result_ = "r0", result_port_;
  DType result_dtype_ = DType::kF32;
  size_t result_rank_ = 1;
  size_t used_ = 5, kernels_ = 0, constants_ = 0;
  int64_t at_ = 0;  // in r4
};

// The bytes of a program for each operator, and for the portable kernel, with nothing out of the
// way: a start for mutation.
inline std::vector<std::string> generator_seeds() {
  std::vector<std::string> out;
  for (uint8_t op = 0; op < 16; ++op)
    for (const uint8_t filler : {uint8_t{1}, uint8_t{7}}) {
      std::string bytes = {'\2', 4, 1, static_cast<char>(op)};
      bytes.append(64, static_cast<char>(filler));
      out.push_back(bytes);
    }
  return out;
}

}  // namespace nimble::fuzz
