#include "vm/base/cpu_list.h"

#include <fmt/format.h>
#include <sched.h>

#include <charconv>
#include <memory>
#include <new>
#include <set>

#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble {
namespace {

constexpr int kMostCpus = 1 << 16;

const size_t kSetBytes = CPU_ALLOC_SIZE(kMostCpus);

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using Set = std::unique_ptr<cpu_set_t, FreeSet>;

Set empty_set() {
  Set set(CPU_ALLOC(kMostCpus));
  if (!set) throw std::bad_alloc();
  CPU_ZERO_S(kSetBytes, set.get());
  return set;
}

// Takes a number off the front; -1 if there is none.
int take_number(std::string_view* text) {
  int value = -1;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (code != std::errc() || value < 0 || value >= kMostCpus) return -1;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

}  // namespace

std::vector<int> cpu_list_from_text(std::string_view text, const std::string& place) {
  const auto refuse = [&] {
    return Error(Status::kInvalidArgument, place,
                 fmt::format("\"{}\" is no list of CPUs", printable(text)),
                 "write numbers and ranges: 0-3,8");
  };
  std::set<int> cpus;
  for (std::string_view rest = text;;) {
    const int first = take_number(&rest);
    int last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      last = take_number(&rest);
    }
    if (first < 0 || last < first) throw refuse();
    for (int i = first; i <= last; ++i) cpus.insert(i);
    if (rest.empty()) return {cpus.begin(), cpus.end()};
    if (!rest.starts_with(',')) throw refuse();
    rest.remove_prefix(1);
  }
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ",", cpus[i]);
    if (end > i + 1) out += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return out;
}

void check_cpus(const std::vector<int>& cpus) {
  const Set allowed = empty_set();
  ::sched_getaffinity(0, kSetBytes, allowed.get());
  for (const int i : cpus)
    if (!CPU_ISSET_S(static_cast<size_t>(i), kSetBytes, allowed.get()))
      throw Error(Status::kInvalidArgument, fmt::format("CPU {}", i),
                  "is not there, or this process may not use it",
                  "taskset -pc $$ tells which it may");
}

void bind_to_cpus(const std::vector<int>& cpus) {
  check_cpus(cpus);  // the system would leave one out without a word
  const Set wanted = empty_set();
  for (const int i : cpus) CPU_SET_S(static_cast<size_t>(i), kSetBytes, wanted.get());
  if (::sched_setaffinity(0, kSetBytes, wanted.get()) != 0)
    throw Error(Status::kInvalidArgument, "CPUs " + cpu_list_text(cpus), "cannot be bound to",
                "choose others");
}

}  // namespace nimble
