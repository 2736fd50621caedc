// Numbers the parts of a data-type value for batched recursion
// (compiler/passes/batch_recursion.cpp; the linearizer of Cortex, MLSys 2021, is the same idea).
//
// Some functions recurse over a value: f(Node(l, r)) calls f(l) and f(r). A *task* is one such
// function at one cell; it depends on the tasks that it calls. Its *height* is 0 without
// dependences, else one more than its highest one. All tasks of one height and one *kind* (function
// and constructor) can be computed together: that is a *step*. This operator finds the tasks below
// a root, sorts them by height and kind, and writes what the batched code needs:
//
//   steps     i64 (S, 4)     kind, number of tasks, how many of the kind came in earlier steps, and
//                            how many of the kind's function: the row of the step's first task
//   calls     i64 (n_k)      for each kind and each of its calls: the row of the called task
//   fields    T (n_k, dims)  for each kind and each tensor field that it reads: the fields, stacked
//
// The row of a task is its rank among its function's tasks in the order of steps, so a step's
// results, put behind those of earlier steps, stand where later steps look for them. A cell that
// several others hold (a DAG) is one task, though plain recursion would come by several times:
// these visits are counted too. The root is higher than all others: its row is the last.
//
// The schema (recursion_schema.h) comes as scalars. Everything is checked against the cells that
// are there; a program can do no harm with it. What is kept of the walk counts as memory of the
// session while it runs, and each task and step is charged for.
#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "vm/base/error.h"
#include "vm/base/recursion_schema.h"
#include "vm/library/elements.h"
#include "vm/library/host_operators.h"

namespace nimble::rt {
namespace {

constexpr int64_t kMost = 4096;  // functions and tags
constexpr int64_t kMostVisits = int64_t{1} << 40;
constexpr uint64_t kStepsPerTask = 8;  // to find a task and to place it

[[noreturn, gnu::cold]] void fail(const std::string& problem) {
  throw Error(Status::kFatal, "", "linearise: " + problem,
              "report it: the compiled schema does not fit the program's data types");
}

using Kind = RecursionSchema::Kind;

class Schema {
 public:
  Schema(std::span<const int64_t> numbers, MemoryAccount& account, StepCounter& steps)
      : decoded_(numbers.size(), account), by_function_(account) {
    const auto pay = [&](uint64_t cost) {
      cost_ += cost;
      steps.charge(cost);
    };
    pay(numbers.size());
    size_t used = 0;  // what follows are extents of the results
    std::optional<RecursionSchema> decoded = RecursionSchema::decode(numbers, &used);
    if (!decoded) fail("its scalars are not a schema");
    kinds_ = std::move(decoded->kinds);
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const Kind& k = kinds_[i];
      visits_once_ &= k.function == 0;
      for (size_t c = 0; c < k.calls.size(); ++c) {
        if (k.calls[c].function >= kMost) fail("a function's number is too large");
        visits_once_ &= k.calls[c].function == 0;
        pay(c);
        for (size_t before = 0; before < c && visits_once_; ++before)
          visits_once_ &= k.calls[before].field != k.calls[c].field;
      }
      if (k.function >= kMost || k.tag >= kMost)
        fail("a function's or a tag's number is too large");
      const auto function = static_cast<size_t>(k.function), tag = static_cast<size_t>(k.tag);
      while (by_function_.size() <= function) by_function_.emplace_back(account);
      MeteredVector<int32_t>& by_tag = by_function_[function];
      if (by_tag.size() <= tag) {
        pay((tag + 1) * sizeof by_tag[0] / WorkMeter::kBytesPerStep + 1);
        by_tag.resize(tag + 1, -1);
      }
      by_tag[tag] = static_cast<int32_t>(i);
    }
  }

  // Steps that it took to make it: a call that finds it made pays them too, or the fuel that a run
  // takes would depend on what ran before.
  uint64_t cost() const { return cost_; }
  const std::vector<Kind>& kinds() const { return kinds_; }
  // Whether no field of a cell is visited twice: one function, one call for each field.
  bool visits_once() const { return visits_once_; }
  size_t functions() const { return by_function_.size(); }
  int32_t kind_of(int64_t function, int64_t tag) const {
    const auto f = static_cast<size_t>(function), t = static_cast<size_t>(tag);
    if (f >= by_function_.size() || t >= by_function_[f].size() || by_function_[f][t] < 0)
      fail(fmt::format("function {} has no case for tag {}", function, tag));
    return by_function_[f][t];
  }

