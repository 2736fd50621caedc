// Every element-wise operator, broadcasting of symbols that may be 1, chains that fuse.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {
namespace {

constexpr const char* kX = "%x: Tensor[(n, m), f32]";
constexpr const char* kXY = "%x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]";
constexpr const char* kIJ = "%x: Tensor[(n, m), i64], %y: Tensor[(n, m), i64]";
constexpr const char* kPQ = "%x: Tensor[(n, m), bool], %y: Tensor[(n, m), bool]";

struct Row {
  const char *name, *parameters, *call;
  Range values = {-2, 2};
};

const Row kRows[] = {
    {"neg", kX, "neg(%x)"},
    {"abs", kX, "abs(%x)"},
    {"exp", kX, "exp(%x)", {-20, 5}},
    {"log", kX, "log(%x)", {0.01, 90}},
    {"sqrt", kX, "sqrt(%x)", {0, 90}},
    {"rsqrt", kX, "rsqrt(%x)", {0.1, 90}},
    {"reciprocal", kX, "reciprocal(%x)", {0.1, 9}},
    {"tanh", kX, "tanh(%x)", {-12, 12}},
    {"sigmoid", kX, "sigmoid(%x)", {-100, 100}},
    {"erf", kX, "erf(%x)", {-5, 5}},
    {"relu", kX, "relu(%x)"},
    {"relu_i64", "%x: Tensor[(n, m), i64]", "relu(%x)", {-9, 9}},
    {"gelu", kX, "gelu(%x)", {-6, 6}},
    {"gelu_tanh", kX, "gelu_tanh(%x)", {-6, 6}},
    {"softplus", kX, "softplus(%x)", {-90, 90}},
    {"leaky_relu", kX, "leaky_relu(%x) {alpha = 0.1}"},
    {"floor", kX, "floor(%x)", {-9, 9}},
    {"ceil", kX, "ceil(%x)", {-9, 9}},
    {"round", kX, "round(%x)", {-9, 9}},
    {"sin", kX, "sin(%x)", {-50, 50}},
    {"cos", kX, "cos(%x)", {-50, 50}},
    {"atan", kX, "atan(%x)", {-50, 50}},
    {"trunc", kX, "trunc(%x)", {-9, 9}},
    {"bitwise_and", kIJ, "bitwise_and(%x, %y)", {-99, 99}},
    {"bitwise_or", kIJ, "bitwise_or(%x, %y)", {-99, 99}},
    {"bitwise_xor_u8",
     "%x: Tensor[(n, m), u8], %y: Tensor[(n, 1), u8]",
     "bitwise_xor(%x, %y)",
     {0, 250}},
    {"shift_left_u8",
     "%x: Tensor[(n, m), u8], %y: Tensor[(n, 1), u8]",
     "shift_left(%x, %y)",
     {0, 11}},
    {"shift_right", kIJ, "shift_right(%x, %y)", {0, 70}},
    {"random_bits", kIJ, "random_bits(%x, %y) {key = -3}", {-99, 99}},
    {"random_bits_stream",
     "%x: Tensor[(n, m), i64], %y: Tensor[(), i64]",
     "random_bits(%x, %y) {key = 77}",
     {-99, 99}},
    {"bitcast_f32", kX, "bitcast(%x) {dtype = i32}"},
    {"bitcast_f64", "%x: Tensor[(n, m), f64]", "bitcast(%x) {dtype = u64}"},
    {"bitcast_f16", "%x: Tensor[(n, m), f16]", "bitcast(%x) {dtype = u16}"},
    {"bitcast_bf16", "%x: Tensor[(n, m), bf16]", "bitcast(%x) {dtype = i16}"},
    {"bitcast_bool", "%x: Tensor[(n, m), bool]", "bitcast(%x) {dtype = i8}"},
    {"bitcast_u8", "%x: Tensor[(n, m), u8]", "bitcast(%x) {dtype = bool}", {0, 3}},
    {"bitcast_i8", "%x: Tensor[(n, m), i8]", "bitcast(%x) {dtype = u8}", {-99, 99}},
    // Of integers those between the bits of 1 and of 4.
    {"bitcast_i32",
     "%x: Tensor[(n, m), i32]",
     "bitcast(%x) {dtype = f32}",
     {0x3f800000, 0x40800000}},
    {"bitcast_i64", "%x: Tensor[(n, m), i64]", "bitcast(%x) {dtype = f64}", {4.61e18, 4.62e18}},
    {"bitcast_u16", "%x: Tensor[(n, m), u16]", "bitcast(%x) {dtype = f16}", {0x3c00, 0x4400}},
    {"not", "%x: Tensor[(n, m), bool]", "not(%x)"},
    {"clip", kX, "clip(%x) {min = -0.5, max = 1.0}"},
    {"clip_low", "%x: Tensor[(n, m), i64]", "clip(%x) {min = 1.0}", {-3, 4}},
    {"neg_i64", "%x: Tensor[(n, m), i64]", "neg(%x)", {-9, 9}},
    {"abs_i32", "%x: Tensor[(n, m), i32]", "abs(%x)", {-9, 9}},
    {"add", kXY, "add(%x, %y)"},
    {"sub", kIJ, "sub(%x, %y)", {-9, 9}},
    {"mul", kXY, "mul(%x, %y)"},
    {"div", kXY, "div(%x, %y)", {0.5, 9}},
    {"div_negative", kIJ, "div(%x, %y)", {-20, -3}},
    {"mod_i64", kIJ, "mod(%x, %y)", {-9, -1}},
    {"mod_f32", kXY, "mod(%x, %y)", {0.5, 9}},
    {"pow", kXY, "pow(%x, %y)", {0.1, 3}},
    {"pow_i64", kIJ, "pow(%x, %y)", {0, 5}},
    {"maximum", kXY, "maximum(%x, %y)"},
    {"minimum", kIJ, "minimum(%x, %y)", {-9, 9}},
    {"equal", kIJ, "equal(%x, %y)"},
    {"not_equal", kIJ, "not_equal(%x, %y)"},
    {"equal_bool", kPQ, "equal(%x, %y)"},
    {"less", kXY, "less(%x, %y)"},
    {"less_equal", kIJ, "less_equal(%x, %y)"},
    {"greater", kXY, "greater(%x, %y)"},
    {"greater_equal", kIJ, "greater_equal(%x, %y)"},
    {"and", kPQ, "and(%x, %y)"},
    {"or", kPQ, "or(%x, %y)"},
    {"where", "%c: Tensor[(n, 1), bool], %x: Tensor[(n, m), f32], %y: Tensor[(m), f32]",
     "where(%c, %x, %y)"},
    {"where_i64",
     "%c: Tensor[(m), bool], %x: Tensor[(n, m), i64], %y: Tensor[(n, 1), i64]",
     "where(%c, %x, %y)",
     {-9, 9}},
    {"batch_norm",
     "%x: Tensor[(n, 3, m), f32], %s: Tensor[(3), f32], %b: Tensor[(3), f32], "
     "%e: Tensor[(3), f32], %v: Tensor[(3), f32]",
     "batch_norm(%x, %s, %b, %e, %v) {epsilon = 0.001}",
     {0.1, 2}},
    {"full", "%x: Tensor[(n, m), f32], %s: Tensor[(), f32]",
     "full(%s) {shape = (m, n, 2), dtype = f32}"},
    {"full_i64", kX, "full() {shape = (m, n), dtype = i64, value = 3.0}"},
    {"full_bool", kX, "full() {shape = (m,), dtype = bool, value = 1.0}"},
    {"range", kX, "range() {count = n, start = 5, step = -2, dtype = i64}"},
    {"range_f32", kX, "range() {count = n + m, start = 0, step = 3, dtype = f32}"},
    // Broadcasting: every pair of a symbol, another symbol, 1 and a constant.
    {"broadcast_rows", "%x: Tensor[(n, m), f32], %y: Tensor[(m), f32]", "add(%x, %y)"},
    {"broadcast_columns", "%x: Tensor[(n, m), f32], %y: Tensor[(n, 1), f32]", "mul(%x, %y)"},
    {"broadcast_outer", "%x: Tensor[(n, 1), f32], %y: Tensor[(m), f32]", "sub(%x, %y)"},
    {"broadcast_scalar", "%x: Tensor[(n, m), f32], %y: Tensor[(), f32]", "add(%x, %y)"},
    {"broadcast_ranks", "%x: Tensor[(b, 1, n, m), f32], %y: Tensor[(3, 1, m), f32]", "add(%x, %y)"},
    {"dense_f64", "%x: Tensor[(n, m), f64], %y: Tensor[(n, m), f64]", "mul(%x, %y)"},
    {"add_f16", "%x: Tensor[(n, m), f16], %y: Tensor[(n, m), f16]", "add(%x, %y)"},
    {"add_bf16", "%x: Tensor[(n, m), bf16], %y: Tensor[(n, m), bf16]", "add(%x, %y)"},
    {"add_i8", "%x: Tensor[(n, m), i8], %y: Tensor[(n, m), i8]", "add(%x, %y)", {-100, 100}},
    {"mul_u8", "%x: Tensor[(n, m), u8], %y: Tensor[(n, m), u8]", "mul(%x, %y)", {0, 255}},
    {"sub_i16", "%x: Tensor[(n, m), i16], %y: Tensor[(n, m), i16]", "sub(%x, %y)", {-30000, 30000}},
    {"div_i32", "%x: Tensor[(n, m), i32], %y: Tensor[(n, m), i32]", "div(%x, %y)", {1, 50}},
    {"maximum_u64", "%x: Tensor[(n, m), u64], %y: Tensor[(n, m), u64]", "maximum(%x, %y)", {0, 50}},
    {"less_u32", "%x: Tensor[(n, m), u32], %y: Tensor[(n, m), u32]", "less(%x, %y)", {0, 50}},
};

}  // namespace

