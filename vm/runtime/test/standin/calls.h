// What a stand-in for a library keeps of its calls: how often each was made, which are to fail, and
// what was against the library's rules.
#pragma once

#include <map>
#include <mutex>
#include <string>

class StandInCalls {
 public:
  // Held by whoever is called.
  std::recursive_mutex& mutex() { return mutex_; }

  // Counts a call of a function; the result that it is to give now, or 0.
  int enter(const std::string& function) {
    ++counts_[function];
    const auto fault = faults_.find(function);
    if (fault == faults_.end() || --fault->second.calls != 0) return 0;
    const int result = fault->second.result;
    faults_.erase(fault);
    return result;
  }
  // Notes what is against the rules, and returns the result of a call that does it.
  int violate(const std::string& what, int result) {
    violations_ += what + "\n";
    return result;
  }
  void reset() {
    faults_.clear();
    counts_.clear();
    violations_.clear();
  }

  // As StandIn has them.
  void fail(const char* function, int nth, int result) { faults_[function] = {nth, result}; }
  int count(const char* function) { return counts_[function]; }
  const char* violations() const { return violations_.c_str(); }

 private:
  struct Fault {
    int calls = 0, result = 0;
  };
  std::recursive_mutex mutex_;
  std::map<std::string, Fault> faults_;
  std::map<std::string, int> counts_;
  std::string violations_;
};
