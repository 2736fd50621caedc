// Placement of data-type values and closures, which have one device with all that is in them: what
// can be copied on the way in and out is, and what cannot is an error with both devices. The rest
// of the pass is tested as text (compiler/test/passes/place-devices*) and by running it
// (compiler/driver/test/device_test.cpp).
#include <gmock/gmock.h>

#include "compiler/ir/builder.h"
#include "compiler/ir/text.h"
#include "compiler/passes/analysis/device_analysis.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/device_number.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Type;
using ir::VarRef;
using ::testing::HasSubstr;

const Type kVector = ir::tensor_type({4}, DType::kF32);
const Type kList = ir::data_type("List");

ir::Module with_list() {
  ir::Module m;
  m.data_types.push_back({"List", {}, {{"Nil", {}, {}}, {"Cons", {kVector, kList}, {}}}, {}});
  return m;
}

struct Body {
  ir::BlockBuilder b;
  VarRef bind(ir::ExprRef e, Type type, const std::string& name) {
    VarRef v = b.bind(std::move(e), name);
    v->type = std::move(type);
    return v;
  }
  // A kernel: the exponential of a vector.
  VarRef kernel(const VarRef& x, const std::string& name) {
    VarRef p = ir::make_var("p", kVector);
    ir::BlockBuilder body;
    VarRef y = body.call("exp", {p});
    y->type = kVector;
    return bind(ir::make_call_primitive(
                    ir::make_function_of({p}, body.finish(y), kVector, {{"primitive", true}}), {x}),
                kVector, name);
  }
};

void add(ir::Module* m, const std::string& name, std::vector<VarRef> parameters, Body* body,
         Atom result, Type type, ir::Attrs attrs = {}) {
  m->set(name, ir::make_function_of(std::move(parameters), body->b.finish(std::move(result)),
                                    std::move(type), std::move(attrs)));
}

// @head(list): the exponential of the first element, or of `otherwise`.
void add_head(ir::Module* m, const std::string& name, int64_t device) {
  VarRef list = ir::make_var("list", kList), otherwise = ir::make_var("otherwise", kVector);
  Body body, cons;
  VarRef first = ir::make_var("first", kVector), rest = ir::make_var("rest", kList);
  using Kind = ir::Pattern::Kind;
  ir::Pattern head{Kind::kVar, first, "", {}, {}}, tail{Kind::kVar, rest, "", {}, {}};
  ir::Pattern some{Kind::kConstructor, nullptr, "Cons", {head, tail}, {}};
  ir::Pattern none{Kind::kWildcard, nullptr, "", {}, {}};
  Atom exponential = cons.kernel(first, "e");
  ir::BlockBuilder other;
  VarRef value = body.bind(
      ir::make_match(list, {{some, cons.b.finish(exponential)}, {none, other.finish(otherwise)}}),
      kVector, "value");
  add(m, name, {list, otherwise}, &body, value, kVector, {{"device", device}});
}

VarRef cons(Body* body, const VarRef& x, const std::string& name) {
  VarRef nil = body->bind(ir::make_construct("Nil", {}), kList, name + "_nil");
  return body->bind(ir::make_construct("Cons", {x, nil}), kList, name);
}

size_t copies_in(const ir::Module& m, const std::string& function) {
  size_t n = 0;
  visit_bindings(*m.find(function)->body,
                 [&](const ir::Binding& b) { n += b.value->op == "device_copy"; });
  return n;
}

// The list lies where @head's kernel reads it: what goes in is copied, and what comes out.
TEST(PlaceDevices, ADataTypesValueLiesOnOneDevice) {
  ir::Module m = with_list();
  add_head(&m, "head", kStandInDevice);
  VarRef x = ir::make_var("x", kVector);
  Body body;
  VarRef list = cons(&body, x, "list");
  VarRef y = body.bind(ir::make_call_function(Atom::of_global("head"), {list, x}), kVector, "y");
  add(&m, "main", {x}, &body, y, kVector);
  PassContext context;
  const ir::Module placed = place_devices(m, context);
  EXPECT_EQ(copies_in(placed, "head"), 0u) << ir::print(placed);
  EXPECT_EQ(copies_in(placed, "main"), 2u) << ir::print(placed);  // x for both uses, y
  EXPECT_EQ(context.statistics["place-devices.kernels on stand-in"], 1);
}

// Read by kernels on both devices, it lies on one, and what the other one reads is copied.
TEST(PlaceDevices, TensorsOfADataTypesValueAreCopiedWhereTheyAreRead) {
  ir::Module m = with_list();
  add_head(&m, "here", kCpuDevice);
  add_head(&m, "there", kStandInDevice);
  VarRef x = ir::make_var("x", kVector);
  Body body;
  VarRef list = cons(&body, x, "list");
  VarRef y = body.bind(ir::make_call_function(Atom::of_global("here"), {list, x}), kVector, "y");
  VarRef z = body.bind(ir::make_call_function(Atom::of_global("there"), {list, y}), kVector, "z");
  add(&m, "main", {x}, &body, z, kVector);
  PassContext context;
  const ir::Module placed = place_devices(m, context);
  EXPECT_EQ(copies_in(placed, "here"), 0u) << ir::print(placed);
  EXPECT_GE(copies_in(placed, "there"), 1u) << ir::print(placed);
  EXPECT_EQ(context.statistics["place-devices.kernels on stand-in"], 1);
  EXPECT_EQ(context.statistics["place-devices.kernels on cpu"], 1);
}

