#include "vm/interpreter/profiler.h"

#include <fmt/format.h>

#include <algorithm>

#include "vm/base/device_number.h"
#include "vm/base/json_writer.h"

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

void Profiler::clear() noexcept {
  runs_ = wall_ns_ = kernel_ns_ = 0;
  opcodes_ = {};
  copies_.clear();
  kernels_.clear();
  refused_graphs_ = 0;
  last_refusal_.clear();
  trace_.clear();
}

void Profiler::absorb(Profiler& other) noexcept {
  runs_ += other.runs_;
  wall_ns_ += other.wall_ns_;
  kernel_ns_ += other.kernel_ns_;
  for (size_t i = 0; i < opcodes_.size(); ++i) {
    opcodes_[i].count += other.opcodes_[i].count;
    opcodes_[i].ns += other.opcodes_[i].ns;
  }
  if (other.refused_graphs_ > 0) {  // of the same session, later
    refused_graphs_ = other.refused_graphs_;
    last_refusal_ = std::move(other.last_refusal_);
  }
  // merge() moves the nodes of new keys and leaves the others behind.
  copies_.merge(other.copies_);
  for (const auto& [devices, more] : other.copies_) {
    Copies& c = copies_.find(devices)->second;
    c.count += more.count;
    c.bytes += more.bytes;
  }
  while (!other.kernels_.empty()) {
    auto node = other.kernels_.extract(other.kernels_.begin());
    if (kernels_.size() >= kMostShapes && !kernels_.contains(node.key()))
      std::get<3>(node.key()).clear();
    const Count more = node.mapped();
    if (const auto placed = kernels_.insert(std::move(node)); !placed.inserted) {
      placed.position->second.count += more.count;
      placed.position->second.ns += more.ns;
    }
  }
  trace_.absorb(other.trace_);
}

void Profiler::add_kernel(uint32_t kernel, uint32_t implementation, int32_t threads,
                          std::span<const int64_t> symbols, int64_t ns) {
  kernel_ns_ += ns;
  Call call{kernel, implementation, threads, {symbols.begin(), symbols.end()}};
  if (kernels_.size() >= kMostShapes && !kernels_.contains(call)) std::get<3>(call).clear();
  Count& c = kernels_[std::move(call)];
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
  JsonWriter json;
  json.begin_object().key("copies").begin_array();
  for (const auto& [devices, c] : copies_)
    json.begin_object()
        .member("bytes", c.bytes)
        .member("count", c.count)
        .member("from", device_name(devices.first))
        .member("to", device_name(devices.second))
        .end_object();
  json.end_array();
  if (refused_graphs_ > 0)
    json.key("graphs_refused")
        .begin_object()
        .member("last", last_refusal_)
        .member("rows", refused_graphs_)
        .end_object();
  json.key("instructions").begin_array();
  for (int i = 0; i < exec::kOpcodeCount; ++i)
    if (opcodes_[i].count > 0)
      json.begin_object()
          .member("count", opcodes_[i].count)
          .member("name", exec::name_of(static_cast<exec::Opcode>(i)))
          .member("total_ns", opcodes_[i].ns)
          .end_object();
  json.end_array().member("kernel_ns", kernel_ns_).key("kernels").begin_array();
  for (const Row& r : rows()) {
    const exec::Kernel& k = e.kernels[r.kernel];
    json.begin_object()
        .member("config", r.implementation < k.implementations.size()
                              ? k.implementations[r.implementation].config
                              : k.portable->config)
        .member("count", r.count.count)
        .member("implementation", symbol_of(k, r.implementation))
        .member("name", k.name)
        .key("shape")
        .begin_object();
    for (size_t i = 0; i < r.symbols->size(); ++i)
      json.member(k.contract.symbols[i], (*r.symbols)[i]);
    json.end_object()
        .member("share", wall_ns_ > 0
                             ? static_cast<double>(r.count.ns) / static_cast<double>(wall_ns_)
                             : 0.0)
        .member("source", k.source)
        .member("threads", r.threads)
        .member("total_ns", r.count.ns)
        .end_object();
  }
  json.end_array()
      .member("overhead_ns", wall_ns_ - kernel_ns_)
      .member("runs", runs_)
      .member("wall_ns", wall_ns_)
      .end_object();
  return json.text();
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
  if (refused_graphs_ > 0)
    out += fmt::format("\n{} row{} of launches had no CUDA graph; of the last: {}\n",
                       refused_graphs_, refused_graphs_ == 1 ? "" : "s", last_refusal_);
  out += fmt::format(
      "\n{} run{}: {:.1f} us, of which kernels {:.1f} us, all else {:.1f} us ({:.1f} %)\n", runs_,
      runs_ == 1 ? "" : "s", wall_ns_ / 1e3, kernel_ns_ / 1e3, (wall_ns_ - kernel_ns_) / 1e3,
      100.0 * (wall_ns_ - kernel_ns_) / wall);
  return out;
}

}  // namespace nimble::rt
