// Walks an ONNX graph in its order and applies the rules of the operators.
//
// Before anything is built, all nodes are checked against the table of operators, those in the
// bodies of model-local functions included, so that one error names everything nimble lacks.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "compiler/frontend/onnx/catalogue.h"
#include "compiler/frontend/onnx/onnx.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/frontend/onnx/sequences.h"
#include "compiler/frontend/specialise.h"
#include "compiler/ir/dim_functions.h"
#include "compiler/ir/type_dims.h"

namespace nimble::frontend {
namespace onnx {
namespace {

constexpr int kDeepest = 100;           // graphs and model-local functions in each other
constexpr size_t kMostNodes = 250'000;  // after inlining: functions could grow exponentially
constexpr size_t kMostBounds = 64;      // of dims by tables; each costs an import

const LocalFunction* find_function(const Model& m, const Node& n) {
  for (const LocalFunction& f : m.functions)
    if (f.name == n.op && f.domain == n.domain) return &f;
  return nullptr;
}

// ------------------------------------------------------------------------------ what is there

// One line of the table that coverage() returns, with every node that is not supported.
struct Usage {
  Coverage::Row row;
  int64_t opset = 0;
  std::vector<std::string> nodes;
};

class Survey {
 public:
  explicit Survey(const Model& m) : model_(m) {
    visit(m.graph.nodes, m.opsets);
    for (const LocalFunction& f : m.functions)
      if (called_.contains(&f)) visit(f.nodes, f.opsets.empty() ? m.opsets : f.opsets);
  }

  const std::map<std::pair<std::string, std::string>, Usage>& usages() const { return usages_; }

  void require_supported() const {
    std::string list;
    size_t count = 0;
    for (const auto& [key, u] : usages_) {
      if (u.row.supported) continue;
      count += u.nodes.size();
      list += fmt::format("{}{} ({}, opset {}; {}) at {}", list.empty() ? "" : "; ", u.row.op,
                          u.row.domain.empty() ? "domain ai.onnx" : "domain " + u.row.domain,
                          u.opset, u.row.reason, fmt::join(u.nodes, ", "));
    }
    if (count)
      throw Error(Status::kUnsupported, model_.path,
                  fmt::format("{} unsupported node{}: {}", count, count == 1 ? "" : "s", list),
                  "export the model without them");
  }

 private:
  void visit(const std::vector<Node>& nodes, const std::map<std::string, int64_t>& opsets) {
    for (const Node& n : nodes) {
      Usage& u = usages_[{n.op, n.domain}];
      u.row.op = n.op;
      u.row.domain = n.domain;
      auto version = opsets.find(n.domain);
      u.opset = version == opsets.end() ? 0 : version->second;
      const std::string reason = reason_against(n, u.opset);
      if (++u.row.count == 1) u.row.supported = true;
      if (!reason.empty()) {
        if (u.row.supported) {
          u.row.supported = false;
          u.row.reason = reason;
          u.row.first_node = n.label();
        }
        u.nodes.push_back(n.label());
      }
      for (const Attribute& a : n.attributes)
        for (const auto& g : a.graphs) visit(g->nodes, opsets);
    }
  }

  std::string reason_against(const Node& n, int64_t opset) {
    if (const LocalFunction* f = find_function(model_, n)) {
      called_.insert(f);
      return "";
    }
    const Operator* op = find_operator(n.domain, n.op);
    if (!op) return missing_reason(n.domain, n.op);
    return op->check ? op->check(n, opset) : "";
  }

  const Model& model_;
  std::unordered_set<const LocalFunction*> called_;
  std::map<std::pair<std::string, std::string>, Usage> usages_;
};

// ---------------------------------------------------------------------------------- the import

std::string identifier(const std::string& name, const std::string& otherwise) {
  std::string out;
  for (char ch : name) out += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  if (out.empty()) return otherwise;
  if (std::isdigit(static_cast<unsigned char>(out[0]))) out = "_" + out;
  // The functions of dim expressions are no symbols.
  return ir::find_dim_function(out) ? out + "_" : out;
}

// The values of one graph or function body by their names.
using Environment = std::unordered_map<std::string, Value>;

class Importer {
 public:
  // `bounds` of symbols are checked at the entry.
  Importer(const Model& m, const std::vector<BoundNeeded>& bounds)
      : model_(m), bounds_(bounds), external_(folder_of(m.path)), g_(module_) {}

