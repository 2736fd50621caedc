#include "compiler/ir/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "compiler/ir/builder.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/safetensors.h"
#include "vm/base/error.h"
#include "vm/base/file.h"

namespace nimble::ir {
namespace {

using testing::HasSubstr;

const char* const kEverything = R"(source "model \"x\".onnx";
signature @main {inputs = ["x", "mask"], outputs = ["y"], defaults = ["", "ones"]};

fn @main(%x: Tensor[(n, 4), f32], %mask: Tensor[(n, 2*n + 1), bool], %t: (Tensor[(), i64], Tensor[(n), f16])) -> Tensor[(n, 4), f32] attrs {range.n = [1, 512, 8], scale = 0.5, who = "me", flag = true, list = ["a"], d = dim n + 1, t = dtype f32, dims = (n, -1), empty = []} {
  let %c: Tensor[(), bool] = less(3i64, -4i64);
  let %k: Tensor[(2, 2), f32] = f32[2, 2]{1, -2.5, inf, 1e-10};
  let %z: Tensor[(0, 3), i64] = i64[0, 3]{};
  let %b: Tensor[(2), bool] = bool[2]{true, false};
  let %u: Tensor[(), u64] = 18446744073709551615u64;
  let %h: Tensor[(2), bf16] = bf16[2]{1.5, nan};
  let %odd: Tensor[(3), f32] = f32[3]{nan.ffc00000, nan.7fa00001, nan};
  let %least = maximum(-inff32, inff64);
  let %pair: (Tensor[(n, 4), f32], Tensor[(n, 4), f32]) = (%x, %x);
  let %one = (%x,);
  let %none = ();
  let %first = %pair[0];
  let %f = fn(%a: Tensor[(n, 4), f32]) -> Tensor[(n, 4), f32] {
    let %r = relu(%a);
    %r
  };
  let %called = %f(%first) from "/encoder/Relu";
  let %g = group fn(%p: Tensor[(n, 4), f32], %q: Tensor[(n, 4), f32]) -> Tensor[(n, 4), f32] attrs {primitive = true} {
    let %s = add(%p, %q);
    let %v = clip(%s) {max = 1.0, min = -inf};
    %v
  } (%called, %x);
  let %y = if (%c) {
    let %m = @helper(%g);
    %m
  } else {
    %g
  };
  let %w = reshape(%y) {allow_zero = true, shape = (n, floordiv(4*n, n), max(m, n))};
  let %top = true;
  let %fn = @helper;
  %y
}

fn @helper(%x: Tensor[(n, ?), f32]) {
  let %l = leaky_relu(%x) {alpha = 0.01};
  %l
}
)";

TEST(Text, RoundTripOfEverything) {
  // m is unbound, which parsing does not mind.
  const Module m = parse_module(kEverything, "all.nir");
  const std::string once = print(m);
  // floordiv(4*n, n) is 4: the text is canonical from the first printing on.
  std::string expected = kEverything;
  expected.replace(expected.find("floordiv(4*n, n)"), 16, "4");
  EXPECT_EQ(once,
            expected.replace(
                expected.find("attrs {range"),
                expected.find("} {\n  let %c") - expected.find("attrs {range") + 1,
                "attrs {d = dim n + 1, dims = (n, -1), empty = [], flag = true, list = [\"a\"], "
                "range.n = [1, 512, 8], scale = 0.5, t = dtype f32, who = \"me\"}"));
  EXPECT_EQ(print(parse_module(once)), once);
  EXPECT_EQ(m.functions[0].second->body->bindings[11].value->location.line, 16);
  EXPECT_EQ(m.source, "model \"x\".onnx");
  EXPECT_EQ(m.signatures.at("main").input_defaults[1], "ones");
}

TEST(Text, CommentsAndSpaceDoNotMatter) {
  EXPECT_EQ(print(parse_module("fn@f(%x:Tensor[(n),f32]){// hm\nlet%y=relu( %x ) ;%y}")),
            "fn @f(%x: Tensor[(n), f32]) {\n  let %y = relu(%x);\n  %y\n}\n");
}

TEST(Text, NamesAreMadeUniqueAndClean) {
  VarRef x = make_var("a/b c", tensor_type({2}, DType::kF32)), other = make_var("a/b c", x->type);
  BlockBuilder b;
  VarRef y = b.call("add", {x, other}, {}, "a/b c");
  Module m;
  m.set("my main", make_function_of({x, other}, b.finish(y)));
  const std::string text = print(m);
  EXPECT_THAT(text,
              HasSubstr("fn @\"my main\"(%a_b_c: Tensor[(2), f32], %a_b_c.1: Tensor[(2), f32])"));
  EXPECT_THAT(text, HasSubstr("let %a_b_c.2 = add(%a_b_c, %a_b_c.1);"));
  EXPECT_EQ(print(parse_module(text)), text);
}

TEST(Text, NumberedNamesAreNumberedFromTheirStem) {
  VarRef x = make_var("u.1", tensor_type({2}, DType::kF32));
  BlockBuilder b;
  VarRef last = x;
  for (const char* name : {"u", "u", "u.1", ".7", ".7", "u.1.1", "u.1.1"})
    last = b.call("relu", {last}, {}, name);
  Module m;
  m.set("main", make_function_of({x}, b.finish(last)));
  const std::string text = print(m);
  for (const char* line : {"let %u = relu(%u.1)", "let %u.2 = relu(%u)", "let %u.3 = relu(%u.2)",
                           "let %.7 = relu(%u.3)", "let %.7.1 = relu(%.7)",
                           "let %u.1.1 = relu(%.7.1)", "let %u.1.2 = relu(%u.1.1)"})
    EXPECT_THAT(text, HasSubstr(line));
}

// Scalars and vectors of every float type, by their bits.
TEST(Text, SpecialFloatsPrintAndParseBack) {
  struct Format {
    DType dtype;
    uint64_t infinity, quiet;  // the bits of infinity, the highest bit of the fraction
  };
  for (const Format& f :
       {Format{DType::kF64, 0x7ff0000000000000, 0x0008000000000000},
        Format{DType::kF32, 0x7f800000, 0x00400000}, Format{DType::kF16, 0x7c00, 0x0200},
        Format{DType::kBF16, 0x7f80, 0x40}}) {
    const size_t width = size_of(f.dtype);
    const uint64_t sign = uint64_t{1} << (8 * width - 1);
    std::vector<uint64_t> all;
    for (const uint64_t magnitude : {uint64_t{0}, uint64_t{1}, f.infinity - 1, f.infinity,
                                     f.infinity | 1, f.infinity | f.quiet, sign - 1})
      all.insert(all.end(), {magnitude, magnitude | sign});
    const auto text_of = [&](const std::vector<uint64_t>& bits, std::vector<int64_t> shape) {
      uint8_t* data = nullptr;
      const TensorRef t = Tensor::make(f.dtype, std::move(shape), &data);
      for (size_t i = 0; i < bits.size(); ++i) std::memcpy(data + i * width, &bits[i], width);
      const std::string text = print(*t);
      const Module m = parse_module("fn @main() {\n  let %x = relu(" + text + ");\n  %x\n}");
      const TensorRef back = m.find("main")->body->bindings[0].value->args[0].constant;
      EXPECT_EQ(back->dtype, f.dtype) << text;
      EXPECT_EQ(back->shape, t->shape) << text;
      EXPECT_TRUE(std::ranges::equal(back->bytes, t->bytes)) << text;
      return text;
    };
    for (const uint64_t bits : all) text_of({bits}, {});
    text_of(all, {static_cast<int64_t>(all.size())});
    const std::string type(name_of(f.dtype));
    EXPECT_EQ(text_of({f.infinity | sign}, {}), "-inf" + type);
    EXPECT_EQ(text_of({f.infinity | f.quiet}, {}), "nan" + type);
  }
}

TEST(Text, BigConstantsGoToTheSideFile) {
  const std::string path = testing::TempDir() + "/side_test.nir";
  std::vector<float> values(40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.1f;
  auto w = std::make_shared<Tensor>(*Tensor::of<float>(DType::kF32, {4, 10}, values));
  w->name = "encoder.weight";
  auto odd = Tensor::of<uint32_t>(DType::kU32, {20}, std::vector<uint32_t>(20, 7));
  VarRef x = make_var("x", tensor_type({Dim::symbol("n"), 4}, DType::kF32));
  BlockBuilder b;
  VarRef y = b.call("matmul", {x, Atom::of(w)});
  b.bind(make_atom(Atom::of(odd)));
  Module m;
  m.set("main", make_function_of({x}, b.finish(y)));
  write_module(m, path);
  const Module back = read_module(path);
  EXPECT_EQ(print(back), print(m));
  const TensorRef read = back.functions[0].second->body->bindings[0].value->args[1].constant;
  EXPECT_EQ(read->name, "encoder.weight");
  EXPECT_TRUE(std::ranges::equal(read->as<float>(), values));
  EXPECT_THROW(parse_module(print(m)), Error);  // without its side file
  std::filesystem::remove(path);
  std::filesystem::remove(side_file_of(path));
}

struct Wrong {
  const char* text;
  int line;
  const char* message;
};

// One fault each; `message` must be among what is reported for that line.
const Wrong kSyntax[] = {
    {"", 1, "defines no function"},
    {"hello", 1, "expected a function or a data type but found `hello`"},
    {"fn main() { 1i64 }", 1, "expected a function name such as @main"},
    {"fn @main( { 1i64 }", 1, "expected a parameter such as %x"},
    {"fn @main(%x: Tensor[(n) f32]) { %x }", 1, "expected `,` before the element type"},
    {"fn @main(%x: Tensor[(n), f33]) { %x }", 1, "`f33` is not an element type"},
    {"fn @main(%x: Tensor[(n +), f32]) { %x }", 1, "expected a dim"},
    {"fn @main(%x: Tensor[(? + 1), f32]) { %x }", 1, "wildcard ? cannot be part"},
    {"fn @main(%x: Tensor[(-3), f32]) { %x }", 1, "extent -3 is negative"},
    {"fn @main(%x: Matrix) { %x }", 1, "there is no type Matrix"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  %y\n}", 2, "%y is not defined here"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = relu(%x)\n  %y\n}", 3,
     "expected `;` after the binding"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = rellu(%x);\n  %y\n}", 2, "did you mean relu?"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = add(%x);\n  %y\n}", 2,
     "add takes 2 operands, not 1"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = softmax(%x);\n  %y\n}", 2,
     "softmax needs the attribute axis"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = softmax(%x) {axis = 1.5};\n  %y\n}", 2,
     "`1.5` is not an integer"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = relu(%x) {speed = 3};\n  %y\n}", 2,
     "relu has no attribute speed"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = softmax(%x) {axis = 1, axis = 2};\n  %y\n}", 2,
     "given twice"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %x = relu(%x);\n  %x\n}", 2,
     "%x is already defined on line 1"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = add(%x, 1.5);\n  %y\n}", 2,
     "constant 1.5 has no element type"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = add(%x, 1.5i64);\n  %y\n}", 2,
     "`1.5` is not a value of type i64"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = f32[2]{1, 2, 3};\n  %y\n}", 2,
     "3 values for 2 elements"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = i8[1]{300};\n  %y\n}", 2,
     "`300` is not a value of type i8"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = const(\"w\");\n  %y\n}", 2, "needs a side file"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = @other(%x);\n  %y\n}", 2,
     "there is no function @other"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = if (true) { %x };\n  %y\n}", 2,
     "an `if` without `else`"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = add(relu(%x), %x);\n  %y\n}", 2,
     "bind the expression to a variable first"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = (%x);\n  %y\n}", 2,
     "a tuple of one element needs a comma"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = 3i64(%x);\n  %y\n}", 2,
     "a constant cannot be called"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = relu(%x);\n}", 3, "the block has no result"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  %x\n", 3, "the block does not end"},
    {"fn @main(%x: Tensor[(n), f32]) { %x }\nfn @main() { 1i64 }", 2, "@main is defined twice"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = \"abc;\n  %y\n}", 2, "the string does not end"},
    {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = relu(%x) & 3;\n  %y\n}", 2,
     "unexpected character"},
    {"fn @main(%x: Tensor[(floordiv(n, 0)), f32]) { %x }", 1, "by zero"},
};

