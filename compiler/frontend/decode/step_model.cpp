#include "compiler/frontend/decode/step_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "vm/base/error.h"

namespace nimble::frontend {
namespace {

using Names = std::vector<std::string>;

// What exporters call the past and the present.
const std::vector<std::pair<std::string, std::string>> kCommonStates = {
    {"past_key_values.*", "present.*"},
    {"past_key_values.*", "present_key_values.*"},
    {"past_*", "present_*"},
    {"past.*", "present.*"}};

class Analysis {
 public:
  Analysis(const ir::Module& step, const DecodeOptions& options)
      : step_(step), options_(options), main_(step.find("main")) {
    const auto signature = step.signatures.find("main");
    if (!main_ || signature == step.signatures.end())
      fail("the entry function's inputs and outputs have no names",
           "give an ONNX model, or text IR with a signature");
    inputs_ = signature->second.input_names;
    outputs_ = signature->second.output_names;
    const ir::Type& result = main_->result_type;
    if (result->kind != ir::TypeKind::kTuple || result->elements.size() != outputs_.size())
      fail("it returns one tensor", "a step returns logits and its states");
  }

  StepModel run() {
    find_states();
    find_inputs();
    check_growth();
    find_logits();
    return model_;
  }

 private:
  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const {
    throw Error(Status::kInvalidArgument, step_.source, "is not a step of a decoder: " + problem,
                remedy);
  }

  const ir::Type& input(size_t i) const { return main_->parameters[i]->type; }
  const ir::Type& output(size_t i) const { return main_->result_type->elements[i]; }

  // The outputs' numbers by the inputs' that a pattern pairs.
  std::map<size_t, size_t> paired(const std::pair<std::string, std::string>& pattern) const {
    std::map<size_t, size_t> pairs;
    const size_t star = pattern.first.find('*');
    const std::string before = pattern.first.substr(0, star);
    const std::string after = star == std::string::npos ? "" : pattern.first.substr(star + 1);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& name = inputs_[i];
      std::string wanted = pattern.second;
      if (star == std::string::npos) {
        if (name != pattern.first) continue;
      } else {
        if (name.size() < before.size() + after.size() || !name.starts_with(before) ||
            !name.ends_with(after))
          continue;
        wanted.replace(wanted.find('*'), 1,
                       name.substr(before.size(), name.size() - before.size() - after.size()));
      }
      const auto it = std::find(outputs_.begin(), outputs_.end(), wanted);
      if (it != outputs_.end()) pairs[i] = static_cast<size_t>(it - outputs_.begin());
    }
    return pairs;
  }

  void find_states() {
    std::map<size_t, size_t> pairs;
    if (options_.states.empty()) {
      for (const auto& pattern : kCommonStates)
        if (pairs.empty()) pairs = paired(pattern);
      if (pairs.empty())
        fail("no input is called as the past of an output",
             fmt::format("say which with --decode-state INPUT=OUTPUT; inputs are {}, outputs {}",
                         fmt::join(inputs_, ", "), fmt::join(outputs_, ", ")));
    }
    for (const auto& pattern : options_.states) {
      const auto found = paired(pattern);
      if (found.empty())
        fail(fmt::format("no input and output are {} and {}", pattern.first, pattern.second),
             fmt::format("inputs are {}, outputs {}", fmt::join(inputs_, ", "),
                         fmt::join(outputs_, ", ")));
      pairs.insert(found.begin(), found.end());
    }
    for (const auto& [in, out] : pairs) add_state(in, out);
  }

  void add_state(size_t in, size_t out) {
    const ir::Type &before = input(in), &after = output(out);
    if (before->kind != ir::TypeKind::kTensor || after->kind != ir::TypeKind::kTensor ||
        before->dtype != after->dtype || before->dims.size() != after->dims.size())
      fail(fmt::format("{} is {} and {} is {}", inputs_[in], ir::str(before), outputs_[out],
                       ir::str(after)),
           "a state keeps its rank and element type");
    StepModel::State state{in, out, -1};
    for (size_t a = 0; a < before->dims.size(); ++a) {
      const ir::Dim& d = before->dims[a];
      if (d == after->dims[a] && d.as_constant()) continue;
      const auto symbol = d.as_symbol();
      if (a == 0 && symbol && d == after->dims[a]) {
        set_batch(*symbol);
        continue;
      }
      if (!symbol || state.axis >= 0 || (!model_.past.empty() && model_.past != *symbol))
        fail(
            fmt::format("{} {} becomes {} {}", inputs_[in], ir::str(before), outputs_[out],
                        ir::str(after)),
            "each state grows along one axis, by the same symbol; its other extents are constants");
      state.axis = static_cast<int64_t>(a);
      model_.past = *symbol;
    }
    if (state.axis < 0)
      fail(fmt::format("{} does not grow", inputs_[in]), "name the states with --decode-state");
    model_.states.push_back(state);
  }

