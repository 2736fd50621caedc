// nimble-test-runner: runs kernels and models for a test in another process (protocol.h). Each
// buffer of a kernel lies between two stretches of known bytes, which it must leave alone.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>

#include "vm/base/cpu.h"
#include "vm/base/kernel_abi.h"
#include "vm/executable/reader.h"
#include "vm/interpreter/session.h"
#include "vm/interpreter/test/runner/protocol.h"
#include "vm/runtime/native_image.h"

namespace nimble::rt::testing {
namespace {

constexpr size_t kGuard = 256;
constexpr std::byte kUntouched{0xa5};
constexpr int32_t kBeyondItsBuffer = -77;

class Buffer {
 public:
  explicit Buffer(size_t size) : bytes_(size + 2 * kGuard, kUntouched), size_(size) {
    // Tests give memory as it comes from the heap, which is aligned to 16 bytes.
    begin_ = kGuard - reinterpret_cast<uintptr_t>(bytes_.data()) % 16;
  }
  std::span<std::byte> span() { return std::span(bytes_).subspan(begin_, size_); }
  bool guarded() const {
    const auto whole = std::span(bytes_);
    const auto untouched = [](std::byte b) { return b == kUntouched; };
    return std::ranges::all_of(whole.first(begin_), untouched) &&
           std::ranges::all_of(whole.subspan(begin_ + size_), untouched);
  }

 private:
  std::vector<std::byte> bytes_;
  size_t size_, begin_ = 0;
};

int32_t call(nimble_kernel_fn fn, const nimble_kernel_args& args, int threads) {
  if (threads == 1) return fn(&args, 0, 1, nullptr);
  struct Meeting {
    nimble_barrier c;
    std::barrier<> meeting;
  } meeting{{[](nimble_barrier* self, int32_t) {
              reinterpret_cast<Meeting*>(self)->meeting.arrive_and_wait();
            }},
            std::barrier<>(threads)};
  std::vector<int32_t> status(static_cast<size_t>(threads));
  std::vector<std::thread> runners;
  for (int t = 0; t < threads; ++t)
    runners.emplace_back(
        [&, t] { status[static_cast<size_t>(t)] = fn(&args, t, threads, &meeting.c); });
  for (std::thread& r : runners) r.join();
  for (int32_t s : status)
    if (s != 0) return s;
  return 0;
}

void run(Pipe& pipe, nimble_kernel_fn fn) {
  const auto threads = static_cast<int>(pipe.number());
  Buffer scratch(static_cast<size_t>(pipe.number()) + 64);
  std::vector<int64_t> symbols(static_cast<size_t>(pipe.number()));
  for (int64_t& s : symbols) s = pipe.number();
  std::vector<std::unique_ptr<Buffer>> buffers(static_cast<size_t>(pipe.number()));
  std::vector<void*> pointers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto same = static_cast<size_t>(pipe.number());
    if (same < i) {
      pointers.push_back(pointers[same]);
      continue;
    }
    buffers[i] = std::make_unique<Buffer>(static_cast<size_t>(pipe.number()));
    const auto bytes = buffers[i]->span();
    pipe.read(bytes.data(), bytes.size());
    pointers.push_back(bytes.data());
  }
  const uintptr_t base = (reinterpret_cast<uintptr_t>(scratch.span().data()) + 63) & ~uintptr_t{63};
  const nimble_kernel_args args{NIMBLE_KERNEL_ABI_VERSION, static_cast<uint32_t>(pointers.size()),
                                pointers.data(), symbols.data(), reinterpret_cast<void*>(base)};
  int32_t status = call(fn, args, threads);
  if (!scratch.guarded()) status = kBeyondItsBuffer;
  for (const auto& b : buffers)
    if (b && !b->guarded()) status = kBeyondItsBuffer;
  pipe.number(status);
  for (const auto& b : buffers)
    if (b) pipe.block(b->span());
}

std::unique_ptr<Session> load(Pipe& pipe) {
  const std::string file = pipe.text();
  SessionOptions options;
  options.threads = static_cast<int>(pipe.number());
  options.fuel = static_cast<uint64_t>(pipe.number());
  LoadOptions trusted;
  trusted.trust = true;
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  return std::make_unique<Session>(
      Model::load(exec::deserialize({bytes, file.size()}), trusted, "test"), options);
}

void run(Pipe& pipe, Session& session) {
  const std::string name = pipe.text();
  const auto count = static_cast<size_t>(pipe.number());
  std::vector<std::vector<int64_t>> extents(count);
  std::vector<std::string> data(count);
  std::vector<InputTensor> in;
  for (size_t i = 0; i < count; ++i) {
    const auto dtype = static_cast<DType>(pipe.number());
    extents[i].resize(static_cast<size_t>(pipe.number()));
    for (int64_t& e : extents[i]) e = pipe.number();
    data[i] = pipe.text();
    in.push_back({data[i].data(), dtype, extents[i], {}, true});
  }
  const size_t entry = session.find_entry(name);  // all is read: now it may fail
  std::vector<OutputTensor> out(session.plan(entry).entry().outputs.size());
  session.run(entry, in, out);
  pipe.number(0);
  pipe.number(static_cast<int64_t>(out.size()));
  for (const OutputTensor& o : out) {
    pipe.number(static_cast<int64_t>(o.dtype));
    pipe.number(o.rank);
    size_t bytes = size_of(o.dtype);
    for (int32_t a = 0; a < o.rank; ++a) {
      pipe.number(o.extents[a]);
      bytes *= static_cast<size_t>(o.extents[a]);
    }
    pipe.block({reinterpret_cast<const std::byte*>(o.data), bytes});
  }
}

int serve() {
  Pipe pipe(STDIN_FILENO, STDOUT_FILENO);
  pipe.text(host_cpu().level);
  std::shared_ptr<const NativeImage> image;
  nimble_kernel_fn fn = nullptr;
  std::unique_ptr<Session> session;
  for (char c; pipe.read_command(&c);) {
    if (c == 'R') {
      run(pipe, fn);
      continue;
    }
    try {
      if (c == 'M') {
        session.reset();
        session = load(pipe);
        pipe.number(0);
        continue;
      }
      if (c == 'X') {
        run(pipe, *session);
        continue;
      }
      const std::string bytes = pipe.text(), name = pipe.text();
      const std::span<const char> all(bytes);
      image =
          NativeImage::load({reinterpret_cast<const uint8_t*>(all.data()), all.size()}, "image");
      fn = reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(image->find(name)));
      NIMBLE_CHECK(fn != nullptr, "{} is not in its image", name);
      pipe.number(0);
    } catch (const Error& e) {
      pipe.error(e);
    }
  }
  return 0;
}

}  // namespace
}  // namespace nimble::rt::testing

int main() {
  try {
    return nimble::rt::testing::serve();
  } catch (const std::exception& e) {
    fmt::print(stderr, "nimble-test-runner: {}\n", e.what());
    return 1;
  }
}