 private:
  // Of what decoding makes of so many numbers, which is no metered container.
  struct Decoded {
    Decoded(size_t numbers, MemoryAccount& a) : account(a), bytes(2 * sizeof(Kind) * numbers) {
      account.take(bytes);
    }
    ~Decoded() { account.give(bytes); }
    Decoded(const Decoded&) = delete;
    Decoded& operator=(const Decoded&) = delete;
    MemoryAccount& account;
    const uint64_t bytes;
  };

  Decoded decoded_;
  std::vector<Kind> kinds_;
  MeteredVector<MeteredVector<int32_t>> by_function_;  // kind by function and tag
  bool visits_once_ = true;
  uint64_t cost_ = 0;
};

struct Task {
  const Cell* cell;
  int32_t kind;
  int32_t height = 0;
  uint32_t calls;  // the first of its called tasks in Tasks::called_
  int64_t row = 0;
  int64_t visits = 1;  // tasks below it and itself, counting a shared one each time
};

struct Step {
  int32_t kind;
  int64_t count, first, row;
};

const Value& field_of(const Cell& cell, int64_t field) {
  if (field >= static_cast<int64_t>(cell.count))
    fail(fmt::format("field {} of a value with {}", field, cell.count));
  return cell.values()[static_cast<size_t>(field)];
}

struct Open {
  uint32_t task;
  uint32_t next = 0;
};

// A cell on the way from the root to where TreeCounts is.
struct Part {
  const Cell* cell;
  int32_t kind;
  int32_t height = 0;
  uint32_t next = 0;
};

// What one call leaves to the next of its thread: memory, and the schema, which is usually the same
// again. A model over small trees would otherwise spend as long on malloc as on their nodes. In
// between, it counts nowhere: it is little.
struct Workspace {
  static constexpr uint64_t kMostKept = uint64_t{4} << 20;  // bytes

  const Schema& schema_of(std::span<const int64_t> numbers, StepCounter& steps) {
    if (schema && std::ranges::equal(schema_numbers, numbers)) {
      steps.charge(schema->cost());
    } else {
      schema.reset();
      schema_numbers.assign(numbers.begin(), numbers.end());
      schema.emplace(schema_numbers, account, steps);
    }
    return *schema;
  }

  // The results of one kind of task: where they begin in `rows` and `stacks`, and a row of each for
  // the next task.
  struct Outputs {
    size_t rows, stacks;
    int64_t position = 0;
  };

  MemoryAccount account;  // of all below
  MeteredVector<int64_t> schema_numbers{account};
  std::optional<Schema> schema;  // of these
  MeteredVector<Task> tasks{account};
  MeteredVector<uint32_t> called{account}, order{account}, ends{account};
  MeteredVector<Open> open{account};
  MeteredVector<Part> path{account};
  MeteredVector<Step> steps{account};
  MeteredVector<Outputs> outputs{account};  // by kind
  MeteredVector<int64_t*> rows{account};
  MeteredVector<const LibraryTensor*> stacks{account};
  MeteredVector<int64_t> counts{account};  // of tasks, by kind
};

// The thread's workspace while a call uses it.
class WorkspaceInUse {
 public:
  explicit WorkspaceInUse(const WorkMeter& meter) {
    if (!kept()) kept().emplace();
    try {
      kept()->account.move_to(meter.memory);
    } catch (const Error&) {  // what is kept may be more than this session may have
      kept().emplace().account.move_to(meter.memory);
    }
  }
  ~WorkspaceInUse() {
    if (kept()->account.held() > Workspace::kMostKept)
      kept().reset();
    else
      kept()->account.move_to(nullptr);
  }
  WorkspaceInUse(const WorkspaceInUse&) = delete;
  WorkspaceInUse& operator=(const WorkspaceInUse&) = delete;
  Workspace& operator*() const { return *kept(); }