  // The loop counts positions: each step must add as many as it takes tokens.
  void check_growth() const {
    const ir::Dim longer = ir::Dim::symbol(model_.past) + ir::Dim::symbol(model_.n);
    for (const StepModel::State& s : model_.states)
      if (const ir::Dim& d = output(s.output)->dims[static_cast<size_t>(s.axis)]; !(d == longer))
        fail(fmt::format("{} {} becomes {} {}", inputs_[s.input], ir::str(input(s.input)),
                         outputs_[s.output], ir::str(output(s.output))),
             fmt::format("a step makes each state longer by its tokens, {} here", longer.str()));
  }

  void set_batch(const std::string& symbol) {
    if (model_.batch && *model_.batch != symbol)
      fail(fmt::format("{} and {} are both batch sizes", *model_.batch, symbol),
           "fix them with --shape");
    model_.batch = symbol;
  }

  bool is_state(size_t i) const {
    return std::any_of(model_.states.begin(), model_.states.end(),
                       [&](const StepModel::State& s) { return s.input == i; });
  }

  void find_inputs() {
    std::optional<size_t> tokens;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (is_state(i)) continue;
      const ir::Type& t = input(i);
      const bool row = t->kind == ir::TypeKind::kTensor && t->dims.size() == 2;
      if (row && inputs_[i] == "input_ids") {
        tokens = i;
      } else if (row && inputs_[i] == "attention_mask") {
        model_.mask = i;
      } else if (row && inputs_[i] == "position_ids") {
        model_.positions = i;
      } else {
        fail(fmt::format("nothing is known of its input {} {}", inputs_[i], ir::str(t)),
             "besides its states it may take input_ids, attention_mask and position_ids, matrices");
      }
    }
    if (!tokens) fail("it has no input called input_ids", "rename the input of tokens");
    model_.tokens = *tokens;
    const ir::Type& t = input(*tokens);
    if (const auto b = t->dims[0].as_symbol())
      set_batch(*b);
    else if (!t->dims[0].is_constant(1))
      fail("input_ids has a batch of " + t->dims[0].str(), "export it with a batch of 1");
    const auto n = t->dims[1].as_symbol();
    if (t->dtype != DType::kI64 && t->dtype != DType::kI32)
      fail("input_ids is " + ir::str(t), "tokens are i64 or i32");
    if (!n)
      fail(fmt::format("it takes {} tokens at once", t->dims[1].str()),
           "export it with a symbol there: the prompt is one step");
    model_.n = *n;
    if (!model_.mask) return;
    const ir::Dim& length = input(*model_.mask)->dims[1];
    if (const auto total = length.as_symbol(); total && *total != model_.n) model_.total = *total;
  }

  void find_logits() {
    std::optional<size_t> logits;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const bool state = std::any_of(model_.states.begin(), model_.states.end(),
                                     [&](const StepModel::State& s) { return s.output == i; });
      const ir::Type& t = output(i);
      const bool fits = !state && t->kind == ir::TypeKind::kTensor && t->dims.size() == 3 &&
                        is_float(t->dtype) && t->dims[2].as_constant();
      if (fits && (!logits || outputs_[i] == "logits")) logits = i;
    }
    if (!logits) fail("no output is logits (1, n, vocabulary)", "export it with its head");
    model_.logits = *logits;
    model_.vocabulary = *output(*logits)->dims[2].as_constant();
  }

  const ir::Module& step_;
  const DecodeOptions& options_;
  ir::FunctionRef main_;
  Names inputs_, outputs_;
  StepModel model_;
};

}  // namespace

std::pair<std::string, std::string> parse_state(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string in = text.substr(0, equals);
  const std::string out = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (in.empty() || out.empty() || std::count(in.begin(), in.end(), '*') > 1 ||
      std::count(in.begin(), in.end(), '*') != std::count(out.begin(), out.end(), '*'))
    throw Error(Status::kInvalidArgument, "state " + text, "is not INPUT=OUTPUT",
                "write past.*=present.*, with one * on each side or none");
  return {in, out};
}

StepModel analyse_step(const ir::Module& step, const DecodeOptions& options) {
  return Analysis(step, options).run();
}

}  // namespace nimble::frontend
