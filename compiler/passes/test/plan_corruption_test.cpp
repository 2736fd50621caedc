// Good plans of the planner, corrupted: every corruption is found.
#include <gtest/gtest.h>

#include <random>

#include "compiler/ir/text.h"
#include "compiler/passes/analysis/verify_plan.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Expr;

// Programs with loops, branches, in-place updates, growth and joins in place.
const char* const kPrograms[] = {
    R"(fn @main(%x: Tensor[(n, 4), f32], %c: Tensor[(), bool]) {
  let %a = softmax(%x) {axis = 1};
  let %b = softmax(%a) {axis = 0};
  let %r = if (%c) {
    let %d = softmax(%b) {axis = 1};
    let %e = softmax(%d) {axis = 0};
    let %f = sum(%e) {axes = [0], keepdims = false};
    %f
  } else {
    let %g = matmul(%x, %x) {transpose_a = true};
    let %h = sum(%g) {axes = [0], keepdims = false};
    %h
  };
  let %s = softmax(%r) {axis = 0};
  let %t = softmax(%s) {axis = 0};
  let %u = add(%t, %r);
  %u
})",
    R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32], %h: Tensor[(m), f32]) -> Tensor[(n, m), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %s = softmax(%row) {axis = 0};
    let %p = matmul(%y, %s);
    let %q = sum(%p) {axes = [0], keepdims = true};
    let %e = add(%s, %q);
    let %h2 = add(%h, %e);
    let %y2 = write_row(%y, %i, %e);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %y2, %h2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %y = softmax(%x) {axis = 0};
  let %h = sum(%x) {axes = [0], keepdims = false};
  let %r = @loop(0i64, %x, %y, %h);
  %r
})",
    R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, m), f32], %y: Tensor[(?, m), f32]) -> Tensor[(?, m), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %s = softmax(%row) {axis = 0};
    let %u1 = unsqueeze(%s) {axes = [0]};
    let %y2 = concat(%y, %u1, %u1) {axis = 0};
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %y = full() {shape = (1, m), dtype = f32, value = 9.0};
  let %r = @loop(0i64, %x, %y);
  let %e = softmax(%r) {axis = 1};
  %e
})",
    R"(fn @main(%x: Tensor[(n, 8), f32], %v: Tensor[(8, 24), f32], %w: Tensor[(8, 40), f32]) {
  let %a = matmul(%x, %v);
  let %b = matmul(%x, %w);
  let %c = concat(%a, %b) {axis = 1};
  let %d = softmax(%c) {axis = 1};
  let %e = softmax(%c) {axis = 0};
  let %f = matmul(%d, %e) {transpose_a = true};
  %f
})",
};

ir::Module planned(const char* text) {
  PipelineOptions options;
  options.passes = {"infer",         "grow-tensors",    "fuse",       "lower-memory",
                    "join-in-place", "update-in-place", "plan-memory"};
  options.verify = true;
  PassContext context;
  context.target = kernels::target_by_name("native");
  return run_pipeline(ir::parse_module(text), context, options);
}

// Rewrites the `at`-th binding (nested ones counted) for which `pick` holds.
class Mutation {
 public:
  using Pick = std::function<bool(const ir::Binding&)>;
  // Replaces the binding by what `make` returns: nothing, itself, or several.
  using Make = std::function<std::vector<ir::Binding>(const ir::Binding&)>;

  static size_t count(const ir::Module& m, const Pick& pick) {
    size_t n = 0;
    for (const auto& [name, f] : m.functions)
      visit_bindings(*f->body, [&](const ir::Binding& b) { n += pick(b); });
    return n;
  }

  static ir::Module apply(const ir::Module& m, size_t at, const Pick& pick, const Make& make) {
    ir::Module out = m;
    size_t seen = 0;
    std::function<ir::BlockRef(const ir::Block&)> block = [&](const ir::Block& b) {
      auto copy = std::make_shared<ir::Block>();
      copy->result = b.result;
      for (const ir::Binding& binding : b.bindings) {
        if (pick(binding) && seen++ == at) {
          for (const ir::Binding& made : make(binding)) copy->bindings.push_back(made);
          continue;
        }
        auto e = std::make_shared<Expr>(*binding.value);
        if (e->then_block) e->then_block = block(*e->then_block);
        if (e->else_block) e->else_block = block(*e->else_block);
        copy->bindings.push_back({binding.var, e});
      }
      return ir::BlockRef(copy);
    };
    for (auto& [name, f] : out.functions) {
      auto copy = std::make_shared<ir::Function>(*f);
      copy->body = block(*f->body);
      f = copy;
    }
    return out;
  }
};

bool ends_a_life(const ir::Binding& b) {
  return b.value->op == "memory.kill" || b.value->op == "memory.release";
}

// Whether what is ended is bound by an operator of the memory dialect: those must end.
bool must_end(const ir::Module& m, const ir::Binding& kill) {
  bool found = false;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&](const ir::Binding& b) {
      found |= b.var == kill.value->args[0].var && b.value->op.starts_with("memory.");
    });
  return found;
}

