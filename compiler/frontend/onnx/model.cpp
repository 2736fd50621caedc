// Field numbers are those of onnx.proto (ONNX IR version 3 to 12).
#include "compiler/frontend/onnx/model.h"

#include <algorithm>

#include "compiler/frontend/onnx/wire.h"

namespace nimble::frontend::onnx {
namespace {

constexpr size_t kMostRank = 32;

Graph parse_graph(WireReader in);

std::pair<std::string, std::string> parse_entry(WireReader in) {
  std::pair<std::string, std::string> out;
  while (in.next()) {
    if (in.field() == 1) out.first = in.text();
    if (in.field() == 2) out.second = in.string();
  }
  return out;
}

TensorData parse_tensor(WireReader in) {
  TensorData t;
  auto add_integer = [&](uint64_t v) { t.integers.push_back(static_cast<int64_t>(v)); };
  while (in.next()) {
    switch (in.field()) {
      case 1:
        in.repeated_varint([&](uint64_t v) { t.dims.push_back(static_cast<int64_t>(v)); });
        if (t.dims.size() > kMostRank) in.fail("a tensor has too many dims");
        break;
      case 2:
        t.type = static_cast<int32_t>(in.integer());
        break;
      case 3:
        in.fail("a tensor is split in segments, which no exporter writes");
      case 4:
        in.repeated_fixed<uint32_t>(
            [&](uint32_t v) { t.floats.push_back(std::bit_cast<float>(v)); });
        break;
      case 5:
      case 7:
      case 11:
        in.repeated_varint(add_integer);
        break;
      case 8:
        t.name = in.text();
        break;
      case 9:
        t.raw = in.bytes();
        t.has_raw = true;
        break;
      case 10:
        in.repeated_fixed<uint64_t>(
            [&](uint64_t v) { t.doubles.push_back(std::bit_cast<double>(v)); });
        break;
      case 13:
        t.external.push_back(parse_entry(in.message()));
        break;
      case 14:
        t.is_external = in.integer() == 1;
        break;
    }
  }
  return t;
}

Attribute parse_attribute(WireReader in) {
  Attribute a;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        a.name = in.text();
        break;
      case 2:
        a.f = in.f32();
        break;
      case 3:
        a.i = in.integer();
        break;
      case 4:
        a.s = in.string();
        break;
      case 5:
        a.t = std::make_shared<TensorData>(parse_tensor(in.message()));
        break;
      case 6:
      case 11:
        a.graphs.push_back(std::make_shared<Graph>(parse_graph(in.message())));
        break;
      case 7:
        in.repeated_fixed<uint32_t>(
            [&](uint32_t v) { a.floats.push_back(std::bit_cast<float>(v)); });
        break;
      case 8:
        in.repeated_varint([&](uint64_t v) { a.ints.push_back(static_cast<int64_t>(v)); });
        break;
      case 9:
        a.strings.push_back(in.string());
        break;
      case 20:
        a.type = in.integer();
        break;
      case 21:
        a.reference = in.text();
        break;
    }
  }
  return a;
}

Node parse_node(WireReader in) {
  Node n;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        n.inputs.push_back(in.text());
        break;
      case 2:
        n.outputs.push_back(in.text());
        break;
      case 3:
        n.name = in.text();
        break;
      case 4:
        n.op = in.text();
        break;
      case 5:
        n.attributes.push_back(parse_attribute(in.message()));
        break;
      case 7:
        n.domain = canonical_domain(in.text());
        break;
    }
  }
  if (n.op.empty()) in.fail("a node has no operator");
  return n;
}

ValueInfo::Dim parse_dim(WireReader in) {
  ValueInfo::Dim d;
  while (in.next()) {
    if (in.field() == 1) {
      d.value = in.integer();
      d.has_value = true;
    }
    if (in.field() == 2) d.symbol = in.text();
  }
  return d;
}

void parse_tensor_type(WireReader in, ValueInfo* out) {
  out->is_tensor = true;
  while (in.next()) {
    if (in.field() == 1) out->type = static_cast<int32_t>(in.integer());
    if (in.field() != 2) continue;
    out->has_shape = true;
    WireReader shape = in.message();
    while (shape.next())
      if (shape.field() == 1) out->dims.push_back(parse_dim(shape.message()));
    if (out->dims.size() > kMostRank) in.fail("a value has too many dims");
  }
}

