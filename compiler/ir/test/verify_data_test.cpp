// One rejected module per rule V11 to V14 of the verifier, each next to its accepted neighbour.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/builder.h"
#include "compiler/ir/infer.h"

namespace nimble::ir {
namespace {

using testing::HasSubstr;

const Type kRow = tensor_type({4}, DType::kF32);
const Type kTree = data_type("Tree");

Module with_tree() {
  Module m;
  m.data_types.push_back({"Tree", {}, {{"Leaf", {kRow}, {}}, {"Node", {kTree, kTree}, {}}}, {}});
  m.data_types.push_back(
      {"List",
       {"A"},
       {{"Nil", {}, {}},
        {"Cons", {variable_type("A"), data_type("List", {variable_type("A")})}, {}}},
       {}});
  return m;
}

// The first fault of a module whose function is one binding of `e`.
std::string fault_of(Module m, std::vector<VarRef> parameters, ExprRef e, const Type& type,
                     std::vector<std::string> variables = {}) {
  VarRef v = make_var("v", type);
  auto block = std::make_shared<Block>();
  block->bindings = {{v, std::move(e)}};
  block->result = v;
  auto f = std::make_shared<Function>(*make_function_of(std::move(parameters), block, type));
  f->type_variables = std::move(variables);
  m.set("main", f);
  const auto all = verify(m);
  return all.empty() ? std::string("none") : all[0];
}

BlockRef giving(Atom a) {
  auto b = std::make_shared<Block>();
  b->result = std::move(a);
  return b;
}

Pattern any() {
  return {};
}
Pattern variable(VarRef v) {
  Pattern p;
  p.kind = Pattern::Kind::kVar;
  p.var = std::move(v);
  return p;
}
Pattern constructor(const std::string& name, std::vector<Pattern> fields) {
  Pattern p;
  p.kind = Pattern::Kind::kConstructor;
  p.constructor = name;
  p.fields = std::move(fields);
  return p;
}

TEST(VerifyData, V11Constructors) {
  VarRef x = make_var("x", kRow), wide = make_var("w", tensor_type({5}, DType::kF32));
  EXPECT_EQ(fault_of(with_tree(), {x}, make_construct("Leaf", {x}), kTree), "none");
  EXPECT_THAT(fault_of(with_tree(), {x}, make_construct("Blossom", {x}), kTree), HasSubstr("V11"));
  EXPECT_THAT(fault_of(with_tree(), {x}, make_construct("Leaf", {x, x}), kTree), HasSubstr("V11"));
  EXPECT_THAT(fault_of(with_tree(), {wide}, make_construct("Leaf", {wide}), kTree),
              HasSubstr("V11"));
  EXPECT_THAT(fault_of(with_tree(), {x}, make_construct("Leaf", {x}), kRow), HasSubstr("V6"));
  // An argument may be more general than the value, not less.
  const Type open = data_type("List", {tensor_type({Dim::any()}, DType::kF32)});
  const Type rows = data_type("List", {kRow});
  VarRef rest = make_var("rest", open);
  EXPECT_EQ(fault_of(with_tree(), {x, rest}, make_construct("Cons", {x, rest}), open), "none");
  EXPECT_THAT(fault_of(with_tree(), {x, rest}, make_construct("Cons", {x, rest}), rows),
              HasSubstr("V11"));
}

TEST(VerifyData, V12Matches) {
  VarRef t = make_var("t", kTree), x = make_var("x", kRow);
  const auto fault = [&](std::vector<MatchCase> cases) {
    return fault_of(with_tree(), {t, x}, make_match(t, std::move(cases)), kRow);
  };
  VarRef leaf = make_var("leaf", kRow), wrong = make_var("leaf", kTree);
  const MatchCase node = {constructor("Node", {any(), any()}), giving(x)};
  EXPECT_EQ(fault({{constructor("Leaf", {variable(leaf)}), giving(leaf)}, node}), "none");
  EXPECT_THAT(fault({node}), HasSubstr("V12: no case for Leaf(_)"));
  EXPECT_THAT(fault({{constructor("Leaf", {variable(wrong)}), giving(x)}, node}), HasSubstr("V12"));
  EXPECT_THAT(fault({{constructor("Leaf", {}), giving(x)}, node}), HasSubstr("V12"));
  EXPECT_THAT(fault({{constructor("Nil", {}), giving(x)}, {any(), giving(x)}}), HasSubstr("V12"));
  EXPECT_THAT(fault({}), HasSubstr("V12"));
  // The variable of one case is not seen in the next; a case's type is the match's.
  VarRef one = make_var("leaf", kRow), two = make_var("leaf", kRow);
  EXPECT_THAT(fault({{constructor("Leaf", {variable(one)}), giving(one)}, {any(), giving(one)}}),
              HasSubstr("V3"));
  EXPECT_THAT(fault({{constructor("Leaf", {variable(two)}), giving(t)}, node}), HasSubstr("V6"));
}

TEST(VerifyData, V13ConvertedClosures) {
  const auto module = [] {
    Module m = with_tree();
    VarRef a = make_var("a", kRow), b = make_var("b", kTree);
    m.set("f", make_function_of({a, b}, giving(a), kRow));
    return m;
  };
  VarRef x = make_var("x", kRow), t = make_var("t", kTree);
  const Type rest = function_type({kTree}, kRow);
  EXPECT_EQ(fault_of(module(), {x, t}, make_closure("f", {x}), rest), "none");
  EXPECT_THAT(fault_of(module(), {x, t}, make_closure("f", {t}), rest), HasSubstr("V13"));
  EXPECT_THAT(fault_of(module(), {x, t}, make_closure("f", {x, t, t}), rest), HasSubstr("V13"));
  EXPECT_THAT(fault_of(module(), {x, t}, make_closure("f", {x}), function_type({kRow}, kRow)),
              HasSubstr("V13"));
  EXPECT_THAT(fault_of(module(), {x, t}, make_closure("f", {x}), kRow), HasSubstr("V13"));
  EXPECT_THAT(fault_of(module(), {x, t}, make_closure("g", {x}), rest), HasSubstr("V4"));
}

TEST(VerifyData, V14TypesAreWellFormed) {
  VarRef a = make_var("a", variable_type("A"));
  EXPECT_EQ(fault_of(with_tree(), {a}, make_atom(a), variable_type("A"), {"A"}), "none");
  EXPECT_THAT(fault_of(with_tree(), {a}, make_atom(a), variable_type("A")), HasSubstr("V14"));
  VarRef lost = make_var("l", data_type("Lost")), bare = make_var("l", data_type("List"));
  EXPECT_THAT(fault_of(with_tree(), {lost}, make_atom(lost), lost->type), HasSubstr("V14"));
  EXPECT_THAT(fault_of(with_tree(), {bare}, make_atom(bare), bare->type), HasSubstr("V14"));
  VarRef x = make_var("x", kRow);
  Module twice = with_tree();
  twice.data_types.push_back(twice.data_types[0]);
  EXPECT_THAT(fault_of(twice, {x}, make_atom(x), kRow), HasSubstr("V14"));
  Module named = with_tree();
  named.data_types[0].constructors[0].fields = {tensor_type({Dim::symbol("n")}, DType::kF32)};
  EXPECT_THAT(fault_of(named, {x}, make_atom(x), kRow), HasSubstr("V14"));
}

}  // namespace
}  // namespace nimble::ir
