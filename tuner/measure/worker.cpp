#include "tuner/measure/worker.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tuner/measure/bench.h"
#include "tuner/measure/confine.h"
#include "tuner/measure/protocol.h"
#include "vm/base/cpu_list.h"
#include "vm/base/error.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::tuner {
namespace {

// The kernel kills us when the parent dies. It may have died before we asked: then our parent is
// another process already.
void die_with_parent(int64_t parent) {
  if (parent == 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    throw Error(Status::kCancelled, "worker", "the campaign's process is gone");
}

void limit_memory(int64_t bytes) {
  if (bytes <= 0) return;
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  ::setrlimit(RLIMIT_AS, &limit);
}

Progress* map_progress(int fd) {
  static Progress local;
  if (fd < 0) return &local;
  void* page = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    throw Error(Status::kIo, "worker",
                fmt::format("cannot map the shared page: {}", std::strerror(errno)));
  ::close(fd);
  return static_cast<Progress*>(page);
}

// `gpu`: where candidates run, or nullptr.
void answer(Bench& bench, const Frame& request, int out, const rt::CudaDevice* gpu) {
  const auto reply = [&](MessageType type, std::span<const uint8_t> payload) {
    // Nobody listens any more: there is nothing left to do.
    if (!write_frame(out, type, payload)) ::_exit(0);
  };
  try {
    switch (request.type) {
      case MessageType::kLoad: {
        ByteReader r(request.payload, "worker protocol");
        const uint32_t id = r.varint32("executable");
        ByteWriter w;
        w.varint(id);
        w.varint(bench.load(id, r.bytes(r.left())));
        return reply(MessageType::kLoaded, w.view());
      }
      case MessageType::kDrop: {
        ByteReader r(request.payload, "worker protocol");
        bench.drop(r.varint32("executable"));
        r.expect_end();
        return reply(MessageType::kDropped, {});
      }
      case MessageType::kMeasure: {
        const CaseCost cost =
            bench.measure(decode_case(request.payload),
                          [&](const EntryResult& e) { reply(MessageType::kEntry, encode(e)); });
        return reply(MessageType::kMeasured, encode(cost));
      }
      case MessageType::kRun:
        return reply(MessageType::kOutputs, encode(bench.run(decode_case(request.payload))));
      default:
        throw Error(Status::kCorrupt, "worker protocol",
                    fmt::format("type {} is not a request", static_cast<int>(request.type)));
    }
  } catch (const std::exception& e) {
    // A kernel has ended the device for this process: so does this, as of a fault on the host. The
    // shared page tells whose it was, and the next process has the device anew.
    if (gpu && gpu->lost()) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
    // Of a file that is sound, but needs what is not here.
    const auto* error = dynamic_cast<const Error*>(&e);
    const bool lacks =
        request.type == MessageType::kLoad && error && error->status() == Status::kIncompatible;
    ByteWriter w;
    w.text(e.what());
    reply(lacks ? MessageType::kUnavailable : MessageType::kFailure, w.view());
  }
}

}  // namespace

int serve(const WorkerOptions& options) {
  try {
    die_with_parent(options.parent);
    limit_memory(options.memory_limit);
    if (!options.cpus.empty()) bind_to_cpus(cpu_list_from_text(options.cpus, "--cpus"));
    // Ctrl-C reaches the whole group, and a batch system's end of time every process of a job; the
    // campaign decides what becomes of us. To die of them would be blamed on a candidate.
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);
    ::signal(SIGPIPE, SIG_IGN);
    Progress* const progress = map_progress(options.progress);
    // Before it is shut in: opening a driver takes files and calls that a candidate is not to have.
    // The driver's own threads keep their files; a candidate runs in none of them.
    const rt::CudaDevice* const gpu = options.gpu ? &rt::cuda_device() : nullptr;
    confine(options.gpu);
    Bench bench(progress, options.gpu);
    ByteWriter hello;
    hello.varint(static_cast<uint64_t>(::getpid()));
    if (!write_frame(options.out, MessageType::kHello, hello.view())) return 0;
    for (Frame request; read_frame(options.in, &request);) answer(bench, request, options.out, gpu);
    return 0;
  } catch (const std::exception& e) {
    // A parent that was killed in the middle of a message is nobody's mistake.
    if (options.parent != 0 && ::getppid() != options.parent) return 0;
    std::fprintf(stderr, "nimble worker: error: %s\n", e.what());
    return 1;
  }
}

}  // namespace nimble::tuner
