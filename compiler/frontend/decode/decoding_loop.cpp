// The loop around a step model, written as IR:
//
//   fn @main(%input_ids, %max_new) {
//     … max_new > 0 ?  the step on the whole prompt, past empty;
//                      @decode([], its last logits, …, its states); behind the prompt
//   }
//   fn @decode(%new (t), %logits, %limit, …, states) {
//     choose a token; append it to %new
//     ended or t + 1 = limit ?  %new : the step on that token; @decode(…)
//   }
//
// The step stands in both as a copy of its own, with its symbols replaced: on the prompt the past
// is 0, in the loop n is 1. So each gets kernels for its extents, and the bodies are blocks of the
// functions that own the states: what a call returned could not grow in place.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/frontend/decode/step_model.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/substitute.h"
#include "vm/base/error.h"

namespace nimble::frontend {
namespace {

using ir::Atom;
using ir::BlockBuilder;
using ir::Dim;
using ir::VarRef;
using Axes = std::vector<int64_t>;

Atom number(int64_t v) {
  return Atom::of(ir::Tensor::scalar_i64(v));
}

class LoopBuilder {
 public:
  LoopBuilder(const ir::Module& step, const DecodeOptions& options)
      : step_(step),
        options_(options),
        model_(analyse_step(step, options)),
        main_(step.find("main")),
        sampled_(options.choice == "sample") {}

  ir::Module run() {
    ir::Module out = step_;
    while (out.find(loop_name_)) loop_name_ += "_";
    out.set("main", entry());
    out.set(loop_name_, loop());
    ir::Module::Signature& s = out.signatures["main"];
    s = {{"input_ids", "max_new"}, {"sequences"}, {"", ""}};
    if (sampled_) {
      s.input_names.insert(s.input_names.end(), {"temperature", "uniform"});
      s.input_defaults.insert(s.input_defaults.end(), {"ones", ""});
    }
    return out;
  }

 private:
  // temperature and uniform, where the choice needs them.
  std::vector<VarRef> draw_parameters() const {
    if (!sampled_) return {};
    return {ir::make_var("temperature", ir::tensor_type({}, DType::kF32)),
            ir::make_var("uniform", ir::tensor_type({Dim::symbol("draws")}, DType::kF32))};
  }

  // Appends a copy of the step; returns its results. `n` tokens stand behind `past` positions.
  std::vector<Atom> append_step(BlockBuilder& b, const Atom& tokens, const Dim& n, const Dim& past,
                                const std::vector<Atom>& states) const {
    std::map<std::string, Dim> values = {{model_.n, n}, {model_.past, past}};
    if (model_.batch) values[*model_.batch] = 1;
    if (model_.total) values[*model_.total] = n + past;
    const ir::FunctionRef step = ir::substitute(*main_, values);
    const auto bind = [&](size_t parameter, ir::ExprRef value) {
      b.append({step->parameters[parameter], std::move(value)});
    };
    const auto dtype = [&](size_t parameter) { return step->parameters[parameter]->type->dtype; };
    bind(model_.tokens, ir::make_call("cast", {tokens}, {{"dtype", dtype(model_.tokens)}}));
    if (model_.mask)
      bind(*model_.mask, ir::make_call("full", {},
                                       {{"shape", std::vector<Dim>{1, n + past}},
                                        {"dtype", dtype(*model_.mask)},
                                        {"value", 1.0}}));
    if (model_.positions) {
      const VarRef row = b.call(
          "range", {},
          {{"count", n}, {"start", past}, {"step", Dim(1)}, {"dtype", dtype(*model_.positions)}},
          "positions");
      bind(*model_.positions, ir::make_call("unsqueeze", {row}, {{"axes", Axes{0}}}));
    }
    for (size_t i = 0; i < states.size(); ++i)
      bind(model_.states[i].input, ir::make_atom(states[i]));
    for (const ir::Binding& binding : step->body->bindings) b.append(binding);
    std::vector<Atom> results;
    for (size_t i = 0; i < main_->result_type->elements.size(); ++i)
      results.push_back(
          b.bind(ir::make_get_field(step->body->result, static_cast<int64_t>(i)), "result"));
    return results;
  }

  std::vector<Atom> states_of(const std::vector<Atom>& results) const {
    std::vector<Atom> states;
    for (const StepModel::State& s : model_.states) states.push_back(results[s.output]);
    return states;
  }

  ir::Type state_type(const StepModel::State& s, const Dim& length) const {
    ir::Type t = main_->parameters[s.input]->type;
    std::vector<Dim> dims = t->dims;
    for (Dim& d : dims)
      if (model_.batch && d == Dim::symbol(*model_.batch)) d = 1;
    dims[static_cast<size_t>(s.axis)] = length;
    return ir::tensor_type(std::move(dims), t->dtype);
  }

