// The template "gpu_elementwise": any group of element-wise and injective operators, on a GPU.
//
// Every result is pulled through GroupEvaluator. Its elements are numbered in row-major order, and
// threads take them in that order, so that neighbouring lanes store neighbouring elements: as
// vectors of up to 16 bytes where no vector crosses a row, else one by one, which a warp stores in
// whole lines as well. A thread takes `items` vectors, a block's width apart. Where all of a
// block's exist, nothing asks whether one does, and their loads can be on the way together.
//
// Groups without broadcasting are one long row already (make_workload), whose number is the
// coordinate; others find coordinates by divisions, which constant extents make cheap.
//
//  - A result that ends in reshapes is made in the shape before them; flat offsets are the same.
//  - A concatenation is made operand by operand: inside one there is no seam. Each block takes its
//    share of all of them.
//  - Results of equal dims share one walk and so their common values.
//
// A transposition reads what lies apart: its loads are as many lines as a warp has lanes, and what
// other warps want of these lines must still be cached. Tiles through shared memory would read
// whole lines.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/ir/axes.h"
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::Dim;
using kir::StmtRef;

// Lanes of a vector of the widest elements, at most.
int most_lanes(const Workload& w) {
  const Frame frame = make_frame(w);
  std::vector<ir::Type> types = gpu::types_in_vectors(w, frame);
  types.insert(types.end(), frame.result_types.begin(), frame.result_types.end());
  return gpu::access_lanes(types);
}

class GpuElementwiseLowering {
 public:
  GpuElementwiseLowering(const Workload& w, const Config& c)
      : w_(w),
        frame_(gpu::make_gpu_frame(w)),
        threads_(static_cast<int>(knob_int(c, "threads"))),
        vector_(static_cast<int>(std::min<int64_t>(knob_int(c, "vector"), most_lanes(w)))),
        items_(static_cast<int>(knob_int(c, "items"))) {}

  kir::Function run(const std::string& name) {
    for (const std::vector<size_t>& together :
         results_together(frame_, [&](const ir::Atom& a) { return is_plain(a); }))
      result(together);
    Dim blocks = walks_[0].blocks;
    for (const Walk& walk : walks_) blocks = ir::max(blocks, walk.blocks);
    std::vector<StmtRef> body;
    for (Walk& walk : walks_) body.push_back(nest(walk));
    kir::Function f = make_function(w_, frame_, name, {}, {}, kb::seq(std::move(body)));
    return gpu::launched(std::move(f), {blocks, 1, 1}, threads_);
  }

 private:
  // Over the elements of some results of equal dims that start at `shift` along `axis`.
  struct Walk {
    GroupEvaluator group;
    std::vector<ir::Atom> atoms;  // of all results
    std::vector<size_t> results;  // those at work
    std::vector<Dim> dims;
    size_t axis = 0;
    Dim shift = 0;
    int lanes = 1;
    Dim vectors, whole;  // that there are, and those of which each lane exists
    Dim blocks;
    bool masked = false;  // the last vector may be shorter
  };

  GroupEvaluator evaluator() {
    return GroupEvaluator(*w_.group, frame_.parameters, fmt::format("e{}_", next_evaluator_++));
  }

  bool is_plain(const ir::Atom& a) { return evaluator().vectorizable(a); }

  void result(const std::vector<size_t>& together) {
    Walk walk{evaluator(), frame_.result_atoms, together, {}};
    ir::Atom& a = walk.atoms[together[0]];
    if (!is_plain(a)) {
      a = strip_reshapes(walk.group, a);
      const ir::Binding* concat = a.is_var() ? formed_by(*w_.group, "concat", a) : nullptr;
      if (concat != nullptr) return parts(*concat, walk);
    }
    walk.dims = ir::type_of(a)->dims;
    add(std::move(walk));
  }

  void parts(const ir::Binding& concat, const Walk& all) {
    const size_t axis = ir::axis_of(*concat.value);
    Dim begin = 0;
    for (size_t part = 0; part < concat.value->args.size(); ++part) {
      Walk walk{evaluator(), all.atoms, all.results, ir::type_of(all.atoms[all.results[0]])->dims};
      walk.group.choose_part(concat.var.get(), part);
      walk.dims[axis] = ir::type_of(concat.value->args[part])->dims[axis];
      walk.axis = axis;
      walk.shift = begin;
      begin = begin + walk.dims[axis];
      add(std::move(walk));
    }
  }

  void add(Walk walk) {
    const Dim count = count_of(walk.dims);
    const bool one_row = is_one_row(walk);
    walk.lanes = lanes_of_walk(walk, one_row);
    walk.masked = w_.facts.divisible(count, walk.lanes) != ir::Proof::kYes;
    if (walk.masked && !one_row) {
      walk.masked = false;
      walk.lanes = 1;
    }
    walk.whole = ir::floordiv(count, walk.lanes);
    walk.vectors = walk.masked ? ir::ceildiv(count, walk.lanes) : walk.whole;
    walk.blocks = ir::ceildiv(walk.vectors, share());
    walks_.push_back(std::move(walk));
  }

  // Whether it is one row of all results, whose last vector alone may be shorter.
  static bool is_one_row(const Walk& walk) {
    return !walk.dims.empty() && walk.dims == ir::type_of(walk.atoms[walk.results[0]])->dims &&
           std::all_of(walk.dims.begin(), walk.dims.end() - 1,
                       [](const Dim& d) { return d.is_constant(1); });
  }