TEST(Text, WrongTextsAreReportedWithLineAndRemedy) {
  for (const Wrong& w : kSyntax) {
    const ParseResult r = parse_text(w.text, "bad.nir");
    std::string all;
    bool found = false;
    for (const Diagnostic& d : r.diagnostics) {
      all += d.str() + "\n";
      found |= d.location.line == w.line && d.str().find(w.message) != std::string::npos;
    }
    EXPECT_TRUE(found) << w.text << "\nreported:\n" << all;
    EXPECT_THROW(parse_module(w.text), Error);
  }
}

TEST(Text, ReportsAllFaultsWithACaret) {
  const ParseResult r = parse_text(
      "fn @main(%x: Tensor[(n), f32]) {\n"
      "  let %a = rellu(%x);\n"
      "  let %b = add(%a;\n"
      "  let %c = if (true) { let %q = ]; %q } else { %x };\n"
      "  let %d = add(%b, %z);\n"
      "  %d\n"
      "}\n"
      "fn @g() { }\n",
      "bad.nir");
  std::vector<int> lines;
  for (const Diagnostic& d : r.diagnostics) lines.push_back(d.location.line);
  EXPECT_THAT(lines, testing::ElementsAre(2, 3, 4, 5, 8));
  EXPECT_EQ(r.diagnostics[3].str(),
            "bad.nir:5:20: %z is not defined here; bind it before its use\n"
            "    let %d = add(%b, %z);\n"
            "                     ^");
}

