// The order of batched recursion, as vm/library/linearise.cpp defines it: tasks by height, kind and
// discovery, found here by plain recursion over maps.
#include <algorithm>
#include <map>

#include "compiler/ir/recursion_schema.h"
#include "compiler/reference/operand.h"
#include "vm/base/error.h"

namespace nimble::reference {
namespace {

struct Task {
  const Value* value;
  size_t kind;
  int64_t height = 0;
  std::vector<size_t> calls;
  int64_t row = 0;
  int64_t visits = 1;
};

class Tasks {
 public:
  Tasks(const RecursionSchema& schema, const Value& root, const ir::Module& m)
      : schema_(schema), module_(m) {
    visit(root, 0);
    for (size_t i = 0; i < tasks.size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(tasks[a].height, tasks[a].kind) < std::pair(tasks[b].height, tasks[b].kind);
    });
    std::map<int64_t, int64_t> rows;
    for (size_t i : order) tasks[i].row = rows[schema.kinds[tasks[i].kind].function]++;
  }

  std::vector<Task> tasks;
  std::vector<size_t> order;

 private:
  size_t visit(const Value& v, int64_t function) {
    const auto [it, fresh] = known_.emplace(std::pair(&v, function), tasks.size());
    if (!fresh) return it->second;
    const size_t me = it->second;
    const int64_t tag = module_.find_constructor(v.constructor).second;
    const auto kind = std::find_if(schema_.kinds.begin(), schema_.kinds.end(), [&](const auto& k) {
      return k.function == function && k.tag == tag;
    });
    NIMBLE_CHECK(kind != schema_.kinds.end(), "no case for {}", v.constructor);
    tasks.push_back({&v, static_cast<size_t>(kind - schema_.kinds.begin())});
    for (const RecursionSchema::Call& c : kind->calls) {
      const size_t called = visit(*v.fields.at(static_cast<size_t>(c.field)), c.function);
      tasks[me].calls.push_back(called);
      tasks[me].height = std::max(tasks[me].height, tasks[called].height + 1);
      tasks[me].visits = std::min(int64_t{1} << 40, tasks[me].visits + tasks[called].visits);
    }
    return me;
  }

  const RecursionSchema& schema_;
  const ir::Module& module_;
  std::map<std::pair<const Value*, int64_t>, size_t> known_;
};

ir::TensorRef integers(std::vector<int64_t> values, Shape shape) {
  Array a = Array::make(DType::kI64, std::move(shape));
  a.i = std::move(values);
  return a.tensor();
}

}  // namespace

std::vector<ir::TensorRef> linearise(const ir::Expr& call, const Value& root, const ir::Module& m) {
  const auto schema = RecursionSchema::decode(ir::attr<std::vector<int64_t>>(call.attrs, "schema"));
  NIMBLE_CHECK(schema, "no schema");
  const Tasks t(*schema, root, m);

  std::vector<int64_t> steps, counts(schema->kinds.size(), 0);
  int64_t n = 0;
  for (size_t i = 0; i < t.order.size(); ++i) {
    const Task& task = t.tasks[t.order[i]];
    const Task* before = i ? &t.tasks[t.order[i - 1]] : nullptr;
    if (!before || before->height != task.height || before->kind != task.kind) {
      steps.insert(steps.end(), {static_cast<int64_t>(task.kind), 0, counts[task.kind], task.row});
      ++n;
    }
    ++steps[steps.size() - 3];
    ++counts[task.kind];
  }
  if (call.op == "count.linearise") {
    counts.insert(counts.begin(), {n, t.tasks[0].visits});
    const auto size = static_cast<int64_t>(counts.size());
    return {integers(std::move(counts), {size})};
  }
  std::vector<ir::TensorRef> out = {integers(std::move(steps), {n, 4})};
  for (size_t k = 0; k < schema->kinds.size(); ++k) {
    const RecursionSchema::Kind& kind = schema->kinds[k];
    for (size_t c = 0; c < kind.calls.size(); ++c) {
      std::vector<int64_t> rows;
      for (size_t i : t.order)
        if (t.tasks[i].kind == k) rows.push_back(t.tasks[t.tasks[i].calls[c]].row);
      out.push_back(integers(std::move(rows), {counts[k]}));
    }
    for (const RecursionSchema::Data& d : kind.data) {
      Shape shape = d.extents;
      shape.insert(shape.begin(), counts[k]);
      Array stack = Array::make(d.dtype, shape);
      int64_t at = 0;
      for (size_t i : t.order) {
        if (t.tasks[i].kind != k) continue;
        const ir::TensorRef& field =
            t.tasks[i].value->fields.at(static_cast<size_t>(d.field))->tensor;
        NIMBLE_CHECK(field && field->shape == d.extents, "a field of another shape");
        const Array x = Array::from(*field);
        for (int64_t e = 0; e < x.size(); ++e) stack.copy(at++, x, e);
      }
      out.push_back(stack.tensor());
    }
  }
  return out;
}

}  // namespace nimble::reference