 private:
  static std::optional<Workspace>& kept() {
    thread_local std::optional<Workspace> w;
    return w;
  }
};

const Cell& cell_in(const Cell& cell, int64_t field) {
  const Value& v = field_of(cell, field);
  if (!v.is(ObjectKind::kAdt)) fail(fmt::format("field {} holds no data-type value", field));
  return *static_cast<const Cell*>(v.object);
}

// Every task below a root, found without recursion, and their order.
class Tasks {
 public:
  Tasks(const Schema& schema, const Cell& root, Workspace& w, StepCounter& steps)
      : schema_(schema),
        charged_(steps),
        tasks_(w.tasks),
        called_(w.called),
        open_(w.open),
        order_(w.order),
        end_(w.ends),
        steps_(w.steps),
        counts_(w.counts),
        known_(w.account) {
    charged_.charge(schema.functions());
    for (size_t f = 0; f < schema.functions(); ++f) known_.emplace_back(w.account);
    tasks_.clear();
    called_.clear();
    open_.clear();
    steps_.clear();
    visit(root, 0, /*inside=*/false);
    while (!open_.empty()) {
      Open& o = open_.back();
      const Kind& kind = schema_.kinds()[static_cast<size_t>(tasks_[o.task].kind)];
      if (o.next == kind.calls.size()) {
        close(o.task, kind);
        continue;
      }
      const RecursionSchema::Call& call = kind.calls[o.next];
      const uint32_t slot = tasks_[o.task].calls + o.next++;
      const uint32_t found = visit(cell_in(*tasks_[o.task].cell, call.field), call.function);
      called_[slot] = found;  // `o` may be gone
    }
    sort();
  }

  const MeteredVector<Step>& steps() const { return steps_; }
  const MeteredVector<uint32_t>& order() const { return order_; }
  const Task& operator[](uint32_t i) const { return tasks_[i]; }
  const Task& called_by(const Task& t, size_t call) const {
    return tasks_[called_[t.calls + call]];
  }
  int64_t count(size_t kind) const { return counts_[kind]; }
  int64_t visits() const { return tasks_[0].visits; }

 private:
  // The task of a function at a cell. In a tree whose parts are visited once each, what only one
  // reference leads to cannot have been seen, nor the root, which no part of it holds.
  uint32_t visit(const Cell& cell, int64_t function, bool inside = true) {
    const int32_t kind = schema_.kind_of(function, cell.number);
    const auto fresh = static_cast<uint32_t>(tasks_.size());
    const size_t calls = schema_.kinds()[static_cast<size_t>(kind)].calls.size();
    charged_.charge(kStepsPerTask + calls);
    if (called_.size() + calls > UINT32_MAX || tasks_.size() >= INT32_MAX)
      throw Error(Status::kExhausted, "", "linearise: a value has too many parts",
                  "use smaller inputs");
    if ((inside && cell.refs > 1) || !schema_.visits_once()) {
      const auto [it, added] = known_[static_cast<size_t>(function)].emplace(&cell, fresh);
      if (!added) return it->second;
    }
    tasks_.push_back({&cell, kind, 0, static_cast<uint32_t>(called_.size())});
    called_.resize(called_.size() + calls);
    open_.push_back({fresh});
    return fresh;
  }

  void close(uint32_t task, const Kind& kind) {
    Task& t = tasks_[task];
    for (size_t i = 0; i < kind.calls.size(); ++i) {
      const Task& called = called_by(t, i);
      t.height = std::max(t.height, called.height + 1);
      t.visits = std::min(kMostVisits, t.visits + called.visits);
    }
    open_.pop_back();
  }

  // By height, then kind, then discovery: a counting sort.
  void sort() {
    const size_t kinds = schema_.kinds().size();
    counts_.assign(kinds, 0);
    const size_t levels = static_cast<size_t>(tasks_[0].height) + 1;
    end_.assign(levels * kinds + 1, 0);
    MeteredVector<int64_t> rows(schema_.functions(), 0, *known_.get_allocator().account());
    const auto bucket = [&](const Task& t) {
      return static_cast<size_t>(t.height) * kinds + static_cast<size_t>(t.kind);
    };
    for (const Task& t : tasks_) ++end_[bucket(t) + 1];
    for (size_t b = 0; b < levels * kinds; ++b) {
      charged_.charge(1);
      const size_t kind = b % kinds;
      if (end_[b + 1] > 0) {
        int64_t& row = rows[static_cast<size_t>(schema_.kinds()[kind].function)];
        steps_.push_back({static_cast<int32_t>(kind), end_[b + 1], counts_[kind], row});
        counts_[kind] += end_[b + 1];
        row += end_[b + 1];
      }
      end_[b + 1] += end_[b];
    }
    order_.resize(tasks_.size());
    for (uint32_t i = 0; i < tasks_.size(); ++i) order_[end_[bucket(tasks_[i])]++] = i;
    std::ranges::fill(rows, 0);
    for (const uint32_t i : order_) {
      const auto kind = static_cast<size_t>(tasks_[i].kind);
      tasks_[i].row = rows[static_cast<size_t>(schema_.kinds()[kind].function)]++;
    }
  }

