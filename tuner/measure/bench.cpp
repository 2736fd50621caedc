#include "tuner/measure/bench.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "tuner/measure/statistics.h"
#include "vm/executable/reader.h"
#include "vm/interpreter/kernel.h"
#include "vm/runtime/object.h"
#include "vm/runtime/storage_pool.h"

namespace nimble::tuner {
namespace {

using exec::Access;
using exec::KernelArgument;

// Copies of an argument, at most. Beyond the caches small ones count, too: 64 copies of a weight of
// 2 MiB are few, and each copy has arguments bound to it.
constexpr size_t kMaxCopies = 64, kMaxFarCopies = 4096;
constexpr int64_t kFarBytes = int64_t{32}
                              << 20;  // a rotation over more than this leaves the caches

size_t max_copies(const Policy& p) {
  return p.cold || p.rotate_bytes > kFarBytes ? kMaxFarCopies : kMaxCopies;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// A tensor in huge pages of its own: where the VM keeps large constants at run time.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(std::max<size_t>(bytes, 64)) {
    data_ = static_cast<uint8_t*>(rt::map_huge(bytes_));
    if (!data_)
      throw Error(Status::kExhausted, "worker", fmt::format("no memory for {} bytes", bytes_),
                  "free some, or tune smaller sizes");
  }
  ~Memory() { rt::unmap_huge(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  uint8_t* data_;
};

}  // namespace

// Blocks for the next case: the system clears the pages of new ones, which takes longer than to
// fill them.
class Blocks {
 public:
  std::unique_ptr<Memory> take(uint64_t bytes) {
    const auto it = spare_.lower_bound(bytes);
    if (it == spare_.end() || it->first > 2 * bytes) return std::make_unique<Memory>(bytes);
    std::unique_ptr<Memory> block = std::move(it->second);
    held_ -= it->first;
    spare_.erase(it);
    return block;
  }
  void give(std::unique_ptr<Memory> block) {
    if (held_ + block->bytes() > kMost) return;
    held_ += block->bytes();
    spare_.emplace(block->bytes(), std::move(block));
  }

 private:
  static constexpr uint64_t kMost = uint64_t{64} << 20;
  std::multimap<uint64_t, std::unique_ptr<Memory>> spare_;  // by size
  uint64_t held_ = 0;
};

namespace {

// Memory that is given back as a whole.
class Arena {
 public:
  explicit Arena(std::shared_ptr<Blocks> source) : source_(std::move(source)) {}
  ~Arena() {
    for (auto& block : blocks_) source_->give(std::move(block));
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  uint8_t* take(uint64_t bytes) {
    // Small ones share a block: thousands of copies must not take a huge page each.
    const uint64_t size = (bytes + 63) / 64 * 64;
    if (blocks_.empty() || used_ + size > blocks_.back()->bytes()) {
      blocks_.push_back(source_->take(std::max(kBlock, size)));
      used_ = 0;
    }
    used_ += size;
    return blocks_.back()->data() + used_ - size;
  }

 private:
  static constexpr uint64_t kBlock = uint64_t{2} << 20;
  std::shared_ptr<Blocks> source_;
  std::vector<std::unique_ptr<Memory>> blocks_;
  uint64_t used_ = 0;  // bytes of the last one
};

}  // namespace

// The copies of each weight. They are most of a case's data and the same at all sizes.
class Weights {
 public:
  explicit Weights(std::shared_ptr<Blocks> blocks) : arena_(std::move(blocks)) {}
  struct Key {
    Fill fill;
    DType dtype{};
    uint64_t bytes = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // Whether what it has of the argument, if anything, is that.
  bool serves(uint32_t argument, const Key& key) const {
    const auto it = all_.find(argument);
    return it == all_.end() || it->second.key == key;
  }
  uint8_t* copy(uint32_t argument, const Key& key, size_t number) {
    Weight& w = all_.try_emplace(argument, Weight{key, {}}).first->second;
    while (w.copies.size() <= number) {
      uint8_t* data = arena_.take(key.bytes);
      if (w.copies.empty())
        fill_tensor(key.fill, key.dtype, 0, argument, {data, key.bytes});
      else
        std::memcpy(data, w.copies[0], key.bytes);
      w.copies.push_back(data);
    }
    return w.copies[number];
  }

