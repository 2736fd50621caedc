// Runs kernels as machine code in tests, with threads that meet at a real barrier: of this machine,
// or of another one in whose process they run (remote.h).
#pragma once

#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/kernel_builder.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/kernel_abi.h"
#include "vm/interpreter/test/runner/remote.h"
#include "vm/runtime/native_image.h"

namespace nimble::codegen::testing {

using rt::testing::Remote;

// Levels whose code can run here: this machine's, or those of the one that stands in for it.
inline std::vector<std::string> runnable_levels() {
  std::vector<std::string> levels = kernels::machine_levels();
  CpuInfo cpu = host_cpu();
  if (Remote* remote = Remote::get()) cpu.level = remote->level();
  std::erase_if(levels, [&](const std::string& level) { return !cpu.has(level); });
  return levels;
}
// The best of them.
inline kernels::TargetInfo runnable_target() {
  return Remote::get() ? kernels::target_by_name(runnable_levels().back()) : kernels::detect_host();
}

class Native {
 public:
  Native(const kir::Function& f, const std::string& level) : f_(f) {
    const CompiledObject object = compile({&f, 1}, kernels::target_by_name(level));
    const std::vector<uint8_t> image = link({&object, 1});
    if (Remote* remote = Remote::get()) {
      remote_image_ = std::make_shared<const std::vector<uint8_t>>(image);
      remote->load(remote_image_, f.name);
      return;
    }
    image_ = rt::NativeImage::load(image, "test image");
    fn_ = reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(image_->find(f.name)));
    NIMBLE_CHECK(fn_ != nullptr, "{} is not in its image", f.name);
  }

  int32_t run(std::vector<std::span<std::byte>> buffers, std::vector<int64_t> symbols,
              int threads = 1) const {
    std::vector<int64_t> values = symbols;
    values.push_back(threads);
    std::vector<std::string> names = f_.contract.symbols;
    names.push_back("threads");
    const int64_t bytes = kir::scratch_bytes(f_).to_program(names).evaluate1(values);
    if (remote_image_) {
      Remote::get()->load(remote_image_, f_.name);
      return Remote::get()->run(buffers, symbols, bytes, threads);
    }
    std::vector<void*> pointers;
    for (const auto& b : buffers) pointers.push_back(b.data());
    std::vector<std::byte> scratch(bytes + 64);
    auto* base =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~63ul);
    const nimble_kernel_args args{NIMBLE_KERNEL_ABI_VERSION, static_cast<uint32_t>(pointers.size()),
                                  pointers.data(), symbols.data(), base};
    if (threads == 1) return fn_(&args, 0, 1, nullptr);
    struct Meeting {
      nimble_barrier c;
      std::barrier<> meeting;
    } meeting{{[](nimble_barrier* self, int32_t) {
                reinterpret_cast<Meeting*>(self)->meeting.arrive_and_wait();
              }},
              std::barrier<>(threads)};
    std::vector<int32_t> status(threads);
    std::vector<std::thread> runners;
    for (int t = 0; t < threads; ++t)
      runners.emplace_back([&, t] { status[t] = fn_(&args, t, threads, &meeting.c); });
    for (std::thread& r : runners) r.join();
    for (int32_t s : status)
      if (s != 0) return s;
    return 0;
  }

 private:
  kir::Function f_;
  std::shared_ptr<const rt::NativeImage> image_;
  nimble_kernel_fn fn_ = nullptr;
  std::shared_ptr<const std::vector<uint8_t>> remote_image_;
};

}  // namespace nimble::codegen::testing
