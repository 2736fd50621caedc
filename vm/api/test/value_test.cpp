// Values of data types across the C and C++ interfaces: built, checked, taken apart.
#include <gmock/gmock.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "vm/api/nimble.h"
#include "vm/api/nimble.hpp"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace {

using nimble::api::Value;
using nimble::api::view;
using ::testing::HasSubstr;

// main(l: List[(i64, Tensor[(n, 2), f32])], x: (n, 2)) gives l back, its length, and Cons((length,
// x), l).
constexpr char kModel[] = R"ASM(
scalar "next" [a0 1 +]
function "main" 2 7 {
  LoadConsti r2, 0
  Invoke r2, f"length", (r0, r2)
  AllocADT r3, 0, (r2, r1)
  AllocADT r4, 1, (r3, r0)
  AllocADT r5, 0, (r0, r2, r4)
  Ret r5
}
function "length" 2 5 {
  GetTag r2, r0
  If r2, @more, @done
more:
  GetField r3, r0, 1
  Invoke r4, f"next", (r1)
  Invoke r4, f"length", (r3, r4)
  Ret r4
done:
  Ret r1
}
type "List" data { "Nil" () "Cons" (1, 0) }
type "(i64, Tensor[(n, 2), f32])" tuple (2, 3)
type "i64" scalar i64
type "Tensor[(n, 2), f32]" tensor f32 ["n", "2"] [-1, 2]
entry "main" f0 {
  input "l" type 0
  input "x" f32 ["n", "2"] [-1, 2]
  output "same" type 0
  output "length" i64 [] []
  output "longer" type 0
}
)ASM";

class Values : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "values." + std::to_string(::getpid()) + ".nimble";
    nimble::exec::write(nimble::exec::assemble(kModel), path_);
    model_ = std::make_unique<nimble::api::Model>(path_);
    session_ = std::make_unique<nimble::api::Session>(*model_);
  }
  static Value number(int64_t n) { return Value::of(view(&n, {})); }
  static Value tensor(float first, int64_t rows) {
    std::vector<float> data;
    for (int64_t i = 0; i < 2 * rows; ++i) data.push_back(first + static_cast<float>(i));
    return Value::of(view(data.data(), {rows, 2}));
  }
  Value list(int64_t length, int64_t rows) const {
    Value l = Value::data(model_->tag("Nil"));
    for (int64_t i = 0; i < length; ++i)
      l = Value::data(model_->tag("Cons"),
                      {Value::data(0, {number(i), tensor(static_cast<float>(i), rows)}), l});
    return l;
  }
  std::string failure(const Value& l, const Value& x) {
    try {
      session_->run_values({{"l", l}, {"x", x}});
      return "no failure";
    } catch (const nimble::api::Error& e) {
      EXPECT_EQ(e.status(), NIMBLE_INVALID_ARGUMENT) << e.what();
      return e.what();
    }
  }
  std::string path_;
  std::unique_ptr<nimble::api::Model> model_;
  std::unique_ptr<nimble::api::Session> session_;
};

TEST_F(Values, GoInAndComeOut) {
  EXPECT_EQ(model_->inputs()[0].type, "List");
  EXPECT_EQ(model_->inputs()[1].type, "");
  for (int64_t length : {0, 1, 7}) {
    const auto out = session_->run_values({{"x", tensor(100, 3)}, {"l", list(length, 3)}});
    ASSERT_EQ(out.size(), 3u);
    EXPECT_EQ(*out[1].elements<int64_t>(), length);
    const Value pair = out[2].field(0);
    EXPECT_EQ(*pair.field(0).elements<int64_t>(), length);
    EXPECT_EQ(pair.field(1).elements<float>()[5], 105);
    EXPECT_EQ(pair.field(1).shape(), (std::vector<int64_t>{3, 2}));
    Value rest = out[0];
    for (int64_t i = length; i-- > 0; rest = rest.field(1)) {
      ASSERT_EQ(rest.tag(), 1);
      EXPECT_EQ(*rest.field(0).field(0).elements<int64_t>(), i);
      EXPECT_EQ(rest.field(0).field(1).elements<float>()[0], static_cast<float>(i));
    }
    EXPECT_EQ(rest.tag(), 0);
    EXPECT_EQ(rest.size(), 0u);
  }
}

