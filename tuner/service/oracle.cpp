#include "tuner/service/oracle.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "compiler/ir/op.h"
#include "compiler/ir/substitute.h"
#include "compiler/reference/reference.h"
#include "compiler/reference/region.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

// A workload at a shape with its test data.
struct Instance {
  ir::FunctionRef f;  // extents are constant
  std::vector<ir::TensorRef> arguments;
  std::vector<ir::Type> results;
};

Instance instance_of(const TuningTask& task, const WorkloadPoint& point) {
  const kernels::Workload& w = task.workload();
  std::map<std::string, ir::Dim> values;
  for (size_t i = 0; i < w.contract.symbols.size(); ++i)
    values.emplace(w.contract.symbols[i], ir::Dim(point.symbols[i]));
  Instance out;
  // Also those symbols that no parameter's shape tells; the values of scalars are arguments.
  auto group = std::make_shared<ir::Function>(*ir::substitute(*w.group, values));
  group->attrs.clear();
  out.f = std::move(group);
  const ir::Type& r = out.f->result_type;
  out.results = r->kind == ir::TypeKind::kTuple ? r->elements : std::vector<ir::Type>{r};

  const uint64_t seed = data_seed(task, point);
  const std::vector<Fill> fills = task.fills_at(point);
  size_t next_fill = 0;
  for (uint32_t i = 0; i < w.group->parameters.size(); ++i) {
    const exec::KernelArgument& a = w.contract.arguments.at(i);
    if (a.kind == exec::KernelArgument::Kind::kScalar) {
      const DType t = w.group->parameters[i]->type->dtype;
      uint8_t* data = nullptr;
      auto scalar = ir::Tensor::make(t, {}, &data);
      const int64_t v = point.symbols[a.symbol];
      std::copy_n(reinterpret_cast<const uint8_t*>(&v), size_of(t), data);
      out.arguments.push_back(std::move(scalar));
      continue;
    }
    std::vector<int64_t> shape;
    for (const exec::DimProgram& d : a.dims) shape.push_back(d.evaluate1(point.symbols));
    uint8_t* data = nullptr;
    auto tensor = ir::Tensor::make(a.dtype, shape, &data);
    fill_tensor(fills.at(next_fill++), a.dtype, seed, i, {data, tensor->bytes.size()});
    out.arguments.push_back(std::move(tensor));
  }
  return out;
}

// What a kernel may round that the reference does not, as an error of a result; 0: nothing.
double roundings_of(const kernels::Workload& w) {
  double most = 0;
  for (const ir::Binding& b : w.group->body->bindings) {
    const ir::Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall) continue;
    // Of two factors of f32 that are cut off to ten bits of fraction, as a library may do it, their
    // product loses up to 2^-9.
    if (ir::attr_or(e.attrs, "tf32", false)) most = std::max(most, 0x1p-8);
    // Attention's weights are rounded to the type of the values that they multiply: by 2^-8 of bf16
    // and 2^-11 of f16 at most. The values' signs cancel in a result, and less in its error.
    if (ir::traits_of(e).packs == ir::Packs::kInKernel && e.attrs.contains("out"))
      most = std::max(most, ir::type_of(e.args[2])->dtype == DType::kBF16 ? 0x1p-6 : 0x1p-9);
  }
  return most;
}

double tolerance_of(const TuningTask& task, const Instance& instance) {
  for (const ir::Type& t : instance.results)
    if (is_narrow_float(t->dtype)) return 0x1p-6;
  if (const double roundings = roundings_of(task.workload()); roundings > 0) return roundings;
  // The reference rounds once per operator, a kernel in every step of a sum: the error of a sum
  // of L terms grows like sqrt(L) epsilon in practice and its terms exceed it by as much again.
  return 64 * 0x1p-24 * std::max(1.0, std::sqrt(task.reduction));
}

reference::Shape shape_of(const ir::Type& t) {
  reference::Shape s;
  for (const ir::Dim& d : t->dims) s.push_back(*d.as_constant());
  return s;
}

// ---------------------------------------------------------------- samples

