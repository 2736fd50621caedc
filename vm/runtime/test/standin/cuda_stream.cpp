// Streams and events of the stand-in for NVIDIA's driver.
#include "vm/runtime/test/standin/cuda_state.h"

namespace standin::cuda {

bool is_sticky(int result) {
  return result == 700 || (result > 701 && result < 720);
}

int expect_plain(Stream* stream) {
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  if (!stream->capture) return kOk;
  stream->spoiled = true;
  return violate("a stream that is captured is used for what no graph has", kCaptureUnsupported);
}

int expect_no_capture(const char* name) {
  for (Stream* stream : state().streams)
    if (stream->capture && stream->captured_by == std::this_thread::get_id()) {
      stream->spoiled = true;
      return violate(std::string(name) + " while the thread captures", kCaptureUnsupported);
    }
  return kOk;
}

int add_to_stream(Stream* stream, std::function<int()> work, Module* module) {
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
  if (Graph* graph = stream->capture) {
    auto* node = new Graph::Node;
    if (!graph->nodes.empty()) node->after.push_back(graph->nodes.back());
    node->work = std::move(work);
    if (module) node->modules.insert(module);
    graph->nodes.push_back(node);
    return kOk;
  }
  if (module) ++module->pending;
  stream->work.push_back([module, work = std::move(work)] {
    if (module) --module->pending;
    return work();
  });
  return kOk;
}

int drain(Stream* stream) {
  State& s = state();
  while (!stream->work.empty()) {
    const std::function<int()> work = std::move(stream->work.front());
    stream->work.pop_front();
    s.clock += s.tick;
    const int result = s.sticky ? s.sticky : work();
    if (is_sticky(result)) s.sticky = result;
    if (result != kOk && !s.sticky) return result;
  }
  return s.sticky;
}
int drain_all() {
  int result = state().sticky;
  for (Stream* stream : state().streams)
    if (const int r = drain(stream); r != kOk) result = r;
  return result;
}

extern "C" {

int cuStreamCreate(Stream** stream, unsigned) {
  ENTER();
  state().streams.insert(*stream = new Stream);
  return kOk;
}
int cuStreamDestroy_v2(Stream* stream) {
  ENTER();
  if (const int bad = expect_plain(stream)) return bad;
  state().streams.erase(stream);
  if (!stream->work.empty()) violate("a stream is destroyed before its work is done");
  delete stream;
  return kOk;
}
int cuStreamSynchronize(Stream* stream) {
  ENTER();
  if (const int bad = expect_plain(stream)) return bad;
  return drain(stream);
}
int cuEventCreate(Event** event, unsigned flags) {
  ENTER();
  *event = new Event;
  (*event)->times = (flags & 2) == 0;
  state().events.insert(*event);
  return kOk;
}
int cuEventDestroy_v2(Event* event) {
  ENTER();
  if (!state().events.contains(event)) return violate("an event that is none", kInvalidHandle);
  if (event->recorded && !event->done && state().streams.contains(event->stream))
    drain(event->stream);  // the driver keeps it until then
  state().events.erase(event);
  delete event;
  return kOk;
}
int cuEventRecord(Event* event, Stream* stream) {
  ENTER();
  if (!state().events.contains(event)) return violate("an event that is none", kInvalidHandle);
  if (const int bad = expect_plain(stream)) return bad;
  event->recorded = true;
  event->done = false;
  event->stream = stream;
  stream->work.push_back([event] {
    event->done = true;
    event->at = state().clock;
    return kOk;
  });
  return kOk;
}
int cuEventSynchronize(Event* event) {
  ENTER();
  if (!state().events.contains(event)) return violate("an event that is none", kInvalidHandle);
  return event->recorded && !event->done ? drain(event->stream) : kOk;
}
int cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  ENTER();
  if (!state().events.contains(begin) || !state().events.contains(end) || !begin->times ||
      !end->times || !begin->done || !end->done)
    return violate("a time between events that have none", kInvalidHandle);
  *milliseconds = end->at - begin->at;
  return kOk;
}

}  // extern "C"

}  // namespace standin::cuda