// Asked for elsewhere as a whole, it would have to be copied cell by cell.
TEST(PlaceDevices, ADataTypesValueIsNotCopied) {
  ir::Module m = with_list();
  add_head(&m, "head", kStandInDevice);
  VarRef list = ir::make_var("list", kList), x = ir::make_var("x", kVector);
  Body body;
  VarRef there = body.bind(
      ir::make_call("on_device", {list}, {{"device", int64_t{kStandInDevice}}}), kList, "there");
  VarRef y = body.bind(ir::make_call_function(Atom::of_global("head"), {there, x}), kVector, "y");
  add(&m, "main", {list, x}, &body, y, kVector);
  PassContext context;
  try {
    place_devices(m, context);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
    EXPECT_THAT(e.what(), HasSubstr("List"));
    EXPECT_THAT(e.what(), HasSubstr("device 0 (cpu)"));
    EXPECT_THAT(e.what(), HasSubstr("device 1 (stand-in)"));
  }
}

// What a user gives is on the CPU and stays there, and so does the kernel that reads it.
TEST(PlaceDevices, AnEntrysDataTypesValueStaysOnTheCpu) {
  ir::Module m = with_list();
  add_head(&m, "head", kCpuDevice);
  auto head = std::make_shared<ir::Function>(*m.find("head"));
  head->attrs.clear();
  m.set("head", head);
  VarRef list = ir::make_var("list", kList), x = ir::make_var("x", kVector);
  Body body;
  VarRef y = body.bind(ir::make_call_function(Atom::of_global("head"), {list, x}), kVector, "y");
  VarRef z = body.kernel(y, "z");
  add(&m, "main", {list, x}, &body, z, kVector);
  PassContext context;
  context.device = kStandInDevice;
  const ir::Module placed = place_devices(m, context);
  EXPECT_EQ(copies_in(placed, "head"), 0u) << ir::print(placed);
  EXPECT_EQ(context.statistics["place-devices.kernels on cpu"], 2) << ir::print(placed);
}

// Two lists, each on its own device: no conflict.
TEST(PlaceDevices, ValuesOfOneDataTypeMayLieApart) {
  ir::Module m = with_list();
  add_head(&m, "here", kCpuDevice);
  add_head(&m, "there", kStandInDevice);
  VarRef x = ir::make_var("x", kVector);
  Body body;
  VarRef a = cons(&body, x, "a"), b = cons(&body, x, "b");
  VarRef y = body.bind(ir::make_call_function(Atom::of_global("here"), {a, x}), kVector, "y");
  VarRef z = body.bind(ir::make_call_function(Atom::of_global("there"), {b, y}), kVector, "z");
  add(&m, "main", {x}, &body, z, kVector);
  PassContext context;
  const ir::Module placed = place_devices(m, context);
  EXPECT_EQ(copies_in(placed, "main"), 3u) << ir::print(placed);  // x, y there; z back
}

// What a closure captures, takes and gives lies where its function computes.
TEST(PlaceDevices, AClosureLiesOnOneDevice) {
  ir::Module m;
  VarRef captured = ir::make_var("captured", kVector), given = ir::make_var("given", kVector);
  Body f;
  VarRef e = f.kernel(given, "e");
  add(&m, "f", {captured, given}, &f, e, kVector, {{"device", int64_t{kStandInDevice}}});
  VarRef x = ir::make_var("x", kVector);
  Body body;
  VarRef closure =
      body.bind(ir::make_closure("f", {x}), ir::function_type({kVector}, kVector), "c");
  VarRef y = body.bind(ir::make_call_function(closure, {x}), kVector, "y");
  add(&m, "main", {x}, &body, y, kVector);
  PassContext context;
  const ir::Module placed = place_devices(m, context);
  // The captured tensor is never read, so it may stay; the argument goes, the result comes back.
  EXPECT_EQ(copies_in(placed, "main"), 2u) << ir::print(placed);
  EXPECT_EQ(copies_in(placed, "f"), 0u);
}

TEST(PlaceDevices, AsksForTypes) {
  ir::Module m = ir::parse_module("fn @main(%x: Tensor[(n), f32]) { let %y = exp(%x); %y }");
  PassContext context;
  context.device = kStandInDevice;
  try {
    place_devices(m, context);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("run the pass infer"));
  }
}

TEST(DeviceDomains, UnitesUnlessBothAreFixedApart) {
  DeviceDomains d;
  const Domain a = d.fresh(), b = d.fresh(), c = d.fresh(), e = d.fresh();
  EXPECT_TRUE(d.unite(a, b));
  EXPECT_EQ(d.find(a), d.find(b));
  EXPECT_TRUE(d.pin(b, kStandInDevice));
  EXPECT_FALSE(d.pin(a, kCpuDevice));
  EXPECT_TRUE(d.pin(c, kCpuDevice));
  EXPECT_FALSE(d.unite(a, c));
  EXPECT_NE(d.find(a), d.find(c));
  EXPECT_TRUE(d.unite(e, a));
  EXPECT_EQ(d.device(e), kStandInDevice);
  // The border is never united, so it tells its neighbours nothing.
  const Domain f = d.fresh(), g = d.fresh();
  EXPECT_FALSE(d.unite(f, kHost));
  EXPECT_FALSE(d.device(f));
  EXPECT_EQ(d.device(kHost), kCpuDevice);
  // What a kernel touches goes to the target, the rest stays.
  d.set_kernel(f);
  d.settle(kStandInDevice);
  EXPECT_EQ(d.device(f), kStandInDevice);
  EXPECT_EQ(d.device(g), kCpuDevice);
  EXPECT_EQ(d.device(c), kCpuDevice);
  EXPECT_EQ(d.device(kNowhere), std::nullopt);
}

}  // namespace
}  // namespace nimble::passes
