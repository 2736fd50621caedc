#include "vm/interpreter/gpu_stretches.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::rt {
namespace {

// Stretches with the same first launch that are told apart.
constexpr size_t kMostAlike = 8;

bool wanted() {
  const char* set = std::getenv("NIMBLE_CUDA_GRAPHS");
  if (!set || !*set || std::strcmp(set, "on") == 0) return true;
  if (std::strcmp(set, "off") == 0) return false;
  throw Error(Status::kInvalidArgument, "NIMBLE_CUDA_GRAPHS", "it is neither on nor off",
              "set it to off, or not at all");
}

uint64_t key_of(std::span<const uint64_t> words) {
  return hash64(
      std::span(reinterpret_cast<const uint8_t*>(words.data()), words.size() * sizeof(uint64_t)));
}

bool begins_with(std::span<const uint64_t> words, size_t at, std::span<const uint64_t> part) {
  return words.size() - at >= part.size() &&
         std::ranges::equal(words.subspan(at, part.size()), part);
}

constexpr uint64_t pair_of(uint64_t low, uint64_t high) {
  return low | high << 32;
}

}  // namespace

LaunchWords::LaunchWords(size_t most_parameters, size_t most_maps)
    : words_(kHead + most_parameters + TensorMaps::kWords * most_maps),
      places_(most_parameters + most_maps) {}

void LaunchWords::set(cuda::Function function, const std::array<uint32_t, 3>& grid,
                      uint32_t threads, uint32_t shared_bytes, size_t parameters) {
  words_[0] = reinterpret_cast<uintptr_t>(function);
  words_[1] = pair_of(grid[0], grid[1]);
  words_[2] = pair_of(grid[2], threads);
  words_[3] = pair_of(shared_bytes, parameters);
  count_ = kHead + parameters;
}

void LaunchWords::set(const DeviceCall& call, std::span<void* const> data, void* workspace) {
  words_[0] = reinterpret_cast<uintptr_t>(&call);
  words_[1] = words_[2] = 0;
  words_[3] = pair_of(0, data.size() + 1);
  count_ = kHead + data.size() + 1;
  NIMBLE_CHECK(count_ <= words_.size(), "{} tensors", data.size());
  uint64_t* word = parameters();
  for (void* address : data) *word++ = reinterpret_cast<uintptr_t>(address);
  *word = reinterpret_cast<uintptr_t>(workspace);
}

void LaunchWords::start(const uint64_t* words, void** places, cuda::Stream stream) {
  const size_t tensors = size_of(words) - kHead - 1;
  for (size_t i = 0; i <= tensors; ++i)
    places[i] = reinterpret_cast<void*>(static_cast<uintptr_t>(words[kHead + i]));
  const auto* call = reinterpret_cast<const DeviceCall*>(static_cast<uintptr_t>(words[0]));
  call->start({places, tensors}, places[tensors], stream);
}

CudaLaunch LaunchWords::launch_of(const uint64_t* words, void** places) {
  const auto low = [&](size_t i) { return static_cast<uint32_t>(words[i]); };
  const auto high = [&](size_t i) { return static_cast<uint32_t>(words[i] >> 32); };
  return {reinterpret_cast<cuda::Function>(static_cast<uintptr_t>(words[0])),
          {low(1), high(1), low(2)},
          high(2) & 0xffff,
          low(3),
          places};
}

uint64_t* LaunchWords::add_maps(size_t count) {
  words_[2] |= uint64_t{count} << kMapsBit;
  const size_t begin = std::exchange(count_, size_of(words_.data()));
  return words_.data() + begin;
}

CudaLaunch LaunchWords::read(const uint64_t* words, void** places) {
  const size_t parameters = parameters_of(words), maps = maps_of(words);
  auto* const all = const_cast<uint64_t*>(words + kHead);
  for (size_t i = 0; i < parameters; ++i) places[i] = all + i;
  for (size_t i = 0; i < maps; ++i)
    places[parameters + i] = all + parameters + TensorMaps::kWords * i;
  return launch_of(words, places);
}

GpuStretches::GpuStretches(CudaDevice& device)
    : device_(device),
      on_(wanted() && CudaGraph::available(device.driver())),
      takes_calls_(on_ && CudaGraph::captures(device.driver())) {}

GpuStretches::~GpuStretches() {
  drop();
}

void GpuStretches::leave() noexcept {
  if (launches_ > 0) CudaDevice::put_off(nullptr);
  put_off_ = false;
  known_ = nullptr;
  words_.clear();
  at_ = 0;
  launches_ = 0;
  limit_ = kFirst;
  calls_.clear();
}

GpuStretches::Stretch* GpuStretches::find(std::span<const uint64_t> so_far,
                                          std::span<const uint64_t> next) {
  const auto alike = by_key_.find(key_);
  if (alike == by_key_.end()) return nullptr;
  // The latest one last: what came then comes most likely.
  const std::vector<Place>& places = alike->second;
  for (size_t i = places.size(); i-- > 0;)
    if (begins_with(places[i]->words, 0, so_far) &&
        begins_with(places[i]->words, so_far.size(), next))
      return &*places[i];
  return nullptr;
}

bool GpuStretches::expect(std::span<const uint64_t> words) {
  if (error_) [[unlikely]]
    tell_error();
  if (launches_ == 0) {
    key_ = key_of(words);
    known_ = find({}, words);
    put_off_ = known_ && known_->met >= kPlain && !known_->plain;
  } else if (known_ && !begins_with(known_->words, at_, words)) {
    Stretch* other = find(so_far(), words);
    if (put_off_ && (!other || other->met < kPlain || other->plain)) launch_plainly();
    if (!other) {
      const std::span<const uint64_t> before = so_far();
      words_.assign(before.begin(), before.end());
    }
    known_ = other;
  }
  return !put_off_;
}

