// Streams and events of the stand-in for NVIDIA's driver.
#include "vm/runtime/test/standin/cuda_state.h"

namespace standin::cuda {

bool is_sticky(int result) {
  return result == 700 || (result > 701 && result < 720);
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
  if (state().streams.erase(stream) == 0) return violate("a stream that is none", kInvalidHandle);
  if (!stream->work.empty()) violate("a stream is destroyed before its work is done");
  delete stream;
  return kOk;
}
int cuStreamSynchronize(Stream* stream) {
  ENTER();
  if (!state().streams.contains(stream)) return violate("a stream that is none", kInvalidHandle);
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
  if (!state().events.contains(event) || !state().streams.contains(stream))
    return violate("an event or a stream that is none", kInvalidHandle);
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
