// Kernels one by one, called by the virtual machine as a compiled program calls them: machine code
// on one thread and on several, and the portable form, against the reference interpreter.
//
// What programs rarely do is done here to every operator: arguments of contracts over rows come
// with more axes, inputs share memory (one start, or an element apart, so that nothing is aligned),
// and an element-wise kernel writes over each operand that it may take over, while the others are
// apart from it or are that operand as well.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/portable/portable.h"
#include "compiler/codegen/test/native.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/reference_harness.h"
#include "vm/executable/assembler.h"
#include "vm/interpreter/session.h"

namespace nimble::kernels::testing {
namespace {

using exec::KernelArgument;

constexpr double kTolerance = 5e-5;
constexpr int32_t kThreads = 3;

// Where the tensors of a call lie.
struct Placement {
  enum class Inputs : uint8_t { kApart, kOneStart, kShifted };
  Inputs inputs = Inputs::kApart;
  int over = -1;           // the operand that the result is written over
  bool all_of_it = false;  // operands that look like that one are it
  bool more_axes = false;  // where the contract takes rows

  std::string str() const {
    return fmt::format("inputs {}, result {}{}{}",
                       inputs == Inputs::kApart      ? "apart"
                       : inputs == Inputs::kOneStart ? "from one address"
                                                     : "an element apart",
                       over < 0 ? "apart" : fmt::format("over operand {}", over),
                       all_of_it ? ", which all others are" : "", more_axes ? ", more axes" : "");
  }
};

// One kernel: a workload in one configuration, for one level, with its portable form.
class OneKernel {
 public:
  OneKernel(Workload w, const TargetInfo& target, const Config& config) : w_(std::move(w)) {
    const Template* t = template_for(w_, target);
    Lowered lowered = t->lower(w_, config, target, "k");
    kernel_.name = "k";
    kernel_.contract = w_.contract;
    kernel_.contract.requirements = requirements_of(w_);
    std::vector<std::string> order = w_.contract.symbols;
    order.push_back("threads");
    ir::Dim scratch = 0;
    for (const kir::Function& f : lowered.functions) {
      scratch = ir::max(scratch, kir::scratch_bytes(f));
      exec::Implementation i;
      i.symbol = f.name;
      i.max_threads = lowered.max_threads;
      kernel_.implementations.push_back(i);
    }
    kernel_.contract.scratch_bytes = scratch.to_program(order);
    kernel_.dispatch = lowered.tails;
    kernel_.portable = portable_form();
    const codegen::CompiledObject object = codegen::compile(lowered.functions, target);
    image_ = std::make_shared<std::vector<uint8_t>>(codegen::link({&object, 1}));
    target_ = target;
  }

