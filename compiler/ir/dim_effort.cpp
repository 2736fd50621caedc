// What a question to the prover may cost, and what is remembered of those before it.
#include <algorithm>
#include <list>

#include "compiler/ir/dim_prover.h"
#include "compiler/ir/dim_prover_statistics.h"

namespace nimble::ir {
namespace {

// The answers under one state of facts, which is compared in full: what a wrong answer allowed,
// nobody would check again.
struct Remembered {
  explicit Remembered(const Facts& f)
      : ranges(f.ranges),
        equal_to(f.equal_to),
        nonnegative(f.nonnegative),
        assumptions(f.nonnegative) {}
  Remembered(const Remembered&) = delete;  // witnesses refer to the facts
  Remembered& operator=(const Remembered&) = delete;

  bool is_of(const Facts& f) const {
    const auto same_range = [](const auto& a, const auto& b) {
      return a.second.low == b.second.low && a.second.high == b.second.high &&
             a.second.divisor == b.second.divisor && a.first == b.first;
    };
    return nonnegative == f.nonnegative && equal_to == f.equal_to &&
           std::equal(ranges.begin(), ranges.end(), f.ranges.begin(), f.ranges.end(), same_range);
  }

  std::map<std::string, SymbolFacts> ranges;
  std::map<std::string, Dim> equal_to;
  std::vector<Dim> nonnegative;
  Assumptions assumptions;
  std::optional<Witnesses> witnesses;                  // once they were asked for
  std::unordered_map<const DimNode*, Answer> answers;  // never moves what it holds
};

constexpr size_t kStates = 16;         // of facts: a branch's, and those around it
constexpr size_t kAnswers = 1u << 16;  // under one of them

struct State {
  int open = 0;
  size_t paid = 0;
  int64_t cuts = 0, exhausted = 0;
  std::list<Remembered> recent;   // the last used first
  Remembered* current = nullptr;  // of the facts, once they were asked for
};
State& state() {
  static thread_local State s;
  return s;
}

Remembered& remembered(const Facts& facts) {
  State& s = state();
  if (s.current) return *s.current;
  const auto found =
      std::ranges::find_if(s.recent, [&](const Remembered& r) { return r.is_of(facts); });
  if (found != s.recent.end()) {
    s.recent.splice(s.recent.begin(), s.recent, found);
    if (found->answers.size() > kAnswers) {
      found->answers.clear();
      found->witnesses.reset();
    }
  } else {
    if (s.recent.size() == kStates) s.recent.pop_back();
    s.recent.emplace_front(facts);
  }
  s.current = &s.recent.front();
  return *s.current;
}

size_t walk_size(const DimNode* n, size_t most) {
  size_t size = 1;
  for (const DimNode* o : n->operands)
    if (size < most) size += walk_size(o, most - size);
  for (const PolyTerm& t : n->terms)
    if (t.monomial)
      for (const DimNode* atom : t.monomial->atoms)
        if (size < most) size += walk_size(atom, most - size);
  return size;
}

}  // namespace

thread_local int Nesting::depth_ = 0;

size_t size_of(const Dim& d) {
  return walk_size(d.node(), kLargest + 1);
}

Effort::Effort() {
  State& s = state();
  if (s.open++ > 0) return;
  s.paid = 0;
  s.current = nullptr;
}
Effort::~Effort() {
  --state().open;
}
bool Effort::pay(size_t operations) const {
  State& s = state();
  const bool could = s.paid <= kMost;
  s.paid += operations;
  if (s.paid <= kMost) return true;
  s.exhausted += could;
  return false;
}
bool Effort::fresh() const {
  return state().paid <= kMost / 8;
}
bool Effort::exhausted() const {
  return state().paid > kMost;
}
void Effort::cut() const {
  ++state().cuts;
}
int64_t Effort::cuts() const {
  return state().cuts;
}
Answer& Effort::answer(const Facts& facts, const Dim& d) const {
  return remembered(facts).answers[d.node()];
}
Witnesses& Effort::witnesses(const Facts& facts) const {
  Remembered& r = remembered(facts);
  if (!r.witnesses) r.witnesses.emplace(Facts{r.ranges, r.equal_to, r.nonnegative});
  return *r.witnesses;
}
const Assumptions& Effort::assumptions(const Facts& facts) const {
  return remembered(facts).assumptions;
}
void Effort::forget() const {
  state().current = nullptr;
}

int64_t exhausted_questions() {
  return state().exhausted;
}

}  // namespace nimble::ir
