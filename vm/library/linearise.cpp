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
// are there; a program can do no harm with it.
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

using exec::KernelContract;

constexpr int64_t kMost = 4096;  // functions and tags
constexpr int64_t kMostVisits = int64_t{1} << 40;

[[noreturn, gnu::cold]] void fail(const std::string& problem) {
  throw Error(Status::kFatal, "", "linearise: " + problem,
              "report it: the compiled schema does not fit the program's data types");
}

using Kind = RecursionSchema::Kind;

class Schema {
 public:
  explicit Schema(std::span<const int64_t> numbers) {
    size_t used = 0;  // what follows are extents of the results
    std::optional<RecursionSchema> decoded = RecursionSchema::decode(numbers, &used);
    if (!decoded) fail("its scalars are no schema");
    kinds_ = std::move(decoded->kinds);
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const Kind& k = kinds_[i];
      visits_once_ &= k.function == 0;
      for (size_t c = 0; c < k.calls.size(); ++c) {
        if (k.calls[c].function >= kMost) fail("a function's number is too large");
        visits_once_ &= k.calls[c].function == 0;
        for (size_t before = 0; before < c; ++before)
          visits_once_ &= k.calls[before].field != k.calls[c].field;
      }
      if (k.function >= kMost || k.tag >= kMost)
        fail("a function's or a tag's number is too large");
      const auto function = static_cast<size_t>(k.function), tag = static_cast<size_t>(k.tag);
      by_function_.resize(std::max(by_function_.size(), function + 1));
      by_function_[function].resize(std::max(by_function_[function].size(), tag + 1), -1);
      by_function_[function][tag] = static_cast<int32_t>(i);
    }
  }

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
  std::vector<Kind> kinds_;
  std::vector<std::vector<int32_t>> by_function_;  // kind by function and tag
  bool visits_once_ = true;
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
// again. A model over small trees would otherwise spend as long on malloc as on their nodes.
struct Workspace {
  static constexpr size_t kMostKept = 1 << 16;  // tasks, or steps

  const Schema& schema_of(std::span<const int64_t> numbers) {
    if (!schema || !std::ranges::equal(schema_numbers, numbers)) {
      schema.reset();
      schema_numbers.assign(numbers.begin(), numbers.end());
      schema.emplace(schema_numbers);
    }
    return *schema;
  }

  // The results of one kind of task: a row of each for the next task.
  struct Outputs {
    std::vector<int64_t*> rows;
    std::vector<const LibraryTensor*> stacks;
    int64_t position = 0;
  };

  std::vector<int64_t> schema_numbers;
  std::optional<Schema> schema;  // of these
  std::vector<Task> tasks;
  std::vector<uint32_t> called, order, ends;
  std::vector<Open> open;
  std::vector<Part> path;
  std::vector<Step> steps;
  std::vector<Outputs> outputs;  // by kind
  std::vector<int64_t> counts;   // of tasks, by kind
};

Workspace& workspace() {
  thread_local Workspace w;
  if (std::max(w.tasks.capacity(), w.ends.capacity()) > Workspace::kMostKept) w = {};
  return w;
}

const Cell& cell_in(const Cell& cell, int64_t field) {
  const Value& v = field_of(cell, field);
  if (!v.is(ObjectKind::kAdt)) fail(fmt::format("field {} holds no data-type value", field));
  return *static_cast<const Cell*>(v.object);
}