TEST(VerifyPlan, FindsADroppedKill) {
  for (const char* text : kPrograms) {
    const ir::Module m = planned(text);
    auto pick = [&](const ir::Binding& b) { return ends_a_life(b) && must_end(m, b); };
    const size_t kills = Mutation::count(m, pick);
    ASSERT_GT(kills, 3u);
    for (size_t at = 0; at < kills; ++at)
      EXPECT_FALSE(verify_plan(Mutation::apply(
                                   m, at, pick,
                                   [](const ir::Binding&) { return std::vector<ir::Binding>{}; }))
                       .faults.empty())
          << at << "\n"
          << ir::print(m);
  }
}

TEST(VerifyPlan, FindsAKillTwice) {
  for (const char* text : kPrograms) {
    const ir::Module m = planned(text);
    for (size_t at = 0; at < Mutation::count(m, ends_a_life); ++at)
      EXPECT_FALSE(verify_plan(Mutation::apply(m, at, ends_a_life,
                                               [](const ir::Binding& b) {
                                                 return std::vector<ir::Binding>{
                                                     b,
                                                     {ir::make_var("again", b.var->type), b.value}};
                                               }))
                       .faults.empty())
          << at << "\n"
          << ir::print(m);
  }
}

// A kill in front of a binding that uses what it ends.
TEST(VerifyPlan, FindsAKillTooEarly) {
  size_t tried = 0;
  for (const char* text : kPrograms) {
    const ir::Module m = planned(text);
    auto pick = [](const ir::Binding& b) {
      return b.value->op == "memory.invoke_mut" || b.value->op == "memory.alloc_tensor";
    };
    for (size_t at = 0; at < Mutation::count(m, pick); ++at)
      for (size_t arg = 0; arg < 3; ++arg) {
        bool changed = false;
        const ir::Module bad = Mutation::apply(m, at, pick, [&](const ir::Binding& b) {
          if (arg >= b.value->args.size() || !b.value->args[arg].is_var() ||
              b.value->args[arg].var->type->kind == ir::TypeKind::kScalar)
            return std::vector<ir::Binding>{b};
          changed = true;
          return std::vector<ir::Binding>{{ir::make_var("early", ir::tuple_type({})),
                                           ir::make_call("memory.kill", {b.value->args[arg]})},
                                          b};
        });
        if (!changed) continue;
        ++tried;
        EXPECT_FALSE(verify_plan(bad).faults.empty()) << at << "\n" << ir::print(bad);
      }
  }
  EXPECT_GT(tried, 30u);
}

TEST(VerifyPlan, FindsASizeTooSmall) {
  for (const char* text : kPrograms) {
    const ir::Module m = planned(text);
    auto pick = [](const ir::Binding& b) { return b.value->op == "memory.alloc_storage"; };
    for (size_t at = 0; at < Mutation::count(m, pick); ++at) {
      const ir::Module bad = Mutation::apply(m, at, pick, [](const ir::Binding& b) {
        auto e = std::make_shared<Expr>(*b.value);
        e->attrs["bytes"] = ir::floordiv(ir::attr<ir::Dim>(e->attrs, "bytes"), 3);
        return std::vector<ir::Binding>{{b.var, e}};
      });
      EXPECT_FALSE(verify_plan(bad).faults.empty()) << at << "\n" << ir::print(bad);
    }
  }
}

// A tensor moves to a storage in sight that another tensor, still to be read, lies in.
TEST(VerifyPlan, FindsASwappedStorage) {
  std::mt19937 random(5);
  size_t found = 0, tried = 0;
  for (const char* text : kPrograms) {
    const ir::Module m = planned(text);
    std::vector<ir::VarRef> storages;
    for (const auto& [name, f] : m.functions)
      visit_bindings(*f->body, [&](const ir::Binding& b) {
        if (b.value->op == "memory.alloc_storage") storages.push_back(b.var);
      });
    auto pick = [](const ir::Binding& b) {
      return b.value->op == "memory.alloc_tensor" &&
             b.value->args[0].var->type->kind == ir::TypeKind::kStorage;
    };
    for (int i = 0; i < 200; ++i) {
      const size_t at = random() % Mutation::count(m, pick);
      const ir::VarRef to = storages[random() % storages.size()];
      bool changed = false;
      const ir::Module bad = Mutation::apply(m, at, pick, [&](const ir::Binding& b) {
        auto e = std::make_shared<Expr>(*b.value);
        changed = e->args[0].var != to;
        e->args[0] = to;
        return std::vector<ir::Binding>{{b.var, e}};
      });
      if (!changed) continue;
      ++tried;
      found += !verify_plan(bad).faults.empty();
    }
  }
  EXPECT_GT(tried, 200u);
  EXPECT_EQ(found, tried);
}

}  // namespace
}  // namespace nimble::passes
