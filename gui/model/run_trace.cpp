#include "gui/model/run_trace.h"

#include <fmt/format.h>

#include <QObject>
#include <QStringList>
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gui/model/units.h"
#include "vm/base/error.h"

namespace nimble::gui {
namespace {

using nlohmann::json;

constexpr int kLongestName = 120, kLongestText = 300;

[[noreturn]] void fail(const std::string& why) {
  throw Error(Status::kCorrupt, "nimble run --trace", "wrote no trace: " + why,
              "use a nimble-run of the same version");
}

// Times are µs with three digits; a day is more than any run that one looks at.
int64_t ns_of(const json& event, const char* member) {
  const double us = event.at(member).get<double>();
  if (!std::isfinite(us) || us < 0 || us > 86400e6) fail(fmt::format("{} is {}", member, us));
  return std::llround(us * 1e3);
}

int64_t integer_of(const json& value) {
  constexpr int64_t kMost = int64_t{1} << 56;
  if (!value.is_number_integer()) fail("a number is no integer");
  const auto n = value.get<int64_t>();
  if (n < 0 || n > kMost) fail("a number is below 0 or too large");
  return n;
}

QString line_of(const json& value) {
  return value.is_string() ? plain_text(value.get_ref<const std::string&>(), kLongestText)
                           : plain_text(value.dump(), kLongestText);
}

std::string shape_of(const json& symbols) {
  std::string shape;
  for (const auto& [symbol, extent] : symbols.items())
    shape += fmt::format("{}{}={}", shape.empty() ? "" : ",", symbol, integer_of(extent));
  return shape;
}

class Reading {
 public:
  explicit Reading(const Cancel& cancel) : cancel_(cancel) {}

  // One of traceEvents.
  void take(const json& event) {
    if (++events_ > kMostSpans)
      throw Error(Status::kUnsupported, "nimble run --trace",
                  fmt::format("the trace has more than {} events", kMostSpans),
                  "keep less of it: --trace-limit");
    if (events_ % 1024 == 0) cancel_.check();
    const auto& phase = event.at("ph").get_ref<const std::string&>();
    if (phase == "C") return take_memory(event);
    if (phase == "X") return take_span(event);
    if (phase != "M") fail(fmt::format("an event is a \"{}\"", phase.substr(0, 8)));
  }

  RunTrace finish(const json& rest) {
    if (!rest.contains("otherData")) fail("there are no counts in it");
    trace_.dropped = integer_of(rest["otherData"].at("dropped_instructions"));
    for (TraceSpan& s : trace_.spans)
      if (s.kind != SpanKind::kFunction)
        s.lane = trace_.depth + (s.kind == SpanKind::kKernel ? 1 : 0);
    std::stable_sort(
        trace_.spans.begin(), trace_.spans.end(),
        [](const TraceSpan& a, const TraceSpan& b) { return a.start_ns < b.start_ns; });
    std::stable_sort(trace_.memory.begin(), trace_.memory.end(),
                     [](const MemoryAt& a, const MemoryAt& b) { return a.at_ns < b.at_ns; });
    return std::move(trace_);
  }

 private:
  void take_memory(const json& event) {
    const int64_t at = ns_of(event, "ts");
    for (const auto& [device, bytes] : event.at("args").items()) {
      const int64_t now = integer_of(bytes);
      total_ += now - std::exchange(live_[device], now);
      if (live_.size() > 64) fail("there are more than 64 devices");
    }
    trace_.memory.push_back({at, total_});
    trace_.ns = std::max(trace_.ns, at);
  }

  void take_span(const json& event) {
    const auto& category = event.at("cat").get_ref<const std::string&>();
    const json& args = event.at("args");
    TraceSpan s;
    s.name = plain_text(event.at("name").get_ref<const std::string&>(), kLongestName);
    s.start_ns = ns_of(event, "ts");
    s.ns = ns_of(event, "dur");
    trace_.ns = std::max(trace_.ns, s.start_ns + s.ns);
    std::string shape;
    QString what;
    if (category == "function") {
      s.kind = SpanKind::kFunction;
      const int64_t depth = integer_of(args.at("depth"));
      if (depth < 1) fail("a function has no depth");
      s.lane = static_cast<int32_t>(std::min<int64_t>(depth, RunTrace::kMostDepth)) - 1;
      trace_.depth = std::max(trace_.depth, s.lane + 1);
      what = QObject::tr("function");
    } else if (category == "instruction") {
      what = QObject::tr("instruction");
      operands_ = args.contains("arguments") ? line_of(args["arguments"]) : QString();
    } else if (category == "kernel") {
      s.kind = SpanKind::kKernel;
      shape = shape_of(args.at("shape"));
      what = QObject::tr("kernel");
    } else {
      fail("an event is neither function, instruction nor kernel");
    }
    s.group = group_of(s.kind, event.at("name").get_ref<const std::string&>(), shape);
    QStringList parts{what + u' ' + s.name, time_text(static_cast<double>(s.ns)),
                      QObject::tr("at %1").arg(time_text(static_cast<double>(s.start_ns)))};
    for (const auto& [name, value] : args.items())
      parts << (name == "shape" && value.is_object()
                    ? plain_text(shape, kLongestText)
                    : plain_text(name, kLongestName) + QStringLiteral(": ") + line_of(value));
    s.text = parts.join(QStringLiteral(" · ")).left(3 * kLongestText);
    trace_.spans.push_back(std::move(s));
  }

  uint32_t group_of(SpanKind kind, const std::string& name, const std::string& shape) {
    const auto [at, is_new] = known_.try_emplace({kind, name, shape}, trace_.groups.size());
    if (is_new) {
      const QString operands = kind == SpanKind::kKernel ? operands_ : QString();
      trace_.groups.push_back({kind, name, shape, operands, false});
    } else if (TraceGroup& group = trace_.groups[at->second]; kind == SpanKind::kKernel) {
      group.operands_differ |= group.operands != operands_;
    }
    return static_cast<uint32_t>(at->second);
  }

  const Cancel& cancel_;
  RunTrace trace_;
  std::map<std::tuple<SpanKind, std::string, std::string>, size_t> known_;
  std::map<std::string, int64_t> live_;  // by device
  int64_t total_ = 0;
  size_t events_ = 0;
  QString operands_;  // of the instruction before, whose kernel a kernel is
};

}  // namespace

int64_t RunTrace::bytes_at(int64_t at_ns) const {
  const auto behind = std::upper_bound(memory.begin(), memory.end(), at_ns,
                                       [](int64_t at, const MemoryAt& m) { return at < m.at_ns; });
  return behind == memory.begin() ? 0 : std::prev(behind)->bytes;
}

RunTrace trace_from_json(const std::string& text, const Cancel& cancel) {
  if (text.size() > kMostTraceBytes)
    throw Error(Status::kUnsupported, "nimble run --trace",
                fmt::format("the trace has more than {} MiB", kMostTraceBytes >> 20),
                "keep less of it: --trace-limit");
  Reading reading(cancel);
  try {
    // Events are dropped as soon as they are read: a tree of all of them would take ten times the
    // text's memory. They stand in an array of the outermost object.
    std::string member;
    const json rest = json::parse(text, [&](int depth, json::parse_event_t event, json& value) {
      if (depth > 8) fail("it is nested too deep");
      if (event == json::parse_event_t::key && depth == 1) member = value.get<std::string>();
      if (event != json::parse_event_t::object_end || depth != 2 || member != "traceEvents")
        return true;
      reading.take(value);
      return false;
    });
    return reading.finish(rest);
  } catch (const json::exception& e) {
    fail(e.what());
  }
}

}  // namespace nimble::gui