  using Known = std::unordered_map<const Cell*, uint32_t, std::hash<const Cell*>, std::equal_to<>,
                                   MeteredAllocator<std::pair<const Cell* const, uint32_t>>>;

  const Schema& schema_;
  StepCounter& charged_;
  MeteredVector<Task>& tasks_;
  MeteredVector<uint32_t>& called_;
  MeteredVector<Open>& open_;
  MeteredVector<uint32_t>&order_, &end_;
  MeteredVector<Step>& steps_;
  MeteredVector<int64_t>& counts_;
  MeteredVector<Known> known_;  // by function
};

// What count.linearise tells of a value whose parts are visited once each, without a list of them.
class TreeCounts {
 public:
  int64_t steps = 0, visits = 0;

  // False if a part is shared, so that it takes a list to know what was seen.
  bool run(const Schema& schema, const Cell& root, Workspace& w, StepCounter& charged) {
    const size_t kinds = schema.kinds().size();
    w.counts.assign(kinds, 0);
    w.ends.clear();  // here: whether there is a step of this height and kind
    w.path.assign(1, {&root, schema.kind_of(0, root.number)});
    while (!w.path.empty()) {
      charged.charge(1);
      Part& part = w.path.back();
      const auto number = static_cast<size_t>(part.kind);
      const Kind& kind = schema.kinds()[number];
      if (part.next < kind.calls.size()) {
        const Cell& below = cell_in(*part.cell, kind.calls[part.next++].field);
        if (below.refs > 1) return false;
        w.path.push_back({&below, schema.kind_of(0, below.number)});
        charged.charge(kStepsPerTask);
        continue;
      }
      const size_t step = static_cast<size_t>(part.height) * kinds + number;
      if (step >= w.ends.size()) {
        charged.charge_bytes((step + kinds - w.ends.size()) * sizeof w.ends[0]);
        w.ends.resize(step + kinds, 0);
      }
      steps += w.ends[step] == 0;
      w.ends[step] = 1;
      ++w.counts[number];
      ++visits;
      const int32_t height = part.height;
      w.path.pop_back();
      if (!w.path.empty()) w.path.back().height = std::max(w.path.back().height, height + 1);
    }
    return true;
  }
};

// Copies a field of a cell to row `row` of a stack. (The field may lie in the stack's own memory:
// then the result is whatever, and nothing worse.)
void copy_field(const Cell& cell, const RecursionSchema::Data& d, const LibraryTensor& to,
                int64_t row, StepCounter& steps) {
  const Value& v = field_of(cell, d.field);
  size_t bytes = size_of(d.dtype);
  for (const int64_t e : d.extents) bytes *= static_cast<size_t>(e);
  uint8_t* out = static_cast<uint8_t*>(to.data) + static_cast<size_t>(row) * bytes;
  if (v.is_scalar() && d.extents.empty() && (d.dtype == DType::kI64 || d.dtype == DType::kBool)) {
    if (d.dtype == DType::kI64)
      std::memcpy(out, &v.scalar, sizeof v.scalar);
    else
      *out = v.scalar != 0;
    return;
  }
  if (!v.is(ObjectKind::kTensor)) fail(fmt::format("field {} holds no tensor", d.field));
  const Tensor& t = *static_cast<const Tensor*>(v.object);
  if (t.dtype != d.dtype || !std::ranges::equal(t.shape(), d.extents) || !t.data() ||
      t.storage->device != kCpuDevice)
    fail(fmt::format("field {} is {} ({}), not {} ({})", d.field, name_of(t.dtype),
                     fmt::join(t.shape(), ", "), name_of(d.dtype), fmt::join(d.extents, ", ")));
  copy_charged(steps, out, t.data(), bytes);
}

void run_count(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const WorkspaceInUse in_use(*call.meter);
  StepCounter charged(*call.meter);
  Workspace& space = *in_use;
  const Schema& schema = space.schema_of(call.scalars, charged);
  const LibraryTensor& out = call.tensors[0];
  const size_t kinds = schema.kinds().size();
  require_fit(out.dtype == DType::kI64 && count_of(out) == static_cast<int64_t>(kinds + 2),
              "count.linearise", "the result has two i64 and one for each kind");
  auto* to = static_cast<int64_t*>(out.data);
  if (TreeCounts tree; schema.visits_once() && tree.run(schema, *call.values[0], space, charged)) {
    *to++ = tree.steps;
    *to++ = tree.visits;
    std::ranges::copy(space.counts, to);
    return;
  }
  const Tasks tasks(schema, *call.values[0], space, charged);
  *to++ = static_cast<int64_t>(tasks.steps().size());
  *to++ = tasks.visits();
  for (size_t k = 0; k < kinds; ++k) *to++ = tasks.count(k);
}

// Whether a result is (rows, extents…). It has dims: the operator's rule says so.
bool is_stack(const LibraryTensor& t, DType dtype, int64_t rows, std::span<const int64_t> extents) {
  return t.dtype == dtype && t.shape[0] == rows && std::ranges::equal(t.shape.subspan(1), extents);
}

void run_linearise(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const WorkspaceInUse in_use(*call.meter);
  StepCounter charged(*call.meter);
  Workspace& space = *in_use;
  const Schema& schema = space.schema_of(call.scalars, charged);
  const Tasks tasks(schema, *call.values[0], space, charged);

  // Every result is checked before anything is written.
  const auto steps = static_cast<int64_t>(tasks.steps().size());
  const int64_t columns[] = {4};
  size_t next = 0;
  const auto take = [&](DType dtype, int64_t rows,
                        std::span<const int64_t> extents) -> const auto& {
    require_fit(next < call.tensors.size() && is_stack(call.tensors[next], dtype, rows, extents),
                "linearise", "a result does not fit what there is");
    return call.tensors[next++];
  };
  auto* step = static_cast<int64_t*>(take(DType::kI64, steps, columns).data);
  charged.charge(call.tensors.size() + schema.kinds().size());
  space.outputs.clear();
  space.rows.clear();
  space.stacks.clear();
  for (size_t k = 0; k < schema.kinds().size(); ++k) {
    const Kind& kind = schema.kinds()[k];
    const int64_t n = tasks.count(k);
    space.outputs.push_back({space.rows.size(), space.stacks.size()});
    for (size_t i = 0; i < kind.calls.size(); ++i)
      space.rows.push_back(static_cast<int64_t*>(take(DType::kI64, n, {}).data));
    for (const RecursionSchema::Data& d : kind.data)
      space.stacks.push_back(&take(d.dtype, n, d.extents));
  }
  require_fit(next == call.tensors.size(), "linearise", "there are results too many");

  for (const Step& s : tasks.steps()) {
    *step++ = s.kind;
    *step++ = s.count;
    *step++ = s.first;
    *step++ = s.row;
  }
  for (const uint32_t i : tasks.order()) {
    const Task& t = tasks[i];
    const Kind& kind = schema.kinds()[static_cast<size_t>(t.kind)];
    Workspace::Outputs& out = space.outputs[static_cast<size_t>(t.kind)];
    const int64_t position = out.position++;
    charged.charge(1 + kind.calls.size());
    for (size_t c = 0; c < kind.calls.size(); ++c)
      space.rows[out.rows + c][position] = tasks.called_by(t, c).row;
    for (size_t d = 0; d < kind.data.size(); ++d)
      copy_field(*t.cell, kind.data[d], *space.stacks[out.stacks + d], position, charged);
  }
}

}  // namespace

std::vector<LibraryKernel> linearise_operators() {
  using Kind = exec::ImplementationKind;
  TensorRule part = writes(kT, {1});
  part.type = TensorRule::Type::kAny;
  return {
      {"host.count_linearise", Kind::kHost, "value; schema… -> counts i64 (2 + kinds)",
       "How many steps, calls without batching, and tasks of each kind recursion over a value has.",
       nullptr, nullptr, run_count, ContractRule{{writes(DType::kI64, {1, 1})}, false, 1, 1}},
      {"host.linearise", Kind::kHost, "value; schema… -> steps i64 (s, 4), calls and fields…",
       "The order in which batched recursion computes the parts of a value.", nullptr, nullptr,
       run_linearise, ContractRule{{writes(DType::kI64, {2, 2}), part}, true, 1, 1}},
  };
}

}  // namespace nimble::rt
