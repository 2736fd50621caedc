// Fuzz target `api`: any sequence of calls of nimble.h that keeps what the header asks of callers
// does what the header says, while another thread cancels, suspends, trims and profiles.
//
// A byte is a call, those behind it are its arguments. What is known for certain is compared: the
// status where no other thread is at work, the numbers that a run computes, that a request without
// a run is forgotten. The rest (leaks, races, use after free) is for the sanitizers to see.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "vm/api/nimble.h"
#include "vm/base/fuzz/fuzz.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace nimble::fuzz {
namespace {

// copy(x) -> x by a host operator; spin(x) never ends; same(t) -> (t, Node(t, t)).
constexpr char kText[] = R"ASM(
scalar "bytes" [a0 4 *]
kernel "copy" { symbols n  in f32 ([a0])  out f32 ([a0])  dispatch { 0: 0 }  host "host.copy" }
function "copy" 1 6 {
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  AllocStorage r3, r2, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1)
  InvokePacked k"copy", (r0, r5)
  Ret r5
}
function "spin" 1 1 { Goto @0 }
function "same" 1 3 {
  AllocADT r1, 1, (r0, r0)
  AllocADT r2, 0, (r0, r1)
  Ret r2
}
type "Tree" data { "Leaf" (1) "Node" (0, 0) }
type "w" tensor f32 ["n"] [-1]
entry "copy" f0 { input "x" f32 ["n"] [-1]  output "y" f32 ["n"] [-1] }
entry "spin" f1 { input "x" f32 ["n"] [-1]  output "y" f32 ["n"] [-1] }
entry "same" f2 { input "t" type 0  output "t" type 0  output "both" type 0 }
)ASM";
constexpr const char* kEntries[] = {"copy", "spin", "same", "none"};
constexpr size_t kSlots = 3;
constexpr uint64_t kFuel = 20'000;

const std::vector<uint8_t>& file() {
  static const std::vector<uint8_t> bytes = exec::serialize(exec::assemble(kText));
  return bytes;
}

// A thread that does what it is given, in order.
class Other {
 public:
  Other() : thread_([this] { work(); }) {}
  ~Other() {
    post(nullptr);
    thread_.join();
  }
  void post(std::function<void()> task) {
    const std::lock_guard guard(lock_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  // Until all that was posted is done.
  void wait() {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [&] { return tasks_.empty(); });
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock guard(lock_);
        changed_.wait(guard, [&] { return !tasks_.empty(); });
        task = tasks_.front();
      }
      if (task) task();
      const std::lock_guard guard(lock_);
      tasks_.pop_front();
      changed_.notify_all();
      if (!task) return;
    }
  }
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // the first is being done
  std::thread thread_;
};

