// The campaign's half: a worker process that may crash, hang or vanish, as a plain object.
//
// Executables that were given stay known here; when the worker is lost they are handed to the
// next one. The entry at which it was lost is reported as crashed or timed out, and the rest of
// the case is measured by the new worker. So a bad candidate costs itself and nothing else.
//
// The worker gets no environment but a few variables that say how to run (runner.cpp) and no
// descriptors but its pipes, and shuts itself in (confine.h): a candidate finds no password and no
// connection of the campaign's.
//
// Not every end is a candidate's: the kernel kills for memory (SIGKILL), and before a candidate
// runs the worker makes the test data. After such an end a new worker tries the same again, and
// only after kAttempts the entries are reported as lost, with what the worker wrote on stderr.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tuner/measure/lasting_thread.h"
#include "tuner/measure/protocol.h"

namespace nimble::tuner {

struct RunnerOptions {
  std::string program;                        // nimble-worker
  int64_t hang_ms = 4000;                     // no sign of progress for so long: the worker hangs
  int64_t memory_limit = 0;                   // bytes of the worker's address space; 0: none
  std::vector<int> cpus;                      // the worker is bound to these; empty: to none
  bool gpu = false;                           // candidates are of this machine's GPU
  const std::atomic<bool>* cancel = nullptr;  // set: stop at once, Error(kCancelled)
};

class Runner {
 public:
  explicit Runner(RunnerOptions options);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Keeps an executable (serialised) for measure(); it is sent when first needed.
  uint32_t add(std::vector<uint8_t> executable);
  void remove(uint32_t id);  // never throws
  void stop();               // ends the worker; the next case starts another

  // One result per entry, in the case's order. A case that has a limit ends not much later,
  // whatever its entries do: a worker that is still at it is ended. Error(kCancelled) when told to
  // stop, Error(kInvalidArgument) if the worker refuses the case as a whole, Error(kInternal) if
  // one that was started does not answer, Error(kNotFound) if none can be started.
  std::vector<EntryResult> measure(const Case& c);

  // Runs the case's one entry once. Nothing if it crashed, hung or failed: `why` says how.
  // Otherwise the bytes of what it wrote. Errors as of measure.
  std::optional<std::vector<std::vector<uint8_t>>> run(const Case& c, std::string* why);

  // What all cases so far cost, those of workers that were lost left out.
  const CaseCost& cost() const { return cost_; }

  // The worker's process; 0 if there is none at the moment. For tests.
  pid_t worker() const { return pid_; }
  int64_t workers_started() const { return started_; }

 private:
  struct Kept {
    std::vector<uint8_t> bytes;
    bool loaded = false;
    std::string refused;                  // why the worker could not load it
    EntryState as = EntryState::kFailed;  // what its entries are from then on
    std::string output;                   // of the worker that was lost over it
  };
  // How a request ended without an answer.
  struct Lost {
    bool hung = false;
    std::string reason;  // "SIGSEGV", "exit code 1", "no progress for 4000 ms"
    std::string output;  // the end of what it wrote on stderr
    Phase phase = kIdle;
    uint32_t entry = 0;
    bool late = false;    // the case's limit is over
    bool killed = false;  // by SIGKILL, which no candidate sends: for memory, or by a person
    // No candidate's code was running, or nobody can tell.
    bool blameless() const { return killed || (!hung && (phase == kIdle || phase == kPreparing)); }
  };

  void start();
  Lost lose(bool hung);
  // Without a sign of progress for so long, it hangs in this phase.
  int64_t patience_in(uint32_t phase) const;
  bool ends_by_itself() const;                // is ended already, or within a moment
  std::string last_words(size_t most) const;  // the end of what the worker wrote on stderr
  // Waits for the next frame. False, and `lost` set, if the worker died or hung.
  bool receive(Frame* frame, Lost* lost);
  bool send(MessageType type, std::span<const uint8_t> payload, Lost* lost);
  // Loads one executable; false if it cannot be, and `state` and `why` are what to report of it.
  bool ensure_loaded(uint32_t id, Kept& kept, EntryState* state, std::string* why);
  // Measures the entries `which` of the case, until done or lost.
  bool attempt(const Case& c, const std::vector<uint32_t>& which, std::vector<EntryResult>& results,
               std::vector<bool>& have, Lost* lost);

  RunnerOptions options_;
  LastingThread parent_;  // of the workers
  std::map<uint32_t, Kept> kept_;
  uint32_t next_id_ = 0;
  pid_t pid_ = 0;
  int to_ = -1, from_ = -1, page_fd_ = -1, stderr_fd_ = -1;
  Progress* progress_ = nullptr;
  int64_t started_ = 0;
  int64_t patience_ms_;   // in phases that have none of their own
  int64_t until_ms_ = 0;  // of the case that is measured; 0: no limit
  CaseCost cost_;
};

// The nimble-worker beside the running program.
std::string worker_program();

}  // namespace nimble::tuner
