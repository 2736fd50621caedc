// A valid executable for any bytes: calls of host operators, and of portable kernels over rows,
// whose contracts the verifier accepts. So no mutation is lost at the door, and what varies is what
// the operators and the call path must stand: ranks and extents, dtypes, scalars, devices, the
// places of tensors in memory, tensors that are each other's operands, the contents and types of
// the inputs, what is known of a value before the run. Now and then something is asked for that
// must be refused: a contract beside the operator's signature, one that hides axes, one constant
// over another in the file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "vm/executable/assembler.h"
#include "vm/interpreter/fuzz/choices.h"
#include "vm/interpreter/fuzz/operator_programs.h"
#include "vm/interpreter/fuzz/portable_programs.h"
#include "vm/library/registry.h"

namespace nimble::fuzz {

class ProgramGenerator {
 public:
  explicit ProgramGenerator(std::span<const uint8_t> bytes) : c_(bytes) {}

  exec::Executable program() {
    // Two storages with little room each, so that tensors meet. Both come from malloc, where a
    // sanitizer sees what is beyond them.
    line("LoadConsti r2, {}", 64 << (c_.next() % 8));
    line("AllocStorage r3, r2, 64, d0");
    line("LoadConsti r2, 65024");
    line("AllocStorage r4, r2, 64, d0");
    const uint8_t plan = c_.next();
    for (size_t calls = 1 + plan % 4; calls > 0; --calls) call();
    const bool forever = plan / 4 % 8 == 1;  // until the fuel ends
    overlaid_ = plan / 4 % 16 == 14;
    body_ += forever ? "again:\n" + calls_ + "Goto @again\n" : calls_;
    const std::string ports = result_ports();
    exec::Executable e = exec::assemble(head_ + fmt::format("function \"main\" 2 {} {{\n", used_) +
                                        body_ + "}\n" + types_of_inputs() + ports);
    for (auto& [kernel, code] : portable_) e.kernels[kernel].portable = std::move(code);
    return e;
  }

  // Whether the verifier and the load have nothing to refuse in it.
  bool valid() const { return valid_; }
  // Whether its last constant is to lie over its first in the file.
  bool overlaid() const { return overlaid_; }

 private:
  static constexpr size_t kMostElements = 64;  // of a constant
  static constexpr int kHost = 0, kStandIn = 1;

  struct Operand {
    std::string reg;
    DType dtype;
    std::vector<int64_t> shape;
    int device = kHost;
    bool constant = false;
  };

  template <typename... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    body_ += fmt::format(text, std::forward<Args>(args)...) + "\n";
  }
  std::string fresh() { return fmt::format("r{}", used_++); }

  std::string scalar(int64_t value) {
    const std::string reg = fresh();
    line("LoadConsti {}, {}", reg, value);
    return reg;
  }

  // ---- operands

  // A storage of 64 KiB, made when it is first wanted.
  const std::string& storage_of_stand_in() {
    if (stand_in_.empty()) {
      stand_in_ = fresh();
      line("AllocStorage {}, r2, 64, d{}", stand_in_, kStandIn);
    }
    return stand_in_;
  }

  // In a storage: of its own, behind the tensor before, or anywhere.
  Operand in_storage(DType dtype, const std::vector<int64_t>& s, int device) {
    const int64_t bytes = try_byte_size(dtype, s).value_or(0);
    const uint8_t where = c_.next();
    if (where % 8 >= 4) {
      const std::string size = scalar(bytes), storage = fresh(), start = scalar(0), reg = fresh();
      line("AllocStorage {}, {}, 64, d{}", storage, size, device);
      line("AllocTensor {}, {}, {}, {}, [{}]", reg, storage, start, name_of(dtype),
           fmt::join(s, ", "));
      return {reg, dtype, s, device};
    }
    int64_t at = at_;
    if (where % 8 == 0) at = c_.next() * static_cast<int64_t>(size_of(dtype));
    // What no storage holds leaves the place to the next.
    if (where % 8 != 0 && bytes <= int64_t{1} << 32) at_ += (bytes + 63) / 64 * 64;
    const std::string storage = device == kStandIn              ? storage_of_stand_in()
                                : where % 8 == 0 && where > 128 ? "r3"
                                                                : "r4";
    const std::string offset = scalar(at), reg = fresh();
    line("AllocTensor {}, {}, {}, {}, [{}]", reg, storage, offset, name_of(dtype),
         fmt::join(s, ", "));
    return {reg, dtype, s, device};
  }