TEST(Text, DeepNestingIsRefusedNotFatal) {
  std::string t = "fn @f(%x: ";
  for (int i = 0; i < 100000; ++i) t += "(";
  EXPECT_THROW(parse_module(t), Error);
  std::string dim = "fn @f(%x: Tensor[(";
  for (int i = 0; i < 100000; ++i) dim += "(";
  EXPECT_THROW(parse_module(dim), Error);
}

TEST(Text, TruncationsNeverCrash) {
  const std::string whole = kEverything;
  for (size_t n = 0; n < whole.size(); n += 3) {
    const ParseResult r = parse_text(std::string_view(whole).substr(0, n));
    if (n + 3 < whole.size() && r.diagnostics.empty()) {
      // Only a cut between functions leaves a whole text, and then @helper is missing.
      ADD_FAILURE() << "no fault at " << n;
    }
  }
}

// ------------------------------------------------------------------------- safetensors

std::vector<uint8_t> image(const std::string& header, size_t data) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 64; i += 8) bytes.push_back(static_cast<uint8_t>(header.size() >> i));
  for (char c : header) bytes.push_back(static_cast<uint8_t>(c));
  bytes.resize(bytes.size() + data);
  return bytes;
}

TEST(SafeTensors, RefusesEveryKindOfDamage) {
  const auto parse = [](const std::vector<uint8_t>& b) {
    return parse_safetensors(b, nullptr, "f");
  };
  const std::string a = R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  EXPECT_EQ(parse(image("{" + a + "}", 8)).tensors.size(), 1u);
  EXPECT_EQ(parse(image(R"({"__metadata__": {"k": "v"}, )" + a + "}", 8)).metadata.at("k"), "v");
  struct Case {
    std::string header;
    size_t data;
    const char* message;
  };
  const Case cases[] = {
      {"{" + a + "}", 7, "outside the data"},
      {"{" + a + "}", 9, "data follows"},
      {"{", 0, "not valid JSON"},
      {"[]", 0, "not a JSON object"},
      {"{" + a + ", " + a + "}", 8, "twice"},
      {R"({"a": 3})", 0, "not an object"},
      {R"({"a": {"dtype": "F32", "shape": [2]}})", 8, "needs dtype"},
      {R"({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}})", 8, "not supported"},
      {R"({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})", 8,
       "not a non-negative"},
      {R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})", 8, "8 bytes of data"},
      {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}})", 8,
       "overflows"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", 8, "outside the data"},
      {R"({"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}, "b": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}})",
       1, "overlaps"},
      {R"({"b": {"dtype": "I8", "shape": [1], "data_offsets": [1, 2]}})", 2, "hole"},
  };
  for (const Case& c : cases) {
    try {
      parse(image(c.header, c.data));
      ADD_FAILURE() << c.header;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(c.message)) << c.header;
    }
  }
  EXPECT_THROW(parse({1, 2, 3}), Error);
  std::vector<uint8_t> huge = image("{}", 0);
  huge[6] = 1;  // a header of 2^48 bytes
  EXPECT_THROW(parse(huge), Error);
}