  ir::FunctionRef entry() const {
    const Dim n = Dim::symbol("n");
    const VarRef ids = ir::make_var("input_ids", ir::tensor_type({1, n}, DType::kI64));
    const VarRef max_new = ir::make_var("max_new", ir::tensor_type({}, DType::kI64));
    std::vector<VarRef> parameters = {ids, max_new};
    const std::vector<VarRef> draws = draw_parameters();
    parameters.insert(parameters.end(), draws.begin(), draws.end());

    BlockBuilder b;
    if (sampled_) refuse_negative(b, draws[0]);
    Atom limit = max_new;
    if (options_.context > 0) {
      const VarRef length = b.call("size", {}, {{"value", n}}, "length");
      const VarRef room = b.call("sub", {number(options_.context), length}, {}, "room");
      limit = b.call("minimum", {max_new, room}, {}, "limit");
    }
    const VarRef some = b.call("less", {number(0), limit}, {}, "some");

    BlockBuilder decoded, unchanged;
    std::vector<Atom> empty;
    for (const StepModel::State& s : model_.states) empty.push_back(empty_state(s));
    const std::vector<Atom> results = append_step(decoded, ids, n, 0, empty);
    const VarRef rows =
        decoded.call("squeeze", {results[model_.logits]}, {{"axes", Axes{0}}}, "rows");
    const VarRef at = decoded.call("size", {}, {{"value", n - 1}}, "at");
    const VarRef last = decoded.call("take_row", {rows, at}, {}, "last");
    const VarRef logits = decoded.call("unsqueeze", {last}, {{"axes", Axes{0}}}, "logits");
    std::vector<Atom> arguments = {Atom::of(ir::Tensor::of<int64_t>(DType::kI64, {0}, {})), logits,
                                   limit};
    arguments.insert(arguments.end(), draws.begin(), draws.end());
    for (const Atom& s : states_of(results)) arguments.push_back(s);
    const VarRef added = decoded.bind(
        ir::make_call_function(Atom::of_global(loop_name_), std::move(arguments)), "added");
    const VarRef row = decoded.call("unsqueeze", {added}, {{"axes", Axes{0}}}, "added");
    const VarRef all = decoded.call("concat", {ids, row}, {{"axis", int64_t{1}}}, "sequence");
    const VarRef r =
        b.bind(ir::make_if(some, decoded.finish(all), unchanged.finish(ids)), "sequences");
    return ir::make_function_of(std::move(parameters), b.finish(r),
                                ir::tensor_type({1, Dim::any()}, DType::kI64));
  }

  // It would prefer the least likely tokens. (0 takes the most likely one.)
  static void refuse_negative(BlockBuilder& b, const VarRef& temperature) {
    const VarRef zero_above =
        b.call("greater", {Atom::of(ir::Tensor::of<float>(DType::kF32, {}, {0.0F})), temperature});
    const VarRef count = b.call("cast", {zero_above}, {{"dtype", DType::kI64}});
    const std::string symbol = "negative_temperatures";
    const VarRef read =
        b.call("read_extents", {count}, {{"symbols", std::vector<std::string>{symbol}}});
    b.call("assert_shape", {read},
           {{"left", std::vector<Dim>{Dim::symbol(symbol)}},
            {"right", std::vector<Dim>{0}},
            {"what", std::string("decode: the input temperature must not be negative")}},
           "checked");
  }

  Atom empty_state(const StepModel::State& s) const {
    const ir::Type t = state_type(s, 0);
    std::vector<int64_t> extents;
    for (const Dim& d : t->dims) extents.push_back(*d.as_constant());
    uint8_t* nothing = nullptr;
    return Atom::of(ir::Tensor::make(t->dtype, std::move(extents), &nothing));
  }