  ir::Module run(const ImportOptions& options) {
    module_.source = model_.path;
    module_.set("main", nullptr);  // main stands first
    Environment values;
    if (model_.graph.has_sparse)
      throw Error(Status::kUnsupported, model_.path, "sparse initialisers are not supported",
                  "store the weights densely");
    for (const TensorData& t : model_.graph.initialisers) {
      const std::string place = fmt::format("{}: initialiser {}", model_.path, t.name);
      define(values, t.name, g_.constant(to_tensor(t, model_.file, external_, place)), place);
    }
    ir::Module::Signature signature;
    std::vector<const ValueInfo*> inputs;  // without initialisers' defaults, listed before IR 4
    std::vector<ir::Type> types;
    std::set<std::string> symbols;
    for (const ValueInfo& v : model_.graph.inputs) {
      if (values.contains(v.name)) continue;
      inputs.push_back(&v);
      types.push_back(type_of(v));
      ir::all_symbols_of(types.back(), symbols);
    }
    const Replacement replacement = replacement_of(std::move(symbols), options, model_.path);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueInfo& v = *inputs[i];
      define(values, v.name,
             g_.parameter(identifier(v.name, "input"), ir::substitute(types[i], replacement)),
             model_.path + ": inputs");
      signature.input_names.push_back(v.name);
      signature.input_defaults.emplace_back();
    }
    if (const std::string& random_input = options.random_input; !random_input.empty()) {
      if (values.contains(random_input))
        throw Error(Status::kInvalidArgument, model_.path,
                    fmt::format("has a value {} already", random_input),
                    "give the random input another name");
      g_.draw_from(
          g_.parameter(identifier(random_input, "input"), ir::tensor_type({}, DType::kI64)));
      signature.input_names.push_back(random_input);
      signature.input_defaults.emplace_back("zeros");
    }
    for (const BoundNeeded& b : bounds_) {
      Value& input = values.at(signature.input_names.at(*g_.parameter_with(b.dim)));
      input = g_.assert_bound(input, b);
    }
    run_nodes(model_.graph.nodes, model_.opsets, {}, values, 0);
    Values results;
    for (const ValueInfo& v : model_.graph.outputs) {
      auto it = values.find(v.name);
      if (it == values.end()) corrupt(fmt::format("no node computes the output {}", v.name));
      check_declared(it->second, v);
      results.push_back(as_result(it->second, v));
      signature.output_names.push_back(v.name);
    }
    if (results.empty()) corrupt("the graph has no outputs");
    module_.set("main", g_.finish(results));
    module_.signatures["main"] = std::move(signature);
    return std::move(module_);
  }

 private:
  [[noreturn]] void corrupt(const std::string& problem) const {
    throw Error(Status::kCorrupt, model_.path, problem, "export the model again");
  }

  void define(Environment& values, const std::string& name, Value v, const std::string& place) {
    if (!values.emplace(name, std::move(v)).second)
      throw Error(Status::kCorrupt, place, fmt::format("the value {} is defined twice", name),
                  "export the model again");
  }

  ir::Type type_of(const ValueInfo& v) {
    const std::string place = fmt::format("{}: input {}", model_.path, v.name);
    if (!v.is_tensor)
      throw Error(Status::kUnsupported, place, "is not a tensor",
                  "use tensors, sequences and optional values of tensors as inputs");
    if (!v.has_shape)
      throw Error(Status::kUnsupported, place, "has no rank",
                  "export the model with shapes (extents may be symbolic)");
    Dims dims;
    for (size_t i = 0; i < v.dims.size(); ++i) {
      const ValueInfo::Dim& d = v.dims[i];
      if (d.has_value) {
        if (d.value < 0)
          throw Error(Status::kCorrupt, place, fmt::format("axis {} has extent {}", i, d.value),
                      "export the model again");
        dims.emplace_back(d.value);
      } else {
        dims.push_back(ir::Dim::symbol(
            symbol_for(d.symbol, fmt::format("{}_{}", identifier(v.name, "input"), i))));
      }
    }
    const DType dtype = dtype_of(v.type, place);
    if (v.around.empty()) return ir::tensor_type(std::move(dims), dtype);
    ir::Type type = ir::tensor_type(Dims(dims.size(), ir::Dim::any()), dtype);
    for (auto kind = v.around.rbegin(); kind != v.around.rend(); ++kind) {
      const std::string name = *kind == 's' ? "Sequence" : "Optional";
      g_.define_data(name);
      type = ir::data_type(name, {std::move(type)});
    }
    return type;
  }