// Positions at which a schedule may go wrong along an axis: its ends, both sides of the first, a
// middle and the last edge of each tile, and of each thread's share.
std::vector<int64_t> edges_of(int64_t extent, const std::vector<int64_t>& tiles, int64_t threads) {
  std::set<int64_t> at = {0, 1, extent / 2, extent - 2, extent - 1};
  const auto both_sides = [&](int64_t edge) {
    at.insert(edge - 1);
    at.insert(edge);
  };
  for (int64_t t : tiles)
    for (int64_t edge : {t, extent / 2 / t * t, extent / t * t}) both_sides(edge);
  for (int64_t i = 1; i < threads; ++i) both_sides((extent * i + threads - 1) / threads);
  std::vector<int64_t> out;
  for (int64_t p : at)
    if (p >= 0 && p < extent) out.push_back(p);
  return out;
}

struct Sample {
  size_t result;
  reference::Shape at;
};

// Corners first, then each edge of each axis with the other axes drawn, then random elements
// without end; the caller takes as many as it can afford.
class Samples {
 public:
  Samples(const std::vector<ir::Type>& results, const std::vector<int64_t>& tiles, int64_t threads,
          uint64_t seed)
      : random_(seed) {
    for (const ir::Type& t : results) {
      shapes_.push_back(shape_of(t));
      edges_.emplace_back();
      for (int64_t e : shapes_.back()) edges_.back().push_back(edges_of(e, tiles, threads));
    }
    std::vector<Sample> sides;
    for (size_t r = 0; r < shapes_.size(); ++r) {
      if (reference::elements(shapes_[r]) == 0) continue;
      full_.push_back(r);
      const size_t rank = shapes_[r].size();
      for (size_t corner = 0; corner < size_t{1} << std::min<size_t>(rank, 4); ++corner) {
        Sample s{r, reference::Shape(rank, 0)};
        for (size_t k = 0; k < rank; ++k)
          if (corner >> (k % 4) & 1) s.at[k] = shapes_[r][k] - 1;
        first_.push_back(s);
      }
      for (size_t k = 0; k < rank; ++k)
        for (int64_t p : edges_[r][k]) {
          Sample s = draw(r);
          s.at[k] = p;
          sides.push_back(s);
        }
    }
    std::shuffle(sides.begin(), sides.end(), random_);
    first_.insert(first_.end(), sides.begin(), sides.end());
  }
  bool empty() const { return full_.empty(); }
  Sample next() {
    if (taken_ < first_.size()) return first_[taken_++];
    return draw(full_[taken_++ % full_.size()]);
  }
  size_t edges() const { return first_.size(); }

 private:
  Sample draw(size_t r) {
    Sample s{r, {}};
    for (size_t k = 0; k < shapes_[r].size(); ++k) {
      const std::vector<int64_t>& e = edges_[r][k];
      s.at.push_back(random_() % 4 == 0
                         ? e[random_() % e.size()]
                         : static_cast<int64_t>(random_() % static_cast<uint64_t>(shapes_[r][k])));
    }
    return s;
  }
  std::mt19937_64 random_;
  std::vector<reference::Shape> shapes_;
  std::vector<std::vector<std::vector<int64_t>>> edges_;  // of each axis of each result
  std::vector<size_t> full_;                              // results that have elements
  std::vector<Sample> first_;
  size_t taken_ = 0;
};

// ---------------------------------------------------------------- projection