std::vector<Program> elementwise_programs() {
  std::vector<Program> out;
  for (const Row& r : kRows) {
    Program p{r.name, fmt::format("fn @main({}) {{ let %r = {}; %r }}", r.parameters, r.call)};
    p.values = r.values;
    out.push_back(std::move(p));
  }
  // Two symbols that may be 1, may be equal, and else do not go together.
  Program pair{"broadcast_pair",
               "fn @main(%x: Tensor[(n, k), f32], %y: Tensor[(m, k), f32]) "
               "{ let %r = add(%x, %y); let %s = exp(%r); %s }"};
  for (int64_t k : {1, 7})
    for (auto [n, m] :
         {std::pair<int64_t, int64_t>{1, 1}, {1, 7}, {7, 1}, {7, 7}, {2, 3}, {0, 1}, {0, 2}})
      pair.sizes.push_back({{"n", n}, {"m", m}, {"k", k}});
  out.push_back(pair);
  Program constant{"broadcast_symbol_to_constant",
                   "fn @main(%x: Tensor[(n, 5), f32], %y: Tensor[(4, 5), f32]) "
                   "{ let %r = mul(%x, %y); let %s = tanh(%r); %s }"};
  constant.sizes = {{{"n", 1}}, {{"n", 4}}, {{"n", 3}}, {{"n", 0}}};
  out.push_back(constant);
  Program unknown{"broadcast_unknown",
                  "fn @main(%x: Tensor[(?, 5), f32], %y: Tensor[(n, 1), f32]) "
                  "{ let %r = mul(%x, %y); %r }"};
  out.push_back(unknown);

  out.push_back(
      {"chain",
       R"(fn @main(%x: Tensor[(n, m), f32], %b: Tensor[(m), f32], %s: Tensor[(n, 1), f32]) {
  let %a = add(%x, %b);
  let %g = gelu(%a);
  let %t = mul(%g, %s);
  let %u = sub(%t, %x);
  let %v = maximum(%u, -0.25f32);
  let %w = sigmoid(%v);
  %w
})"});
  out.push_back({"diamond",
                 R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %a = exp(%x);
  let %b = tanh(%a);
  let %c = neg(%a);
  let %d = mul(%b, %c);
  let %e = add(%d, %a);
  let %r = (%e, %a, %d);
  %r
})"});
  out.push_back({"where_mask",
                 R"(fn @main(%x: Tensor[(b, n), f32], %lengths: Tensor[(b), i64]) {
  let %at = range() {count = n, start = 0, step = 1, dtype = i64};
  let %limit = unsqueeze(%lengths) {axes = [1]};
  let %inside = less(%at, %limit);
  let %far = full() {shape = (1,), dtype = f32, value = -1e9};
  let %masked = where(%inside, %x, %far);
  %masked
})",
                 {-2, 2},
                 {{"lengths", {0, 40}}}});
  out.push_back({"logic",
                 R"(fn @main(%x: Tensor[(n), f32], %y: Tensor[(n), i64], %p: Tensor[(n), bool]) {
  let %a = greater(%x, 0.5f32);
  let %b = less_equal(%y, 3i64);
  let %c = and(%a, %b);
  let %d = not(%p);
  let %e = or(%c, %d);
  let %f = cast(%e) {dtype = i64};
  let %g = mul(%f, %y);
  let %r = (%e, %g);
  %r
})",
                 {-2, 2},
                 {{"y", {-9, 9}}}});
  // A constant of each kind as an operand, folded and not.
  out.push_back({"constants",
                 R"(fn @main(%x: Tensor[(n, 4), f32]) {
  let %a = add(f32[4]{1, 2, 3, 4}, f32[1]{0.5});
  let %b = mul(%x, %a);
  let %c = sub(2.0f32, %b);
  let %d = pow(%c, 2.0f32);
  let %e = where(bool[4]{true, false, true, false}, %d, %x);
  %e
})"});
  out.push_back({"only_constants", R"(fn @main(%x: Tensor[(n), f32]) {
  let %a = exp(f32[3]{0, 1, 2});
  let %r = (%a, i64[2]{4, 5}, 7i64, true, 2.5f32);
  %r
})"});
  return out;
}

