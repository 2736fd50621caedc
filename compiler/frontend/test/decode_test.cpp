// The loop around a step: what it asks of the model, and that it computes what a caller's loop of
// single steps does. compiler/driver/test/decode_test.cpp runs it compiled.
#include "compiler/frontend/decode/decode.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "compiler/frontend/test/support.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"

namespace nimble::frontend {
namespace {

using testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// A step without weights: the logits are sums of the past and the new rows.
const char* const kStep = R"(
signature @main {inputs = ["input_ids", "past.0"], outputs = ["logits", "present.0"], defaults = ["", ""]};
fn @main(%ids: Tensor[(b, n), i64], %past: Tensor[(b, m, 3), f32]) {
  let %f = cast(%ids) {dtype = f32};
  let %u = unsqueeze(%f) {axes = [2]};
  let %new = mul(%u, f32[3]{1, -0.5, 0.25});
  let %present = concat(%past, %new) {axis = 1};
  let %s = sum(%present) {axes = [1], keepdims = true};
  let %t = sub(%s, %new);
  let %logits = sin(%t);
  let %r = (%logits, %present);
  %r
}
)";

DecodeOptions greedy() {
  DecodeOptions o;
  o.choice = "greedy";
  return o;
}

ir::Module looped(const std::string& text, const DecodeOptions& options) {
  return ir::infer_types(decoding_loop(ir::infer_types(ir::parse_module(text)), options));
}

std::vector<ir::TensorRef> run(const ir::Module& m, const std::vector<ir::TensorRef>& inputs) {
  return reference::Interpreter(m).run_tensors("main", inputs);
}

std::string message(const std::string& text, const DecodeOptions& options = greedy()) {
  try {
    looped(text, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalidArgument);
    return e.what();
  }
  return "no error";
}

TEST(Decode, TheLoopTakesAPromptAndALimit) {
  const ir::Module m = looped(kStep, greedy());
  EXPECT_EQ(ir::str(m.find("main")->parameters[0]->type), "Tensor[(1, n), i64]");
  EXPECT_EQ(m.signatures.at("main").input_names,
            (std::vector<std::string>{"input_ids", "max_new"}));
  EXPECT_EQ(m.signatures.at("main").output_names, std::vector<std::string>{"sequences"});
  EXPECT_TRUE(ir::verify(m).empty());
  DecodeOptions sample = greedy();
  sample.choice = "sample";
  EXPECT_EQ(looped(kStep, sample).signatures.at("main").input_names.size(), 4U);
}

// A caller's loop over single steps by the reference interpreter.
std::vector<int64_t> step_by_step(const ir::Module& step, std::vector<int64_t> ids, int64_t steps,
                                  int64_t end) {
  auto past = ir::Tensor::of<float>(DType::kF32, {1, 0, 3}, {});
  std::vector<int64_t> next = ids;
  for (int64_t i = 0; i < steps; ++i) {
    const auto n = static_cast<int64_t>(next.size());
    const auto out = run(step, {ir::Tensor::of<int64_t>(DType::kI64, {1, n}, next), past});
    const auto logits = out[0]->as<float>().last(3);
    next = {std::max_element(logits.begin(), logits.end()) - logits.begin()};
    past = out[1];
    ids.push_back(next[0]);
    if (next[0] == end) break;
  }
  return ids;
}

TEST(Decode, EqualsACallersLoopOfSteps) {
  const ir::Module step = ir::infer_types(ir::parse_module(kStep));
  std::mt19937 random(1);
  for (int64_t end : {-1, 2})
    for (int64_t n : {1, 2, 7})
      for (int64_t steps : {0, 1, 2, 13}) {
        DecodeOptions options = greedy();
        options.end_token = end;
        std::vector<int64_t> ids(static_cast<size_t>(n));
        for (int64_t& id : ids) id = static_cast<int64_t>(random() % 3);
        const auto out =
            run(looped(kStep, options),
                {ir::Tensor::of<int64_t>(DType::kI64, {1, n}, ids), ir::Tensor::scalar_i64(steps)});
        const auto got = out[0]->as<int64_t>();
        EXPECT_EQ(std::vector<int64_t>(got.begin(), got.end()), step_by_step(step, ids, steps, end))
            << n << " tokens, " << steps << " steps, end " << end;
      }
}

TEST(Decode, TheContextEndsASequence) {
  DecodeOptions options = greedy();
  options.context = 5;
  const ir::Module m = looped(kStep, options);
  for (int64_t n : {3, 5, 8}) {
    const auto ids = ir::Tensor::of<int64_t>(DType::kI64, {1, n},
                                             std::vector<int64_t>(static_cast<size_t>(n), 1));
    const auto out = run(m, {ids, ir::Tensor::scalar_i64(100)});
    EXPECT_EQ(out[0]->shape, (std::vector<int64_t>{1, std::max<int64_t>(n, 5)}));
  }
}

TEST(Decode, NamesOfStatesMayBeGiven) {
  const std::string text = replaced(replaced(kStep, "past.0", "cache"), "present.0", "longer");
  EXPECT_THAT(message(text),
              HasSubstr("no input is called as the past of an output; say which with "
                        "--decode-state INPUT=OUTPUT; inputs are input_ids, cache"));
  DecodeOptions options = greedy();
  options.states = {parse_state("cache=longer")};
  EXPECT_EQ(message(text, options), "no error");
  options.states = {parse_state("past.*=longer.*")};
  EXPECT_THAT(message(text, options), HasSubstr("no input and output are past.* and longer.*"));
  for (const char* bad : {"", "past", "past=", "=present", "past.*=present", "a**=b**"})
    EXPECT_THROW(parse_state(bad), Error) << bad;
}

TEST(Decode, SaysWhatIsNoStep) {
  EXPECT_THAT(message(replaced(kStep, "signature @main", "signature @other") +
                      "fn @other(%a: Tensor[(2), f32], %b: Tensor[(2), f32]) { let %r = (%a, %b); "
                      "%r }"),
              HasSubstr("have no names"));
  EXPECT_THAT(message(replaced(kStep, "\"input_ids\"", "\"tokens\"")),
              HasSubstr("nothing is known of its input tokens Tensor[(b, n), i64]"));
  EXPECT_THAT(message(replaced(kStep, "(b, n), i64]", "(b, 1), i64]")),
              HasSubstr("it takes 1 tokens at once; export it with a symbol there"));
  EXPECT_THAT(message(replaced(kStep, "%r = (%logits, %present)", "%r = (%logits, %past)")),
              HasSubstr("past.0 Tensor[(b, m, 3), f32] becomes present.0"));
  EXPECT_THAT(message(replaced(kStep, "%r = (%logits, %present)", "%r = (%s, %logits)")),
              HasSubstr("a step makes each state longer by its tokens, m + n here"));
  DecodeOptions options = greedy();
  options.choice = "guess";
  EXPECT_THAT(message(kStep, options), HasSubstr("the ways are greedy and sample"));
  options = greedy();
  options.top_k = 0;
  EXPECT_THAT(message(kStep, options), HasSubstr("leaves no token to choose"));
}

}  // namespace
}  // namespace nimble::frontend