 private:
  struct Weight {
    Key key;
    std::vector<uint8_t*> copies;
  };
  std::map<uint32_t, Weight> all_;
  Arena arena_;
};

// The arguments of a case, in every variant that runs use in turn.
class Arguments {
 public:
  // `beat` is called now and then while the data is made. `weights` has those of the case before;
  // others take their place if this case needs others.
  Arguments(const exec::KernelContract& contract, const Case& c, std::shared_ptr<Weights>& weights,
            const std::shared_ptr<Blocks>& blocks, const std::function<void()>& beat)
      : storage_(std::make_shared<rt::StoragePool>(rt::device(0))),
        heap_(storage_),
        arena_(blocks) {
    require(c.symbols.size() == contract.symbols.size(), "symbols");
    int64_t constant_bytes = 0, all_bytes = 0;
    size_t next_input = 0;
    for (const KernelArgument& a : contract.arguments) {
      Shape s;
      for (const exec::DimProgram& d : a.dims) {
        s.extents.push_back(d.evaluate1(c.symbols));
        if (s.extents.back() < 0) bad(fmt::format("an extent of {}", s.extents.back()));
        s.bytes *= static_cast<uint64_t>(s.extents.back());
      }
      s.bytes *= size_of(a.dtype);
      if (a.kind == KernelArgument::Kind::kTensor) all_bytes += static_cast<int64_t>(s.bytes);
      if (a.kind == KernelArgument::Kind::kTensor && a.access != Access::kOut) {
        require(next_input < c.inputs.size(), "inputs");
        s.fill = &c.inputs[next_input++];
        if (s.fill->constant) constant_bytes += static_cast<int64_t>(s.bytes);
      }
      shapes_.push_back(std::move(s));
    }
    require(next_input == c.inputs.size(), "inputs");
    bool serve = weights != nullptr;
    for (uint32_t i = 0; i < shapes_.size() && serve; ++i)
      if (is_weight(contract.arguments[i], shapes_[i]))
        serve = weights->serves(i, key_of(contract.arguments[i], shapes_[i]));
    if (!serve) {
      weights.reset();  // its blocks serve the next
      weights = std::make_shared<Weights>(blocks);
    }
    weights_ = weights;
    size_t variants = 1;
    const int64_t rotating = c.policy.cold ? all_bytes : constant_bytes;
    if (rotating > 0 && c.policy.rotate_bytes > 0)
      variants = static_cast<size_t>(std::clamp<int64_t>(
          c.policy.rotate_bytes / rotating, 1, static_cast<int64_t>(max_copies(c.policy))));
    const bool steps = std::count(c.stepping.begin(), c.stepping.end(), 1) > 0;
    // A kernel that counts its steps runs on the same weights at each of them.
    copies_ = steps ? 1 : variants;
    if (steps) variants = 2;
    values_.resize(variants);
    for (size_t v = 0; v < variants; ++v) {
      beat();
      build(contract, c, v);
    }
  }
  ~Arguments() {
    for (auto& all : values_)
      for (rt::Value v : all) heap_.release(v);
    for (rt::Storage* s : storages_) heap_.release(s);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  size_t variants() const { return values_.size(); }
  std::span<const rt::Value> values(size_t variant) const { return values_[variant]; }
  const std::vector<std::span<uint8_t>>& outputs() const { return outputs_; }
  const std::vector<DType>& output_types() const { return output_types_; }

 private:
  struct Shape {
    std::vector<int64_t> extents;
    uint64_t bytes = 1;
    const Fill* fill = nullptr;
    rt::Storage* shared = nullptr;  // of arguments that all variants have in common
    rt::Storage* filled = nullptr;  // the first copy
  };
  [[noreturn]] static void bad(const std::string& problem) {
    throw Error(Status::kInvalidArgument, "measurement", problem,
                "the case does not fit the candidates' contract");
  }
  static void require(bool ok, const char* what) {
    if (!ok) bad(fmt::format("another number of {} than the contract has", what));
  }

  static bool is_weight(const KernelArgument& a, const Shape& s) {
    return s.fill && s.fill->constant && a.access == Access::kIn;
  }
  static Weights::Key key_of(const KernelArgument& a, const Shape& s) {
    return {*s.fill, a.dtype, s.bytes};
  }
  // Borrowed memory is not writable for the VM's checks; outputs come from the pool.
  rt::Storage* view(uint8_t* data, uint64_t bytes) {
    rt::Storage* s = heap_.new_view(rt::Storage::Origin::kBorrowed, data, bytes);
    storages_.push_back(s);
    return s;
  }

  void build(const exec::KernelContract& contract, const Case& c, size_t variant) {
    uint32_t index = 0;
    size_t scalar = 0;
    for (size_t i = 0; i < contract.arguments.size(); ++i, ++index) {
      const KernelArgument& a = contract.arguments[i];
      if (a.kind == KernelArgument::Kind::kScalar) {
        require(scalar < c.stepping.size(), "scalars");
        const int64_t step = c.stepping[scalar++] ? static_cast<int64_t>(variant) : 0;
        values_[variant].push_back(rt::Value::of(c.symbols[a.symbol] + step));
        continue;
      }
      Shape& s = shapes_[i];
      const bool own = variant < copies_ && (c.policy.cold || (s.fill && s.fill->constant));
      if ((own || !s.shared) && is_weight(a, s)) {
        s.shared = view(weights_->copy(index, key_of(a, s), variant), s.bytes);
      } else if (own || !s.shared) {
        if (a.access == Access::kIn) {
          s.shared = view(arena_.take(s.bytes), s.bytes);
        } else {
          s.shared = heap_.new_storage(std::max<uint64_t>(s.bytes, 1));
          storages_.push_back(s.shared);
          if (variant == 0) {  // which checks run on
            outputs_.emplace_back(s.shared->data, s.bytes);
            output_types_.push_back(a.dtype);
          }
        }
        if (s.fill && !s.filled)
          fill_tensor(*s.fill, a.dtype, c.seed, index, {s.shared->data, s.bytes});
        else if (s.fill)  // a copy of it
          std::memcpy(s.shared->data, s.filled->data, s.bytes);
        if (!s.filled) s.filled = s.shared;
      }
      values_[variant].push_back(rt::Value::of(heap_.new_tensor(s.shared, 0, a.dtype, s.extents)));
    }
    require(scalar == c.stepping.size(), "scalars");
  }

  std::shared_ptr<rt::StoragePool> storage_;
  rt::Heap heap_;
  std::vector<Shape> shapes_;
  size_t copies_ = 1;
  std::shared_ptr<Weights> weights_;
  Arena arena_;
  std::vector<rt::Storage*> storages_;
  std::vector<std::vector<rt::Value>> values_;
  std::vector<std::span<uint8_t>> outputs_;  // of the first variant
  std::vector<DType> output_types_;
};

namespace {

// Which copy of the arguments is next. The entries of a case share one: if each went through the
// copies by itself, an entry would find in the cache what the one before it had just read, and only
// the first of a round would be timed as its policy says.
class Rotation {
 public:
  explicit Rotation(size_t copies) : copies_(copies) {}
  size_t next() {
    const size_t now = next_;
    if (++next_ == copies_) next_ = 0;
    return now;
  }
  void rewind() { next_ = 0; }