TEST_F(Values, AreDescribedByTheirTypes) {
  const auto types = model_->types();
  ASSERT_EQ(types.size(), 4u);
  const auto& list = types[static_cast<size_t>(model_->inputs()[0].type_index)];
  EXPECT_EQ(list.name, "List");
  EXPECT_EQ(list.kind, NIMBLE_TYPE_DATA);
  ASSERT_EQ(list.constructors.size(), 2u);
  EXPECT_EQ(list.constructors[0].name, "Nil");
  EXPECT_TRUE(list.constructors[0].fields.empty());
  EXPECT_EQ(list.constructors[1].fields, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(types[1].kind, NIMBLE_TYPE_TUPLE);
  EXPECT_EQ(types[2].kind, NIMBLE_TYPE_TENSOR);
  EXPECT_EQ(types[2].dtype, NIMBLE_I64);
  EXPECT_TRUE(types[2].dims.empty());
  EXPECT_EQ(types[3].dims, (std::vector<std::string>{"n", "2"}));
  EXPECT_EQ(types[3].extents, (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(model_->inputs()[1].type_index, -1);

  nimble_type type = NIMBLE_TYPE_INIT;
  EXPECT_EQ(nimble_model_type(model_->handle(), 4, &type), NIMBLE_NOT_FOUND);
  EXPECT_EQ(nimble_model_type(model_->handle(), -1, &type), NIMBLE_NOT_FOUND);
  EXPECT_EQ(nimble_model_type(model_->handle(), 0, nullptr), NIMBLE_INVALID_ARGUMENT);
  nimble_constructor constructor = NIMBLE_CONSTRUCTOR_INIT;
  EXPECT_EQ(nimble_model_constructor(model_->handle(), 0, 2, &constructor), NIMBLE_NOT_FOUND);
  EXPECT_EQ(nimble_model_constructor(model_->handle(), 3, 0, &constructor), NIMBLE_NOT_FOUND);
  EXPECT_EQ(nimble_model_constructor(nullptr, 0, 0, &constructor), NIMBLE_INVALID_ARGUMENT);
}

TEST_F(Values, AreCheckedAllTheWayDown) {
  const Value x = tensor(0, 3), nil = Value::data(0), pair = Value::data(0, {number(1), x});
  EXPECT_THAT(failure(Value::data(2), x), HasSubstr("2 constructors, none with tag 2"));
  EXPECT_THAT(failure(Value::data(1, {pair}), x), HasSubstr("Cons of List has 2 fields, not 1"));
  EXPECT_THAT(failure(Value::data(1, {nil, nil}), x), HasSubstr("has 2 fields, not 0"));
  EXPECT_THAT(failure(Value::data(1, {pair, x}), x), HasSubstr("holds a tensor where List"));
  EXPECT_THAT(failure(Value::data(1, {Value::data(0, {x, x}), nil}), x),
              HasSubstr("holds f32 (3, 2) where i64 belongs"));
  EXPECT_THAT(failure(Value::data(1, {Value::data(0, {number(1), nil}), nil}), x),
              HasSubstr("a constructor where Tensor"));
  // A name is one extent in tensors and values alike.
  EXPECT_THAT(failure(list(2, 4), x), HasSubstr("dim 0 (n) of a tensor in it is 4, not 3"));
  EXPECT_THAT(failure(x, x), HasSubstr("it is a tensor, not a value of a data type"));
  EXPECT_THAT(failure(nil, nil), HasSubstr("it is a value of a data type, not a tensor"));
  EXPECT_EQ(*session_->run_values({{"l", nil}, {"x", x}})[1].elements<int64_t>(), 0);
}

TEST_F(Values, SharedPartsAreConvertedOnce) {
  // 2^60 paths through 60 cells: only sharing makes it end.
  constexpr char kTree[] = R"(
function "main" 1 1 { Ret r0 }
type "Tree" data { "Leaf" () "Node" (0, 0) }
entry "main" f0 { input "t" type 0 output "t2" type 0 }
)";
  nimble::exec::write(nimble::exec::assemble(kTree), path_);
  const nimble::api::Model model(path_);
  nimble::api::Session session(model);
  Value t = Value::data(0);
  for (int i = 0; i < 60; ++i) t = Value::data(1, {t, t});
  Value back = session.run_values({{"t", t}})[0];
  for (int i = 0; i < 60; ++i) back = back.field(i % 2 == 0 ? 0 : 1);
  EXPECT_EQ(back.tag(), 0);
}

TEST_F(Values, MillionCellsPassWithoutRecursion) {
  constexpr char kKeep[] = R"(
function "main" 1 1 { Ret r0 }
type "List" data { "Nil" () "Cons" (1, 0) }
type "i64" scalar i64
entry "main" f0 { input "l" type 0 output "l2" type 0 }
)";
  nimble::exec::write(nimble::exec::assemble(kKeep), path_);
  const nimble::api::Model model(path_);
  nimble::api::Session session(model);
  const Value one = number(1);
  Value l = Value::data(0);
  for (int i = 0; i < 1'000'000; ++i) l = Value::data(1, {one, l});
  const Value back = session.run_values({{"l", l}})[0];
  EXPECT_EQ(back.tag(), 1);
  const auto held = session.memory().in_use;
  session.run_values({{"l", l}});
  EXPECT_EQ(session.memory().in_use, held);
}

TEST_F(Values, MisuseIsAnError) {
  nimble_value* v = nullptr;
  EXPECT_EQ(nimble_value_from_fields(-1, nullptr, 0, &v), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_value_from_fields(0, nullptr, 1, &v), NIMBLE_INVALID_ARGUMENT);
  const nimble_value* none[] = {nullptr};
  EXPECT_EQ(nimble_value_from_fields(0, none, 1, &v), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_value_from_tensor(nullptr, &v), NIMBLE_INVALID_ARGUMENT);
  nimble_tensor t = NIMBLE_TENSOR_INIT;
  EXPECT_EQ(nimble_value_tensor(Value::data(0).handle(), &t), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_value_tag(nullptr), -1);
  EXPECT_EQ(nimble_value_field(Value::data(0).handle(), 0), nullptr);
  nimble_value_release(nullptr);
  EXPECT_EQ(nimble_model_find_tag(model_->handle(), "None"), -1);
  nimble_tensor out = NIMBLE_TENSOR_INIT;
  float x[2] = {1, 2};
  nimble_tensor in = NIMBLE_TENSOR_INIT;
  const int64_t shape[] = {1, 2};
  in.data = x;
  in.dtype = NIMBLE_F32;
  in.shape = shape;
  in.rank = 2;
  const nimble_tensor both[] = {in, in};
  EXPECT_EQ(nimble_session_run(session_->handle(), nullptr, nullptr, both, 2, &out, 1),
            NIMBLE_UNSUPPORTED);
  EXPECT_THAT(nimble_last_error(), HasSubstr("nimble_session_run_values"));
}

}  // namespace