  int lanes_of_walk(Walk& walk, bool one_row) const {
    if (walk.dims.empty()) return 1;
    for (size_t r : walk.results)
      if (!walk.group.vectorizable(walk.atoms[r])) return 1;
    if (one_row) return vector_;
    int lanes = gpu::dividing_lanes(w_, walk.dims.back(), vector_);
    lanes = gpu::dividing_lanes(w_, ir::type_of(walk.atoms[walk.results[0]])->dims.back(), lanes);
    if (walk.axis + 1 == walk.dims.size()) lanes = gpu::dividing_lanes(w_, walk.shift, lanes);
    return lanes;
  }

  int64_t share() const { return int64_t{threads_} * items_; }  // vectors of a block

  // The elements of vector `number`, of which `valid` exist.
  StmtRef elements(Walk& walk, const Dim& number, const std::optional<Dim>& valid) {
    std::vector<StmtRef> all;
    std::vector<Dim> counted = walk.dims;
    if (!counted.empty() && walk.lanes > 1)
      counted.back() = walk.masked ? walk.vectors : ir::floordiv(counted.back(), walk.lanes);
    const std::string prefix = fmt::format("x{}_", next_place_++);
    std::vector<Dim> at = bind_coordinates(prefix, counted, number, all);
    if (!at.empty()) {
      at.back() = at.back() * walk.lanes;
      at[walk.axis] = at[walk.axis] + walk.shift;
    }
    std::vector<StmtRef> stores;
    for (size_t r : walk.results) {
      const kir::BufferRef& buffer = frame_.results[r];
      kir::ValueRef v = walk.group.value(walk.atoms[r], at, walk.lanes, valid);
      v = kb::broadcast(kb::cast(buffer->dtype, std::move(v)), walk.lanes);
      const Dim offset = flat_offset(ir::type_of(walk.atoms[r])->dims, at);
      stores.push_back(valid ? kb::store_masked(buffer, offset, std::move(v), *valid)
                             : kb::store(buffer, offset, std::move(v)));
    }
    for (StmtRef& s : walk.group.take_statements()) all.push_back(std::move(s));
    for (StmtRef& s : stores) all.push_back(std::move(s));
    return kb::seq(std::move(all));
  }

  StmtRef nest(Walk& walk) {
    const std::string item = fmt::format("i{}", next_place_++);
    const Dim number = gpu::block() * share() + Dim::symbol(item) * threads_ + gpu::thread();
    const auto each = [&](StmtRef one) {
      return kb::loop(kir::LoopKind::kUnroll, item, 0, items_, std::move(one));
    };
    const auto all_exist = [&] { return each(elements(walk, number, std::nullopt)); };
    const bool even = walks_.size() == 1 && !walk.masked &&
                      w_.facts.divisible(walk.vectors, share()) == ir::Proof::kYes;
    if (even) return all_exist();
    std::optional<Dim> valid;
    if (walk.masked) valid = count_of(walk.dims) - number * walk.lanes;
    StmtRef some = each(kb::if_then(kb::lt(number, walk.vectors), elements(walk, number, valid)));
    if (items_ == 1 && !walk.masked) return some;
    return kb::if_then(kb::le((gpu::block() + 1) * share(), walk.whole), all_exist(),
                       std::move(some));
  }

  const Workload& w_;
  Frame frame_;
  int threads_, vector_, items_;
  std::vector<Walk> walks_;
  int next_evaluator_ = 0, next_place_ = 0;
};

// Elements of all results.
Dim elements_of(const Workload& w) {
  Dim elements = 0;
  for (const ir::Type& t : make_frame(w).result_types) elements = elements + ir::element_count(t);
  return elements;
}

}  // namespace

bool GpuElementwiseTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return t.is_gpu() && is_pullable_group(*w.group);
}

std::vector<Knob> GpuElementwiseTemplate::knobs(const Workload& w, const TargetInfo&) const {
  Knob vector = int_knob("vector", {});
  for (int64_t lanes = 1; lanes <= most_lanes(w); lanes *= 2) vector.choices.emplace_back(lanes);
  return {int_knob("threads", {64, 128, 256, 512}), vector, int_knob("items", {1, 2, 4, 8})};
}

bool GpuElementwiseTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

// Vectors as wide as they come and several of them, as long as that leaves work for each
// multiprocessor. What the run alone knows is taken for a layer's activations: some hundred
// thousand elements, with a vector a thread.
Config GpuElementwiseTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  constexpr int64_t kThreads = 256, kBlocksForItems = 4;
  int64_t vector = most_lanes(w), items = 1;
  if (const auto elements = elements_of(w).as_constant()) {
    const auto blocks = [&](int64_t i, int64_t v) { return *elements / (kThreads * i * v); };
    while (items < 4 && blocks(items * 2, vector) >= kBlocksForItems * t.multiprocessors)
      items *= 2;
    while (vector > 1 && blocks(1, vector) < t.multiprocessors) vector /= 2;
  }
  return {{"threads", kThreads}, {"vector", vector}, {"items", items}};
}

Lowered GpuElementwiseTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                      const std::string& name) const {
  NIMBLE_CHECK(accepts(w, t) && valid(w, c, t), "configuration {} of gpu_elementwise", to_json(c));
  return gpu::one_gpu_kernel(GpuElementwiseLowering(w, c).run(name));
}

}  // namespace nimble::kernels