  // An output's declaration against what its nodes compute. Exporters often leave stale shapes
  // behind, which do no harm; a wrong element type would change the meaning of the caller's bytes.
  void check_declared(const Value& v, const ValueInfo& declared) {
    if (!declared.is_tensor || !declared.around.empty() || declared.type == 0 || !is_plain(v))
      return;
    const std::string place = fmt::format("{}: output {}", model_.path, declared.name);
    const DType dtype = dtype_of(declared.type, place);
    if (dtype != v.dtype())
      throw Error(Status::kCorrupt, place,
                  fmt::format("it is declared as {} and computed as {}", name_of(dtype),
                              name_of(v.dtype())),
                  "declare its true type, or cast it");
    if (!declared.has_shape) return;
    bool agrees = declared.dims.size() == v.dims().size();
    for (size_t i = 0; agrees && i < declared.dims.size(); ++i)
      agrees = !declared.dims[i].has_value ||
               v.dim(i).as_constant().value_or(declared.dims[i].value) == declared.dims[i].value;
    if (agrees) return;
    std::vector<std::string> extents;
    for (const ValueInfo::Dim& d : declared.dims)
      extents.push_back(d.has_value ? std::to_string(d.value) : d.symbol.empty() ? "?" : d.symbol);
    fmt::print(stderr, "warning: {}: it is declared with the shape ({}) and computed as {}\n",
               place, fmt::join(extents, ", "), ir::str(v.type));
  }

  // A result as a value of the run. The declared type helps where nothing is known of an empty one.
  Value as_result(const Value& v, const ValueInfo& declared) {
    ir::Type type = stored_type(v);
    if (!declared.around.empty() && declared.has_shape)
      type = joined_type(type, type_of(declared), model_.path);
    if (!is_complete(type))
      throw Error(Status::kUnsupported, fmt::format("{}: output {}", model_.path, declared.name),
                  "is an empty sequence of an unknown rank", "export the model with its shape");
    return stored(g_, v, type);
  }

  // The model's name for a dim as an identifier; two names never become one symbol.
  std::string symbol_for(const std::string& name, const std::string& otherwise) {
    const std::string key = name.empty() ? "\n" + otherwise : name;
    auto [it, added] = symbols_.try_emplace(key);
    if (!added) return it->second;
    std::string s = identifier(name, otherwise);
    while (!used_symbols_.insert(s).second) s += "_";
    return it->second = s;
  }

  static int64_t opset_of(const Node& n, const std::map<std::string, int64_t>& opsets) {
    auto it = opsets.find(n.domain);
    return it == opsets.end() ? 0 : it->second;
  }

  // `attributes` are those of the enclosing call, which nodes of a function body may refer to.
  void run_nodes(const std::vector<Node>& nodes, const std::map<std::string, int64_t>& opsets,
                 const std::map<std::string, Attribute>& attributes, Environment& values,
                 int depth) {
    if (depth > kDeepest)
      corrupt(
          fmt::format("graphs and model-local functions are nested more than {} deep", kDeepest));
    for (const Node& written : nodes) {
      if (++nodes_done_ > kMostNodes) corrupt("the graph has too many nodes");
      const Node node = depth == 0 ? written : resolve(written, attributes);
      const std::string place = fmt::format("{}: node {} ({})", model_.path, node.label(), node.op);
      std::vector<std::optional<Value>> inputs;
      for (const std::string& name : node.inputs) {
        if (name.empty()) {
          inputs.emplace_back();
          continue;
        }
        auto it = values.find(name);
        if (it == values.end())
          throw Error(Status::kCorrupt, place,
                      fmt::format("its input {} is not defined before it", name),
                      "export the model again");
        inputs.emplace_back(it->second);
      }
      const NodeGraphs graphs(*this, opsets, attributes, values, depth);
      Values results = apply(node, opset_of(node, opsets), inputs, place, depth, graphs);
      if (node.outputs.size() > results.size() && uses_from(node, results.size()))
        throw Error(Status::kCorrupt, place,
                    fmt::format("it has {} outputs where {} are known", node.outputs.size(),
                                results.size()),
                    "export the model again");
      for (size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i)
        if (!node.outputs[i].empty()) define(values, node.outputs[i], results[i], place);
    }
  }