// A product whose left operand is made of rows, as the group's only result: l Y = (l X) W for a
// random row l. Nothing if the group is none; else whether it holds. Both sides are sums of as
// many terms more than the product's own, of random signs, so that errors and values grow alike.
std::optional<double> projection_error(const Instance& in, std::span<const uint8_t> output,
                                       uint64_t seed) {
  const ir::Block& body = *in.f->body;
  if (body.bindings.size() != 1 || !body.result.is_var() || body.result.var != body.bindings[0].var)
    return std::nullopt;
  const ir::Expr& e = *body.bindings[0].value;
  const std::optional<ir::Rows> rows_are = ir::traits_of(e).rows;
  const bool packed = rows_are == ir::Rows::kPackedProduct;
  if (!packed && rows_are != ir::Rows::kProduct) return std::nullopt;
  if (e.args.size() != 2) return std::nullopt;  // with scales of the weights: x may be rounded
  if (ir::attr_or(e.attrs, "transpose_a", false) || !is_float(in.results[0]->dtype))
    return std::nullopt;
  const auto operand = [&](const ir::Atom& a) -> ir::TensorRef {
    if (a.is_constant()) return a.constant;
    for (size_t i = 0; i < in.f->parameters.size(); ++i)
      if (in.f->parameters[i] == a.var) return in.arguments[i];
    return nullptr;
  };
  const ir::TensorRef x = operand(e.args[0]), w = operand(e.args[1]);
  const reference::Shape y_shape = shape_of(in.results[0]);
  if (!x || !w || x->shape.size() < 2 || y_shape.size() != x->shape.size() ||
      (!packed && w->shape.size() < 2))
    return std::nullopt;
  const int64_t rows = y_shape[y_shape.size() - 2];
  if (rows == 0 || reference::elements(y_shape) == 0) return std::nullopt;

  uint8_t* data = nullptr;
  auto l = ir::Tensor::make(DType::kF64, {1, rows}, &data);
  fill_tensor(Fill{}, DType::kF64, seed, 0xffff, {data, l->bytes.size()});
  const auto call = [](const ir::Expr& like, std::vector<ir::TensorRef> args) {
    return reference::evaluate_op(like, args, {}).at(0);
  };
  const auto wide = [](const ir::TensorRef& t) {
    reference::Array a = reference::Array::from(*t);
    a.dtype = DType::kF64;
    return a.tensor();
  };
  ir::Expr product = e;
  product.attrs.erase("out");  // here all is f64
  ir::Expr rows_of = e;
  rows_of.op = "matmul";
  rows_of.attrs.clear();
  uint8_t* unused = nullptr;
  auto y = ir::Tensor::make(in.results[0]->dtype, y_shape, &unused);
  std::copy(output.begin(), output.end(), unused);
  const ir::TensorRef want = call(product, {call(rows_of, {l, wide(x)}), wide(w)});
  const ir::TensorRef got = call(rows_of, {l, wide(y)});
  return compare_tensors(DType::kF64, got->bytes, want->bytes);
}

// ---------------------------------------------------------------- the check

// Steps of the reference (region.h) for one shape: what it takes a few hundredths of a second for.
constexpr int64_t kWholeWork = 1 << 20, kSampleWork = 3 << 20;
// At the sizes of the cross-evaluation: the schedule was looked at where the search runs, and each
// size has edges of its own that are looked at; many sizes are a large part of a small budget.
constexpr int64_t kFurtherSampleWork = 1 << 20;
constexpr size_t kLeastSamples = 24;
// Of calling an operator, however small.
constexpr int64_t kStepsPerSample = 2000;
// Where the schedule does not say what its tiles are.
constexpr int64_t kUsualTiles[] = {4, 8, 16, 32, 64};