TEST(SafeTensors, WritesWhatItReads) {
  const std::string path = testing::TempDir() + "/x.safetensors";
  SafeTensors s;
  s.metadata["format"] = "pt";
  s.tensors.emplace_back("bytes", Tensor::of<uint8_t>(DType::kU8, {3}, {1, 2, 3}));
  s.tensors.emplace_back("scalar", Tensor::scalar_f32(2.5f));
  s.tensors.emplace_back("empty", Tensor::of<double>(DType::kF64, {0, 2}, {}));
  write_safetensors(path, s);
  const SafeTensors back = read_safetensors(path);
  EXPECT_EQ(back.metadata, s.metadata);
  ASSERT_EQ(back.tensors.size(), 3u);
  EXPECT_EQ(back.find("scalar")->value(0), 2.5);
  EXPECT_EQ(back.find("bytes")->integer(2), 3);
  EXPECT_EQ(back.find("empty")->shape, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(back.find("nothing"), nullptr);
  std::filesystem::remove(path);
}

TEST(Tensor, ReadsEveryElementType) {
  EXPECT_EQ(Tensor::of<uint16_t>(DType::kF16, {3}, {0x3e00, 0xfc00, 0x0001})->value(0), 1.5);
  EXPECT_EQ(Tensor::of<uint16_t>(DType::kF16, {1}, {0xfc00})->value(0), -INFINITY);
  EXPECT_EQ(Tensor::of<uint16_t>(DType::kF16, {1}, {0x0001})->value(0), std::ldexp(1, -24));
  EXPECT_EQ(Tensor::of<uint16_t>(DType::kBF16, {1}, {0xc020})->value(0), -2.5);
  EXPECT_EQ(Tensor::of<int8_t>(DType::kI8, {1}, {-7})->integer(0), -7);
  EXPECT_EQ(Tensor::of<uint8_t>(DType::kBool, {1}, {1})->integer(0), 1);
}

}  // namespace
}  // namespace nimble::ir