  // What the nodes of a graph, and of those inside them, take from outside: names in their order.
  static void free_names(const Graph& graph, std::set<std::string> known,
                         std::vector<std::string>* out) {
    for (const TensorData& t : graph.initialisers) known.insert(t.name);
    for (const ValueInfo& v : graph.inputs) known.insert(v.name);
    const auto use = [&](const std::string& name) {
      if (!name.empty() && !known.contains(name) &&
          std::find(out->begin(), out->end(), name) == out->end())
        out->push_back(name);
    };
    for (const Node& n : graph.nodes) {
      for (const std::string& name : n.inputs) use(name);
      for (const Attribute& a : n.attributes)
        for (const auto& g : a.graphs) free_names(*g, known, out);
      known.insert(n.outputs.begin(), n.outputs.end());
    }
    for (const ValueInfo& v : graph.outputs) use(v.name);
  }

  class NodeGraphs : public NodeContext::Subgraphs {
   public:
    NodeGraphs(Importer& importer, const std::map<std::string, int64_t>& opsets,
               const std::map<std::string, Attribute>& attributes, const Environment& around,
               int depth)
        : importer_(importer),
          opsets_(opsets),
          attributes_(attributes),
          around_(around),
          depth_(depth) {}

    Values inlined(const Graph& graph, const Values& args, const Values* captured) const override {
      if (!captured) return importer_.run_graph(graph, args, opsets_, attributes_, around_, depth_);
      Environment values = around_;
      const std::vector<std::string> names = captured_names(graph);
      for (size_t i = 0; i < names.size(); ++i) values.insert_or_assign(names[i], (*captured)[i]);
      return importer_.run_graph(graph, args, opsets_, attributes_, values, depth_);
    }
    Values captured(const Graph& graph) const override {
      Values out;
      for (const std::string& name : captured_names(graph)) out.push_back(around_.at(name));
      return out;
    }

   private:
    std::vector<std::string> captured_names(const Graph& graph) const {
      std::vector<std::string> all, out;
      free_names(graph, {}, &all);
      for (const std::string& name : all)
        if (auto it = around_.find(name); it != around_.end() && !it->second.is_constant())
          out.push_back(name);
      return out;
    }

    Importer& importer_;
    const std::map<std::string, int64_t>& opsets_;
    const std::map<std::string, Attribute>& attributes_;
    const Environment& around_;
    int depth_;
  };

  // The results of a graph inside a node, which sees the values around it.
  Values run_graph(const Graph& graph, const Values& args,
                   const std::map<std::string, int64_t>& opsets,
                   const std::map<std::string, Attribute>& attributes, const Environment& around,
                   int depth) {
    if (args.size() != graph.inputs.size())
      corrupt(fmt::format("the graph {} has {} inputs where {} are given", graph.name,
                          graph.inputs.size(), args.size()));
    if (graph.has_sparse) corrupt("a graph inside a node has sparse initialisers");
    Environment values = around;
    for (const TensorData& t : graph.initialisers) {
      const std::string place = fmt::format("{}: initialiser {}", model_.path, t.name);
      values.insert_or_assign(t.name, g_.constant(to_tensor(t, model_.file, external_, place)));
    }
    for (size_t i = 0; i < args.size(); ++i) values.insert_or_assign(graph.inputs[i].name, args[i]);
    run_nodes(graph.nodes, opsets, attributes, values, depth + 1);
    Values out;
    for (const ValueInfo& v : graph.outputs) {
      auto it = values.find(v.name);
      if (it == values.end())
        corrupt(fmt::format("the graph {} does not compute its output {}", graph.name, v.name));
      out.push_back(it->second);
    }
    return out;
  }

  static bool uses_from(const Node& n, size_t from) {
    return std::any_of(n.outputs.begin() + static_cast<int64_t>(from), n.outputs.end(),
                       [](const std::string& s) { return !s.empty(); });
  }

