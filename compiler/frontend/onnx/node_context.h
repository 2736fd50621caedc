// What the rule of an ONNX operator sees: one node, its inputs, its attributes with their defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/graph_builder.h"
#include "compiler/frontend/onnx/model.h"
#include "compiler/frontend/onnx/tensor_data.h"
#include "compiler/ir/axes.h"

namespace nimble::frontend::onnx {

using Values = std::vector<Value>;

class NodeContext {
 public:
  const Node& node;
  int64_t opset;
  GraphBuilder& g;
  ir::Module& module;  // where a rule may put functions
  ExternalData& external;
  std::shared_ptr<const void> file;  // keeps raw data alive
  const std::vector<std::optional<Value>>& inputs;
  std::string place;
  // The graphs of the node: the results of one, built here; and what one takes from the graphs
  // around it (constants apart), in an order of its own.
  struct Subgraphs {
    virtual ~Subgraphs() = default;
    virtual Values inlined(const Graph& graph, const Values& args,
                           const Values* captured) const = 0;
    virtual Values captured(const Graph& graph) const = 0;
  };
  const Subgraphs& subgraphs;

  const Graph& graph(const std::string& name) const {
    const Attribute* a = node.find(name);
    if (!a || a->graphs.size() != 1) fail(fmt::format("the graph {} is missing", name));
    return *a->graphs[0];
  }
  Values subgraph(const std::string& name, const Values& args) const {
    return subgraphs.inlined(graph(name), args, nullptr);
  }
  // With other values for what captured() lists.
  Values subgraph(const std::string& name, const Values& args, const Values& captured) const {
    return subgraphs.inlined(graph(name), args, &captured);
  }
  Values captured(const std::string& name) const { return subgraphs.captured(graph(name)); }

  size_t count() const { return inputs.size(); }
  bool has(size_t i) const { return i < inputs.size() && inputs[i].has_value(); }
  const Value& in(size_t i) const {
    if (!has(i)) fail(fmt::format("input {} is missing", i + 1));
    return *inputs[i];
  }
  bool wants(size_t output) const {
    return output < node.outputs.size() && !node.outputs[output].empty();
  }

  int64_t integer(const std::string& name, int64_t otherwise) const {
    const Attribute* a = node.find(name);
    return a ? a->i : otherwise;
  }
  int64_t integer(const std::string& name) const {
    if (!node.find(name)) fail(fmt::format("the attribute {} is missing", name));
    return integer(name, 0);
  }
  double real(const std::string& name, double otherwise) const {
    const Attribute* a = node.find(name);
    return a ? static_cast<double>(a->f) : otherwise;
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    const Attribute* a = node.find(name);
    return a ? a->s : otherwise;
  }
  Axes integers(const std::string& name, Axes otherwise = {}) const {
    const Attribute* a = node.find(name);
    return a ? a->ints : otherwise;
  }

  // Whether the contents of an integer input are known; otherwise the run must read them.
  bool known(size_t i) const { return in(i).contents.has_value(); }
  // The contents of an integer input as dims; an error if they depend on data.
  const Dims& dims(size_t i) const {
    if (!in(i).contents)
      unsupported(
          fmt::format("input {} ({}) depends on the values of tensors", i + 1, node.inputs[i]),
          "nimble needs it as constants or from shapes of inputs");
    return *in(i).contents;
  }
  // The same, or symbols of what the run reads there.
  Dims read(size_t i) const {
    const auto v = g.read_contents(in(i));
    if (!v)
      unsupported(fmt::format("the number of elements of input {} ({}) is not constant", i + 1,
                              node.inputs[i]),
                  "export it with a fixed rank");
    return *v;
  }
  // The same as constants.
  Axes constants(size_t i) const {
    Axes out;
    for (const ir::Dim& d : dims(i)) {
      auto c = d.as_constant();
      if (!c)
        unsupported(fmt::format("input {} ({}) is not constant", i + 1, node.inputs[i]),
                    "export the model with constant axes and steps");
      out.push_back(*c);
    }
    return out;
  }
  // The one element of an integer input, as a dim and as a constant.
  const ir::Dim& dim(size_t i) const {
    require_one(i, dims(i).size());
    return dims(i)[0];
  }
  int64_t integer_constant(size_t i) const {
    require_one(i, dims(i).size());
    return constants(i)[0];
  }
  // Axes that moved from an attribute to an input in some opset; nothing if neither is there.
  std::optional<Axes> axes(size_t input) const {
    if (node.find("axes")) return integers("axes");
    if (has(input) && ir::element_count(in(input).type).is_constant(0)) return Axes{};
    if (has(input)) return constants(input);
    return std::nullopt;
  }
  // The elements of an input that must be a constant, of any dtype.
  std::vector<double> numbers(size_t i) const {
    if (!in(i).is_constant())
      unsupported(fmt::format("input {} ({}) is not constant", i + 1, node.inputs[i]),
                  "export the model with it as a constant");
    std::vector<double> out;
    const ir::Tensor& t = *in(i).atom.constant;
    for (int64_t k = 0; k < t.elements(); ++k)
      out.push_back(is_float(t.dtype) ? t.value(k) : static_cast<double>(t.integer(k)));
    return out;
  }
  // Whether an operand says the axes that an attribute does not, and only the run knows them.
  bool axes_are_read(size_t input) const {
    if (node.find("axes") || !has(input)) return false;
    if (!in(input).contents) return !ir::element_count(in(input).type).is_constant(0);
    for (const ir::Dim& d : *in(input).contents)
      if (!d.as_constant()) return true;
    return false;
  }
  // The value of a constant one-element input, if it is one.
  std::optional<double> number(size_t i) const {
    if (!has(i) || !in(i).is_constant() || in(i).atom.constant->elements() != 1) return {};
    return in(i).atom.constant->value(0);
  }

  int64_t axis(int64_t axis, int64_t rank) const {
    if (axis < -rank || axis >= rank)
      fail(fmt::format("axis {} is out of range for rank {}", axis, rank));
    return ir::axis_from_front(axis, rank);
  }

  void require_one(size_t i, size_t elements) const {
    if (elements != 1)
      fail(fmt::format("input {} has {} elements where one is needed", i + 1, elements));
  }
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(Status::kCorrupt, place, problem, "export the model again");
  }
  [[noreturn]] void unsupported(const std::string& problem, const std::string& remedy) const {
    throw Error(Status::kUnsupported, place, problem, remedy);
  }
};

}  // namespace nimble::frontend::onnx