// Every task below a root, found without recursion, and their order.
class Tasks {
 public:
  Tasks(const Schema& schema, const Cell& root, Workspace& w)
      : schema_(schema),
        tasks_(w.tasks),
        called_(w.called),
        open_(w.open),
        order_(w.order),
        end_(w.ends),
        steps_(w.steps),
        counts_(w.counts) {
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

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<uint32_t>& order() const { return order_; }
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
    if ((inside && cell.refs > 1) || !schema_.visits_once()) {
      const auto [it, added] = known_[static_cast<size_t>(function)].emplace(&cell, fresh);
      if (!added) return it->second;
    }
    tasks_.push_back({&cell, kind, 0, static_cast<uint32_t>(called_.size())});
    called_.resize(called_.size() + schema_.kinds()[static_cast<size_t>(kind)].calls.size());
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
    std::vector<int64_t> rows(schema_.functions(), 0);
    const auto bucket = [&](const Task& t) {
      return static_cast<size_t>(t.height) * kinds + static_cast<size_t>(t.kind);
    };
    for (const Task& t : tasks_) ++end_[bucket(t) + 1];
    for (size_t b = 0; b < levels * kinds; ++b) {
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

  const Schema& schema_;
  std::vector<Task>& tasks_;
  std::vector<uint32_t>& called_;
  std::vector<Open>& open_;
  std::vector<std::unordered_map<const Cell*, uint32_t>> known_{schema_.functions()};
  std::vector<uint32_t>&order_, &end_;
  std::vector<Step>& steps_;
  std::vector<int64_t>& counts_;
};

// What count.linearise tells of a value whose parts are visited once each, without a list of them.
class TreeCounts {
 public:
  int64_t steps = 0, visits = 0;

  // False if a part is shared, so that it takes a list to know what was seen.
  bool run(const Schema& schema, const Cell& root, Workspace& w) {
    const size_t kinds = schema.kinds().size();
    w.counts.assign(kinds, 0);
    w.ends.clear();  // here: whether there is a step of this height and kind
    w.path.assign(1, {&root, schema.kind_of(0, root.number)});
    while (!w.path.empty()) {
      Part& part = w.path.back();
      const auto number = static_cast<size_t>(part.kind);
      const Kind& kind = schema.kinds()[number];
      if (part.next < kind.calls.size()) {
        const Cell& below = cell_in(*part.cell, kind.calls[part.next++].field);
        if (below.refs > 1) return false;
        w.path.push_back({&below, schema.kind_of(0, below.number)});
        continue;
      }
      const size_t step = static_cast<size_t>(part.height) * kinds + number;
      if (step >= w.ends.size()) w.ends.resize(step + kinds, 0);
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

// Copies a field of a cell to row `row` of a stack.
void copy_field(const Cell& cell, const RecursionSchema::Data& d, const LibraryTensor& to,
                int64_t row) {
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
  std::memcpy(out, t.data(), bytes);
}

// "" if there is one data-type value, and of the tensors all are written.
std::string check(const KernelContract& c, size_t most_tensors) {
  size_t values = 0, tensors = 0;
  for (const exec::KernelArgument& a : c.arguments) {
    values += a.kind == exec::KernelArgument::Kind::kData;
    if (a.kind != exec::KernelArgument::Kind::kTensor) continue;
    ++tensors;
    if (a.access != exec::Access::kOut) return "the tensors are written";
    if (a.dims.empty()) return "its results are not scalars";
  }
  if (values != 1) return "it takes one data-type value";
  if (tensors == 0 || tensors > most_tensors) return "another number of tensors than it writes";
  return check_scalars(c, 1);
}

void run_count(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  Workspace& space = workspace();
  const Schema& schema = space.schema_of(call.scalars);
  const LibraryTensor& out = call.tensors[0];
  const size_t kinds = schema.kinds().size();
  require_fit(out.dtype == DType::kI64 && count_of(out) == static_cast<int64_t>(kinds + 2),
              "count.linearise", "the result has two i64 and one for each kind");
  auto* to = static_cast<int64_t*>(out.data);
  if (TreeCounts tree; schema.visits_once() && tree.run(schema, *call.values[0], space)) {
    *to++ = tree.steps;
    *to++ = tree.visits;
    std::ranges::copy(space.counts, to);
    return;
  }
  const Tasks tasks(schema, *call.values[0], space);
  *to++ = static_cast<int64_t>(tasks.steps().size());
  *to++ = tasks.visits();
  for (size_t k = 0; k < kinds; ++k) *to++ = tasks.count(k);
}

// Whether a result is (rows, extents…).
bool is_stack(const LibraryTensor& t, DType dtype, int64_t rows, std::span<const int64_t> extents) {
  return t.dtype == dtype && t.shape.size() == extents.size() + 1 && t.shape[0] == rows &&
         std::ranges::equal(t.shape.subspan(1), extents);
}

void run_linearise(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  Workspace& space = workspace();
  const Schema& schema = space.schema_of(call.scalars);
  const Tasks tasks(schema, *call.values[0], space);

  // Every result is checked before anything is written.
  const auto steps = static_cast<int64_t>(tasks.steps().size());
  const int64_t columns[] = {4};
  size_t next = 0;
  const auto take = [&](DType dtype, int64_t rows,
                        std::span<const int64_t> extents) -> const auto& {
    require_fit(next < call.tensors.size() && is_stack(call.tensors[next], dtype, rows, extents),
                "linearise", fmt::format("result {} does not fit what there is", next));
    return call.tensors[next++];
  };
  auto* step = static_cast<int64_t*>(take(DType::kI64, steps, columns).data);
  std::vector<Workspace::Outputs>& outputs = space.outputs;
  outputs.resize(schema.kinds().size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Kind& kind = schema.kinds()[k];
    const int64_t n = tasks.count(k);
    outputs[k].rows.clear();
    outputs[k].stacks.clear();
    outputs[k].position = 0;
    for (size_t i = 0; i < kind.calls.size(); ++i)
      outputs[k].rows.push_back(static_cast<int64_t*>(take(DType::kI64, n, {}).data));
    for (const RecursionSchema::Data& d : kind.data)
      outputs[k].stacks.push_back(&take(d.dtype, n, d.extents));
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
    Workspace::Outputs& out = outputs[static_cast<size_t>(t.kind)];
    const int64_t position = out.position++;
    for (size_t c = 0; c < kind.calls.size(); ++c)
      out.rows[c][position] = tasks.called_by(t, c).row;
    for (size_t d = 0; d < kind.data.size(); ++d)
      copy_field(*t.cell, kind.data[d], *out.stacks[d], position);
  }
}

}  // namespace

std::vector<LibraryKernel> linearise_operators() {
  using Kind = exec::ImplementationKind;
  return {
      {"host.count_linearise", Kind::kHost, "value; schema… -> counts i64 (2 + kinds)",
       "How many steps, calls without batching, and tasks of each kind recursion over a value has.",
       [](const KernelContract& c) { return check(c, 1); }, nullptr, run_count},
      {"host.linearise", Kind::kHost, "value; schema… -> steps i64 (s, 4), calls and fields…",
       "The order in which batched recursion computes the parts of a value.",
       [](const KernelContract& c) { return check(c, SIZE_MAX); }, nullptr, run_linearise},
  };
}

}  // namespace nimble::rt