  // A constant whose elements the bytes tell.
  Operand constant(DType dtype, const std::vector<int64_t>& s, int device) {
    const auto n = static_cast<size_t>(try_element_count(s).value_or(0));
    std::vector<int64_t> elements(n);
    const uint8_t modulus = 1 + c_.next() % 8;
    for (int64_t& e : elements) e = dtype == DType::kBool ? c_.next() % 2 : c_.next() % modulus;
    head_ += fmt::format("constant \"c{}\" {} [{}]{} {{ {} }}\n", constants_, name_of(dtype),
                         fmt::join(s, ", "), device == kStandIn ? " device d1" : "",
                         fmt::join(elements, ", "));
    const std::string reg = fresh();
    line("LoadConst {}, c{}", reg, constants_++);
    return {reg, dtype, s, device, true};
  }

  // Something to read or to write: now and then what an earlier argument was, or the caller's.
  Operand operand(DType dtype, const std::vector<int64_t>& s, int device, bool written) {
    if (c_.rarely(8)) {
      const auto alike = std::ranges::find_if(known_, [&](const Operand& o) {
        return o.dtype == dtype && o.shape == s && o.device == device && !(o.constant && written);
      });
      if (alike != known_.end()) return *alike;
    }
    const bool small = try_element_count(s).value_or(0) <= static_cast<int64_t>(kMostElements);
    Operand o = !written && small && !c_.rarely(8) ? constant(dtype, s, device)
                                                   : in_storage(dtype, s, device);
    known_.push_back(o);
    return o;
  }

  // The register of an operand, perhaps by way of a value, behind which the verifier sees nothing:
  // no constant, no device.
  std::string given(const std::string& reg) {
    if (!c_.rarely(8)) return reg;
    const std::string box = fresh(), out = fresh();
    line("AllocADT {}, 0, ({})", box, reg);
    line("GetField {}, {}, 0", out, box);
    return out;
  }

  void written(const Operand& o) { results_.push_back(o); }
  void invoke(const std::vector<std::string>& arguments) {
    calls_ += fmt::format("InvokePacked k{}, ({})\n", kernels_++, fmt::join(arguments, ", "));
  }

  // ---- calls

  void call() {
    std::vector<const rt::LibraryKernel*> operators;
    for (const rt::LibraryKernel* k : rt::library_kernels())
      if (k->kind == exec::ImplementationKind::kHost) operators.push_back(k);
    const size_t at = c_.next() % (operators.size() + 1);
    if (at == operators.size())
      portable();
    else
      host(*operators[at]);
  }

  int device() { return c_.rarely(8) ? kStandIn : kHost; }

  // The rest of a kernel whose contract has these symbols.
  std::string rest_of_kernel(size_t symbols, int device, const std::string& implementation) {
    const std::vector<std::string> scratch = {"[64]", "[1048576]", "[-1]", "[4611686018427387904]",
                                              fmt::format("[a{} 64 *]", symbols)};
    const std::vector<std::string> trees = {
        "0: 0", "0: 0", "0: threads <= 1 ? 1 : 2 1: 0 2: 1",
        symbols > 0 ? "0: s0 <= 4 ? 1 : 2 1: 1 2: 0" : "0: 1",
        symbols > 1 ? "0: s0 * s1 == 6 ? 2 : 1 1: 0 2: 1" : "0: 0"};
    std::string out = "scratch " + (c_.rarely(8) ? c_.one_of(scratch) : "[0]") + "\n";
    if (symbols > 0 && c_.rarely(8)) out += fmt::format("require [a0 {} <=]\n", c_.number());
    if (device == kStandIn) out += "device d1\n";
    return out + "dispatch { " + c_.one_of(trees) + " }\n" + implementation + "\n" +
           implementation + " threads 1\n}\n";
  }

  // By portable code, whose contract takes any number of leading axes; it may work in place.
  void portable() {
    const int where = device();
    const DType type = c_.dtype();
    const bool rows = !c_.rarely(4);
    const std::vector<int64_t> s = c_.shape(rows ? 1 + c_.next() % 4 : 1, nullptr);
    const std::vector<int64_t> other = c_.rarely(4) ? c_.shape(1 + c_.next() % 4, &s) : s;
    std::vector<exec::PortableOp> operations;
    for (size_t n = c_.next() % 4; n > 0; --n)
      if (const auto op = static_cast<exec::PortableOp>(c_.next() % exec::kPortableOpCount);
          is_straight(op))
        operations.push_back(op);
    const std::string tensor = fmt::format("{}{} ([a0])", rows ? "rows " : "", name_of(type));
    // One after the other: compilers differ in the order of a call's arguments.
    const std::string access = c_.rarely(4) ? "inout" : "out";
    const std::string rest = rest_of_kernel(1, where, "portable \"p\"");
    head_ += fmt::format("kernel \"k{}\" {{ symbols s0\nin {}\n{} {}\n{}", kernels_, tensor, access,
                         tensor, rest);
    exec::PortableKernel code = portable_kernel(operations, type);
    if (c_.rarely(8)) {  // nothing, with much scratch
      code.code.clear();
      code.scratch = {
          {type, exec::DimProgram::constant(int64_t{1} << std::min(c_.next() % 32, 24))}};
    }
    portable_[kernels_] = std::move(code);
    const Operand y = operand(type, other, where, true);
    const Operand x = c_.rarely(4) ? y : operand(type, s, where, false);
    const std::string from = given(x.reg), to = given(y.reg);
    invoke({from, to});
    written(y);
  }

