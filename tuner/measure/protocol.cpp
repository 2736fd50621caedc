#include "tuner/measure/protocol.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "tuner/measure/statistics.h"

namespace nimble::tuner {
namespace {

constexpr char kPlace[] = "worker protocol";

[[noreturn]] void corrupt(const std::string& problem) {
  throw Error(Status::kCorrupt, kPlace, problem,
              "use nimble-tune and nimble-worker of one installation");
}

void put(ByteWriter& w, double v) {
  w.u64(std::bit_cast<uint64_t>(v));
}
double get(ByteReader& r) {
  return std::bit_cast<double>(r.u64());
}

void put(ByteWriter& w, const std::vector<std::vector<uint8_t>>& tensors) {
  w.varint(tensors.size());
  for (const auto& t : tensors) {
    w.varint(t.size());
    w.bytes(t);
  }
}
std::vector<std::vector<uint8_t>> get_tensors(ByteReader& r) {
  std::vector<std::vector<uint8_t>> out(r.count("number of outputs"));
  for (auto& t : out) {
    const auto bytes = r.bytes(r.count("size of an output"));
    t.assign(bytes.begin(), bytes.end());
  }
  return out;
}

struct Header {
  uint32_t magic;
  uint16_t version, type;
  uint64_t length;
};
static_assert(sizeof(Header) == 16);

// False at the end of the stream before the first byte.
bool read_all(int fd, void* data, size_t size) {
  auto* p = static_cast<uint8_t*>(data);
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::read(fd, p + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) corrupt(fmt::format("cannot read: {}", std::strerror(errno)));
    if (n == 0) {
      if (done == 0) return false;
      corrupt(fmt::format("the stream ends within a message ({} of {} bytes)", done, size));
    }
    done += static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int fd, const void* data, size_t size) {
  const auto* p = static_cast<const uint8_t*>(data);
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(fd, p + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

void encode_policy(ByteWriter& w, const Policy& p) {
  w.svarint(p.warm_up);
  w.svarint(p.batch_ns);
  w.svarint(p.min_samples);
  w.svarint(p.max_samples);
  put(w, p.ci_target);
  put(w, p.race_factor);
  w.svarint(p.race_samples);
  w.svarint(p.case_ns);
  w.svarint(p.rotate_bytes);
  w.u8(p.cold);
  w.text(p.name);
}

Policy decode_policy(ByteReader& r) {
  Policy p;
  p.warm_up = static_cast<int32_t>(r.svarint());
  p.batch_ns = r.svarint();
  p.min_samples = static_cast<int32_t>(r.svarint());
  p.max_samples = static_cast<int32_t>(r.svarint());
  p.ci_target = get(r);
  p.race_factor = get(r);
  p.race_samples = static_cast<int32_t>(r.svarint());
  p.case_ns = r.svarint();
  p.rotate_bytes = r.svarint();
  p.cold = r.u8() != 0;
  p.name = r.text();
  if (p.warm_up < 0 || p.batch_ns < 0 || p.min_samples < 1 || p.max_samples < p.min_samples ||
      p.race_samples < 1 || p.rotate_bytes < 0)
    r.fail("policy out of range");
  return p;
}

}  // namespace

void Policy::choose_class(const std::string& class_name) {
  struct Class {
    const char* name;
    int64_t rotate_bytes;
    bool cold;
  };
  constexpr int64_t kMiB = int64_t{1} << 20;
  static constexpr Class kClasses[] = {{"cached", 0, false},
                                       {"warm", 16 * kMiB, false},
                                       {"weights-cold", 512 * kMiB, false},
                                       {"cold", 512 * kMiB, true}};
  for (const Class& c : kClasses) {
    if (class_name != c.name) continue;
    name = c.name;
    rotate_bytes = c.rotate_bytes;
    cold = c.cold;
    return;
  }
  throw Error(Status::kInvalidArgument, "measuring policy",
              fmt::format("there is no class \"{}\"", class_name),
              "the classes are cached, warm, weights-cold and cold");
}

Policy Policy::of_class(const std::string& class_name) {
  Policy p;
  p.choose_class(class_name);
  return p;
}

std::string Policy::text() const {
  return fmt::format(
      "{}: median's 95% interval, looked at {} times, within {:g}% after {} samples, at most {}, "
      "{} ms a case; raced at {:g}x after {}; a sample takes {} us; {} from run to run over {} MiB",
      name, StopRule(min_samples, max_samples).looks().size(), ci_target * 100, min_samples,
      max_samples, case_ns / 1'000'000, race_factor, race_samples, batch_ns / 1000,
      cold ? "all arguments rotate" : "constants rotate", rotate_bytes >> 20);
}

std::vector<uint8_t> encode(const Case& c) {
  ByteWriter w;
  w.varint(c.symbols.size());
  for (int64_t s : c.symbols) w.svarint(s);
  w.svarint(c.threads);
  w.u64(c.seed);
  w.varint(c.inputs.size());
  for (const Fill& f : c.inputs) {
    put(w, f.low);
    put(w, f.high);
    w.u8(f.constant);
  }
  w.varint(c.stepping.size());
  w.bytes(c.stepping);
  put(w, c.expected);
  put(w, c.tolerance);
  encode_policy(w, c.policy);
  w.svarint(c.limit_ns);
  w.varint(c.entries.size());
  for (const EntryRef& e : c.entries) {
    w.varint(e.executable);
    w.varint(e.kernel);
  }
  return w.take();
}

Case decode_case(std::span<const uint8_t> payload) {
  ByteReader r(payload, kPlace);
  Case c;
  c.symbols.resize(r.count("number of symbols"));
  for (int64_t& s : c.symbols) s = r.svarint();
  c.threads = static_cast<int32_t>(r.svarint());
  if (c.threads < 1 || c.threads > 1024) r.fail(fmt::format("{} threads", c.threads));
  c.seed = r.u64();
  c.inputs.resize(r.count("number of inputs", 17));
  for (Fill& f : c.inputs) {
    f.low = get(r);
    f.high = get(r);
    f.constant = r.boolean();
  }
  c.stepping.resize(r.count("number of scalars"));
  for (uint8_t& s : c.stepping) s = r.boolean();
  c.expected = get_tensors(r);
  c.tolerance = get(r);
  c.policy = decode_policy(r);
  c.limit_ns = r.svarint();
  if (c.limit_ns < 0) r.fail("limit out of range");
  c.entries.resize(r.count("number of entries", 2));
  for (EntryRef& e : c.entries) {
    e.executable = r.varint32("executable");
    e.kernel = r.varint32("kernel");
  }
  r.expect_end();
  return c;
}

std::vector<uint8_t> encode(const EntryResult& e) {
  ByteWriter w;
  w.varint(e.index);
  w.u8(static_cast<uint8_t>(e.state));
  put(w, e.max_error);
  w.varint(e.worst_output);
  w.svarint(e.worst_element);
  w.text(e.stop_reason);
  w.text(e.message);
  w.svarint(e.runs_per_sample);
  w.varint(e.samples_ns.size());
  for (double s : e.samples_ns) put(w, s);
  return w.take();
}

EntryResult decode_entry_result(std::span<const uint8_t> payload) {
  ByteReader r(payload, kPlace);
  EntryResult e;
  e.index = r.varint32("index of an entry");
  const uint8_t state = r.u8();
  if (state > static_cast<uint8_t>(EntryState::kUnavailable)) r.fail("state of an entry");
  e.state = static_cast<EntryState>(state);
  e.max_error = get(r);
  e.worst_output = r.varint32("index of an output");
  e.worst_element = r.svarint();
  e.stop_reason = r.text();
  e.message = r.text();
  e.runs_per_sample = r.svarint();
  e.samples_ns.resize(r.count("number of samples", 8));
  for (double& s : e.samples_ns) s = get(r);
  r.expect_end();
  return e;
}

std::vector<uint8_t> encode(const CaseCost& c) {
  ByteWriter w;
  for (int64_t ns : {c.prepare_ns, c.check_ns, c.time_ns}) w.svarint(ns);
  return w.take();
}

CaseCost decode_cost(std::span<const uint8_t> payload) {
  ByteReader r(payload, kPlace);
  CaseCost c;
  for (int64_t* ns : {&c.prepare_ns, &c.check_ns, &c.time_ns}) {
    *ns = r.svarint();
    if (*ns < 0) r.fail("a negative time");
  }
  r.expect_end();
  return c;
}

std::vector<uint8_t> encode(const std::vector<std::vector<uint8_t>>& outputs) {
  ByteWriter w;
  put(w, outputs);
  return w.take();
}

std::vector<std::vector<uint8_t>> decode_outputs(std::span<const uint8_t> payload) {
  ByteReader r(payload, kPlace);
  auto out = get_tensors(r);
  r.expect_end();
  return out;
}

bool write_frame(int fd, MessageType type, std::span<const uint8_t> payload) {
  const Header h{kFrameMagic, kProtocolVersion, static_cast<uint16_t>(type), payload.size()};
  return write_all(fd, &h, sizeof h) && write_all(fd, payload.data(), payload.size());
}

bool read_frame(int fd, Frame* frame) {
  Header h;
  if (!read_all(fd, &h, sizeof h)) return false;
  if (h.magic != kFrameMagic) corrupt(fmt::format("a message begins with {:08x}", h.magic));
  if (h.version != kProtocolVersion)
    corrupt(fmt::format("version {} was met, {} is understood", h.version, kProtocolVersion));
  if (h.type < static_cast<uint16_t>(MessageType::kHello) ||
      h.type > static_cast<uint16_t>(MessageType::kUnavailable))
    corrupt(fmt::format("a message has the unknown type {}", h.type));
  if (h.length > kMaxPayload) corrupt(fmt::format("a message of {} bytes", h.length));
  frame->type = static_cast<MessageType>(h.type);
  frame->payload.clear();
  // A lying length must not allocate ahead of the bytes that come.
  constexpr uint64_t kPiece = 16 << 20;
  for (uint64_t done = 0; done < h.length;) {
    const uint64_t n = std::min(kPiece, h.length - done);
    frame->payload.resize(done + n);
    if (!read_all(fd, frame->payload.data() + done, n)) corrupt("the stream ends within a message");
    done += n;
  }
  return true;
}

}  // namespace nimble::tuner
