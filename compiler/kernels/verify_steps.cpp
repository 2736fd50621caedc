// Method: two walks. One over the statements ahead of the loop, which lists what they write and
// finds what they may not touch: with a launch for each step they run again ahead of each. One over
// the loop, which may not write what those made ready. That a step carries nothing to the next one
// but through global memory needs numbers (which element) and is the interpreter's rule.
#include "compiler/kernels/verify_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

namespace nimble::kir {
namespace {

bool is_own(const Buffer& b) {
  return b.scope == Scope::kRegister || b.scope == Scope::kShared;
}

// What a statement writes by itself; null if nothing.
const Buffer* written_by(const Stmt& s) {
  switch (s.kind) {
    case StmtKind::kStore:
    case StmtKind::kSetRegister:
      return s.buffer.get();
    case StmtKind::kWarpDot:
    case StmtKind::kWarpLoad:
    case StmtKind::kGroupDot:
      return s.tiles.empty() ? nullptr : s.tiles[0].buffer.get();
    case StmtKind::kAsyncCopy:
    case StmtKind::kTensorCopy:
      return s.to_buffer.get();
    // Its phases go on: one that is made ahead of the steps has others in a launch for each step.
    case StmtKind::kSignalInit:
    case StmtKind::kSignalArrive:
      return s.buffer.get();
    default:
      return nullptr;
  }
}

template <class Visit>
void each_statement(const Stmt& s, const Stmt* but, const Visit& visit) {
  if (&s == but) return;
  visit(s);
  for (const StmtRef& b : s.body)
    if (b) each_statement(*b, but, visit);
}

template <class Visit>
void each_value(const ValueRef& v, std::unordered_set<const Value*>& seen, const Visit& visit) {
  if (!v || !seen.insert(v.get()).second) return;
  visit(*v);
  for (const ValueRef& o : v->operands) each_value(o, seen, visit);
  each_value(v->passthrough, seen, visit);
}

std::set<const Buffer*> written_ahead(const Function& f, const Stmt* steps) {
  std::set<const Buffer*> all;
  each_statement(*f.body, steps, [&](const Stmt& s) {
    if (const Buffer* b = written_by(s)) all.insert(b);
  });
  return all;
}

// Memory that other blocks or other launches see change.
const Buffer* read_of_changing(const Stmt& s) {
  const Buffer* found = nullptr;
  const auto look = [&](const BufferRef& b) {
    if (b && !is_own(*b) && (b->writable || b->scope != Scope::kArgument)) found = b.get();
  };
  std::unordered_set<const Value*> seen;
  each_value(s.value, seen, [&](const Value& v) {
    if (v.kind == ValueKind::kLoad) look(v.buffer);
  });
  if (s.kind == StmtKind::kAsyncCopy) look(s.buffer);
  return found;
}

}  // namespace

std::string steps_fault(const Function& f) {
  const Stmt* steps = steps_of(f);
  std::string fault;
  const auto note = [&](std::string text) {
    if (fault.empty()) fault = std::move(text);
  };
  each_statement(*f.body, nullptr, [&](const Stmt& s) {
    if (s.kind == StmtKind::kFor && s.loop == LoopKind::kSteps && &s != steps)
      note(fmt::format(
          "loop of steps {}, which is not the last statement of a function with a launch", s.var));
  });
  if (!steps || !fault.empty()) return fault;

  if (!steps->begin.is_constant(0) || steps->step != 1)
    note(fmt::format("loop of steps {} from {} in steps of {}; it counts from 0 by 1", steps->var,
                     steps->begin.str(), steps->step));
  const std::vector<std::string>& symbols = f.contract.symbols;
  if (steps->extent.is_any()) note(fmt::format("loop of steps {} of `?`", steps->var));
  for (const std::string& s : steps->extent.symbols())
    if (std::find(symbols.begin(), symbols.end(), s) == symbols.end())
      note(fmt::format("the number of steps {} depends on {}, which is no symbol of the contract",
                       steps->extent.str(), s));
  const std::set<const Buffer*> ready = written_ahead(f, steps);
  for (const Buffer* b : ready)
    if (!is_own(*b))
      note(fmt::format(
          "{} is written ahead of the steps, where only registers and shared memory may "
          "be",
          b->name));
  each_statement(*f.body, steps, [&](const Stmt& s) {
    if (const Buffer* b = read_of_changing(s))
      note(fmt::format("{} is read ahead of the steps, which may write it", b->name));
  });
  each_statement(*steps, nullptr, [&](const Stmt& s) {
    if (const Buffer* b = written_by(s); b && ready.contains(b))
      note(fmt::format("a step writes {}, which was made ready ahead of all", b->name));
  });
  return fault;
}

bool is_ready_for_steps(const Function& f, const Buffer& b) {
  const Stmt* steps = steps_of(f);
  return steps && written_ahead(f, steps).contains(&b);
}

}  // namespace nimble::kir