std::vector<Program> cast_programs() {
  std::vector<Program> out;
  for (int from = 0; from < kDTypeCount; ++from) {
    auto a = static_cast<DType>(from);
    std::string text = fmt::format("fn @main(%x: Tensor[(n), {}]) {{\n", name_of(a));
    std::string results;
    for (int to = 0; to < kDTypeCount; ++to) {
      auto b = static_cast<DType>(to);
      text += fmt::format("  let %c{} = cast(%x) {{dtype = {}}};\n", to, name_of(b));
      results += fmt::format("{}%c{}", to ? ", " : "", to);
    }
    text += "  let %r = (" + results + ");\n  %r\n}";
    Program p{fmt::format("cast_from_{}", name_of(a)), text};
    // Inside every target: what lies outside is a matter of the reference's own test.
    p.values = is_float(a) ? Range{0, 100} : Range{0, 100};
    p.sizes = {{{"n", 0}}, {{"n", 1}}, {{"n", 37}}};
    out.push_back(std::move(p));
    if (!is_signed_int(a) && !is_float(a)) continue;
    Program negative{fmt::format("cast_negative_from_{}", name_of(a)),
                     fmt::format("fn @main(%x: Tensor[(n), {}]) {{\n"
                                 "  let %a = cast(%x) {{dtype = i8}};\n"
                                 "  let %b = cast(%x) {{dtype = i64}};\n"
                                 "  let %c = cast(%x) {{dtype = f32}};\n"
                                 "  let %d = cast(%x) {{dtype = bool}};\n"
                                 "  let %r = (%a, %b, %c, %d);\n  %r\n}}",
                                 name_of(a))};
    negative.values = {-100, 100};
    negative.sizes = {{{"n", 65}}};
    out.push_back(std::move(negative));
  }
  return out;
}

}  // namespace nimble::driver::testing
