// Every operator of the reference interpreter against values worked out by hand or by a closed
// form: the oracle of all other tests is not its own judge.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"
#include "compiler/reference/region.h"

namespace nimble::reference {
namespace {

struct Row {
  const char* call;
  const char* expected;  // a constant; several results: separated by "; "
};

const Row kRows[] = {
    {"neg(f32[2]{1, -2})", "f32[2]{-1, 2}"},
    {"neg(i64[2]{1, -2})", "i64[2]{-1, 2}"},
    {"abs(f32[2]{1, -2})", "f32[2]{1, 2}"},
    {"exp(f32[3]{0, 1, -inf})", "f32[3]{1, 2.7182818, 0}"},
    {"log(f32[3]{1, 2.7182818, 0})", "f32[3]{0, 1, -inf}"},
    {"sqrt(f32[2]{4, 2})", "f32[2]{2, 1.4142135}"},
    {"rsqrt(f32[2]{4, 0.25})", "f32[2]{0.5, 2}"},
    {"reciprocal(f32[2]{4, -0.5})", "f32[2]{0.25, -2}"},
    {"tanh(f32[3]{0, 1, 100})", "f32[3]{0, 0.76159416, 1}"},
    {"sigmoid(f32[3]{0, 100, -200})", "f32[3]{0.5, 1, 0}"},
    {"erf(f32[2]{0, 1})", "f32[2]{0, 0.84270079}"},
    {"relu(f32[3]{-1, 0, 2})", "f32[3]{0, 0, 2}"},
    {"relu(f32[1]{nan})", "f32[1]{nan}"},
    {"gelu(f32[3]{0, 1, -1})", "f32[3]{0, 0.84134475, -0.15865525}"},
    {"gelu_tanh(f32[2]{0, 1})", "f32[2]{0, 0.84119199}"},
    {"softplus(f32[3]{0, 100, -100})", "f32[3]{0.69314718, 100, 0}"},
    {"leaky_relu(f32[2]{-2, 3}) {alpha = 0.5}", "f32[2]{-1, 3}"},
    {"floor(f32[2]{1.5, -1.5})", "f32[2]{1, -2}"},
    {"ceil(f32[2]{1.5, -1.5})", "f32[2]{2, -1}"},
    {"round(f32[4]{0.5, 1.5, 2.5, -0.5})", "f32[4]{0, 2, 2, 0}"},
    {"sin(f32[2]{0, 1.5707963})", "f32[2]{0, 1}"},
    {"cos(f32[2]{0, 3.1415927})", "f32[2]{1, -1}"},
    {"not(bool[2]{true, false})", "bool[2]{false, true}"},
    {"cast(f32[4]{1.9, -1.9, 300, nan}) {dtype = i32}", "i32[4]{1, -1, 300, 0}"},
    {"cast(f32[3]{1000, -1000, 7.9}) {dtype = i8}", "i8[3]{127, -128, 7}"},
    {"cast(i64[2]{300, -1}) {dtype = u8}", "u8[2]{44, 255}"},
    {"cast(f32[3]{0, 0.5, -1}) {dtype = bool}", "bool[3]{false, true, true}"},
    {"cast(bool[2]{true, false}) {dtype = f32}", "f32[2]{1, 0}"},
    {"cast(f32[2]{1.0009766, 2049}) {dtype = f16}", "f16[2]{1.0009766, 2048}"},
    {"cast(f32[1]{1.00390625}) {dtype = bf16}", "bf16[1]{1}"},
    {"clip(f32[3]{-2, 0, 2}) {min = -1.0, max = 1.5}", "f32[3]{-1, 0, 1.5}"},
    {"add(f32[2, 1]{1, 2}, f32[3]{10, 20, 30})", "f32[2, 3]{11, 21, 31, 12, 22, 32}"},
    {"add(i8[1]{127}, i8[1]{1})", "i8[1]{-128}"},
    {"sub(i64[2]{1, 5}, i64[1]{3})", "i64[2]{-2, 2}"},
    {"mul(f32[2]{2, 3}, 4.0f32)", "f32[2]{8, 12}"},
    {"div(f32[2]{1, -1}, f32[2]{4, 0})", "f32[2]{0.25, -inf}"},
    {"div(i64[4]{7, -7, 7, -7}, i64[4]{2, 2, -2, -2})", "i64[4]{3, -3, -3, 3}"},
    {"mod(i64[4]{7, -7, 7, -7}, i64[4]{3, 3, -3, -3})", "i64[4]{1, 2, -2, -1}"},
    {"mod(f32[2]{5.5, -5.5}, f32[2]{2, 2})", "f32[2]{1.5, 0.5}"},
    {"pow(f32[2]{2, 9}, f32[2]{10, 0.5})", "f32[2]{1024, 3}"},
    {"pow(i64[2]{3, -2}, i64[2]{4, 3})", "i64[2]{81, -8}"},
    {"maximum(f32[2]{1, 5}, f32[2]{3, 2})", "f32[2]{3, 5}"},
    {"minimum(i64[2]{1, 5}, i64[2]{3, 2})", "i64[2]{1, 2}"},
    {"equal(i64[2]{1, 2}, i64[2]{1, 3})", "bool[2]{true, false}"},
    {"not_equal(i64[2]{1, 2}, i64[2]{1, 3})", "bool[2]{false, true}"},
    {"less(f32[3]{1, 2, 3}, 2.0f32)", "bool[3]{true, false, false}"},
    {"less_equal(f32[3]{1, 2, 3}, 2.0f32)", "bool[3]{true, true, false}"},
    {"greater(f32[3]{1, 2, 3}, 2.0f32)", "bool[3]{false, false, true}"},
    {"greater_equal(f32[3]{1, 2, 3}, 2.0f32)", "bool[3]{false, true, true}"},
    {"and(bool[4]{true, true, false, false}, bool[4]{true, false, true, false})",
     "bool[4]{true, false, false, false}"},
    {"or(bool[4]{true, true, false, false}, bool[4]{true, false, true, false})",
     "bool[4]{true, true, true, false}"},
    {"where(bool[2]{true, false}, f32[2]{1, 2}, f32[1]{9})", "f32[2]{1, 9}"},
    {"reshape(f32[2, 3]{1, 2, 3, 4, 5, 6}) {shape = (3, -1)}", "f32[3, 2]{1, 2, 3, 4, 5, 6}"},
    {"reshape(f32[2, 3]{1, 2, 3, 4, 5, 6}, i64[2]{-1, 2})", "f32[3, 2]{1, 2, 3, 4, 5, 6}"},
    {"reshape(f32[2, 2]{1, 2, 3, 4}) {shape = (0, 2, 1)}", "f32[2, 2, 1]{1, 2, 3, 4}"},
    {"transpose(f32[2, 3]{1, 2, 3, 4, 5, 6}) {axes = [1, 0]}", "f32[3, 2]{1, 4, 2, 5, 3, 6}"},
    {"squeeze(f32[1, 2, 1]{1, 2}) {axes = [0, -1]}", "f32[2]{1, 2}"},
    {"unsqueeze(f32[2]{1, 2}) {axes = [0, 2]}", "f32[1, 2, 1]{1, 2}"},
    {"expand(f32[2, 1]{1, 2}) {shape = (2, 2)}", "f32[2, 2]{1, 1, 2, 2}"},
    {"slice(f32[5]{0, 1, 2, 3, 4}) {axes = [0], starts = (-4,), ends = (99,), steps = [2]}",
     "f32[2]{1, 3}"},
    {"slice(f32[5]{0, 1, 2, 3, 4}) {axes = [0], starts = (-1,), ends = (-99,), steps = [-2]}",
     "f32[3]{4, 2, 0}"},
    {"slice(f32[3]{0, 1, 2}) {axes = [0], starts = (2,), ends = (1,)}", "f32[0]{}"},
    {"concat(f32[1, 2]{1, 2}, f32[2, 2]{3, 4, 5, 6}) {axis = 0}", "f32[3, 2]{1, 2, 3, 4, 5, 6}"},
    {"concat(f32[2, 1]{1, 2}, f32[2, 2]{3, 4, 5, 6}) {axis = -1}", "f32[2, 3]{1, 3, 4, 2, 5, 6}"},
    {"pitched(f32[2, 2]{1, 2, 3, 4}) {axis = 1, extent = 3}", "f32[2, 3]{1, 2, 0, 3, 4, 0}"},
    {"pad(f32[2]{1, 2}) {before = [1], after = [2], value = 7.0}", "f32[5]{7, 1, 2, 7, 7}"},
    {"gather(f32[3, 2]{1, 2, 3, 4, 5, 6}, i64[2]{-1, 0}) {axis = 0}", "f32[2, 2]{5, 6, 1, 2}"},
    {"gather(f32[2, 3]{1, 2, 3, 4, 5, 6}, i64[2]{2, 0}) {axis = 1}", "f32[2, 2]{3, 1, 6, 4}"},
    {"gather_elements(f32[2, 3]{1, 2, 3, 4, 5, 6}, i64[2, 2]{2, 0, -1, 1}) {axis = 1}",
     "f32[2, 2]{3, 1, 6, 5}"},
    {"take_row(f32[2, 2]{1, 2, 3, 4}, 1i64)", "f32[2]{3, 4}"},
    {"write_row(f32[2, 2]{1, 2, 3, 4}, 0i64, f32[2]{8, 9})", "f32[2, 2]{8, 9, 3, 4}"},
    {"write_row(f32[3, 1]{1, 2, 3}, 1i64, f32[2, 1]{8, 9})", "f32[3, 1]{1, 8, 9}"},
    {"write_row(f32[2, 1]{1, 2}, 2i64, f32[0, 1]{})", "f32[2, 1]{1, 2}"},
    {"take_rows(f32[3, 1]{1, 2, 3}, 1i64) {count = 2}", "f32[2, 1]{2, 3}"},
    {"matmul(f32[2, 2]{1, 2, 3, 4}, f32[2, 1]{5, 6})", "f32[2, 1]{17, 39}"},
    {"matmul(f32[2, 2]{1, 2, 3, 4}, f32[2, 2]{5, 6, 7, 8}) {transpose_a = true}",
     "f32[2, 2]{26, 30, 38, 44}"},
    {"matmul(f32[2, 2]{1, 2, 3, 4}, f32[2, 2]{5, 6, 7, 8}) {transpose_b = true}",
     "f32[2, 2]{17, 23, 39, 53}"},
    {"matmul(f32[2]{1, 2}, f32[2]{3, 4})", "f32[]{11}"},
    {"matmul(f32[2, 1, 2]{1, 2, 3, 4}, f32[2]{5, 6})", "f32[2, 1]{17, 39}"},
    {"conv2d(f32[1, 1, 2, 2]{1, 2, 3, 4}, f32[1, 1, 2, 2]{1, 10, 100, 1000}, f32[1]{0.5}) {strides "
     "= [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1}",
     "f32[1, 1, 1, 1]{4321.5}"},
    // Of bytes, the first pixel in the padding; the sums are no bytes.
    {"conv2d(u8[1, 1, 1, 3]{1, 2, 255}, i8[1, 1, 1, 2]{-1, 3}, i32[1]{10}) {strides = [1, 1], pads "
     "= [0, 1, 0, 0], dilations = [1, 1], groups = 1, out = i32}",
     "i32[1, 1, 1, 3]{13, 15, 773}"},
    {"conv2d(f32[1, 2, 1, 3]{1, 2, 3, 4, 5, 6}, f32[2, 1, 1, 1]{10, 100}) {strides = [1, 2], pads "
     "= "
     "[0, 0, 0, 0], dilations = [1, 1], groups = 2}",
     "f32[1, 2, 1, 2]{10, 30, 400, 600}"},
    // Channels last: pixels (1, 4), (2, 5), (3, 6); one filter for each of two groups.
    {"conv2d(f32[1, 1, 3, 2]{1, 4, 2, 5, 3, 6}, f32[1, 1, 1, 2]{10, 100}) {strides = [1, 2], pads "
     "= [0, 0, 0, 0], dilations = [1, 1], groups = 2, layout = \"nhwc\"}",
     "f32[1, 1, 2, 2]{10, 400, 30, 600}"},
    // Two taps of two channels, each with two filters, beside a column of padding.
    {"conv2d(f32[1, 1, 2, 2]{1, 2, 3, 4}, f32[1, 2, 2, 2]{1, 10, 2, 20, 3, 30, 4, 40}, f32[2]{0.5, "
     "0}) {strides = [1, 1], pads = [0, 1, 0, 0], dilations = [1, 1], groups = 1, layout = "
     "\"nhwc\"}",
     "f32[1, 1, 2, 2]{11.5, 110, 30.5, 300}"},
    // Equal keys: the mean of the values; a mask of -inf on one: the other.
    {"attention(f32[1, 1, 2]{1, 1}, f32[1, 2, 2]{1, 1, 1, 1}, f32[1, 2, 2]{1, 2, 3, 4}) {heads = "
     "1, "
     "scale = 1.0}",
     "f32[1, 1, 2]{2, 3}"},
    {"attention(f32[1, 1, 2]{1, 1}, f32[1, 2, 2]{1, 1, 1, 1}, f32[1, 2, 2]{1, 2, 3, 4}, f32[1, 1, "
     "1, 2]{0, -inf}) {heads = 2, scale = 1.0}",
     "f32[1, 1, 2]{1, 2}"},
    {"sum(f32[2, 2]{1, 2, 3, 4}) {axes = [0], keepdims = true}", "f32[1, 2]{4, 6}"},
    {"sum(f32[2, 0]{}) {axes = [1], keepdims = false}", "f32[2]{0, 0}"},
    {"mean(f32[2, 2]{1, 2, 3, 4}) {axes = [1], keepdims = false}", "f32[2]{1.5, 3.5}"},
    {"reduce_max(f32[2, 2]{1, 2, 3, 4}) {axes = [0, 1], keepdims = false}", "f32[]{4}"},
    {"reduce_min(i64[2, 2]{1, 2, 3, -4}) {axes = [-1], keepdims = false}", "i64[2]{1, -4}"},
    {"prod(f32[3]{2, 3, 4}) {axes = [0], keepdims = true}", "f32[1]{24}"},
    {"argmax(f32[2, 3]{1, 3, 3, 5, 4, 5}) {axis = 1, keepdims = false}", "i64[2]{1, 0}"},
    {"softmax(f32[2]{1000, 1000}) {axis = 0}", "f32[2]{0.5, 0.5}"},
    {"softmax(f32[2, 2]{0, 0, 1.0986123, 0}) {axis = 0}", "f32[2, 2]{0.25, 0.5, 0.75, 0.5}"},
    {"log_softmax(f32[2]{0, 0}) {axis = -1}", "f32[2]{-0.69314718, -0.69314718}"},
    {"layer_norm(f32[1, 2]{1, 3}, f32[2]{2, 2}, f32[2]{10, 20}) {epsilon = 0.0, axis = 1}",
     "f32[1, 2]{8, 22}"},
    {"l2_normalize(f32[2]{3, 4}) {axis = 0, epsilon = 1e-12}", "f32[2]{0.6, 0.8}"},
    {"l2_normalize(f32[2]{0, 0}) {axis = 0, epsilon = 1e-12}", "f32[2]{0, 0}"},
    {"batch_norm(f32[1, 2, 1]{3, 5}, f32[2]{2, 1}, f32[2]{10, 20}, f32[2]{1, 5}, f32[2]{4, 1}) "
     "{epsilon = 0.0}",
     "f32[1, 2, 1]{12, 20}"},
    {"max_pool2d(f32[1, 1, 2, 3]{1, 2, 3, 6, 5, 4}) {kernel = [2, 2], strides = [1, 1], pads = [0, "
     "0, 0, 0], dilations = [1, 1], ceil_mode = false}",
     "f32[1, 1, 1, 2]{6, 5}"},
    {"max_pool2d(f32[1, 1, 1, 3]{1, 2, 3}) {kernel = [1, 2], strides = [1, 2], pads = [0, 0, 0, "
     "0], "
     "dilations = [1, 1], ceil_mode = true}",
     "f32[1, 1, 1, 2]{2, 3}"},
    {"max_pool2d(f32[1, 1, 3, 2]{1, 6, 2, 5, 3, 4}) {kernel = [1, 2], strides = [1, 1], pads = [0, "
     "0, 0, 0], dilations = [1, 1], ceil_mode = false, layout = \"nhwc\"}",
     "f32[1, 1, 2, 2]{2, 6, 3, 5}"},
    {"avg_pool2d(f32[1, 1, 2, 2]{1, 10, 3, 30}) {kernel = [1, 2], strides = [1, 1], pads = [0, 1, "
     "0, 0], dilations = [1, 1], ceil_mode = false, count_include_pad = true, layout = \"nhwc\"}",
     "f32[1, 1, 2, 2]{0.5, 5, 2, 20}"},
    {"avg_pool2d(f32[1, 1, 1, 2]{1, 3}) {kernel = [1, 2], strides = [1, 1], pads = [0, 1, 0, 0], "
     "dilations = [1, 1], ceil_mode = false, count_include_pad = true}",
     "f32[1, 1, 1, 2]{0.5, 2}"},
    {"avg_pool2d(f32[1, 1, 1, 2]{1, 3}) {kernel = [1, 2], strides = [1, 1], pads = [0, 1, 0, 0], "
     "dilations = [1, 1], ceil_mode = false, count_include_pad = false}",
     "f32[1, 1, 1, 2]{1, 2}"},
    {"avg_pool2d(f32[1, 1, 1, 1]{3}) {kernel = [1, 1], strides = [1, 1], pads = [0, 1, 0, 0], "
     "dilations = [1, 1], ceil_mode = false, count_include_pad = false}",
     "f32[1, 1, 1, 2]{0, 3}"},
    // i = f = o = 1/2, g = tanh(0) = 0: half the cell stays.
    {"lstm_cell(f32[1, 4]{0, 0, 0, 0}, f32[1, 1]{0}, f32[1, 1]{2}, f32[1, 4]{1, 1, 1, 1})",
     "f32[1, 1]{0.38079708}; f32[1, 1]{1}"},
    // Gates saturated: the cell takes g = 1 in, forgets the old, and lets it out.
    {"lstm_cell(f32[1, 4]{100, -100, 100, 100}, f32[1, 1]{0}, f32[1, 1]{7}, f32[1, 4]{0, 0, 0, 0})",
     "f32[1, 1]{0.76159416}; f32[1, 1]{1}"},
    // The first cell's half, then half of that; h of each step.
    {"lstm_steps(f32[2, 1, 4]{0, 0, 0, 0, 0, 0, 0, 0}, f32[1, 1]{0}, f32[1, 1]{2}, "
     "f32[1, 4]{0, 0, 0, 0}) {reverse = false}",
     "f32[2, 1, 1]{0.38079708, 0.23105858}; f32[1, 1]{0.23105858}; f32[1, 1]{0.5}"},
    // From the last row on: it takes g = 1 in, and then the first one forgets it.
    {"lstm_steps(f32[2, 1, 4]{-1000, -1000, 0, 100, 100, -1000, 100, 100}, f32[1, 1]{0}, "
     "f32[1, 1]{7}, f32[1, 4]{0, 0, 0, 0}) {reverse = true}",
     "f32[2, 1, 1]{0, 0.76159416}; f32[1, 1]{0}; f32[1, 1]{0}"},
    {"lstm_steps(f32[0, 1, 4]{}, f32[1, 1]{3}, f32[1, 1]{7}, f32[1, 4]{0, 0, 0, 0}) "
     "{reverse = true}",
     "f32[0, 1, 1]{}; f32[1, 1]{3}; f32[1, 1]{7}"},
    // The candidate, tanh(1), then h stays.
    {"gru_steps(f32[2, 1, 3]{-100, -100, 1, 0, 100, 5}, f32[1, 1]{0.25}, f32[1, 3]{0, 0, 0}, "
     "f32[3]{0, 0, 0}) {linear_before_reset = true, reverse = false}",
     "f32[2, 1, 1]{0.76159416, 0.76159416}; f32[1, 1]{0.76159416}"},
    // z saturated: h stays. z = 0: the candidate, tanh(1).
    {"gru_cell(f32[1, 3]{0, 100, 5}, f32[1, 1]{0.25}, f32[1, 3]{0, 0, 0}, f32[3]{0, 0, 0}) "
     "{linear_before_reset = true}",
     "f32[1, 1]{0.25}"},
    {"gru_cell(f32[1, 3]{-100, -100, 1}, f32[1, 1]{0.25}, f32[1, 3]{0, 0, 9}, f32[3]{0, 0, 0}) "
     "{linear_before_reset = true}",
     "f32[1, 1]{0.76159416}"},
    // Two units in panels of one: unit 1's candidate takes 2 of unit 0, unit 0's 1 of unit 1.
    {"packed_gru_cell(f32[1, 6]{100, 100, -100, -100, 0, 0}, f32[1, 2]{0.5, 0.25}, "
     "f32[2, 2, 3, 1]{0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0}, f32[6]{0, 0, 0, 0, 0, 0}, 3i64) "
     "{linear_before_reset = false, hidden = 2, layout = \"gate1\"}",
     "f32[1, 2]{0.24491866, 0.76159416}"},
    // The reset gate is 0: it takes the candidate's bias only where it applies after the product.
    {"packed_gru_cell(f32[1, 3]{-100, -100, 0}, f32[1, 1]{0.25}, f32[1, 1, 3, 2]{0, 0, 0, 0, 4, "
     "0}, "
     "f32[3]{0, 0, 1}, 0i64) {linear_before_reset = true, hidden = 1, layout = \"gate2\"}",
     "f32[1, 1]{0}"},
    {"packed_gru_cell(f32[1, 3]{-100, -100, 0}, f32[1, 1]{0.25}, f32[1, 1, 3, 2]{0, 0, 0, 0, 4, "
     "0}, "
     "f32[3]{0, 0, 1}, 0i64) {linear_before_reset = false, hidden = 1, layout = \"gate2\"}",
     "f32[1, 1]{0.76159416}"},
    {"shape_of(f32[2, 0, 3]{})", "i64[3]{2, 0, 3}"},
    {"size() {value = 6}", "i64[]{6}"},
    {"full(5i64) {shape = (2,), dtype = i64}", "i64[2]{5, 5}"},
    {"full() {shape = (1, 2), dtype = f32, value = -1.5}", "f32[1, 2]{-1.5, -1.5}"},
    {"range() {count = 3, start = 5, step = -2, dtype = i64}", "i64[3]{5, 3, 1}"},
    {"cumprod(f32[3]{1, 2, 3}) {axis = 0}", "f32[3]{1, 2, 6}"},
    {"cumprod(i64[3]{4, 2, 3}) {axis = 0, exclusive = true, reverse = true}", "i64[3]{6, 3, 1}"},
    {"scatter(f32[3]{1, 2, 3}, i64[2]{-1, 0}, f32[2]{9, 8}) {reduction = \"none\"}",
     "f32[3]{8, 2, 9}"},
    {"scatter(i32[2]{1, 2}, i64[3]{1, 1, 0}, i32[3]{5, 7, 3}) {reduction = \"mul\"}",
     "i32[2]{3, 70}"},
    // Of the vectors that the authors of Philox publish with Random123 (kat_vectors).
    {"random_bits(0i64, 0i64) {key = 0}", "u64[]{16242730742183356629}"},
    {"random_bits(i64[1]{-1}, -1i64) {key = -1}", "u64[1]{4740103540206151533}"},
    {"random_bits(-8817193942522041720i64, 247824715720788526i64) {key = 2999170649027065890}",
     "u64[]{10735962399924092425}"},
    {"bitcast(f32[3]{1, -0.0, -inf}) {dtype = i32}", "i32[3]{1065353216, -2147483648, -8388608}"},
    {"bitcast(u16[2]{15360, 49152}) {dtype = f16}", "f16[2]{1, -2}"},
    {"bitcast(u8[3]{0, 1, 2}) {dtype = bool}", "bool[3]{false, true, true}"},
    {"shift_left(u8[3]{1, 3, 255}, u8[3]{7, 8, 1})", "u8[3]{128, 0, 254}"},
    {"shift_right(i64[3]{-8, -8, 8}, i64[3]{1, 70, -1})", "i64[3]{-4, -1, 0}"},
    {"atan(f32[3]{0, 1, -inf})", "f32[3]{0, 0.78539816, -1.5707963}"},
    {"trunc(f32[3]{-1.5, 2.5, 0.25})", "f32[3]{-1, 2, 0}"},
    {"bitwise_and(i64[2]{5, -1}, i64[2]{3, 7})", "i64[2]{1, 7}"},
    {"bitwise_or(i32[2]{5, 8}, i32[2]{3, 1})", "i32[2]{7, 9}"},
    {"bitwise_xor(i64[2]{5, -1}, i64[2]{3, 1})", "i64[2]{6, -2}"},
    {"mod(f32[4]{-3, 3, -1, 5}, f32[4]{inf, inf, -inf, -3})", "f32[4]{inf, 3, -1, -1}"},
    {"cumsum(f32[3]{1, 2, 3}) {axis = 0}", "f32[3]{1, 3, 6}"},
    {"cumsum(f32[3]{1, 2, 3}) {axis = 0, exclusive = true}", "f32[3]{0, 1, 3}"},
    {"cumsum(i64[2, 2]{1, 2, 3, 4}) {axis = 0, reverse = true}", "i64[2, 2]{4, 6, 3, 4}"},
    {"assert_shape(f32[2]{1, 2}) {left = (2,), right = (2,), what = \"same\"}", "f32[2]{1, 2}"},
    {"device_copy(f32[2]{1, 2}) {device = 1}", "f32[2]{1, 2}"},
    {"on_device(i64[2]{1, 2}) {device = 1}", "i64[2]{1, 2}"},
    {"append(f32[1, 2]{1, 2}, f32[2, 2]{3, 4, 5, 6}) {axis = 0}", "f32[3, 2]{1, 2, 3, 4, 5, 6}"},
    {"tile(f32[2]{1, 2}) {repeats = (3)}", "f32[6]{1, 2, 1, 2, 1, 2}"},
    {"tile(i64[1, 2]{1, 2}) {repeats = (2, 2)}", "i64[2, 4]{1, 2, 1, 2, 1, 2, 1, 2}"},
    {"prefix(f32[3, 1]{1, 2, 3}) {count = 2}", "f32[2, 1]{1, 2}"},
    {"read_extents(i64[2]{4, -1}) {symbols = [\"a\", \"b\"]}", "i64[2]{4, -1}"},
    {"nonzero(f32[2, 2]{0, 3, 0, -1})", "i64[2, 2]{0, 1, 1, 1}"},
    {"nonzero(bool[2]{false, false})", "i64[1, 0]{}"},
    {"argwhere(f32[2, 2]{0, 3, 5, 0})", "i64[2, 2]{0, 1, 1, 0}"},
    {"compress(f32[3, 2]{1, 2, 3, 4, 5, 6}, bool[2]{false, true}) {axis = 0}", "f32[1, 2]{3, 4}"},
    {"compress(f32[2, 2]{1, 2, 3, 4}, bool[4]{true, false, false, true})", "f32[2]{1, 4}"},
    {"masked_select(i64[2, 2]{1, 2, 3, 4}, bool[2, 2]{false, true, true, false})", "i64[2]{2, 3}"},
    {"unique(i64[5]{3, 1, 3, 2, 1}) {sorted = true}",
     "i64[3]{1, 2, 3}; i64[3]{1, 3, 0}; i64[5]{2, 0, 2, 1, 0}; i64[3]{2, 1, 2}"},
    {"unique(i64[5]{3, 1, 3, 2, 1}) {sorted = false}",
     "i64[3]{3, 1, 2}; i64[3]{0, 1, 3}; i64[5]{0, 1, 0, 2, 1}; i64[3]{2, 2, 1}"},
    {"repeat(f32[2]{1, 2}, i64[2]{2, 1}) {axis = 0}", "f32[3]{1, 1, 2}"},
    {"repeat(f32[2]{1, 2}) {axis = 0, repeats = 2}", "f32[4]{1, 1, 2, 2}"},
    {"topk(f32[4]{1, 4, 4, 2}) {axis = 0, largest = true, k = 2}", "f32[2]{4, 4}; i64[2]{1, 2}"},
    {"topk(f32[3]{3, 1, 2}, 2i64) {axis = -1, largest = false}", "f32[2]{1, 2}; i64[2]{1, 2}"},
    // The second box overlaps the first by 9/11, the third by nothing.
    {"nms(f32[1, 3, 4]{0, 0, 1, 1, 0, 0.1, 1, 1.1, 2, 2, 3, 3}, f32[1, 1, 3]{0.9, 0.8, 0.7}, "
     "0.5f32, 0.0f32) {center = false, limit = 3}",
     "i64[2, 3]{0, 0, 0, 0, 0, 2}"},
    {"count.nonzero(f32[3]{0, 3, nan})", "i64[1]{2}"},
    {"count.unique(i64[5]{3, 1, 3, 2, 1})", "i64[1]{3}"},
    {"count.repeat(i64[3]{2, 0, 1})", "i64[1]{3}"},
    {"count.range(0i64, 7i64, 2i64)", "i64[1]{4}"},
    // A byte holds two rows: 0xa3 the numbers 3 and 10, less 8 or a zero point, by a scale.
    {"blockwise_matmul(f32[2, 2]{1, 2, 3, -1}, u8[1, 1, 8]{163, 0, 0, 0, 0, 0, 0, 0}, f32[1, "
     "1]{0.5}) "
     "{bits = 4, block = 16, k = 2, n = 1}",
     "f32[2, 1]{-0.5, -8.5}"},
    {"blockwise_matmul(f32[1, 2]{1, 2}, u8[1, 1, 8]{163, 0, 0, 0, 0, 0, 0, 0}, f32[1, 1]{0.5}, "
     "u8[1, 1]{5}) "
     "{bits = 4, block = 16, k = 2, n = 1}",
     "f32[1, 1]{4}"},
    {"blockwise_matmul(f32[2]{1, 2}, u8[1, 1, 8]{163, 0, 0, 0, 0, 0, 0, 0}, f32[1, 1]{0.5}, f32[1, "
     "1]{2.5}) "
     "{bits = 4, block = 16, k = 2, n = 1}",
     "f32[1]{7.75}"},
    // Two columns of two blocks: the 17th row has the second scale.
    {"blockwise_matmul(f32[1, 17]{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10}, u8[2, 2, "
     "8]{9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, "
     "0, 0, 0}, "
     "f32[2, 2]{1, 2, 3, 4}) {bits = 4, block = 16, k = 17, n = 2}",
     "f32[1, 2]{-19, 148}"},
    {"blockwise_matmul(f32[1, 2]{1, 2}, u8[1, 1, 16]{130, 120, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
     "0, 0}, f32[1, 1]{0.25}) "
     "{bits = 8, block = 16, k = 2, n = 1}",
     "f32[1, 1]{-3.5}"},
    // Packed: a word of a column holds rows 0 to 3 in the lower halves of its bytes, 4 to 7 above.
    {"blockwise_matmul(f32[1, 5]{1, 1, 1, 1, 1}, u8[1, 1, 4, 4]{122, 9, 8, 12, 0, 0, 0, 0, 0, 0, "
     "0, 0, 0, 0, 0, 0}, "
     "f32[1, 1, 4]{0.5, 0, 0, 0}) {bits = 4, block = 16, k = 5, n = 1, layout = \"panel4x8\"}",
     "f32[1, 1]{3}"},
    {"blockwise_matmul(f32[1, 2]{1, 2}, u8[1, 1, 2, 4]{130, 120, 0, 0, 1, 2, 0, 0}, "
     "f32[1, 1, 2]{0.25, 1}, u8[1, 1, 2]{128, 3}) "
     "{bits = 8, block = 16, k = 2, n = 2, layout = \"panel2x4\"}",
     "f32[1, 2]{-3.5, -4}"},
    // Activations in steps of max |x| / 127 of their block, ties to even.
    {"blockwise_matmul(f32[1, 2]{127, 2.5}, u8[1, 1, 16]{130, 120, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
     "0, 0, 0, 0}, f32[1, 1]{0.25}) "
     "{bits = 8, block = 16, k = 2, n = 1, activations = i8}",
     "f32[1, 1]{59.5}"},
    {"blockwise_matmul(f32[3, 2]{nan, 1, -inf, 0, 0, 0}, u8[1, 1, 16]{130, 120, 0, 0, 0, 0, 0, 0, "
     "0, 0, 0, 0, 0, 0, 0, 0}, "
     "f32[1, 1]{0.25}) {bits = 8, block = 16, k = 2, n = 1, activations = i8}",
     "f32[3, 1]{nan, nan, 0}"},
    {"count.range(0.0f32, -1.0f32, 0.5f32)", "i64[1]{0}"},
};

ir::TensorRef constant(const std::string& text) {
  ir::Module m = ir::parse_module("fn @main() { " + text + " }");
  return Interpreter(m).run_tensors("main", {}).at(0);
}

TEST(Operators, GiveTheValuesWorkedOutByHand) {
  for (const Row& r : kRows) {
    SCOPED_TRACE(r.call);
    ir::Module m = ir::parse_module(fmt::format("fn @main() {{ let %r = {}; %r }}", r.call));
    std::vector<ir::TensorRef> got = Interpreter(m).run_tensors("main", {});
    std::string expected = r.expected;
    size_t count = 0;
    for (size_t at = 0; at != std::string::npos; ++count) {
      size_t end = expected.find("; ", at);
      ir::TensorRef want = constant(expected.substr(at, end == std::string::npos ? end : end - at));
      at = end == std::string::npos ? end : end + 2;
      ASSERT_LT(count, got.size());
      ASSERT_EQ(got[count]->dtype, want->dtype);
      ASSERT_EQ(got[count]->shape, want->shape);
      for (int64_t i = 0; i < want->elements(); ++i) {
        double a = got[count]->value(i), b = want->value(i);
        if (std::isnan(b) || std::isinf(b))
          EXPECT_TRUE(std::isnan(b) ? std::isnan(a) : a == b) << a << " at " << i;
        else
          EXPECT_NEAR(a, b, 2e-7 * std::max(1.0, std::abs(b))) << "at " << i;
      }
    }
    EXPECT_EQ(got.size(), count);
  }
}

// An operator computed in parts (region.h) is the operator.
TEST(Operators, GiveEachElementByItself) {
  size_t compared = 0;
  for (const Row& r : kRows) {
    SCOPED_TRACE(r.call);
    const ir::Module m =
        ir::infer_types(ir::parse_module(fmt::format("fn @main() {{ let %r = {}; %r }}", r.call)));
    const ir::FunctionRef f = m.find("main");
    const std::vector<ir::TensorRef> whole = Interpreter(m).run_tensors("main", {});
    const ir::Type& t = f->result_type;
    const auto types = t->kind == ir::TypeKind::kTuple ? t->elements : std::vector<ir::Type>{t};
    const bool constant = std::all_of(types.begin(), types.end(), [](const ir::Type& x) {
      return std::all_of(x->dims.begin(), x->dims.end(),
                         [](const ir::Dim& d) { return d.as_constant().has_value(); });
    });
    if (!constant || f->body->bindings.size() != 1) continue;  // extents that the run decides
    RegionEvaluator parts(f, {});
    for (size_t k = 0; k < whole.size(); ++k)
      for_each(whole[k]->shape, [&](const Shape& at, int64_t flat) {
        const ir::TensorRef one = parts.evaluate(k, {at, Shape(at.size(), 1)});
        const double a = one->value(0), b = whole[k]->value(flat);
        EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << a << " for " << b;
        ++compared;
      });
  }
  EXPECT_GT(compared, 300u);
}

TEST(Operators, NoneIsWithoutARow) {
  for (const ir::OpInfo& op : ir::all_ops()) {
    // Packed forms: packed_operators_test.cpp. The memory dialect is the VM's.
    if (op.name.starts_with("memory.") || op.name.starts_with("pack")) continue;
    if (op.fusion == ir::FusionKind::kData) continue;  // data_test.cpp
    if (op.name == "nms.bounded") continue;  // rows beyond its count are anything: nms above
    bool found = false;
    for (const Row& r : kRows) found |= std::string(r.call).starts_with(op.name + "(");
    EXPECT_TRUE(found) << op.name;
  }
}

}  // namespace
}  // namespace nimble::reference