  ir::FunctionRef loop() const {
    const Dim t = Dim::symbol("t"), past = Dim::symbol("past");
    const VarRef made = ir::make_var("new", ir::tensor_type({t}, DType::kI64));
    const ir::Type scores = main_->result_type->elements[model_.logits];
    const VarRef logits =
        ir::make_var("logits", ir::tensor_type({1, Dim(model_.vocabulary)}, scores->dtype));
    const VarRef limit = ir::make_var("limit", ir::tensor_type({}, DType::kI64));
    std::vector<VarRef> parameters = {made, logits, limit};
    const std::vector<VarRef> draws = draw_parameters();
    parameters.insert(parameters.end(), draws.begin(), draws.end());
    std::vector<Atom> states;
    for (const StepModel::State& s : model_.states) {
      const VarRef p = ir::make_var("state", state_type(s, past));
      parameters.push_back(p);
      states.push_back(p);
    }

    BlockBuilder b;
    const VarRef chosen = sampled_ ? draw(b, logits, draws, t)
                                   : b.call("argmax", {logits},
                                            {{"axis", int64_t{1}}, {"keepdims", false}}, "chosen");
    const VarRef longer = b.call("concat", {made, chosen}, {{"axis", int64_t{0}}}, "longer");
    const VarRef count = b.call("size", {}, {{"value", t + 1}}, "count");
    VarRef done = b.call("greater_equal", {count, limit}, {}, "done");
    if (options_.end_token >= 0) {
      const VarRef token = b.call("squeeze", {chosen}, {{"axes", Axes{0}}}, "token");
      const VarRef ended = b.call("equal", {token, number(options_.end_token)}, {}, "ended");
      done = b.call("or", {done, ended}, {}, "done");
    }
    BlockBuilder finished, more;
    const VarRef ids = more.call("unsqueeze", {chosen}, {{"axes", Axes{1}}}, "ids");
    const std::vector<Atom> results = append_step(more, ids, 1, past, states);
    const VarRef next =
        more.call("squeeze", {results[model_.logits]}, {{"axes", Axes{1}}}, "logits");
    std::vector<Atom> arguments = {longer, next, limit};
    arguments.insert(arguments.end(), draws.begin(), draws.end());
    for (const Atom& s : states_of(results)) arguments.push_back(s);
    const VarRef rest = more.bind(
        ir::make_call_function(Atom::of_global(loop_name_), std::move(arguments)), "rest");
    const VarRef r = b.bind(ir::make_if(done, finished.finish(longer), more.finish(rest)), "all");
    return ir::make_function_of(std::move(parameters), b.finish(r),
                                ir::tensor_type({Dim::any()}, DType::kI64));
  }

  // The first of the most likely tokens at which their cumulated probability exceeds the draw.
  VarRef draw(BlockBuilder& b, const VarRef& logits, const std::vector<VarRef>& draws,
              const Dim& t) const {
    const int64_t k = std::min(options_.top_k, model_.vocabulary);
    const auto axis = [](int64_t a) { return ir::Attrs{{"axis", a}}; };
    const VarRef top =
        b.call("topk", {logits}, {{"axis", int64_t{1}}, {"largest", true}, {"k", Dim(k)}}, "top");
    const VarRef values = b.bind(ir::make_get_field(top, 0), "values");
    const VarRef tokens = b.bind(ir::make_get_field(top, 1), "tokens");
    const VarRef wide = b.call("cast", {values}, {{"dtype", DType::kF32}}, "values");
    const VarRef scaled = b.call("div", {wide, draws[0]}, {}, "scaled");
    const VarRef p = b.call("softmax", {scaled}, axis(1), "p");
    const VarRef reached = b.call("cumsum", {p}, axis(1), "reached");
    const VarRef number_of = b.call("size", {}, {{"value", t}}, "number");
    const VarRef u = b.call("take_row", {draws[1], number_of}, {}, "u");
    const VarRef passed = b.call("less_equal", {reached, u}, {}, "passed");
    const VarRef ones = b.call("cast", {passed}, {{"dtype", DType::kI64}}, "ones");
    const VarRef rank = b.call("sum", {ones}, {{"axes", Axes{0, 1}}, {"keepdims", false}}, "rank");
    const VarRef within = b.call("minimum", {rank, number(k - 1)}, {}, "rank");
    const VarRef place = b.call("unsqueeze", {within}, {{"axes", Axes{0}}}, "place");
    const VarRef chosen = b.call("gather", {tokens, place}, axis(1), "chosen");
    return b.call("squeeze", {chosen}, {{"axes", Axes{0}}}, "chosen");
  }

  const ir::Module& step_;
  const DecodeOptions& options_;
  StepModel model_;
  ir::FunctionRef main_;
  bool sampled_;
  std::string loop_name_ = "decode";
};

}  // namespace

ir::Module decoding_loop(const ir::Module& step, const DecodeOptions& options) {
  if (options.choice != "greedy" && options.choice != "sample")
    throw Error(Status::kInvalidArgument, "decode " + options.choice,
                "is not a way to choose a token", "the ways are greedy and sample");
  if (options.top_k < 1)
    throw Error(Status::kInvalidArgument, fmt::format("top-k {}", options.top_k),
                "leaves no token to choose", "give 1 or more");
  return LoopBuilder(step, options).run();
}

}  // namespace nimble::frontend