  Values apply(const Node& node, int64_t opset, const std::vector<std::optional<Value>>& inputs,
               const std::string& place, int depth, const NodeContext::Subgraphs& graphs) {
    if (const LocalFunction* f = find_function(model_, node))
      return call_local(*f, node, inputs, depth);
    const Operator* op = find_operator(node.domain, node.op);
    NIMBLE_CHECK(op, "{} passed the survey", node.op);
    ir::Location at;
    at.file = model_.path;
    at.source_name = node.label();
    g_.set_place(std::move(at), identifier(node.outputs.empty() ? "" : node.outputs[0], "t"));
    NodeContext context{node, opset, g_, module_, external_, model_.file, inputs, place, graphs};
    for (size_t i = 0; i < inputs.size() && !op->any_value; ++i)
      if (inputs[i] && !is_plain(*inputs[i]))
        throw Error(Status::kUnsupported, place, fmt::format("input {} is not a tensor", i + 1),
                    "export the model with tensors there");
    try {
      if (op->moves)
        if (auto made = moved_bytes(context, op->rule)) return *std::move(made);
      return op->rule(context);
    } catch (const Error& e) {
      if (e.place().starts_with(place)) throw;
      throw Error(e.status(), place, e.problem(), e.remedy());
    }
  }

  Values call_local(const LocalFunction& f, const Node& node,
                    const std::vector<std::optional<Value>>& inputs, int depth) {
    Environment values;
    for (size_t i = 0; i < std::min(f.inputs.size(), inputs.size()); ++i)
      if (inputs[i]) values.emplace(f.inputs[i], *inputs[i]);
    std::map<std::string, Attribute> attributes;
    for (const Attribute& a : f.defaults) attributes[a.name] = a;
    for (const Attribute& a : node.attributes) attributes[a.name] = a;
    run_nodes(f.nodes, f.opsets.empty() ? model_.opsets : f.opsets, attributes, values, depth + 1);
    Values out;
    for (const std::string& name : f.outputs) {
      auto it = values.find(name);
      if (it == values.end())
        corrupt(fmt::format("the function {} does not compute its output {}", f.name, name));
      out.push_back(it->second);
    }
    return out;
  }

  // Replaces references to attributes of the enclosing call by these; absent ones are left out.
  static Node resolve(const Node& node, const std::map<std::string, Attribute>& attributes) {
    Node out = node;
    out.attributes.clear();
    for (const Attribute& a : node.attributes) {
      if (a.reference.empty()) {
        out.attributes.push_back(a);
        continue;
      }
      auto it = attributes.find(a.reference);
      if (it == attributes.end()) continue;
      out.attributes.push_back(it->second);
      out.attributes.back().name = a.name;
    }
    return out;
  }

  static std::string folder_of(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
  }

  const Model& model_;
  const std::vector<BoundNeeded>& bounds_;
  ExternalData external_;
  ir::Module module_;
  GraphBuilder g_;
  size_t nodes_done_ = 0;
  std::map<std::string, std::string> symbols_;
  std::set<std::string> used_symbols_;
};

}  // namespace

}  // namespace onnx

ir::Module import_onnx(const std::string& path, const ImportOptions& options) {
  const onnx::Model model = onnx::read_model(path);
  const int64_t opset = model.opsets.at("");
  if (opset < onnx::kOldestOpset || opset > onnx::kNewestOpset)
    throw Error(
        Status::kUnsupported, path, fmt::format("operator set {} is not supported", opset),
        fmt::format("export with an opset from {} to {}", onnx::kOldestOpset, onnx::kNewestOpset));
  onnx::Survey(model).require_supported();
  std::vector<onnx::BoundNeeded> bounds;
  while (true) {
    try {
      return onnx::Importer(model, bounds).run(options);
    } catch (const onnx::BoundNeeded& b) {
      if (bounds.size() == onnx::kMostBounds)
        throw Error(Status::kUnsupported, path,
                    fmt::format("tables bound more than {} dims", onnx::kMostBounds),
                    "export the model with fewer symbolic dims");
      bounds.push_back(b);
    }
  }
}

Coverage onnx_coverage(const std::string& path) {
  const onnx::Model model = onnx::read_model(path);
  Coverage out{"onnx", {}};
  const onnx::Survey survey(model);
  for (const auto& [key, usage] : survey.usages()) out.rows.push_back(usage.row);
  return out;
}

}  // namespace nimble::frontend