  void host(const rt::LibraryKernel& op) {
    const rt::ContractRule& rule = *op.rule;
    const int where = rule.values > 0 ? kHost : device();
    std::vector<std::string> symbols, arguments, reads, writes, scalars;
    std::vector<int64_t> values;  // of symbols
    const auto symbol = [&](int64_t value) {
      symbols.push_back(fmt::format("s{}", symbols.size()));
      values.push_back(value);
      return fmt::format("[a{}]", symbols.size() - 1);
    };
    std::vector<int64_t> first;
    const DType common = c_.dtype();
    size_t count = rule.tensors.size();
    if (rule.more) count += c_.next() % 4;
    const uint8_t wrong = c_.next();  // what the verifier or the signature refuses
    const bool hides_all = wrong % 32 == 31, hides_one = wrong % 32 == 30, other = wrong % 32 == 29;
    valid_ &= !hides_all && !hides_one && !other;
    for (size_t i = 0; i < count; ++i) {
      const rt::TensorRule& t = rule.tensors[std::min(i, rule.tensors.size() - 1)];
      const int rank = hides_all         ? 1 + c_.next() % 4
                       : t.rank_of_first ? static_cast<int>(first.size())
                                         : std::clamp(1 + c_.next() % 4, t.min_rank, t.max_rank);
      const bool write = t.access != exec::Access::kIn;
      std::vector<int64_t> s = c_.shape(rank, i > 0 ? &first : nullptr);
      if (write && op.name.starts_with("host.count") && !c_.rarely(8)) s = {1};
      if (i == 0) first = s;
      const DType dtype = other && c_.next() % 4 == 1              ? c_.dtype()
                          : t.type == rt::TensorRule::Type::kFixed ? t.dtype
                          : t.type == rt::TensorRule::Type::kAny   ? c_.dtype()
                                                                   : common;
      std::vector<std::string> dims;
      std::vector<int64_t> seen = s;  // by the contract
      if (hides_all) seen.clear();
      if (hides_one && seen.size() > 1) {
        seen[1] = try_element_count({seen.data(), 2}).value_or(0);
        seen.erase(seen.begin());
      }
      for (const int64_t e : seen) {
        const auto known = std::find(values.begin(), values.end(), e);
        if (op.name == "host.copy" && write)  // must be the same programs
          dims.push_back(fmt::format("[a{}]", dims.size()));
        else if (!write && (op.name == "host.copy" || c_.next() % 4 != 0))
          dims.push_back(symbol(e));
        else if (known != values.end())
          dims.push_back(fmt::format("[a{}]", known - values.begin()));
        else
          dims.push_back(fmt::format("[{}]", e));
      }
      arguments.push_back(fmt::format("{} {}{} ({})", write ? "out" : "in",
                                      seen.size() < s.size() ? "rows " : "", name_of(dtype),
                                      fmt::join(dims, ", ")));
      // The caller's vector, whose extent only the run tells.
      if (!write && rank == 1 && dtype == DType::kF32 && where == kHost && c_.rarely(8)) {
        reads.push_back(given("r0"));
        continue;
      }
      const Operand o = operand(dtype, s, where, write);
      (write ? writes : reads).push_back(given(o.reg));
      if (write) written(o);
    }
    std::vector<int64_t> told;
    for (size_t i = 0; i < rule.scalars; ++i) told.push_back(c_.number());
    if (rule.values > 0) {
      if (c_.rarely(4)) {
        leaf_ = c_.dtype();
        leaf_extent_ = c_.next() % 4;
      }
      // Leaves of a vector and nodes of two trees, as the entry's type has them; or nearly so.
      told = {2, 0, 0, 0, 1, 0, static_cast<int64_t>(leaf_), 1, leaf_extent_, 0, 1,
              2, 0, 0, 1, 0, 0};
      if (const uint8_t change = c_.next(); change % 2)
        told[change / 2 % told.size()] = c_.number();
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
    head_ += fmt::format("kernel \"k{}\" {{\n{}{}\n{}{}", kernels_,
                         symbols.empty() ? "" : "symbols ", fmt::join(symbols, " "), contract,
                         rest_of_kernel(symbols.size(), where, "host \"" + op.name + "\""));
    reads.insert(reads.end(), scalars.begin(), scalars.end());
    reads.insert(reads.end(), writes.begin(), writes.end());
    invoke(reads);
  }

  // ---- values, entry

  // The caller's tree, or one with shared parts.
  std::string value() {
    std::string v = "r1";
    for (size_t levels = c_.next() % 8; levels > 0; --levels) {
      const std::string node = fresh();
      line("AllocADT {}, 1, ({}, {})", node, v, c_.next() % 2 ? "r1" : v);
      v = node;
    }
    return v;
  }

  std::string types_of_inputs() const {
    return fmt::format(
        "type \"Tree\" data {{ \"Leaf\" (1) \"Node\" (0, 0) }}\n"
        "type \"w\" tensor {} [\"{}\"] [{}]\n",
        name_of(leaf_), leaf_extent_, leaf_extent_);
  }

  // Returns what was written last, or the tree: alone, or in a value that its type describes, or
  // that nearly does. Wherever it lies; mostly the caller reads it without a copy.
  std::string result_ports() {
    const std::string entry =
        "entry \"main\" f0 {\ninput \"x\" f32 [\"n\"] [-1]\ninput \"t\" type 0\n";
    const uint8_t form = c_.next() % 8;
    if (form == 7) {
      line("Ret {}", value());
      return entry + "output \"t\" type 0\n}\n";
    }
    Operand r = results_.empty() ? Operand{"r0", DType::kF32, {3}} : results_.back();
    if (r.device == kStandIn && c_.next() % 4 != 0) {
      const std::string copy = fresh();
      line("DeviceCopy {}, {}, d{}", copy, r.reg, kHost);
      r.reg = copy;
    }
    if (r.device == kHost && c_.rarely(8)) {
      const std::string copy = fresh();
      line("DeviceCopy {}, {}, d{}", copy, r.reg, kStandIn);
      r.reg = copy;
    }
    size_t rank = r.shape.size();
    if (c_.rarely(16)) r.dtype = c_.dtype(), rank = c_.next() % 4;
    const std::vector<std::string> names(rank, "\"?\"");
    const std::vector<int64_t> any(rank, -1);
    const std::string tensor =
        fmt::format("{} [{}] [{}]", name_of(r.dtype), fmt::join(names, ", "), fmt::join(any, ", "));
    if (form < 4) {
      line("Ret {}", r.reg);
      return entry + "output \"y\" " + tensor + "\n}\n";
    }
    const std::string box = fresh();
    if (form == 4)
      line("AllocADT {}, 0, ({})", box, r.reg);
    else
      line("AllocADT {}, 1, ({}, {})", box, r.reg,
           form == 6 || results_.empty() ? r.reg : results_.front().reg);
    line("Ret {}", box);
    return "type \"result\" tensor " + tensor +
           "\ntype \"Box\" data { \"One\" (2) \"Two\" (2, 2) }\n" + entry +
           "output \"y\" type 3\n}\n";
  }

  Choices c_;
  std::string head_, body_, calls_;       // kernels and constants; operands; what is done with them
  std::string stand_in_;                  // its storage
  std::vector<Operand> known_, results_;  // of arguments; of those, what is written
  std::map<size_t, exec::PortableKernel> portable_;
  DType leaf_ = DType::kF32;
  int64_t leaf_extent_ = 2;
  size_t used_ = 5, kernels_ = 0, constants_ = 0;
  int64_t at_ = 0;  // in the storages of 64 KiB
  bool valid_ = true, overlaid_ = false;
};

// The bytes of a program for each operator, and for the portable kernel, with nothing out of the
// way, and with what is rare: a start for mutation.
inline std::vector<std::string> generator_seeds() {
  size_t kinds = 1;
  for (const rt::LibraryKernel* k : rt::library_kernels())
    kinds += k->kind == exec::ImplementationKind::kHost;
  std::vector<std::string> out;
  for (size_t op = 0; op < kinds; ++op)
    for (const uint8_t filler : {1, 6, 7}) {
      std::string bytes = {'\2', 4, 1, static_cast<char>(op)};
      bytes.append(64, static_cast<char>(filler));
      out.push_back(bytes);
    }
  return out;
}

}  // namespace nimble::fuzz