void GpuStretches::add(LaunchWords& launch) {
  const std::span<const uint64_t> words = launch.words();
  if (expect(words)) {
    const CudaLaunch l = launch.launch();
    device_.launch(l.function, l.grid, l.threads, l.shared_bytes, l.parameters);
  }
  take(words);
}

void GpuStretches::add(LaunchWords& words, std::shared_ptr<const DeviceCall> call,
                       const std::function<void()>& start) {
  if (expect(words.words())) start();
  calls_.push_back(std::move(call));
  take(words.words());
}

void GpuStretches::take(std::span<const uint64_t> words) {
  if (launches_ == 0) CudaDevice::put_off(this);
  at_ += words.size();
  ++launches_;
  if (!known_) words_.insert(words_.end(), words.begin(), words.end());
  if (launches_ == limit_) {
    const uint32_t next = std::min(2 * limit_, kMost);
    end();
    limit_ = next;
  }
}

void GpuStretches::launch_plainly() {
  put_off_ = false;
  const std::span<const uint64_t> words = so_far();
  for (size_t at = 0; at < words.size(); at += LaunchWords::size_of(words.data() + at)) {
    places_.resize(std::max(places_.size(), LaunchWords::size_of(words.data() + at)));
    if (LaunchWords::is_call(words.data() + at)) {
      LaunchWords::start(words.data() + at, places_.data(), device_.stream());
      continue;
    }
    const CudaLaunch l = LaunchWords::read(words.data() + at, places_.data());
    device_.launch(l.function, l.grid, l.threads, l.shared_bytes, l.parameters);
  }
}

GpuStretches::Stretch* GpuStretches::keep() {
  if (launches_ < kLeast) return nullptr;
  std::vector<Place>& alike = by_key_[key_];
  const std::span<const uint64_t> words = so_far();
  auto at = std::ranges::find_if(alike, [&](const Place& p) {
    return p->words.size() == words.size() && begins_with(p->words, 0, words);
  });
  Place place;
  if (at != alike.end()) {
    place = *at;
    std::rotate(at, at + 1, alike.end());
    stretches_.splice(stretches_.begin(), stretches_, place);
  } else {
    Stretch made;
    made.key = key_;
    made.launches = launches_;
    made.words.assign(words.begin(), words.end());
    made.calls = calls_;
    alike.reserve(alike.size() + 1);
    stretches_.push_front(std::move(made));
    place = stretches_.begin();
    alike.push_back(place);
    kept_ += launches_;
    known_ = &*place;  // what follows may forget the one that it was like
    if (alike.size() > kMostAlike) {
      stretches_.splice(stretches_.end(), stretches_, alike.front());
      forget_oldest();
    }
    while (kept_ > kKept && stretches_.size() > 1) forget_oldest();
  }
  ++place->met;
  return &*place;
}

void GpuStretches::forget_oldest() noexcept {
  const Place oldest = std::prev(stretches_.end());
  const auto alike = by_key_.find(oldest->key);
  std::erase(alike->second, oldest);
  if (alike->second.empty()) by_key_.erase(alike);
  kept_ -= oldest->launches;
  if (oldest->graph) --graphs_;
  stretches_.erase(oldest);
}

std::unique_ptr<CudaGraph> GpuStretches::graph_of(const Stretch& stretch) {
  std::vector<CudaLaunch> launches;
  std::vector<std::vector<void*>> places;
  std::deque<CudaLaunch::Captured> calls;  // which stay where they are
  for (size_t at = 0; at < stretch.words.size();) {
    const uint64_t* words = stretch.words.data() + at;
    const size_t size = LaunchWords::size_of(words);
    void** const of_launch = places.emplace_back(size).data();
    if (LaunchWords::is_call(words)) {
      calls.push_back([=](cuda::Stream stream) { LaunchWords::start(words, of_launch, stream); });
      launches.emplace_back().captured = &calls.back();
    } else {
      launches.push_back(LaunchWords::read(words, of_launch));
    }
    at += size;
  }
  return std::make_unique<CudaGraph>(device_, launches);
}

void GpuStretches::start(Stretch& stretch) {
  if (!stretch.graph) try {
      stretch.graph = graph_of(stretch);
      ++graphs_;
    } catch (const Error& e) {
      if (device_.lost()) throw;
      stretch.plain = true;  // what cannot be had as a whole may be had in parts
      ++refusals_;
      last_refusal_ = e.problem();
    }
  if (stretch.plain) {
    launch_plainly();
    return;
  }
  stretch.graph->start();
}

void GpuStretches::end() {
  if (launches_ == 0) return;
  struct Leave {
    GpuStretches& s;
    ~Leave() { s.leave(); }
  } on_leaving{*this};
  CudaDevice::put_off(nullptr);  // the device is about to be asked
  Stretch* const kept = keep();
  if (!put_off_) return;
  if (kept && kept->met > kPlain)
    start(*kept);
  else
    launch_plainly();
}

void GpuStretches::ask() {
  if (error_) tell_error();
  end();
}

void GpuStretches::ask_quietly() noexcept {
  try {
    end();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void GpuStretches::tell_error() {
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void GpuStretches::drop() noexcept {
  leave();
  error_ = nullptr;
}

void GpuStretches::clear() noexcept {
  drop();
  by_key_.clear();
  stretches_.clear();
  kept_ = graphs_ = 0;
}

}  // namespace nimble::rt