constexpr size_t kDeepestType = 8;  // sequences in each other

void parse_type(WireReader in, ValueInfo* out) {
  while (in.next()) {
    if (in.field() == 1) parse_tensor_type(in.message(), out);
    if (in.field() != 4 && in.field() != 9) continue;
    out->around += in.field() == 4 ? 's' : 'o';
    if (out->around.size() > kDeepestType) in.fail("a type has too many parts");
    WireReader inner = in.message();
    while (inner.next())
      if (inner.field() == 1) parse_type(inner.message(), out);
  }
}

ValueInfo parse_value(WireReader in) {
  ValueInfo v;
  while (in.next()) {
    if (in.field() == 1) v.name = in.text();
    if (in.field() != 2) continue;
    parse_type(in.message(), &v);
  }
  return v;
}

Graph parse_graph(WireReader in) {
  Graph g;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        g.nodes.push_back(parse_node(in.message()));
        break;
      case 2:
        g.name = in.text();
        break;
      case 5:
        g.initialisers.push_back(parse_tensor(in.message()));
        break;
      case 11:
        g.inputs.push_back(parse_value(in.message()));
        break;
      case 12:
        g.outputs.push_back(parse_value(in.message()));
        break;
      case 15:
        g.has_sparse = true;
        break;
    }
  }
  return g;
}

void parse_opset(WireReader in, std::map<std::string, int64_t>* out) {
  std::string domain;
  int64_t version = 0;
  while (in.next()) {
    if (in.field() == 1) domain = in.text();
    if (in.field() == 2) version = in.integer();
  }
  (*out)[canonical_domain(domain)] = version;
}

LocalFunction parse_function(WireReader in) {
  LocalFunction f;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        f.name = in.text();
        break;
      case 4:
        f.inputs.push_back(in.text());
        break;
      case 5:
        f.outputs.push_back(in.text());
        break;
      case 7:
        f.nodes.push_back(parse_node(in.message()));
        break;
      case 9:
        parse_opset(in.message(), &f.opsets);
        break;
      case 10:
        f.domain = canonical_domain(in.text());
        break;
      case 11:
        f.defaults.push_back(parse_attribute(in.message()));
        break;
    }
  }
  return f;
}

}  // namespace

std::string canonical_domain(std::string domain) {
  return domain == "ai.onnx" ? std::string() : domain;
}

const Attribute* Node::find(const std::string& attribute) const {
  auto it = std::find_if(attributes.begin(), attributes.end(),
                         [&](const Attribute& a) { return a.name == attribute; });
  return it == attributes.end() ? nullptr : &*it;
}

std::string Node::label() const {
  if (!name.empty()) return name;
  return outputs.empty() ? op : op + " -> " + outputs[0];
}

Model read_model(const std::string& path) {
  Model m;
  m.path = path;
  m.file = MappedFile::open(path);
  const std::span<const uint8_t> bytes = m.file->bytes();
  WireReader in(bytes, bytes.data(), &path);
  bool has_graph = false;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        m.ir_version = in.integer();
        break;
      case 2:
        m.producer = in.text();
        break;
      case 7:
        if (has_graph) in.fail("there are two graphs");
        m.graph = parse_graph(in.message());
        has_graph = true;
        break;
      case 8:
        parse_opset(in.message(), &m.opsets);
        break;
      case 25:
        m.functions.push_back(parse_function(in.message()));
        break;
    }
  }
  auto corrupt = [&](const std::string& problem) {
    throw Error(Status::kCorrupt, path, problem,
                "the file is truncated or no ONNX model; export or download it again");
  };
  if (!has_graph) corrupt("there is no graph in the file");
  if (m.ir_version < 3) corrupt(fmt::format("the ONNX IR version is {}", m.ir_version));
  if (m.opsets.empty()) corrupt("the file names no operator set");
  // A model of other domains alone names no version of the standard one, and has no use for it.
  constexpr int64_t kAnyOpset = 17;
  m.opsets.try_emplace("", kAnyOpset);
  return m;
}

}  // namespace nimble::frontend::onnx