// Empty if nothing was found.
std::string fault_of(const Instance& in, const Expectation& e, const std::vector<int64_t>& tiles,
                     uint64_t seed, int64_t work) {
  for (size_t r = 0; r < in.results.size(); ++r)
    if (e.outputs.at(r).size() !=
        static_cast<size_t>(reference::elements(shape_of(in.results[r]))) *
            size_of(in.results[r]->dtype))
      return fmt::format("result {} has {} bytes", r, e.outputs[r].size());
  if (const auto error = projection_error(in, e.outputs[0], seed);
      error && !(*error <= e.tolerance))
    return fmt::format("a combination of its rows is off by {:g}, {:g} is allowed", *error,
                       e.tolerance);
  // Tiles are counted by threads, too: a sample on the edge of each of up to 16 shares.
  Samples samples(in.results, tiles, 16, seed);
  if (samples.empty()) return "";
  reference::RegionEvaluator evaluator(in.f, in.arguments);
  struct Compared {
    std::vector<uint8_t> got, want;
    std::vector<std::string> where;
  };
  std::vector<Compared> all(in.results.size());
  for (size_t n = 0;
       n < kLeastSamples || evaluator.work() + static_cast<int64_t>(n) * kStepsPerSample < work;
       ++n) {
    const Sample s = samples.next();
    const ir::TensorRef want =
        evaluator.evaluate(s.result, {s.at, reference::Shape(s.at.size(), 1)});
    const reference::Shape shape = shape_of(in.results[s.result]);
    int64_t flat = 0;
    for (size_t k = 0; k < s.at.size(); ++k) flat = flat * shape[k] + s.at[k];
    const size_t size = size_of(want->dtype);
    const uint8_t* got = e.outputs[s.result].data() + static_cast<size_t>(flat) * size;
    Compared& c = all[s.result];
    c.got.insert(c.got.end(), got, got + size);
    c.want.insert(c.want.end(), want->bytes.begin(), want->bytes.end());
    c.where.push_back(fmt::format("[{}] of result {}", fmt::join(s.at, ", "), s.result));
  }
  for (size_t r = 0; r < all.size(); ++r) {
    int64_t at = 0;
    const double error = compare_tensors(in.results[r]->dtype, all[r].got, all[r].want, &at);
    if (!(error <= e.tolerance))
      return fmt::format("element {} is off by {:g}, {:g} is allowed",
                         all[r].where.at(static_cast<size_t>(at)), error, e.tolerance);
  }
  return "";
}
}  // namespace

uint64_t data_seed(const TuningTask& task, const WorkloadPoint& point) {
  return hash64(fmt::format("{} {}", task.workload().key, fmt::join(point.symbols, ",")));
}

Expectation expected_result(const TuningTask& task, const WorkloadPoint& point,
                            const std::vector<int64_t>& edges, const DefaultResult& run) {
  const Instance in = instance_of(task, point);
  Expectation out;
  out.tolerance = tolerance_of(task, in);
  if (point.flops > kWholeWork) {
    if (auto outputs = run()) {
      out.outputs = std::move(*outputs);
      out.sampled = true;
      const std::vector<int64_t> usual(std::begin(kUsualTiles), std::end(kUsualTiles));
      const std::string fault =
          fault_of(in, out, edges.empty() ? usual : edges, data_seed(task, point),
                   point.representative ? kSampleWork : kFurtherSampleWork);
      if (fault.empty()) return out;
      throw Error(Status::kInternal, task.label,
                  fmt::format("the default schedule is wrong{}: {}", at_text(point), fault),
                  "please report this with the model");
    }
    // It failed, as it must where the reference does; what that says of the data is the reason.
  }
  ir::Module module;
  module.set("main", in.f);
  for (const ir::TensorRef& t : reference::Interpreter(module).run_tensors("main", in.arguments))
    out.outputs.emplace_back(t->bytes.begin(), t->bytes.end());
  return out;
}

bool is_right(const TuningTask& task, const WorkloadPoint& point, const Expectation& e,
              uint32_t output, int64_t element) {
  if (!e.sampled || element < 0) return true;
  const Instance in = instance_of(task, point);
  const reference::Shape shape = shape_of(in.results.at(output));
  reference::Shape at(shape.size());
  int64_t flat = element;
  for (size_t k = shape.size(); k-- > 0; flat /= shape[k]) at[k] = flat % shape[k];
  const ir::TensorRef want = reference::RegionEvaluator(in.f, in.arguments)
                                 .evaluate(output, {at, reference::Shape(at.size(), 1)});
  // On the scale of the whole result, as candidates are compared.
  std::vector<uint8_t> patched = e.outputs.at(output);
  std::copy(want->bytes.begin(), want->bytes.end(),
            patched.begin() + element * static_cast<int64_t>(want->bytes.size()));
  return compare_tensors(want->dtype, e.outputs[output], patched) <= e.tolerance;
}

}  // namespace nimble::tuner