class Caller {
 public:
  explicit Caller(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  ~Caller() {
    other_.wait();
    for (Session& s : sessions_) close(s);
    for (nimble_model* m : models_) nimble_model_destroy(m);
    for (nimble_value* v : values_) nimble_value_release(v);
    for (nimble_tensor& t : outputs_) nimble_tensor_release(&t);
  }

  void run() {
    for (int calls = 0; !bytes_.empty() && calls < 300; ++calls) step();
  }

 private:
  struct Session {
    nimble_session* handle = nullptr;
    bool suspended = false;
    bool spins = false;  // the run that is suspended
    int64_t n = 0;       // elements of its input
    nimble_call* call = nullptr;
    bool limited = false;  // memory may run out
  };

  uint8_t next() {
    if (bytes_.empty()) return 0;
    const uint8_t b = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return b;
  }
  template <class T>
  T& pick(T (&slots)[kSlots]) {
    return slots[next() % kSlots];
  }

  void step() {
    switch (next() % 24) {
      case 0:
        return load();
      case 1: {
        nimble_model*& m = pick(models_);
        nimble_model_destroy(m);
        m = nullptr;
        return;
      }
      case 2:
        return create();
      case 3:
        return close(pick(sessions_));
      case 4:
      case 5:
      case 6:
        return run_entry(pick(sessions_), kEntries[next() % 4]);
      case 7:
        return start(pick(sessions_));
      case 8:
      case 9:
        return resume(pick(sessions_));
      case 10: {
        Session& s = pick(sessions_);
        if (!s.handle) return;
        nimble_session_abandon(s.handle);
        s.suspended = false;
        return;
      }
      case 11:
        return prepare(pick(sessions_));
      case 12:
        return call(pick(sessions_));
      case 13: {
        Session& s = pick(sessions_);
        nimble_call_destroy(s.call);
        s.call = nullptr;
        return;
      }
      case 14:
        return request(pick(sessions_), next());
      case 15:
      case 16:
        return request_from_other(pick(sessions_), next());
      case 17:
        return look_at(pick(sessions_));
      case 18:
        return make_value();
      case 19: {
        nimble_value*& v = pick(values_);
        nimble_value_release(v);
        v = nullptr;
        return;
      }
      case 20:
        return run_values(pick(sessions_));
      case 21:
        return nimble_tensor_release(&pick(outputs_));
      case 22:
        return run_on_two_threads(pick(sessions_));
      default:
        return destroy_while_it_runs(pick(sessions_));
    }
  }

  static void require_error(nimble_status status) {
    NIMBLE_FUZZ_REQUIRE(status != NIMBLE_INTERNAL, "{}", nimble_last_error());
    NIMBLE_FUZZ_REQUIRE(
        status == NIMBLE_OK || status == NIMBLE_SUSPENDED || std::strlen(nimble_last_error()) > 0,
        "a failure without a message");
  }

  void load() {
    nimble_model*& m = pick(models_);
    std::vector<uint8_t> bytes = file();
    const uint8_t edits = next() % 3;
    for (int i = 0; i < edits; ++i) bytes[(next() << 8 | next()) % bytes.size()] = next();
    nimble_load_options options = NIMBLE_LOAD_OPTIONS_INIT;
    nimble_model* made = nullptr;
    const nimble_status status = nimble_load_memory(bytes.data(), bytes.size(), &options, &made);
    require_error(status);
    NIMBLE_FUZZ_REQUIRE(edits > 0 || status == NIMBLE_OK, "{}", nimble_last_error());
    NIMBLE_FUZZ_REQUIRE((status == NIMBLE_OK) == (made != nullptr), "a model and a failure");
    nimble_model_destroy(m);
    m = made;
  }

  void create() {
    Session& s = pick(sessions_);
    nimble_model* const m = pick(models_);
    close(s);
    nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
    const uint8_t choice = next();
    options.threads = 1 + (choice & 1);
    options.fuel = kFuel;
    options.profile = choice >> 1 & 1;
    s.limited = choice >> 2 & 1;
    options.record_shapes = choice >> 3 & 1;
    if (s.limited) options.memory_limit = 64 << 10;
    const nimble_status status = nimble_session_create(m, &options, &s.handle);
    require_error(status);
    NIMBLE_FUZZ_REQUIRE((status == NIMBLE_OK) == (s.handle != nullptr), "{}", status);
    s.suspended = false;
  }

  void close(Session& s) {
    other_.wait();
    nimble_call_destroy(s.call);
    nimble_session_destroy(s.handle);
    s = {};
  }

  // An input of n elements i + first.
  nimble_tensor input(int64_t n) {
    shape_ = n;
    first_ = next();
    data_.resize(512);
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<float>(i) + first_;
    nimble_tensor t = NIMBLE_TENSOR_INIT;
    t.data = data_.data();
    t.dtype = NIMBLE_F32;
    t.rank = 1;
    t.shape = &shape_;
    return t;
  }
  void require_copy(const nimble_tensor& out, int64_t n) const {
    NIMBLE_FUZZ_REQUIRE(out.rank == 1 && out.shape[0] == n, "a copy of another shape");
    NIMBLE_FUZZ_REQUIRE(
        std::memcmp(out.data, data_.data(), static_cast<size_t>(n) * sizeof(float)) == 0,
        "a copy of another value");
  }

  // Whether a run that begins now may end otherwise than by itself: somebody else is asking.
  bool disturbed() const { return requests_ > 0; }
  static void require_ended(const Session& s, nimble_status status, bool spins, bool disturbed) {
    require_error(status);
    if (status == NIMBLE_CANCELLED && disturbed) return;
    if (status == NIMBLE_EXHAUSTED && (spins || s.limited)) return;
    NIMBLE_FUZZ_REQUIRE(status == NIMBLE_OK && !spins, "{}: {}", status, nimble_last_error());
  }

  void run_entry(Session& s, const char* entry) {
    if (!s.handle) return;
    const int64_t n = next();
    const nimble_tensor x = input(n);
    nimble_tensor& y = pick(outputs_);
    nimble_tensor_release(&y);
    y = NIMBLE_TENSOR_INIT;
    const bool busy = disturbed();
    const nimble_status status = nimble_session_run(s.handle, entry, nullptr, &x, 1, &y, 1);
    require_error(status);
    if (entry == kEntries[3]) {
      NIMBLE_FUZZ_REQUIRE(status == NIMBLE_NOT_FOUND || s.suspended, "{}", status);
    } else if (s.suspended) {
      NIMBLE_FUZZ_REQUIRE(status == NIMBLE_INVALID_ARGUMENT, "{}", status);
    } else if (entry == kEntries[2]) {  // its ports are no tensors
      NIMBLE_FUZZ_REQUIRE(status == NIMBLE_INVALID_ARGUMENT || status == NIMBLE_UNSUPPORTED, "{}",
                          status);
    } else {
      require_ended(s, status, entry == kEntries[1], busy);
      if (status == NIMBLE_OK) require_copy(y, n);
    }
    NIMBLE_FUZZ_REQUIRE(status == NIMBLE_OK || y.data == nullptr, "an output of a failed run");
  }

  void start(Session& s) {
    if (!s.handle) return;
    const bool spins = next() % 4 == 0;
    const int64_t n = next();
    const nimble_tensor x = input(n);
    // What is borrowed until the end of the run must stay.
    std::vector<float>& kept = kept_[static_cast<size_t>(&s - sessions_)];
    nimble_tensor borrowed = x;
    if (!s.suspended) {
      kept.assign(data_.begin(), data_.begin() + n + 1);
      borrowed.data = kept.data();
    }
    const bool busy = disturbed();
    const nimble_status status =
        nimble_session_start(s.handle, spins ? "spin" : "copy", nullptr, &borrowed, 1);
    require_error(status);
    if (s.suspended) {
      NIMBLE_FUZZ_REQUIRE(status == NIMBLE_INVALID_ARGUMENT, "{}", status);
      return;
    }
    if (status != NIMBLE_OK) {
      NIMBLE_FUZZ_REQUIRE(busy || s.limited, "{}", nimble_last_error());
      return;
    }
    s.suspended = true;
    s.spins = spins;
    s.n = n;
  }

  void resume(Session& s) {
    if (!s.handle) return;
    nimble_tensor& y = pick(outputs_);
    nimble_tensor_release(&y);
    y = NIMBLE_TENSOR_INIT;
    const uint64_t slice = next();
    const bool busy = disturbed();
    const nimble_status status = nimble_session_resume(s.handle, slice, &y, 1);
    require_error(status);
    if (!s.suspended) {
      NIMBLE_FUZZ_REQUIRE(status == NIMBLE_INVALID_ARGUMENT, "{}", status);
      return;
    }
    if (status == NIMBLE_SUSPENDED) {
      NIMBLE_FUZZ_REQUIRE(slice > 0 || busy, "suspended though nobody asked");
      return;
    }
    s.suspended = false;
    // A request to cancel may have come while the run was suspended.
    if (status == NIMBLE_CANCELLED) return;
    require_ended(s, status, s.spins, busy);
    const std::vector<float>& kept = kept_[static_cast<size_t>(&s - sessions_)];
    if (status == NIMBLE_OK)
      NIMBLE_FUZZ_REQUIRE(
          y.shape[0] == s.n &&
              std::memcmp(y.data, kept.data(), static_cast<size_t>(s.n) * sizeof(float)) == 0,
          "a copy of another value");
  }

  void prepare(Session& s) {
    if (!s.handle) return;
    const char* names[] = {next() % 8 ? "x" : "none"};
    nimble_call* made = nullptr;
    const nimble_status status = nimble_call_prepare(s.handle, "copy", names, 1, 1, &made);
    require_error(status);
    NIMBLE_FUZZ_REQUIRE((status == NIMBLE_OK) == (made != nullptr), "a call and a failure");
    nimble_call_destroy(s.call);
    s.call = made;
  }

  void call(Session& s) {
    if (!s.call) return;
    const int64_t n = next();
    const nimble_tensor x = input(n);
    float own[256];
    nimble_tensor y = NIMBLE_TENSOR_INIT;
    const bool buffer = next() % 2;
    if (buffer) {
      y.data = own;
      y.capacity = sizeof own;
    }
    const bool busy = disturbed();
    const nimble_status status = nimble_call_run(s.call, &x, &y);
    require_error(status);
    if (s.suspended) {
      NIMBLE_FUZZ_REQUIRE(status == NIMBLE_INVALID_ARGUMENT, "{}", status);
    } else {
      require_ended(s, status, false, busy);
      if (status == NIMBLE_OK) require_copy(y, n);
    }
    nimble_tensor_release(&y);
  }

  // What may be asked from anywhere at any time.
  static void ask(nimble_session* s, uint8_t what) {
    switch (what % 6) {
      case 0:
        return nimble_cancel(s);
      case 1:
        return nimble_session_suspend(s);
      case 2:
        return nimble_session_trim(s);
      case 3:
        return nimble_session_set_profiling(s, what & 64);
      case 4: {
        nimble_run_position at = NIMBLE_RUN_POSITION_INIT;
        (void)nimble_session_position(s, &at);
        return;
      }
      default: {
        nimble_memory_stats stats = NIMBLE_MEMORY_STATS_INIT;
        (void)nimble_session_memory(s, &stats);
        return;
      }
    }
  }
  void request(Session& s, uint8_t what) {
    if (s.handle) ask(s.handle, what);
  }
  void request_from_other(Session& s, uint8_t what) {
    if (!s.handle) return;
    ++requests_;
    other_.post([this, handle = s.handle, what] {
      ask(handle, what);
      --requests_;
    });
    if (what & 128) other_.wait();
  }

  void look_at(Session& s) {
    if (!s.handle) return;
    nimble_run_position at = NIMBLE_RUN_POSITION_INIT;
    NIMBLE_FUZZ_REQUIRE(nimble_session_position(s.handle, &at) == NIMBLE_OK, "{}",
                        nimble_last_error());
    NIMBLE_FUZZ_REQUIRE(at.state == (s.suspended ? NIMBLE_RUN_SUSPENDED : NIMBLE_RUN_NONE),
                        "state {}", at.state);
    nimble_memory_stats stats = NIMBLE_MEMORY_STATS_INIT;
    NIMBLE_FUZZ_REQUIRE(nimble_session_memory(s.handle, &stats) == NIMBLE_OK &&
                            stats.in_use <= stats.reserved && stats.in_use <= stats.peak,
                        "memory");
    NIMBLE_FUZZ_REQUIRE(std::strlen(nimble_session_profile_json(s.handle)) > 1, "no profile");
    NIMBLE_FUZZ_REQUIRE(std::strlen(nimble_session_shapes_json(s.handle)) > 1, "no shapes");
  }

  void make_value() {
    nimble_value*& v = pick(values_);
    nimble_value* made = nullptr;
    nimble_status status;
    const nimble_value* const fields[] = {pick(values_), pick(values_)};
    if (next() % 2) {
      const nimble_tensor x = input(next() % 4);
      status = nimble_value_from_tensor(&x, &made);
    } else {
      const size_t count = next() % 3;
      status = nimble_value_from_fields(next() % 3 - 1, fields, count, &made);
    }
    require_error(status);
    NIMBLE_FUZZ_REQUIRE((status == NIMBLE_OK) == (made != nullptr), "a value and a failure");
    if (made) {
      NIMBLE_FUZZ_REQUIRE(nimble_value_field(made, nimble_value_field_count(made)) == nullptr,
                          "a field behind the last");
      nimble_value_release(v);
      v = made;
    }
  }

  void run_values(Session& s) {
    const nimble_value* const v = pick(values_);
    if (!s.handle || !v) return;
    nimble_value* outputs[2] = {};
    const bool busy = disturbed();
    const nimble_status status =
        nimble_session_run_values(s.handle, "same", nullptr, &v, 1, outputs, 2);
    require_error(status);
    if (s.suspended) {
      NIMBLE_FUZZ_REQUIRE(status == NIMBLE_INVALID_ARGUMENT, "{}", status);
    } else if (status != NIMBLE_OK) {
      NIMBLE_FUZZ_REQUIRE(
          status == NIMBLE_INVALID_ARGUMENT || s.limited || busy || status == NIMBLE_EXHAUSTED,
          "{}: {}", status, nimble_last_error());
    } else {
      NIMBLE_FUZZ_REQUIRE(nimble_value_tag(outputs[0]) == nimble_value_tag(v) &&
                              nimble_value_field_count(outputs[1]) == 2,
                          "another value");
    }
    for (nimble_value* o : outputs) {
      NIMBLE_FUZZ_REQUIRE(!o == (status != NIMBLE_OK), "an output of a failed run");
      nimble_value_release(o);
    }
  }

  // One of two runs at once is refused, or both come one after the other.
  void run_on_two_threads(Session& s) {
    if (!s.handle || s.suspended) return;
    ++requests_;
    static const float kZeros[4] = {};
    other_.post([this, handle = s.handle] {
      const int64_t shape = 4;
      nimble_tensor x = NIMBLE_TENSOR_INIT, y = NIMBLE_TENSOR_INIT;
      x.data = const_cast<float*>(kZeros);
      x.dtype = NIMBLE_F32;
      x.rank = 1;
      x.shape = &shape;
      require_error(nimble_session_run(handle, "copy", nullptr, &x, 1, &y, 1));
      nimble_tensor_release(&y);
      --requests_;
    });
    const int64_t n = next();
    const nimble_tensor x = input(n);
    nimble_tensor y = NIMBLE_TENSOR_INIT;
    const nimble_status status = nimble_session_run(s.handle, "copy", nullptr, &x, 1, &y, 1);
    require_error(status);
    if (status == NIMBLE_OK) require_copy(y, n);
    nimble_tensor_release(&y);
    other_.wait();
  }

  // Destroying is allowed once the run is seen to be in progress, and only then.
  void destroy_while_it_runs(Session& s) {
    if (!s.handle || s.suspended) return;
    other_.wait();
    nimble_call_destroy(s.call);
    s.call = nullptr;
    std::atomic<bool> over{false};
    static const float kZeros[4] = {};
    other_.post([&over, handle = s.handle] {
      const int64_t shape = 4;
      nimble_tensor x = NIMBLE_TENSOR_INIT, y = NIMBLE_TENSOR_INIT;
      x.data = const_cast<float*>(kZeros);
      x.dtype = NIMBLE_F32;
      x.rank = 1;
      x.shape = &shape;
      nimble_session_run(handle, "spin", nullptr, &x, 1, &y, 1);
      over = true;
    });
    // It ends by itself when the fuel does.
    nimble_run_position at = NIMBLE_RUN_POSITION_INIT;
    while (!over && at.state != NIMBLE_RUN_RUNNING) (void)nimble_session_position(s.handle, &at);
    nimble_session_destroy(s.handle);
    s.handle = nullptr;
    other_.wait();
    s = {};
  }

  std::span<const uint8_t> bytes_;
  nimble_model* models_[kSlots] = {};
  Session sessions_[kSlots];
  nimble_value* values_[kSlots] = {};
  nimble_tensor outputs_[kSlots] = {NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT};
  std::vector<float> data_;
  std::vector<float> kept_[kSlots];  // inputs of suspended runs
  int64_t shape_ = 0;
  float first_ = 0;
  std::atomic<int> requests_{0};
  Other other_;  // last: it ends first
};

}  // namespace