 private:
  size_t copies_, next_ = 0;
};

// One entry, bound to the arguments and ready to run.
class Runnable {
 public:
  Runnable(std::shared_ptr<const rt::Model> model, uint32_t kernel, const Arguments& arguments,
           Rotation& rotation, rt::ThreadPool& pool, int32_t threads)
      : model_(std::move(model)),
        kernel_(model_->kernels()[kernel]),
        arguments_(arguments),
        rotation_(rotation),
        pool_(pool),
        threads_(threads),
        storage_(rt::device(0)),
        scratch_(storage_),
        frames_(arguments.variants()) {
    for (size_t v = 0; v < frames_.size(); ++v) {
      frames_[v].reserve(model_->kernels());
      rt::bind_arguments(kernel_, arguments_.values(v), &frames_[v]);
    }
  }

  void run() {
    const size_t copy = rotation_.next();
    rt::run_kernel(kernel_, arguments_.values(copy), threads_, pool_, scratch_, &frames_[copy]);
  }

 private:
  std::shared_ptr<const rt::Model> model_;
  const rt::PreparedKernel& kernel_;
  const Arguments& arguments_;
  Rotation& rotation_;
  rt::ThreadPool& pool_;
  int32_t threads_;
  rt::StoragePool storage_;
  rt::Scratch scratch_;
  std::vector<rt::KernelFrame> frames_;  // of each copy
};

struct Live {
  EntryResult result;
  std::unique_ptr<Runnable> runnable;
};

// Empties the results, so that those of the entry before cannot pass for this one's.
void poison(const Arguments& a) {
  for (const auto& out : a.outputs()) std::memset(out.data(), 0xff, out.size());
}

// Runs an entry and compares what it wrote with what is expected.
void check(Runnable& r, Rotation& rotation, const Arguments& a, const Case& c, EntryResult* out) {
  if (a.outputs().size() != c.expected.size())
    throw Error(
        Status::kInvalidArgument, "measurement",
        fmt::format("{} expected results for {} outputs", c.expected.size(), a.outputs().size()));
  poison(a);
  rotation.rewind();  // the first copy's outputs are looked at
  r.run();
  for (uint32_t i = 0; i < c.expected.size(); ++i) {
    int64_t at = -1;
    const double e = compare_tensors(a.output_types()[i], a.outputs()[i], c.expected[i], &at);
    if (!std::isnan(e) && e <= out->max_error) continue;
    out->max_error = e;
    out->worst_output = i;
    out->worst_element = at;
    if (std::isnan(e)) break;
  }
  if (out->max_error <= c.tolerance) return;
  out->state = EntryState::kWrong;
  out->message = fmt::format("result is off by {:g} at element {} of output {}, {:g} is allowed",
                             out->max_error, out->worst_element, out->worst_output, c.tolerance);
}

double sample(Runnable& r, int64_t runs) {
  const int64_t start = now_ns();
  for (int64_t i = 0; i < runs; ++i) r.run();
  // A clock that does not move would make a time of zero, which is no time.
  return static_cast<double>(std::max<int64_t>(1, now_ns() - start)) / static_cast<double>(runs);
}

}  // namespace

// What decides over the bytes of test data.
struct Bench::Kept {
  exec::KernelContract contract;
  Case c;  // the fields below alone count
  std::unique_ptr<Arguments> arguments;

