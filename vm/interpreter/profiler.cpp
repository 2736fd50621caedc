#include "vm/interpreter/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "vm/base/device_number.h"

namespace nimble::rt {

struct Profiler::Row {
  uint32_t kernel, implementation;
  int32_t threads;
  const std::vector<int64_t>* symbols;
  Count count;
};

namespace {

// The number behind the last implementation is the portable form (kernel.h).
std::string symbol_of(const exec::Kernel& k, uint32_t implementation) {
  return implementation < k.implementations.size() ? k.implementations[implementation].symbol
                                                   : "portable";
}

}  // namespace

void Profiler::add_kernel(uint32_t kernel, uint32_t implementation, int32_t threads,
                          std::span<const int64_t> symbols, int64_t ns) {
  kernel_ns_ += ns;
  Count& c = kernels_[{kernel, implementation, threads, {symbols.begin(), symbols.end()}}];
  ++c.count;
  c.ns += ns;
}

std::vector<Profiler::Row> Profiler::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, count] : kernels_)
    rows.push_back(
        {std::get<0>(key), std::get<1>(key), std::get<2>(key), &std::get<3>(key), count});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.count.ns > b.count.ns; });
  return rows;
}

std::string Profiler::json(const exec::Executable& e) const {
  using nlohmann::json;
  json out;
  out["runs"] = runs_;
  out["wall_ns"] = wall_ns_;
  out["kernel_ns"] = kernel_ns_;
  out["overhead_ns"] = wall_ns_ - kernel_ns_;
  json& instructions = out["instructions"] = json::array();
  for (int i = 0; i < exec::kOpcodeCount; ++i)
    if (opcodes_[i].count > 0)
      instructions.push_back({{"name", exec::name_of(static_cast<exec::Opcode>(i))},
                              {"count", opcodes_[i].count},
                              {"total_ns", opcodes_[i].ns}});
  json& copies = out["copies"] = json::array();
  for (const auto& [devices, c] : copies_)
    copies.push_back({{"from", device_name(devices.first)},
                      {"to", device_name(devices.second)},
                      {"count", c.count},
                      {"bytes", c.bytes}});
  json& kernels = out["kernels"] = json::array();
  for (const Row& r : rows()) {
    const exec::Kernel& k = e.kernels[r.kernel];
    json shape = json::object();
    for (size_t i = 0; i < r.symbols->size(); ++i) shape[k.contract.symbols[i]] = (*r.symbols)[i];
    kernels.push_back(
        {{"name", k.name},
         {"source", k.source},
         {"implementation", symbol_of(k, r.implementation)},
         {"config", r.implementation < k.implementations.size()
                        ? k.implementations[r.implementation].config
                        : k.portable->config},
         {"threads", r.threads},
         {"shape", shape},
         {"count", r.count.count},
         {"total_ns", r.count.ns},
         {"share",
          wall_ns_ > 0 ? static_cast<double>(r.count.ns) / static_cast<double>(wall_ns_) : 0.0}});
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string Profiler::table(const exec::Executable& e) const {
  const double wall = static_cast<double>(std::max<int64_t>(wall_ns_, 1));
  std::string out = fmt::format("{:>6} {:>9} {:>11} {:>10}  {}\n", "share", "count", "total us",
                                "mean us", "kernel");
  for (const Row& r : rows()) {
    const exec::Kernel& k = e.kernels[r.kernel];
    std::string shape;
    for (size_t i = 0; i < r.symbols->size(); ++i)
      shape += fmt::format("{}{}={}", i ? " " : "", k.contract.symbols[i], (*r.symbols)[i]);
    out += fmt::format("{:5.1f}% {:9} {:11.1f} {:10.2f}  {} [{}] {} ({} thread{})\n",
                       100.0 * r.count.ns / wall, r.count.count, r.count.ns / 1e3,
                       r.count.ns / 1e3 / static_cast<double>(r.count.count), k.name, shape,
                       symbol_of(k, r.implementation), r.threads, r.threads == 1 ? "" : "s");
  }
  out += "\n";
  for (int i = 0; i < exec::kOpcodeCount; ++i)
    if (opcodes_[i].count > 0)
      out += fmt::format("{:5.1f}% {:9} {:11.1f} {:10.2f}  {}\n", 100.0 * opcodes_[i].ns / wall,
                         opcodes_[i].count, opcodes_[i].ns / 1e3,
                         opcodes_[i].ns / 1e3 / static_cast<double>(opcodes_[i].count),
                         exec::name_of(static_cast<exec::Opcode>(i)));
  for (const auto& [devices, c] : copies_)
    out += fmt::format("\ncopied {} -> {}: {} bytes in {} cop{}", device_name(devices.first),
                       device_name(devices.second), c.bytes, c.count, c.count == 1 ? "y" : "ies");
  if (!copies_.empty()) out += "\n";
  out += fmt::format(
      "\n{} run{}: {:.1f} us, of which kernels {:.1f} us, all else {:.1f} us ({:.1f} %)\n", runs_,
      runs_ == 1 ? "" : "s", wall_ns_ / 1e3, kernel_ns_ / 1e3, (wall_ns_ - kernel_ns_) / 1e3,
      100.0 * (wall_ns_ - kernel_ns_) / wall);
  return out;
}

}  // namespace nimble::rt