void run(std::span<const uint8_t> input) {
  Caller(input).run();
}

// Sequences by their meaning: see Caller::step for the numbers.
std::vector<Seed> seeds() {
  const std::string open = {0, 0, 0, 2, 0, 0, 1};
  const auto seed = [&](const char* name, std::initializer_list<int> calls) {
    std::string bytes = open;
    for (const int c : calls) bytes += static_cast<char>(c);
    return Seed{name, bytes};
  };
  return {seed("run", {4, 0, 0, 7, 1, 0, 4, 0, 0, 200, 9, 1, 21, 0, 17, 0}),
          seed("spin", {4, 0, 1, 7, 0, 1, 15, 0, 0, 4, 0, 1, 3, 0, 1, 4, 0, 0, 5, 0, 1}),
          seed("slices", {7, 0, 1, 9, 3, 8, 0, 0, 2, 17, 0, 4, 0, 0, 1,
                          1, 0, 8, 0, 0, 3, 8, 0, 1, 0,  8, 0, 1, 0}),
          seed("abandon", {7, 0, 0, 9, 3, 8, 0, 0, 99, 10, 0, 7, 0, 1, 2, 2, 14, 0, 0, 8, 0, 0, 0}),
          seed("prepared", {11, 0, 1, 12, 0, 5, 1, 1, 12, 0, 5, 2, 0, 12, 0, 9, 1, 1, 13, 0}),
          seed("values", {18, 0, 0, 0, 1, 2,  1, 18, 1,  0, 0, 0,  1, 1, 18, 2,
                          1,  1, 0, 2, 2, 20, 0, 1,  20, 0, 2, 20, 0, 0, 19, 1}),
          seed("at once", {22, 0, 9, 1, 22, 0, 100, 2, 15, 0, 2, 15, 0, 67, 22, 0, 3, 3}),
          seed("destroyed", {23, 0, 2, 0, 0, 3, 4, 0, 0, 7, 1, 0, 23, 0, 3, 0}),
          seed("limits", {2, 1, 0, 4, 4, 1, 0, 200, 3, 1, 7, 1, 1, 99,
                          4, 8, 1, 0, 0, 1, 0, 0,   0, 1, 5, 9, 3})};
}

std::vector<std::string> dictionary() {
  std::vector<std::string> out;
  for (char call = 0; call < 24; ++call) out.push_back({call, 0, 1});
  return out;
}

}  // namespace nimble::fuzz