  bool serves(const exec::KernelContract& other, const Case& o) const {
    return c.symbols == o.symbols && c.seed == o.seed && c.inputs == o.inputs &&
           c.stepping == o.stepping && c.policy.rotate_bytes == o.policy.rotate_bytes &&
           c.policy.cold == o.policy.cold && contract == other;
  }
};

Bench::Bench(Progress* progress) : progress_(progress), blocks_(std::make_shared<Blocks>()) {}
Bench::~Bench() = default;

const Arguments& Bench::arguments_for(const exec::KernelContract& contract, const Case& c) {
  if (kept_ && kept_->serves(contract, c)) return *kept_->arguments;
  kept_.reset();  // before there is a second one
  auto made =
      std::make_unique<Arguments>(contract, c, weights_, blocks_, [&] { at(kPreparing, 0); });
  // What a kernel changes in place is not what it was.
  const bool changes = std::any_of(
      contract.arguments.begin(), contract.arguments.end(), [](const KernelArgument& a) {
        return a.kind == KernelArgument::Kind::kTensor && a.access == Access::kInOut;
      });
  kept_ = std::make_unique<Kept>();
  kept_->contract = contract;
  kept_->c = c;
  kept_->c.expected.clear();
  if (changes) kept_->c.symbols = {-1};  // serves nobody else
  kept_->arguments = std::move(made);
  return *kept_->arguments;
}

void Bench::at(Phase phase, uint32_t entry) {
  progress_->phase.store(phase, std::memory_order_relaxed);
  progress_->entry.store(entry, std::memory_order_relaxed);
  progress_->beat.fetch_add(1, std::memory_order_release);
}

rt::ThreadPool& Bench::pool(int32_t threads) {
  auto& p = pools_[threads];
  if (!p) p = std::make_unique<rt::ThreadPool>(threads, true);
  return *p;
}

uint32_t Bench::load(uint32_t id, std::span<const uint8_t> bytes) {
  at(kLoading, 0);
  rt::LoadOptions options;
  options.trust = true;  // the parent made it
  auto model = rt::Model::load(exec::deserialize(bytes, {}, "candidates"), options, "candidates");
  const auto kernels = static_cast<uint32_t>(model->kernels().size());
  models_[id] = std::move(model);
  at(kIdle, 0);
  return kernels;
}

const std::shared_ptr<const rt::Model>& Bench::model_of(const EntryRef& e) const {
  const auto it = models_.find(e.executable);
  if (it == models_.end() || e.kernel >= it->second->kernels().size())
    throw Error(Status::kNotFound, "measurement",
                fmt::format("kernel {} of executable {} is not loaded", e.kernel, e.executable));
  return it->second;
}

std::vector<std::vector<uint8_t>> Bench::run(const Case& c) {
  at(kPreparing, 0);
  const EntryRef& e = c.entries.at(0);
  const std::shared_ptr<const rt::Model>& model = model_of(e);
  Case once = c;
  once.policy.rotate_bytes = 0;  // one copy of everything serves
  const Arguments arguments(model->kernels()[e.kernel].kernel->contract, once, weights_, blocks_,
                            [&] { at(kPreparing, 0); });
  at(kChecking, 0);
  Rotation rotation(arguments.variants());
  Runnable r(model, e.kernel, arguments, rotation, pool(c.threads), c.threads);
  poison(arguments);
  r.run();
  at(kIdle, 0);
  std::vector<std::vector<uint8_t>> out;
  for (const auto& bytes : arguments.outputs()) out.emplace_back(bytes.begin(), bytes.end());
  return out;
}

CaseCost Bench::measure(const Case& c, const std::function<void(const EntryResult&)>& done) {
  const Policy& policy = c.policy;
  const int64_t begin = now_ns();
  const auto over = [&] { return c.limit_ns > 0 && now_ns() - begin > c.limit_ns; };
  const auto give_up = [&](EntryResult& r) {
    r.state = EntryState::kLate;
    r.message = "the time of its case was over";
    done(r);
  };
  CaseCost cost;
  int64_t mark = begin;
  const auto lap = [&](int64_t* sum) {
    const int64_t now = now_ns();
    *sum += now - mark;
    mark = now;
  };
  at(kPreparing, 0);
  const Arguments* arguments = nullptr;
  std::optional<Rotation> rotation;
  std::vector<Live> live;
  for (uint32_t i = 0; i < c.entries.size(); ++i) {
    const EntryRef& e = c.entries[i];
    const std::shared_ptr<const rt::Model>& model = model_of(e);
    if (!arguments) {
      arguments = &arguments_for(model->kernels()[e.kernel].kernel->contract, c);
      rotation.emplace(arguments->variants());
      lap(&cost.prepare_ns);
    }
    at(kChecking, i);
    Live l;
    l.result.index = i;
    if (over()) {
      give_up(l.result);
      continue;
    }
    try {
      l.runnable = std::make_unique<Runnable>(model, e.kernel, *arguments, *rotation,
                                              pool(c.threads), c.threads);
      check(*l.runnable, *rotation, *arguments, c, &l.result);
    } catch (const Error& error) {
      l.result.state = EntryState::kFailed;
      l.result.message = error.what();
    }
    if (l.result.state == EntryState::kOk)
      live.push_back(std::move(l));
    else
      done(l.result);
  }
  lap(&cost.check_ns);

  std::vector<Live> warm;
  for (Live& l : live) {
    at(kTiming, l.result.index);
    if (over()) {
      give_up(l.result);
      continue;
    }
    // The last of them tells how long a run takes.
    for (int32_t i = 1; i < policy.warm_up; ++i) l.runnable->run();
    const double once = sample(*l.runnable, 1);
    l.result.runs_per_sample = std::clamp<int64_t>(
        static_cast<int64_t>(std::ceil(static_cast<double>(policy.batch_ns) / once)), 1, 1 << 20);
    warm.push_back(std::move(l));
  }
  live = std::move(warm);
  std::mt19937_64 random(c.seed);
  const StopRule rule(policy.min_samples, policy.max_samples);
  const int64_t start = now_ns();
  double best = HUGE_VAL;  // of all entries, those that have ended included
  while (!live.empty()) {
    std::shuffle(live.begin(), live.end(), random);
    for (Live& l : live) {
      at(kTiming, l.result.index);
      l.result.samples_ns.push_back(sample(*l.runnable, l.result.runs_per_sample));
    }
    const bool late = now_ns() - start > policy.case_ns || over();
    std::vector<double> medians;
    for (Live& l : live) {
      medians.push_back(median_of(l.result.samples_ns));
      best = std::min(best, medians.back());
    }
    std::vector<Live> still;
    for (size_t i = 0; i < live.size(); ++i) {
      EntryResult& r = live[i].result;
      const auto n = static_cast<int32_t>(r.samples_ns.size());
      if (n >= policy.race_samples && medians[i] > policy.race_factor * best)
        r.stop_reason = "raced";
      else if (rule.is_look(n) && rule.rank(n) > 0 &&
               summarise(r.samples_ns, rule).relative_error() <= policy.ci_target)
        r.stop_reason = "ci";
      else if (n >= policy.max_samples)
        r.stop_reason = "samples";
      else if (late)
        r.stop_reason = "time";
      if (r.stop_reason.empty())
        still.push_back(std::move(live[i]));
      else
        done(r);
    }
    live = std::move(still);
  }
  lap(&cost.time_ns);
  at(kIdle, 0);
  return cost;
}

}  // namespace nimble::tuner