  // Every placement that the contract allows, with random contents, at these extents.
  void check(const std::vector<int64_t>& symbols, double low, double high, std::mt19937& random) {
    symbols_ = symbols;
    make_inputs(low, high, random);
    using Inputs = Placement::Inputs;
    bool rows = false;
    for (const KernelArgument& a : w_.contract.arguments) rows |= a.collapse_leading;
    std::vector<Placement> all = {{}};
    if (several_of_a_type())
      for (const Inputs i : {Inputs::kOneStart, Inputs::kShifted}) all.push_back({i});
    if (rows) all.push_back({Inputs::kApart, -1, false, true});
    for (const int k : operands_to_take_over())
      for (const bool all_of_it : {false, true})
        all.push_back({Inputs::kApart, k, all_of_it, rows});
    for (const Placement& p : all) {
      SCOPED_TRACE(p.str());
      run(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  // Operands that update-in-place may give to the result: see there.
  std::vector<int> operands_to_take_over() const {
    std::vector<int> out;
    const auto& arguments = w_.contract.arguments;
    if (arguments.size() != w_.group->parameters.size() + w_.extra_scalars.size() + 1) return out;
    for (const ir::Binding& b : w_.group->body->bindings) {
      const ir::OpInfo* op =
          b.value->kind == ir::ExprKind::kCall ? ir::find_op(b.value->op) : nullptr;
      if (b.value->kind != ir::ExprKind::kAtom &&
          !(op && op->fusion == ir::FusionKind::kElementwise))
        return out;
    }
    for (size_t i = 0; i + 1 < arguments.size(); ++i)
      if (alike(arguments[i], arguments.back())) out.push_back(static_cast<int>(i));
    return out;
  }

 private:
  static bool alike(const KernelArgument& a, const KernelArgument& b) {
    return a.kind == KernelArgument::Kind::kTensor && a.dtype == b.dtype && a.dims == b.dims;
  }
  static bool is_tensor(const KernelArgument& a) { return a.kind == KernelArgument::Kind::kTensor; }
  bool several_of_a_type() const {
    std::set<DType> types;
    for (size_t i = 0; i < w_.contract.arguments.size(); ++i)
      if (is_tensor(w_.contract.arguments[i]) && is_input(i) &&
          !types.insert(w_.contract.arguments[i].dtype).second)
        return true;
    return false;
  }
  bool is_input(size_t i) const { return w_.contract.arguments[i].access == exec::Access::kIn; }

  exec::PortableKernel portable_form() const {
    const TargetInfo target = portable_target();
    const Template* t = template_for(w_, target);
    const Lowered lowered = t->lower(w_, t->default_config(w_, target), target, "portable");
    return codegen::to_portable(lowered.functions.at(0));
  }

  std::vector<int64_t> shape_of(size_t i, bool more_axes = false) const {
    const KernelArgument& a = w_.contract.arguments[i];
    std::vector<int64_t> shape;
    for (const exec::DimProgram& d : a.dims) shape.push_back(d.evaluate1(symbols_));
    if (!more_axes || !a.collapse_leading) return shape;
    // rows = 1 * f * rows / f, f its least factor.
    int64_t factor = 1;
    for (int64_t f = 2; f <= shape[0] && factor == 1; ++f)
      if (shape[0] % f == 0) factor = f;
    const int64_t rest = shape[0] / factor;
    shape[0] = rest;
    shape.insert(shape.begin(), {1, factor});
    return shape;
  }

  void make_inputs(double low, double high, std::mt19937& random) {
    contents_.assign(w_.contract.arguments.size(), {});
    std::uniform_real_distribution<double> real(low, high);
    for (size_t i = 0; i < contents_.size(); ++i) {
      const KernelArgument& a = w_.contract.arguments[i];
      if (!is_tensor(a) || !is_input(i)) continue;
      Array x;
      x.shape = shape_of(i);
      x.v.resize(static_cast<size_t>(x.size()));
      for (double& v : x.v) {
        v = real(random);
        if (is_int(a.dtype)) v = std::floor(v);
        if (a.dtype == DType::kBool) v = v > (low + high) / 2 ? 1 : 0;
      }
      to_bytes(x, a.dtype, contents_[i]);
      contents_[i].resize(x.v.size() * size_of(a.dtype));
    }
  }

  // The first bytes of all inputs of a dtype, one after the other where they are longest.
  struct Plan {
    std::string text;                            // of the program
    std::vector<std::vector<std::byte>> memory;  // of the entry's inputs
    std::vector<std::pair<DType, int64_t>> ports;
    std::vector<std::vector<std::byte>> seen;  // what the kernel reads, by argument
  };

  Plan plan(const Placement& p) const {
    Plan out;
    out.seen = contents_;
    const auto& arguments = w_.contract.arguments;
    std::string body;
    size_t used = arguments.size() + 1;  // registers; an entry has at most an input per argument
    const auto fresh = [&] { return used++; };
    const auto line = [&](const std::string& text) { body += text + "\n"; };
    const auto port = [&](DType dtype, std::vector<std::byte> bytes) {
      out.ports.emplace_back(dtype, static_cast<int64_t>(bytes.size() / size_of(dtype)));
      out.memory.push_back(std::move(bytes));
      return out.ports.size() - 1;
    };
    const auto number = [&](int64_t value) {
      const size_t r = fresh();
      line(fmt::format("LoadConsti r{}, {}", r, value));
      return r;
    };
    const auto tensor_in = [&](size_t where, int64_t at, size_t argument) {
      const size_t offset = number(at), r = fresh();
      line(fmt::format("AllocTensor r{}, r{}, r{}, {}, [{}]", r, where, offset,
                       name_of(arguments[argument].dtype),
                       fmt::join(shape_of(argument, p.more_axes), ", ")));
      return r;
    };

    // The memory that the inputs of a dtype share, as long as the longest reaches.
    std::map<DType, std::vector<size_t>> by_type;
    for (size_t i = 0; i < arguments.size(); ++i)
      if (is_tensor(arguments[i]) && is_input(i)) by_type[arguments[i].dtype].push_back(i);
    std::vector<size_t> registers(arguments.size());
    for (const auto& [dtype, inputs] : by_type) {
      if (p.inputs == Placement::Inputs::kApart) {
        std::map<size_t, size_t> made;  // a tensor of each content
        for (const size_t i : inputs) {
          size_t source = i;
          if (p.all_of_it && alike(arguments[i], arguments[static_cast<size_t>(p.over)]))
            source = static_cast<size_t>(p.over);
          out.seen[i] = contents_[source];
          if (!made.contains(source))
            made[source] = tensor_in(port(dtype, contents_[source]), 0, i);
          registers[i] = made[source];
        }
        continue;
      }
      const size_t step = p.inputs == Placement::Inputs::kShifted ? size_of(dtype) : 0;
      std::vector<std::byte> shared;
      for (size_t n = 0; n < inputs.size(); ++n) {
        const std::vector<std::byte>& own = contents_[inputs[n]];
        const size_t begin = n * step, held = shared.size();
        if (begin + own.size() <= held) continue;
        shared.resize(begin + own.size());
        const size_t from = std::max(begin, held);
        std::copy(own.begin() + static_cast<long>(from - begin), own.end(),
                  shared.begin() + static_cast<long>(from));
      }
      for (size_t n = 0; n < inputs.size(); ++n) {
        std::vector<std::byte>& seen = out.seen[inputs[n]];
        std::copy_n(shared.begin() + static_cast<long>(n * step), seen.size(), seen.begin());
      }
      const size_t whole = port(dtype, shared);
      for (size_t n = 0; n < inputs.size(); ++n)
        registers[inputs[n]] = tensor_in(whole, static_cast<int64_t>(n * step), inputs[n]);
    }
    // The caller's memory is not written: a copy is.
    if (p.over >= 0) {
      const size_t over = static_cast<size_t>(p.over), copy = fresh();
      const size_t old = registers[over];
      line(fmt::format("DeviceCopy r{}, r{}, d0", copy, old));
      for (size_t i = 0; i < arguments.size(); ++i)
        if (is_tensor(arguments[i]) && is_input(i) && registers[i] == old) registers[i] = copy;
    }
    std::vector<size_t> results;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!is_tensor(arguments[i])) {
        registers[i] = number(symbols_[arguments[i].symbol]);
      } else if (!is_input(i)) {
        size_t where;
        if (p.over >= 0) {
          where = registers[static_cast<size_t>(p.over)];
        } else {
          int64_t bytes = static_cast<int64_t>(size_of(arguments[i].dtype));
          for (const int64_t e : shape_of(i)) bytes *= e;
          const size_t size = number(bytes);
          where = fresh();
          line(fmt::format("AllocStorage r{}, r{}, 64, d0", where, size));
        }
        registers[i] = tensor_in(where, 0, i);
        results.push_back(i);
      }
    }
    if (out.ports.empty()) port(DType::kF32, std::vector<std::byte>(sizeof(float)));
    const auto names = [](const std::vector<size_t>& numbers) {
      std::string all;
      for (const size_t r : numbers) all += fmt::format("{}r{}", all.empty() ? "" : ", ", r);
      return all;
    };
    line(fmt::format("InvokePacked k0, ({})", names(registers)));
    std::vector<size_t> given;
    for (const size_t i : results) given.push_back(registers[i]);
    if (results.size() == 1) {
      line(fmt::format("Ret r{}", given[0]));
    } else {
      const size_t all = fresh();
      line(fmt::format("AllocADT r{}, 0, ({})\nRet r{}", all, names(given), all));
    }
    out.text = fmt::format("function \"main\" {} {} {{\n{}}}\nentry \"main\" f0 {{\n",
                           out.ports.size(), used, body);
    for (size_t i = 0; i < out.ports.size(); ++i)
      out.text += fmt::format("input \"i{0}\" {1} [\"{2}\"] [{2}]\n", i,
                              name_of(out.ports[i].first), out.ports[i].second);
    for (const size_t i : results) {
      const std::vector<int64_t> s = shape_of(i, p.more_axes);
      std::vector<std::string> dims;
      for (const int64_t e : s) dims.push_back(fmt::format("\"{}\"", e));
      out.text += fmt::format("output \"o{}\" {} [{}] [{}]\n", i, name_of(arguments[i].dtype),
                              fmt::join(dims, ", "), fmt::join(s, ", "));
    }
    out.text += "}\n";
    return out;
  }

  std::vector<ir::TensorRef> expected(const Plan& plan) const {
    std::vector<ir::TensorRef> inputs;
    for (size_t i = 0; i < w_.group->parameters.size(); ++i) {
      const KernelArgument& a = w_.contract.arguments[i];
      if (!is_tensor(a)) {
        inputs.push_back(ir::Tensor::scalar_i64(symbols_[a.symbol]));
        continue;
      }
      uint8_t* data = nullptr;
      inputs.push_back(ir::Tensor::make(a.dtype, shape_of(i), &data));
      std::copy_n(plan.seen[i].data(), plan.seen[i].size(), reinterpret_cast<std::byte*>(data));
    }
    return interpreted(w_, inputs);
  }

  void run(const Placement& p) const {
    const Plan plan = this->plan(p);
    const std::vector<ir::TensorRef> want = expected(plan);
    for (const bool native : {true, false}) {
      exec::Executable e;
      e.kernels = {kernel_};
      exec::Executable program =
          exec::assemble("kernel \"k\" { dispatch { 0: 0 } host \"h\" }\n" + plan.text);
      e.functions = std::move(program.functions);
      e.entries = std::move(program.entries);
      e.images.push_back({target_.level, target_.features, *image_, image_});
      rt::LoadOptions options;
      options.trust = native;
      const auto model = rt::Model::load(std::move(e), options, "one kernel");
      for (const int32_t threads : {1, kThreads}) {
        if (!native && threads > 1) continue;
        SCOPED_TRACE(native ? fmt::format("native, {} threads", threads) : "portable");
        compare(model, threads, plan, want);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

  void compare(const std::shared_ptr<const rt::Model>& model, int32_t threads, const Plan& plan,
               const std::vector<ir::TensorRef>& want) const {
    // Kept, so that threads are not made anew for each run.
    static const std::shared_ptr<rt::ThreadPool> pool = rt::ThreadPool::shared(kThreads, false);
    rt::SessionOptions options;
    options.threads = threads;
    rt::Session session(model, options);
    std::vector<rt::InputTensor> inputs;
    for (size_t i = 0; i < plan.ports.size(); ++i)
      inputs.push_back({plan.memory[i].data(),
                        plan.ports[i].first,
                        std::span(&plan.ports[i].second, 1),
                        {},
                        true});
    const std::vector<std::vector<std::byte>> before = plan.memory;
    std::vector<rt::OutputTensor> got(want.size());
    session.run(0, inputs, got);
    EXPECT_EQ(plan.memory, before) << "an input was written";
    for (size_t r = 0; r < want.size(); ++r) {
      const ir::TensorRef& w = want[r];
      uint8_t* data = nullptr;
      const auto g = ir::Tensor::make(w->dtype, w->shape, &data);
      ASSERT_EQ(got[r].dtype, w->dtype);
      if (!g->bytes.empty()) std::memcpy(data, got[r].data, g->bytes.size());
      for (int64_t i = 0; i < w->elements(); ++i) {
        if (!is_float(w->dtype)) {
          ASSERT_EQ(g->integer(i), w->integer(i)) << "result " << r << ", element " << i;
          continue;
        }
        const double x = g->value(i), y = w->value(i);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        ASSERT_NEAR(x, y, kTolerance * std::max(1.0, std::fabs(y)))
            << "result " << r << ", element " << i << " of " << w->elements();
      }
    }
  }

  Workload w_;
  TargetInfo target_;
  exec::Kernel kernel_;
  std::shared_ptr<std::vector<uint8_t>> image_;
  std::vector<int64_t> symbols_;
  std::vector<std::vector<std::byte>> contents_;  // of the inputs, by argument
};

struct Group {
  std::string text;
  double low = -2, high = 2;
};

// A group for each operator, some that fusion makes and that may work in place, and products.
std::vector<Group> groups() {
  std::vector<Group> out;
  for (const Row& r : kOperatorRows) {
    out.push_back({text_of(r), r.low, r.high});
    if (std::string(r.op).starts_with("gather")) out.back().low = -7, out.back().high = 7;
    if (std::string(r.op) == "take_row") out.back().low = 0, out.back().high = 4;
  }
  const auto f = [](const std::string& parameters, const std::string& body) {
    return "fn @f(" + parameters + ") { " + body + " }";
  };
  const std::string xy = kXY;
  out.push_back({f("%x: Tensor[(n, m), f32], %c: Tensor[(m), f32]",
                   "let %a = add(%x, %c); let %b = gelu(%a); let %d = mul(%b, %x); "
                   "let %r = sub(%d, %c); %r")});
  out.push_back({f(xy,
                   "let %a = mul(%x, %y); let %b = tanh(%a); let %d = add(%b, %x); "
                   "let %r = maximum(%d, %y); %r")});
  out.push_back({f("%c: Tensor[(n, m), bool], " + xy, "let %r = where(%c, %x, %y); %r")});
  out.push_back({f("%x: Tensor[(n, m), i64], %y: Tensor[(n, m), f32]",
                   "let %a = cast(%y) {dtype = i64}; let %b = add(%x, %a); "
                   "let %r = bitwise_xor(%b, %x); %r"),
                 -9, 9});
  out.push_back({f(xy, "let %a = add(%x, %y); let %b = sub(%x, %y); let %r = (%a, %b); %r")});
  out.push_back(
      {f("%x: Tensor[(n, m), f32], %w: Tensor[(m, 20), f32]", "let %r = matmul(%x, %w); %r"), -1,
       1});
  out.push_back(
      {f("%x: Tensor[(n, 7), f32], %w: Tensor[(7, n), f32]", "let %r = matmul(%x, %w); %r"), -1,
       1});
  return out;
}

constexpr size_t kShards = 8;
class KernelDifferential : public ::testing::TestWithParam<size_t> {};

TEST_P(KernelDifferential, EveryOperatorInEveryPlace) {
  if (codegen::testing::Remote::get()) GTEST_SKIP() << "its kernels run in this process";
  const std::vector<Group> all = groups();
  size_t in_place = 0;
  for (size_t i = GetParam(); i < all.size(); i += kShards) {
    const Group& g = all[i];
    SCOPED_TRACE(g.text);
    const Workload w = workload_of(g.text);
    std::mt19937 random(static_cast<unsigned>(i));
    Sizes sizes =
        w.contract.symbols.empty() ? Sizes{{}} : random_sizes(w.contract.symbols.size(), 40, 2);
    for (auto& s : sizes)  // windows, maxima and slices need an element
      for (int64_t& n : s) n = std::max<int64_t>(n, 2);
    // The host's level by its default and by another schedule, and the least level.
    const std::string best = codegen::testing::runnable_target().level;
    for (const auto& [level, sampled] :
         {std::pair{best, false}, {best, true}, {codegen::testing::runnable_levels()[0], false}}) {
      const TargetInfo target = target_by_name(level);
      const Template* t = template_for(w, target);
      ASSERT_NE(t, nullptr) << w.key;
      const Config config =
          sampled ? random_config(*t, w, target, random) : t->default_config(w, target);
      SCOPED_TRACE(level + " " + to_json(config));
      OneKernel kernel(w, target, config);
      in_place += kernel.operands_to_take_over().size();
      for (const std::vector<int64_t>& s : sizes) {
        SCOPED_TRACE(::testing::PrintToString(s));
        kernel.check(s, g.low, g.high, random);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(in_place, 0u);
}

INSTANTIATE_TEST_SUITE_P(Shards, KernelDifferential, ::testing::Range(size_t{0}, kShards));

}  // namespace
}  // namespace nimble::kernels::testing
