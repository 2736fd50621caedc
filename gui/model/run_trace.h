// What `nimble run --trace` tells, as plain values: spans on lanes, and live bytes over time.
#pragma once

#include <QString>
#include <cstdint>
#include <string>
#include <vector>

#include "gui/model/cancel.h"

namespace nimble::gui {

enum class SpanKind : uint8_t { kFunction, kInstruction, kKernel };

struct TraceSpan {
  SpanKind kind = SpanKind::kInstruction;
  int32_t lane = 0;    // from above: functions by depth, then instructions, then kernels
  uint32_t group = 0;  // into RunTrace::groups
  int64_t start_ns = 0, ns = 0;
  QString name, text;  // `text`: all that is known of it in one line
};

// Spans of one kind, name and, of kernels, shape.
struct TraceGroup {
  SpanKind kind = SpanKind::kInstruction;
  std::string name, shape;  // shape: "m=2,n=3"
  QString operands;         // of its kernel's first call: "f32 (2, 3), f32 (2, 3)"
  bool operands_differ = false;
};

struct MemoryAt {
  int64_t at_ns = 0;  // from here on
  int64_t bytes = 0;  // live on all devices
};

struct RunTrace {
  // Deeper calls share the last lane.
  static constexpr int32_t kMostDepth = 12;

  std::vector<TraceSpan> spans;  // by start; an outer one before those inside
  std::vector<TraceGroup> groups;
  std::vector<MemoryAt> memory;
  int32_t depth = 0;  // lanes of functions
  int64_t ns = 0;     // where the last span ends
  int64_t dropped = 0;
  int32_t lanes() const { return depth + 2; }
  // Live bytes at a time; 0 before the first.
  int64_t bytes_at(int64_t at_ns) const;
};

// Of text and of spans, a sample of memory counted as one.
inline constexpr size_t kMostTraceBytes = size_t{64} << 20;
inline constexpr size_t kMostSpans = 400'000;

// Throws Error: kCorrupt for what is no trace of nimble's, kUnsupported beyond the limits,
// kCancelled.
RunTrace trace_from_json(const std::string& json, const Cancel& cancel);

}  // namespace nimble::gui
